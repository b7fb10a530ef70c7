"""Numbers, shares and untrusted names as text for people."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

JOINER = chr(0x200D)  # joins the parts of an emoji
LONGEST = 48
FEW = 12  # names in a line
NO_VALUE = "(no value)"  # for the collection of items without a value, which has an empty name
AFTER = re.compile(r"([?#]).*", re.S)  # a query or a fragment
ADDRESS = re.compile(r"[A-Za-z][\w+.-]*://[^\s'\"<>]+")


def printable(text: str) -> str:
    """Show control characters instead of sending them: a name must not break a line, a table or the terminal.

    >>> printable("north")
    'north'
    >>> print(printable(chr(27) + "[31m" + chr(10)))
    \\x1b[31m\\n
    """
    return "".join(c if c.isprintable() or c == JOINER else repr(c)[1:-1] for c in text)


def named(name: str) -> str:
    """The name of a collection, printable; an empty name gets a text, because nobody sees a blank.

    >>> named("north"), named("")
    ('north', '(no value)')
    """
    return printable(name) or NO_VALUE


def brief(text: str, most: int = LONGEST) -> str:
    """Shorten a long name to its beginning and its end.

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
    """The first of many names, already printable, and the number of others.

    >>> listed(["Anna", "Bruno", "Clara", "Daniel"], 2)
    'Anna, Bruno and 2 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def public(address: str) -> str:
    """Remove from a URL what gives access: user and password, query, fragment.

    A password may contain any character, even @ or a slash, so everything up to the last @ that may end one is cut.
    Sometimes this also cuts a part of the path that contains @, which is harmless.

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
    """Make every URL in a message public.

    >>> without_secrets("404, url='https://host/a.npy?key=1f2e'")
    "404, url='https://host/a.npy?…'"
    """
    return ADDRESS.sub(lambda match: public(match[0]), text)


def escape_markdown(text: str) -> str:
    r"""One line that no Markdown reader takes for markup, a link or a mention, whatever the text contains.

    >>> print(escape_markdown("<b> a|b *c* www.d https://e"))
    &lt;b&gt; a\|b \*c\* www\.d https:\//e
    >>> print(escape_markdown("- a"), escape_markdown("1. b"), escape_markdown("---"))
    \- a 1\. b \---
    """
    safe = re.sub(r"([\\`*_{}\[\]#!|~$@])", r"\\\1", printable(" ".join(text.split())))
    # Starts of lists, rules and headings.
    safe = re.sub(r"^(\d{1,9}(?=[.)](?:\s|$))|(?=[-+=]))", r"\1\\", safe)
    safe = safe.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return safe.replace("://", ":\\//").replace("www.", "www\\.")


def quoted(names: Iterable[object]) -> str:
    """Names in quotes, for a message.

    >>> quoted(["north", "south"])
    "'north', 'south'"
    """
    return ", ".join(f"'{name}'" for name in names) or "none"


NEAR = 0.0095  # a share so close to 0 or 1 gets a decimal
LEAST = 0.0005  # too small for a decimal to show


def percent(share: float, digits: int = 0) -> str:
    """A share in per cent; few items are never shown as none, and nearly all never as all.

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


def exact_percent(share: float) -> str:
    """A share that a person chose, such as a target: with a decimal only if it needs one.

    >>> exact_percent(0.446), exact_percent(0.27), exact_percent(1 / 3)
    ('44.6%', '27%', '33.3%')
    """
    return f"{100 * share:.1f}".removesuffix(".0") + "%"


def percent_ends(low: float, high: float) -> tuple[str, str]:
    """The limits of a share in whole per cent, or with a decimal, rounded outwards, if they would be the same.

    >>> percent_ends(0.304, 0.58), percent_ends(0.0021, 0.004), percent_ends(0.694, 0.998)
    (('30%', '58%'), ('0.2%', '0.4%'), ('69%', '100%'))
    """
    ends = f"{low:.0%}", f"{high:.0%}"
    if ends[0] != ends[1] or low == high:
        return ends
    # Rounded first, to remove digits that only come from multiplying.
    tenths = math.floor(round(1000 * low, 6)), math.ceil(round(1000 * high, 6))
    below, above = (f"{part / 1000:.{int(part not in (0, 1000))}%}" for part in tenths)
    return below, above


def signed(value: float) -> str:
    """A disparity with its sign and two decimals.

    >>> [signed(value) for value in (-0.184, 0.05, -0.001, math.nan)]
    ['-0.18', '+0.05', '0.00', '?']
    """
    text = f"{value:+.2f}" if math.isfinite(value) else "?"
    return "0.00" if text in ("+0.00", "-0.00") else text


def unsigned(value: float, digits: int = 2) -> str:
    """Any other number, or a question mark; zero has no sign.

    >>> [unsigned(value) for value in (0.184, -0.001, math.nan)]
    ['0.18', '0.00', '?']
    """
    return f"{value:z.{digits}f}" if math.isfinite(value) else "?"


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


def joined(words: Sequence[str], last: str = "and") -> str:
    """A list in a sentence.

    >>> joined(["a", "b", "c"]), joined(["a", "b"], "or")
    ('a, b and c', 'a or b')
    """
    return f" {last} ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def finite(value: float) -> float | None:
    """A number for JSON, which has no NaN and no infinity.

    >>> finite(0.5), finite(math.nan)
    (0.5, None)
    """
    return float(value) if math.isfinite(value) else None


# Raw line breaks stand between values only, never inside a JSON string.
NUMBERS = re.compile(r"\[\n\s+(?:-?\d[\d.e+-]*|null)(?:,\n\s+(?:-?\d[\d.e+-]*|null))*\n\s+\]")


def as_json(content: dict[str, Any]) -> str:
    """JSON with an indent, lists of numbers on one line."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    return NUMBERS.sub(
        lambda match: re.sub(r"\s*\n\s*", " ", match[0]).replace("[ ", "[").replace(" ]", "]"), text
    )
