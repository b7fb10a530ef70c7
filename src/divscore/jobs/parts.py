"""Parts of an embedding job: how a source is cut, how a part is made, and how parts become one file.

A partition of the source becomes one part, or several if it is long: Arrow files that appear when they are complete
and say what they were made from.
"""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from divscore.encoders.registry import Kind
from divscore.errors import DivscoreError, FileError
from divscore.files import PathLike, atomic_file, filesystem_of, is_url, remove_file
from divscore.jobs.cache import ItemVectors, stack_vectors
from divscore.jobs.encode import Encoding
from divscore.jobs.encodedsource import refused
from divscore.sources.items import ItemBatch, Items, fingerprint
from divscore.sources.manifest import ABOUT_KEY, ENCODER_KEY, KINDS, MOST_VALUES, Embedded, read_embedded
from divscore.sources.places import UnseenError
from divscore.sources.table import BLOCK_BYTES

VECTOR, IDENTITY = "embedding", "id"
# Items of a partition: minutes of work for the slower encoders. A part has at most twice as many.
ROWS = {"image": 1024, "text": 16_384}


@dataclass(frozen=True)
class ItemPartition:
    """Some items of a source, described so that any worker can read them."""

    number: int
    items: Items
    signature: str  # changes with the content
    done: int = 0  # parts that exist, and their items
    done_items: int = 0

    def __str__(self) -> str:
        return self.items.path

    def file(self, part: int) -> str:
        """Name of a part; sorted names are in the order of the source."""
        return f"part-{self.number:05}{f'_{part:05}' if part else ''}.arrow"

    def read(self) -> Iterator[ItemBatch]:
        """Read the items that have no part yet, if they are visible on this machine and have not changed."""
        try:
            self.items.check_visible()
            skip = self.done_items
            for batch in self.items:
                if skip < len(batch):
                    yield batch.slice(skip, len(batch))
                skip = max(0, skip - len(batch))
        except DivscoreError as error:
            raise UnreadableError(str(error)) from error


class UnreadableError(FileError):
    """A partition cannot be read. Only then, not if a part cannot be written, the job goes on without it."""


def item_partitions(source: Items) -> Iterator[ItemPartition]:
    """Cut a source into partitions, in its order; the cuts depend on the source alone."""
    for number, items in enumerate(source.divided(ROWS[source.kind])):
        yield ItemPartition(number, items, _digest(*items.version()))


def _digest(*content: object) -> str:
    return fingerprint(repr(content)).hex()


# Make parts.


class Made(NamedTuple):
    """What became of a partition: the number of items, or why it could not be read."""

    items: int = 0
    unreadable: str = ""
    fatal: bool = False  # no other partition can be read either


@dataclass(frozen=True)
class PartMaker:
    """Makes parts; it has what all parts of a job share and is the same in every process."""

    folder: str
    source: str  # name
    origin: str
    kind: Kind
    encoder: str
    variant: str
    columns: tuple[str, ...]
    dimension: int
    strict: bool

    @property
    def header(self) -> dict[str, Any]:
        """What parts of one job have in common."""
        return {name: getattr(self, name) for name in ("source", "origin", "encoder", "variant", "columns")}

    def signature(self, partition: ItemPartition, part: int) -> str:
        """Tells whether a part is the one that this job would make."""
        return _digest(self.header, partition.signature, part)

    def make(
        self,
        encoding: Encoding,
        partition: ItemPartition,
        progress: Callable[[int], None] = lambda items: None,
    ) -> Made:
        """Make the parts of a partition that do not exist yet."""
        number, items = partition.done, 0
        part = _Part(self, encoding)
        try:
            for batch, results in encoding.run(partition.read(), self.kind, rows=partition.items.rows):
                if part.tally.counts["items"] + len(batch) > 2 * ROWS[self.kind]:
                    part.write(partition, number, last=False)
                    part, number = _Part(self, encoding), number + 1
                part.add(batch, results, str(partition))
                items += len(batch)
                progress(len(batch))
        except UnreadableError as error:
            return Made(items, str(error), isinstance(error.__cause__, UnseenError))
        part.add_unreadable(partition.items)
        part.write(partition, number, last=True)
        return Made(items)

    def schema(self, about: Mapping[str, Any]) -> Any:
        """Arrow schema of a part or file: id, the source's own columns as text, and the vector."""
        import pyarrow as pa

        vector = pa.list_(pa.field("item", pa.float32(), nullable=False), self.dimension)
        fields = [pa.field(name, pa.string(), nullable=False) for name in (IDENTITY, *self.columns)]
        fields.append(pa.field(VECTOR, vector, nullable=False))
        about = {"source": self.source, "variant": self.variant, **about}
        return pa.schema(fields, metadata={ENCODER_KEY: self.encoder, ABOUT_KEY: json.dumps(about)})


