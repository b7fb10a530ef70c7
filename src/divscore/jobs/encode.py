"""Encoding: what a command was told about encoders, cache and workers, and the pipelines made of it."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
)
from contextlib import closing
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.registry import DEFAULTS, ENCODERS, Encoder, EncoderSpec, Kind
from divscore.errors import DivscoreError, FileError, InputError, MismatchError, check_cancelled
from divscore.jobs.cache import EMPTY, READ, UNREADABLE, Cache, Entry, Outcome
from divscore.jobs.engine import Engine, KilledWorkersError
from divscore.jobs.processes import Processes
from divscore.jobs.projection import Projection
from divscore.sources.items import ItemBatch, Items
from divscore.sources.labelled import ENCODER_KEY
from divscore.sources.pictures import MAX_BYTES, decode
from divscore.sources.places import Location, UnseenError, anywhere, unseen
from divscore.sources.table import PROBLEMS_KEPT, Block, Request, Table
from divscore.text import without_secrets

__all__ = [
    "KEY_BYTES",
    "SEVERAL",
    "EncodedSource",
    "Encoding",
    "Pipeline",
    "Task",
    "cache_of",
    "chunks",
    "encode_contents",
    "encode_elsewhere",
    "fingerprint",
    "loaded",
    "read_picture",
    "recall",
    "signature",
]


# Contents of items: read a picture's bytes from wherever it lies, within bounds; fingerprints.

KEY_BYTES = 16


def fingerprint(content: str | bytes) -> bytes:
    """Tell contents apart: equal ones, and only those, have the same fingerprint."""
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return hashlib.blake2b(data, digest_size=KEY_BYTES).digest()


def read_picture(content: str | bytes) -> bytes:
    """Bytes of a picture, or a FileError with the reason why there are none."""
    if isinstance(content, bytes):
        return content
    if not content.strip():
        raise FileError("has no path")
    try:
        return _fetch(content) if "://" in content else _read_contents(content)
    except DivscoreError:
        raise
    except FileNotFoundError as error:
        raise FileError("does not exist") from error
    except Exception as error:
        # Reading a file raises two kinds of errors; fetching one, whatever its kind of store thinks of.
        if "://" not in content and not isinstance(error, OSError | ValueError):
            raise
        said = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise FileError(f"cannot be read: {without_secrets(said)[:120]}") from error


def signature(content: str | bytes, kind: str) -> bytes:
    """Tell whether an item is the same as at an earlier start, without reading a picture again."""
    if kind == "image" and isinstance(content, str) and "://" not in content:
        try:
            about = os.stat(content)
        except (OSError, ValueError):
            return fingerprint(content)
        return fingerprint(
            content.encode("utf-8", "surrogatepass") + b"%d %d" % (about.st_size, about.st_mtime_ns)
        )
    return fingerprint(content)


def _read_contents(path: str) -> bytes:
    # A pipe or a device would never end; opening one would wait for ever.
    about = os.stat(path)
    if not stat.S_ISREG(about.st_mode):
        raise FileError("is a folder" if stat.S_ISDIR(about.st_mode) else "is not a regular file")
    _check_size(about.st_size)
    with open(path, "rb") as stream:
        return stream.read(MAX_BYTES + 1)


def _fetch(url: str) -> bytes:
    import fsspec

    with fsspec.open(url, "rb") as stream:
        data = cast(bytes, stream.read(MAX_BYTES + 1))
    _check_size(len(data))
    return data


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise FileError(f"is larger than {MAX_BYTES >> 20} MB")


# The unit of work: some contents in, their outcome out, in whichever thread, process or machine.

FETCHED_AT_ONCE = 8
_LOCK = threading.Lock()
_ENCODERS: dict[tuple[EncoderSpec, int], Encoder] = {}
_CACHES: dict[tuple[str, str], Cache] = {}


@dataclass(frozen=True)
class Task:
    """How to encode: with which encoder and how many threads of its own, and where vectors are remembered."""

    spec: EncoderSpec
    threads: int = 0
    cache: str | None = None


def loaded(task: Task) -> Encoder:
    """The encoder, loaded once a process."""
    key = (task.spec, task.threads)
    with _LOCK:
        if key not in _ENCODERS:
            _ENCODERS[key] = task.spec.load(task.threads)
        return _ENCODERS[key]


def cache_of(task: Task) -> Cache | None:
    """The cache of the task's encoder, if there is to be one."""
    if task.cache is None:
        return None
    encoder = loaded(task)
    identity = f"{encoder.identity} {encoder.variant}"
    with _LOCK:
        return _CACHES.setdefault((task.cache, identity), Cache(task.cache, identity, encoder.dimension))


