"""The methods that are compared: the paper's five, ours, and the paper's again with all the labels.

A method is prepared once with the labelled examples, then asked about one collection after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from numpy.typing import NDArray

from divscore.audit.trust import FEW_LABELLED
from divscore.control.controlset import ControlSet
from divscore.control.labelledsample import LabelledSample, labelled_control
from divscore.control.selection import select_adaptive
from divscore.control.theory import Reference, item_similarity
from divscore.errors import ControlError
from divscore.estimators.checks import separable
from divscore.estimators.iid import iid
from divscore.estimators.interval import Estimate
from divscore.estimators.labelled import from_labels
from divscore.estimators.likelihood import cannot_tell, likelihood
from divscore.estimators.self_training import self_training
from divscore.paper.draws import Collection, Labelled, Settings
from divscore.sketch.sketch import Sketch

CONFIDENCE = 0.95
Reply = tuple[float, float, float]  # the disparity, and the limits of its interval; NaN where there are none
Run = Callable[[Collection], Reply]
Prepare = Callable[[Labelled], Run]
Choose = Callable[[Labelled], ControlSet]


@dataclass(frozen=True)
class Method:
    """A way to estimate a disparity, and its cost.

    `labels` are given once, whatever the number of collections; `sampled` again in every collection. `after` names
    the method that this one shares its preparation with. `representatives` is the size of the control set if the method
    has one to choose (`compare` reports it).
    """

    key: str
    title: str
    prepare: Prepare
    labels: int
    sampled: int = 0
    paper: bool = False
    after: str = ""
    representatives: int | None = None


def divscore_with(choose: Choose) -> Prepare:
    """Algorithm 1 with one control set for all collections.

    Undefined if there is no such control set: proportional draws may never have two of a rare group.
    """

    def prepare(labelled: Labelled) -> Run:
        try:
            control = choose(labelled)
        except ControlError:
            return undefined
        reference = Reference.of(control)
        return lambda collection: _score(collection.vectors, control, reference)

    return prepare


def divscore_sampled(size: int) -> Prepare:
    """Algorithm 1 with a control set drawn from the collection: the paper's random proportional.

    Undefined if fewer than two of a group are drawn, as in a collection of one group.
    """

    def run(pool: ControlSet, collection: Collection) -> Reply:
        vectors, groups = collection.sample(size)
        if any(groups.count(name) < 2 for name in pool.groups):
            return undefined(collection)
        control = ControlSet(vectors, groups, attribute=pool.attribute, order=pool.groups)
        return _score(collection.vectors, control, Reference.of(control))

    return lambda labelled: partial(run, labelled.pool)


def iid_sampled(size: int) -> Prepare:
    """The disparity of a labelled random sample of the collection: the paper's IID-Measure."""

    def run(pool: ControlSet, collection: Collection) -> Reply:
        return _reply(iid(LabelledSample.of(*collection.sample(size), control=pool)))

    return lambda labelled: partial(run, labelled.pool)


def self_training_with(choose: Choose, k: int) -> Prepare:
    """Algorithm 3 (SS-ST)."""

    def run(control: ControlSet, collection: Collection) -> Reply:
        return self_training(collection.vectors, control, k=k).disparity, math.nan, math.nan

    return lambda labelled: partial(run, choose(labelled))


def likelihood_with(choose: Choose, sampled: int = 0) -> Prepare:
    """Our default estimator, fitted on all examples of a control set.

    If `sampled` it is `rectified`: corrected by a labelled random sample of the collection.
    """

    def prepare(labelled: Labelled) -> Run:
        fitted = Sketch(choose(labelled), seed=labelled.seed)
        # The scorer keeps what does not depend on a collection: it is part of the preparation.
        if separable(fitted.scorer):
            _ = fitted.scorer.replicates

        def run(collection: Collection) -> Reply:
            sketch = fitted.copy()
            if sampled:
                sample = LabelledSample.of(*collection.sample(sampled), control=labelled.pool)
                if len(sample) < FEW_LABELLED:
                    return undefined(collection)
                sketch = Sketch(labelled_control([sample], labelled.pool), seed=labelled.seed)
                sketch.add(collection.vectors)
                return _reply(from_labels(sketch, sample).estimate)
            sketch.add(collection.vectors)
            groups = len(sketch.control.groups)
            return _reply(cannot_tell(groups, CONFIDENCE) if sketch.individual else likelihood(sketch))

        return run

    return prepare


