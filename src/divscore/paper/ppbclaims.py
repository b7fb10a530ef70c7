"""What the paper says of PPB-2017, beside what is measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from divscore.paper.claims import CLOSE, smaller_sets
from divscore.paper.results import Claim
from divscore.paper.sections import Found
from divscore.paper.settings import Settings
from divscore.paper.summary import Point
from divscore.paper.tables import Cell, Table

__all__ = ["ppb_claims"]

SAME = 0.005  # of a γ that is printed with two digits
MUCH = 2.0  # times as much, where the paper says "quite high"


def ppb_claims(
    found: Found, gamma: Table, theorem: Table, sizes: Sequence[Point], settings: Settings
) -> list[Claim]:
    """Check the paper's sentences, one after the other."""
    return [
        *_random_sets(found),
        *_baselines(found),
        *_adaptive_sets(found),
        *_gammas(gamma),
        *_theorem(found, theorem, settings),
        *(
            smaller_sets(sizes, attribute, f"disparity 0, {attribute}")
            for attribute in ("gender", "skin tone")
        ),
    ]


def _random_sets(found: Found) -> list[Claim]:
    gender, skin = found["gender", "random-balanced"], found["skin tone", "random-balanced"]
    return [
        Claim(
            "Gender: random control sets are always close to the true disparity",
            "4.1",
            f"the mean of DivScore-Random-Balanced is off by {gender.worst_bias:.3f} at most, a single audit by "
            f"{gender.mae:.3f} on average",
            gender.worst_bias <= CLOSE,
        ),
        Claim(
            "Skin tone: the average is close to the true disparity",
            "4.1",
            f"the mean of DivScore-Random-Balanced is off by {skin.worst_bias:.3f} at most",
            skin.worst_bias <= CLOSE,
        ),
        Claim(
            "Skin tone: but the errors are quite high",
            "4.1",
            f"spread {skin.spread or 0:.3f} against {gender.spread or 0:.3f} on gender ({MUCH:g} times as much counts "
            "as quite high)",
            _much_more(skin.spread, gender.spread),
        ),
    ]


def _baselines(found: Found) -> list[Claim]:
    def errors(attribute: str, *methods: str) -> list[float]:
        return [found[attribute, method].mae for method in methods]

    iid, random = errors("skin tone", "iid", "random-balanced")
    claims = [
        Claim(
            "Skin tone: IID-Measure has a lower error than DivScore with random control sets",
            "4.1",
            f"{iid:.3f} against {random:.3f}",
            iid < random,
        ),
    ]
    for attribute in ("gender", "skin tone"):
        claims.append(_bias(found, attribute))
        training, random = errors(attribute, "ss-st", "random-balanced")
        spread = [found[attribute, m].spread or 0.0 for m in ("ss-st", "random-balanced")]
        claims.append(
            Claim(
                f"SS-ST has a lower approximation error than DivScore-Random-Balanced ({attribute})",
                "4.1, 4.2",
                f"mean absolute error {training:.3f} against {random:.3f}; only its spread is smaller "
                f"({spread[0]:.3f} against {spread[1]:.3f})"
                if training >= random
                else f"mean absolute error {training:.3f} against {random:.3f}",
                training < random,
            )
        )
    return claims


def _bias(found: Found, attribute: str) -> Claim:
    own, *others = (found.get((attribute, m)) for m in ("ss-st", "random-balanced", "random-proportional"))
    assert own is not None
    told = [other.worst_bias for other in others if other is not None]
    return Claim(
        f"SS-ST has a larger bias than DivScore with random control sets ({attribute})",
        "4.2",
        f"largest bias {own.worst_bias:.3f} against {' and '.join(f'{bias:.3f}' for bias in told)} (balanced and "
        "proportional)",
        own.worst_bias > max(told),
    )


def _adaptive_sets(found: Found) -> list[Claim]:
    claims = []
    for attribute in ("gender", "skin tone"):
        adaptive, random = found[attribute, "adaptive"], found[attribute, "random-balanced"]
        claims += [
            Claim(
                f"Adaptive control sets have a smaller spread than random ones ({attribute})",
                "6.1",
                f"{adaptive.spread or 0:.3f} against {random.spread or 0:.3f}",
                (adaptive.spread or 0) < (random.spread or 0),
            ),
            Claim(
                f"Adaptive control sets give sharper scores ({attribute})",
                "6.1",
                f"mean absolute error {adaptive.mae:.3f} against {random.mae:.3f} of a random balanced set of the same "
                f"size, and {found[attribute, 'all-balanced'].mae:.3f} of all labels, balanced",
                adaptive.mae < random.mae,
            ),
        ]
    worst = [found[a, "adaptive"].worst_bias for a in ("gender", "skin tone")]
    claims.append(
        Claim(
            "The average of DivScore-Adaptive does not align with the true disparity",
            "6.1",
            f"off by up to {worst[0]:.3f} (gender) and {worst[1]:.3f} (skin tone)",
            max(worst) > CLOSE,
        )
    )
    return claims


def _gammas(gamma: Table) -> list[Claim]:
    measured = {(row[0], row[1]): _number(row[2]) for row in gamma.rows}
    claims = []
    for attribute, plain, chosen in (("gender", 0.35, 0.96), ("skin tone", 0.08, 0.34)):
        kept = measured[attribute, "γ, all items, pairs with itself kept"]
        without = measured[attribute, "γ, all items"]
        claims.append(
            Claim(
                f"γ is {plain} ({attribute})",
                "4.2",
                f"{kept:.4f} with the pairs of an item with itself, as the authors have it, {without:.4f} without",
                abs(kept - plain) <= SAME,
            )
        )
        held, own = (measured[attribute, f"γ^(T), adaptive, {what}"] for what in ("held out", "own"))
        claims.append(
            Claim(
                f"γ^(T) of adaptive control sets is {chosen} ({attribute})",
                "6.1",
                f"{held:.2f} on the other partition, {own:.2f} on the control set itself",
                min(abs(held - chosen), abs(own - chosen)) <= 10 * SAME,
            )
        )
    return claims


def _theorem(found: Found, theorem: Table, settings: Settings) -> list[Claim]:
    rows = {(row[0], row[1]): row for row in theorem.rows}
    bound = _number(rows["gender", "random control set"][5])
    notebook = rows["skin tone", "as the authors' notebooks have it"]
    largest = found["gender", "random-balanced"].largest
    return [
        Claim(
            "Gender: the theorem suggests an error of at most 5",
            "7",
            f"{bound:.1f} with |T| = {settings.size}, |S| = {settings.collection}; a bound of 5 takes |T| = "
            f"{settings.size * (bound / 5) ** 2:.0f}",
            abs(bound - 5) <= 0.5,
        ),
        Claim(
            "Gender: the error seen is at most 0.5",
            "7",
            f"largest of {found['gender', 'random-balanced'].answers} audits: {largest:.3f}",
            largest <= 0.5,
        ),
        Claim(
            "Skin tone, |T| = 100, |S| = 500: δ = 2.562, error 61.1 (authors' notebooks)",
            "notebooks",
            f"δ = {_number(notebook[4]):.3f}, error {_number(notebook[5]):.1f}",
            abs(_number(notebook[5]) - 61.1) <= 0.5,
        ),
    ]


def _much_more(one: float | None, other: float | None) -> bool:
    return (one or 0.0) >= MUCH * (other or 0.0)


def _number(value: Cell) -> float:
    """A cell as a number; what is not finite has none."""
    return math.inf if value is None else float(value)
