"""embed(): items to a file of vectors, as a job that can be killed at any moment and started again."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self

import numpy as np
from numpy.typing import NDArray

from divscore.errors import DivscoreError, FileError, check_cancelled
from divscore.files import atomic_file, lock_stream, refuse_url
from divscore.jobs.cache import READ, Outcome
from divscore.jobs.encode import KEY_BYTES, Encoding, Pipeline, chunks, fingerprint, signature
from divscore.sketch.missing import MissingPart
from divscore.sources import Items, open_table
from divscore.sources.items import ItemBatch
from divscore.sources.labelled import ENCODER_KEY
from divscore.sources.manifest import ABOUT_KEY, KINDS, note_left_out
from divscore.sources.places import Location, filesystem_of
from divscore.sources.table import BLOCK_BYTES, check_here
from divscore.text import brief

__all__ = [
    "IDENTITY",
    "VECTOR",
    "EmbedResult",
    "ItemPartition",
    "Journal",
    "Layout",
    "Lost",
    "Predecessor",
    "check_file",
    "embed",
    "item_partitions",
    "origin_of",
    "place_of",
    "places_of",
    "refuse_other_file",
]


# Journal: the finished chunks of an embedding job, one after the other, so that a killed job can go on.
#
# A record is its length, a checksum, the signature of the chunk's items, and an Arrow record batch. A record that was
# cut off by a kill is the last one and is dropped at the next start.

MAGIC = b"divscore.journal/1\n"
RECORD = struct.Struct("<QI16s")


class Journal:
    """Append-only file of record batches with a header that says which job it belongs to."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path = path
        self.header = header
        self.marks: list[
            tuple[int, bytes]
        ] = []  # where each whole record starts, and the signature of its items
        self.replaced = False  # whether an unfinished job of another kind was there
        self._end = 0
        self._stream = self._open()

    @classmethod
    def header_of(cls, path: Path) -> dict[str, Any] | None:
        """Read the header of a journal that an earlier start left, if it is whole."""
        try:
            with open(path, "rb") as stream:
                if stream.read(len(MAGIC)) != MAGIC:
                    return None
                line = stream.readline()
            found = json.loads(line) if line.endswith(b"\n") else None
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    @classmethod
    def has_records(cls, path: Path) -> bool:
        """Whether a journal with a whole header keeps anything beside it."""
        with open(path, "rb") as stream:
            stream.seek(len(MAGIC))
            stream.readline()
            return os.fstat(stream.fileno()).st_size > stream.tell() + RECORD.size

    def append(self, signature: bytes, payload: bytes) -> None:
        """Add a finished chunk; once this returns, a kill of the process cannot lose it."""
        start = self._end
        self._stream.write(RECORD.pack(len(payload), zlib.crc32(payload), signature))
        self._stream.write(payload)
        self._stream.flush()
        self._end += RECORD.size + len(payload)
        self.marks.append((start, signature))

    def cut(self, records: int) -> None:
        """Keep the first records only."""
        if records < len(self.marks):
            self._end = self.marks[records][0]
            self._stream.truncate(self._end)
            self._stream.seek(self._end)
            del self.marks[records:]

    def payloads(self) -> Iterator[bytes]:
        """Every record's content."""
        self._stream.flush()
        with open(self.path, "rb") as stream:
            for start, _ in self.marks:
                check_cancelled()
                stream.seek(start)
                length, checksum, _ = RECORD.unpack(stream.read(RECORD.size))
                payload = stream.read(length)
                if zlib.crc32(payload) != checksum:
                    raise FileError(f"{self.path} was changed while it was in use; start the job again")
                yield payload

    def close(self) -> None:
        """Close the file and leave it there."""
        self._stream.close()

    def _open(self) -> BinaryIO:
        stream = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        try:
            lock_stream(stream, self.path)
            found = self.header_of(self.path)
            if found == self.header:
                self._read_marks(stream)
            else:
                self.replaced = found is not None
                stream.truncate(0)
                stream.write(MAGIC + json.dumps(self.header).encode() + b"\n")
                stream.flush()
                self._end = stream.tell()
            stream.truncate(self._end)
            stream.seek(self._end)
        except BaseException:
            stream.close()
            raise
        return stream

    def _read_marks(self, stream: BinaryIO) -> None:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(len(MAGIC))
        stream.readline()
        self._end = stream.tell()
        while self._end + RECORD.size <= size:
            length, checksum, signature = RECORD.unpack(stream.read(RECORD.size))
            if self._end + RECORD.size + length > size or zlib.crc32(stream.read(length)) != checksum:
                return
            self.marks.append((self._end, signature))
            self._end += RECORD.size + length


