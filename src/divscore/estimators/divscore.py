"""`divscore`: Algorithm 1 with the only interval that the paper gives, Theorem 3.3."""

from __future__ import annotations

import math

import numpy as np

from divscore.blas import one_thread
from divscore.control.theory import DivScore, Reference, Separability, mean_similarity, theorem
from divscore.estimators.interval import Estimate, Interval, bounds
from divscore.sketch.sketch import Sketch


@one_thread
def score_sketch(sketch: Sketch, reference: Reference) -> DivScore:
    """The score of Algorithm 1, from the mean that a sketch keeps."""
    state = sketch.mean if sketch.control.similarity.collapses else sketch.similarity_total / sketch.count
    return reference.score(mean_similarity(state, sketch.control))


def divscore(sketch: Sketch, reference: Reference, pool: Separability) -> Estimate:
    """Estimate the disparity by Algorithm 1; the interval is the theorem's worst case, at its own level of 0.9."""
    score = score_sketch(sketch, reference)
    size = int(sketch.control.representative.sum())
    bound = theorem(size, sketch.count, pool.mu_same, pool.mu_diff)
    k = len(score.s)
    low, high = bounds(k)
    value, error = score.score, bound.additive_error
    if math.isfinite(value) and math.isfinite(error):
        low, high = min(max(value - error, low), high), max(min(value + error, high), low)
    interval = Interval(low, high, bound.probability, "Theorem 3.3, worst case")
    if k == 2:
        return Estimate.of_two(value, interval)
    # The s_i of more than two groups do not sum to one, so they are not shares.
    each = (Interval(0.0, 1.0, interval.level, interval.method),) * k
    return Estimate(np.full(k, np.nan), each, value, interval)
