"""Results: sections with tables and figures, written as RESULTS.md, JSON, CSV, SVG and PNG."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import platform
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from divscore.errors import FileError
from divscore.files import PathLike, write_file
from divscore.text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = str | int | float | bool | None
DIGITS = 6
SCHEMA = "divscore.results/1"
FIGURES = "figures"
PAGES = ("RESULTS.md", "results.json")


@dataclass(frozen=True)
class ResultTable:
    """Rows under named columns; `name` is that of the CSV file. A table that is not `shown` is only a CSV.

    `about` says what its numbers are, for a reader who reads nothing else.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    shown: bool = True
    about: str = ""

    @classmethod
    def of(
        cls, name: str, title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]], shown: bool = True
    ) -> ResultTable:
        """Round numbers to six digits, once for all forms; a number that is not finite becomes None."""
        return cls(name, title, tuple(columns), tuple(tuple(_cell(v) for v in row) for row in rows), shown)

    @classmethod
    def of_fields(
        cls,
        name: str,
        title: str,
        fields: Mapping[str, str],
        records: Iterable[Sequence[object]],
        shown: bool = True,
    ) -> ResultTable:
        """One row a record, one column a field.

        A record is a tuple of objects; a column takes the field of its name from the first object that has it.
        """
        rows = [
            [next(getattr(item, name) for item in record if hasattr(item, name)) for name in fields.values()]
            for record in records
        ]
        return cls.of(name, title, fields, rows, shown)

    @property
    def records(self) -> list[dict[str, Any]]:
        """Rows as dicts by column."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def column(self, name: str) -> list[Cell]:
        """All values of one column."""
        return [record[name] for record in self.records]

    def csv(self) -> str:
        """As a CSV file; cells without a number are empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(["" if value is None else value for value in row] for row in self.rows)
        return text.getvalue()

    def markdown(self) -> str:
        """As Markdown with aligned columns, also for terminals."""
        cells = [[show_cell(value) for value in row] for row in (self.columns, *self.rows)]
        widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(self.columns))]
        right = [all(_is_number(row[i]) for row in self.rows) for i in range(len(self.columns))]
        aligned = [
            [t.rjust(w) if r else t.ljust(w) for t, w, r in zip(row, widths, right, strict=True)]
            for row in cells
        ]
        lines = [f"| {' | '.join(row)} |" for row in aligned]
        rule = "|" + "|".join("-" * (w + 1) + "-:"[r] for w, r in zip(widths, right, strict=True)) + "|"
        return "\n".join([lines[0], rule, *lines[1:]])


def show_cell(value: Cell) -> str:
    """A cell for people: three decimals, one if the number is large, a dash if there is none.

    >>> [show_cell(v) for v in (0.01849, 61.08, None, 200, "all", True)]
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


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, figures and tables, in this order; a figure is named by its file's stem."""

    title: str
    text: tuple[str, ...] = ()
    figures: tuple[tuple[str, str], ...] = ()  # (stem, caption)
    tables: tuple[ResultTable, ...] = ()


@dataclass(frozen=True)
class Results:
    """The outcome of one experiment; RESULTS.md and the JSON are written from it."""

    name: str
    title: str
    command: str
    settings: dict[str, Any]
    sections: tuple[Section, ...]
    figures: dict[str, Figure] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    short: ResultTable | None = None  # for the terminal

    @property
    def tables(self) -> dict[str, ResultTable]:
        """All tables by name, in order."""
        return {table.name: table for section in self.sections for table in section.tables}

    def to_dict(self) -> dict[str, Any]:
        """The JSON document; versions, but no date, host name or path."""
        packages = {name: metadata.version(name) for name in ("numpy", "scipy", "matplotlib")}
        return {
            "schema": SCHEMA,
            "experiment": self.name,
            "title": self.title,
            "command": self.command,
            "settings": self.settings,
            "sections": [
                vars(section) | {"tables": [table.name for table in section.tables]}
                for section in self.sections
            ],
            "tables": {
                name: {
                    "title": table.title,
                    "about": table.about,
                    "columns": table.columns,
                    "rows": table.rows,
                }
                for name, table in self.tables.items()
                if table.shown
            },
            "run": self.run,
            "environment": {
                "python": platform.python_version(),
                "packages": packages,
                "cores": os.cpu_count(),
            },
        }

    def markdown(self) -> str:
        """RESULTS.md."""
        parts = [f"# {self.title}", f"Written by `{self.command}`; no number is typed by hand."]
        for section in self.sections:
            parts += [f"## {section.title}", *section.text]
            parts += [
                f"![{caption}]({FIGURES}/{stem}.svg)\n\n*{caption}*" for stem, caption in section.figures
            ]
            for table in section.tables:
                if table.shown:
                    heading = f"**{table.title}** ([{table.name}.csv]({table.name}.csv))"
                    parts += [heading, table.about, table.markdown()]
                else:
                    parts.append(f"{table.about}: see `{table.name}.csv`, which the command writes here.")
        return "\n\n".join(parts) + "\n"


@contextmanager
def output_folder(path: PathLike, inner: str = "", *, files: Sequence[str] = ()) -> Iterator[Path]:
    """Create a folder, with a folder `inner` in it, and test that it is writable, before hours of work.

    Refuses a folder in the place of one of `files`. If the work fails, folders created here that are still empty
    are removed.
    """
    place = Path(path)
    deepest = place / inner
    missing = [folder for folder in (deepest, *deepest.parents) if not folder.exists()]
    nearest = missing[-1].parent if missing else deepest
    if not nearest.is_dir():
        raise FileError(f"{nearest} is a file; give a folder")
    try:
        try:
            for folder in reversed(missing):
                folder.mkdir()
            for folder in {place, deepest}:
                tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise FileError(
                f"cannot write to the folder {place} ({error.strerror}); choose another"
            ) from error
        for name in files:
            if (place / name).is_dir():
                raise FileError(f"{place / name} is a folder, but a file of that name is written; move it")
        yield place
    except BaseException:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()
        raise


def write_results(results: Results, place: Path) -> list[Path]:
    """Write everything into a folder; every file is complete or not there."""
    from divscore.paper.figures import save_figure

    document = json.dumps(results.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    texts = dict(zip(PAGES, (results.markdown(), document), strict=True))
    texts |= {f"{name}.csv": table.csv() for name, table in results.tables.items()}
    (place / FIGURES).mkdir(parents=True, exist_ok=True)
    written = [p for stem, fig in results.figures.items() for p in save_figure(fig, place / FIGURES / stem)]
    for name, text in texts.items():
        write_file(place / name, text)
    return written + [place / name for name in texts]
