"""Parts of an embedding job: how a source is cut, how a part is made, and how parts become one file.

A partition is described so that any worker can read it. It becomes one part, or several if it is long: Arrow files
that appear when they are complete and say what they were made from.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from divscore.encoders.registry import Kind
from divscore.errors import DivscoreError, FileError
from divscore.files import atomic_file, sha256
from divscore.jobs.cache import ItemVectors, stack_vectors
from divscore.jobs.encode import KEY_BYTES, SKIP_HINT, Encoding, fingerprint
from divscore.sources.items import ItemBatch, Items, ListedItems
from divscore.sources.manifest import ABOUT_KEY, ENCODER_KEY, KINDS, MOST_VALUES, Embedded, read_embedded
from divscore.sources.places import Location, UnseenError, filesystem_of, unseen
from divscore.sources.table import BLOCK_BYTES, check_here

__all__ = [
    "IDENTITY",
    "VECTOR",
    "ItemPartition",
    "Made",
    "PartFacts",
    "PartMaker",
    "add_up",
    "item_partitions",
    "join_parts",
    "listing_of",
    "read_facts",
    "write_listing",
]

VECTOR, IDENTITY = "embedding", "id"
# Items of a partition: minutes of work for the slower encoders. A part has at most twice as many.
ROWS = {"image": 1024, "text": 16_384}
# What stores say about the content or time of a file, the most reliable first.
VERSIONS = (
    *("etag", "content-md5", "md5hash", "generation"),
    *("lastmodified", "last_modified", "mtime", "updated", "created"),
)
ByValue = dict[str, dict[str, dict[str, int]]]  # column, value, kind


# Cut a source.


@dataclass(frozen=True)
class ItemPartition:
    """Some items of a source, described so that any worker can read them."""

    number: int
    items: Items
    signature: str  # changes with the content
    size: int = 0  # bytes of the table when the work was planned
    done: int = 0  # parts that exist

    def __str__(self) -> str:
        return self.items.path

    def file(self, part: int) -> str:
        """Name of a part; sorted names are in the order of the source."""
        return f"part-{self.number:05}{f'_{part:05}' if part else ''}.arrow"

    def open(self) -> Items:
        """Check that the items are here, on whichever machine, and have not changed."""
        for location in self.items.locations:
            check_here(location, self.size)
        if isinstance(self.items, ListedItems):
            paths = [
                path for path in self.items.batch.contents if isinstance(path, str) and "://" not in path
            ]
            if paths and not any(map(os.path.exists, paths)):
                raise UnseenError(unseen(paths[0]))
        return self.items


def item_partitions(source: Items) -> Iterator[ItemPartition]:
    """Cut a source into partitions, in its order; how depends on the source alone."""
    for number, items in enumerate(source.divided(ROWS[source.kind])):
        if isinstance(items, ListedItems):
            versions = [_picture_version(content) for content in items.batch.contents]
            yield ItemPartition(number, items, _digest(items.extra, list(items.batch.ids), versions))
        else:
            location = items.locations[0]
            size, version = file_version(location)
            about = (location.name, size, version, items.column, items.extra, str(items.piece), items.before)
            yield ItemPartition(number, items, _digest(*about), size)


def file_version(location: Location) -> tuple[int, str]:
    """Size of a file, and what changes with its content even if the size does not."""
    if location.path == "-":
        return os.path.getsize(location.url), sha256(location.url)
    if not location.remote:
        about = os.stat(location.url)
        return about.st_size, str(about.st_mtime_ns)
    filesystem, path = filesystem_of(location.url)
    with location.reading("a remote file"):
        info = {key.lower(): value for key, value in filesystem.info(path).items()}
    return int(info.get("size") or 0), next((str(info[key]) for key in VERSIONS if info.get(key)), "")


def _picture_version(content: str | bytes) -> str:
    if isinstance(content, str) and "://" not in content:
        with suppress(OSError, ValueError):
            about = os.stat(content)
            return f"{about.st_size} {about.st_mtime_ns}"
    return fingerprint(content).hex()


def _digest(*content: object) -> str:
    text = repr(content).encode("utf-8", "backslashreplace")
    return hashlib.blake2b(text, digest_size=KEY_BYTES).hexdigest()


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
    identity: str
    variant: str
    columns: tuple[str, ...]
    dimension: int
    strict: bool

    @property
    def header(self) -> dict[str, Any]:
        """What parts of one job have in common."""
        return {
            "source": self.source,
            "origin": self.origin,
            "encoder": self.identity,
            "variant": self.variant,
            "columns": list(self.columns),
        }

    def signature(self, partition: ItemPartition, part: int) -> str:
        """Tells whether a part is the one that this job would make."""
        return _digest(self.header, partition.signature, part)

    def make(self, partition: ItemPartition, encoding: Encoding, progress: Callable[[int], None]) -> Made:
        """Make the parts of a partition that do not exist yet."""
        items = number = 0
        try:
            source = partition.open()
            runs = _Runs(source, 2 * ROWS[self.kind])
            while number == 0 or runs.more():
                batches = runs.next()
                if number < partition.done:
                    for _ in batches:
                        pass  # read, and not encoded
                else:
                    part = _Part(self, source.path)
                    for batch, results in encoding.run(batches, self.kind, rows=partition.items.rows):
                        part.add(batch, results, encoding)
                        progress(len(batch))
                    last = not runs.more()
                    if last:
                        part.add_unreadable(source)
                    facts = {"signature": self.signature(partition, number), "last": last}
                    part.write(partition.file(number), facts)
                    items += part.counts["items"]
                number += 1
        except _UnreadableError as error:
            return Made(items, str(error), isinstance(error.__cause__, UnseenError))
        except UnseenError as error:
            return Made(items, str(error), True)
        return Made(items)

    def schema(self, about: Mapping[str, Any]) -> Any:
        """Arrow schema of a part or file: id, the source's own columns as text, and the vector."""
        import pyarrow as pa

        vector = pa.list_(pa.field("item", pa.float32(), nullable=False), self.dimension)
        fields = [pa.field(name, pa.string(), nullable=False) for name in (IDENTITY, *self.columns)]
        fields.append(pa.field(VECTOR, vector, nullable=False))
        metadata = {ENCODER_KEY: self.identity, ABOUT_KEY: json.dumps({"source": self.source, **about})}
        return pa.schema(fields, metadata=metadata)


