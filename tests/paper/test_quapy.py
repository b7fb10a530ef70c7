from __future__ import annotations

import copy
import pickle
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import Draw, MakeControl

from divscore import ControlSet
from divscore.audit.audit import audit
from divscore.control.similarity import unit_rows
from divscore.errors import ControlError, InputError, MissingExtraError
from divscore.paper import quapy as adapter


def test_without_quapy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, make_control: MakeControl) -> None:
    for name in ("quapy", "quapy.method", "quapy.method.base"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(vars(adapter), "LikelihoodQuantifier", raising=False)
    message = "pip install quapy scikit-learn"
    with pytest.raises(MissingExtraError, match=message):
        from divscore.paper.quapy import LikelihoodQuantifier  # noqa: F401
    with pytest.raises(MissingExtraError, match=message):
        adapter.quapy_estimate(object(), make_control(0, (10, 10)), np.eye(8))
    with pytest.raises(AttributeError, match="no attribute 'LikelyQuantifier'"):
        adapter.LikelyQuantifier  # noqa: B018


@pytest.fixture(scope="module")
def qp() -> Any:
    return pytest.importorskip("quapy", reason="the extra 'quapy' is not installed")


@pytest.fixture(scope="module")
def quantifier(qp: Any) -> Any:
    from divscore.paper.quapy import LikelihoodQuantifier

    return LikelihoodQuantifier


def test_it_is_one_of_quapys(qp: Any, quantifier: Any, draw: Draw) -> None:
    from sklearn.base import clone

    made = quantifier(estimator="divscore", confidence=0.9)
    assert isinstance(made, qp.method.base.BaseQuantifier)
    assert made.get_params() == {
        "estimator": "divscore",
        "confidence": 0.9,
        "seed": 0,
        "similarity": "cosine",
    }
    assert clone(made).get_params() == made.get_params()
    assert made.set_params(seed=7).seed == 7
    assert repr(made).startswith("LikelihoodQuantifier(")
    vectors, names = draw(0, (40, 40))
    fitted = made.fit(vectors, names)
    assert fitted is made
    for other in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        assert np.array_equal(other.predict(vectors[:50]), fitted.predict(vectors[:50]))


@pytest.mark.parametrize("counts", [(40, 60), (40, 50, 60)])
def test_predictions_are_those_of_the_audit(
    quantifier: Any, draw: Draw, make_control: MakeControl, counts: tuple[int, ...]
) -> None:
    vectors, names = draw(1, counts)
    sample, _ = draw(2, tuple(reversed(counts)))
    expected = audit(sample, make_control(1, counts), seed=5)
    fitted = quantifier(seed=5).fit(vectors, names)
    shares = fitted.predict(sample)
    assert shares.tolist() == list(expected.shares.values())
    assert fitted.classes_.tolist() == list(expected.shares)
    limits = [[i.low, i.high] for i in expected.share_intervals.values()]
    assert fitted.interval(sample) == pytest.approx(np.array(limits), abs=1e-12)
    assert np.array_equal(fitted.quantify(sample), shares)
    assert fitted.audit(sample).trust == expected.trust


def test_two_groups_by_algorithm_1(quantifier: Any, draw: Draw, make_control: MakeControl) -> None:
    vectors, names = draw(1, (40, 60))
    sample, _ = draw(2, (150, 50))
    fitted = quantifier("divscore").fit(vectors, names)
    score = audit(sample, make_control(1, (40, 60)), estimator="divscore").divscore
    assert fitted.predict(sample) == pytest.approx([(1 + score) / 2, (1 - score) / 2])


def test_several_groups_by_algorithm_1_sum_to_one(quantifier: Any, draw: Draw) -> None:
    vectors, names = draw(1, (60, 60, 60), 8, 4.0)
    sample, _ = draw(2, (300, 150, 50), 8, 4.0)
    shares = quantifier("divscore").fit(vectors, names).predict(sample)
    assert shares.sum() == pytest.approx(1)
    assert shares == pytest.approx([0.6, 0.3, 0.1], abs=0.08)


@pytest.mark.parametrize("kind", ["numbers", "booleans", "other order"])
def test_any_labels_in_sorted_order(quantifier: Any, draw: Draw, kind: str) -> None:
    vectors, names = draw(3, (50, 50))
    sample, of = draw(4, (160, 40))
    labels = {
        "numbers": names == "b",
        "booleans": names == "b",
        "other order": np.where(names == "a", "z", "m"),
    }
    y = labels[kind].astype(int) if kind == "numbers" else labels[kind]
    fitted = quantifier().fit(vectors, y)
    assert fitted.classes_.tolist() == sorted(set(y.tolist()))
    expected = [(of == "a").mean(), (of == "b").mean()]
    if kind == "other order":
        expected.reverse()
    assert fitted.predict(sample) == pytest.approx(expected, abs=0.08)


def test_sparse_items(quantifier: Any, draw: Draw) -> None:
    from scipy.sparse import csr_matrix

    vectors, names = draw(3, (50, 50))
    fitted = quantifier().fit(csr_matrix(vectors), names)
    assert np.array_equal(
        fitted.predict(csr_matrix(vectors)), quantifier().fit(vectors, names).predict(vectors)
    )


@pytest.mark.parametrize("estimator", ["likelihood", "divscore"])
@pytest.mark.parametrize("groups", [2, 3])
def test_where_the_audit_cannot_tell_the_classes_are_even(
    quantifier: Any, estimator: str, groups: int
) -> None:
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(20 * groups, 6))
    fitted = quantifier(estimator).fit(vectors, np.arange(20 * groups) % groups)
    assert fitted.predict(vectors[:4]).tolist() == [1 / groups] * groups
    assert fitted.interval(vectors[:4]).tolist() == [[0.0, 1.0]] * groups


