from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from conftest import MakeControl, draw_groups
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize

from divscore.blas import one_thread
from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray, unit_rows
from divscore.estimators.checks import separable
from divscore.estimators.likelihood import _mistaken, _unseen_errors
from divscore.estimators.mixture import excess_variance, mixture_share, mixture_shares
from divscore.sketch.scorer import (
    FEW,
    LARGEST_LOG_RATIO,
    PENALTIES,
    PREFERENCE,
    SLOPE_PENALTY,
    USUAL_PENALTY,
    Calibration,
    balanced_weights,
    decomposed,
    features,
    fit_calibration,
    fit_directions,
    refit_directions,
    refit_from,
    scorer_for,
    targets,
)

Labels = NDArray[np.intp]


@pytest.fixture(autouse=True, scope="module")
def single_thread() -> Iterator[None]:
    """Compute as the callers of these functions do; several threads take up to ten times the CPU."""
    with one_thread:
        yield


# Both systems: more dimensions than examples (dual) and fewer (primal), for two and three groups.
CASES = [(2, 9, 30), (2, 40, 5), (3, 6, 40), (3, 25, 6)]
cases = pytest.mark.parametrize(("groups", "n", "d"), CASES)


def labelled(seed: int, counts: Sequence[int], d: int, gap: float = 1.5) -> tuple[FloatArray, Labels]:
    vectors, names = draw_groups(seed, counts, d, gap)
    return unit_rows(vectors), np.searchsorted(np.unique(names), names).astype(np.intp)


def ridge(phi: FloatArray, y: FloatArray, v: FloatArray, penalty: float) -> FloatArray:
    """Least squares on rows scaled by √v, with √λ I stacked below."""
    root = np.sqrt(v)[:, None]
    p = phi.shape[1]
    stacked = np.vstack([root * phi, np.sqrt(penalty) * np.eye(p)])
    return np.linalg.lstsq(stacked, np.vstack([root * y, np.zeros((p, y.shape[1]))]), rcond=None)[0]


def leave_one_out(phi: FloatArray, y: FloatArray, v: FloatArray, penalty: float) -> FloatArray:
    """Refit without each item; the others keep their weights."""
    scores = np.empty_like(y)
    for i in range(len(phi)):
        rest = np.arange(len(phi)) != i
        scores[i] = phi[i] @ ridge(phi[rest], y[rest], v[rest], penalty)
    return scores


@cases
def test_scores_equal_those_of_refits_without_the_item(groups: int, n: int, d: int) -> None:
    units, labels = labelled(d, [n + 2 * g for g in range(groups)], d)
    fit = fit_directions(units, labels, groups)
    phi, y = features(units), targets(labels, groups)
    v = balanced_weights(labels, groups, np.ones(len(labels)))
    np.testing.assert_allclose(fit.weights, ridge(phi, y, v, fit.penalty), atol=1e-9)
    np.testing.assert_allclose(fit.loo, leave_one_out(phi, y, v, fit.penalty), atol=1e-9)


@cases
def test_weighted_scores_equal_those_of_refits(groups: int, n: int, d: int) -> None:
    units, labels = labelled(d, [n + g for g in range(groups)], d)
    weights = np.random.default_rng(0).standard_exponential((3, len(labels)))
    directions, loo = refit_directions(units, labels, groups, weights, 0.3)
    phi, y = features(units), targets(labels, groups)
    for b, v in enumerate(balanced_weights(labels, groups, weights)):
        np.testing.assert_allclose(directions[b], ridge(phi, y, v, 0.3), atol=1e-9)
        np.testing.assert_allclose(loo[b], leave_one_out(phi, y, v, 0.3), atol=1e-9)


@cases
def test_equal_weights_refit_to_the_fit_itself(groups: int, n: int, d: int) -> None:
    units, labels = labelled(d + 1, [n] * groups, d)
    fit = fit_directions(units, labels, groups)
    directions, loo = refit_directions(units, labels, groups, np.full((1, len(labels)), 7.0), fit.penalty)
    np.testing.assert_allclose(directions[0], fit.weights, atol=1e-9)
    np.testing.assert_allclose(loo[0], fit.loo, atol=1e-9)


