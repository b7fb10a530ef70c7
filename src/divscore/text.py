"""How names from the outside appear in a line of text."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

__all__ = [
    "FEW",
    "brief",
    "count",
    "joined",
    "level",
    "listed",
    "named",
    "p_value",
    "percent",
    "percent_ends",
    "printable",
    "public",
    "signed",
    "unsigned",
    "without_secrets",
]


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


# Shares as per cents, in which few never read as none, and nearly all never as all.

NEAR = 0.0095  # so near to 0 or 1, a share gets a decimal
LEAST = 0.0005  # what a decimal cannot show


def percent(share: float, digits: int = 0) -> str:
    """A share in whole per cents, or with so many `digits`; near 0 and 1 with one at least.

    >>> [percent(share) for share in (0.0, 0.0001, 0.002, 0.337, 0.998, 0.9999, 1.0)]
    ['0%', '<0.1%', '0.2%', '34%', '99.8%', '>99.9%', '100%']
    """
    if not math.isfinite(share):
        return "?"
    if share in (0.0, 1.0):
        return f"{share:.{digits}%}"
    if share < LEAST:
        return "<0.1%"
    if share >= 1 - LEAST:
        return ">99.9%"
    near = share < NEAR or share > 1 - NEAR
    return f"{share:.{max(digits, int(near))}%}"


def percent_ends(low: float, high: float) -> tuple[str, str]:
    """The limits of a share in whole per cents; with a decimal, rounded outwards, where these would be the same.

    >>> percent_ends(0.304, 0.58), percent_ends(0.0021, 0.004), percent_ends(0.694, 0.998)
    (('30%', '58%'), ('0.2%', '0.4%'), ('69%', '100%'))
    """
    ends = f"{low:.0%}", f"{high:.0%}"
    if ends[0] != ends[1] or low == high:
        return ends
    # Without the digits that only come of multiplying.
    return _tenth(math.floor(round(1000 * low, 6))), _tenth(math.ceil(round(1000 * high, 6)))


def _tenth(parts: int) -> str:
    return f"{parts / 1000:.{int(parts not in (0, 1000))}%}"


# Other numbers, and words with them.


def signed(value: float) -> str:
    """A disparity with its sign and two decimals.

    >>> [signed(value) for value in (-0.184, 0.05, -0.001, math.nan)]
    ['-0.18', '+0.05', '0.00', '?']
    """
    text = f"{value:+.2f}" if math.isfinite(value) else "?"
    return "0.00" if text in ("+0.00", "-0.00") else text


def unsigned(value: float, digits: int = 2) -> str:
    """Any other number, or a question mark."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "?"


def level(probability: float) -> str:
    """The level of an interval; a level close to 1 is never rounded to 100%.

    >>> [level(value) for value in (0.95, 0.925, 0.999, 0.0001, 1.0)]
    ['95%', '92.5%', '99.9%', '0.01%', '100%']
    """
    least = 100 * min(probability, 1 - probability)
    if least <= 0:
        return f"{probability:.0%}"
    digits = 2 - math.floor(math.log10(least))  # three significant digits of the distance to 0 or 1
    return f"{100 * probability:.{digits}f}".rstrip("0").rstrip(".") + "%"


def p_value(p: float) -> str:
    """A p-value, never rounded to 0.

    >>> p_value(0.04), p_value(1e-9)
    ('p = 0.040', 'p < 0.001')
    """
    if not math.isfinite(p):
        return "p unknown"
    return f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"


def count(number: int, noun: str) -> str:
    """A number of things; the noun is plural.

    >>> count(1204, "pictures"), count(1, "pictures")
    ('1,204 pictures', '1 picture')
    """
    return f"{number:,} {noun.removesuffix('s') if number == 1 else noun}"


def joined(words: Sequence[str]) -> str:
    """A list in a sentence.

    >>> joined(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
