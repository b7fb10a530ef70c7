"""audit(): a collection and a control set in, a disparity that can be trusted out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from divscore.audit.result import Audit, marginals
from divscore.audit.trust import about_skipped, control_facts, diagnose, trust_of, warnings_for
from divscore.control.controlset import ControlSet, LabelledSample
from divscore.control.divscore import DivScore, divscore, mean_similarity
from divscore.control.similarity import FloatArray, as_matrix
from divscore.control.theory import theorem
from divscore.errors import InputError, MismatchError
from divscore.estimators.iid import iid
from divscore.estimators.interval import Estimate, Interval, bounds
from divscore.estimators.likelihood import cannot_tell, likelihood
from divscore.estimators.rectified import rectified
from divscore.estimators.self_training import self_training
from divscore.sketch.sketch import Sketch
from divscore.text import printable

__all__ = ["ESTIMATORS", "audit"]

FEW_LABELLED = 10  # labelled items of the collection below which their disparity says nothing
ESTIMATORS = ("likelihood", "divscore", "rectified", "iid", "self-training")


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
    # Labels drawn from the collection itself need no assumption on the control set, and no warning about it.
    direct = estimator in ("iid", "rectified")
    score = _score(sketch)
    if sketch.individual and not direct:
        estimate = cannot_tell(len(control.groups), confidence)
    else:
        estimate = _estimate(estimator, sketch, score, sample, confidence, target, collection)
    found = diagnose(sketch, estimate.disparity)
    half_width = estimate.interval.width / 2
    if direct:
        trust = "good" if sample is not None and len(sample) >= FEW_LABELLED else "poor"
        warnings = about_skipped(sketch, found, half_width)
    else:
        noisy = estimator == "divscore" and any(score.noisy)
        trust = "poor" if noisy or not math.isfinite(estimate.disparity) else trust_of(sketch, found)
        if trust == "good" and about_skipped(sketch, found, half_width):
            trust = "caution"
        warnings = warnings_for(sketch, found, half_width)
    warnings += _method_warnings(estimator, estimate, score, sketch, sample, confidence)
    return Audit(
        name=str(name),
        control=control,
        estimator=estimator,
        confidence=confidence,
        seed=sketch.seed,
        count=sketch.count,
        skipped={kind: n for kind, n in sketch.skipped.items() if n or kind != "empty"},
        shares=_named(control, estimate.shares),
        share_intervals=dict(zip(control.groups, estimate.share_intervals, strict=True)),
        disparity=estimate.disparity,
        interval=estimate.interval,
        divscore=math.nan if sketch.individual else score.score,
        trust=trust,
        diagnostics=found,
        warnings=tuple(warnings),
        marginals=marginals(control, estimate, confidence),
        refits=estimate.refits,
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
    # The s_i of more than two groups do not sum to one, so they are no shares.
    each = tuple(Interval(0.0, 1.0, interval.level, interval.method) for _ in score.s)
    return Estimate(np.full(len(score.s), np.nan), each, value, interval)


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
            f"the representatives of {', '.join(map(printable, noisy))} are hardly more similar to each other "
            "than to the other group: the DivScore is mostly noise"
        )
    if sample is not None and estimator != "iid" and len(sample) >= FEW_LABELLED:
        free = likelihood(sketch, confidence=confidence)
        bound = rectified(sketch, sample, confidence=confidence)
        if math.isfinite(free.disparity) and _apart(free.interval, bound.interval):
            said.append(
                f"with the labelled sample the disparity is {_range(bound)}, without it ('likelihood') "
                f"{_range(free)}: the control set does not fit this collection, trust 'rectified'"
            )
    if sample is not None and len(sample) > sketch.count:
        said.append(
            f"{len(sample)} labelled items for a collection of {sketch.count}: is it the same collection?"
        )
    return said


def _range(estimate: Estimate) -> str:
    return f"{estimate.disparity:+.2f} ({estimate.interval.low:+.2f} to {estimate.interval.high:+.2f})"


def _apart(a: Interval, b: Interval) -> bool:
    return a.high < b.low or b.high < a.low


def _named(control: ControlSet, shares: FloatArray) -> dict[str, float]:
    return {name: float(value) for name, value in zip(control.groups, shares, strict=True)}


def _skips(sketch: Sketch) -> str:
    kinds = [f"{n} {kind}" for kind, n in sketch.skipped.items() if n]
    return f"skipped: {', '.join(kinds)}" if kinds else "the collection is empty"
