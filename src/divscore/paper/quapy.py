"""QuaPy: divscore as one of its quantifiers, and its quantifiers on a control set.

``from divscore.paper.quapy import LikelihoodQuantifier`` gives a subclass of QuaPy's BaseQuantifier. It is created at
this import, because QuaPy takes seconds to load and is an extra, ``quapy``.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.audit.audit import audit
from divscore.audit.result import Audit
from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray, as_matrix, unit_rows, usable_rows
from divscore.control.theory import Reference, item_similarity
from divscore.errors import InputError, MissingExtraError

LikelihoodQuantifier: Any  # created by __getattr__
ESTIMATORS = ("likelihood", "divscore")


class AuditingQuantifier:
    """LikelihoodQuantifier without its base class: prevalences of classes by a divscore audit.

    Parameters
    ----------
    estimator : "likelihood" or "divscore"
        The default estimator, or the paper's Algorithm 1 with all training items as representatives.
    confidence : float
        Level of the intervals.
    seed : int
        Seed of the intervals' bootstrap.
    similarity : "cosine" or callable on two blocks of vectors
        As in `ControlSet`.

    Prevalences are in the order of `classes_`, the sorted labels, as in QuaPy. If the audit cannot tell, because the
    classes do not differ or the sample has fewer than five items, they are uniform and the intervals are [0, 1].
    """

    def __init__(
        self,
        estimator: str = "likelihood",
        confidence: float = 0.95,
        seed: int = 0,
        similarity: Any = "cosine",
    ) -> None:
        self.estimator = estimator
        self.confidence = confidence
        self.seed = seed
        self.similarity = similarity

    def fit(self, X: Any, y: Any) -> AuditingQuantifier:
        """Use labelled items as the control set; labels may be of any type, and X may be sparse."""
        if self.estimator not in ESTIMATORS:
            raise InputError(
                f"unknown estimator '{self.estimator}'; a quantifier can use {' or '.join(ESTIMATORS)}"
            )
        labels = np.asarray(y)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        # Groups of a control set have names, classes are often numbers.
        names = [f"class {label}" for label in self.classes_.tolist()]
        self.control_ = ControlSet(
            _dense(X),
            [names[code] for code in codes.tolist()],
            attribute="class",
            order=names if len(names) > 1 else None,
            similarity=self.similarity,
        )
        return self

    def predict(self, X: Any) -> FloatArray:
        """Prevalence of each class in a sample."""
        result = self.audit(X)
        shares = np.array(list(result.shares.values()))
        if self.estimator == "divscore" and len(shares) > 2 and np.isfinite(result.disparity):
            # The s_i of Algorithm 1 do not sum to one: their positive parts are scaled.
            items = _dense(X)
            means = item_similarity(items[usable_rows(items)], self.control_).mean(axis=0)
            positive = np.maximum(Reference.of(self.control_).score(means).s, 0.0)
            shares = positive / positive.sum() if positive.any() else np.full(len(shares), np.nan)
        return shares if np.isfinite(shares).all() else np.full(len(shares), 1 / len(shares))

    def interval(self, X: Any) -> FloatArray:
        """Lower and upper limit of each prevalence, one row a class."""
        return np.array([(i.low, i.high) for i in self.audit(X).share_intervals.values()])

    def audit(self, X: Any) -> Audit:
        """The whole result for a sample: disparity, interval, trust and warnings; groups are named "class …"."""
        if not hasattr(self, "control_"):
            raise InputError("the quantifier is not fitted; call fit(X, y) first")
        # A quantifier always gives shares, also those that divscore itself would not show.
        return audit(
            _dense(X),
            self.control_,
            estimator=self.estimator,
            confidence=self.confidence,
            seed=self.seed,
            show_untrusted=True,
        )


def fit_quantifier(
    quantifier: Any, control: ControlSet, *, seed: int | None = None
) -> Callable[[Any], FloatArray]:
    """Fit a copy of one of QuaPy's quantifiers on all labelled examples, scaled to length one.

    Returns a function from a collection's vectors to the shares of the control set's groups, in their order. QuaPy
    may draw from numpy's global random state; a `seed` sets that state for the call and restores it afterwards.
    """
    if not isinstance(quantifier, require_quapy()):
        raise InputError(
            f"{type(quantifier).__name__} is not a QuaPy quantifier; give an instance, for example EMQ()"
        )
    folds = getattr(quantifier, "val_split", None)
    fewest = min(control.counts, key=lambda name: control.counts[name])
    if isinstance(folds, int) and control.counts[fewest] < folds:
        raise InputError(
            f"{type(quantifier).__name__} needs {folds} labelled examples of every group for its {folds} folds, but "
            f"'{fewest}' has {control.counts[fewest]}; label more, or use another val_split"
        )
    fitted = copy.deepcopy(quantifier)
    with _quiet(seed):
        fitted.fit(control.units, control.labels)

    def shares(collection: Any) -> FloatArray:
        rows = as_matrix(_dense(collection), "the collection's vectors")
        usable = rows[usable_rows(rows)]
        if not len(usable):
            raise InputError(f"none of the {len(rows)} items of the collection has a usable vector")
        with _quiet(seed):
            return np.asarray(fitted.predict(unit_rows(usable)), dtype=np.float64)

    return shares


def quapy_estimate(quantifier: Any, control: ControlSet, collection: Any) -> FloatArray:
    """Shares of the control set's groups in a collection, by any of QuaPy's quantifiers.

    It gets the same input as divscore's own estimators: all labelled examples, and all vectors scaled to length one;
    zero and non-finite vectors of the collection are skipped. For many collections fit once, with `fit_quantifier`.
    """
    return fit_quantifier(quantifier, control)(collection)


@contextmanager
def _quiet(seed: int | None) -> Iterator[None]:
    """Silence known warnings; with a seed, set numpy's global random state and restore it afterwards."""
    state = np.random.get_state()  # noqa: NPY002 - QuaPy's, not ours
    with warnings.catch_warnings():
        # EMQ says so for most hard samples; its answer is used nevertheless.
        warnings.filterwarnings("ignore", "the method has reached the maximum number of iterations")
        try:
            if seed is not None:
                np.random.seed(seed)  # noqa: NPY002
            yield
        finally:
            if seed is not None:
                np.random.set_state(state)  # noqa: NPY002


def _dense(X: Any) -> NDArray[Any]:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X)


def require_quapy() -> Any:
    """Import all that is used of QuaPy and give its base class; an error names the extra to install."""
    try:
        import quapy.method.aggregative  # noqa: F401
        import sklearn.model_selection  # noqa: F401
        from quapy.method.base import BaseQuantifier
    except ImportError as error:
        raise MissingExtraError.of(f"QuaPy cannot be imported ({error})", "quapy") from error
    return BaseQuantifier


def __getattr__(name: str) -> Any:
    if name != "LikelihoodQuantifier":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    about = {"__doc__": AuditingQuantifier.__doc__, "__module__": __name__}
    # Kept, so that every import gets the same class.
    globals()[name] = type(name, (AuditingQuantifier, require_quapy()), about)
    return globals()[name]
