"""audit(): a collection and a control set in, a disparity with its uncertainty out; draw_sample(): items to label."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from divscore.audit.audits import Audits
from divscore.audit.result import Audit, LabelFacts, marginals, sum_name
from divscore.audit.target import Target
from divscore.audit.trust import (
    ALLOWED,
    DISAGREE,
    FEW_LABELLED,
    Copies,
    Diagnostics,
    about_items,
    about_labels,
    about_sample,
    about_skipped,
    control_facts,
    diagnose,
    disagreement,
    hardest_pair,
    has_changed,
    is_set,
    labelled_inside,
    trust_of,
    warnings_for,
)
from divscore.blas import one_thread
from divscore.control.controlset import ControlSet
from divscore.control.labelledsample import LabelledSample, labelled_control
from divscore.control.similarity import as_matrix, is_sparse, usable_rows
from divscore.errors import InputError, MismatchError, in_python, warn_in_python
from divscore.estimators.divscore import divscore, score_sketch
from divscore.estimators.iid import iid
from divscore.estimators.interval import Estimate, Interval, bounds
from divscore.estimators.labelled import from_labels
from divscore.estimators.likelihood import cannot_tell, likelihood
from divscore.estimators.self_training import self_training
from divscore.estimators.shift import find_difference
from divscore.sketch.sketch import Sketch
from divscore.text import joined, printable

if TYPE_CHECKING:
    from divscore.jobs.drawfile import Draw

MANY_INSIDE = 0.1  # of the items are labelled examples: their scores are not those of new items
ESTIMATORS = ("likelihood", "divscore", "rectified", "crossfit", "iid", "self-training")
LABELLED = ("rectified", "crossfit", "iid")  # those that use labels of the collection itself


@overload
def audit(
    collection: Any,
    control: Any = ...,
    *,
    by: None = None,
    estimator: str | None = ...,
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
    control: Any = ...,
    *,
    by: str,
    estimator: str | None = ...,
    sample: Any = ...,
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
    control: Any = None,
    *,
    by: str | None = None,
    estimator: str | None = None,
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
    control : ControlSet, path or table, optional
        Labelled examples, or whatever `ControlSet.read` takes. None if `sample` is all there is.
    by : str, optional
        Audit every value of this column as its own collection, in one pass; "folder" for images.
    estimator : str, optional
        "likelihood" by default; with a `sample`, "rectified" if there is a control set and "crossfit" if there is none.
        Or "iid" (the sample alone), "divscore" (Algorithm 1), "self-training" (Algorithm 3).
    confidence : float
        Level of the interval.
    sample : Draw, LabelledSample, (vectors, groups) or path, optional
        Items drawn at random from the collection, see `draw_sample`, and labelled by a person.
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
    paths = source or by is not None or not (sample is None or isinstance(sample, (LabelledSample, tuple)))
    if (control is None or isinstance(control, ControlSet)) and not paths and not options:
        with in_python():
            return audit_vectors(collection, control, name=name or "collection", **method)
    from divscore.jobs.auditing import audit_source

    with in_python():
        audits = audit_source(collection, control, by=by, name=name, warn=warn_in_python, **method, **options)
    return audits if by is not None or several or len(audits) > 1 else audits[0]


def draw_sample(
    collection: Any,
    size: int,
    control: Any = None,
    *,
    by: str | None = None,
    seed: int = 0,
    add_to: str | PathLike[str] | Draw | None = None,
    workers: int = 1,
    **options: Any,
) -> Draw:
    """Draw items of a collection for a person to label.

    Without a control set the sample is random, and nothing is encoded. With one, all items are sorted by their score,
    and two random items are drawn from each of size / 2 parts of equal size, so that the labels cover all scores.
    Either way every item has the same chance. The result depends on the collection and the seed alone.

    Parameters
    ----------
    collection : path, table, or array
        What `audit` takes; not a sketch, which has no items.
    size : int
        Number of items to draw; even with a control set.
    control : ControlSet, path or table, optional
        Labelled examples, or whatever `ControlSet.read` takes.
    by : str, optional
        Draw so many items for every value of this column; "folder" for images.
    add_to : Draw or path, optional
        An earlier draw: other items are drawn in the same way, and returned with the earlier ones and their labels.
    workers : int
        Number of parallel workers; the result does not depend on it.
    **options :
        As for `audit`: `attribute`, `groups`, `rename`, `column`, `form`, `encoder`, `model`, `options`, `pca`,
        `cache`, `strict`, `verbose`. Without a control set, `attribute` and `groups` are noted for those who label.

    >>> import numpy as np
    >>> from divscore import audit
    >>> rows = np.random.default_rng(0).normal(size=(500, 8))
    >>> drawn = draw_sample(rows, 60)
    >>> groups = ["first" if rows[row, 0] > 0 else "second" for row in drawn.rows]
    >>> audit(rows, sample=drawn.labelled(groups)).estimator
    'crossfit'
    """
    from divscore.jobs.sampling import sample_source

    with in_python():
        return sample_source(
            collection,
            size,
            control,
            by=by,
            seed=seed,
            add_to=add_to,
            workers=workers,
            warn=warn_in_python,
            **options,
        )


@one_thread
def audit_vectors(
    collection: Any,
    control: ControlSet | None,
    *,
    estimator: str | None = None,
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
    """Audit vectors or a sketch in memory; the parameters are those of `audit`.

    With labels of the collection, a sketch may be made with any fit on examples of the same groups.
    """
    if isinstance(sample, tuple):
        sample = LabelledSample.of(*sample, control=control)
    estimator = estimator or chosen_estimator(control, sample)
    check_method(estimator, control, sample, confidence)
    direct = estimator in LABELLED
    fitted = control
    if sample is not None and direct and not isinstance(collection, Sketch):
        fitted = labelled_control([sample], None if estimator == "crossfit" else control)
    if estimator == "self-training" and not isinstance(collection, Sketch):
        # The only one that needs all at once.
        blocks = [as_matrix(block, "the collection's vectors") for block in _blocks(collection)]
        if not blocks:
            raise InputError("the collection is empty: there are no vectors")
        collection = np.concatenate(blocks)
    sketch = _sketched(collection, fitted, estimator, seed, workers, direct=direct)
    if not sketch.count:
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in sketch.skipped.items() if n)
        raise InputError(
            f"{name}: no item has a usable vector; {f'skipped: {kinds}' if kinds else 'the collection is empty'}"
        )
    control = control or sketch.control
    k = len(control.groups)
    if target is not None and not isinstance(target, Target):
        if not isinstance(target, Mapping):
            raise InputError('target takes shares by group, such as {"female": 0.27}')
        target = Target.of(target, control.groups, target_source)
    copies, hardest = Copies.of(sketch), ("", "")
    labels: LabelFacts | None = None
    if sample is not None and direct:
        if estimator == "iid":
            estimate = iid(sample, confidence=confidence)
            labels = LabelFacts.of(sample, estimate.interval)
        else:
            labelled = from_labels(sketch, sample, confidence=confidence)
            estimate, labels = labelled.estimate, LabelFacts.of(sample, labelled.if_random)
        diagnostics = Diagnostics.without_control(sketch, estimate.disparity)
        skipped_warning = about_skipped(sketch, diagnostics, estimate.interval.width / 2)
        # The labelled items alone say nothing about others; a correction of all items does.
        about = [] if estimator == "iid" else about_items(sketch, copies)
        about += about_labels(sample, estimate)
        trust = "poor" if about else "caution" if skipped_warning or has_changed(sample, sketch) else "good"
        warnings = [*about, *about_sample(sample, sketch, copies), *skipped_warning]
    else:
        difference = find_difference(sketch)
        honest = cannot_tell(k, confidence)
        if not sketch.individual:
            honest = likelihood(sketch, confidence=confidence, population=population, difference=difference)
        simple = sketch.individual or estimator == "likelihood"
        estimate = honest if simple else _by_the_paper(collection, sketch, estimator, confidence)
        facts, hardest = control_facts(control), hardest_pair(sketch)
        diagnostics = diagnose(sketch, estimate.disparity, difference)
        skipped_warning = about_skipped(sketch, diagnostics, estimate.interval.width / 2)
        noisy = facts.reference.noisy if estimator == "divscore" else ()
        # The paper's algorithms have no sums of groups that cannot be distinguished.
        known = bool(estimate.clusters) or (math.isfinite(estimate.disparity) and not honest.clusters)
        known = known and not any(noisy)
        trust = trust_of(sketch, diagnostics, copies, honest) if known else "poor"
        if trust == "good" and skipped_warning:
            trust = "caution"
        warnings = warnings_for(
            sketch, diagnostics, copies, honest, skipped_warning, allowed=estimator == "likelihood"
        )
        if any(noisy):
            names = [printable(name) for name, bad in zip(control.groups, noisy, strict=True) if bad]
            warnings.append(
                f"the representatives of {joined(names)} are hardly more similar to their own group than to others: "
                "the DivScore is mostly noise"
            )
    if sample is not None and estimator in ("likelihood", "rectified") and len(sample) >= FEW_LABELLED:
        corrected = estimate if direct else from_labels(sketch, sample, confidence=confidence).estimate
        warnings += disagreement(sketch, control, corrected, confidence)
    inside = 0 if direct else labelled_inside(sketch)
    if inside:
        about_how_many = "" if sketch.sample.complete else "about "
        warnings.append(
            f"{about_how_many}{inside:,} of the {len(control):,} labelled examples are also in the collection. The fit "
            "knows their groups, so the interval is too narrow; remove them from the collection"
        )
        if trust == "good" and inside >= MANY_INSIDE * sketch.count:
            trust = "caution"
    score = math.nan
    shown = not sketch.individual and (show_untrusted or is_set(sketch, copies))
    if shown and not sketch.control.incomplete:
        score = score_sketch(sketch, control_facts(control).reference).score
    if trust == "poor" and not show_untrusted:
        # Numbers that nobody can trust are not only useless: repeated audits could reveal a person's group.
        estimate, score = cannot_tell(k, confidence), math.nan
        # So are warnings that compare numbers, and what others say about an estimate.
        kept = (text for text in warnings if text not in skipped_warning)
        warnings = [
            DISAGREE if text.startswith("the disparity is ") else text.replace(ALLOWED, "") for text in kept
        ]
        reach = 2.0 * sum(sketch.skipped.values())  # the shift that was computed tells the disparity
        diagnostics = replace(diagnostics, skipped_shift=reach / (sketch.count + reach / 2))
    merged = [[control.groups[at] for at in each] for each in estimate.clusters]
    names = [sum_name(each, control.groups) for each in merged] or list(control.groups)
    return Audit(
        name=str(name),
        control=control,
        estimator=estimator,
        confidence=confidence,
        seed=sketch.seed,
        count=sketch.count,
        skipped={kind: n for kind, n in sketch.skipped.items() if n or kind != "empty"},
        shares=dict(zip(names, estimate.shares.tolist(), strict=True)),
        share_intervals=dict(zip(names, estimate.share_intervals, strict=True)),
        disparity=estimate.disparity,
        interval=estimate.interval,
        if_similar=estimate.if_similar,
        divscore=score,
        trust=trust,
        diagnostics=diagnostics,
        warnings=tuple(warnings),
        target=target,
        from_target=target.distance(estimate, confidence)
        if target is not None and (estimate.clusters or math.isfinite(estimate.disparity))
        else None,
        copies=copies,
        labelled_inside=inside,
        hardest_pair=hardest,
        marginals=marginals(control, estimate, confidence),
        merged=tuple(tuple(each) for each in merged if len(each) > 1),
        labels=labels,
        refits=estimate.refits,
    )


def chosen_estimator(control: ControlSet | None, sample: object) -> str:
    """The estimator that suits what there is."""
    if sample is None:
        return "likelihood"
    return "crossfit" if control is None else "rectified"


def check_method(estimator: str, control: ControlSet | None, sample: object, confidence: float) -> None:
    """Refuse an estimator that does not exist, or that lacks what it needs."""
    if estimator not in ESTIMATORS:
        raise InputError(f"unknown estimator '{estimator}'; choose one of {', '.join(ESTIMATORS)}")
    if not 0.5 <= confidence < 1:
        raise InputError(f"confidence {confidence} must be at least 0.5 and below 1, for example 0.95")
    if estimator in LABELLED and sample is None:
        raise InputError(
            f"estimator '{estimator}' needs a labelled random sample of the collection: --labelled-sample"
        )
    if control is None and (sample is None or estimator not in ("crossfit", "iid")):
        raise InputError(
            f"estimator '{estimator}' needs labelled examples: --control. Without any, label a few items of the "
            "collection itself: 'divscore sample', then --labelled-sample"
        )


def _sketched(
    collection: Any, control: ControlSet | None, estimator: str, seed: int, workers: int, *, direct: bool
) -> Sketch:
    """The sketch of a collection: the one that was given, or one of its vectors."""
    if isinstance(collection, Sketch):
        if estimator == "self-training":
            raise InputError("'self-training' needs every item; it cannot use a sketch: give vectors")
        made_with = collection.control
        same = control is None or made_with.digest == control.digest
        if not same and not (direct and control and set(made_with.groups) == set(control.groups)):
            raise MismatchError(
                "the sketch was made with another control set; audit it with that one, or sketch the collection again"
            )
        return collection
    assert control is not None
    sketch = Sketch(control, seed=seed)
    for block in _blocks(collection):
        sketch.add(block, workers=workers)
    return sketch


def _blocks(collection: Any) -> Iterable[Any]:
    """One matrix of vectors, or an iterable of matrices; a list can be either."""
    if isinstance(collection, (list, tuple)):
        several = bool(collection) and getattr(collection[0], "ndim", 1) == 2
    else:
        whole = is_sparse(collection) or hasattr(collection, "__array__")
        several = hasattr(collection, "__iter__") and not whole
    return collection if several else [collection]


def _by_the_paper(collection: Any, sketch: Sketch, estimator: str, confidence: float) -> Estimate:
    """Estimate shares by one of the paper's algorithms."""
    control = sketch.control
    if estimator == "divscore":
        facts = control_facts(control)
        return divscore(sketch, facts.reference, facts.separability)
    trained = self_training(collection[usable_rows(collection)], control)
    none = Interval(*bounds(2), confidence, "none: Algorithm 3 gives no interval")
    return Estimate.of_two(trained.disparity, none)
