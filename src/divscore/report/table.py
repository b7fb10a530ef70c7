"""The table that the command line prints."""

from __future__ import annotations

import math
from collections.abc import Sequence

from divscore.audit import Audit

__all__ = ["columns", "table"]


def table(audits: Sequence[Audit]) -> str:
    """Collections as aligned rows, two groups or more."""
    rows = [_two_groups(a) if len(a.shares) == 2 else _many_groups(a) for a in audits]
    return columns([list(rows[0]), *([str(v) for v in row.values()] for row in rows)])


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Align rows of text, the first a heading; numbers to the right, the first and last column to the left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    last = len(widths) - 1
    lines = []
    for row in rows:
        cells = [
            text.ljust(width) if i in (0, last) else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _two_groups(audit: Audit) -> dict[str, str]:
    first, _ = audit.control.groups
    limits = audit.share_intervals[first]
    return {
        "collection": _one_line(audit.name),
        "items": f"{audit.count:,}",
        first: _percent(audit.shares[first]),
        "between": f"{limits.low:.0%}–{limits.high:.0%}",
        "disparity": _signed(audit.disparity),
        f"{audit.interval.level:.0%} interval": f"{_signed(audit.interval.low)} to {_signed(audit.interval.high)}",
        "DivScore": _signed(audit.divscore),
        "trust": audit.trust,
    }


def _many_groups(audit: Audit) -> dict[str, str]:
    shares = {_one_line(name): _percent(share) for name, share in audit.shares.items()}
    return {
        "collection": _one_line(audit.name),
        "items": f"{audit.count:,}",
        **shares,
        "disparity": _signed(audit.disparity),
        f"{audit.interval.level:.0%} interval": f"{_signed(audit.interval.low)} to {_signed(audit.interval.high)}",
        "trust": audit.trust,
    }


def _one_line(text: str) -> str:
    """Keep names from breaking the table or the terminal: control characters are shown, not obeyed."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _percent(share: float) -> str:
    return f"{share:.1%}" if math.isfinite(share) else "?"


def _signed(value: float) -> str:
    return f"{value:+.2f}" if math.isfinite(value) else "?"