# Vectors as Arrow: record batches for the journal, and the finished file.

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

    def batch(self, piece: ItemBatch, outcome: Outcome, vectors: NDArray[np.float32]) -> bytes:
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
        enough = max(1, BLOCK_BYTES // (4 * self.dimension))
        with (
            atomic_file(target) as temporary,
            pa.OSFile(os.fspath(temporary), "wb") as sink,
            pa.ipc.new_file(sink, schema) as writer,
        ):
            waiting: list[Any] = []
            for batch in self._read(payloads):
                waiting.append(self._vectors_of(batch, schema))
                if sum(each.num_rows for each in waiting) >= enough:
                    _put(writer, waiting, schema)
                    waiting = []
            _put(writer, waiting, schema)

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

    def _sequences(self, piece: ItemBatch) -> list[Sequence[str]]:
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


# Lost: items without a vector by the values of each column.

MOST_VALUES = 1000


class Lost:
    """Items without a vector by the values of each column, for audits --by that column later."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._by: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in columns}

    def add(self, kind: str, values: list[str]) -> None:
        """Count one, given its values."""
        for name, value in zip(self._columns, values, strict=True):
            found = self._by.get(name)
            if found is not None:
                found[value, kind] += 1
                if len(found) > MOST_VALUES:
                    del self._by[name]  # nearly every item its own: no column to audit by

    def counts(self) -> dict[str, dict[str, dict[str, int]]]:
        """Numbers by column, value and kind."""
        told: dict[str, dict[str, dict[str, int]]] = {}
        for name, found in self._by.items():
            for (value, kind), number in found.items():
                told.setdefault(name, {}).setdefault(value, {})[kind] = number
        return told


# Where items lie: what a job calls its source to know it again, and the files and folders that it must not touch.


def place_of(source: Items) -> str:
    """What a job calls its source, to know it again."""
    return source.path if "://" in source.path else os.path.normpath(source.path)


def origin_of(source: Items) -> str:
    """Tells sources of the same name apart without saying where they lie."""
    local = "://" not in source.path and source.path != "-"
    place = os.path.abspath(source.path) if local else source.path
    return hashlib.blake2b(place.encode("utf-8", "surrogateescape"), digest_size=KEY_BYTES).hexdigest()


def places_of(source: Items) -> Iterator[str]:
    """Files and folders that the items come from, as far as they are here."""
    for path in (source.path, *(location.url for location in source.locations)):
        if "://" not in path and os.path.exists(path):
            yield path


# Predecessor: whose vectors lie already where a job is to write, so that no others are replaced unasked.

SHOWN = 200  # letters of a name in a message


@dataclass(frozen=True)
class Predecessor:
    """What vectors are of and by, as far as it is known."""

    source: str
    encoder: str
    variant: str | None = None
    origin: str | None = None

    @classmethod
    def in_header(cls, header: Mapping[str, Any]) -> Self:
        """What a journal or a manifest says."""
        told = [header.get(key) for key in ("source", "encoder", "variant")]
        source, encoder, variant = (each if isinstance(each, str) else "" for each in told)
        return cls(source, encoder, variant)

    @classmethod
    def in_file(cls, path: Path) -> Self | None:
        """What a finished file says; None where `embed` did not write it."""
        try:
            metadata = open_table(path, vectors=False).metadata
            about = json.loads(metadata[ABOUT_KEY])
            return cls(about["source"], metadata[ENCODER_KEY], about.get("variant"), about.get("origin"))
        except (DivscoreError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def differs(self, new: Predecessor) -> bool:
        """Whether this is of another source or by another encoder; what one of both does not say is no difference."""
        if (self.source, self.encoder) != (new.source, new.encoder):
            return True
        both = ((self.variant, new.variant), (self.origin, new.origin))
        return any(None not in (mine, its) and mine != its for mine, its in both)

    def unlike(self, new: Predecessor) -> str:
        """What this is of and by, and what of that is different with others."""
        encoder, other = self._named_encoder, new._named_encoder
        if (self.source, encoder) == (new.source, other):
            return f"another source that is called {brief(self.source, SHOWN)} as well, by {encoder}"
        told = f"{brief(self.source, SHOWN)} by {encoder}, not"
        if self.source != new.source:
            told += f" of {brief(new.source, SHOWN)}"
        return told if encoder == other else f"{told} by {other}"

    @property
    def _named_encoder(self) -> str:
        return brief(self.encoder, SHOWN) + (f" ({brief(self.variant, SHOWN)})" if self.variant else "")


def refuse_other_file(target: Path, source: Items, encoding: Encoding) -> None:
    """Refuse a name under which vectors of another source or by another encoder lie, finished or not."""
    encoder, variant = encoding.identity(source.kind), encoding.encoder(source.kind).variant
    if target.is_file() and target.stat().st_size:
        new = Predecessor(source.name, encoder, variant, origin_of(source))
        found = Predecessor.in_file(target)
        if found is None:
            raise FileError(
                f"{target} was not written by 'divscore embed'; give another name, or --overwrite to replace it"
            )
        if found.differs(new):
            raise FileError(
                f"{target} holds vectors of {found.unlike(new)}; give another name, or --overwrite to replace them"
            )
    unfinished = target.with_name(f"{target.name}.part")
    header = Journal.header_of(unfinished)
    if header is not None and Journal.has_records(unfinished):
        begun, new = Predecessor.in_header(header), Predecessor(place_of(source), encoder, variant)
        if begun.differs(new):
            raise FileError(
                f"{unfinished} keeps unfinished vectors of {begun.unlike(new)}; give another name, or --overwrite to "
                "drop them"
            )


# ItemPartition: some items of a source, described so that any worker can read them.

# Items of a partition, where a file can be divided: minutes of work for the slower encoders. Of text there may be
# fewer, as no run of it is longer than a piece.
ROWS = {"image": 1024, "text": 16_384}
# What object stores and other file systems say of a file's content or time, the surest first.
MARKS = (
    "etag",
    "content-md5",
    "md5hash",
    "generation",
    "lastmodified",
    "last_modified",
    "mtime",
    "updated",
    "created",
)


@dataclass(frozen=True)
class ItemPartition:
    """A run of pictures, listed, or a table, or a run of its rows."""

    source: str  # what the whole source is called
    kind: Literal["image", "text"]
    label: str
    extra: tuple[str, ...]
    signature: str  # tells whether it is the same as at an earlier start
    listed: ItemBatch | None = None
    columns: dict[str, str] = field(default_factory=dict)
    items: Items | None = None  # of a table
    size: int = 0  # bytes of the file when the work was planned

    @property
    def rows(self) -> int | None:
        """How many items, where that is known."""
        if self.listed is not None:
            return len(self.listed)
        return self.items.rows if self.items is not None and self.items.piece else None

    def __str__(self) -> str:
        return self.label

    def open(self) -> Items:
        """Open it, wherever this is."""
        if self.listed is not None:
            return _Listed(self, self.listed)
        assert self.items is not None
        check_here(self.items.locations[0], self.size)
        return self.items


class _Listed(Items):
    """Items that the description itself holds."""

    def __init__(self, partition: ItemPartition, items: ItemBatch) -> None:
        super().__init__(partition.label, partition.source, partition.kind, partition.columns)
        self.extra, self.rows, self._items = partition.extra, len(items), items

    def __iter__(self) -> Iterator[ItemBatch]:
        yield self._items


def item_partitions(source: Items, *, strict: bool = False) -> Iterator[ItemPartition]:
    """Cut a source of items into partitions, in its order; depends on the source alone."""
    if source.parts:
        yield from _of_table(source)
        return
    for items in source:
        state = hashlib.blake2b(digest_size=KEY_BYTES)
        for content, name in zip(items.contents, items.ids, strict=True):
            state.update(signature(content, source.kind) + name.encode("utf-8", "surrogatepass") + b"\0")
        label = f"{source.path}, {items.ids[0]} to {items.ids[-1]}"
        yield ItemPartition(
            source.name,
            source.kind,
            label,
            source.extra,
            state.hexdigest(),
            listed=replace(items, contents=[_anywhere(each) for each in items.contents]),
            columns=source.columns,
        )


def _of_table(source: Items) -> Iterator[ItemPartition]:
    if source.locations[0].path == "-":
        raise FileError(
            "standard input cannot be cut into parts; save it as a file, or, without --cluster, give a name ending in "
            ".arrow"
        )
    for items in source.divided(ROWS[source.kind]):
        location = items.locations[0]
        version = _version(location)
        about = (location.path, version, source.column, source.extra, str(items.piece))
        yield ItemPartition(
            source.name,
            source.kind,
            items.path,
            source.extra,
            hashlib.blake2b(repr(about).encode(), digest_size=KEY_BYTES).hexdigest(),
            items=items,
            size=int(version[0]),
        )


def _anywhere(content: str | bytes) -> str | bytes:
    """A picture's address for a process that works in another folder."""
    local = isinstance(content, str) and "://" not in content
    return os.path.abspath(content) if local else content


def _version(location: Location) -> tuple[int | str, ...]:
    """Changes when the file does; a remote one's size may not, but its store's mark of the content or time does."""
    if not location.remote:
        here = os.stat(location.url)
        return here.st_size, here.st_mtime_ns
    filesystem, path = filesystem_of(location.url)
    with location.reading("a remote file"):
        told = {key.lower(): value for key, value in filesystem.info(path).items()}
    mark = next((str(told[key]) for key in MARKS if told.get(key)), "")
    return int(told.get("size") or 0), mark


NOT_KEPT = {"path", "resumed", "replaced", "listing", "missing"}
NOT_STRICT = "mend it or leave it out, or leave out --strict to skip such items"


@dataclass(frozen=True)
class EmbedResult:
    """What a job did: `resumed` items were found finished, `skipped` counts those without a vector by kind."""

    path: str
    items: int
    vectors: int
    resumed: int
    several: int
    skipped: dict[str, int] = field(default_factory=dict)
    replaced: bool = False  # an unfinished job for other items or another encoder was there, and is no more
    listing: str | None = None  # file that lists the skipped items
    missing: tuple[MissingPart, ...] = ()  # files or parts that could not be read at all


def embed(
    source: Items,
    out: str | os.PathLike[str],
    encoding: Encoding,
    *,
    strict: bool = False,
    overwrite: bool = False,
    part: bool = False,
    progress: Callable[[int], None] = lambda items: None,
) -> EmbedResult:
    """Encode every item of `source` into the Arrow file `out`, which appears when it is whole.

    Finished chunks are kept beside it until then; after an interruption the same call goes on from there.
    Items without a vector are listed in ``out`` + ``.skipped.csv``. Vectors of another source or by another encoder
    are replaced only where `overwrite` says so. A `part` of something larger may have no vector at all, and what it
    replaces is the business of the whole.
    """
    refuse_url(out, "a file of vectors")
    target = Path(out)
    check_file(target, source)
    if not (overwrite or part):
        refuse_other_file(target, source, encoding)
    target.parent.mkdir(parents=True, exist_ok=True)
    columns = tuple(name for name in source.extra if name.lower() != IDENTITY)
    vectors = encoding.projection.size if encoding.projection else encoding.encoder(source.kind).dimension
    pipeline = encoding.pipeline(source)
    journal = _open_journal(target, source, encoding, pipeline.chunk)
    job = _Job(source, encoding, pipeline, Layout(columns, vectors), journal)
    try:
        resumed = job.go_on(progress)
        if strict:
            job.refuse_problems()
        job.encode_rest(strict, progress)
        return job.finish(target, resumed, part)
    finally:
        job.journal.close()


@dataclass(frozen=True)
class _Job:
    source: Items
    encoding: Encoding
    pipeline: Pipeline
    layout: Layout
    journal: Journal

    def pieces(self) -> Iterator[ItemBatch]:
        return chunks(self.source, int(self.journal.header["chunk"]))

    def go_on(self, progress: Callable[[int], None]) -> int:
        """Keep the finished chunks whose items are still the same; return how many items those are."""
        items = kept = 0
        for piece in self.pieces() if self.journal.marks else ():
            if kept == len(self.journal.marks) or self.journal.marks[kept][1] != self.signature(piece):
                break
            items += len(piece)
            kept += 1
            progress(len(piece))
        self.journal.cut(kept)
        return items

    def refuse_problems(self) -> None:
        """Be as strict about what an earlier start left as about the rest."""

        def refuse(row: list[str]) -> None:
            raise FileError(f"{self.source.path}, {row[0]}: {row[2]}; {NOT_STRICT}")

        if self.source.problems:
            raise FileError(f"{self.source.problems[0]}; mend it, or leave out --strict")
        self.layout.tally(self.journal.payloads(), refuse)

    def encode_rest(self, strict: bool, progress: Callable[[int], None]) -> None:
        """Encode what the journal lacks."""
        for piece, outcome in self.encoding.run_pieces(self.pipeline, self.rest()):
            bad = next((at for at, kind in enumerate(outcome.kinds) if kind), None)
            if strict and bad is not None:
                raise FileError(f"{self.source.path}, {piece.ids[bad]}: {outcome.reasons[bad]}; {NOT_STRICT}")
            payload = self.layout.batch(piece, outcome, self.encoding.finished(outcome.vectors))
            self.journal.append(self.signature(piece), payload)
            progress(len(piece))

    def rest(self) -> Iterator[ItemBatch]:
        done = len(self.journal.marks)
        for at, piece in enumerate(self.pieces()):
            if at >= done:
                yield piece

    def finish(self, target: Path, resumed: int, part: bool) -> EmbedResult:
        """Write the list of skipped items and the vectors, then drop the journal."""
        listing = target.with_name(f"{target.name}.skipped.csv")
        lost = Lost(self.layout.columns)
        counts = self._list_skipped(listing, lost)
        counts["unreadable"] += self.source.unreadable
        if not counts["vectors"] and not part:
            raise FileError(
                f"{self.source.path}: none of {counts['items']:,} items has a vector; {listing.name} says why"
            )
        skipped = {kind: counts[kind] for kind in KINDS}
        items = counts["items"] + self.source.unreadable
        listed = os.fspath(listing) if listing.exists() else None
        result = EmbedResult(
            os.fspath(target),
            items,
            counts["vectors"],
            resumed,
            counts["several"],
            skipped,
            self.journal.replaced,
            listed,
            self.source.missing,
        )
        about = {key: value for key, value in asdict(result).items() if key not in NOT_KEPT}
        about["skipped_by"] = lost.counts()
        if not part:
            about["origin"] = origin_of(self.source)
            about["missing"] = note_left_out(result.missing)
        about["variant"] = self.encoding.encoder(self.source.kind).variant
        identity = self.encoding.identity(self.source.kind)
        self.layout.write(target, self.journal.payloads(), identity, {"source": self.source.name, **about})
        self.journal.close()
        self.journal.path.unlink(missing_ok=True)
        return result

    def _list_skipped(self, listing: Path, lost: Lost) -> Counter[str]:
        fresh = listing.with_name(f".{listing.name}.{os.getpid()}")
        try:
            with open(fresh, "w", encoding="utf-8", newline="") as stream:
                writer = csv.writer(stream)
                writer.writerow([IDENTITY, "kind", "reason", *self.layout.columns])

                def note(row: list[str]) -> None:
                    writer.writerow(row)
                    lost.add(row[1], row[3:])

                counts = self.layout.tally(self.journal.payloads(), note)
                for problem in self.source.problems:
                    writer.writerow(["", "unreadable", problem, *("" for _ in self.layout.columns)])
                more = self.source.unreadable - len(self.source.problems)
                if more > 0:
                    writer.writerow(
                        ["", "unreadable", f"and {more} more rows", *("" for _ in self.layout.columns)]
                    )
            if counts["unreadable"] + counts["empty"] + len(self.source.problems):
                fresh.replace(listing)
            else:
                listing.unlink(missing_ok=True)
            return counts
        finally:
            fresh.unlink(missing_ok=True)

    def signature(self, piece: ItemBatch) -> bytes:
        """Tell whether a chunk's items are those of an earlier start."""
        state = hashlib.blake2b(digest_size=KEY_BYTES)
        for content, name in zip(piece.contents, piece.ids, strict=True):
            state.update(signature(content, self.source.kind))
            state.update(name.encode("utf-8", "surrogatepass") + b"\0")
        for column in self.layout.columns:
            state.update(fingerprint("\0".join(piece.values[column])))
        return state.digest()


def check_file(target: Path, source: Items) -> None:
    """Refuse a name that vectors cannot be written to, before anything is done."""
    if target.suffix != ".arrow":
        raise FileError(f"{target}: vectors are written as an Arrow file; give a name that ends in .arrow")
    if target.is_dir():
        raise FileError(f"{target} is a folder; give the name of a file to write")
    if os.path.realpath(target) == os.path.realpath(source.path):
        raise FileError(f"{target} is the source itself; give another name to write")
    if VECTOR in source.extra:
        raise FileError(
            f"{source.path} has a column named '{VECTOR}', the name of the new vectors; rename it"
        )


def _open_journal(target: Path, source: Items, encoding: Encoding, chunk: int) -> Journal:
    path = target.with_name(f"{target.name}.part")
    header = {
        "source": place_of(source),
        "encoder": encoding.identity(source.kind),
        "variant": encoding.encoder(source.kind).variant,
        "columns": list(source.extra),
        "chunk": chunk,
    }
    earlier = Journal.header_of(path)
    # Another number of workers cuts other chunks; an interrupted job keeps those it began with.
    if earlier is not None and {**earlier, "chunk": 0} == {**header, "chunk": 0}:
        header = earlier
    return Journal(path, header)
