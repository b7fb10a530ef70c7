"""audit(): a collection and a control set in, a disparity that can be trusted out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from divscore.control import CROSS, ControlSet
from divscore.diagnostics import (
    Diagnostics,
    about_skipped,
    control_facts,
    diagnose,
    trust_of,
    warnings_for,
)
from divscore.errors import InputError, MismatchError
from divscore.estimators.divscore import DivScore, divscore, mean_similarity
from divscore.estimators.iid import iid
from divscore.estimators.likelihood import likelihood, summarise
from divscore.estimators.rectified import rectified
from divscore.estimators.self_training import self_training
from divscore.interval import Estimate, Interval, bounds
from divscore.sample import LabelledSample
from divscore.similarity import FloatArray, as_matrix
from divscore.sketch import Sketch
from divscore.theory import theorem

__all__ = ["ESTIMATORS", "Audit", "Marginal", "audit"]

ESTIMATORS = ("likelihood", "divscore", "rectified", "iid", "self-training")


@dataclass(frozen=True)
class Marginal:
    """One attribute of an intersection: its shares, summed over the other, and its disparity."""

    attribute: str
    shares: dict[str, float]
    disparity: float
    interval: Interval

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "attribute": self.attribute,
            "shares": {name: _number(value) for name, value in self.shares.items()},
            "disparity": _number(self.disparity),
            "interval": [self.interval.low, self.interval.high],
        }


@dataclass(frozen=True)
class Audit:
    """What one collection looks like from one control set.

    `disparity` is share(first group) − share(second) for two groups, largest share − smallest for more; NaN
    where the groups cannot be told apart. `divscore` is the paper's Algorithm 1 on the representatives, for
    comparison, whichever estimator was asked for.
    """

    name: str
    control: ControlSet
    estimator: str
    confidence: float
    seed: int
    count: int
    skipped: dict[str, int]
    shares: dict[str, float]
    share_intervals: dict[str, Interval]
    disparity: float
    interval: Interval
    divscore: float
    trust: str
    diagnostics: Diagnostics
    warnings: tuple[str, ...]
    marginals: tuple[Marginal, ...] = ()

    @property
    def most(self) -> str:
        """The group with the largest share."""
        return max(self.shares, key=lambda name: self.shares[name])

    @property
    def least(self) -> str:
        """The group with the smallest share."""
        return min(self.shares, key=lambda name: self.shares[name])

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        if self.trust == "poor":
            return (
                f"Cannot tell how {self.control.attribute} is distributed among these {self.count:,} items."
            )
        first = self.control.groups[0] if len(self.shares) == 2 else self.most
        limits = self.share_intervals[first]
        even = 1 / len(self.shares)
        return (
            f"Between {limits.low:.0%} and {limits.high:.0%} of these {self.count:,} items are {first}; "
            f"balanced would be {even:.0%}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of one collection in the JSON document `divscore.audit/1`."""
        entry: dict[str, Any] = {
            "name": self.name,
            "count": self.count,
            "skipped": dict(self.skipped),
            "shares": {name: _number(value) for name, value in self.shares.items()},
            "share_intervals": {name: [i.low, i.high] for name, i in self.share_intervals.items()},
            "disparity": _number(self.disparity),
            "interval": [self.interval.low, self.interval.high],
            "interval_level": self.interval.level,
            "interval_method": self.interval.method,
            "divscore": _number(self.divscore),
            "trust": self.trust,
            "diagnostics": self.diagnostics.to_dict(),
            "warnings": list(self.warnings),
        }
        if len(self.shares) > 2 and math.isfinite(self.disparity):
            entry["most"], entry["least"] = self.most, self.least
        if self.marginals:
            entry["marginals"] = [marginal.to_dict() for marginal in self.marginals]
        return entry


