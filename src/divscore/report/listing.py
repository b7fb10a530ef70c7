"""Tables of collections: for the terminal, and as cells for the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from divscore.audit.result import Audit
from divscore.audit.target import judge
from divscore.estimators.interval import Interval, bounds
from divscore.text import brief, level, named, percent, percent_ends, signed, unsigned

ALL = 50  # a terminal shows up to so many collections
MARGINALS = 60  # the page lists single attributes for up to so many collections
NAME, TOOLTIP = 60, 300  # characters of a name in a table, and in its tooltip
MINUS = "−"
WITHIN = {"pass": "yes", "fail": "no", "inconclusive": "inconclusive"}


def interval_title(interval: Interval, none: str = "interval") -> str:
    """Heading for intervals; `none` where the method gives none."""
    return none if interval.is_none else f"{level(interval.level)} interval"


def share_range(interval: Interval) -> str:
    """The interval of a share."""
    return "none" if interval.is_none else "–".join(percent_ends(interval.low, interval.high))


def disparity_text(value: float, groups: int) -> str:
    """A disparity; with more than two groups it has no sign."""
    return (signed(value) if groups == 2 else unsigned(value)).replace("-", MINUS)


def disparity_range(interval: Interval, groups: int) -> str:
    """The interval of a disparity."""
    if interval.is_none:
        return "none"
    return f"{disparity_text(interval.low, groups)} to {disparity_text(interval.high, groups)}"


def uninformative(audit: Audit) -> bool:
    """Whether there is no interval, or it is the whole range."""
    low, high = bounds(len(audit.shares))
    return audit.interval.is_none or (audit.interval.low <= low and audit.interval.high >= high)


def shortened(name: str) -> str:
    """A name as long as a table shows it."""
    return brief(name, NAME)


def tooltip(name: str) -> str:
    """More of a name that `shortened` cuts, else an empty string."""
    return "" if shortened(name) == named(name) else brief(name, TOOLTIP)


def noise_note(audit: Audit) -> str:
    """Why the DivScore is in brackets; empty where it is not, or where a warning explains it."""
    if not audit.noisy_groups or audit.estimator == "divscore" or not math.isfinite(audit.divscore):
        return ""
    names = " and ".join(map(shortened, audit.noisy_groups))
    return (
        f"The DivScore, in brackets, is mostly noise here: the representatives of {names} are hardly more similar to "
        "each other than to the other groups. The estimate does not depend on it."
    )


# Cells


@dataclass(frozen=True)
class Column:
    """A heading, and the kind of cells below it: text, number or trust."""

    label: str
    kind: str


@dataclass(frozen=True)
class Line:
    """A collection: its name, a tooltip where the name is cut, its cells, and shares to draw (low, high, value)."""

    name: str
    title: str
    cells: tuple[str, ...]
    bars: tuple[tuple[float, float, float] | None, ...] = ()


@dataclass(frozen=True)
class Listing:
    """Headings and lines; `sorted_by` is the index of the column that the lines are sorted by."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    sorted_by: int = 0
    even: float = 0.5


def listing(audits: Sequence[Audit], limit: float | None = None) -> Listing:
    """All collections sorted by disparity, inconclusive ones last."""
    first = audits[0]
    ordered = sorted(audits, key=lambda a: (not a.conclusive, a.disparity if a.conclusive else 0.0, a.name))
    groups = [brief(name, 40) for name in first.control.groups]
    shares = [groups[0], "between"] if len(groups) == 2 else groups
    numbers = ["items", *shares, "disparity", interval_title(first.interval), "DivScore"]
    heads = [Column("collection", "text"), *(Column(label, "number") for label in numbers)]
    if limit is not None:
        heads.append(Column(f"within {limit:g}", "text"))
    return Listing(
        (*heads, Column("trust", "trust")),
        tuple(_line(audit, limit) for audit in ordered),
        2 + len(shares),
        1 / len(groups),
    )


