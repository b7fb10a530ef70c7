"""ClusterEngine: the workers of a Dask cluster."""

from __future__ import annotations

import logging
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from divscore.errors import DivscoreError, InputError
from divscore.jobs.engine import Engine, KilledWorkersError
from divscore.jobs.scheduler import connect

__all__ = ["ClusterEngine"]

T = TypeVar("T")
R = TypeVar("R")
WORKERS_SECONDS = 60.0  # how long a cluster may have no worker at all
LOOK_SECONDS = 2.0
CLOSE_SECONDS = 10.0
TELL_SECONDS = 2.0  # of silence, until it is told what is waited for


class ClusterEngine(Engine):
    """Runs tasks on a Dask cluster; killed workers and lost nodes are made up for.

    `address` is the scheduler's, or the file that ``dask scheduler --scheduler-file`` writes. `tell` is given a line
    where it takes a while to find the scheduler, or the first of its workers.
    """

    def __init__(
        self,
        address: str,
        *,
        patience: float = WORKERS_SECONDS,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.address = address
        self.patience = patience
        self._held: Any = None
        with _told_late(tell, f"connecting to {address}"):
            self._client = connect(address)
        try:
            waiting = f"waiting for the first worker of {address} (up to {patience:.0f} s)"
            with _told_late(tell, waiting):
                threads = self._wait_for_workers()
            self._check_versions()
        except BaseException:
            self.close()
            raise
        executor: Executor = self._client.get_executor(pure=False)
        super().__init__(executor=executor)
        self.workers = threads

    def close(self) -> None:
        """Leave the cluster, which goes on for others."""
        with _closing_quietly():
            self._client.close(timeout=CLOSE_SECONDS)

    def run(
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        large: bool = False,
        killed: Callable[[T, str], R] | None = None,
    ) -> Iterator[tuple[T, R]]:
        """Yield every task with its result, in the order of the tasks.

        The function, and what it carries along, is a task of its own on which the others depend: workers get it once
        and from each other. Unlike what is scattered, a task is done again when the node that holds it is lost.
        """
        self._held = self._client.submit(_carry, _Carried(function), pure=False)
        try:
            yield from super().run(function, tasks, large=large, killed=killed)
        finally:
            self._held = None

    def result(self, future: Future[R], what: object) -> R:
        """Wait for a result, as long as there are workers; Dask itself tries again what went down with one."""
        from distributed.scheduler import KilledWorker

        alone_since: float | None = None
        while True:
            try:
                return future.result(LOOK_SECONDS)
            except TimeoutError:
                if future.done():
                    raise
            except RuntimeError as error:
                if "deserialization" not in str(error):
                    raise
                raise InputError(
                    f"the scheduler at {self.address} cannot load divscore; install the same version on every machine"
                ) from error
            except KilledWorker as error:
                if self._held is not None and error.task == self._held.key:
                    raise DivscoreError(
                        "workers died before they began; is there enough memory on them?"
                    ) from error
                raise KilledWorkersError(
                    f"{what}: several workers died over it, one after the other; is there enough memory on them?"
                ) from error
            except CancelledError as error:
                raise DivscoreError(
                    f"the cluster at {self.address} dropped {what}: was it stopped? Start it, and the command, again"
                ) from error
            now = time.monotonic()
            alone_since = None if self._threads() else alone_since or now
            if alone_since is not None and now - alone_since > self.patience:
                raise DivscoreError(
                    f"the cluster at {self.address} has had no worker for {self.patience:.0f} seconds; start some, and "
                    "the command again"
                )

    def _submit(self, function: Callable[[T], R], task: T) -> Future[R]:
        return self.executor.submit(_call, self._held, task)

    def _threads(self) -> int:
        """Threads of all workers; none as well when the scheduler does not answer."""
        try:
            return sum(self._client.nthreads().values())
        except Exception:  # the client raises a dozen things while it is being disconnected
            return 0

    def _wait_for_workers(self) -> int:
        deadline = time.monotonic() + self.patience
        while not (threads := self._threads()):
            if time.monotonic() > deadline:
                where = shlex.quote(self.address)
                if os.path.isfile(self.address):
                    where = f"--scheduler-file {where}"
                raise InputError(
                    f"the cluster at {self.address} has no workers; start some with 'dask worker {where}'"
                )
            time.sleep(0.2)
        return threads

    def _check_versions(self) -> None:
        mine = _version()
        found = self._client.run(_version, on_error="return")
        for worker, version in found.items():
            if isinstance(version, Exception):
                raise InputError(
                    f"the worker at {worker} cannot load divscore ({version}); install divscore {mine} there"
                )
            if version != mine:
                raise InputError(
                    f"the worker at {worker} has divscore {version}, this is {mine}; install the same everywhere"
                )


@dataclass(frozen=True)
class _Carried(Generic[T, R]):
    """A function as data: a bare one would be called by Dask's own rules for what may be an argument."""

    function: Callable[[T], R]


def _carry(carried: _Carried[T, R]) -> _Carried[T, R]:
    return carried


def _call(carried: _Carried[T, R], task: T) -> R:
    return carried.function(task)


@contextmanager
def _closing_quietly() -> Iterator[None]:
    """Results that are on their way when a client leaves are wanted by nobody; it would tell at length of each."""

    def wanted(record: logging.LogRecord) -> bool:
        return "CommClosedError" not in record.getMessage()

    log = logging.getLogger("tornado.application")
    log.addFilter(wanted)
    try:
        yield
    finally:
        log.removeFilter(wanted)


@contextmanager
def _told_late(tell: Callable[[str], None], line: str) -> Iterator[None]:
    """Tell what is being waited for, once, where it takes so long that somebody might wonder."""
    timer = threading.Timer(TELL_SECONDS, tell, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _version() -> str:
    from importlib.metadata import version

    return version("divscore")