def audit(
    collection: Any,
    control: ControlSet,
    *,
    estimator: str = "likelihood",
    confidence: float = 0.95,
    seed: int = 0,
    sample: LabelledSample | tuple[Any, Iterable[str]] | None = None,
    name: str = "collection",
    target: str = "collection",
    workers: int = 1,
) -> Audit:
    """Estimate how unevenly the control set's groups are represented in a collection.

    Parameters
    ----------
    collection : array of shape (N, d), Sketch, or iterable of such arrays
        The unlabelled items. A Sketch brings its own seed.
    control : ControlSet
        Labelled examples.
    estimator : str
        "likelihood" (default), or "divscore" (Algorithm 1), "self-training" (Algorithm 3), "iid" and
        "rectified" (both need `sample`).
    confidence : float
        Level of the interval.
    sample : LabelledSample or (vectors, groups), optional
        Items drawn at random from the collection and labelled by a person.
    target : "collection" or "population"
        What the interval is about: these very items, or the source they were drawn from.
    workers : int
        Threads that share the pass over a large array; the answer does not depend on it.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> def letters(a, b):
    ...     return rng.normal(size=(a + b, 8)) + np.repeat([1.0, -1.0], [a, b])[:, None]
    >>> control = ControlSet(letters(30, 30), ["a"] * 30 + ["b"] * 30, attribute="letter")
    >>> result = audit(letters(400, 100), control)
    >>> bool(0.6 in result.interval), result.trust
    (True, 'good')
    """
    _check_options(estimator, confidence, target)
    if isinstance(sample, tuple):
        sample = LabelledSample.of(*sample, control)
    if estimator in ("iid", "rectified") and sample is None:
        raise InputError(
            f"estimator '{estimator}' needs a labelled random sample of the collection (sample=…)"
        )
    if estimator == "self-training":
        collection = _whole(collection)
    sketch = _sketch(collection, control, seed, workers)
    if not sketch.count:
        raise InputError(f"{name}: no item with a usable vector; {_skips(sketch)}")
    score = _score(sketch)
    estimate = _estimate(estimator, sketch, score, sample, confidence, target, collection)
    found = diagnose(sketch, estimate.disparity)
    # Labels drawn from the collection itself need no assumption on the control set, and no warning about it.
    direct = estimator in ("iid", "rectified")
    trust = "good" if direct else trust_of(sketch, found)
    warned = about_skipped if direct else warnings_for
    warnings = warned(sketch, found, estimate.interval.width / 2)
    warnings += _method_warnings(estimator, estimate, score, sketch, sample, confidence)
    return Audit(
        name=str(name),
        control=control,
        estimator=estimator,
        confidence=confidence,
        seed=sketch.seed,
        count=sketch.count,
        skipped=dict(sketch.skipped),
        shares=_named(control, estimate.shares),
        share_intervals=dict(zip(control.groups, estimate.share_intervals, strict=True)),
        disparity=estimate.disparity,
        interval=estimate.interval,
        divscore=score.score,
        trust=trust,
        diagnostics=found,
        warnings=tuple(warnings),
        marginals=_marginals(control, estimate, confidence),
    )


def _check_options(estimator: str, confidence: float, target: str) -> None:
    if estimator not in ESTIMATORS:
        raise InputError(f"unknown estimator '{estimator}'; choose one of {', '.join(ESTIMATORS)}")
    if not 0.5 <= confidence < 1:
        raise InputError(f"confidence {confidence} must be at least 0.5 and below 1, for example 0.95")
    if target not in ("collection", "population"):
        raise InputError(f"unknown target '{target}'; choose 'collection' or 'population'")


def _sketch(collection: Any, control: ControlSet, seed: int, workers: int) -> Sketch:
    if isinstance(collection, Sketch):
        if collection.control.digest != control.digest:
            raise MismatchError(
                "the sketch was made with another control set; audit it with that one, or make it anew"
            )
        return collection
    sketch = Sketch(control, seed=seed)
    if _is_table(collection):
        sketch.add(collection, workers=workers)
    else:
        for block in collection:
            sketch.add(block, workers=workers)
    return sketch


def _is_table(collection: Any) -> bool:
    """Tell one table of vectors from an iterable of such tables; a list may be either."""
    if isinstance(collection, (list, tuple)):
        return not (collection and getattr(collection[0], "ndim", 1) == 2)
    return hasattr(collection, "__array__") or not hasattr(collection, "__iter__")


def _whole(collection: Any) -> Any:
    if isinstance(collection, Sketch):
        raise InputError(
            "'self-training' looks at the items one by one and cannot work from a sketch; give vectors"
        )
    if _is_table(collection):
        rows = as_matrix(collection, "the collection's vectors")
    else:
        blocks = [as_matrix(block, "the collection's vectors") for block in collection]
        if not blocks:
            raise InputError("the collection is empty: no block of vectors was given")
        rows = np.concatenate(blocks)
    return rows


def _score(sketch: Sketch) -> DivScore:
    control = sketch.control
    state = sketch.mean if control.similarity.collapses else sketch.similarity_total / sketch.count
    return divscore(mean_similarity(state, control), control_facts(control).reference)