def encode_contents(task: Task, contents: Sequence[str | bytes]) -> Outcome:
    """Read, decode and encode; what cannot be read or holds nothing is told, never raised."""
    work = _Work(task, contents)
    work.entries |= _encode(work.encoder, task.spec.kind, {item: work.data[item] for item in work.unknown()})
    return work.outcome()


def encode_elsewhere(task: Task, contents: Sequence[str | bytes], here: Sequence[str]) -> Outcome:
    """The same on another machine, which must see the files that are there for whoever sent them."""
    for path in here:
        if not os.path.exists(path):
            raise UnseenError(unseen(path))
    return encode_contents(task, contents)


def recall(task: Task, contents: Sequence[str | bytes]) -> tuple[Outcome | None, Sequence[str | bytes]]:
    """The outcome if all of these were encoded before, so that no worker need be bothered, and what was read of them.

    What lies elsewhere is fetched here, once and several at a time, and handed to the worker as bytes.
    """
    remote = task.spec.kind == "image" and any(isinstance(each, str) and "://" in each for each in contents)
    if task.cache is None and not remote:
        return None, contents
    work = _Work(task, contents)
    return (None if work.unknown() else work.outcome()), work.data


class _Work:
    """Contents that were read, their fingerprints, and what is known of them without encoding."""

    def __init__(self, task: Task, contents: Sequence[str | bytes]) -> None:
        self.encoder = loaded(task)
        self.data: list[str | bytes] = list(contents)
        self.entries: dict[int, Entry] = {}
        for item, read in enumerate(_read_all(contents)) if task.spec.kind == "image" else ():
            if isinstance(read, bytes):
                self.data[item] = read
            else:
                self.entries[item] = _failure(self.encoder, UNREADABLE, str(read))
        self.keys = [
            b"" if item in self.entries else fingerprint(each) for item, each in enumerate(self.data)
        ]
        cache = cache_of(task)
        known = cache.lookup(self.keys) if cache else {}
        self.entries |= {item: known[key] for item, key in enumerate(self.keys) if key in known}
        self.fresh = np.array([item not in self.entries for item in range(len(self.data))], dtype=bool)

    def unknown(self) -> list[int]:
        return [int(item) for item in np.flatnonzero(self.fresh)]

    def outcome(self) -> Outcome:
        entries = [self.entries[item] for item in range(len(self.data))]
        return Outcome.of(entries, self.keys, self.fresh, self.encoder.dimension)


def _read_all(contents: Sequence[str | bytes]) -> Iterator[bytes | FileError]:
    if any(isinstance(each, str) and "://" in each for each in contents):
        with ThreadPoolExecutor(FETCHED_AT_ONCE) as pool:
            yield from pool.map(_read, contents)
        return
    yield from map(_read, contents)


def _read(content: str | bytes) -> bytes | FileError:
    try:
        return read_picture(content)
    except FileError as error:
        return error


def _encode(encoder: Encoder, kind: str, data: dict[int, str | bytes]) -> dict[int, Entry]:
    entries: dict[int, Entry] = {}
    usable: dict[int, Any] = {}
    for item, content in data.items():
        if kind == "text":
            usable[item] = content
            continue
        try:
            usable[item] = decode(bytes(content), enough=encoder.resolution)  # type: ignore[arg-type]
        except FileError as error:
            entries[item] = _failure(encoder, UNREADABLE, str(error))
    if not usable:
        return entries
    try:
        result = encoder.encode(list(usable.values()))
    except DivscoreError:
        raise
    except Exception as error:
        if len(usable) > 1:
            # One of them is to blame: the others must not suffer for it.
            return entries | {
                k: v for item in usable for k, v in _encode(encoder, kind, {item: data[item]}).items()
            }
        said = f"made the encoder fail ({type(error).__name__}: {' '.join(str(error).split())[:100]})"
        return entries | {item: _failure(encoder, UNREADABLE, said) for item in usable}
    starts = np.searchsorted(result.owner, np.arange(len(usable) + 1))
    for at, item in enumerate(usable):
        vectors = result.vectors[starts[at] : starts[at + 1]]
        if at in result.reasons:
            entries[item] = _failure(encoder, EMPTY, result.reasons[at])
        else:
            entries[item] = Entry(vectors, int(result.detected[at]))
    return entries


def _failure(encoder: Encoder, kind: str, reason: str) -> Entry:
    return Entry(np.empty((0, encoder.dimension), dtype=np.float32), 0, kind, reason)


