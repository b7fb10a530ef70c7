"""ProcessPool: processes that may be killed at any moment."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time

import pytest
from family import alive, children
from tasks import fail_oddly

from divscore.jobs.processes import ProcessPool, WorkerDiedError


@pytest.mark.parametrize("moment", [0.0, 0.01, 0.03, 0.1])
def test_processes_end_in_the_middle_of_whatever_they_send(moment: float) -> None:
    pool = ProcessPool(2)
    assert [pool.submit(abs, -n).result() for n in range(3)] == [0, 1, 2]
    waiting = [pool.submit(bytes, 40_000_000) for _ in range(8)]
    time.sleep(moment)
    pool.kill()
    pool.shutdown(cancel_futures=True)
    assert all(future.done() for future in waiting)
    for future in waiting:
        if not future.cancelled():
            assert isinstance(future.exception(), WorkerDiedError | None)


def test_a_worker_that_died_while_idle_is_replaced_before_it_is_asked() -> None:
    with ProcessPool(1) as pool:
        for number in (signal.SIGKILL, signal.SIGTERM):
            process = pool.submit(os.getpid).result()
            os.kill(process, number)
            while alive(process):
                time.sleep(0.01)
            assert pool.submit(os.getpid).result() != process


def test_a_pool_that_nobody_shuts_down_does_not_keep_a_process_from_ending() -> None:
    code = (
        "from divscore.jobs.processes import ProcessPool\n"
        "if __name__ == '__main__':\n"
        "    pool = ProcessPool(2)\n"
        "    assert pool.submit(abs, -3).result() == 3\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_workers_end_with_a_parent_that_was_killed() -> None:
    code = (
        "import os, time\n"
        "from divscore.jobs.processes import ProcessPool\n"
        "if __name__ == '__main__':\n"
        "    pool = ProcessPool(2)\n"
        "    busy = [pool.submit(time.sleep, 60) for _ in range(2)]\n"
        "    busy[0].result()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        until = time.monotonic() + 60
        while len(children(parent.pid)) < 3 and time.monotonic() < until:  # two workers and their tracker
            time.sleep(0.02)
        workers = children(parent.pid)
        parent.kill()
    assert len(workers) == 3
    until = time.monotonic() + 30
    while any(alive(pid) for pid in workers) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [pid for pid in workers if alive(pid)]


def test_a_worker_that_cannot_begin_is_told() -> None:
    with ProcessPool(1) as pool, pytest.raises(WorkerDiedError, match="a worker ended with code 3"):
        pool.submit(os._exit, 3).result()


def test_errors_of_a_worker_arrive_with_the_place_where_they_were_raised() -> None:
    with ProcessPool(1) as pool:
        with pytest.raises(ValueError, match="invalid literal") as plain:
            pool.submit(int, "one").result()
        with pytest.raises(RuntimeError, match="OddError: this and that") as odd:
            pool.submit(fail_oddly, 1).result()
        with pytest.raises((AttributeError, pickle.PicklingError)):
            pool.submit(lambda: 1).result()
        assert pool.submit(int, "1").result() == 1
    assert "Traceback" in str(plain.value.__cause__)
    assert "fail_oddly" in str(odd.value.__cause__)
