"""ClusterEngine: the workers of a Dask cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from divscore.engines.engine import Engine
from divscore.errors import DivscoreError, InputError, MissingExtraError

__all__ = ["ClusterEngine"]

T = TypeVar("T")
R = TypeVar("R")
CONNECT_SECONDS = 10.0
WORKERS_SECONDS = 60.0  # how long a cluster may have no worker at all
LOOK_SECONDS = 2.0
CLOSE_SECONDS = 10.0


class ClusterEngine(Engine):
    """Runs tasks on a Dask cluster; killed workers and lost nodes are made up for.

    `address` is the scheduler's, or the file that ``dask scheduler --scheduler-file`` writes.
    """

    def __init__(self, address: str, *, patience: float = WORKERS_SECONDS) -> None:
        self.address = address
        self.patience = patience
        self._held: Any = None
        self._client = _connect(address)
        try:
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
        self._client.close(timeout=CLOSE_SECONDS)

    def run(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[tuple[T, R]]:
        """Yield every task with its result, in the order of the tasks.

        The function, and what it carries along, is a task of its own on which the others depend: workers get it once
        and from each other. Unlike what is scattered, a task is done again when the node that holds it is lost.
        """
        self._held = self._client.submit(_carry, _Carried(function), pure=False)
        try:
            yield from super().run(function, tasks)
        finally:
            self._held = None

    def _submit(self, function: Callable[[T], R], task: T) -> Future[R]:
        return self.executor.submit(_call, self._held, task)

    def _result(self, future: Future[R]) -> R:
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
                raise DivscoreError(
                    f"several workers died over the same part ({error.task}); is there enough memory on them?"
                ) from error
            now = time.monotonic()
            alone_since = None if self._threads() else alone_since or now
            if alone_since is not None and now - alone_since > self.patience:
                raise DivscoreError(
                    f"the cluster at {self.address} has had no worker for {self.patience:.0f} seconds; start some, and "
                    "the command again"
                )

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
                raise InputError(
                    f"the cluster at {self.address} has no workers; start some with 'dask worker {self.address}'"
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


def _connect(address: str) -> Any:
    try:
        import distributed
    except ImportError as error:
        raise MissingExtraError("--cluster needs Dask: pip install 'divscore[dask]'") from error
    connect: Any = distributed.Client  # which says nothing of its types
    try:
        named = {"scheduler_file": address} if os.path.isfile(address) else {"address": address}
        return connect(**named, timeout=CONNECT_SECONDS, set_as_default=False, name="divscore")
    except (OSError, ValueError, TimeoutError) as error:
        said = " ".join(str(error).split())[:200]
        raise InputError(
            f"no cluster answers at {address} ({said}); expected the address that 'dask scheduler' prints, such as "
            "tcp://10.0.0.5:8786"
        ) from error


def _version() -> str:
    from importlib.metadata import version

    return version("divscore")
