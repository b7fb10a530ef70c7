"""audit(): a collection and a control set in, a disparity with its uncertainty out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from os import PathLike
from typing import Any, overload
from warnings import warn

import numpy as np

from divscore.audit.audits import Audits
from divscore.audit.result import Audit, marginals
from divscore.audit.target import Target
from divscore.audit.trust import (
    HOLDS,
    Copies,
    about_items,
    about_skipped,
    control_facts,
    diagnose,
    hardest_pair,
    is_set,
    labelled_inside,
    trust_of,
    warnings_for,
)
from divscore.blas import one_thread
from divscore.control.controlset import ControlSet, LabelledSample
from divscore.control.similarity import as_matrix, is_sparse, usable_rows
from divscore.errors import InputError, MismatchError, in_python, python_words
from divscore.estimators.divscore import divscore, score_sketch
from divscore.estimators.iid import iid
from divscore.estimators.interval import Estimate, Interval, bounds
from divscore.estimators.likelihood import cannot_tell, likelihood
from divscore.estimators.rectified import rectified
from divscore.estimators.self_training import self_training
from divscore.sketch.sketch import Sketch
from divscore.text import joined, printable

DISAGREE = (
    "the labelled sample contradicts the control set, which does not fit this collection; use 'rectified'"
)
MANY_INSIDE = 0.1  # of the items are labelled examples: their scores are not those of new items
FEW_LABELLED = 10  # with fewer labelled items of the collection, their disparity says nothing
ESTIMATORS = ("likelihood", "divscore", "rectified", "iid", "self-training")


@overload
def audit(
    collection: Any,
    control: Any,
    *,
    by: None = None,
    estimator: str = ...,
    confidence: float = ...,
    seed: int = ...,
    sample: Any = ...,
    name: str | None = ...,
    target: Mapping[str, float] | Target | None = ...,
    target_source: str = ...,
    population: bool = ...,
    show_untrusted: bool = ...,
    workers: int = ...,
    **options: Any,
) -> Audit: ...
@overload
def audit(
    collection: Any,
    control: Any,
    *,
    by: str,
    estimator: str = ...,
    confidence: float = ...,
    seed: int = ...,
    target: Mapping[str, float] | Target | None = ...,
    target_source: str = ...,
    population: bool = ...,
    show_untrusted: bool = ...,
    workers: int = ...,
    **options: Any,
) -> Audits: ...
def audit(
    collection: Any,
    control: Any,
    *,
    by: str | None = None,
    estimator: str = "likelihood",
    confidence: float = 0.95,
    seed: int = 0,
    sample: Any = None,
    name: str | None = None,
    target: Mapping[str, float] | Target | None = None,
    target_source: str = "",
    population: bool = False,
    show_untrusted: bool = False,
    workers: int = 1,
    **options: Any,
) -> Audit | Audits:
    """Estimate how unevenly groups are represented in a collection.

    Parameters
    ----------
    collection : array, table, Sketch, path, or iterable of arrays
        The unlabelled items: vectors of shape (N, d), dense or scipy.sparse; a pandas, polars or Arrow table of
        vectors, texts or image paths; anything that ``divscore audit`` takes: a folder of images, a file, a pattern,
        ``s3://…``, a sketch. A list of paths is several collections.
    control : ControlSet, path or table
        Labelled examples, or whatever `ControlSet.read` takes.
    by : str, optional
        Audit every value of this column as its own collection, in one pass; "folder" for images.
    estimator : str
        "likelihood" (default), or "divscore" (Algorithm 1), "self-training" (Algorithm 3), "iid" and
        "rectified" (both need `sample`).
    confidence : float
        Level of the interval.
    sample : LabelledSample, (vectors, groups) or path, optional
        Items drawn at random from the collection and labelled by a person.
    target : mapping of group to share, optional
        The shares that the collection is held to, such as ``{"female": 0.27}``; equal shares by default.
    target_source : str
        Where the target comes from, for reports.
    population : bool
        Make the interval one about the source that the items were drawn from, not about exactly these items.
    show_untrusted : bool
        Keep the numbers of a result whose trust is "poor"; by default it has none.
    workers : int
        Number of parallel workers; the result does not depend on it.
    **options :
        For paths and tables, what the options of ``divscore audit`` are: `attribute`, `groups`, `rename`, `column`,
        `form`, `encoder`, `model`, `options`, `pca`, `cache`, `cluster`, `strict`, `verbose`. See
        `divscore.jobs.auditing.audit_source`.

    Returns
    -------
    Audit or Audits
        `Audits`, a sequence, with `by`, for a list of paths, and for a file of several sketches.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> def letters(a, b):
    ...     return rng.normal(size=(a + b, 8)) + np.repeat([1.0, -1.0], [a, b])[:, None]
    >>> control = ControlSet(letters(30, 30), ["a"] * 30 + ["b"] * 30, attribute="letter")
    >>> result = audit(letters(400, 100), control)
    >>> bool(0.6 in result.interval), result.trust
    (True, 'good')
    """
    several = isinstance(collection, (list, tuple)) and all(
        isinstance(c, (str, PathLike)) for c in collection
    )
    source = isinstance(collection, (str, PathLike)) or hasattr(collection, "__arrow_c_stream__") or several
    method: dict[str, Any] = {
        "estimator": estimator,
        "confidence": confidence,
        "seed": seed,
        "target": target,
        "target_source": target_source,
        "population": population,
        "show_untrusted": show_untrusted,
        "sample": sample,
        "workers": workers,
    }
    # Vectors in memory need none of the packages that read and encode files, and importing those takes a while.
    paths = source or by is not None or isinstance(sample, (str, PathLike))
    if isinstance(control, ControlSet) and not paths and not options:
        with in_python():
            return audit_vectors(collection, control, name=name or "collection", **method)
    from divscore.jobs.auditing import audit_source

    with in_python():
        audits = audit_source(
            collection,
            control,
            by=by,
            name=name,
            warn=lambda text: warn(python_words(text), stacklevel=2),
            **method,
            **options,
        )
    return audits if by is not None or several or len(audits) > 1 else audits[0]


@one_thread
def audit_vectors(
    collection: Any,
    control: ControlSet,
    *,
    estimator: str = "likelihood",
    confidence: float = 0.95,
    seed: int = 0,
    sample: LabelledSample | tuple[Any, Iterable[str]] | None = None,
    name: str = "collection",
    target: Mapping[str, float] | Target | None = None,
    target_source: str = "",
    population: bool = False,
    show_untrusted: bool = False,
    workers: int = 1,
) -> Audit:
    """Audit vectors or a sketch in memory; the parameters are those of `audit`."""
    if estimator not in ESTIMATORS:
        raise InputError(f"unknown estimator '{estimator}'; choose one of {', '.join(ESTIMATORS)}")
    if not 0.5 <= confidence < 1:
        raise InputError(f"confidence {confidence} must be at least 0.5 and below 1, for example 0.95")
    if target is not None and not isinstance(target, Target):
        if not isinstance(target, Mapping):
            raise InputError('target takes shares by group, such as {"female": 0.27}')
        target = Target.of(target, control.groups, target_source)
    if isinstance(sample, tuple):
        sample = LabelledSample.of(*sample, control)
    # Labels of the collection itself need no assumption about the control set, and no warning about it.
    direct = estimator in ("iid", "rectified")
    if direct and sample is None:
        raise InputError(
            f"estimator '{estimator}' needs a labelled random sample of the collection: --labelled-sample"
        )
    if isinstance(collection, Sketch):
        if estimator == "self-training":
            raise InputError("'self-training' needs every item; it cannot use a sketch: give vectors")
        sketch = collection
        if sketch.control.digest != control.digest:
            raise MismatchError(
                "the sketch was made with another control set; audit it with that one, or sketch the collection again"
            )
    else:
        # One matrix of vectors, or an iterable of matrices; a list can be either.
        if isinstance(collection, (list, tuple)):
            several = bool(collection) and getattr(collection[0], "ndim", 1) == 2
        else:
            whole = is_sparse(collection) or hasattr(collection, "__array__")
            several = hasattr(collection, "__iter__") and not whole
        blocks = collection if several else [collection]
        if estimator == "self-training":  # the only one that needs all vectors at once
            blocks = [as_matrix(block, "the collection's vectors") for block in blocks]
            if not blocks:
                raise InputError("the collection is empty: there are no vectors")
            blocks = [np.concatenate(blocks)] if len(blocks) > 1 else blocks
            collection = blocks[0]
        sketch = Sketch(control, seed=seed)
        for block in blocks:
            sketch.add(block, workers=workers)
    if not sketch.count:
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in sketch.skipped.items() if n)
        raise InputError(
            f"{name}: no item has a usable vector; {f'skipped: {kinds}' if kinds else 'the collection is empty'}"
        )
    facts = control_facts(control)
    k = len(control.groups)
    if sketch.individual and not direct:
        estimate = cannot_tell(k, confidence)
    elif estimator == "likelihood":
        estimate = likelihood(sketch, confidence=confidence, population=population)
    elif estimator == "divscore":
        estimate = divscore(sketch, facts.reference, facts.separability)
    elif estimator == "self-training":
        trained = self_training(collection[usable_rows(collection)], control)
        none = Interval(*bounds(2), confidence, "none: Algorithm 3 gives no interval")
        estimate = Estimate.of_two(trained.disparity, none)
    elif estimator == "iid":
        assert sample is not None
        estimate = iid(sample, k, confidence=confidence)
    else:
        assert sample is not None
        estimate = rectified(sketch, sample, confidence=confidence)
    diagnostics, copies = diagnose(sketch, estimate.disparity), Copies.of(sketch)
    skipped_warning = about_skipped(sketch, diagnostics, estimate.interval.width / 2)
    noisy = facts.reference.noisy if estimator == "divscore" else ()
    if direct:
        enough = sample is not None and len(sample) >= FEW_LABELLED
        # The labelled items alone say nothing about others; a correction of all items does.
        about = [] if estimator == "iid" else about_items(sketch, copies)
        trust = "poor" if about or not enough else "good"
        warnings = [*about, *skipped_warning]
    else:
        known = math.isfinite(estimate.disparity) and not any(noisy)
        trust = trust_of(sketch, diagnostics, copies) if known else "poor"
        if trust == "good" and skipped_warning:
            trust = "caution"
        warnings = warnings_for(sketch, diagnostics, copies, skipped_warning)
    if any(noisy):
        names = [printable(name) for name, bad in zip(control.groups, noisy, strict=True) if bad]
        warnings.append(
            f"the representatives of {joined(names)} are hardly more similar to their own group than to others: "
            "the DivScore is mostly noise"
        )
    if sample is not None and estimator != "iid" and len(sample) >= FEW_LABELLED:
        # The labels check the control set: both estimates are of the same collection.
        without = likelihood(sketch, confidence=confidence)
        corrected = rectified(sketch, sample, confidence=confidence)
        a, b = without.interval, corrected.interval
        if math.isfinite(without.disparity) and (a.high < b.low or b.high < a.low):
            one, other = (
                f"{result.disparity:+.2f} ({result.interval.low:+.2f} to {result.interval.high:+.2f})"
                for result in (corrected, without)
            )
            warnings.append(
                f"the disparity is {one} with the labelled sample, but {other} without it ('likelihood'): the control "
                "set does not fit this collection; use 'rectified'"
            )
    if sample is not None and len(sample) > sketch.count:
        warnings.append(
            f"{len(sample)} labelled items for a collection of {sketch.count}: is it the same collection?"
        )
    inside = labelled_inside(sketch)
    if inside and not direct:
        about_how_many = "" if sketch.sample.complete else "about "
        warnings.append(
            f"{about_how_many}{inside:,} of the {len(control):,} labelled examples are also in the collection. The fit "
            "knows their groups, so the interval is too narrow; remove them from the collection"
        )
        if trust == "good" and inside >= MANY_INSIDE * sketch.count:
            trust = "caution"
    shown = not sketch.individual and (show_untrusted or is_set(sketch, copies))
    score = score_sketch(sketch, facts.reference).score if shown else math.nan
    if trust == "poor" and not show_untrusted:
        # Numbers that nobody can trust are not only useless: repeated audits could reveal a person's group.
        estimate, score = cannot_tell(k, confidence), math.nan
        # So are warnings that compare numbers, and what others say about an estimate.
        kept = (text for text in warnings if text not in skipped_warning)
        warnings = [
            DISAGREE if text.startswith("the disparity is ") else text.replace(HOLDS, "") for text in kept
        ]
        reach = 2.0 * sum(sketch.skipped.values())  # the shift that was computed tells the disparity
        diagnostics = replace(diagnostics, skipped_shift=reach / (sketch.count + reach / 2))
    return Audit(
        name=str(name),
        control=control,
        estimator=estimator,
        confidence=confidence,
        seed=sketch.seed,
        count=sketch.count,
        skipped={kind: n for kind, n in sketch.skipped.items() if n or kind != "empty"},
        shares=dict(zip(control.groups, estimate.shares.tolist(), strict=True)),
        share_intervals=dict(zip(control.groups, estimate.share_intervals, strict=True)),
        disparity=estimate.disparity,
        interval=estimate.interval,
        divscore=score,
        trust=trust,
        diagnostics=diagnostics,
        warnings=tuple(warnings),
        target=target,
        from_target=target.distance(estimate, confidence)
        if target is not None and math.isfinite(estimate.disparity)
        else None,
        copies=copies,
        labelled_inside=inside,
        hardest_pair=hardest_pair(sketch),
        marginals=marginals(control, estimate, confidence),
        refits=estimate.refits,
    )
