"""Work in threads ends when it is no longer wanted, in the middle of what it does."""

from __future__ import annotations

import threading
import time

import pytest

from divscore.encoders.ngrams import NgramEncoder
from divscore.errors import Cancel, CancelledError, check_cancelled
from divscore.jobs.engine import Engine


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
            begun.wait(10)
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
