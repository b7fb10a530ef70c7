"""The table that the command line prints."""

from __future__ import annotations

import math
from collections.abc import Sequence

from divscore.audit.result import Audit
from divscore.estimators.interval import Interval
from divscore.percent import percent
from divscore.report.phrases import interval_level, percents, without
from divscore.text import named, printable

__all__ = ["columns", "table"]


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
