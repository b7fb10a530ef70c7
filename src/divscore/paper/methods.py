"""The methods that are compared: the paper's five, ours, and the paper's again with all the labels.

A method is prepared once with what is labelled and then asked about one collection after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from divscore.control.controlset import ControlSet, LabelledSample
from divscore.control.selection import select_adaptive
from divscore.control.theory import Reference, item_similarity
from divscore.estimators.checks import separable
from divscore.estimators.iid import iid
from divscore.estimators.interval import Estimate
from divscore.estimators.likelihood import cannot_tell, likelihood
from divscore.estimators.rectified import SMALLEST_SAMPLE, rectified
from divscore.estimators.self_training import self_training
from divscore.paper.draws import Collection, Labelled, Settings
from divscore.sketch.sketch import Sketch

__all__ = [
    "CONFIDENCE",
    "Choose",
    "Method",
    "Run",
    "Told",
    "adaptive",
    "divscore_with",
    "likelihood_with",
    "paper_methods",
    "same_labels",
    "self_training_with",
    "with_ours",
]

CONFIDENCE = 0.95
Choose = Callable[[Labelled], ControlSet]


@dataclass(frozen=True)
class Told:
    """A disparity, and the limits of its interval where the method has one."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @classmethod
    def of(cls, estimate: Estimate) -> Told:
        """Read an estimate."""
        return cls(estimate.disparity, estimate.interval.low, estimate.interval.high)


Run = Callable[[Collection], Told]


@dataclass(frozen=True)
class Method:
    """A way to estimate a disparity, and what it costs.

    `labels` are given once, whatever the number of collections; `sampled` anew in every collection. `after` names
    the method whose preparation this one shares.
    """

    key: str
    title: str
    prepare: Callable[[Labelled], Run]
    labels: int
    sampled: int = 0
    paper: bool = False
    after: str = ""


def divscore_with(choose: Choose) -> Callable[[Labelled], Run]:
    """Algorithm 1 with a control set that is the same for all collections."""

    def prepare(labelled: Labelled) -> Run:
        control = choose(labelled)
        reference = Reference.of(control)
        return lambda collection: Told(
            reference.score(item_similarity(collection.vectors, control).mean(axis=0)).score
        )

    return prepare


def divscore_sampled(size: int) -> Callable[[Labelled], Run]:
    """Algorithm 1 with a control set drawn from the collection in question: the paper's random proportional.

    Not defined where fewer than two of a group are drawn, as in a collection of one group.
    """

    def prepare(labelled: Labelled) -> Run:
        def run(collection: Collection) -> Told:
            vectors, groups = collection.sample(size)
            if any(groups.count(name) < 2 for name in labelled.pool.groups):
                return Told(math.nan)
            control = ControlSet(
                vectors, groups, attribute=labelled.pool.attribute, order=labelled.pool.groups
            )
            similarity = item_similarity(collection.vectors, control).mean(axis=0)
            return Told(Reference.of(control).score(similarity).score)

        return run

    return prepare


def iid_sampled(size: int) -> Callable[[Labelled], Run]:
    """The disparity of a labelled random sample of the collection: the paper's IID-Measure."""

    def prepare(labelled: Labelled) -> Run:
        def run(collection: Collection) -> Told:
            sample = LabelledSample.of(*collection.sample(size), labelled.pool)
            return Told.of(iid(sample, len(labelled.pool.groups)))

        return run

    return prepare


def self_training_with(choose: Choose, k: int) -> Callable[[Labelled], Run]:
    """Algorithm 3 (SS-ST)."""

    def prepare(labelled: Labelled) -> Run:
        control = choose(labelled)
        return lambda collection: Told(self_training(collection.vectors, control, k=k).disparity)

    return prepare


def likelihood_with(choose: Choose) -> Callable[[Labelled], Run]:
    """Our default estimator, fitted on all examples of a control set."""

    def prepare(labelled: Labelled) -> Run:
        fitted = _fitted(choose(labelled), labelled.seed)

        def run(collection: Collection) -> Told:
            sketch = _filled(fitted, collection)
            groups = len(sketch.control.groups)
            return Told.of(cannot_tell(groups, CONFIDENCE) if sketch.individual else likelihood(sketch))

        return run

    return prepare