class Tally:
    """Counts of items, vectors and skipped items, in all and by the values of columns."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.counts: Counter[str] = Counter()
        self.by: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in columns}

    def skip(self, kind: str, values: Sequence[str]) -> None:
        """Count a skipped item with its values of the columns."""
        self.counts[kind] += 1
        for counter, value in zip(self.by.values(), values, strict=True):
            counter[value, kind] += 1

    def add(self, about: Embedded) -> None:
        """Count what a part says about its items."""
        self.counts.update(items=about.items, vectors=about.vectors, **about.skipped)
        self.counts.update(several=about.several, small=about.small)
        self.by = {name: counter for name, counter in self.by.items() if name in about.skipped_by}
        for name, counter in self.by.items():
            for value, kinds in about.skipped_by[name].items():
                counter.update({(value, kind): number for kind, number in kinds.items()})

    def to_dict(self) -> dict[str, Any]:
        """For a file's metadata; without columns in which nearly every item has its own value."""
        by: dict[str, dict[str, dict[str, int]]] = {}
        for name, counter in self.by.items():
            if len(counter) <= MOST_VALUES:
                by[name] = {}
                for (value, kind), number in counter.items():
                    by[name].setdefault(value, {})[kind] = number
        skipped = {kind: self.counts[kind] for kind in KINDS}
        numbers = {name: self.counts[name] for name in ("items", "vectors", "several", "small")}
        return {**numbers, "skipped": skipped, "skipped_by": by}


class _Part:
    """Items of one part, until it is written."""

    def __init__(self, maker: PartMaker, encoding: Encoding) -> None:
        self.tally = Tally(maker.columns)
        self._maker, self._encoding = maker, encoding
        self._vectors: list[Any] = [np.empty((0, maker.dimension), dtype=np.float32)]
        self._texts: list[list[str]] = [[] for _ in (IDENTITY, *maker.columns)]
        self._skipped: list[list[str]] = []  # rows of the listing

    def add(self, batch: ItemBatch, results: Sequence[ItemVectors], label: str) -> None:
        columns = [batch.ids, *(batch.values[name] for name in self._maker.columns)]
        for at, result in enumerate(results):
            self.tally.counts["several"] += result.detected > 1
            self.tally.counts["small"] += result.small
            if result.kind:
                if self._maker.strict:
                    raise refused(label, batch, at, result.reason)
                name, *values = (column[at] for column in columns)
                self.tally.skip(result.kind, values)
                self._skipped.append([name, result.kind, result.reason, *values])
            for texts, column in zip(self._texts, columns, strict=True):
                texts += [column[at]] * len(result.vectors)
        vectors = stack_vectors(results, self._encoding.encoder(self._maker.kind).dimension)
        self._vectors.append(self._encoding.shorten(vectors))
        self.tally.counts.update(items=len(batch), vectors=len(vectors))

    def add_unreadable(self, source: Items) -> None:
        """Count rows that the source itself could not read."""
        self.tally.counts.update(items=source.unreadable, unreadable=source.unreadable)
        more = source.unreadable - len(source.problems)
        problems = [*source.problems, *([f"and {more} more rows"] if more > 0 else [])]
        empty = [""] * len(self._maker.columns)
        self._skipped += [["", "unreadable", problem, *empty] for problem in problems]

    def write(self, partition: ItemPartition, number: int, *, last: bool) -> None:
        import pyarrow as pa

        path = Path(self._maker.folder, partition.file(number))
        # The listing first: a part that exists is complete, and is not made again.
        write_listing(listing_of(path), self._maker.columns, self._skipped)
        facts = {"signature": self._maker.signature(partition, number), "last": last}
        schema = self._maker.schema(self.tally.to_dict() | facts)
        vectors = pa.FixedSizeListArray.from_arrays(
            pa.array(np.concatenate(self._vectors).ravel()), type=schema.field(VECTOR).type
        )
        batch = pa.RecordBatch.from_arrays([*map(_text_array, self._texts), vectors], schema=schema)
        _write_arrow(path, schema, [batch])


