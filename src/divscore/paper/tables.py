"""Tables of results: the same rows as CSV, as JSON and as Markdown."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from divscore.text import printable

__all__ = ["Cell", "Table", "shown"]

Cell = str | int | float | bool | None
DIGITS = 6


@dataclass(frozen=True)
class Table:
    """Rows under named columns; `name` is that of the CSV file. One that is not `shown` is a CSV only."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    shown: bool = True

    @classmethod
    def of(
        cls,
        name: str,
        title: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        *,
        shown: bool = True,
    ) -> Table:
        """Round numbers to six digits, once for all forms; what is not finite is None."""
        return cls(name, title, tuple(columns), tuple(tuple(_cell(v) for v in row) for row in rows), shown)

    def column(self, name: str) -> list[Cell]:
        """All values of one column."""
        at = self.columns.index(name)
        return [row[at] for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"title": self.title, "columns": list(self.columns), "rows": [list(row) for row in self.rows]}

    def csv(self) -> str:
        """As a CSV file; empty cells where there is no number."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(["" if value is None else value for value in row] for row in self.rows)
        return text.getvalue()

    def markdown(self) -> str:
        """As Markdown with aligned columns; it reads well on a terminal too."""
        cells = [
            [shown(name) for name in self.columns],
            *([shown(value) for value in row] for row in self.rows),
        ]
        widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(self.columns))]
        right = [all(_is_number(row[i]) for row in self.rows) for i in range(len(self.columns))]
        lines = [
            "| "
            + " | ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in zip(row, widths, right, strict=True))
            + " |"
            for row in cells
        ]
        rule = "|" + "|".join("-" * (w + 1) + "-:"[r] for w, r in zip(widths, right, strict=True)) + "|"
        return "\n".join([lines[0], rule, *lines[1:]])


def shown(value: Cell) -> str:
    """A cell as people read it: three decimals, one where the number is large, a dash where there is none.

    >>> [shown(v) for v in (0.01849, 61.08, None, 200, "all", True)]
    ['0.018', '61.1', '–', '200', 'all', 'yes']
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    return printable(str(value)).replace("|", "\\|")


def _cell(value: Any) -> Cell:
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    number = float(value)
    return float(f"{number:.{DIGITS}g}") if math.isfinite(number) else None


def _is_number(value: Cell) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
