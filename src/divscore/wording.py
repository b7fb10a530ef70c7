"""How names from the outside appear in a line of text."""

from __future__ import annotations

__all__ = ["brief", "printable"]

JOINER = chr(0x200D)  # holds composed emoji together
LONGEST = 48


def printable(text: str) -> str:
    """Keep a name from breaking a line, a table or the terminal: control characters are shown, not obeyed.

    >>> printable("north")
    'north'
    >>> print(printable(chr(27) + "[31m" + chr(10)))
    \\x1b[31m\\n
    """
    return "".join(c if c.isprintable() or c == JOINER else repr(c)[1:-1] for c in text)


def brief(text: str, most: int = LONGEST) -> str:
    """Keep a name from making a line or a table as wide as itself: of a long one, the beginning and the end are shown.

    >>> brief("north")
    'north'
    >>> brief("a name that goes on and on", 12)
    'a name …d on'
    """
    shown = printable(text)
    if len(shown) <= most:
        return shown
    end = most // 3
    return f"{shown[: most - end - 1]}…{shown[-end:]}"
