"""plan_collection(): how many items of a collection to label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from divscore.audit.planning import LabelPlan, plan_labels
from divscore.control.controlset import ControlSet
from divscore.control.labelledsample import LabelledSample, labelled_control
from divscore.errors import MismatchError
from divscore.jobs.encode import Encoding
from divscore.jobs.finding import open_items
from divscore.jobs.labels import Labels
from divscore.jobs.sketching import Run, running
from divscore.sketch.sketch import Sketch
from divscore.sources import Items, Table


def plan_collection(
    collection: Any,
    encoding: Encoding,
    *,
    control: Any = None,
    sample: Any = None,
    attribute: str | None = None,
    groups: Sequence[str] | None = None,
    rename: Mapping[Any, str] | None = None,
    column: str | None = None,
    form: str = "",
    confidence: float = 0.95,
    seed: int = 0,
    **how: Any,
) -> LabelPlan:
    """Plan the labels of a collection: from a control set, from first labels (`sample`), or for the worst case.

    The parameters are those of `audit_source`.
    """
    with running(encoder=encoding, seed=seed, **how) as run:
        labels = None
        if sample is not None:
            words = {"attribute": attribute, "groups": groups, "rename": rename, "column": column}
            labels = Labels.read(run, sample, **words)
            if labels.draw is not None and labels.draw.items[0].collection is not None:
                raise MismatchError(
                    f"{labels.name} was drawn for each of several collections, and a plan is made for one; give a "
                    "sample of one collection, or leave out --labelled-sample"
                )
        source = open_items(run, collection, column, form)
        known: ControlSet | None = None
        if control is not None:
            reading: dict[str, Any] = {"attribute": attribute, "order": groups, "likely_column": column}
            known = run.read_control(control, **reading, rename=None if labels else rename, fit_with=[source])
        if labels is None and known is None:
            return plan_labels(count_items(source), confidence=confidence, seed=seed)
        if labels is None:
            assert known is not None
            sketch = _sketch(run, source, known)
            return plan_labels(sketch.count, sketch=sketch, confidence=confidence, seed=seed)
        (first,) = labels.samples(source, known).values()
        pilots: list[tuple[Sketch, LabelledSample, bool]] = []
        for examples in (None, known) if known is not None else (None,):
            fitted = _sketch(run, source, labelled_control([first], examples))
            pilots.append((fitted, first, examples is not None))
        return plan_labels(pilots[0][0].count, pilots=pilots, confidence=confidence, seed=seed)


def _sketch(run: Run, source: Items | Table, control: ControlSet) -> Sketch:
    (sketch,) = run.sketch(run.vectors_of(source, control), control).sketches.values()
    return sketch


def count_items(source: Items | Table) -> int:
    """The number of items of a source; a table that does not say how long it is, is read."""
    if source.rows is not None:
        return source.rows
    if source.kind == "vectors":
        return sum(len(block.vectors) for block in source.select(vectors=False, extra=()))
    return sum(len(batch) for batch in source)