@cases
def test_the_penalty_separates_best(groups: int, n: int, d: int) -> None:
    units, labels = labelled(d + 2, [n] * groups, d)
    sign = targets(np.arange(groups), groups)

    def criterion(penalty: float) -> float:
        loo = refit_directions(units, labels, groups, np.ones((1, len(labels))), penalty)[1][0]
        means = np.stack([loo[labels == g].mean(axis=0) for g in range(groups)])
        within = np.mean([loo[labels == g].var(axis=0).sum() for g in range(groups)])
        apart = float((means * sign).sum())
        if apart <= 0:  # scores that point the wrong way separate nothing
            return np.inf
        away = np.log10(penalty / USUAL_PENALTY) ** 2
        return float(np.log(within) - 2 * np.log(apart) + PREFERENCE / len(labels) * away)

    best = min(PENALTIES, key=criterion)
    assert fit_directions(units, labels, groups).penalty == pytest.approx(best)


# Many labels: more dimensions than examples and fewer, hard and easy groups.
MANY = [(2, FEW + 2, 30, 0.6), (2, FEW + 2, 600, 6.0), (4, FEW + 4, 40, 2.0), (4, FEW + 4, 500, 5.0)]
many = pytest.mark.parametrize(("groups", "n", "d", "gap"), MANY)


@pytest.mark.parametrize(("n", "d", "rank"), [(FEW + 1, 20, 20), (FEW + 1, 600, FEW + 1), (FEW + 1, 20, 3)])
def test_many_rows_are_decomposed_as_few_are(n: int, d: int, rank: int) -> None:
    rng = np.random.default_rng(d)
    matrix = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d))
    U, S, Rt = decomposed(matrix)
    np.testing.assert_allclose((U * S) @ Rt, matrix, atol=1e-6 * S.max())
    expected = np.sort(np.linalg.svd(matrix, compute_uv=False))
    np.testing.assert_allclose(np.sort(S)[-rank:], expected[-rank:], rtol=1e-6)
    np.testing.assert_allclose((U.T @ U)[-rank:, -rank:], np.eye(rank), atol=1e-6)