def _text_array(values: Sequence[str]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        # A lone half of a surrogate pair: allowed in JSON, but not in UTF-8.
        return pa.array([value.encode("utf-8", "replace").decode() for value in values], pa.string())


# Read parts, and join them.


class PartFacts(NamedTuple):
    """What a part or a file says about itself."""

    about: Embedded
    header: dict[str, Any]
    signature: str | None
    last: bool


def read_facts(path: PathLike) -> PartFacts | None:
    """Read what a file says about itself; None if it is damaged, or `embed` did not write it."""
    import pyarrow as pa

    def opened() -> AbstractContextManager[Any]:
        if not is_url(path):
            return pa.memory_map(os.fspath(path))  # type: ignore[no-any-return]
        filesystem, inside = filesystem_of(os.fspath(path))
        return filesystem.open(inside, "rb")  # type: ignore[no-any-return]

    try:
        with opened() as file:
            stored = pa.ipc.open_file(file).schema.metadata or {}
        metadata = {key.decode(): value.decode() for key, value in stored.items()}
        about = read_embedded(metadata, Path(path).name)
        facts = json.loads(metadata.get(ABOUT_KEY, "{}"))
    except (OSError, ValueError, DivscoreError):  # Arrow's errors are among the first two
        return None
    if about is None:
        return None
    header = {**facts, "encoder": metadata.get(ENCODER_KEY)}
    return PartFacts(about, header, facts.get("signature"), facts.get("last") is True)


def join_parts(parts: Sequence[Path], target: PathLike, schema: Any) -> None:
    """Write the vectors of parts as one file."""
    import pyarrow as pa

    def batches() -> Iterator[Any]:
        for path in parts:
            with pa.memory_map(os.fspath(path)) as file:
                reader = pa.ipc.open_file(file)
                yield from (reader.get_batch(at) for at in range(reader.num_record_batches))

    _write_arrow(target, schema, batches())


def _write_arrow(path: PathLike, schema: Any, batches: Iterable[Any]) -> None:
    """Write record batches, small ones together: readers are faster with large ones."""
    import pyarrow as pa

    enough = max(1, BLOCK_BYTES // (4 * schema.field(VECTOR).type.list_size))
    with (
        atomic_file(path) as temporary,
        pa.OSFile(os.fspath(temporary), "wb") as sink,
        pa.ipc.new_file(sink, schema) as writer,
    ):
        waiting: list[Any] = []
        for batch in chain(batches, [None]):
            if batch is not None and batch.num_rows:
                waiting.append(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
            if waiting and (batch is None or sum(part.num_rows for part in waiting) >= enough):
                for whole in pa.Table.from_batches(waiting).combine_chunks().to_batches():
                    writer.write_batch(whole)
                waiting = []


def listing_of(path: PathLike) -> str:
    """File that lists the skipped items of a part or file."""
    return f"{os.fspath(path)}.skipped.csv"


def write_listing(path: PathLike, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """List skipped items; without any there is no file."""
    if not rows:
        remove_file(path)
        return
    with (
        atomic_file(path) as temporary,
        open(temporary, "w", encoding="utf-8", errors="replace", newline="") as stream,
    ):
        csv.writer(stream).writerows([[IDENTITY, "kind", "reason", *columns], *rows])
