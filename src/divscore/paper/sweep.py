"""Sweeps: the same methods asked about one collection after the other, against the clock."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from divscore.audit.audit import audit
from divscore.control.theory import gamma_control, gamma_control_own
from divscore.paper.draws import Attribute, Collection, Labelled, Material, Rows, collected, composed
from divscore.paper.methods import Method, adaptive, divscore_with, likelihood_with
from divscore.paper.records import Answer, Check, Measure
from divscore.paper.settings import Settings

__all__ = ["ask", "check_collections", "composition_sweep", "measure_gamma", "size_methods", "size_sweep"]


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
        found.append((f"{name}, own", gamma_control_own(control)))
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
