"""Results: sections with tables and figures, written as RESULTS.md, JSON, CSV, SVG and PNG."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from divscore.paper.folder import results_folder, write_texts
from divscore.paper.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "PAGES", "Claim", "Results", "Section", "claims_table", "write_results"]

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
    tables: tuple[Table, ...] = ()


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
    short: Table | None = None  # for the terminal

    @property
    def tables(self) -> list[Table]:
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


def claims_table(name: str, claims: list[Claim]) -> Table:
    """Claims as a table."""
    rows = [(c.claim, c.where, c.measured, "agrees" if c.agrees else "differs") for c in claims]
    return Table.of(name, "The paper's claims", ("the paper says", "where", "measured", ""), rows)


def write_results(results: Results, folder: str | os.PathLike[str]) -> list[Path]:
    """Write everything into a folder; every file appears whole or not at all."""
    from divscore.paper.style import save_figure

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
