"""Sweeps: the same methods asked about one collection after the other, against the clock."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from divscore.audit.audit import audit
from divscore.control.theory import Reference, gamma_control
from divscore.jobs.processes import Processes
from divscore.paper.draws import (
    Attribute,
    Collection,
    Labelled,
    Material,
    Rows,
    Settings,
    collected,
    composed,
)
from divscore.paper.methods import Method, adaptive, divscore_with, likelihood_with
from divscore.paper.records import Answer, Batch, Check, Measure

__all__ = [
    "ask",
    "batches",
    "check_collections",
    "composition_sweep",
    "measure_gamma",
    "repeat",
    "size_methods",
    "size_sweep",
]


def ask(
    methods: Sequence[Method], labelled: Labelled, collections: Sequence[Collection], sweep: str
) -> list[Answer]:
    """Prepare every method once and ask it about every collection."""
    found = []
    prepared: dict[str, float] = {}
    for method in methods:
        start = time.perf_counter()
        run = method.prepare(labelled)
        prepared[method.key] = time.perf_counter() - start + prepared.get(method.after, 0.0)
        for collection in collections:
            start = time.perf_counter()
            told = run(collection)
            found.append(
                Answer(
                    sweep,
                    labelled.pool.attribute,
                    collection.at,
                    labelled.seed,
                    method.key,
                    len(collection),
                    collection.truth,
                    told.value,
                    told.low,
                    told.high,
                    prepared[method.key],
                    time.perf_counter() - start,
                )
            )
    return found


def composition_sweep(
    material: Material,
    attribute: Attribute,
    rows: Rows,
    settings: Settings,
    rng: np.random.Generator,
    sampling: np.random.Generator,
) -> list[Collection]:
    """Draw collections with f = 0 … 1 of the first group, each from all of `rows`.

    `sampling` decides which items a method may see labelled, apart from which items are drawn.
    """
    labels = attribute.labels(material)
    return [
        collected(
            material,
            attribute,
            composed(labels, rows, (share, 1 - share), settings.collection, rng),
            share,
            sampling,
        )
        for share in settings.shares
    ]


def size_methods(size: int, alpha: float) -> tuple[Method, ...]:
    """What the size sweep compares: both of the paper's control sets, and `likelihood` with the random one."""
    return (
        Method(
            "random-balanced",
            "DivScore-Random-Balanced",
            divscore_with(lambda labelled: labelled.balanced(size)),
            size,
            paper=True,
        ),
        Method("adaptive", "DivScore-Adaptive", divscore_with(adaptive(size, alpha)), size, paper=True),
        Method(
            "likelihood-few",
            "likelihood, same labels",
            likelihood_with(lambda labelled: labelled.balanced(size)),
            size,
        ),
    )


def size_sweep(labelled: Labelled, collection: Collection, settings: Settings) -> list[Answer]:
    """Ask about one collection with control sets of growing size, every one normalised by itself."""
    found = []
    for size in settings.sizes:
        if size <= labelled.largest:
            at = Collection(size, collection.vectors, collection.groups, collection.truth, collection.order)
            found += ask(size_methods(size, settings.alpha), labelled, [at], "size")
    return found


def measure_gamma(
    labelled: Labelled, held_out: tuple[Material, Attribute, Rows], settings: Settings
) -> list[Measure]:
    """γ^(T) of the random and of the adaptive control set: on the other partition, and on the set itself."""
    material, attribute, rows = held_out
    vectors, names = material.vectors[rows], material.columns[attribute.column][rows].tolist()
    sets = {"random": labelled.few, "adaptive": adaptive(settings.size, settings.alpha)(labelled)}
    found = []
    for name, control in sets.items():
        found.append((f"{name}, held out", gamma_control(control, vectors, names)))
        found.append((f"{name}, own", Reference.of(control).gamma))
    return [Measure(attribute.name, labelled.seed, name, value) for name, value in found]


def check_collections(labelled: Labelled, collections: Sequence[Collection]) -> list[Check]:
    """What an audit says about its own answer, with all labels."""
    found = []
    for collection in collections:
        result = audit(collection.vectors, labelled.pool, seed=labelled.seed)
        found.append(
            Check(
                labelled.pool.attribute,
                str(collection.at),
                labelled.seed,
                result.trust,
                result.diagnostics.relevance,
                result.diagnostics.relevance_p,
                result.warnings[0] if result.warnings else "",
            )
        )
    return found


# Repetitions, shared by a few processes; who computes what makes no difference.

T = TypeVar("T")

_material: Material | None = None


def batches(
    work: Callable[..., Batch],
    material: Material,
    tasks: Sequence[tuple[Any, ...]],
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> tuple[Batch, dict[str, Any]]:
    """Repeat, put the batches together, and say how long it took."""
    start = time.perf_counter()
    batch = Batch.joined(repeat(work, material, tasks, workers=workers, progress=progress))
    return batch, {"seconds": round(time.perf_counter() - start, 1), "workers": workers}


def repeat(
    work: Callable[..., T],
    material: Material,
    tasks: Sequence[tuple[Any, ...]],
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> list[T]:
    """Call ``work(material, *task)`` for every task and return what it returns, in the order of the tasks.

    `work` takes its randomness from the task alone. Processes are spawned with one BLAS thread each and map the
    same vectors from a temporary file.
    """
    advance = progress or (lambda step: None)
    found = []
    if workers <= 1 or len(tasks) <= 1:
        for task in tasks:
            found.append(work(material, *task))
            advance(1)
        return found
    call = functools.partial(_call, work)
    with _pool(material, min(workers, len(tasks))) as pool:
        for future in [pool.submit(call, task) for task in tasks]:
            found.append(future.result())
            advance(1)
    return found


@contextmanager
def _pool(material: Material, workers: int) -> Iterator[Processes]:
    with tempfile.TemporaryDirectory(prefix="divscore-") as folder:
        np.save(Path(folder) / "vectors.npy", material.vectors)
        columns = {f"column {name}": values for name, values in material.columns.items()}
        np.savez(Path(folder) / "columns.npz", allow_pickle=False, **columns)
        with Processes(workers, _open, (folder,)) as pool:
            try:
                yield pool
            except BaseException:
                pool.end()
                pool.shutdown(cancel_futures=True)
                raise


def _open(folder: str) -> None:
    """In a worker: map the material."""
    global _material
    vectors = np.load(Path(folder) / "vectors.npy", mmap_mode="r", allow_pickle=False)
    with np.load(Path(folder) / "columns.npz", allow_pickle=False) as columns:
        named = {name.removeprefix("column "): columns[name] for name in columns.files}
    _material = Material(vectors, named)


def _call(work: Callable[..., T], task: tuple[Any, ...]) -> T:
    assert _material is not None
    return work(_material, *task)