def undefined(collection: Collection) -> Reply:
    """No answer."""
    return math.nan, math.nan, math.nan


def adaptive(size: int, alpha: float | Literal["auto"]) -> Choose:
    """Algorithm 2 on the whole pool, with no more of each group than the rarest has."""
    return lambda few: select_adaptive(few.pool, min(size, few.largest), alpha=alpha, seed=few.seed)


def balanced(size: int) -> Choose:
    """A random control set, as many of each group."""
    return lambda labelled: labelled.balanced(size)


def whole_pool(labelled: Labelled) -> ControlSet:
    """All labelled examples."""
    return labelled.pool


def all_balanced(labelled: Labelled) -> ControlSet:
    """As many of each group as the rarest has."""
    return labelled.balanced(labelled.largest)


def main_methods(settings: Settings) -> tuple[Method, ...]:
    """The five methods of Figure 1 in the paper's order, and ours: with |T| labels, |U|, and a sample of S."""
    m, n = settings.size, settings.labels
    random, chosen = balanced(m), adaptive(m, settings.alpha)
    corrected = likelihood_with(whole_pool, m)
    return (
        Method("random-balanced", "DivScore-Random-Balanced", divscore_with(random), m, paper=True),
        Method("random-proportional", "DivScore-Random-Proportional", divscore_sampled(m), 0, m, paper=True),
        Method("iid", "IID-Measure", iid_sampled(m), 0, m, paper=True),
        Method("ss-st", "SS-ST", self_training_with(random, settings.k), m, paper=True),
        Method("adaptive", "DivScore-Adaptive", divscore_with(chosen), n, paper=True),
        Method("likelihood-few", f"likelihood, same {m} labels", likelihood_with(random), m),
        Method("likelihood", f"likelihood, all {n} labels", likelihood_with(whole_pool), n),
        Method("rectified", f"rectified, {n} labels + {m} of S", corrected, n, m, after="likelihood"),
    )


def all_methods(settings: Settings) -> tuple[Method, ...]:
    """The main methods, and the paper's once more with every use of |U| labels that it describes."""
    n, double, k = settings.labels, min(2 * settings.size, settings.labels), settings.k
    wide, part = divscore_with(adaptive(double, settings.alpha)), divscore_with(all_balanced)
    drawn = f"DivScore-Random-Proportional, {n} of S"
    return (
        *main_methods(settings),
        Method("all", f"DivScore, all {n} as drawn", divscore_with(whole_pool), n, paper=True),
        Method("all-balanced", f"DivScore, balanced part of the {n}", part, n, paper=True),
        Method("adaptive-wide", f"DivScore-Adaptive, {double} of {n}", wide, n, paper=True),
        Method("ss-st-all", f"SS-ST, all {n}", self_training_with(whole_pool, k), n, paper=True),
        Method("proportional-many", drawn, divscore_sampled(n), 0, n, paper=True),
        Method("iid-many", f"IID-Measure, {n} of S", iid_sampled(n), 0, n, paper=True),
    )


def size_methods(size: int, alpha: float) -> tuple[Method, ...]:
    """The methods of the size sweep: both of the paper's control sets, and `likelihood` with the random one."""
    random, score = balanced(size), divscore_with(adaptive(size, alpha))
    return (
        Method("random-balanced", "DivScore-Random-Balanced", divscore_with(random), size, paper=True),
        Method("adaptive", "DivScore-Adaptive", score, size, paper=True),
        Method("likelihood-few", "likelihood, same labels", likelihood_with(random), size),
    )


def _score(vectors: NDArray[Any], control: ControlSet, reference: Reference) -> Reply:
    return reference.score(item_similarity(vectors, control).mean(axis=0)).score, math.nan, math.nan


def _reply(estimate: Estimate) -> Reply:
    return estimate.disparity, estimate.interval.low, estimate.interval.high
