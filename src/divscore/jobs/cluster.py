"""ClusterEngine: the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, InvalidStateError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from divscore.errors import DivscoreError, InputError, MissingExtraError
from divscore.jobs.engine import DeadlyTaskError, Engine

T = TypeVar("T")
R = TypeVar("R")
CONNECT_SECONDS = 10.0
WORKERS_SECONDS = 60.0  # that a cluster may be without workers
POLL_SECONDS = 2.0
CLOSE_SECONDS = 10.0
NOTIFY_SECONDS = 2.0  # of waiting, before the user is notified
EXPECTED = (
    "expected the address that 'dask scheduler' prints, such as tcp://10.0.0.5:8786, or the file given to its "
    "--scheduler-file"
)


class ClusterEngine(Engine):
    """Runs tasks on a Dask cluster; the work of killed workers and nodes is done again.

    `address` is the scheduler's, or the file that ``dask scheduler --scheduler-file`` writes. `notify` is called with
    a line of text if it takes a while to find the scheduler or its first worker. `patience` is how many seconds the
    cluster may be without any worker.
    """

    attempts = 2  # Dask itself tries a task several times

    def __init__(
        self,
        address: str,
        *,
        patience: float = WORKERS_SECONDS,
        notify: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.address = address
        self.patience = patience
        with _notified(notify, f"connecting to {address}"):
            self._client = _connect(address)
        try:
            deadline = time.monotonic() + patience
            with _notified(notify, f"waiting for the first worker of {address} (up to {patience:.0f} s)"):
                while not (threads := self._threads()):
                    if time.monotonic() > deadline:
                        option = "--scheduler-file " if os.path.isfile(address) else ""
                        raise InputError(
                            f"the cluster at {address} has no workers; start some with 'dask worker "
                            f"{option}{shlex.quote(address)}'"
                        )
                    time.sleep(0.2)
            expected = _version()
            for worker, version in self._client.run(_version, on_error="return").items():
                if isinstance(version, Exception):
                    raise InputError(
                        f"the worker at {worker} cannot load divscore ({version}); install divscore {expected} there"
                    )
                if version != expected:
                    raise InputError(
                        f"the worker at {worker} has divscore {version}, this machine has {expected}; install the "
                        "same version everywhere"
                    )
        except BaseException:
            self.close()
            raise
        super().__init__(threads, executor=_Tasks(self._client))
        self.workers = threads

    def close(self) -> None:
        """Disconnect; the cluster keeps running for others."""

        def wanted(record: logging.LogRecord) -> bool:
            # The client logs a traceback for every result that is in flight when it disconnects.
            return "CommClosedError" not in record.getMessage()

        log = logging.getLogger("tornado.application")
        log.addFilter(wanted)
        try:
            self._client.close(timeout=CLOSE_SECONDS)
        finally:
            log.removeFilter(wanted)

    def _prepare(self, function: Callable[[T], R]) -> Any:
        """Make the function a task on which the others depend: workers get it, and its data, once.

        Unlike scattered data, a task is done again when the node that has its result goes down.
        """
        return self._client.submit(_identity, _Function(function), pure=False)

    def _submit(self, work: Any, task: T) -> Future[Any]:
        assert self._executor is not None
        return self._executor.submit(_call, work, task)

    def _wait(self, work: Any, task: object, future: Future[R]) -> R:
        """Wait for a result as long as there are workers."""
        from distributed.scheduler import KilledWorker

        empty_since: float | None = None
        while True:
            try:
                return future.result(POLL_SECONDS)
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
                if error.task == work.key:
                    raise DivscoreError(
                        "workers died before they began. Do they have enough memory?"
                    ) from error
                raise DeadlyTaskError(
                    f"{task}: several workers died on it, one after the other. Do they have enough memory?"
                ) from error
            except CancelledError as error:
                raise DivscoreError(
                    f"the cluster at {self.address} dropped {task}: was it stopped? Start it, then run the command "
                    "again"
                ) from error
            now = time.monotonic()
            empty_since = None if self._threads() else empty_since or now
            if empty_since is not None and now - empty_since > self.patience:
                raise DivscoreError(
                    f"the cluster at {self.address} has had no worker for {self.patience:.0f} seconds; start workers, "
                    "then run the command again"
                )

    def _threads(self) -> int:
        """Threads of all workers; 0 also if the scheduler does not answer."""
        try:
            return sum(self._client.nthreads().values())
        except Exception:  # the client raises a dozen different errors while it is being disconnected
            return 0


class _Tasks(Executor):
    """Runs functions on a cluster.

    Dask's own executor asks for the state of a task after it has fetched the result. If the worker dies between the
    two, it fails with a TypeError, although the result is here.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def submit(self, function: Callable[..., R], /, *arguments: Any, **options: Any) -> Future[R]:
        """Submit a task; to cancel the future is to cancel the task."""
        remote = self._client.submit(function, *arguments, **options, pure=False)
        local: Future[R] = Future()

        async def pass_on() -> None:
            with suppress(InvalidStateError):  # nobody wants it any more
                try:
                    local.set_result(await remote._result())
                except (CancelledError, asyncio.CancelledError):
                    local.cancel()
                except BaseException as error:
                    local.set_exception(error)

        def cancel(_: Future[R]) -> None:
            if local.cancelled() and not remote.cancelled():
                remote.cancel()

        local.add_done_callback(cancel)
        self._client.loop.add_callback(pass_on)
        return local


