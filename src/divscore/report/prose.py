"""What a report says about its method, whatever the numbers are."""

from __future__ import annotations

import math

from divscore.audit.result import Audit
from divscore.report.phrases import short

__all__ = ["assumptions", "method", "noise_note"]

METHODS = {
    "likelihood": (
        "Every item is compared with the labelled examples and gets a score; the reported shares are those under which "
        "the scores of the whole collection are most likely. The interval repeats this 200 times with the labelled "
        "examples weighted anew, so that it carries the error of the control set too."
    ),
    "divscore": (
        "The DivScore (Keswani & Celis, KDD 2021, Algorithm 1) compares the mean similarity of the collection to the "
        "representatives of each group. Its interval is the paper's Theorem 3.3, a worst case at a level of about 90%."
    ),
    "self-training": (
        "Self-training (Keswani & Celis, KDD 2021, Algorithm 3) lets items that are most alike to one group join it, "
        "step by step. It gives no interval."
    ),
    "iid": (
        "The shares are those of items that were drawn at random from the collection and labelled by a person, with "
        "the exact binomial interval."
    ),
    "rectified": (
        "The shares of all items are estimated from the control set and then corrected by items that were drawn at "
        "random from the collection and labelled by a person. No assumption on the control set is needed."
    ),
}

SCORE = (
    "The DivScore{} is the paper's own score (Keswani & Celis, KDD 2021, Algorithm 1) from the "
    "representatives alone. It is shown for comparison; it is rougher and may lie beyond −1 or +1."
)

DISPARITY = {
    True: "The disparity is share({0}) minus share({1}): 0 is balanced, +1 means only {0}, −1 only {1}.",
    False: "The disparity is the largest share minus the smallest: 0 means that all groups are alike, 1 that only one "
    "is there.",
}

SCORES = (
    "What is reported is the largest of the groups' scores minus the smallest: 0 means that all groups are alike. The "
    "scores do not add up to one, so they are no shares."
)

LIKE = (
    (
        "The labelled examples stand for the collection",
        "Inside each group the collection is assumed to look like the labelled examples. This is tested above, and the "
        "test can miss. A difference that is the same in all groups does little harm; one that touches a single group "
        "misleads any method of this kind.",
    ),
    (
        "Items come one by one",
        "A collection from one source, place or time, with series of near-copies, or a single country, is not a "
        "random mixture. Its interval may then be too narrow.",
    ),
)

ALWAYS = (
    (
        "Groups were defined beforehand",
        "Somebody chose the groups and labelled the examples. People who belong to none of them, or to several, are "
        "invisible here, and a label says what the labeller perceived unless people spoke for themselves.",
    ),
    (
        "Representatives can carry stereotypes",
        "Examples that were chosen automatically for being typical favour what is typical. Look at them, change them "
        "by hand, and publish them, so that the people concerned can object.",
    ),
    (
        "Hand-curation has a price",
        "Examples picked by hand are no random sample. If the whole pool was picked by hand, expect a bias in the "
        "numbers; pick representatives by hand, but draw the labelled pool at random.",
    ),
    (
        "A result is about a set, never about a person",
        "Nothing here says to which group any single unlabelled item belongs, and it cannot be used to find out.",
    ),
    (
        "Balanced is a yardstick, not a goal",
        "Equal shares are the zero of the scale. What would be fair depends on what the collection is for.",
    ),
)


def method(audit: Audit, hollow: bool) -> tuple[str, ...]:
    """How the numbers were made; `hollow` where the DivScore is drawn beside them."""
    two = len(audit.shares) == 2
    disparity = DISPARITY[two].format(*(short(name) for name in audit.control.groups))
    if audit.estimator == "divscore":
        return METHODS[audit.estimator], disparity if two else SCORES
    return METHODS[audit.estimator], disparity, SCORE.format(", the hollow mark," if hollow else "")


def noise_note(audit: Audit) -> str:
    """Why the DivScore stands in brackets; empty where it does not, or where a warning says it."""
    if not audit.noisy_groups or audit.estimator == "divscore" or not math.isfinite(audit.divscore):
        return ""
    names = " and ".join(short(name) for name in audit.noisy_groups)
    return (
        f"The DivScore, in brackets, is mostly noise here: the representatives of {names} are hardly more alike than "
        "they are like the others. The estimate does not rest on it."
    )


def assumptions(audit: Audit) -> tuple[tuple[str, str], ...]:
    """What the numbers rest on, and what they cannot say."""
    return ALWAYS if audit.estimator in ("iid", "rectified") else (*LIKE, *ALWAYS)
