"""Vectors as Arrow: record batches for the journal, and the finished file."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.jobs.outcome import READ, Outcome
from divscore.sources.embedded import ABOUT_KEY
from divscore.sources.items import Items
from divscore.sources.labelled import ENCODER_KEY
from divscore.sources.table import BLOCK_BYTES

__all__ = ["IDENTITY", "VECTOR", "Layout"]

VECTOR, IDENTITY = "embedding", "id"


@dataclass(frozen=True)
class Layout:
    """Columns of a job: an id, the source's own columns as text, and the vector.

    The journal also has the items without a vector, and why; the finished file has only vectors.
    """

    columns: tuple[str, ...]
    dimension: int

    def schema(self, *, finished: bool, metadata: dict[str, str] | None = None) -> Any:
        """Arrow schema of the journal's batches or of the finished file."""
        import pyarrow as pa

        numbers = pa.list_(pa.field("item", pa.float32(), nullable=False), self.dimension)
        texts = [pa.field(name, pa.string(), nullable=False) for name in (IDENTITY, *self.columns)]
        own = [pa.field("item", pa.int32()), pa.field("found", pa.int32())]
        own += [pa.field("kind", pa.string()), pa.field("reason", pa.string())]
        vector = pa.field(VECTOR, numbers, nullable=not finished)
        return pa.schema([*([] if finished else own), *_renamed(texts, finished), vector], metadata=metadata)

    def batch(self, piece: Items, outcome: Outcome, vectors: NDArray[np.float32]) -> bytes:
        """One chunk as the bytes of a record batch: a row a vector, and a row for each item that has none."""
        import pyarrow as pa

        lost = np.array([item for item, kind in enumerate(outcome.kinds) if kind != READ], dtype=np.intp)
        owner = np.concatenate([outcome.owner, lost])
        order = np.argsort(owner, kind="stable")
        position = np.concatenate([np.arange(len(vectors)), np.full(len(lost), -1)])[order]
        owner = owner[order]
        filled = vectors[np.maximum(position, 0)] if len(vectors) else np.zeros((len(owner), self.dimension))
        numbers = pa.array(np.ascontiguousarray(filled, dtype=np.float32).ravel())
        schema = self.schema(finished=False)
        vector = pa.FixedSizeListArray.from_arrays(
            numbers, type=schema.field(VECTOR).type, mask=pa.array(position < 0)
        )
        texts = [_texts([values[item] for item in owner.tolist()]) for values in self._sequences(piece)]
        kinds = [outcome.kinds[item] for item in owner.tolist()]
        reasons = [outcome.reasons[item] for item in owner.tolist()]
        own = [
            pa.array(owner, pa.int32()),
            pa.array(outcome.found[owner], pa.int32()),
            _texts(kinds),
            _texts(reasons),
        ]
        batch = pa.RecordBatch.from_arrays([*own, *texts, vector], schema=schema)
        return bytes(batch.serialize())

    def tally(self, payloads: Iterable[bytes], on_lost: Callable[[list[str]], None]) -> Counter[str]:
        """Count items, vectors, items with several faces, and skipped ones by kind; hand out the skipped."""
        counts: Counter[str] = Counter()
        for batch in self._read(payloads):
            item = batch.column("item").to_numpy()
            first = np.flatnonzero(np.diff(item, prepend=-1))
            counts["items"] += len(first)
            counts["several"] += int((batch.column("found").to_numpy()[first] > 1).sum())
            kinds = batch.column("kind").to_pylist()
            counts["vectors"] += kinds.count(READ)
            for row, kind in enumerate(kinds) if kinds.count(READ) < len(kinds) else ():
                if kind != READ:
                    counts[kind] += 1
                    texts = [batch.column(name)[row].as_py() for name in self._stored()]
                    on_lost([texts[0], kind, batch.column("reason")[row].as_py(), *texts[1:]])
        return counts

    def write(self, target: Path, payloads: Iterable[bytes], encoder: str, about: dict[str, Any]) -> None:
        """Write the finished file: it appears whole or not at all."""
        import pyarrow as pa

        metadata = {ENCODER_KEY: encoder, ABOUT_KEY: json.dumps(about)}
        schema = self.schema(finished=True, metadata=metadata)
        fresh = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        enough = max(1, BLOCK_BYTES // (4 * self.dimension))
        try:
            with pa.OSFile(os.fspath(fresh), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                waiting: list[Any] = []
                for batch in self._read(payloads):
                    waiting.append(self._vectors_of(batch, schema))
                    if sum(each.num_rows for each in waiting) >= enough:
                        _put(writer, waiting, schema)
                        waiting = []
                _put(writer, waiting, schema)
            descriptor = os.open(fresh, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)

    def _vectors_of(self, batch: Any, schema: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        kept = batch.filter(pc.equal(batch.column("kind"), READ))
        numbers = kept.column(VECTOR).flatten()
        vector = pa.FixedSizeListArray.from_arrays(numbers, type=schema.field(VECTOR).type)
        return pa.RecordBatch.from_arrays(
            [*(kept.column(name) for name in self._stored()), vector], schema=schema
        )

    def _read(self, payloads: Iterable[bytes]) -> Iterable[Any]:
        import pyarrow as pa

        schema = self.schema(finished=False)
        for payload in payloads:
            yield pa.ipc.read_record_batch(pa.py_buffer(payload), schema)

    def _stored(self) -> list[str]:
        return [f"= {name}" for name in (IDENTITY, *self.columns)]

    def _sequences(self, piece: Items) -> list[Sequence[str]]:
        return [piece.ids, *(piece.values[name] for name in self.columns)]


def _renamed(fields: list[Any], finished: bool) -> list[Any]:
    """In the journal the source's columns are marked, so that none can be taken for the journal's own."""
    return fields if finished else [field.with_name(f"= {field.name}") for field in fields]


def _put(writer: Any, batches: list[Any], schema: Any) -> None:
    import pyarrow as pa

    if any(batch.num_rows for batch in batches):
        for whole in pa.Table.from_batches(batches, schema).combine_chunks().to_batches():
            writer.write_batch(whole)


def _texts(values: Sequence[str]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        # A lone half of a surrogate pair, which JSON allows and UTF-8 does not.
        return pa.array([value.encode("utf-8", "replace").decode() for value in values], pa.string())