class _UnreadableError(DivscoreError):
    """A partition could not be read. Only then, not if a part cannot be written, the job goes on without it."""


class _Runs:
    """Cuts items into runs of at most `size` without reading ahead."""

    def __init__(self, source: Items, size: int) -> None:
        self._batches, self._size = iter(source), size
        self._rest: ItemBatch | None = None

    def more(self) -> bool:
        """Whether there are items left."""
        try:
            while not self._rest:
                self._rest = next(self._batches, None)
                if self._rest is None:
                    return False
        except DivscoreError as error:
            raise _UnreadableError(str(error)) from error
        return True

    def next(self) -> Iterator[ItemBatch]:
        """Yield the items of the next run; all of them must be taken before another begins."""
        left = self._size
        while left and self.more():
            assert self._rest is not None
            batch, self._rest = self._rest.slice(0, left), self._rest.slice(left, len(self._rest))
            left -= len(batch)
            yield batch


class _Part:
    """Items of one part, until it is written."""

    def __init__(self, maker: PartMaker, path: str) -> None:
        self.counts: Counter[str] = Counter()
        self._maker, self._path = maker, path
        self._vectors: list[Any] = [np.empty((0, maker.dimension), dtype=np.float32)]
        self._texts: list[list[str]] = [[] for _ in (IDENTITY, *maker.columns)]
        self._skipped: list[list[str]] = []  # rows of the listing
        self._by_value: ByValue = {name: {} for name in maker.columns}

    def add(self, batch: ItemBatch, results: Sequence[ItemVectors], encoding: Encoding) -> None:
        columns = [batch.ids, *(batch.values[name] for name in self._maker.columns)]
        for at, result in enumerate(results):
            self.counts["several"] += result.detected > 1
            if result.kind:
                self._skip(result, [column[at] for column in columns])
            for texts, column in zip(self._texts, columns, strict=True):
                texts += [column[at]] * len(result.vectors)
        raw = stack_vectors(results, encoding.encoder(self._maker.kind).dimension)
        self._vectors.append(encoding.shorten(raw))
        self.counts += Counter(items=len(batch), vectors=len(raw))

    def add_unreadable(self, source: Items) -> None:
        """Count rows that the source itself could not read."""
        self.counts += Counter(items=source.unreadable, unreadable=source.unreadable)
        problems, more = list(source.problems), source.unreadable - len(source.problems)
        if more > 0:
            problems.append(f"and {more} more rows")
        self._skipped += [
            ["", "unreadable", problem, *("" for _ in self._maker.columns)] for problem in problems
        ]

    def write(self, file: str, facts: Mapping[str, Any]) -> None:
        import pyarrow as pa

        path = Path(self._maker.folder, file)
        write_listing(listing_of(path), self._maker.columns, self._skipped)
        skipped = {kind: self.counts[kind] for kind in KINDS}
        numbers = {name: self.counts[name] for name in ("items", "vectors", "several")}
        about = {**numbers, "skipped": skipped, "skipped_by": _few_values(self._by_value)}
        schema = self._maker.schema({**about, "variant": self._maker.variant, **facts})
        vectors = pa.FixedSizeListArray.from_arrays(
            pa.array(np.concatenate(self._vectors).ravel()), type=schema.field(VECTOR).type
        )
        batch = pa.RecordBatch.from_arrays([*map(_text_array, self._texts), vectors], schema=schema)
        _write_arrow(path, schema, [batch])

    def _skip(self, result: ItemVectors, texts: list[str]) -> None:
        if self._maker.strict:
            raise FileError(f"{self._path}, {texts[0]}: {result.reason}; {SKIP_HINT}")
        self.counts[result.kind] += 1
        self._skipped.append([texts[0], result.kind, result.reason, *texts[1:]])
        for values, value in zip(self._by_value.values(), texts[1:], strict=True):
            kinds = values.setdefault(value, {})
            kinds[result.kind] = kinds.get(result.kind, 0) + 1