@dataclass(frozen=True)
class _Function:
    """A function as data: Dask would treat a bare one by its own rules for arguments."""

    function: Callable[[Any], Any]


def _identity(function: _Function) -> _Function:
    return function


def _call(function: _Function, task: Any) -> Any:
    return function.function(task)


def _connect(address: str) -> Any:
    """Connect to a scheduler by its address, or by the file that it writes."""
    try:
        import distributed
    except ImportError as error:
        raise MissingExtraError.of("--cluster needs Dask", "dask") from error
    dask: Any = distributed  # it has no types
    try:
        url = _read_address(address) if os.path.isfile(address) else address
        if url and "://" not in url and (url.endswith(".json") or ":" not in url):
            problem = "is a folder" if os.path.isdir(url) else "does not exist"
            raise InputError(f"{url} {problem}, and it is not an address: it has no port; {EXPECTED}")
        # In its own thread, as this thread may already run an event loop, as in a notebook.
        with ThreadPoolExecutor(1) as aside:
            kind = aside.submit(asyncio.run, _ask_kind(dask, url)).result()
        if kind != "Scheduler":
            raise InputError(
                f"{url} is the address of a {kind}, not of a scheduler; give the address that 'dask scheduler' prints"
            )
        return dask.Client(url, timeout=CONNECT_SECONDS, set_as_default=False, name="divscore")
    except InputError:
        raise
    except Exception as error:  # Dask has no errors of its own for a wrong address
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"no cluster answers at {address or 'an empty address'} ({reason}); {EXPECTED}"
        ) from error


def _read_address(path: str) -> str:
    """Read the address from a scheduler's file."""
    try:
        with open(path, encoding="utf-8") as stream:
            content = json.load(stream)
    except ValueError:
        content = None
    address = content.get("address") if isinstance(content, dict) else None
    if not isinstance(address, str):
        raise InputError(
            f"{path} has no scheduler's address; expected the file that 'dask scheduler --scheduler-file' writes"
        )
    return address


async def _ask_kind(dask: Any, address: str) -> str:
    """Ask who answers at an address: Dask's client would wait forever for the greeting of another program."""

    async def ask() -> str:
        settings = dask.Security().get_connection_args("client")
        async with dask.rpc(address, timeout=CONNECT_SECONDS, connection_args=settings) as remote:
            return str((await remote.identity())["type"])

    try:
        return await asyncio.wait_for(ask(), CONNECT_SECONDS)
    except TimeoutError as error:
        raise TimeoutError("no answer, or the answer of another program than Dask") from error


@contextmanager
def _notified(notify: Callable[[str], None], line: str) -> Iterator[None]:
    """Say once what is waited for, if it takes so long that the user may wonder."""
    timer = threading.Timer(NOTIFY_SECONDS, notify, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _version() -> str:
    from importlib.metadata import version

    return version("divscore")
