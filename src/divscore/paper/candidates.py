"""Candidates: the estimators and control sets among which a user chooses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Literal

from divscore.control.controlset import ControlSet
from divscore.control.selection import select_adaptive, select_dpp, select_random
from divscore.errors import ControlError, MissingExtraError
from divscore.estimators.interval import disparity
from divscore.paper.draws import Labelled
from divscore.paper.methods import (
    Choose,
    Method,
    Run,
    Told,
    divscore_with,
    likelihood_with,
    self_training_with,
)

__all__ = ["QUAPY", "Candidate", "candidates"]

QUAPY = ("EMQ", "PACC", "KDEyML")
STRENGTHS = (0.1, 1.0, 10.0, 100.0, 1000.0)  # values of C
FOLDS = 5
ALPHAS: tuple[float | Literal["auto"], ...] = (0.1, 1.0, "auto")


@dataclass(frozen=True)
class Candidate(Method):
    """A method, and how many examples of all groups together stand for them; None where it has none to choose."""

    representatives: int | None = None


def candidates(counts: Sequence[int], size: int, *, quapy: bool = False) -> tuple[Candidate, ...]:
    """Methods that can be used with so many labels of each group.

    Control sets that are chosen among them are of one size: `size`, but at most half of the labels, so that there is
    a choice, and no more of a group than the rarest has.
    """
    labels, groups, balanced = sum(counts), len(counts), len(counts) * min(counts)
    chosen = min(max(2 * groups, min(size, labels // 2)), balanced)
    sets: list[tuple[str, str, Choose, int]] = [
        ("random-balanced", "random", lambda labelled: labelled.balanced(chosen), chosen),
        ("proportional", "proportional", _proportional(chosen), chosen),
        *(
            (_key(alpha), f"adaptive α = {_shown(alpha)}", _adaptive(chosen, alpha), chosen)
            for alpha in ALPHAS
        ),
        ("dpp", "dpp", lambda labelled: select_dpp(labelled.pool, chosen), chosen),
        ("all-balanced", "random, all labels", _balanced, balanced),
    ]
    found = [Candidate("likelihood", "likelihood", likelihood_with(_pool), labels)]
    for key, title, choose, number in sets:
        run = divscore_with(choose) if key != "proportional" else _where_possible(divscore_with(choose))
        found.append(Candidate(key, f"divscore, {title}", run, labels, paper=True, representatives=number))
    if groups == 2:
        run = self_training_with(_balanced, 5)
        found.append(Candidate("ss-st", "self-training", run, labels, paper=True, representatives=balanced))
    if quapy:
        _imported()
        found += [Candidate(name, f"QuaPy {name}", _quapy(name), labels) for name in QUAPY]
    return tuple(found)


def _pool(labelled: Labelled) -> ControlSet:
    return labelled.pool


def _balanced(labelled: Labelled) -> ControlSet:
    return labelled.balanced(labelled.largest)


def _key(alpha: float | Literal["auto"]) -> str:
    return "adaptive" if alpha == 1.0 else f"adaptive-{_shown(alpha)}"


def _shown(alpha: float | Literal["auto"]) -> str:
    return alpha if isinstance(alpha, str) else f"{alpha:g}"


def _adaptive(size: int, alpha: float | Literal["auto"]) -> Choose:
    return lambda labelled: select_adaptive(labelled.pool, size, alpha=alpha, seed=labelled.seed)


def _proportional(size: int) -> Choose:
    return lambda labelled: select_random(labelled.pool, size, balanced=False, seed=labelled.seed)


def _where_possible(prepare: Callable[[Labelled], Run]) -> Callable[[Labelled], Run]:
    """Not defined where there is no such control set: proportional draws may never hold two of a rare group."""

    def tried(labelled: Labelled) -> Run:
        try:
            return prepare(labelled)
        except ControlError:
            return lambda collection: Told(math.nan)

    return tried


def _quapy(name: str) -> Callable[[Labelled], Run]:
    """One of QuaPy's quantifiers with logistic regression, on all labels."""

    def prepare(labelled: Labelled) -> Run:
        from divscore.paper.quapy import fit_quantifier

        shares = fit_quantifier(_quantifier(name, labelled), labelled.pool, seed=labelled.seed)
        return lambda collection: Told(float(disparity(shares(collection.vectors))))

    return prepare


def _imported() -> None:
    """Import what QuaPy's methods need: told before anything is computed, and not part of the time they take."""
    try:
        import_module("quapy.method.aggregative")
        import_module("sklearn.model_selection")
    except ImportError as error:
        raise MissingExtraError(
            f"QuaPy cannot be imported ({error}); install it with: pip install 'divscore[quapy]'"
        ) from error


def _quantifier(name: str, labelled: Labelled) -> object:
    """A quantifier with logistic regression.

    EMQ and PACC need calibrated posteriors, which the default C does not give on unit vectors: theirs is chosen by
    cross-validated log loss on the same labels. KDEyML does better with the default.
    """
    from quapy.method import aggregative
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    strength = 1.0
    if name != "KDEyML":
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=labelled.seed)
        search = GridSearchCV(
            LogisticRegression(max_iter=1000), {"C": STRENGTHS}, scoring="neg_log_loss", cv=folds
        )
        strength = search.fit(labelled.pool.units, labelled.pool.labels).best_params_["C"]
    return getattr(aggregative, name)(LogisticRegression(C=strength, max_iter=1000))
