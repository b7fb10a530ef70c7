"""How names from the outside appear in a line of text."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["FEW", "brief", "listed", "named", "printable", "public", "without_secrets"]

JOINER = chr(0x200D)  # holds composed emoji together
LONGEST = 48
FEW = 12  # names that a line may have
NO_VALUE = "(no value)"  # the items whose value is missing have an empty name
AFTER = re.compile(r"([?#]).*", re.S)  # a query or a fragment
ADDRESS = re.compile(r"[A-Za-z][\w+.-]*://[^\s'\"<>]+")


def printable(text: str) -> str:
    """Keep a name from breaking a line, a table or the terminal: control characters are shown, not obeyed.

    >>> printable("north")
    'north'
    >>> print(printable(chr(27) + "[31m" + chr(10)))
    \\x1b[31m\\n
    """
    return "".join(c if c.isprintable() or c == JOINER else repr(c)[1:-1] for c in text)


def named(name: str) -> str:
    """The name of a collection, printable; what has none is told too, as nobody sees a blank.

    >>> named("north"), named("")
    ('north', '(no value)')
    """
    return printable(name) or NO_VALUE


def brief(text: str, most: int = LONGEST) -> str:
    """Keep a name from making a line or a table as wide as itself: of a long one, the beginning and the end are shown.

    >>> brief("north")
    'north'
    >>> brief("a name that goes on and on", 12)
    'a name …d on'
    """
    shown = named(text)
    if len(shown) <= most:
        return shown
    end = most // 3
    return f"{shown[: most - end - 1]}…{shown[-end:]}"


def listed(names: Sequence[str], most: int = FEW) -> str:
    """The first of many names, which are printable already, and how many more there are.

    >>> listed(["Anna", "Bruno", "Clara", "Daniel"], 2)
    'Anna, Bruno and 2 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def public(address: str) -> str:
    """Leave out of an address what lets others in: user and password, query, fragment.

    A password may hold any letter, an @ or a slash too, so all is cut up to the last @ that may end one. An @ in a
    path is then sometimes cut with it, which harms nobody.

    >>> public("https://me:secret@host/a.npy?signature=1f2e")
    'https://…host/a.npy?…'
    """
    scheme, mark, rest = address.partition("://")
    if not mark:
        return address
    first = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if ":" in first and "@" in rest:
        rest = "…" + rest.rpartition("@")[2]
    elif "@" in first:
        rest = "…" + first.rpartition("@")[2] + rest[len(first) :]
    return scheme + mark + AFTER.sub(r"\1…", rest)


def without_secrets(text: str) -> str:
    """A message in which every address is public.

    >>> without_secrets("404, url='https://host/a.npy?key=1f2e'")
    "404, url='https://host/a.npy?…'"
    """
    return ADDRESS.sub(lambda match: public(match[0]), text)