def test_mistakes_are_reported(quantifier: Any, draw: Draw) -> None:
    vectors, names = draw(3, (20, 20))
    with pytest.raises(InputError, match=r"call fit\(X, y\) first"):
        quantifier().predict(vectors)
    with pytest.raises(
        InputError, match="unknown estimator 'iid'; a quantifier can use likelihood or divscore"
    ):
        quantifier("iid").fit(vectors, names)
    with pytest.raises(ControlError, match="all 40 labelled examples belong to group 'class a'"):
        quantifier().fit(vectors, ["a"] * 40)
    with pytest.raises(ControlError, match="40 vectors, 39 group names"):
        quantifier().fit(vectors, names[1:])


def test_artificial_prevalences(qp: Any, quantifier: Any, draw: Draw) -> None:
    fitted = quantifier().fit(*draw(6, (50, 50)))
    protocol = qp.protocol.APP(
        qp.data.LabelledCollection(*draw(7, (600, 600))), sample_size=300, n_prevalences=6, repeats=1
    )
    truth, found = qp.evaluation.prediction(fitted, protocol)
    assert truth[:, 0] == pytest.approx(np.linspace(0, 1, 6), abs=0.01)
    assert np.abs(truth - found).mean() < 0.03
    assert qp.evaluation.evaluate(fitted, protocol, "mae") == pytest.approx(np.abs(truth - found).mean())
    naive = qp.method.aggregative.CC().fit(*draw(6, (50, 50)))
    assert qp.evaluation.evaluate(naive, protocol, "mae") > 1.5 * np.abs(truth - found).mean()


def test_uniform_prevalences_of_three_classes(qp: Any, quantifier: Any, draw: Draw) -> None:
    fitted = quantifier().fit(*draw(8, (60, 60, 60), 8, 3.0))
    data = qp.data.LabelledCollection(*draw(9, (400, 400, 400), 8, 3.0))
    protocol = qp.protocol.UPP(data, sample_size=300, repeats=5, random_state=1)
    assert qp.evaluation.evaluate(fitted, protocol, "mae") < 0.03


def test_model_selection(qp: Any, quantifier: Any, draw: Draw) -> None:
    data = qp.data.LabelledCollection(*draw(10, (300, 300)))
    protocol = qp.protocol.UPP(data, sample_size=200, repeats=4, random_state=1)
    search = qp.model_selection.GridSearchQ(
        quantifier(), {"estimator": ["divscore", "likelihood"]}, protocol, error="mae", refit=False
    )
    search.fit(*draw(11, (40, 40)))
    assert search.best_params_ == {"estimator": "likelihood"}


def theirs(qp: Any) -> list[Any]:
    methods = qp.method.aggregative
    return [methods.EMQ(), methods.PACC(), methods.KDEyML(random_state=0), methods.ACC(), methods.DMy()]


def test_theirs_on_a_control_set(qp: Any, draw: Draw, make_control: MakeControl) -> None:
    control = make_control(12, (60, 60))
    sample, of = draw(13, (350, 150))
    for each in theirs(qp):
        shares = adapter.quapy_estimate(each, control, sample)
        assert shares == pytest.approx([(of == "a").mean(), (of == "b").mean()], abs=0.08), each
        alone = copy.deepcopy(each).fit(unit_rows(control.vectors), control.labels)
        assert np.array_equal(shares, alone.predict(unit_rows(sample)))
        assert not hasattr(each.classifier, "classes_"), "the given quantifier stays as it was"
        turned = adapter.quapy_estimate(each, control.with_order(("b", "a")), sample)
        assert turned == pytest.approx(shares[::-1], abs=0.02)