# Pipeline: items to outcomes in their order, several at work, a bounded number on the way.

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
        self, items: Iterable[ItemBatch], remember: Callable[[Outcome], None] = lambda outcome: None
    ) -> Iterator[tuple[ItemBatch, Outcome]]:
        """Encode chunks that were cut by `chunks`; `remember` is told of each outcome in the same order."""
        if self.workers == 1 and self._given is None:
            for some in items:
                outcome = encode_contents(self.task, some.contents)
                remember(outcome)
                yield some, outcome
            return
        waiting: deque[tuple[ItemBatch, Future[Outcome]]] = deque()
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
        self, waiting: deque[tuple[ItemBatch, Future[Outcome]]], remember: Callable[[Outcome], None]
    ) -> tuple[ItemBatch, Outcome]:
        some, future = waiting[0]
        try:
            outcome = self._wait(some, future)
        except KILLED:
            # A worker was killed, perhaps by one of these items: try them one by one.
            outcome = self._carefully(some)
        waiting.popleft()
        remember(outcome)
        return some, outcome

    def _wait(self, some: ItemBatch, future: Future[Outcome]) -> Outcome:
        if self._given is None:
            return future.result()
        try:
            return self._given.result(future, f"the items from {some.ids[0]} on")
        except CancelledError as error:
            raise DivscoreError(
                f"the workers dropped the items from {some.ids[0]} on: were they stopped? Start them, and the command, "
                "again"
            ) from error

    def _submit(self, some: ItemBatch) -> Future[Outcome]:
        if self._given is not None:
            return self._given.executor.submit(encode_elsewhere, *_sent(self.task, some.contents))
        return self._executor().submit(encode_contents, self.task, some.contents)

    def _carefully(self, some: ItemBatch) -> Outcome:
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
            apart = self.task.spec.info.processes
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


def chunks(items: Iterable[ItemBatch], size: int) -> Iterator[ItemBatch]:
    """Cut runs of items into pieces of `size`, the last of a run perhaps smaller."""
    for run in items:
        for start in range(0, len(run), size):
            check_cancelled()
            yield run.slice(start, start + size)


FITTED_ON = 4096
SEVERAL = ("faces", "all")
INLINE = 24  # pictures for which starting processes would not pay


