"""audit_many(): the audits of thousands of sketches, shared among workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from divscore.audit.audit import audit
from divscore.audit.result import Audit
from divscore.control.controlset import ControlSet
from divscore.errors import MismatchError
from divscore.jobs.engine import Engine
from divscore.jobs.sketching import check_sendable, packed
from divscore.sketch.codes import CodeRows
from divscore.sketch.many import SharedSample
from divscore.sketch.scorer import Scorer, keep_scorer, scorer_for
from divscore.sketch.sketch import Sketch, SketchState
from divscore.text import named

__all__ = ["audit_many"]

BATCH = 100  # sketches that a worker is given at a time


@dataclass(frozen=True)
class _Order:
    """What is the same for all sketches."""

    scorer: Scorer
    sampled: CodeRows | None  # the sample that they share, if they do
    estimator: str
    confidence: float


@dataclass(frozen=True)
class _Batch:
    states: dict[str, SketchState]

    def __str__(self) -> str:
        return f"the audits of {len(self.states)} collections"


def audit_many(
    sketches: Mapping[str, Sketch],
    control: ControlSet,
    *,
    engine: Engine,
    estimator: str = "likelihood",
    confidence: float = 0.95,
) -> Iterator[Audit]:
    """Audit sketches that were made in one pass, or read from one file, in their order; none may be empty.

    The same as ``audit(sketch, control)`` for each, whoever does the work. An engine of processes, or a cluster, is
    worth while from about a thousand on; an audit holds Python's lock, so threads are of no use.
    """
    first = next(iter(sketches.values()), None)
    if first is None:
        return
    for name, sketch in sketches.items():
        _check_alike(name, sketch, first, control)
    if not engine.local and not engine.inline:
        check_sendable(control)
    sampled = first.shared.sampled if first.shared is not None else None
    order = _Order(packed(scorer_for(control, first.seed)), sampled, estimator, confidence)
    for _, found in engine.run(partial(_audit_batch, order), _batches(sketches)):
        for each in found:
            yield replace(each, control=control)


def _check_alike(name: str, sketch: Sketch, first: Sketch, control: ControlSet) -> None:
    if sketch.control.digest != control.digest:
        raise MismatchError(
            f"the sketch of {named(name)} was made with another control set; audit it with that one, or make it "
            "anew"
        )
    if sketch.seed != first.seed or sketch.shared is not first.shared:
        raise MismatchError(
            f"the sketch of {named(name)} has another seed or sample than the first; audit those of one pass "
            "together"
        )


def _batches(sketches: Mapping[str, Sketch]) -> Iterator[_Batch]:
    rest = iter(sketches.items())
    while some := dict(islice(rest, BATCH)):
        yield _Batch({name: _state(sketch) for name, sketch in some.items()})


def _state(sketch: Sketch) -> SketchState:
    """The numbers of a sketch alone. Stand-ins from a shared sample are made again where they are needed."""
    state = SketchState()
    kept = set(SketchState.__annotations__) - ({"replicate_cells", "shared"} if sketch.shared else set())
    state.__dict__.update({name: value for name, value in sketch.__dict__.items() if name in kept})
    return state


def _audit_batch(order: _Order, batch: _Batch) -> list[Audit]:
    keep_scorer(order.scorer)  # the first that comes to a process stays, with all that was made from it
    scorer = scorer_for(order.scorer.control, order.scorer.seed)
    blank = Sketch(scorer.control, seed=scorer.seed)
    shared = None if order.sampled is None else SharedSample(scorer, order.sampled)
    found = []
    for name, state in batch.states.items():
        sketch = blank.holding(state)
        if shared is not None:
            shared.lend(sketch)
        found.append(
            audit(sketch, scorer.control, name=name, estimator=order.estimator, confidence=order.confidence)
        )
    return found
