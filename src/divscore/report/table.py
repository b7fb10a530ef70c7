"""The table that the command line prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from divscore.audit.result import Audit, Marginal
from divscore.estimators.interval import Interval
from divscore.report.prose import (
    gap,
    interval_level,
    limits,
    percents,
    short,
    signed,
    whole,
    without,
)
from divscore.text import named, percent, printable

__all__ = ["Cell", "Column", "Line", "Listing", "columns", "listing", "marginal_listing", "table", "verdict"]


def table(audits: Sequence[Audit]) -> str:
    """Collections as aligned rows, two groups or more."""
    rows = [_two_groups(a) if len(a.shares) == 2 else _many_groups(a) for a in audits]
    return columns([list(rows[0]), *([str(v) for v in row.values()] for row in rows)])


def columns(rows: Sequence[Sequence[str]], *, prose: bool = False) -> str:
    """Align rows of text, the first a heading; numbers to the right, the first and last column (`prose`: all) left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    last = len(widths) - 1
    lines = []
    for row in rows:
        cells = [
            text.ljust(width) if prose or i in (0, last) else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _two_groups(audit: Audit) -> dict[str, str]:
    first, _ = audit.control.groups
    return _aside(
        audit,
        {
            "collection": named(audit.name),
            "items": f"{audit.count:,}",
            printable(first): percent(audit.shares[first], 1),
            "between": percents(audit.share_intervals[first]),
            "disparity": _signed(audit.disparity),
            interval_level(audit.interval): _limits(audit.interval),
            "DivScore": _divscore(audit),
            "trust": audit.trust,
        },
    )


def _divscore(audit: Audit) -> str:
    """In brackets where it is mostly noise."""
    text = _signed(audit.divscore)
    return f"({text})" if audit.noisy_groups and audit.trust != "poor" and text != "?" else text


def _many_groups(audit: Audit) -> dict[str, str]:
    shares = {printable(name): percent(share, 1) for name, share in audit.shares.items()}
    return _aside(
        audit,
        {
            "collection": named(audit.name),
            "items": f"{audit.count:,}",
            **shares,
            "disparity": _signed(audit.disparity),
            interval_level(audit.interval): _limits(audit.interval),
            "trust": audit.trust,
        },
    )


def _aside(audit: Audit, row: dict[str, str]) -> dict[str, str]:
    """Where the headline is "cannot tell", numbers stand in brackets."""
    if audit.trust != "poor":
        return row
    plain = {"collection", "items", "trust"}
    return {key: text if key in plain or text == "?" else f"({text})" for key, text in row.items()}


def _limits(interval: Interval) -> str:
    return "none" if without(interval) else f"{_signed(interval.low)} to {_signed(interval.high)}"


def _signed(value: float) -> str:
    return f"{value:+.2f}" if math.isfinite(value) else "?"


# Listing: every collection as a row of text, for the table behind the plot.

MARGINALS = 60  # collections whose attributes are also listed one by one


@dataclass(frozen=True)
class Column:
    """A heading, and whether what stands below it is text, a number or a word of trust."""

    label: str
    kind: str


@dataclass(frozen=True)
class Cell:
    """Text, and the share it is about where a small bar may be drawn: low, high, value."""

    text: str
    bar: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class Line:
    """A collection: its name, shortened and longer, and its cells."""

    name: str
    title: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Listing:
    """Headings and lines; `sorted_by` is the number of the column that the lines are in the order of."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    sorted_by: int
    even: float


def listing(audits: Sequence[Audit], limit: float | None = None) -> Listing:
    """All collections in the order of their disparity, those without one last."""
    first = audits[0]
    ordered = sorted(audits, key=lambda a: (_place(a), a.name))
    groups = [short(name, 40) for name in first.control.groups]
    shares = [Column(groups[0], "number"), Column("between", "number")]
    if len(groups) > 2:
        shares = [Column(name, "number") for name in groups]
    columns = [
        Column("collection", "text"),
        Column("items", "number"),
        *shares,
        Column("disparity", "number"),
        Column(interval_level(first.interval), "number"),
        Column("DivScore", "number"),
        *([] if limit is None else [Column(f"within {limit:g}", "text")]),
        Column("trust", "trust"),
    ]
    return Listing(
        tuple(columns),
        tuple(Line(short(a.name), whole(a.name), tuple(_cells(a, limit))) for a in ordered),
        2 + len(shares),
        1 / len(groups),
    )


def marginal_listing(audits: Sequence[Audit]) -> Listing | None:
    """Of an intersection, every attribute by itself; of many collections, none."""
    parts = [(audit, part) for audit in audits for part in audit.marginals]
    if not parts or len(audits) > MARGINALS:
        return None
    columns = [("collection", "text"), ("attribute", "text"), ("shares", "text")]
    columns += [("disparity", "number"), (interval_level(audits[0].interval), "number")]
    lines = tuple(Line(short(a.name), whole(a.name), _marginal(part, a.trust)) for a, part in parts)
    return Listing(tuple(Column(*each) for each in columns), lines, 0, 0.5)


def _marginal(part: Marginal, trust: str) -> tuple[Cell, ...]:
    shares = ", ".join(f"{short(name, 40)} {percent(share)}" for name, share in part.shares.items())
    groups = len(part.shares)
    figures = [shares, gap(part.disparity, groups), limits(part.interval, groups)]
    said = [f"({text})" if trust == "poor" else text for text in figures]
    return tuple(map(Cell, [short(part.attribute, 40), *said]))


def verdict(audit: Audit, limit: float) -> str:
    """Whether a disparity is surely within the limit, surely beyond it, or neither.

    An interval knows nothing of what is missing, so a collection that lacks a part is never surely within.
    """
    low, high = audit.interval.low, audit.interval.high
    if audit.trust == "poor":
        return "cannot tell"
    if low > limit or high < -limit:
        return "no"
    within = -limit <= low and high <= limit
    return "yes" if within and not audit.missing.count else "unclear"


def _place(audit: Audit) -> tuple[bool, float]:
    told = audit.trust != "poor" and math.isfinite(audit.disparity)
    return not told, audit.disparity if math.isfinite(audit.disparity) else 0.0


def _cells(audit: Audit, limit: float | None) -> list[Cell]:
    first = audit.control.groups[0]
    if len(audit.shares) == 2:
        shares = [Cell(percent(audit.shares[first])), Cell(percents(audit.share_intervals[first]))]
    else:
        shares = [_share(audit, name) for name in audit.control.groups]
    figures = [
        *shares,
        Cell(gap(audit.disparity, len(audit.shares))),
        Cell(limits(audit.interval, len(audit.shares))),
        Cell(signed(audit.divscore)),
    ]
    if audit.noisy_groups:
        figures[-1] = _aside_listing(figures[-1].text)
    if audit.trust == "poor":  # the answer is "cannot tell", and numbers stand aside
        figures = [_aside_listing(cell.text) if not cell.text.startswith("(") else cell for cell in figures]
    judged = [] if limit is None else [Cell(verdict(audit, limit))]
    return [Cell(f"{audit.count:,}"), *figures, *judged, Cell(audit.trust)]


def _aside_listing(text: str) -> Cell:
    return Cell(text if text == "?" else f"({text.replace(' (', ', ').rstrip(')')})")


def _share(audit: Audit, name: str) -> Cell:
    share, interval = audit.shares[name], audit.share_intervals[name]
    if not math.isfinite(share) or without(interval):
        return Cell(percent(share))
    return Cell(f"{percent(share)} ({percents(interval)})", (interval.low, interval.high, share))