def _estimate(
    estimator: str,
    sketch: Sketch,
    score: DivScore,
    sample: LabelledSample | None,
    confidence: float,
    target: str,
    collection: Any,
) -> Estimate:
    k = len(sketch.control.groups)
    if estimator == "likelihood":
        return likelihood(sketch, confidence=confidence, target=target)
    if estimator == "divscore":
        return _from_score(score, sketch)
    if estimator == "self-training":
        good = np.isfinite(collection).all(axis=1) & collection.any(axis=1)
        found = self_training(collection[good], sketch.control)
        low, high = bounds(k)
        return _point(found.disparity, Interval(low, high, confidence, "none: Algorithm 3 gives no interval"))
    assert sample is not None
    if estimator == "iid":
        return iid(sample, k, confidence=confidence)
    return rectified(sketch, sample, confidence=confidence)


def _from_score(score: DivScore, sketch: Sketch) -> Estimate:
    """Algorithm 1 with the only interval the paper gives: Theorem 3.3, at its own level of 0.9."""
    facts = control_facts(sketch.control)
    bound = theorem(
        int(sketch.control.representative.sum()),
        sketch.count,
        facts.separability.mu_same,
        facts.separability.mu_diff,
    )
    low, high = bounds(len(score.s))
    value, error = score.score, bound.additive_error
    if math.isfinite(value) and math.isfinite(error):
        low, high = min(max(value - error, low), high), max(min(value + error, high), low)
    interval = Interval(low, high, bound.probability, "Theorem 3.3, worst case")
    if len(score.s) == 2:
        return _point(value, interval)
    positive = np.clip(score.s, 0.0, None)
    shares = positive / positive.sum() if positive.sum() > 0 else np.full(len(score.s), np.nan)
    each = tuple(Interval(0.0, 1.0, interval.level, interval.method) for _ in score.s)
    return Estimate(shares, each, value, interval)


def _point(value: float, interval: Interval) -> Estimate:
    share = (1 + min(max(value, -1.0), 1.0)) / 2
    first = Interval((1 + interval.low) / 2, (1 + interval.high) / 2, interval.level, interval.method)
    second = Interval((1 - interval.high) / 2, (1 - interval.low) / 2, interval.level, interval.method)
    return Estimate(np.array([share, 1 - share]), (first, second), value, interval)


def _method_warnings(
    estimator: str,
    estimate: Estimate,
    score: DivScore,
    sketch: Sketch,
    sample: LabelledSample | None,
    confidence: float,
) -> list[str]:
    said = []
    if estimator == "divscore" and any(score.noisy):
        noisy = [n for n, bad in zip(sketch.control.groups, score.noisy, strict=True) if bad]
        said.append(
            f"the representatives of {', '.join(noisy)} are hardly more similar to each other than to the other "
            "group: the DivScore is mostly noise"
        )
    if estimator == "rectified":
        free = likelihood(sketch, confidence=confidence)
        if math.isfinite(free.disparity) and _apart(free.interval, estimate.interval):
            said.append(
                f"'likelihood' without the labelled sample says {free.disparity:+.2f} "
                f"({free.interval.low:+.2f} to {free.interval.high:+.2f}), which does not meet this interval: "
                "the control set does not fit this collection, trust the labelled sample"
            )
    if sample is not None and len(sample) > sketch.count:
        said.append(
            f"{len(sample)} labelled items for a collection of {sketch.count}: is it the same collection?"
        )
    return said


def _apart(a: Interval, b: Interval) -> bool:
    return a.high < b.low or b.high < a.low


def _marginals(control: ControlSet, estimate: Estimate, confidence: float) -> tuple[Marginal, ...]:
    """Sum an intersection's shares, and their replicates, over all but one of its attributes."""
    attributes = control.attribute.split(CROSS)
    parts = [name.split(CROSS) for name in control.groups]
    if len(attributes) < 2 or any(len(p) != len(attributes) for p in parts) or estimate.replicates is None:
        return ()
    found = []
    for at, attribute in enumerate(attributes):
        names = list(dict.fromkeys(p[at] for p in parts))
        member = np.array([[p[at] == name for p in parts] for name in names], dtype=float)
        summed = summarise(member @ estimate.shares, estimate.replicates @ member.T, confidence)
        shares = dict(zip(names, (float(s) for s in summed.shares), strict=True))
        found.append(Marginal(attribute, shares, summed.disparity, summed.interval))
    return tuple(found)


def _named(control: ControlSet, shares: FloatArray) -> dict[str, float]:
    return {name: float(value) for name, value in zip(control.groups, shares, strict=True)}


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _skips(sketch: Sketch) -> str:
    kinds = [f"{n} {kind}" for kind, n in sketch.skipped.items() if n]
    return f"skipped: {', '.join(kinds)}" if kinds else "the collection is empty"
