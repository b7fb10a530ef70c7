"""The unit of work: some contents in, their outcome out, in whichever thread, process or machine."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from divscore.embedding.cache import Cache
from divscore.embedding.contents import fingerprint, read_picture
from divscore.embedding.outcome import EMPTY, UNREADABLE, Entry, Outcome
from divscore.encoders.encoding import Encoder
from divscore.encoders.registry import EncoderSpec
from divscore.errors import FileError
from divscore.sources.pictures import decode

__all__ = ["Task", "cache_of", "encode_contents", "loaded", "recall"]

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


def recall(task: Task, contents: Sequence[str | bytes]) -> Outcome | None:
    """The outcome if all of these were encoded before, so that no worker need be bothered."""
    if task.cache is None:
        return None
    work = _Work(task, contents)
    return None if work.unknown() else work.outcome()


class _Work:
    """Contents that were read, their fingerprints, and what is known of them without encoding."""

    def __init__(self, task: Task, contents: Sequence[str | bytes]) -> None:
        self.encoder = loaded(task)
        self.data: list[str | bytes] = list(contents)
        self.entries: dict[int, Entry] = {}
        for item, content in enumerate(contents) if task.spec.kind == "image" else ():
            try:
                self.data[item] = read_picture(content)
            except FileError as error:
                self.entries[item] = _failure(self.encoder, UNREADABLE, str(error))
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
    result = encoder.encode(list(usable.values()))
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
