"""One thread for linear algebra: inside our own work only, re-entrant, and for all threads at once."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.special  # noqa: F401 - so that its BLAS is loaded from the start
import threadpoolctl
from conftest import draw_groups

from divscore import ControlSet, audit
from divscore.blas import one_thread
from divscore.estimators.checks import separation
from divscore.sketch.scorer import scorer_for

SETTINGS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def threads() -> set[int]:
    return {each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"}


@pytest.fixture
def two() -> Iterator[None]:
    limits = threadpoolctl.threadpool_limits(
        2, user_api="blas"
    )  # not entered, as then only this thread could set it
    if threads() != {2}:
        pytest.skip("this machine's BLAS has one thread only")
    yield
    limits.restore_original_limits()


def test_the_limit_ends_with_the_last_who_leaves(two: None) -> None:
    with one_thread:
        assert threads() == {1}
        with one_thread:
            assert threads() == {1}
        assert threads() == {1}
    assert threads() == {2}


def test_threads_that_come_and_go_do_not_take_the_limit_away(two: None) -> None:
    inside, leave = threading.Event(), threading.Event()

    @one_thread
    def work() -> None:
        inside.set()
        leave.wait(30)

    first = threading.Thread(target=work)
    first.start()
    inside.wait(30)
    with one_thread:
        leave.set()
        first.join(30)
        assert threads() == {1}
    assert threads() == {2}


def test_an_audit_works_in_one_thread_and_leaves_the_users_setting(
    two: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    original = np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda *args: (seen.append(threads()), original(*args))[1])
    vectors, names = draw_groups(3, [30, 30])
    audit(draw_groups(1, [200, 100])[0], ControlSet(vectors, names, attribute="letter"))
    assert seen
    assert all(each == {1} for each in seen)
    assert threads() == {2}


def test_groups_are_tested_in_one_thread_whoever_asks(two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = np.linalg.svd
    vectors, names = draw_groups(4, [30, 30])
    scorer = scorer_for(ControlSet(vectors, names, attribute="letter"))
    monkeypatch.setattr(
        np.linalg, "svd", lambda *args, **options: (seen.append(threads()), original(*args, **options))[1]
    )
    separation(scorer)
    assert seen
    assert all(each == {1} for each in seen)


def test_results_do_not_depend_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import numpy as np\n"
        "from divscore import ControlSet, audit\n"
        "rng = np.random.default_rng(0)\n"
        "pool = rng.normal(size=(200, 300)) + np.repeat([[0.2], [-0.2]], 100, axis=0)\n"
        "control = ControlSet(pool, ['a'] * 100 + ['b'] * 100, attribute='letter')\n"
        "print(audit(rng.normal(size=(900, 300)), control, show_untrusted=True).to_json())\n"
    )
    outputs = set()
    for number in ("", "1", "2"):
        for name in SETTINGS:
            monkeypatch.delenv(name, raising=False)
            if number:
                monkeypatch.setenv(name, number)
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        outputs.add(done.stdout)
    assert len(outputs) == 1