def marginal_listing(audits: Sequence[Audit]) -> Listing | None:
    """The single attributes of intersections, unless there are too many collections."""
    if len(audits) > MARGINALS or not any(audit.marginals for audit in audits):
        return None
    lines = []
    for audit in audits:
        for part in audit.marginals:
            shares = ", ".join(f"{brief(name, 40)} {percent(share)}" for name, share in part.shares.items())
            k = len(part.shares)
            figures = [shares, disparity_text(part.disparity, k), disparity_range(part.interval, k)]
            if audit.trust == "poor":
                figures = [_bracketed(text) for text in figures]
            cells = (brief(part.attribute, 40), *figures)
            lines.append(Line(shortened(audit.name), tooltip(audit.name), cells))
    labels = ["collection", "attribute", "shares", "disparity", interval_title(audits[0].interval)]
    kinds = ["text"] * 3 + ["number"] * 2
    return Listing(tuple(map(Column, labels, kinds)), tuple(lines))


def _line(audit: Audit, limit: float | None) -> Line:
    groups = audit.control.groups
    bars: list[tuple[float, float, float] | None] = []
    if len(groups) == 2:
        shares = [percent(audit.shares[groups[0]]), share_range(audit.share_intervals[groups[0]])]
    else:
        shares = []
        for name in groups:
            share, interval = audit.shares[name], audit.share_intervals[name]
            drawn = math.isfinite(share) and not interval.is_none
            bars.append((interval.low, interval.high, float(share)) if drawn else None)
            shares.append(percent(share) + (f" ({share_range(interval)})" if drawn else ""))
    disparity = disparity_text(audit.disparity, len(groups))
    divscore = signed(audit.divscore).replace("-", MINUS)
    if audit.noisy_groups:
        divscore = _bracketed(divscore)
    figures = [*shares, disparity, disparity_range(audit.interval, len(groups)), divscore]
    if audit.trust == "poor":  # the answer is "cannot tell", so no number stands alone
        figures, bars = [_bracketed(text) for text in figures], []
    within = [] if limit is None else [WITHIN[judge(audit, limit).word]]
    cells = (f"{audit.count:,}", *figures, *within, audit.trust)
    padded = (None, *bars, *[None] * (len(cells) - len(bars) - 1))
    return Line(shortened(audit.name), tooltip(audit.name), cells, padded if any(bars) else ())


def _bracketed(text: str) -> str:
    """Brackets mark numbers that must not be relied on; never two pairs of them."""
    if text == "?" or text.startswith("("):
        return text
    return f"({text.replace(' (', ', ').rstrip(')')})"


# The terminal


def columns(rows: Sequence[Sequence[str]], *, prose: bool = False) -> str:
    """Align rows of text; numbers to the right, the first and last column (`prose`: all) to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    lines = [
        "  ".join(
            text.ljust(width) if prose or i in (0, last) else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def table(audits: Sequence[Audit]) -> str:
    """Collections as aligned rows, in their order; shares with one decimal."""
    rows = [_row(audit) for audit in audits]
    return columns([list(rows[0]), *(list(row.values()) for row in rows)])


def _row(audit: Audit) -> dict[str, str]:
    first, interval = audit.control.groups[0], audit.interval
    two = len(audit.shares) == 2
    limits = "none" if interval.is_none else f"{signed(interval.low)} to {signed(interval.high)}"
    divscore = signed(audit.divscore)
    figures = {
        named(name): percent(audit.shares[name], 1) for name in ([first] if two else audit.control.groups)
    }
    if two:
        figures["between"] = share_range(audit.share_intervals[first])
    figures |= {"disparity": signed(audit.disparity), interval_title(interval): limits}
    if two:
        figures["DivScore"] = _bracketed(divscore) if audit.noisy_groups else divscore
    if audit.trust == "poor":
        figures = {key: _bracketed(text) for key, text in figures.items()}
    return {"collection": named(audit.name), "items": f"{audit.count:,}", **figures, "trust": audit.trust}
