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

__all__ = ["Task", "encode_contents", "loaded"]

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
    encoder = loaded(task)
    data: list[str | bytes] = list(contents)
    entries: dict[int, Entry] = {}
    if task.spec.kind == "image":
        for item, content in enumerate(contents):
            try:
                data[item] = read_picture(content)
            except FileError as error:
                entries[item] = _failure(encoder, UNREADABLE, str(error))
    keys = [b"" if item in entries else fingerprint(each) for item, each in enumerate(data)]
    cache = cache_of(task)
    known = cache.lookup(keys) if cache else {}
    entries |= {item: known[key] for item, key in enumerate(keys) if key in known}
    fresh = np.array([item not in entries for item in range(len(data))], dtype=bool)
    entries |= _encode(encoder, task.spec.kind, {i: data[i] for i in np.flatnonzero(fresh).tolist()})
    return Outcome.of([entries[item] for item in range(len(data))], keys, fresh, encoder.dimension)


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