def _text_array(values: Sequence[str]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        # A lone half of a surrogate pair: allowed in JSON, but not in UTF-8.
        return pa.array([value.encode("utf-8", "replace").decode() for value in values], pa.string())


def _few_values(by: ByValue) -> ByValue:
    """Drop columns in which nearly every item has its own value: nobody audits by them."""
    return {name: values for name, values in by.items() if sum(map(len, values.values())) <= MOST_VALUES}


# Read parts, and join them.


class PartFacts(NamedTuple):
    """What a part or a file says about itself."""

    about: Embedded
    header: dict[str, Any]
    signature: str | None
    last: bool


def read_facts(path: Path) -> PartFacts | None:
    """Read what a file says about itself; None if it is damaged, or `embed` did not write it."""
    import pyarrow as pa

    try:
        with pa.memory_map(os.fspath(path)) as file:
            stored = pa.ipc.open_file(file).schema.metadata or {}
        metadata = {key.decode(): value.decode() for key, value in stored.items()}
        about = read_embedded(metadata, path.name)
        told = json.loads(metadata.get(ABOUT_KEY, "{}"))
    except (OSError, ValueError, DivscoreError):  # Arrow's errors are one of the first two
        return None
    if about is None:
        return None
    header = {**told, "encoder": metadata.get(ENCODER_KEY)}
    return PartFacts(about, header, told.get("signature"), told.get("last") is True)


def add_up(abouts: Iterable[Embedded], columns: Sequence[str]) -> tuple[Counter[str], ByValue]:
    """What several parts say about their items, as counts and by the values of columns."""
    counts: Counter[str] = Counter()
    by: ByValue = {name: {} for name in columns}
    for about in abouts:
        counts.update(items=about.items, vectors=about.vectors, several=about.several, **about.skipped)
        by = {name: values for name, values in by.items() if name in about.skipped_by}
        for name, values in by.items():
            for value, kinds in about.skipped_by[name].items():
                total = values.setdefault(value, {})
                for kind, number in kinds.items():
                    total[kind] = total.get(kind, 0) + number
        by = _few_values(by)
    return counts, by


def join_parts(parts: Sequence[Path], target: Path, schema: Any) -> None:
    """Write the vectors of parts as one file."""
    import pyarrow as pa

    def batches() -> Iterator[Any]:
        for path in parts:
            with pa.memory_map(os.fspath(path)) as file:
                reader = pa.ipc.open_file(file)
                yield from (reader.get_batch(at) for at in range(reader.num_record_batches))

    _write_arrow(target, schema, batches())


def _write_arrow(path: Path, schema: Any, batches: Iterable[Any]) -> None:
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
            if waiting and (batch is None or sum(each.num_rows for each in waiting) >= enough):
                for whole in pa.Table.from_batches(waiting).combine_chunks().to_batches():
                    writer.write_batch(whole)
                waiting = []


def listing_of(path: Path) -> Path:
    """File that lists the skipped items of a part or file."""
    return path.with_name(f"{path.name}.skipped.csv")


def write_listing(path: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """List skipped items; without any there is no file."""
    if not rows:
        path.unlink(missing_ok=True)
        return False
    with (
        atomic_file(path) as temporary,
        open(temporary, "w", encoding="utf-8", errors="replace", newline="") as stream,
    ):
        writer = csv.writer(stream)
        writer.writerow([IDENTITY, "kind", "reason", *columns])
        writer.writerows(rows)
    return True
