"""ClusterEngine: the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from divscore.errors import DivscoreError, InputError, MissingExtraError
from divscore.jobs.engine import Engine, KilledWorkersError

__all__ = ["ClusterEngine", "connect"]


# How a cluster's scheduler is found: by its address, or by the file that it writes.

CONNECT_SECONDS = 10.0
EXPECTED = (
    "expected the address that 'dask scheduler' prints, such as tcp://10.0.0.5:8786, or the file that its "
    "--scheduler-file names"
)


def connect(address: str) -> Any:
    """A client of the cluster, or an error that says what an address should be."""
    try:
        import distributed
    except ImportError as error:
        raise MissingExtraError("--cluster needs Dask: pip install 'divscore[dask]'") from error
    client: Any = distributed.Client  # which says nothing of its types
    try:
        where = _read_address(address) if os.path.isfile(address) else _with_port(address)
        _check_scheduler(where)
        return client(where, timeout=CONNECT_SECONDS, set_as_default=False, name="divscore")
    except InputError:
        raise
    except Exception as error:  # Dask has no errors of its own for what may be wrong with an address
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"no cluster answers at {address or 'an empty address'} ({said}); {EXPECTED}"
        ) from error


def _with_port(address: str) -> str:
    """An address; what cannot be one is the name of a file that is not there."""
    if address and "://" not in address and (address.endswith(".json") or ":" not in address):
        wrong = "is a folder" if os.path.isdir(address) else "does not exist"
        raise InputError(f"{address} {wrong}, and an address would have a port; {EXPECTED}")
    return address


def _read_address(path: str) -> str:
    """The address in a scheduler's file."""
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
    except ValueError:
        found = None
    address = found.get("address") if isinstance(found, dict) else None
    if not isinstance(address, str):
        raise InputError(
            f"{path} names no scheduler; expected the file that 'dask scheduler --scheduler-file' writes"
        )
    return address


def _check_scheduler(address: str) -> None:
    """Ask who answers there: Dask's client would wait for ever for the greeting of another program."""
    # In a thread of its own, as this one may have a loop that runs, as in a notebook.
    with ThreadPoolExecutor(1) as aside:
        answer = aside.submit(asyncio.run, _identity(address)).result()
    if answer != "Scheduler":
        raise InputError(
            f"at {address} answers a {answer}, not a scheduler; give the address that 'dask scheduler' prints"
        )


async def _identity(address: str) -> str:
    import distributed

    dask: Any = distributed  # which says nothing of its types

    async def ask() -> str:
        settings = dask.Security().get_connection_args("client")
        async with dask.rpc(address, timeout=CONNECT_SECONDS, connection_args=settings) as there:
            return str((await there.identity())["type"])

    try:
        return await asyncio.wait_for(ask(), CONNECT_SECONDS)
    except TimeoutError as error:
        raise TimeoutError("nobody answers, or somebody else than Dask does") from error


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
