"""Pipeline: items to outcomes in their order, several at work, a bounded number on the way."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
)
from dataclasses import replace

import numpy as np

from divscore.errors import DivscoreError
from divscore.halt import heed
from divscore.jobs.engine import Engine, KilledWorkersError
from divscore.jobs.outcome import UNREADABLE, Entry, Outcome
from divscore.jobs.processes import Processes
from divscore.jobs.work import Task, encode_contents, encode_elsewhere, loaded, recall
from divscore.sources.items import Items
from divscore.sources.places import anywhere

__all__ = ["Pipeline", "chunks"]

# Items of one checkpoint: so many may be on the way at once, and are repeated after a kill.
BATCH = {"image": 64, "text": 16384}
LARGEST_CHUNK = {"image": 8, "text": 4096}
GIVE_UP_AFTER = 3
KILLED = (BrokenExecutor, KilledWorkersError)


class Pipeline:
    """Runs one task over items with some workers; workers start with the first items and stop with `close`.

    One worker means this thread. Encoders that hold Python's lock get processes, the others threads. An engine is
    someone else's workers, perhaps on other machines.
    """

    def __init__(self, task: Task, workers: int = 1, engine: Engine | None = None) -> None:
        self.task = task
        self.workers = max(1, workers if engine is None else engine.workers)
        self.batch = BATCH[task.spec.kind]
        self._given = engine
        self._own: Executor | None = None
        self._crashes = 0

    @property
    def chunk(self) -> int:
        """Items that a worker takes at once; those of all workers, and as many waiting, are within one batch."""
        return max(1, min(self.batch // (2 * self.workers), LARGEST_CHUNK[self.task.spec.kind]))

    def run(
        self, items: Iterable[Items], remember: Callable[[Outcome], None] = lambda outcome: None
    ) -> Iterator[tuple[Items, Outcome]]:
        """Encode chunks that were cut by `chunks`; `remember` is told of each outcome in the same order."""
        if self.workers == 1 and self._given is None:
            for some in items:
                outcome = encode_contents(self.task, some.contents)
                remember(outcome)
                yield some, outcome
            return
        waiting: deque[tuple[Items, Future[Outcome]]] = deque()
        limit = max(1, self.batch // self.chunk)
        for some in items:
            known, contents = recall(self.task, some.contents)
            piece = replace(some, contents=contents)
            waiting.append((piece, self._submit(piece) if known is None else _finished(known)))
            while len(waiting) >= limit:
                yield self._next(waiting, remember)
        while waiting:
            yield self._next(waiting, remember)

    def close(self, at_once: bool = False) -> None:
        """Let the workers go; processes in the middle of their work, if it is no longer wanted."""
        if at_once and isinstance(self._own, Processes):
            self._own.end()
        if self._own is not None:
            self._own.shutdown(wait=True, cancel_futures=True)
            self._own = None

    def _next(
        self, waiting: deque[tuple[Items, Future[Outcome]]], remember: Callable[[Outcome], None]
    ) -> tuple[Items, Outcome]:
        some, future = waiting[0]
        try:
            outcome = self._wait(some, future)
        except KILLED:
            # A worker was killed, perhaps by one of these items: try them one by one.
            outcome = self._carefully(some)
        waiting.popleft()
        remember(outcome)
        return some, outcome

    def _wait(self, some: Items, future: Future[Outcome]) -> Outcome:
        if self._given is None:
            return future.result()
        try:
            return self._given.result(future, f"the items from {some.ids[0]} on")
        except CancelledError as error:
            raise DivscoreError(
                f"the workers dropped the items from {some.ids[0]} on: were they stopped? Start them, and the command, "
                "again"
            ) from error

    def _submit(self, some: Items) -> Future[Outcome]:
        if self._given is not None:
            return self._given.executor.submit(encode_elsewhere, *_sent(self.task, some.contents))
        return self._executor().submit(encode_contents, self.task, some.contents)

    def _carefully(self, some: Items) -> Outcome:
        parts = []
        for at in range(len(some)):
            one = some.slice(at, at + 1)
            try:
                parts.append(self._wait(one, self._submit(one)).entry(0))
                self._crashes = 0
            except KILLED as error:
                self._crashes += 1
                if self._crashes >= GIVE_UP_AFTER:
                    raise DivscoreError(
                        f"the workers died on {self._crashes} items in a row, the last of them {one.ids[0]}; is there "
                        "enough memory? Try --workers 1, which shows what happens"
                    ) from error
                none = np.empty((0, loaded(self.task).dimension), dtype=np.float32)
                parts.append(Entry(none, 0, UNREADABLE, "made its worker crash"))
        count = len(parts)
        dimension = loaded(self.task).dimension
        return Outcome.of(parts, [b""] * count, np.zeros(count, dtype=bool), dimension)

    def _executor(self) -> Executor:
        if self._own is None:
            apart = self.task.spec.about.processes
            self._own = Processes(self.workers, _start_worker) if apart else ThreadPoolExecutor(self.workers)
        return self._own


def _sent(task: Task, contents: Sequence[str | bytes]) -> tuple[Task, list[str | bytes], list[str]]:
    """What another machine needs: paths that do not depend on this folder, and those that it must find."""
    # It has no cache, or one of its own; what this one knows was looked up before.
    task = replace(task, cache=None, spec=replace(task.spec, model=anywhere(task.spec.model)))
    if task.spec.kind == "text":
        return task, list(contents), []
    sent = [anywhere(each) if isinstance(each, str) else each for each in contents]
    return task, sent, [each for each in sent if isinstance(each, str) and os.path.isabs(each)]


def _finished(outcome: Outcome) -> Future[Outcome]:
    future: Future[Outcome] = Future()
    future.set_result(outcome)
    return future


def _start_worker() -> None:
    """In a worker process: Pillow's talk of odd metadata is nobody's business."""
    import warnings

    warnings.filterwarnings("ignore", module="PIL")


def chunks(items: Iterable[Items], size: int) -> Iterator[Items]:
    """Cut runs of items into pieces of `size`, the last of a run perhaps smaller."""
    for run in items:
        for start in range(0, len(run), size):
            heed()
            yield run.slice(start, start + size)