class Drawing:
    """Makes a quantifier of QuaPy's that draws from numpy's global state, and warns, as some of them do."""

    def __new__(cls, qp: Any, message: str) -> Any:
        class Noisy(qp.method.base.BaseQuantifier):  # type: ignore[misc, name-defined]
            def fit(self, X: Any, y: Any) -> Any:
                self.drawn = np.random.random()  # noqa: NPY002
                warnings.warn(message, UserWarning, stacklevel=2)
                return self

            def predict(self, X: Any) -> Any:
                share = (self.drawn + np.random.random()) / 2  # noqa: NPY002
                return np.array([share, 1 - share])

        return Noisy()


def test_a_seed_settles_what_theirs_draw_and_leaves_the_callers_state_alone(
    qp: Any, draw: Draw, make_control: MakeControl
) -> None:
    control, (sample, _) = make_control(12, (60, 60)), draw(13, (35, 15))
    noisy = Drawing(
        qp, "the method has reached the maximum number of iterations; it might have not converged"
    )
    np.random.seed(99)  # noqa: NPY002
    expected = np.random.random(3)  # noqa: NPY002
    np.random.seed(99)  # noqa: NPY002
    one, two, other = (adapter.fit_quantifier(noisy, control, seed=s)(sample) for s in (5, 5, 6))
    assert np.array_equal(np.random.random(3), expected)  # noqa: NPY002
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_warnings_that_are_not_known_are_passed_on(qp: Any, make_control: MakeControl) -> None:
    with pytest.warns(UserWarning, match="something is wrong"):
        adapter.fit_quantifier(Drawing(qp, "something is wrong"), make_control(12, (60, 60)), seed=1)


def test_emq_that_does_not_converge_says_nothing(qp: Any, draw: Draw, make_control: MakeControl) -> None:
    from sklearn.linear_model import LogisticRegression

    control = make_control(0, (30, 30), d=100, gap=0.2)
    sample, _ = draw(1, (60, 60), 100, 0.2)
    unsure = qp.method.aggregative.EMQ(LogisticRegression(C=0.1))
    fitted = copy.deepcopy(unsure).fit(control.units, control.labels)
    with pytest.warns(UserWarning, match="maximum number of iterations"):
        fitted.predict(unit_rows(sample))
    assert adapter.quapy_estimate(unsure, control, sample).sum() == pytest.approx(1)


def test_theirs_on_three_groups(qp: Any, draw: Draw, make_control: MakeControl) -> None:
    control = make_control(12, (60, 60, 60), gap=3.0)
    sample, of = draw(13, (300, 150, 50), 8, 3.0)
    truth = [(of == name).mean() for name in control.groups]
    estimate = adapter.fit_quantifier(qp.method.aggregative.EMQ(), control)
    assert estimate(sample) == pytest.approx(truth, abs=0.06)
    assert estimate(sample[of == "a"]) == pytest.approx([1, 0, 0], abs=0.06)


def test_theirs_scale_does_not_matter(qp: Any, draw: Draw, make_control: MakeControl) -> None:
    control = make_control(12, (60, 60))
    sample, _ = draw(13, (350, 150))
    one = adapter.quapy_estimate(qp.method.aggregative.EMQ(), control, sample)
    lengths = np.random.default_rng(0).uniform(0.1, 90, size=(500, 1))
    assert adapter.quapy_estimate(qp.method.aggregative.EMQ(), control, sample * lengths) == pytest.approx(
        one
    )


def test_theirs_skip_what_ours_skip(qp: Any, draw: Draw, make_control: MakeControl) -> None:
    control = make_control(12, (60, 60))
    sample, _ = draw(13, (50, 30))
    bad = np.zeros((3, 8))
    bad[0, 0] = np.nan
    method = qp.method.aggregative.EMQ()
    whole = adapter.quapy_estimate(method, control, np.concatenate([bad, sample]))
    assert np.array_equal(whole, adapter.quapy_estimate(method, control, sample))
    with pytest.raises(InputError, match="none of the 3 items"):
        adapter.quapy_estimate(method, control, bad)


def test_mistakes_with_theirs_are_reported(qp: Any, make_control: MakeControl) -> None:
    from sklearn.linear_model import LogisticRegression

    with pytest.raises(InputError, match="LogisticRegression is not a QuaPy quantifier"):
        adapter.quapy_estimate(LogisticRegression(), make_control(1, (9, 9)), np.eye(8))
    with pytest.raises(InputError, match=r"PACC needs 5 labelled examples of every group .* 'b' has 4"):
        adapter.quapy_estimate(qp.method.aggregative.PACC(), make_control(1, (9, 4)), np.eye(8))


def test_ours_among_theirs(quantifier: Any, draw: Draw) -> None:
    """Our own quantifier run as if it were QuaPy's comes to the same as an audit."""
    vectors, names = draw(14, (60, 60))
    control = ControlSet(vectors, names, attribute="letter")
    sample, _ = draw(15, (100, 200))
    expected = audit(sample, control).shares
    assert adapter.quapy_estimate(quantifier(), control, sample) == pytest.approx(
        list(expected.values()), abs=1e-6
    )
