"""How names from the outside appear in a line of text."""

from __future__ import annotations

__all__ = ["printable"]

JOINER = chr(0x200D)  # holds composed emoji together


def printable(text: str) -> str:
    """Keep a name from breaking a line, a table or the terminal: control characters are shown, not obeyed.

    >>> printable("north")
    'north'
    >>> print(printable(chr(27) + "[31m" + chr(10)))
    \\x1b[31m\\n
    """
    return "".join(c if c.isprintable() or c == JOINER else repr(c)[1:-1] for c in text)
