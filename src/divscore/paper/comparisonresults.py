"""The outcome of a comparison: a table, a JSON document and a plot."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from divscore.paper.advice import advice
from divscore.paper.comparison import Comparison
from divscore.paper.comparisonfigure import comparison_figure
from divscore.paper.folder import results_folder, write_texts
from divscore.paper.style import save_figure
from divscore.paper.tables import Table

__all__ = [
    "FILES",
    "IN_FILES_ONLY",
    "comparison_document",
    "comparison_table",
    "write_comparison",
]

SCHEMA = "divscore.compare/1"
FILES = ("comparison.json", "comparison.csv", "comparison.svg", "comparison.png")
# The mean over all compositions says little of a method that leans to the middle; times differ from run to run.
IN_FILES_ONLY = ("bias", "s to prepare", "s a collection")


def comparison_table(found: Comparison) -> Table:
    """Error, bias, coverage, width and time of every method."""
    rows = [
        (
            row.labels, row.title, row.representatives, s.mae, s.mae_se, s.bias, s.worst_bias, s.coverage, s.width,
            # A method without an interval always has an answer, however wrong.
            None if s.coverage is None else s.cannot_tell / s.answers, s.prepared, s.seconds,
        )
        for row in found.rows
        for s in (row.summary,)
    ]  # fmt: skip
    columns = (
        "labels", "method", "representatives", "error", "± s.e.", "bias", "largest bias", "coverage", "width",
        "cannot tell", "s to prepare", "s a collection",
    )  # fmt: skip
    return Table.of("comparison", f"Comparison on {found.attribute}", columns, rows)


def comparison_document(found: Comparison) -> dict[str, Any]:
    """The JSON document."""
    table = comparison_table(found)
    names = [name.replace(" ", "_").replace("±_s.e.", "error_se") for name in table.columns]
    smallest, largest = found.items
    return {
        "schema": SCHEMA,
        "attribute": found.attribute,
        "groups": list(found.groups),
        "pool": found.pool,
        "settings": {
            "labels": list(found.setup.labels),
            "repetitions": found.setup.repetitions,
            "collection_size": found.setup.collection,
            "size": found.setup.size,
            "seed": found.setup.seed,
            "quapy": found.setup.quapy,
        },
        "collections": {"smallest": smallest, "largest": largest, "held_out": found.held_out},
        "rows": [dict(zip(names, row, strict=True)) for row in table.rows],
        "advice": advice(found),
    }


def write_comparison(found: Comparison, folder: str | os.PathLike[str]) -> list[Path]:
    """Write comparison.json, comparison.csv and the plot; every file appears whole or not at all."""
    title = f"{found.attribute}: {found.pool} labelled examples, {found.setup.repetitions} splits"
    document = json.dumps(comparison_document(found), indent=1, ensure_ascii=False) + "\n"
    texts = dict(zip(FILES, (document, comparison_table(found).csv()), strict=False))
    with results_folder(folder) as place:
        written = save_figure(comparison_figure(found.rows, title), place / "comparison")
        return written + write_texts(place, texts)
