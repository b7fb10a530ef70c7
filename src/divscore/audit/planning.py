"""How many labels an interval of a given width needs: labelled examples, or labels of the collection itself."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from divscore.blas import one_thread
from divscore.control.controlset import ControlSet
from divscore.control.labelledsample import LabelledSample, labelled_control
from divscore.control.similarity import FloatArray
from divscore.errors import ControlError, InputError
from divscore.estimators.checks import separable
from divscore.estimators.interval import bounds
from divscore.estimators.labelled import UNSEEN, half_width, residual_variance
from divscore.estimators.likelihood import likelihood
from divscore.estimators.mixture import mixture_fit
from divscore.sketch.sketch import Sketch

FRACTIONS = (0.4, 0.5, 0.6, 0.7, 0.8)
ROUNDS = 4
EXPONENT = 0.6  # from 50 to 200 labels of PPB widths fell with exponents 0.46 to 0.73
FEWEST = 12  # labelled examples a group in a pilot


@dataclass(frozen=True)
class Plan:
    """Expected width of the interval as a function of the number of labels: ``width(n) = a · n^−0.6``.

    `points` are the widths measured on parts of the pilot, as (labels, mean width); more labels are never wider there
    either. The extrapolation assumes a typical pilot, and is rough beyond about four times its size.
    """

    attribute: str
    groups: int
    labelled: int
    confidence: float
    coefficient: float
    points: tuple[tuple[int, float], ...]

    def width(self, labels: int) -> float:
        """Expected width for a number of labels, for an evenly split collection."""
        if labels < 2 * self.groups:
            raise InputError(f"{labels} labels: at least {2 * self.groups} are needed")
        low, high = bounds(self.groups)
        return float(min(high - low, self.coefficient * labels**-EXPONENT))

    def labels(self, width: float) -> int:
        """Expected number of labels for an interval of this width."""
        _check_width(width, self.groups)
        wanted = float((self.coefficient / width) ** (1 / EXPONENT))
        return self.groups * max(2, math.ceil(round(wanted / self.groups, 6)))


@one_thread
def plan(
    pool: ControlSet,
    *,
    confidence: float = 0.95,
    collection_size: int = 500,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Measure interval widths on parts of a labelled pilot pool and fit how they shrink with the number of labels.

    In each round a balanced part of the pool is the control set and an evenly split collection of `collection_size`
    items is drawn, with replacement, from the rest. The result is the median of width · n^0.6: a fixed direction would
    give 1/√n, and the direction itself improves with more labels.

    >>> rng = np.random.default_rng(0)
    >>> vectors = rng.normal(size=(80, 8)) + 0.6 * np.repeat([[1.0], [-1.0]], 40, axis=0)
    >>> pilot = ControlSet(vectors, ["a"] * 40 + ["b"] * 40, attribute="letter")
    >>> outlook = plan(pilot)
    >>> outlook.labels(outlook.width(200))
    200
    """
    k = len(pool.groups)
    whole = bounds(k)[1] - bounds(k)[0]
    few = [f"{n} '{name}'" for name, n in pool.counts.items() if n < FEWEST]
    if few:
        raise ControlError(f"only {' and '.join(few)} in the pilot pool; planning needs {FEWEST} per group")
    rng = np.random.default_rng([seed, 4])
    measured: list[tuple[int, float]] = []
    for fraction in FRACTIONS * ROUNDS:
        take = max(4, round(fraction * min(pool.counts.values())))
        chosen, drawn = [], []
        for group in range(k):
            rows = rng.permutation(pool.rows(group))
            chosen.append(rows[:take])
            drawn.append(rng.choice(rows[take:], size=collection_size // k))
        part = np.concatenate(chosen)
        names = [pool.groups[g] for g in pool.labels[part]]
        control = ControlSet(pool.vectors[part], names, attribute=pool.attribute)
        sketch = Sketch(control, seed=int(rng.integers(2**31)))
        width = whole  # if the part does not separate the groups
        if separable(sketch.scorer):
            # Items drawn twice must not have the same hash, or the sample would keep only one of them.
            units = pool.units[np.concatenate(drawn)]
            sketch.add(units + 1e-9 * rng.standard_normal(units.shape))
            planned = likelihood(sketch, confidence=confidence)
            width = (planned.if_similar or planned).interval.width  # both parts are of one pool
        measured.append((len(part), width))
        if progress is not None:
            progress(len(measured), len(FRACTIONS) * ROUNDS)
    if sum(width < 0.9 * whole for _, width in measured) < 0.6 * len(measured):
        raise ControlError(
            f"the {len(pool)} labelled examples of the pilot do not separate the groups of {pool.attribute}, so the "
            "number of labels cannot be estimated. Use another encoder, or a larger pilot"
        )
    # The median, because the width of an inconclusive part only says that it is wide.
    typical = float(np.median([width * n**EXPONENT for n, width in measured]))
    sizes = sorted({n for n, _ in measured})
    means = [float(np.mean([width for number, width in measured if number == n])) for n in sizes]
    points = tuple(zip(sizes, _falling(means), strict=True))
    return Plan(pool.attribute, k, len(pool), confidence, typical, points)


def _check_width(width: float, groups: int) -> None:
    low, high = bounds(groups)
    if not 0 < width < high - low:
        raise InputError(
            f"width {width} must be between 0 and {high - low:g} (the whole range of a disparity)"
        )


def _falling(values: Sequence[float]) -> list[float]:
    """The nearest values that never rise: neighbours in the wrong order share their mean.

    >>> _falling([0.5, 0.3, 0.4, 0.2])
    [0.5, 0.35, 0.35, 0.2]
    """
    from scipy.optimize import isotonic_regression

    fitted: list[float] = isotonic_regression(values, increasing=False).x.tolist() if values else []
    return fitted


# Labels of the collection itself

FEWEST_LABELS = 10
SIMPLE, WITHOUT, WITH = "simple sample", "without a control set", "with the control set"
PARTS = (20, 40, 80, 160)  # labels for which a fit on labels alone is tried on parts of a control set


@dataclass(frozen=True)
class LabelPlan:
    """Expected width of the interval as a function of the number of labelled items of a collection.

    `variances` has, for each way to use the labels, the variance that its predictions leave for some numbers of labels.
    Before anything is labelled they come from a control set, if there is one (`basis`); after a pilot from the pilot.
    """

    attribute: str
    items: int
    groups: int
    confidence: float
    basis: str
    variances: dict[str, tuple[tuple[int, float], ...]]

    def width(self, labels: int, way: str) -> float:
        """Expected width of the disparity's interval with so many labels."""
        if labels < FEWEST_LABELS:
            raise InputError(f"{labels} labels: at least {FEWEST_LABELS} are needed")
        points, low_high = self.variances[way], bounds(self.groups)
        sizes, values = zip(*points, strict=True)
        variance = float(np.interp(math.log(labels), np.log(sizes), values))
        # Of the difference of two shares; with two groups that is twice a share.
        unseen = 0.0 if way == SIMPLE else UNSEEN * (4 if self.groups == 2 else 2)
        size, groups = min(labels, self.items), 1 if way == SIMPLE else self.groups
        half = half_width(variance, size, self.items, self.confidence, groups=groups, unseen=unseen)
        return min(2 * half, low_high[1] - low_high[0])

    def labels(self, width: float, way: str) -> int:
        """Expected number of labels for an interval of this width; all items if fewer do not suffice."""
        _check_width(width, self.groups)
        few = min(FEWEST_LABELS, self.items)
        return bisect_left(range(self.items), True, few, key=lambda labels: self.width(labels, way) <= width)


@one_thread
def plan_labels(
    items: int,
    *,
    sketch: Sketch | None = None,
    pilots: Sequence[tuple[Sketch, LabelledSample, bool]] = (),
    alone: bool = True,
    confidence: float = 0.95,
    seed: int = 0,
) -> LabelPlan:
    """Say how many items of a collection to label.

    `sketch` is the collection as a control set sees it. `pilots` are first labels with the sketch of a fit on them, and
    whether a control set was part of that fit. Without both, only a simple sample can be planned, for the worst case of
    two equal groups. With a control set, what its predictions leave is the spread of their posteriors; a fit on labels
    alone is tried on parts of the control set's examples, in the composition that the collection seems to have, unless
    `alone` is false: it takes a moment.
    """
    groups, attribute, basis = 2, "group", "nothing"
    variances: dict[str, tuple[tuple[int, float], ...]] = {}
    simple = 1.0
    if sketch is not None:
        control, basis = sketch.control, "the control set"
        attribute, groups = control.attribute, len(control.groups)
        if separable(sketch.scorer):
            mixture = mixture_fit(sketch)
            pair = int(mixture.shares.argmax()), int(mixture.shares.argmin())
            joint = mixture.likelihoods * mixture.shares
            one, other = (joint / joint.sum(axis=1, keepdims=True))[:, list(pair)].T
            left = (one + other - (one - other) ** 2) @ mixture.counts / mixture.counts.sum()
            p, q = mixture.shares[list(pair)]
            simple = float(p + q - (p - q) ** 2)
            variances = {WITH: ((1, float(left)),)}
            if alone:
                tried = _tried(control, mixture.named, simple, seed)
                # Both together predict at least as well as the labels alone.
                variances = {WITHOUT: tried, WITH: tuple((n, min(value, float(left))) for n, value in tried)}
    for fitted, sample, with_control in pilots:
        if sample.labelled.sum() < FEWEST_LABELS:
            raise InputError(
                f"{sample.labelled.sum()} labels say too little; label {FEWEST_LABELS} or more first"
            )
        basis, attribute, groups = (
            f"{int(sample.labelled.sum())} labels",
            sample.attribute,
            len(sample.groups),
        )
        shares = np.sort(sample.counts / sample.counts.sum())
        simple = float(shares[-1] + shares[0] - (shares[-1] - shares[0]) ** 2)
        variances[WITH if with_control else WITHOUT] = ((1, residual_variance(fitted, sample)),)
    return LabelPlan(attribute, items, groups, confidence, basis, {**variances, SIMPLE: ((1, simple),)})


def _tried(
    control: ControlSet, shares: FloatArray, simple: float, seed: int
) -> tuple[tuple[int, float], ...]:
    """What a fit on n labels alone leaves unexplained, tried on random parts of a control set."""
    rng, points = np.random.default_rng([seed, 8]), []
    for n in PARTS:
        wanted = np.maximum(np.rint(n * shares), 2).astype(int)
        rows = [control.rows(group) for group in range(len(shares))]
        if any(number > len(own) for number, own in zip(wanted, rows, strict=True)):
            break
        left = []
        for _ in range(ROUNDS):
            chosen = np.concatenate(
                [rng.choice(own, number, replace=False) for number, own in zip(wanted, rows, strict=True)]
            )
            names = [control.groups[label] for label in control.labels[chosen]]
            sample = LabelledSample.of(control.vectors[chosen], names, order=control.groups)
            fitted = Sketch(labelled_control([sample], None), seed=seed)
            fitted.add(sample.vectors)
            left.append(residual_variance(fitted, sample))
        points.append((n, float(np.mean(left))))
    # More labels never predict worse.
    return tuple(zip([n for n, _ in points], _falling([v for _, v in points]), strict=True)) or ((1, simple),)
