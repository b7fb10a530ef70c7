"""The outcome of a comparison: a table, a JSON document, a plot, and one sentence of advice."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from divscore.experiments.candidates import candidates
from divscore.experiments.comparison import Compared, Comparison
from divscore.experiments.figures import comparison_figure
from divscore.experiments.style import save_figure
from divscore.experiments.summary import points
from divscore.experiments.tables import Table

__all__ = ["TIMES", "advice", "comparison_document", "comparison_table", "write_comparison"]

SCHEMA = "divscore.compare/1"
TIMES = ("s to prepare", "s a collection")  # in the files only: they differ from run to run
TOO_FAR = 0.3  # a mean absolute error beyond which no method is advised


def comparison_table(found: Comparison) -> Table:
    """Error, bias, coverage, width and time of every method."""
    rows = [
        (
            row.labels, row.title, s.mae, s.mae_se, s.bias, s.worst_bias, s.coverage, s.width,
            s.cannot_tell / s.answers, s.prepared, s.seconds,
        )
        for row in found.rows
        for s in (row.summary,)
    ]  # fmt: skip
    columns = (
        "labels", "method", "error", "± s.e.", "bias", "largest bias", "coverage", "width", "cannot tell",
        *TIMES,
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
        "collections": {"smallest": smallest, "largest": largest},
        "rows": [dict(zip(names, row, strict=True)) for row in table.rows],
        "advice": advice(found),
    }


def write_comparison(found: Comparison, folder: str | os.PathLike[str]) -> list[Path]:
    """Write comparison.json, comparison.csv and the plot; every file appears whole or not at all."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    methods = candidates(
        max(found.setup.labels), len(found.groups), found.setup.size, quapy=found.setup.quapy
    )
    by_labels = [
        replace(answer, at=float(answer.sweep.split()[0]), sweep="labels") for answer in found.answers
    ]
    title = f"{found.attribute}: {found.pool} labelled examples, {found.setup.repetitions} splits"
    written = save_figure(comparison_figure(points(by_labels), methods, title), place / "comparison")
    texts = {
        "comparison.json": json.dumps(comparison_document(found), indent=1, ensure_ascii=False) + "\n",
        "comparison.csv": comparison_table(found).csv(),
    }
    for name, text in texts.items():
        partial = place / f".{name}.partial"
        partial.write_text(text, encoding="utf-8")
        partial.replace(place / name)
        written.append(place / name)
    return written


def advice(found: Comparison) -> str:
    """What to do, in one sentence."""
    most = max(found.setup.labels)
    last = [row for row in found.rows if row.labels == most]
    best = min(last, key=lambda row: row.summary.mae)
    ours = next(row for row in last if row.method == "likelihood")
    # With an interval it is worth more than a rival that is ahead by chance.
    chosen = ours if ours.summary.mae <= best.summary.mae + (best.summary.mae_se or 0.0) else best
    told = chosen.summary
    if told.mae > TOO_FAR or 2 * told.cannot_tell > told.answers:
        return (
            f"None of these methods tells the groups of {found.attribute} apart with {most} labels (the best is off by "
            f"{told.mae:.2f} on average): try vectors of another encoder, or label more."
        )
    sure = ""
    if told.coverage is not None and told.width is not None:
        sure = (
            f", and its 95 % interval, {told.width:.2f} wide, held the truth in {told.coverage:.0%} of cases"
        )
    said = f"Use {chosen.title} with {most} labels: it is off by {told.mae:.3f} on average{sure}"
    return f"{said}{_more(found, chosen)}{_control_set(last)}."


def _more(found: Comparison, chosen: Compared) -> str:
    fewer = [row for row in found.rows if row.method == chosen.method and row.labels < chosen.labels]
    if not fewer:
        return ""
    row = max(fewer, key=lambda r: r.labels)
    gain = row.summary.mae / max(chosen.summary.mae, 1e-9)
    if gain > 1.1:
        return f"; with {row.labels} labels it was {row.summary.mae:.3f}, so more labels should still help"
    return f"; with {row.labels} labels it was {row.summary.mae:.3f} already, so more would hardly help"


def _control_set(last: list[Compared]) -> str:
    scores = [row for row in last if row.title.startswith("divscore")]
    best = min(scores, key=lambda row: row.summary.mae)
    kind = best.title.removeprefix("divscore, ")
    return f"; for the paper's DivScore the best control set was '{kind}', off by {best.summary.mae:.3f}"
