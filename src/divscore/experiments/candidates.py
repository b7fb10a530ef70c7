"""Candidates: the estimators and control sets among which a user chooses."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Literal

import numpy as np

from divscore.control import ControlSet
from divscore.errors import MissingExtraError
from divscore.experiments.draws import Collection, Labelled
from divscore.experiments.methods import (
    Method,
    Run,
    Told,
    divscore_with,
    likelihood_with,
    self_training_with,
)
from divscore.interval import disparity
from divscore.selection import select_adaptive, select_dpp

__all__ = ["QUAPY", "candidates"]

QUAPY = ("EMQ", "PACC", "KDEyML")
STRENGTHS = (0.1, 1.0, 10.0, 100.0, 1000.0)  # values of C
FOLDS = 5


def candidates(labels: int, groups: int, size: int, *, quapy: bool = False) -> tuple[Method, ...]:
    """Methods that can be used with so many labels; control sets are chosen among them, at most half of them."""
    chosen = max(2 * groups, min(size, labels // 2))
    found = [
        Method("likelihood", "likelihood", likelihood_with(_pool), labels),
        Method("random-balanced", "divscore, random", divscore_with(_balanced), labels, paper=True),
    ]
    alphas: tuple[float | Literal["auto"], ...] = (0.1, 1.0, "auto")
    for alpha in alphas:
        name = alpha if isinstance(alpha, str) else f"{alpha:g}"
        key = "adaptive" if alpha == 1.0 else f"adaptive-{name}"
        title = f"divscore, adaptive α = {name}"
        found.append(Method(key, title, divscore_with(_adaptive(chosen, alpha)), labels, paper=True))
    found.append(Method("dpp", "divscore, dpp", divscore_with(_dpp(chosen)), labels, paper=True))
    if groups == 2:
        found.append(Method("ss-st", "self-training", self_training_with(_balanced, 5), labels, paper=True))
    if quapy:
        found += [Method(name, f"QuaPy {name}", _quapy(name), labels) for name in QUAPY]
    return tuple(found)


def _pool(labelled: Labelled) -> ControlSet:
    return labelled.pool


def _balanced(labelled: Labelled) -> ControlSet:
    return labelled.balanced(labelled.largest)


def _adaptive(size: int, alpha: float | Literal["auto"]) -> Callable[[Labelled], ControlSet]:
    return lambda labelled: select_adaptive(
        labelled.pool, min(size, labelled.largest), alpha=alpha, seed=labelled.seed
    )


def _dpp(size: int) -> Callable[[Labelled], ControlSet]:
    return lambda labelled: select_dpp(labelled.pool, min(size, labelled.largest))


def _quapy(name: str) -> Callable[[Labelled], Run]:
    """One of QuaPy's quantifiers with logistic regression, on all labels."""

    def prepare(labelled: Labelled) -> Run:
        from divscore.adapters.quapy import fit_quantifier

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.random.seed(labelled.seed)  # noqa: NPY002 - QuaPy draws its folds from the global state
            shares = fit_quantifier(_quantifier(name, labelled), labelled.pool)

        def run(collection: Collection) -> Told:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return Told(float(disparity(shares(collection.vectors))))

        return run

    return prepare


def _quantifier(name: str, labelled: Labelled) -> object:
    """A quantifier with logistic regression.

    EMQ and PACC need calibrated posteriors, which the default C does not give on unit vectors: theirs is chosen by
    cross-validated log loss on the same labels. KDEyML does better with the default.
    """
    try:
        import quapy
        from quapy.method import aggregative
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import GridSearchCV, StratifiedKFold
    except ImportError as error:
        raise MissingExtraError(
            f"QuaPy cannot be imported ({error}); install it with: pip install 'divscore[quapy]'"
        ) from error
    quapy.environ["N_JOBS"] = 1
    strength = 1.0
    if name != "KDEyML":
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=labelled.seed)
        search = GridSearchCV(
            LogisticRegression(max_iter=1000), {"C": STRENGTHS}, scoring="neg_log_loss", cv=folds
        )
        strength = search.fit(labelled.pool.units, labelled.pool.labels).best_params_["C"]
    return getattr(aggregative, name)(LogisticRegression(C=strength, max_iter=1000))
