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
from divscore.files import write_file
from divscore.text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "FIGURES",
    "PAGES",
    "Cell",
    "Claim",
    "ResultTable",
    "Results",
    "Section",
    "already_there",
    "claims_table",
    "results_folder",
    "shown",
    "write_results",
    "write_texts",
]


# Tables of results: the same rows as CSV, as JSON and as Markdown.

Cell = str | int | float | bool | None
DIGITS = 6


@dataclass(frozen=True)
class ResultTable:
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
    ) -> ResultTable:
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


# The folder of results: found fit to write in before the work begins, and filled file by file when it is done.


@contextmanager
def results_folder(path: str | os.PathLike[str], *inner: str) -> Iterator[Path]:
    """Make a folder, and folders in it, and try whether it takes files; what fails here fails before hours of work.

    Folders that were made here and are still empty go again if the work fails.
    """
    place = Path(path)
    made: list[Path] = []
    try:
        for folder in (place, *(place / name for name in inner)):
            _make(folder, made)
            _try(folder)
        yield place
    except BaseException:
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()
        raise


def already_there(place: Path, names: Sequence[str]) -> list[str]:
    """Those of some files that the folder has, and that will be replaced; a folder in the place of one is an error."""
    for name in names:
        if (place / name).is_dir():
            raise FileError(
                f"{place / name} is a folder, where a file of that name is to be written; move it"
            )
    return [name for name in names if (place / name).exists()]


def write_texts(place: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write files into a folder, every one whole or not at all."""
    for name, text in texts.items():
        write_file(place / name, text)
    return [place / name for name in texts]


def _make(folder: Path, made: list[Path]) -> None:
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    nearest = missing[-1].parent if missing else folder
    if not nearest.is_dir():
        raise FileError(f"{nearest} is a file; name a folder")
    for each in reversed(missing):
        try:
            each.mkdir()
            made.append(each)
        except OSError as error:
            raise FileError(
                f"cannot make the folder {each} ({error.strerror}); name one where you may write"
            ) from error


def _try(folder: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FileError(
            f"cannot write into {folder} ({error.strerror}); name a folder where you may write"
        ) from error


SCHEMA = "divscore.results/1"
FIGURES = "figures"
PAGES = ("RESULTS.md", "results.json")


@dataclass(frozen=True)
class Claim:
    """What the paper says, what was measured, and whether the two agree."""

    claim: str
    where: str
    measured: str
    agrees: bool


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, figures and tables, in this order; a figure is named by its file's stem."""

    title: str
    text: tuple[str, ...] = ()
    figures: tuple[tuple[str, str], ...] = ()  # (stem, caption)
    tables: tuple[ResultTable, ...] = ()


@dataclass(frozen=True)
class Results:
    """One experiment's outcome; everything in RESULTS.md comes from here, and so does the JSON."""

    name: str
    title: str
    command: str
    settings: dict[str, Any]
    sections: tuple[Section, ...]
    figures: dict[str, Figure] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    short: ResultTable | None = None  # for the terminal

    @property
    def tables(self) -> list[ResultTable]:
        """All tables, in order."""
        return [table for section in self.sections for table in section.tables]

    def to_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            "schema": SCHEMA,
            "experiment": self.name,
            "title": self.title,
            "command": self.command,
            "settings": self.settings,
            "sections": [
                {
                    "title": section.title,
                    "text": list(section.text),
                    "figures": [list(figure) for figure in section.figures],
                    "tables": [table.name for table in section.tables],
                }
                for section in self.sections
            ],
            "tables": {table.name: table.to_dict() for table in self.tables if table.shown},
            "run": self.run,
            "environment": environment(),
        }

    def markdown(self) -> str:
        """RESULTS.md."""
        parts = [f"# {self.title}", f"Written by `{self.command}`; no number here is typed by hand."]
        for section in self.sections:
            parts.append(f"## {section.title}")
            parts += section.text
            parts += [
                f"![{caption}]({FIGURES}/{stem}.svg)\n\n*{caption}*" for stem, caption in section.figures
            ]
            for table in section.tables:
                if table.shown:
                    parts += [f"**{table.title}** ([{table.name}.csv]({table.name}.csv))", table.markdown()]
                else:
                    parts.append(
                        f"{table.title}: `{table.name}.csv`, which the command writes beside this page."
                    )
        return "\n\n".join(parts) + "\n"


def claims_table(name: str, claims: list[Claim]) -> ResultTable:
    """Claims as a table."""
    rows = [(c.claim, c.where, c.measured, "agrees" if c.agrees else "differs") for c in claims]
    return ResultTable.of(name, "The paper's claims", ("the paper says", "where", "measured", ""), rows)


def write_results(results: Results, folder: str | os.PathLike[str]) -> list[Path]:
    """Write everything into a folder; every file appears whole or not at all."""
    from divscore.paper.figures import save_figure

    document = json.dumps(results.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    texts = dict(zip(PAGES, (results.markdown(), document), strict=True))
    texts |= {f"{table.name}.csv": table.csv() for table in results.tables}
    written: list[Path] = []
    with results_folder(folder, FIGURES) as place:
        for stem, figure in results.figures.items():
            written += save_figure(figure, place / FIGURES / stem)
        return written + write_texts(place, texts)


def environment() -> dict[str, Any]:
    """Versions; no date, no host name, no paths."""
    packages = {name: metadata.version(name) for name in ("numpy", "scipy", "matplotlib")}
    return {"python": platform.python_version(), "packages": packages, "cores": os.cpu_count()}
