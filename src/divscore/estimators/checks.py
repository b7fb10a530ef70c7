"""Domain relevance: does the collection look like a mixture of the control set's groups?

Assumption 3.1 of the paper says that inside each group the collection is distributed as the control set is.
Under it the mean of the collection lies on the segment (with k groups: in the simplex) between the group
means, up to sampling noise of both. The squared distance off it, over its expectation, is the statistic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray

__all__ = ["GroupMoments", "Relevance", "group_moments", "relevance"]


@dataclass(frozen=True)
class Relevance:
    """The statistic (about 1 when the assumption holds) and how often chance alone gives as much."""

    statistic: float
    p_value: float


@dataclass(frozen=True)
class GroupMoments:
    """Means of the groups' unit vectors, and what their covariances C_g say about sampling noise."""

    counts: FloatArray  # (k,)
    means: FloatArray  # (k, d)
    plane: FloatArray  # (d, r): orthonormal basis of the differences of means
    trace: FloatArray  # (k,): trace of C_g, outside the plane
    cross: FloatArray  # (k, k): trace of C_g C_h, outside the plane, without bias


def group_moments(control: ControlSet) -> GroupMoments:
    """Moments of a control set's whole pool."""
    parts = [control.units[control.rows(g)] for g in range(len(control.groups))]
    counts = np.array([len(p) for p in parts], dtype=float)
    means = np.stack([p.mean(axis=0) for p in parts])
    left, size, _ = np.linalg.svd((means - means.mean(axis=0)).T, full_matrices=False)
    plane = left[:, size > 1e-12 * max(float(size[0]), 1e-300)]
    centred = [p - m for p, m in zip(parts, means, strict=True)]
    # The residual has no component in the plane of the means, so its noise must not have one either.
    centred = [c - (c @ plane) @ plane.T for c in centred]
    trace = np.array([(c**2).sum() / (len(c) - 1) for c in centred])
    k = len(parts)
    cross = np.array(
        [[_trace_of_product(centred[g], centred[h], g == h) for h in range(k)] for g in range(k)]
    )
    return GroupMoments(counts, means, plane, trace, cross)


def relevance(mean: FloatArray, count: int, moments: GroupMoments, shares: FloatArray) -> Relevance:
    """Test whether a collection with this mean unit vector can be a mixture of the groups.

    At the true shares p (`shares`, as estimated) the mean is off the mixture by noise of covariance ``Σ_g c_g C_g``,
    ``c_g = p_g / N + p_g² / n_g``: the collection's sampling noise and the control set's. The nearest mixture is
    nearer still, because the estimated group means carry the same noise; that part is known and taken off. The
    estimated shares are uncertain, so the nearest mixture's own are tried as well, with nothing taken off, and
    the milder verdict counts. The squared distance is compared with a χ² of matching mean and variance
    (Satterthwaite). Traces of squared covariances are corrected for bias, which with n < d is several times the
    trace itself.
    """
    from scipy.special import chdtrc

    nearest = _nearest_mixture(mean, moments.means)
    residual = mean - nearest @ moments.means
    squared = float(residual @ residual)
    found = []
    for p, absorbed in ((nearest, 0.0), (shares, _absorbed(shares, moments))):
        expected, degrees = _noise(p, count, moments)
        if expected <= absorbed:
            return Relevance(1.0, 1.0)
        statistic = squared / (expected - absorbed)
        found.append(Relevance(statistic, float(chdtrc(degrees, statistic * degrees))))
    return max(found, key=lambda r: (r.p_value, -r.statistic))


def _noise(shares: FloatArray, count: int, moments: GroupMoments) -> tuple[float, float]:
    """Expected squared length of the noise, and the degrees of freedom of the χ² that it resembles."""
    part = shares / count + shares**2 / moments.counts
    expected = float(part @ moments.trace)
    squared = float(part @ moments.cross @ part)
    dimension = moments.means.shape[1]
    return expected, max(1.0, min(expected**2 / squared, dimension) if squared > 0 else dimension)


def _absorbed(shares: FloatArray, moments: GroupMoments) -> float:
    """Part of the squared noise that lies, for being the means' own, in the plane of the estimated means."""
    pull = shares * moments.trace / moments.counts
    pull = pull - pull.mean()
    centred = moments.means - moments.means.mean(axis=0)
    return float(pull @ np.linalg.pinv(centred @ centred.T, hermitian=True) @ pull)


def _nearest_mixture(mean: FloatArray, means: FloatArray) -> FloatArray:
    """Shares of the point of the simplex nearest to `mean`: drop negative shares until there are none."""
    free = np.arange(len(means))
    while True:
        origin, rest = means[free[-1]], means[free[:-1]]
        found, *_ = np.linalg.lstsq((rest - origin).T, mean - origin, rcond=None)
        shares = np.append(found, 1.0 - found.sum())
        if shares.min() >= 0:
            break
        free = np.delete(free, int(shares.argmin()))
    full = np.zeros(len(means))
    full[free] = shares
    return full


def _trace_of_product(a: FloatArray, b: FloatArray, same: bool) -> float:
    """Trace of the product of two covariances, estimated from centred rows, without bias."""
    n, m = len(a), len(b)
    if n * m <= a.shape[1] ** 2:
        plain = float(((a @ b.T) ** 2).sum())
    else:
        plain = float(((a.T @ a) * (b.T @ b)).sum())
    plain /= (n - 1) * (m - 1)
    if not same or n < 4:
        return plain
    trace = float((a**2).sum()) / (n - 1)
    # Bai and Saranadasa (1996), Eq. 3.8.
    return max((n - 1) ** 2 / ((n - 2) * (n + 1)) * (plain - trace**2 / (n - 1)), 0.0)
