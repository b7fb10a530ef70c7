"""What the numbers promise, measured: errors, coverage and false alarms over seeded repetitions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from conftest import Portraits, draw_groups
from scipy import stats

from divscore.control.controlset import ControlSet, LabelledSample
from divscore.control.similarity import FloatArray
from divscore.estimators.checks import SEPARABLE_P, Relevance, group_moments, relevance, score_fit
from divscore.estimators.iid import clopper_pearson, iid
from divscore.estimators.interval import Estimate
from divscore.estimators.likelihood import likelihood
from divscore.estimators.mixture import mixture_fit
from divscore.estimators.rectified import rectified
from divscore.sketch.sketch import Sketch

pytestmark = pytest.mark.slow

PREVALENCES = np.linspace(0, 1, 7)


def fewest(n: int, level: float) -> int:
    """Fewest successes in n trials that a true rate of `level` leaves plausible (one in a thousand)."""
    return int(stats.binom.ppf(0.001, n, level))


def most(n: int, level: float) -> int:
    return int(stats.binom.ppf(0.999, n, level))


def sketch_of(rows: FloatArray, control: ControlSet) -> Sketch:
    sketch = Sketch(control)
    sketch.add(rows)
    return sketch


def protocol(
    vectors: np.ndarray, groups: np.ndarray, labels: int, splits: int
) -> Iterator[tuple[float, Estimate]]:
    """The paper's protocol: balanced labels, collections of seven compositions from the rest."""
    first, second = np.unique(groups)
    size = min(480, *(int((groups == g).sum()) - labels // 2 for g in (first, second)))
    for split in range(splits):
        rng = np.random.default_rng(split)
        a, b = (rng.permutation(np.flatnonzero(groups == g)) for g in (first, second))
        chosen = np.concatenate([a[: labels // 2], b[: labels // 2]])
        control = ControlSet(vectors[chosen], groups[chosen], attribute="attribute")
        for f in PREVALENCES:
            n = round(f * size)
            rows = np.concatenate(
                [
                    rng.choice(a[labels // 2 :], n, replace=False),
                    rng.choice(b[labels // 2 :], size - n, replace=False),
                ]
            )
            yield 2 * n / size - 1, likelihood(sketch_of(vectors[rows], control))


@pytest.mark.parametrize(
    ("attribute", "labels", "splits", "error", "width"),
    [
        # METHOD's figures are 0.047 and 0.24 (gender, 50), 0.097 and 0.54 (skin tone, 50), 0.016 and 0.12 (gender,
        # 200); a quarter more is allowed for fewer splits.
        ("gender", 50, 12, 0.060, 0.30),
        ("skin_tone", 50, 12, 0.121, 0.68),
        ("gender", 200, 6, 0.021, 0.15),
    ],
)
def test_the_papers_protocol(
    attribute: str, labels: int, splits: int, error: float, width: float, ppb: Portraits
) -> None:
    found = list(protocol(ppb.vectors, getattr(ppb, attribute), labels, splits))
    errors = [abs(estimate.disparity - truth) for truth, estimate in found]
    covered = [truth in estimate.interval for truth, estimate in found]
    widths = [estimate.interval.width for _, estimate in found]
    assert np.mean(errors) <= error
    assert np.mean(widths) <= width
    # The collections of one split share its labels, so they count for fewer: 0.88 rather than the binomial limit.
    assert np.mean(covered) >= 0.88


@pytest.mark.parametrize("gap", [1.2, 2.5])
@pytest.mark.parametrize("target", ["collection", "population"])
def test_coverage_on_normal_groups(gap: float, target: str) -> None:
    reps, covered, widths = 60, 0, []
    for rep in range(reps):
        vectors, names = draw_groups(2 * rep, [30, 30], d=10, gap=gap)
        share = np.random.default_rng(rep).uniform()
        # The population's own share, or this very collection's.
        n = np.random.default_rng(rep + 500).binomial(500, share)
        truth = 2 * share - 1 if target == "population" else 2 * n / 500 - 1
        sketch = sketch_of(
            draw_groups(2 * rep + 1, [n, 500 - n], d=10, gap=gap)[0],
            ControlSet(vectors, names, attribute="letter"),
        )
        interval = likelihood(sketch, target=target).interval
        covered += truth in interval
        widths.append(interval.width)
    assert covered >= fewest(reps, 0.95)
    assert np.mean(widths) < (1.0 if gap == 1.2 else 0.4)


def test_coverage_of_three_groups() -> None:
    reps, covered, each = 40, 0, 0
    for rep in range(reps):
        vectors, names = draw_groups(2 * rep, [30, 30, 30], gap=2.0)
        counts = np.random.default_rng(rep).multinomial(500, np.random.default_rng(rep).dirichlet(np.ones(3)))
        sketch = sketch_of(
            draw_groups(2 * rep + 1, counts, gap=2.0)[0], ControlSet(vectors, names, attribute="l")
        )
        found = likelihood(sketch)
        covered += (counts.max() - counts.min()) / 500 in found.interval
        each += sum(c / 500 in i for c, i in zip(counts, found.share_intervals, strict=True))
    assert covered >= fewest(reps, 0.95)
    assert each >= 0.88 * 3 * reps  # the three shares of one collection are not independent


@pytest.mark.parametrize("labels", [50, 200])
@pytest.mark.parametrize("d", [20, 100])
def test_random_labels_claim_nothing(labels: int, d: int) -> None:
    reps, honest, told = 100, 0, 0
    for rep in range(reps):
        rng = np.random.default_rng(rep)
        groups = rng.permutation(["a", "b"] * (labels // 2))
        control = ControlSet(rng.normal(size=(labels, d)), groups, attribute="letter")
        interval = likelihood(sketch_of(rng.normal(size=(200, d)), control)).interval
        honest += rng.uniform(-1, 1) in interval
        told += interval.method != "cannot tell"
    assert honest >= fewest(reps, 0.95)
    assert told <= most(reps, SEPARABLE_P)


def relevance_of(vectors: FloatArray, control: ControlSet) -> Relevance:
    sketch = sketch_of(vectors, control)
    return relevance(sketch.mean, sketch.count, group_moments(control), mixture_fit(sketch).named)


@pytest.mark.parametrize(("n", "d"), [(30, 8), (40, 100)])
def test_false_alarms_of_relevance(n: int, d: int) -> None:
    reps, alarms, statistics = 150, 0, []
    for rep in range(reps):
        vectors, names = draw_groups(2 * rep, [n, n], d=d)
        share = np.random.default_rng(rep).uniform(0.1, 0.9)
        counts = np.random.default_rng(rep).multinomial(400, [share, 1 - share])
        control = ControlSet(vectors, names, attribute="letter")
        found = relevance_of(draw_groups(2 * rep + 1, counts, d=d)[0], control)
        alarms += found.p_value < 0.05
        statistics.append(found.statistic)
    assert 0.01 * reps <= alarms <= 0.12 * reps
    assert np.mean(statistics) == pytest.approx(1.0, abs=0.15)


def test_relevance_sees_a_shift() -> None:
    alarms = 0
    for rep in range(50):
        vectors, names = draw_groups(2 * rep, [30, 30])
        shifted = draw_groups(2 * rep + 1, [200, 200])[0] + 0.8 * np.eye(8)[5]
        alarms += relevance_of(shifted, ControlSet(vectors, names, attribute="letter")).p_value < 0.01
    assert alarms >= 45


@pytest.mark.parametrize(("groups", "reps", "n", "size"), [(2, 150, 30, 500), (3, 30, 80, 2000)])
def test_false_alarms_of_score_fit(groups: int, reps: int, n: int, size: int) -> None:
    alarms, statistics = 0, []
    for rep in range(reps):
        vectors, names = draw_groups(10_000 + rep, [n] * groups)
        counts = np.random.default_rng(rep).multinomial(
            size, np.random.default_rng(rep).dirichlet(np.ones(groups))
        )
        fit = score_fit(
            sketch_of(draw_groups(rep, counts)[0], ControlSet(vectors, names, attribute="letter"))
        )
        alarms += fit.p_value < 0.05
        statistics.append(fit.statistic)
    assert alarms <= max(0.12 * reps, most(reps, 0.05))
    if groups == 2:
        assert alarms >= 0.01 * reps
    # Steps of the joint grid that are taken for a misfit would push it beyond 1.
    assert np.mean(statistics) < 0.95


def test_score_fit_sees_a_misfit() -> None:
    alarms = 0
    for rep in range(30):
        vectors, names = draw_groups(2 * rep, [40, 40], gap=2.5)
        between = draw_groups(2 * rep + 1, [250, 250], gap=0.0)[0] + 1.25 * (np.eye(8)[0] + np.eye(8)[1])
        alarms += score_fit(sketch_of(between, ControlSet(vectors, names, attribute="letter"))).p_value < 0.05
    assert alarms >= 27


def test_relevance_rejects_every_country(ppb: Portraits) -> None:
    found: dict[tuple[str, int], Relevance] = {}
    for split in range(5):
        order = np.random.default_rng(split).permutation(len(ppb.vectors))
        pool, rest = order[:200], order[200:]
        control = ControlSet(ppb.vectors[pool], ppb.gender[pool], attribute="gender")
        for country in np.unique(ppb.country):
            found[country, split] = relevance_of(ppb.vectors[rest[ppb.country[rest] == country]], control)
        assert relevance_of(ppb.vectors[rest[:400]], control).statistic < 1.5
    assert len(found) >= 30
    assert max(r.p_value for r in found.values()) < 0.01
    assert min(r.statistic for r in found.values()) > 2.5


@pytest.mark.parametrize(
    ("counts", "shift"), [((1000, 1000), 0.0), ((500, 1500), 3.0), ((1960, 40), 0.0), ((40, 1960), 3.0)]
)
def test_coverage_of_rectified(counts: tuple[int, int], shift: float) -> None:
    vectors, names = draw_groups(0, [30, 30], gap=2.0)
    control = ControlSet(vectors, names, attribute="letter")
    rows, groups = draw_groups(1, counts, gap=2.0)
    rows = rows + shift * (np.eye(8)[0] - np.eye(8)[1])
    sketch, truth = sketch_of(rows, control), (counts[0] - counts[1]) / 2000
    reps, covered, errors, widths, plain = 200, 0, [], [], []
    for rep in range(reps):
        chosen = np.random.default_rng(rep).choice(2000, size=50, replace=False)
        sample = LabelledSample.of(rows[chosen], groups[chosen], control)
        found = rectified(sketch, sample)
        covered += truth in found.interval
        errors.append(found.disparity - truth)
        widths.append(found.interval.width)
        plain.append(iid(sample, 2).interval.width)
    assert covered >= 0.9 * reps
    # Unbiased up to its own Monte-Carlo error, and the share of clipping where a group is nearly absent.
    assert abs(np.mean(errors)) <= 4 * np.std(errors) / np.sqrt(reps) + 0.01
    assert np.mean(widths) <= 1.05 * np.mean(plain)


@pytest.mark.parametrize("n", [10, 50, 137])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_exact_coverage_of_iid(n: int, confidence: float) -> None:
    intervals = [clopper_pearson(hits, n, confidence) for hits in range(n + 1)]
    for p in np.linspace(0.01, 0.99, 99):
        chance = stats.binom.pmf(np.arange(n + 1), n, p)
        assert sum(c for c, i in zip(chance, intervals, strict=True) if p in i) >= confidence - 1e-12


def test_coverage_of_iid_with_three_groups() -> None:
    rng, reps, covered = np.random.default_rng(0), 400, 0
    for _ in range(reps):
        shares = rng.dirichlet(np.ones(3))
        labels = np.repeat(np.arange(3), rng.multinomial(80, shares))
        interval = iid(LabelledSample(np.ones((80, 1)), labels), 3).interval
        covered += shares.max() - shares.min() in interval
    assert covered >= fewest(reps, 0.95)