class Encoding:
    """Encoders, cache and workers of one run; a context manager that lets the workers go at its end.

    Parameters
    ----------
    name : str, optional
        Encoder; by default the control set's, or else the default for the kind of items.
    model : str, optional
        File, folder or name of the encoder's weights.
    options : mapping of str to str
        The encoder's own settings.
    pca : int or path, optional
        Shorten vectors: to so many numbers, fitted on a sample, or as a saved projection does.
    cache : path, optional
        Folder for vectors of items encoded before; None keeps none.
    workers : int
        How many at work.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        model: str | os.PathLike[str] | None = None,
        options: dict[str, str] | None = None,
        pca: int | str | os.PathLike[str] | None = None,
        cache: str | os.PathLike[str] | None = None,
        workers: int = 1,
    ) -> None:
        if name is not None and name not in ENCODERS:
            raise InputError(f"unknown encoder '{name}'; there are {', '.join(ENCODERS)}")
        self.name = name
        self.model = None if model is None else os.fspath(model)
        self.options = tuple(sorted((options or {}).items()))
        self.pca = pca if isinstance(pca, int) else None
        self.projection = None if pca is None or isinstance(pca, int) else Projection.load(pca)
        self.shortens = pca is not None
        self.cache = None if cache is None else os.fspath(cache)
        self.workers = workers
        self.engine: Engine | None = None  # where others do the work
        self.threads: int | None = (
            None  # of the encoder itself; by default one beside other workers, else all
        )
        self.followed: str | None = None  # the control set's encoder, where the user did not name one
        self._pipelines: dict[EncoderSpec, Pipeline] = {}

    def __enter__(self) -> Encoding:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(at_once=kind is not None)

    def hand_to(self, engine: Engine) -> None:
        """From now on, encode with the workers of this engine."""
        self.close()
        self.engine, self.workers = engine, engine.workers

    def close(self, at_once: bool = False) -> None:
        """Let the workers go; processes in the middle of their work, if it is no longer wanted."""
        for pipeline in self._pipelines.values():
            pipeline.close(at_once)
        self._pipelines.clear()

    def troubles(self) -> list[str]:
        """What went wrong with caches, which does not stop the work."""
        caches = [cache_of(pipeline.task) for pipeline in self._pipelines.values()]
        return [f"the cache {c.path} is not used any more ({c.trouble})" for c in caches if c and c.trouble]

    @property
    def forced(self) -> bool:
        """Whether the user asked for an encoder by name."""
        return self.name is not None

    def expect(self, identity: str | None, projection: Projection | None = None) -> None:
        """Follow a control set: its encoder, unless the user named one, and its projection."""
        if identity is None:
            return
        name = identity.partition("/")[0]
        if self.name is None and name in ENCODERS:
            self.name, self.followed = name, identity.partition(" pca=")[0]
        if projection is not None and self.projection is None:
            if self.pca is not None and self.pca != projection.size:
                raise MismatchError(
                    f"the control set has vectors of {projection.size} numbers, --pca asks for {self.pca}; "
                    "leave --pca out"
                )
            self.projection = projection

    def spec(self, kind: Kind, single: bool = False) -> EncoderSpec:
        """The encoder for items of a kind; `single` for one vector an item, as a labelled example has."""
        options = tuple(each for each in self.options if not (single and each == SEVERAL))
        return EncoderSpec(self.name or DEFAULTS[kind], kind, self.model, options)

    def encoder(self, kind: Kind) -> Encoder:
        """Load the encoder for items of a kind."""
        encoder = loaded(self._task(kind))
        if self.followed and encoder.identity != self.followed and not self.options:
            # The control set's settings may not be the usual ones; its identity spells them out.
            self.options = _settings(str(self.name), self.followed)
            try:
                encoder = loaded(self._task(kind))
            except InputError:
                self.options = ()  # spelled in a way that is no option: the mismatch is told where it matters
        return encoder

    def identity(self, kind: Kind) -> str:
        """What vectors of this run are called."""
        identity = self.encoder(kind).identity
        if self.projection is not None:
            self.projection.check(identity)
            return self.projection.identity
        return identity

    def run(self, source: Items, single: bool = False) -> Iterator[tuple[ItemBatch, Outcome]]:
        """Encode the items of a source, in their order; vectors are as the encoder gave them."""
        pipeline = self.pipeline(source, single)
        yield from self.run_pieces(pipeline, chunks(source, pipeline.chunk))

    def run_pieces(
        self, pipeline: Pipeline, pieces: Iterator[ItemBatch]
    ) -> Iterator[tuple[ItemBatch, Outcome]]:
        """Encode pieces that were cut before, and remember them."""
        cache = cache_of(pipeline.task)
        if cache is None:
            yield from pipeline.run(pieces)
            return
        with closing(cache):
            yield from pipeline.run(pieces, lambda outcome: cache.add(outcome.fresh_entries()))

    def pipeline(self, source: Items, single: bool = False) -> Pipeline:
        """The pipeline for items like these, with its workers; a few items are encoded in this thread."""
        spec = self.spec(source.kind, single)
        if spec not in self._pipelines:
            task = self._task(source.kind, single)
            cache = cache_of(task)
            if cache is not None:
                cache.prepare()
            self._pipelines[spec] = Pipeline(task, self.workers, self.engine)
        few = source.rows is not None and source.rows <= INLINE
        return Pipeline(self._pipelines[spec].task) if few else self._pipelines[spec]

    def finished(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Shorten vectors where a projection is in force."""
        return vectors if self.projection is None else self.projection.apply(vectors)

    def fit(self, *sources: Items, seed: int = 0) -> None:
        """Fit the projection that --pca asks for on a random sample of all items."""
        if self.pca is None or self.projection is not None:
            return
        rng = np.random.default_rng(seed)
        parts = [self._sample(source, rng) for source in sources]
        identity = self.encoder(sources[0].kind).identity
        vectors = np.concatenate(parts)
        usable = np.isfinite(vectors).all(axis=1) & vectors.any(axis=1)
        self.projection = Projection.fit(vectors[usable], self.pca, identity)

    def _sample(self, source: Items, rng: np.random.Generator) -> NDArray[np.float32]:
        count = sum(len(items) for items in source)
        if not count:
            raise FileError(f"{source.path} holds no items")
        chosen = set(rng.choice(count, min(count, FITTED_ON), replace=False).tolist())
        pipeline = self.pipeline(source)
        kept = list(self.run_pieces(pipeline, chunks(_some(source, chosen), pipeline.chunk)))
        none = np.empty((0, self.encoder(source.kind).dimension), dtype=np.float32)
        return np.concatenate([none, *(outcome.vectors for _, outcome in kept)])

    def _task(self, kind: Kind, single: bool = False) -> Task:
        spec = self.spec(kind, single)
        threads = self.threads if self.threads is not None else 1 if self.workers > 1 else 0
        return replace(Task(spec), threads=threads, cache=self.cache if spec.info.costly else None)