def rectified_with(choose: Choose, size: int) -> Callable[[Labelled], Run]:
    """The same, corrected by a labelled random sample of the collection (PPI++)."""

    def prepare(labelled: Labelled) -> Run:
        fitted = _fitted(choose(labelled), labelled.seed)

        def run(collection: Collection) -> Told:
            sample = LabelledSample.of(*collection.sample(size), labelled.pool)
            if len(sample) < SMALLEST_SAMPLE:
                return Told(math.nan)
            return Told.of(rectified(_filled(fitted, collection), sample))

        return run

    return prepare


def adaptive(size: int, alpha: float) -> Choose:
    """Algorithm 2 on the whole pool; where a group has fewer, as many of each as it has."""
    return lambda labelled: select_adaptive(labelled.pool, min(size, labelled.largest), alpha=alpha)


def paper_methods(settings: Settings) -> tuple[Method, ...]:
    """The five methods of Figure 1, in the paper's order."""
    m, n = settings.size, settings.labels
    return (
        Method("random-balanced", "DivScore-Random-Balanced", divscore_with(_few), m, paper=True),
        Method("random-proportional", "DivScore-Random-Proportional", divscore_sampled(m), 0, m, paper=True),
        Method("iid", "IID-Measure", iid_sampled(m), 0, m, paper=True),
        Method("ss-st", "SS-ST", self_training_with(_few, settings.k), m, paper=True),
        Method("adaptive", "DivScore-Adaptive", divscore_with(adaptive(m, settings.alpha)), n, paper=True),
    )


def with_ours(settings: Settings) -> tuple[Method, ...]:
    """The paper's five and ours: with the same |T| labels, with all |U|, and with a sample of the collection."""
    m, n = settings.size, settings.labels
    return (
        *paper_methods(settings),
        Method("likelihood-few", f"likelihood, same {m} labels", likelihood_with(_few), m),
        Method("likelihood", f"likelihood, all {n} labels", likelihood_with(_pool), n),
        Method(
            "rectified",
            f"rectified, {n} labels + {m} of S",
            rectified_with(_pool, m),
            n,
            m,
            after="likelihood",
        ),
    )


def same_labels(settings: Settings) -> tuple[Method, ...]:
    """The paper's methods once more, with every use of |U| labels that it describes."""
    n, double = settings.labels, min(2 * settings.size, settings.labels)
    wide = divscore_with(adaptive(double, settings.alpha))
    balanced = divscore_with(lambda labelled: labelled.balanced(labelled.largest))
    return (
        Method("all", f"DivScore, all {n} as drawn", divscore_with(_pool), n, paper=True),
        Method("all-balanced", f"DivScore, balanced part of the {n}", balanced, n, paper=True),
        Method("adaptive-wide", f"DivScore-Adaptive, {double} of {n}", wide, n, paper=True),
        Method("ss-st-all", f"SS-ST, all {n}", self_training_with(_pool, settings.k), n, paper=True),
        Method(
            "proportional-many",
            f"DivScore-Random-Proportional, {n} of S",
            divscore_sampled(n),
            0,
            n,
            paper=True,
        ),
        Method("iid-many", f"IID-Measure, {n} of S", iid_sampled(n), 0, n, paper=True),
    )


def _few(labelled: Labelled) -> ControlSet:
    return labelled.few


def _pool(labelled: Labelled) -> ControlSet:
    return labelled.pool


def _fitted(control: ControlSet, seed: int) -> Sketch:
    """Fit everything that does not depend on a collection: directions, replicates, the separability test."""
    empty = Sketch(control, seed=seed)
    separable(empty.scorer)
    return empty


def _filled(fitted: Sketch, collection: Collection) -> Sketch:
    sketch = fitted.copy()
    sketch.add(collection.vectors)
    return sketch