@many
def test_refits_from_the_fit_are_nearly_those_of_their_own(groups: int, n: int, d: int, gap: float) -> None:
    units, labels = labelled(d, [n // groups] * groups, d, gap)
    fit = fit_directions(units, labels, groups)
    weights = np.random.default_rng(1).standard_exponential((40, len(labels)))
    exact, exact_loo = refit_directions(units, labels, groups, weights[:8], fit.penalty)
    # All weights together make the average, so eight of forty are compared.
    nearly, loo = (part[:8] for part in refit_from(fit, units, labels, groups, weights))
    assert np.std(nearly - exact) < 0.01 * np.std(exact - fit.weights)
    assert np.std(loo - exact_loo) < 0.02 * np.std(exact_loo)
    slopes = [fit_calibration(scores, labels, groups, weights[:8]).slope for scores in (loo, exact_loo)]
    assert np.abs(slopes[0] - slopes[1]).mean() < 0.1 * np.std(slopes[1], axis=0).mean()


@many
def test_equal_weights_from_the_fit_are_the_fit(groups: int, n: int, d: int, gap: float) -> None:
    units, labels = labelled(d, [n // groups] * groups, d, gap)
    fit = fit_directions(units, labels, groups)
    directions, loo = refit_from(fit, units, labels, groups, np.full((2, len(labels)), 3.0))
    np.testing.assert_allclose(directions[0], fit.weights, atol=1e-5 * np.abs(fit.weights).max())
    np.testing.assert_allclose(loo[1], fit.loo, atol=1e-3)


@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("gap", [1.0, 12.0])  # at 1 some do not settle, and start from nothing
def test_calibrations_from_one_nearby_are_those_from_nothing(groups: int, gap: float) -> None:
    rng = np.random.default_rng(groups)
    labels = np.repeat(np.arange(groups), 110)
    scores = rng.normal(size=(6, len(labels), groups - 1)) + gap * targets(labels, groups)
    weights = rng.standard_exponential((6, len(labels)))
    near = fit_calibration(scores[:1], labels, groups, np.ones((1, len(labels))))[0]
    from_near = fit_calibration(scores, labels, groups, weights, near)
    exact = fit_calibration(scores, labels, groups, weights)
    np.testing.assert_allclose(from_near.slope, exact.slope, atol=1e-3 * np.abs(exact.slope).max())
    np.testing.assert_allclose(from_near.intercept, exact.intercept, atol=1e-3 * np.abs(exact.slope).max())
    np.testing.assert_array_equal(from_near.informative, exact.informative)


def test_few_labels_are_refitted_one_by_one(make_control: MakeControl) -> None:
    scorer = scorer_for(make_control(1, (FEW // 2, FEW // 2), d=4))
    rng = np.random.default_rng([0, 1])
    order = rng.permuted(np.tile(np.arange(200)[:, None], FEW), axis=0)
    weights = np.maximum(-np.log1p(-(order + rng.random((200, FEW))) / 200), 1e-6)
    exact, loo = refit_directions(scorer.control.units, scorer.labels, 2, weights, scorer.fit.penalty)
    np.testing.assert_array_equal(scorer.replicates.weights[1:], exact)
    slope = fit_calibration(loo, scorer.labels, 2, weights).slope
    np.testing.assert_array_equal(scorer.replicates.calibration.slope[1:], slope)


@pytest.mark.parametrize("n", [FEW, FEW + 2])
def test_swapped_groups_mirror_every_replicate(n: int) -> None:
    vectors, names = draw_groups(3, [n // 2, n // 2], d=6)
    one, other = (
        scorer_for(ControlSet(vectors, named, attribute="letter")).replicates
        for named in (names, np.where(names == "a", "b", "a"))
    )
    np.testing.assert_array_equal(one.weights, other.weights)
    np.testing.assert_array_equal(one.calibration.slope, other.calibration.slope)
    np.testing.assert_array_equal(one.calibration.intercept, other.calibration.intercept)


def test_many_labels_of_one_vector_say_nothing() -> None:
    names = ["a", "b"] * (FEW // 2 + 1)
    scorer = scorer_for(ControlSet(np.ones((len(names), 5)), names, attribute="letter"))
    assert np.isfinite(scorer.replicates.weights).all()
    assert np.isfinite(scorer.replicates.calibration.slope).all()
    assert not separable(scorer)


def test_the_last_score_is_minus_the_others() -> None:
    units, labels = labelled(0, [12, 15, 9], 6)
    fit = fit_directions(units, labels, 3)
    phi, v = features(units), balanced_weights(labels, 3, np.ones(len(labels)))
    third = np.where(labels == 2, 1.0, -0.5)[:, None]
    np.testing.assert_allclose(
        leave_one_out(phi, third, v, fit.penalty)[:, 0], -fit.loo.sum(axis=1), atol=1e-9
    )


def test_groups_weigh_the_same() -> None:
    labels = np.array([0, 0, 0, 1, 2, 2])
    weights = np.random.default_rng(0).uniform(1, 2, size=(4, 6))
    v = balanced_weights(labels, 3, weights)
    for group in range(3):
        np.testing.assert_allclose(v[:, labels == group].sum(axis=1), 2.0)
    np.testing.assert_allclose(v[:, 0] / v[:, 1], weights[:, 0] / weights[:, 1])


def loss_of(
    scores: FloatArray, labels: Labels, groups: int, weights: FloatArray
) -> tuple[Callable[[FloatArray], float], FloatArray]:
    """Return the penalised balanced cross-entropy as a function of the (k − 1) × k coefficients."""
    v = balanced_weights(labels, groups, weights) / len(labels)
    centre = v @ scores
    spread = np.sqrt(v @ (scores - centre) ** 2)
    design = np.column_stack([np.ones(len(labels)), (scores - centre) / spread])

    def loss(theta: FloatArray) -> float:
        coefficients = theta.reshape(groups - 1, groups)
        logits = np.column_stack([design @ coefficients.T, np.zeros(len(labels))])
        top = logits.max(axis=1, keepdims=True)
        log_total = top[:, 0] + np.log(np.exp(logits - top).sum(axis=1))
        entropy = log_total - logits[np.arange(len(labels)), labels]
        return float(v @ entropy + SLOPE_PENALTY / 2 * (coefficients[:, 1:] ** 2).sum())

    return loss, design


def log_ratio(fit: Calibration, scores: FloatArray) -> FloatArray:
    """Log likelihood ratios against the last group."""
    likelihoods = fit.likelihoods(scores)
    return np.log(likelihoods[..., :-1] / likelihoods[..., -1:])


def coefficients_of(fit: Calibration, scores: FloatArray, design: FloatArray) -> FloatArray:
    """Recover the coefficients on standardised scores from the log ratios that the calibration gives."""
    return np.linalg.lstsq(design, log_ratio(fit, scores), rcond=None)[0].T.ravel()


@pytest.mark.parametrize("groups", [2, 3, 4])
@pytest.mark.parametrize("gap", [0.3, 1.0, 6.0])  # hardly and wholly separated
def test_calibration_minimises_the_loss(groups: int, gap: float) -> None:
    rng = np.random.default_rng(groups)
    labels = np.repeat(np.arange(groups), [15, 20, 12, 9][:groups])
    scores = rng.normal(size=(len(labels), groups - 1)) + gap * targets(labels, groups)
    weights = rng.standard_exponential((3, len(labels)))
    fits = fit_calibration(np.broadcast_to(scores, (3, *scores.shape)), labels, groups, weights)
    for b in range(3):
        loss, design = loss_of(scores, labels, groups, weights[b])
        found = coefficients_of(fits[b], scores, design)
        step = 1e-5
        for i in range(len(found)):  # central differences are good to about 1e-9 here
            off = step * np.eye(len(found))[i]
            assert abs(loss(found + off) - loss(found - off)) / (2 * step) < 1e-7
        best = optimize.minimize(loss, np.zeros(len(found)), method="BFGS", options={"gtol": 1e-8})
        assert loss(found) <= best.fun + 1e-10
        # BFGS differentiates numerically and stops at a gradient of about 1e-8 on curvatures of about 1e-3.
        np.testing.assert_allclose(found, best.x, atol=2e-3)


def test_calibration_of_what_says_nothing() -> None:
    labels = np.repeat([0, 1], 10)
    scores = np.linspace(-1, 1, 20)[None, :, None]
    ones = np.ones((1, 20))
    backwards, forwards = (fit_calibration(sign * scores, labels, 2, ones) for sign in (1, -1))
    assert not backwards.informative[0]
    assert forwards.informative[0]
    same = fit_calibration(np.zeros((1, 20, 1)), labels, 2, ones)
    assert not same.informative[0]
    assert np.isfinite(log_ratio(same, scores)).all()


def test_likelihoods_are_bounded() -> None:
    fit = Calibration(np.array([0.5]), np.array([[100.0]]), np.eye(2))
    scores = np.array([[-50.0], [0.0], [50.0]])
    np.testing.assert_allclose(log_ratio(fit, scores)[:, 0], [-LARGEST_LOG_RATIO, 0.5, LARGEST_LOG_RATIO])
    likelihoods = fit.likelihoods(scores)
    np.testing.assert_allclose(likelihoods.max(axis=1), 1.0)


@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.floats(0.05, 4))
def test_the_share_maximises_the_likelihood(seed: int, cells: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    ratio, counts = np.exp(spread * rng.normal(size=cells)), rng.integers(1, 50, size=cells).astype(float)

    def loss(p: float) -> float:
        return -float(counts @ np.log(p * ratio + 1 - p)) / counts.sum()

    share = float(mixture_share(ratio, counts))
    best = optimize.minimize_scalar(loss, bounds=(0, 1), method="bounded", options={"xatol": 1e-12})
    assert loss(share) <= min(float(best.fun), loss(0.0), loss(1.0)) + 1e-13
    if 1e-3 < share < 1 - 1e-3 and spread > 0.5:
        assert share == pytest.approx(best.x, abs=1e-6)  # a flat top hides the place from the values


@given(st.integers(0, 2**32 - 1), st.integers(5, 80), st.integers(3, 5), st.booleans())
@settings(max_examples=30, deadline=None)
def test_the_shares_maximise_the_likelihood(seed: int, cells: int, k: int, sparse: bool) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.full(k, 0.3 if sparse else 3.0))
    label = rng.choice(k, size=cells, p=truth)
    likelihoods = np.exp(rng.normal(size=(cells, k)) + 2.0 * np.eye(k)[label])
    counts = rng.integers(1, 30, size=cells).astype(float)
    weights = counts / counts.sum()

    def loss(p: FloatArray) -> float:
        return -float(weights @ np.log(likelihoods @ p))

    def slope(p: FloatArray) -> FloatArray:
        return -likelihoods.T @ (weights / (likelihoods @ p))

    shares = mixture_shares(likelihoods, counts)
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1)
    best = optimize.minimize(
        loss,
        np.full(k, 1 / k),
        jac=slope,
        method="SLSQP",
        bounds=[(0, 1)] * k,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert loss(shares) <= best.fun + 1e-8
    # Kuhn–Tucker: no group would gain by more, and those present gain the same.
    assert (-slope(shares)).max() <= 1 + 1e-4
    assert np.abs(shares * (1 + slope(shares))).max() < 1e-6


def test_many_mixtures_at_once_equal_each_alone() -> None:
    rng = np.random.default_rng(0)
    for k in (2, 3):
        likelihoods = np.exp(rng.normal(size=(4, 30, k)))
        counts = rng.integers(1, 9, size=(4, 30)).astype(float)
        together = mixture_shares(likelihoods, counts)
        for b in range(4):
            np.testing.assert_allclose(together[b], mixture_shares(likelihoods[b], counts[b]), atol=1e-6)


def test_pure_collections_have_whole_shares() -> None:
    counts = np.ones(10)
    assert mixture_share(np.full(10, 5.0), counts) == 1.0
    assert mixture_share(np.full(10, 0.2), counts) == 0.0
    sure = np.eye(3)[np.zeros(10, dtype=int)] + 1e-6
    np.testing.assert_allclose(mixture_shares(sure, counts), [1, 0, 0], atol=1e-6)


@pytest.mark.parametrize("k", [2, 3])
def test_excess_variance_is_a_covariance(k: int) -> None:
    rng = np.random.default_rng(k)
    likelihoods = np.exp(rng.normal(size=(200, k)) + 2 * np.eye(k)[rng.integers(k, size=200)])
    counts = np.ones(200)
    shares = mixture_shares(likelihoods, counts)
    found = excess_variance(likelihoods, counts, shares)
    np.testing.assert_allclose(found, found.T, atol=1e-15)
    np.testing.assert_allclose(found.sum(axis=0), 0, atol=1e-12)
    assert np.linalg.eigvalsh(found).min() > -1e-12
    np.testing.assert_allclose(excess_variance(likelihoods, 4 * counts, shares), found / 4, rtol=1e-6)
    certain = np.eye(k)[rng.integers(k, size=200)] + 1e-12
    known = excess_variance(certain, counts, mixture_shares(certain, counts))
    assert np.abs(known).max() < 1e-6
    assert np.diag(excess_variance(np.ones((200, k)), counts, np.full(k, 1 / k))).min() > 0.5


def test_excess_variance_is_what_is_left_given_the_composition() -> None:
    # Two normal groups 2 σ apart, N = 300, exactly 105 of the first: variance of the estimated share.
    rng = np.random.default_rng(0)
    N, own, reps = 300, 105, 600
    centre = np.where(np.arange(N) < own, 1.0, -1.0)
    estimates, excess = [], []
    for _ in range(reps):
        x = rng.normal(size=N) + centre
        likelihoods = np.exp(-((x[:, None] - np.array([1.0, -1.0])) ** 2) / 2)
        shares = mixture_shares(likelihoods, np.ones(N))
        estimates.append(shares[0])
        excess.append(excess_variance(likelihoods, np.ones(N), shares)[0, 0])
    # The variance of 600 draws has a relative standard error of √(2/600) = 0.06; four of them.
    assert np.var(estimates) == pytest.approx(np.mean(excess), rel=0.25)
    assert np.mean(estimates) == pytest.approx(own / N, abs=4 * np.std(estimates) / np.sqrt(reps) + 0.002)


@pytest.mark.parametrize(("gap", "mistakes"), [(40.0, 0.0), (0.8, None)])
def test_mistakes_that_few_examples_cannot_show_widen_the_replicates(
    make_control: MakeControl, gap: float, mistakes: float | None
) -> None:
    scorer = scorer_for(make_control(3, (25, 25), gap=gap))
    same = np.tile([0.5, 0.5], (40_000, 1))
    noisy = _mistaken(same, _unseen_errors(scorer, np.eye(2), len(same), np.random.default_rng(0)))
    np.testing.assert_allclose(noisy.sum(axis=1), 1.0)
    np.testing.assert_allclose(noisy.mean(axis=0), 0.5, atol=1e-3)
    # Jeffreys' posterior with no mistake among 25: Beta(0.5, 25.5).
    jeffreys = 0.5 * 25.5 / (26**2 * 27)
    if mistakes == 0.0:
        assert noisy[:, 0].var() == pytest.approx(0.25 * 2 * jeffreys, rel=0.1)
    else:
        assert noisy[:, 0].var() < 0.1 * 0.25 * 2 * jeffreys
