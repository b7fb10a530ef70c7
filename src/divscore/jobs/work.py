"""The unit of work: some contents in, their outcome out, in whichever thread, process or machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from divscore.encoders.encoding import Encoder
from divscore.encoders.registry import EncoderSpec
from divscore.errors import DivscoreError, FileError
from divscore.jobs.cache import Cache
from divscore.jobs.contents import fingerprint, read_picture
from divscore.jobs.outcome import EMPTY, UNREADABLE, Entry, Outcome
from divscore.sources.pictures import decode
from divscore.sources.places import UnseenError, unseen

__all__ = ["Task", "cache_of", "encode_contents", "encode_elsewhere", "loaded", "recall"]

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
            usable[item] = decode(bytes(content), enough=encoder.enough)  # type: ignore[arg-type]
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
            entries[item] = Entry(vectors, int(result.found[at]))
    return entries


def _failure(encoder: Encoder, kind: str, reason: str) -> Entry:
    return Entry(np.empty((0, encoder.dimension), dtype=np.float32), 0, kind, reason)
