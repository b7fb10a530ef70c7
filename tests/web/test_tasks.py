from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from webapp import opened_desk, own_cache, truth  # noqa: F401  fixtures

from divscore.errors import InputError
from divscore.jobs.pool import Progress, Warn
from divscore.web.tasks import KEPT, MOST_WAITING, Task, Tasks


@pytest.fixture
def tasks() -> Iterator[Tasks]:
    opened = Tasks()
    yield opened
    opened.close()


def wait(condition: Callable[[], bool]) -> None:
    for _ in range(12_000):  # a minute, as machines may be busy
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it does not happen")


def endless(progress: Progress, warn: Warn) -> dict[str, Any]:
    with progress("counting", None) as advance:
        while True:
            advance(1)
            time.sleep(0.001)


def test_one_after_the_other_with_progress_and_warnings(tasks: Tasks) -> None:
    order: list[int] = []

    def work(number: int, progress: Progress, warn: Warn) -> dict[str, Any]:
        with progress("step", 10) as advance:
            for _ in range(10):
                advance(1)
        warn("look")
        order.append(number)
        return {"number": number}

    started = [tasks.start("x", lambda p, w, n=n: work(n, p, w)) for n in range(5)]
    wait(lambda: started[-1].finished)
    assert order == [0, 1, 2, 3, 4]
    last = started[-1]
    assert (last.state, last.done, last.total, last.message) == ("done", 10, 10, "step")
    assert (last.result, last.warnings) == ({"number": 4}, ["look"])
    assert tasks.get(last.id) is last


def test_what_is_wrong_with_a_cache_is_for_the_terminal(
    tasks: Tasks, caplog: pytest.LogCaptureFixture
) -> None:
    def work(progress: Progress, warn: Warn) -> dict[str, Any]:
        warn("the cache /home/ann/.cache/a is no longer used (disk full)")
        warn("2 items were skipped")
        return {}

    task = tasks.start("test", work)
    wait(lambda: task.finished)
    assert task.warnings == ["2 items were skipped"]
    assert "/home/ann/.cache/a" in caplog.text


def test_a_task_is_cancelled_while_it_runs_or_waits(tasks: Tasks) -> None:
    running, waiting = tasks.start("x", endless), tasks.start("x", endless)
    wait(lambda: running.done > 3)
    tasks.stop(waiting)
    assert waiting.state == "cancelled"
    tasks.stop(running)
    wait(lambda: running.finished)
    assert (running.state, running.result) == ("cancelled", None)


def test_an_error_ends_one_task_and_not_the_others(tasks: Tasks) -> None:
    def fail(progress: Progress, warn: Warn) -> dict[str, Any]:
        raise InputError("cannot be used")

    def crash(progress: Progress, warn: Warn) -> dict[str, Any]:
        raise ZeroDivisionError

    first, second = tasks.start("x", fail), tasks.start("x", crash)
    third = tasks.start("x", lambda progress, warn: {})
    wait(lambda: third.finished)
    assert [task.state for task in (first, second, third)] == ["failed", "failed", "done"]
    assert str(first.error) == "cannot be used"


def test_few_can_wait_and_old_ones_are_forgotten(tasks: Tasks) -> None:
    stop = threading.Event()

    def hold(progress: Progress, warn: Warn) -> dict[str, Any]:
        stop.wait(60)
        return {}

    tasks.start("x", hold)
    wait(lambda: tasks.list()[0].state == "running")
    many = [tasks.start("x", lambda progress, warn: {}) for _ in range(MOST_WAITING)]
    with pytest.raises(Exception, match="jobs are waiting"):
        tasks.start("x", hold)
    stop.set()
    wait(lambda: many[-1].finished)
    for _ in range(3):
        last: list[Task] = [tasks.start("x", lambda progress, warn: {}) for _ in range(MOST_WAITING // 2)]
        wait(partial(getattr, last[-1], "finished"))
    tasks.start("x", lambda progress, warn: {})
    assert len(tasks.list()) <= KEPT + 1


def test_closing_stops_what_runs() -> None:
    tasks = Tasks()
    task = tasks.start("x", endless)
    wait(lambda: task.done > 0)
    tasks.close()
    assert task.state == "cancelled"


def test_what_the_end_of_the_server_interrupts_is_shown_and_can_be_started_again(
    tmp_path: Path, truth: dict[str, str]
) -> None:
    """The first job runs and the second waits when the server ends; a third was stopped by a person."""
    new = {"source": 1, "attribute": "place", "groups": ["sea", "wood"], "basis": "perceived"}
    with opened_desk(tmp_path / "project", [str(tmp_path / "posts.csv")]) as desk:
        desk.post("/projects", new, 201)
        running = desk.space.begin("audit", endless, "/projects/1/audit")
        waiting = desk.post("/projects/1/sample", {"size": 20}, 202)
        stopped = desk.post("/projects/1/sample", {"size": 30}, 202)
        assert desk.call("DELETE", f"/jobs/{stopped['job']}")["state"] == "cancelled"
        wait(lambda: desk.get(f"/jobs/{running.job}")["state"] == "running")
    with opened_desk(tmp_path / "project", [str(tmp_path / "posts.csv")]) as desk:
        jobs = desk.get("/jobs")
        assert [(job["id"], job["state"]) for job in jobs] == [
            (running.job, "interrupted"),
            (waiting["job"], "interrupted"),
        ]
        request = jobs[1]["request"]
        assert request == {"path": "/projects/1/sample", "body": {"size": 20}}
        assert desk.finish(desk.post(request["path"], request["body"], 202))["drawn"] == 20
        desk.call("DELETE", f"/jobs/{running.job}")
        assert [job["state"] for job in desk.get("/jobs")] == ["done"]  # neither waits to be started any more
    with opened_desk(tmp_path / "project", [str(tmp_path / "posts.csv")]) as desk:
        assert desk.get("/jobs") == []
