"""Encoding: items to vectors, chunk by chunk: read, look up in the cache, decode, encode, store.

`Encoding.run` reads and looks up in this process and lets an `Engine` do the rest.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from divscore.control.similarity import usable_rows
from divscore.encoders.registry import (
    DEFAULTS,
    ENCODERS,
    FORMER_DEFAULT,
    SELECT_AGAIN,
    Encoder,
    EncoderSpec,
    Kind,
    is_outdated,
    renew_control,
)
from divscore.errors import DivscoreError, FileError, InputError, MismatchError, check_cancelled
from divscore.files import PathLike
from divscore.jobs.cache import EMPTY, UNREADABLE, Cache, ItemVectors, default_cache, stack_vectors
from divscore.jobs.encodedsource import SEVERAL, EncodedSource
from divscore.jobs.engine import MEMORY_HINT, Engine, Engines
from divscore.jobs.projection import Projection
from divscore.sources.items import ItemBatch, Items, fingerprint
from divscore.sources.pictures import decode, read_picture
from divscore.sources.places import UnseenError, anywhere, unseen
from divscore.sources.table import Table

FETCHES = 8  # remote pictures that are fetched at the same time
# Items that a worker takes at a time. Fixed, because the batch size can change the last bits of a vector.
CHUNK = {"image": 8, "text": 512}
HELD = 24 << 20  # bytes of decoded pictures; more are encoded before the next one is decoded
MOST_CRASHES = 3  # items in a row that may crash their worker
FITTED_ON = 4096  # items of a sample
INLINE = 24  # items for which it is not worth starting workers
LOOKED_AT = 16, 200  # texts of a chunk, and letters of them, in which unknown words are counted
LEAST_LETTERS = 50  # that say what language texts are in
FOREIGN, ENGLISH = 0.5, 0.1  # more letters than this share are in unknown words, or fewer


@dataclass(frozen=True)
class Chunk:
    """Contents of a few items: texts, or pictures as paths or bytes. `visible` paths exist where it was sent from."""

    label: str
    contents: Sequence[str | bytes]
    visible: Sequence[str] = ()

    def __str__(self) -> str:
        return self.label


def encode_chunk(spec: EncoderSpec, chunk: Chunk) -> list[ItemVectors]:
    """Read, decode and encode; an item that cannot be encoded has a reason instead of vectors."""
    for path in chunk.visible:
        if not os.path.exists(path):
            raise UnseenError(unseen(path))
    encoder = load_encoder(spec)
    results: dict[int, ItemVectors] = {}
    inputs: dict[int, Any] = {} if spec.kind == "image" else dict(enumerate(chunk.contents))

    def encode() -> None:
        results.update(zip(inputs, _encode(encoder, list(inputs.values())), strict=True))
        inputs.clear()

    held = 0
    for at, content in enumerate(chunk.contents if spec.kind == "image" else ()):
        try:
            inputs[at] = decode(read_picture(content), enough=encoder.resolution)
            held += inputs[at].nbytes
        except FileError as error:
            results[at] = ItemVectors.none(UNREADABLE, str(error))
        if held > HELD:
            encode()
            held = 0
    encode()
    return [results[at] for at in range(len(chunk.contents))]


def _encode(encoder: Encoder, inputs: list[Any]) -> list[ItemVectors]:
    if not inputs:
        return []
    try:
        batch = encoder.encode(inputs)
    except DivscoreError:
        raise
    except Exception as error:
        if len(inputs) > 1:  # one of them is the reason: the others are encoded without it
            return [result for one in inputs for result in _encode(encoder, [one])]
        reason = f"made the encoder fail ({type(error).__name__}: {' '.join(str(error).split())[:100]})"
        return [ItemVectors.none(UNREADABLE, reason)]
    starts = np.searchsorted(batch.owner, np.arange(len(inputs) + 1)).tolist()
    small = batch.small or [0] * len(inputs)
    return [
        ItemVectors.none(EMPTY, batch.reasons[at], small[at])
        if at in batch.reasons
        else ItemVectors(batch.vectors[starts[at] : starts[at + 1]], detected, small=small[at])
        for at, detected in enumerate(batch.detected.tolist())
    ]


_LOADING = threading.Lock()  # threads that need the same encoder wait for the first of them
_load = lru_cache(maxsize=4)(EncoderSpec.load)


def load_encoder(spec: EncoderSpec) -> Encoder:
    """Load an encoder, once a process. It has one thread, so that vectors do not depend on the number of cores."""
    with _LOADING:
        if multiprocessing.parent_process() is not None:
            warnings.filterwarnings("ignore", module="PIL")  # about odd metadata of pictures
        return _load(spec, threads=1)


def _try_read(content: str | bytes) -> bytes | FileError:
    try:
        return read_picture(content)
    except FileError as error:
        return error


class _Pending(NamedTuple):
    """Items in flight: results that are known from reading and from the cache, and the chunk with the others."""

    batch: ItemBatch
    known: dict[int, ItemVectors]
    unknown: list[int]
    keys: dict[int, bytes]  # if there is a cache
    chunk: Chunk


class Encoding:
    """Encoder, cache and workers of one run; a context manager that stops the workers at its end.

    `name` is the encoder, by default the control set's, or else the default for the kind of items; `model` the file,
    folder or name of its weights, `options` its own settings. `pca` shortens vectors: to so many numbers, fitted on a
    sample, or with a saved projection. `cache` is a folder for vectors of items encoded before; True is the user's
    cache folder, and by default none are kept.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        model: PathLike | None = None,
        options: dict[str, str] | None = None,
        pca: int | PathLike | None = None,
        cache: PathLike | bool | None = None,
        workers: int = 1,
    ) -> None:
        if name is not None and name not in ENCODERS:
            raise InputError(f"unknown encoder '{name}'; choose one of {', '.join(ENCODERS)}")
        self.name = name
        self.model = None if model is None else os.fspath(model)
        self.options = tuple(sorted((options or {}).items()))
        self.pca = pca if isinstance(pca, int) else None
        self.projection = None if pca is None or isinstance(pca, int) else Projection.load(pca)
        self.shortens = pca is not None
        self.cache = default_cache() if cache is True else cache
        self.engines = Engines(workers)
        self.followed: str | None = None  # the control set's encoder, unless the user chose one
        self._expected: str | None = None  # the control set's encoder
        self._reported: set[str] = set()
        self._caches: dict[EncoderSpec, Cache | None] = {}
        self._letters: Counter[str] = Counter()  # of a sample of texts, if their language matters

    def __getstate__(self) -> dict[str, Any]:
        """For a worker on another machine, which encodes in its own thread and without a cache."""
        apart = {"model": anywhere(self.model), "cache": None, "_caches": {}, "engines": Engines()}
        return self.__dict__ | apart

    def __enter__(self) -> Encoding:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.engines.close(at_once=kind is not None)

    def troubles(self) -> list[str]:
        """What is wrong with caches and the language of texts, and was not reported yet; it does not stop the work."""
        caches = [cache for cache in self._caches.values() if cache]
        outdated = {path for cache in caches for path in cache.outdated}
        texts = [
            *(f"the cache {c.path} is no longer used ({c.trouble})" for c in caches if c.trouble),
            *(
                f"the cache {path} is from an earlier version of its encoder and is not used; you can delete it"
                for path in sorted(outdated)
            ),
        ]
        fresh = [text for text in texts if text not in self._reported]
        self._reported.update(fresh)
        return [*fresh, *self._language()]

    def _language(self) -> list[str]:
        """Which encoder suits the language of the texts since the last call better, if any; said once."""
        if self._letters["all"] < LEAST_LETTERS:
            return []
        share = self._letters["unknown"] / self._letters["all"]
        self._letters.clear()
        follows = self._follows_former
        if "language" in self._reported or (share > ENGLISH if follows else share <= FOREIGN):
            return []
        self._reported.add("language")
        if follows:
            return [
                f"the control set was made with the encoder '{FORMER_DEFAULT}', and so the texts are encoded with it. "
                f"For English, '{DEFAULTS['text']}' is more accurate: create the control set again with "
                f"'{SELECT_AGAIN} {DEFAULTS['text']}'"
            ]
        return [
            f"{share:.0%} of the letters in these texts are in words that the encoder "
            f"'{self.name or DEFAULTS['text']}' does not know: it knows English. For another language, use --encoder "
            f"ngrams, for the control set too: '{SELECT_AGAIN} ngrams'"
        ]

    @property
    def _follows_former(self) -> bool:
        """Whether the former default is used only because the control set was made with it."""
        return (self.followed or "").startswith(f"{FORMER_DEFAULT}/")

    @property
    def stored(self) -> int:
        """Items that this run added to caches."""
        return sum(cache.stored for cache in self._caches.values() if cache)

    @property
    def forced(self) -> bool:
        """Whether the user chose an encoder by name."""
        return self.name is not None

    def expect(self, identity: str | None, projection: Projection | None = None) -> None:
        """Follow a control set: its encoder, unless the user chose one, and its projection."""
        if identity is None:
            return
        self._expected = identity
        name = identity.partition("/")[0]
        if self.name is None and name in ENCODERS:
            self.name, self.followed = name, identity.partition(" pca=")[0]
        if projection is not None and self.projection is None:
            if self.pca is not None and self.pca != projection.size:
                raise MismatchError(
                    f"the control set has vectors of {projection.size} numbers, but --pca is {self.pca}; leave out "
                    "--pca"
                )
            self.projection = projection

    def spec(self, kind: Kind, single: bool = False) -> EncoderSpec:
        """Encoder for items of a kind; `single` for one vector an item, as a labelled example has."""
        options = tuple(option for option in self.options if not (single and option == SEVERAL))
        return EncoderSpec(self.name or DEFAULTS[kind], kind, self.model, options)

    def encoder(self, kind: Kind) -> Encoder:
        """Load the encoder for items of a kind."""
        if self._expected and is_outdated(self._expected):
            raise MismatchError(f"the control set {renew_control(self._expected)}")
        encoder = load_encoder(self.spec(kind))
        if self.followed and encoder.identity != self.followed and not self.options:
            # The control set may have other than the default options; its identity lists them.
            self.options = _options_in(str(self.name), self.followed)
            try:
                encoder = load_encoder(self.spec(kind))
            except InputError:
                self.options = ()  # not an option after all: the mismatch is reported where it matters
        return encoder

    def identity(self, kind: Kind) -> str:
        """Identity of the vectors of this run."""
        identity = self.encoder(kind).identity
        if self.projection is not None:
            self.projection.check(identity)
            return self.projection.identity
        return identity

    def dimension(self, kind: Kind) -> int:
        """Numbers of a vector of this run."""
        return self.projection.size if self.projection else self.encoder(kind).dimension

    def shorten(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Apply the projection, if there is one."""
        return vectors if self.projection is None else self.projection.apply(vectors)

    def run(
        self, batches: Iterable[ItemBatch], kind: Kind, *, single: bool = False, rows: int | None = None
    ) -> Iterator[tuple[ItemBatch, list[ItemVectors]]]:
        """Encode items in their order, in chunks; vectors are as the encoder made them.

        `rows` is the number of items, if it is known: a few are encoded in this thread.
        """
        spec = self.spec(kind, single)
        few = rows is not None and rows <= INLINE
        engine = Engine(1) if few else self.engines.start(processes=False)
        cache = self._cache(spec)
        # Another machine has another cache or none: what this one knows is looked up here.
        sent = spec if engine.own else replace(spec, model=anywhere(spec.model))
        work = partial(encode_chunk, sent)
        in_flight: deque[_Pending] = deque()  # in the order of the items, as results arrive in that order
        crashes = 0  # items in a row

        def chunks() -> Iterator[Chunk]:
            for batch in batches:
                for start in range(0, len(batch), CHUNK[kind]):
                    check_cancelled()
                    piece = batch.slice(start, start + CHUNK[kind])
                    if spec.info.english or self._follows_former:
                        self._count_letters(piece)
                    in_flight.append(_prepare(piece, kind, cache, elsewhere=not engine.own))
                    yield in_flight[-1].chunk

        def one_by_one(chunk: Chunk, reason: str) -> list[ItemVectors]:
            """A chunk killed its worker: find out which of its items did."""
            nonlocal crashes
            pending, results = in_flight[0], []
            single = [
                replace(chunk, label=pending.batch.ids[at], contents=[content])
                for at, content in zip(pending.unknown, chunk.contents, strict=True)
            ]
            skip = ItemVectors.none(UNREADABLE, "crashed its worker")
            for item, (result,) in engine.map(work, single, killed=lambda item, reason: [skip]):
                results.append(result)
                crashes = crashes + 1 if result is skip else 0
                if crashes >= MOST_CRASHES:  # the machine is the reason, not the items
                    raise DivscoreError(
                        f"the workers died on {crashes} items in a row, the last of them {item}. {MEMORY_HINT}"
                    )
            return results

        try:
            for _, fresh in engine.map(
                work, chunks(), known=lambda chunk: None if chunk.contents else [], killed=one_by_one
            ):
                pending = in_flight.popleft()
                results = pending.known | dict(zip(pending.unknown, fresh, strict=True))
                if cache is not None:
                    # What cannot be read now may be readable another time.
                    readable = [at for at in pending.unknown if results[at].kind != UNREADABLE]
                    cache.add({pending.keys[at]: results[at] for at in readable})
                yield pending.batch, [results[at] for at in range(len(pending.batch))]
        finally:
            if cache is not None:
                cache.close()

    def encode(self, source: Items | Table, *, strict: bool = False, single: bool = False) -> Table:
        """The vectors of a source: those it has, or those of its items, which are encoded while they are read.

        `single` for one vector an item, whatever the options say.
        """
        if source.kind == "vectors":
            return source
        return EncodedSource(source, self, strict=strict, single=single)

    def fit(self, *sources: Items | Table, seed: int = 0) -> None:
        """Fit the projection that --pca asks for on a random sample of all items; vectors stay as they are."""
        if self.pca is None or self.projection is not None or sources[0].kind == "vectors":
            return
        rng = np.random.default_rng(seed)
        samples = [self._sample(source, rng) for source in sources if source.kind != "vectors"]
        vectors = np.concatenate(samples)
        self.projection = Projection.fit(
            vectors[usable_rows(vectors)], self.pca, self.encoder(sources[0].kind).identity
        )

    def _sample(self, source: Items, rng: np.random.Generator) -> NDArray[np.float32]:
        total = sum(len(batch) for batch in source)
        if not total:
            raise FileError(f"{source.path} has no items")
        chosen = set(rng.choice(total, min(total, FITTED_ON), replace=False).tolist())

        def sample() -> Iterator[ItemBatch]:
            position = 0
            for batch in source:
                keep = [at for at in range(len(batch)) if position + at in chosen]
                if keep:
                    yield ItemBatch([batch.contents[at] for at in keep], [batch.ids[at] for at in keep])
                position += len(batch)

        encoded = self.run(sample(), source.kind, rows=len(chosen))
        results = [result for _, batch in encoded for result in batch]
        return stack_vectors(results, self.encoder(source.kind).dimension)

    def _count_letters(self, batch: ItemBatch) -> None:
        """Count how many letters of a few texts are in unknown words."""
        from divscore.encoders.tokens import table

        texts, letters = LOOKED_AT
        sample = [str(text)[:letters] for text in batch.contents[:: len(batch) // texts + 1]]
        unknown, total = table().unknown(sample)
        self._letters.update(unknown=unknown, all=total)

    def _cache(self, spec: EncoderSpec) -> Cache | None:
        if spec not in self._caches:
            self._caches[spec] = None
            if self.cache and spec.info.costly:
                encoder = load_encoder(spec)
                identity = f"{encoder.identity} {encoder.variant}"
                self._caches[spec] = Cache(self.cache, identity, encoder.dimension)
        return self._caches[spec]


def _prepare(batch: ItemBatch, kind: Kind, cache: Cache | None, elsewhere: bool) -> _Pending:
    """Read and look up what a worker need not, or cannot."""
    contents, known, keys = list(batch.contents), dict[int, ItemVectors](), dict[int, bytes]()
    remote = any(isinstance(content, str) and "://" in content for content in contents)
    if kind == "image" and (cache is not None or remote):
        # Pictures in a store are fetched here, several at a time: a worker may not have access to it.
        with ThreadPoolExecutor(FETCHES) if remote else nullcontext() as pool:
            for at, data in enumerate((pool.map if pool else map)(_try_read, batch.contents)):
                if isinstance(data, bytes):
                    contents[at] = data
                else:
                    known[at] = ItemVectors.none(UNREADABLE, str(data))
    if cache is not None:
        keys = {at: fingerprint(content) for at, content in enumerate(contents) if at not in known}
        stored = cache.lookup(list(keys.values()))
        known |= {at: stored[key] for at, key in keys.items() if key in stored}
    unknown = [at for at in range(len(batch)) if at not in known]
    send = [contents[at] for at in unknown]
    visible: list[str] = []
    if kind == "image" and elsewhere:
        send = [anywhere(content) if isinstance(content, str) else content for content in send]
        visible = [content for content in send if isinstance(content, str) and os.path.isabs(content)]
    return _Pending(batch, known, unknown, keys, Chunk(f"the items from {batch.ids[0]} on", send, visible))


def _options_in(name: str, identity: str) -> tuple[tuple[str, str], ...]:
    """Options that an identity lists: those of a control set need not be repeated."""
    allowed = ENCODERS[name].options
    words = (word.partition("=") for word in identity.split()[1:])
    values = {key: value.split("x")[0] if key == "size" else value for key, mark, value in words if mark}
    return tuple(sorted((key, value) for key, value in values.items() if key in allowed))
