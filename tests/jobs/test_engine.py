"""Engine.map: ordered results from threads, processes or somebody else's workers; nobody waits for a dead worker."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tasks import die_always, die_answering, die_once, last_for_ever, threads_of_linear_algebra

from divscore.encoders.ngrams import NgramEncoder
from divscore.errors import Cancel, CancelledError, DivscoreError, InputError, check_cancelled
from divscore.jobs.engine import FIRST, RESULT_BYTES, DeadlyTaskError, Engine


def test_results_come_in_the_order_of_the_tasks() -> None:
    def slow(task: int) -> int:
        time.sleep(0.02 * (task % 3 == 0))
        return task * task

    with Engine(3) as engine:
        assert [found for _, found in engine.map(slow, range(20))] == [task * task for task in range(20)]


@pytest.mark.parametrize("workers", [2, 5])
def test_only_a_bounded_number_of_tasks_is_on_the_way(workers: int) -> None:
    started: list[int] = []
    lock = threading.Lock()

    def task(number: int) -> int:
        with lock:
            started.append(number)
        return number

    handed_in = 0

    def tasks() -> Any:
        nonlocal handed_in
        for number in range(100):
            handed_in += 1
            yield number

    with Engine(workers) as engine:
        for taken, _ in enumerate(engine.map(task, tasks()), 1):
            assert handed_in - taken < 2 * workers + 2
    assert sorted(started) == list(range(100))


def test_an_exception_is_raised_in_its_turn_and_the_rest_is_dropped() -> None:
    def task(number: int) -> int:
        if number == 4:
            raise InputError("four")
        return number

    with Engine(3) as engine:
        results = engine.map(task, range(1000))
        assert [next(results)[1] for _ in range(4)] == [0, 1, 2, 3]
        with pytest.raises(InputError, match="four"):
            next(results)


def test_what_is_known_needs_no_worker() -> None:
    for workers in (1, 3):
        done: list[int] = []
        with Engine(workers) as engine:
            known = engine.map(done.append, range(6), known=lambda task: -task if task % 2 else None)
            assert [result for _, result in known] == [None, -1, None, -3, None, -5]
        assert sorted(done) == [0, 2, 4]


def test_one_worker_is_this_thread() -> None:
    with Engine(1) as engine:
        assert engine.inline
        found = [thread for _, thread in engine.map(lambda _: threading.get_ident(), range(3))]
    assert set(found) == {threading.get_ident()}


def test_a_given_executor_is_used_and_left_open() -> None:
    with ThreadPoolExecutor(2) as pool:
        with Engine(executor=pool) as engine:
            assert engine.workers == 2
            assert [found for _, found in engine.map(abs, [-1, -2])] == [1, 2]
        assert pool.submit(abs, -3).result() == 3


def test_what_a_dead_worker_had_is_done_again(tmp_path: Path, processes: Engine) -> None:
    results = processes.map(partial(die_once, str(tmp_path / "died")), range(8))
    assert [result for _, result in results] == list(range(8))
    assert (tmp_path / "died").exists()


def test_a_worker_that_dies_in_the_middle_of_its_answer_is_replaced(
    tmp_path: Path, processes: Engine
) -> None:
    results = processes.map(partial(die_answering, str(tmp_path / "died")), range(6))
    assert [(len(result), result[0]) for _, result in results] == [(3_000_000, n) for n in range(6)]
    assert (tmp_path / "died").exists()


@pytest.mark.slow
def test_a_task_on_which_workers_die_is_an_error_or_has_a_result_of_its_own(processes: Engine) -> None:
    with pytest.raises(DivscoreError, match=r"^2: 3 workers died on it, one after the other"):
        list(processes.map(die_always, range(4)))
    results = processes.map(die_always, range(5), killed=lambda task, reason: -task)
    assert [result for _, result in results] == [0, 1, -2, 3, 4]


def test_a_broken_executor_of_somebody_else_is_an_error() -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool, pytest.raises(DivscoreError, match="all workers died"):
        list(Engine(executor=pool).map(die_always, range(9)))


def test_after_an_exception_processes_end_at_once(tmp_path: Path) -> None:
    asked = 0.0

    def interrupted() -> None:
        nonlocal asked
        with Engine(2, processes=True) as engine:
            next(engine.map(partial(last_for_ever, str(tmp_path)), range(9)))
            while len(list(tmp_path.iterdir())) < 2:
                time.sleep(0.01)
            asked = time.monotonic()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - asked < 150  # seconds; the tasks take 300
    for path in tmp_path.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.name), 0)


def test_what_waits_is_cancelled_when_nobody_wants_it_any_more() -> None:
    begun: list[int] = []
    go_on = threading.Event()

    def task(number: int) -> int:
        begun.append(number)
        return number if not number or go_on.wait(60) else -1

    with ThreadPoolExecutor(1) as pool, Engine(3, executor=pool) as engine:
        results = engine.map(task, range(100))
        assert next(results) == (0, 0)
        results.close()  # type: ignore[attr-defined]
        go_on.set()
    assert set(begun) <= {0, 1}


def test_the_number_of_an_executors_workers_can_be_told() -> None:
    with ThreadPoolExecutor(2) as pool:
        assert Engine(7, executor=pool).workers == 7


class Heavy:
    nbytes = RESULT_BYTES // 5


def test_few_large_results_are_on_the_way() -> None:
    handed_in = 0

    def tasks() -> Any:
        nonlocal handed_in
        for number in range(200):
            handed_in += 1
            yield number

    most, start = 0, []
    with Engine(50) as engine:
        for taken, _ in enumerate(engine.map(lambda _: Heavy(), tasks(), large=True)):
            start.append(handed_in)
            most = max(most, handed_in - taken if taken > FIRST else 0)
    assert start[0] == FIRST
    assert most == 5


def test_what_workers_died_over_is_named_or_left_out() -> None:
    class Deadly(Engine):
        def _wait(self, work: Any, task: object, future: Any) -> Any:
            if task == 3:
                raise DeadlyTaskError(f"{task}: several workers died over it")
            return super()._wait(work, task, future)

    with Deadly(2) as engine:
        found = engine.map(abs, range(6), killed=lambda task, reason: -task)
        assert [result for _, result in found] == [0, 1, 2, -3, 4, 5]
    with Deadly(2) as engine, pytest.raises(DeadlyTaskError, match="3: several workers died"):
        list(engine.map(abs, range(6)))


def test_worker_processes_use_one_thread_for_linear_algebra(processes: Engine) -> None:
    found = [each for _, each in processes.map(threads_of_linear_algebra, range(4))]
    assert [threads for threads, _ in found] == [{1}] * 4
    assert os.getpid() not in {process for _, process in found}


# Cancelled


def test_without_a_request_nothing_ends() -> None:
    check_cancelled()
    assert Cancel().run(abs, -3) == 3


def test_what_was_begun_ends_and_the_thread_is_free_again() -> None:
    cancel, other = Cancel(), Cancel()
    steps: list[int] = []

    def work(until: int) -> None:
        for step in range(10):
            check_cancelled()
            steps.append(step)
            if step == until:
                cancel.request()

    with pytest.raises(CancelledError):
        cancel.run(work, 2)
    assert steps == [0, 1, 2]
    with pytest.raises(CancelledError):
        cancel.run(abs, -3)
    check_cancelled()
    assert other.run(abs, -3) == 3


def test_an_encoder_checks_for_it() -> None:
    cancel = Cancel()
    cancel.request()

    def work(texts: list[str]) -> None:
        NgramEncoder(64).encode(texts)

    with pytest.raises(CancelledError):
        cancel.run(work, ["river"])


def test_an_engine_that_is_left_by_an_error_ends_its_threads() -> None:
    begun = threading.Event()
    ended: list[str] = []

    def work(task: int) -> int:
        if not task:
            begun.wait(60)
            raise ValueError("the first")
        begun.set()
        until = time.monotonic() + 30
        try:
            while time.monotonic() < until:
                check_cancelled()
                time.sleep(0.01)
        except CancelledError:
            ended.append("in the middle")
            raise
        return task

    engine = Engine(2)
    with pytest.raises(ValueError, match="the first"), engine:
        list(engine.map(work, range(2)))
    assert ended == ["in the middle"]
    assert [found for _, found in engine.map(abs, [-1, -2])] == [1, 2]  # and may work again
    engine.close()
