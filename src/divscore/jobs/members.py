"""Members: a collection that changes item by item. Its vectors are kept by content, and its sketch is made from those.

A sketch can take items out again, but its sums are then rounded differently from those of a new one, and its sample has
gaps. Here the sketch is made from the vectors of the items that are left, in a fixed order: it is the one of a batch
run on them, to the last bit, however often items were added and removed, and by whom.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from divscore.audit.audits import Audits
from divscore.control.controlset import ControlSet, checked_vectors
from divscore.errors import FileError, InputError
from divscore.files import PathLike
from divscore.jobs.auditing import audit_source
from divscore.jobs.cache import UNREADABLE, Cache, ItemVectors
from divscore.jobs.encode import Encoding
from divscore.jobs.encodedsource import BLOCK
from divscore.jobs.pool import read_control
from divscore.jobs.sketching import sketch_source
from divscore.sketch.sketch import Sketch
from divscore.sources import open_table
from divscore.sources.items import ItemBatch, fingerprint

VECTOR_BLOCK = 65_536  # rows, as files of vectors are read
NOUNS = {"image": "pictures", "text": "texts", "vectors": "items"}
Kind = Literal["image", "text", "vectors"]
Content = str | bytes | Sequence[float]


@dataclass(frozen=True)
class Member:
    """An item that was given: the digest of its content, and why it has no vector, if it has none."""

    digest: str
    skip: str = ""


class Members:
    """What turns given items of one kind into vectors for one control set, and where these are kept.

    Items are bytes of pictures, texts, or vectors of the control set's encoder. Vectors are kept in `folder`, by
    content, in one file an encoder. `encoder` has the arguments of `Encoding`; by default it is the control set's.
    """

    def __init__(self, control: PathLike, kind: Kind, folder: PathLike, **encoder: Any) -> None:
        self.kind = kind
        self._encoding = Encoding(**encoder)
        self.control: ControlSet = read_control(control, self._encoding)
        if kind == "vectors":
            # In double precision: whoever sends numbers finds exactly these in the sketch.
            identity, dimension = f"given {self.control.dimension}", 2 * self.control.dimension
        else:
            if self.control.encoder is None:
                raise InputError("the control set does not say which encoder made its vectors; send vectors")
            identity = f"members {self._encoding.identity(kind)}"
            dimension = self._encoding.dimension(kind)
            if identity.removeprefix("members ") != self.control.encoder:
                raise InputError(
                    f"the control set was encoded by '{self.control.encoder}', which is not available for this kind "
                    "of items"
                )
        self._cache = Cache(Path(folder), identity, dimension)

    def put(self, contents: Sequence[Content]) -> list[Member]:
        """Encode what is not known yet, and keep it; afterwards `sketch` can use the digests, in any process."""
        if self.kind == "vectors":
            return self._put_vectors(contents)
        items: list[str | bytes] = [each for each in contents if isinstance(each, str | bytes)]
        keys = [fingerprint(each) for each in items]
        known = self._cache.lookup(keys)
        fresh = {key: item for key, item in zip(keys, items, strict=True) if key not in known}
        if fresh:
            batch = ItemBatch(list(fresh.values()), [key.hex() for key in fresh])
            results: list[ItemVectors] = []
            for _, some in self._encoding.run([batch], self.kind, single=True, rows=len(batch)):
                results += some
            made = {
                key: result._replace(vectors=self._encoding.shorten(result.vectors))
                if len(result.vectors)
                else result
                for key, result in zip(fresh, results, strict=True)
            }
            self._keep({key: result for key, result in made.items() if result.kind != UNREADABLE})
            known |= made
        return [Member(key.hex(), known[key].kind) for key in keys]

    def _put_vectors(self, contents: Sequence[Content]) -> list[Member]:
        if not contents:
            return []
        rows = np.ascontiguousarray(checked_vectors(np.array(list(contents), dtype="<f8"), self.control))
        keys = [fingerprint(row.tobytes()) for row in rows]
        # The cache has numbers of four bytes: two of them hold one of eight.
        self._keep({key: ItemVectors(row[None].view("<f4")) for key, row in zip(keys, rows, strict=True)})
        return [Member(key.hex()) for key in keys]

    def _keep(self, results: dict[bytes, ItemVectors]) -> None:
        self._cache.add(results)
        if self._cache.trouble:
            raise FileError(f"the vectors cannot be kept in {self._cache.path} ({self._cache.trouble})")

    def sketch(self, members: Sequence[Member], *, seed: int = 0) -> Sketch:
        """The sketch of some items, in the order that they are given in; copies count as often as they occur."""
        sketch = Sketch(self.control, seed=seed)
        if any(not member.skip for member in members):
            table = open_table(list(self._blocks(members)))
            table.rows = len(members)  # decides how sums are rounded, as in a batch run
            (sketch,) = sketch_source(table, self.control, seed=seed).sketches.values()
        for kind, number in Counter(member.skip for member in members if member.skip).items():
            sketch.skip(kind, number)
        return sketch

    def _blocks(self, members: Sequence[Member]) -> Iterator[NDArray[Any]]:
        size = VECTOR_BLOCK if self.kind == "vectors" else BLOCK
        for start in range(0, len(members), size):
            some = [member.digest for member in members[start : start + size] if not member.skip]
            known = self._cache.lookup([bytes.fromhex(each) for each in dict.fromkeys(some)])
            absent = sum(bytes.fromhex(each) not in known for each in some)
            if absent:
                raise FileError(
                    f"{absent} vectors are no longer in {self._cache.path}; add these items again"
                    + (f" ({self._cache.trouble})" if self._cache.trouble else "")
                )
            if some:
                rows = np.concatenate([known[bytes.fromhex(each)].vectors for each in some])
                yield rows if self.kind != "vectors" else _as_given(rows)

    def audit(self, sketch: Sketch, name: str, **options: Any) -> Audits:
        """Audit a sketch of these items; the options are those of `audit_source`."""
        audits = audit_source(sketch, self.control, name=name, seed=sketch.seed, **options)
        return replace(audits, audits=tuple(replace(audit, noun=NOUNS[self.kind]) for audit in audits.audits))


def forget_others(folder: PathLike, digests: Iterable[str]) -> None:
    """Remove all vectors in a folder of `Members` but those of some items; nobody may add any meanwhile."""
    keys = [(bytes.fromhex(each),) for each in digests]
    for file in Path(folder).glob("*.sqlite"):
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA secure_delete=ON")
            connection.execute("CREATE TEMP TABLE kept (key BLOB PRIMARY KEY)")
            connection.executemany("INSERT OR IGNORE INTO kept VALUES (?)", keys)
            connection.execute("DELETE FROM items WHERE key NOT IN (SELECT key FROM kept)")
            connection.commit()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _as_given(rows: NDArray[np.float32]) -> NDArray[Any]:
    """The vectors that were given: in single precision if that is what they were."""
    numbers = np.ascontiguousarray(rows).view("<f8")
    with np.errstate(over="ignore"):
        short = numbers.astype(np.float32)
    return short if np.array_equal(short.astype(np.float64), numbers) else numbers