def _some(source: Items, chosen: set[int]) -> Iterator[ItemBatch]:
    position = 0
    for items in source:
        keep = [at for at in range(len(items)) if position + at in chosen]
        if keep:
            yield ItemBatch([items.contents[at] for at in keep], [items.ids[at] for at in keep])
        position += len(items)


def _settings(name: str, identity: str) -> tuple[tuple[str, str], ...]:
    """Options that an identity spells out, so that a control set's encoder need not be described again."""
    allowed = ENCODERS[name].options
    words = (word.partition("=") for word in identity.split()[1:])
    square = {key: value.split("x")[0] if key == "size" else value for key, mark, value in words if mark}
    return tuple(sorted((key, value) for key, value in square.items() if key in allowed))


# EncodedSource: items that look like vectors to whatever reads them.

BLOCK = 4096


class EncodedSource(Table):
    """Vectors of a source of items, encoded while they are read.

    After an iteration `skips` counts, by kind and by the values of the extra columns, the items that have no
    vector; `several` those that showed more than one face. `on_items` is called with numbers of items as they are
    finished.
    """

    def __init__(
        self, items: Items, encoding: Encoding, *, strict: bool = False, single: bool = False
    ) -> None:
        super().__init__(Location(items.path, items.path), Request(extra=items.extra, strict=strict))
        self.items = items
        self.encoding = encoding
        self.name, self.path, self.label = items.name, items.path, items.path
        self.rows, self.columns, self.missing = items.rows, items.columns, items.missing
        self.dimension = encoding.encoder(items.kind).dimension
        if encoding.projection is not None:
            self.dimension = encoding.projection.size
        self.metadata = {ENCODER_KEY: encoding.identity(items.kind)}
        self.single = single  # one vector an item, whatever was asked for
        self.skips: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.several = 0
        self.encoded = 0
        self.on_items: Callable[[int], None] = lambda count: None

    def _blocks(self) -> Iterator[Block]:
        self.skips, self.several, self.encoded = Counter(), 0, 0
        if self.request.strict and self.items.unlisted:
            raise FileError(f"{self.items.unlisted[0]}; fix it, or leave out --strict")
        waiting: list[Block] = []
        items = 0
        for some, outcome in self.encoding.run(self.items, single=self.single):
            self._account(some, outcome)
            waiting.append(_block(some, outcome))
            items += len(some)
            if items >= BLOCK:
                yield from self._block(waiting)
                waiting, items = [], 0
        yield from self._block(waiting)
        self.unreadable += self.items.unreadable
        self.problems = [*self.items.problems, *self.problems][:PROBLEMS_KEPT]

    def _block(self, waiting: Sequence[Block]) -> Iterator[Block]:
        if any(len(block.vectors) for block in waiting):
            vectors = self.encoding.finished(np.concatenate([block.vectors for block in waiting]))
            names = self.items.extra
            values = {name: [text for block in waiting for text in block.values[name]] for name in names}
            yield Block(vectors, values, ids=[name for block in waiting for name in block.ids])

    def _account(self, some: ItemBatch, outcome: Outcome) -> None:
        self.on_items(len(some))
        self.several += int((outcome.found > 1).sum())
        self.encoded += len(some)
        if not any(outcome.kinds):
            return
        for item, kind in enumerate(outcome.kinds):
            if kind == READ:
                continue
            problem = f"{self.path}, {some.ids[item]}: {outcome.reasons[item]}"
            if self.request.strict:
                raise FileError(
                    f"{problem}; mend it or leave it out, or leave out --strict to skip such items"
                )
            values = tuple(some.values[name][item] for name in self.items.extra)
            self.skips[kind, values] += 1
            self.unreadable += kind == UNREADABLE
            if len(self.problems) < PROBLEMS_KEPT:
                self.problems.append(problem)

    def skipped(self, value: str | None = None) -> dict[str, int]:
        """Items without a vector by kind, of one value of the first extra column or of all."""
        kinds = dict.fromkeys((UNREADABLE, EMPTY), 0)
        for (kind, values), count in self.skips.items():
            if value is None or values[0] == value:
                kinds[kind] += count
        if value is None:
            kinds[UNREADABLE] += self.items.unreadable
        return kinds


def _block(some: ItemBatch, outcome: Outcome) -> Block:
    """The vectors, with the columns and the name of the item of each."""
    owner = outcome.owner.tolist()
    values = {name: [column[item] for item in owner] for name, column in some.values.items()}
    return Block(outcome.vectors, values, ids=[some.ids[item] for item in owner])
