"""Sketches on disk: one Parquet table for one or many, merged and subtracted without their control set.

A row is a collection. Pages have checksums, and the header (JSON in the file's metadata) has a format version and a
checksum of everything else, because page checksums leave the footer unprotected.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.errors import FileError, InputError, MismatchError
from divscore.files import PathLike, atomic_file, check_writable, read_json, unreadable
from divscore.sketch.many import Sketches
from divscore.sketch.missing import Missing, MissingPart
from divscore.sketch.sample import ITEM, TOP, Sample
from divscore.sketch.scorer import scorer_for
from divscore.sketch.sketch import SIDE, SKIPS, Origin, Sketch, SketchTable
from divscore.text import printable

FORMAT = "divscore.sketch/3"
KEY = b"divscore.sketch"
PARQUET = b"PAR1"
TABLES = (".parquet", ".pq")  # names under which files are tables of vectors, never sketches
MOST = 1 << 48  # items of anything; sums of a few such numbers stay exact
GROUP = 32 << 20  # bytes of vectors in a row group, about

T = TypeVar("T")
Whole = Annotated[int, msgspec.Meta(ge=0, lt=MOST)]
# A column: its numbers, and how many of them belong to each collection.
Columns = dict[str, tuple[NDArray[Any], NDArray[np.int64]]]


@dataclass(frozen=True)
class SketchFile:
    """The sketches of a file by the names of their collections, and the parts that are missing from them."""

    sketches: dict[str, Sketch]
    missing: Missing


@dataclass(frozen=True)
class _SketchHeader:
    """What all collections of a file have in common, as JSON."""

    format: str
    origin: Origin
    items: Whole  # k of the samples
    joint_items: Whole
    skips: tuple[str, ...]
    missing: Missing
    checksum: str = ""

    @property
    def json(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()


@dataclass(frozen=True)
class _Version:
    format: str


@dataclass(frozen=True)
class _Stored:
    sketches: Sketches
    missing: Missing

    @property
    def origin(self) -> Origin:
        return self.sketches.table.origin


def is_sketch(path: PathLike) -> bool:
    """Whether a file looks like a sketch; a quick look, without reading it."""
    if not Path(path).is_file() or Path(path).suffix.lower() in TABLES:
        return False
    if Path(path).suffix.lower() == ".sketch":
        return True  # so that a damaged one in a folder is refused, not skipped
    try:
        with open(path, "rb") as file:
            if file.read(len(PARQUET)) != PARQUET:
                return False
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 8))
            footer = int.from_bytes(file.read(4), "little")
            file.seek(max(0, size - 8 - footer))
            return KEY in file.read(footer)
    except OSError as error:
        raise unreadable(path, error) from error


def write_sketches(
    path: PathLike, sketches: Mapping[str, Sketch], missing: Iterable[MissingPart] = ()
) -> None:
    """Write the sketches of named collections to one file, which is complete or not there at all.

    Parts that were `missing` from the source are recorded, for whoever audits the sketches.
    """
    if not sketches:
        raise InputError(f"there is no sketch to write to {path}")
    _write(path, Sketches.of(sketches), Missing.of(missing))


def read_sketches(path: PathLike, control: ControlSet) -> dict[str, Sketch]:
    """Read the sketches of a file; they must have been made with `control`."""
    return open_sketches(path, control).sketches


def open_sketches(path: PathLike, control: ControlSet) -> SketchFile:
    """Read the sketches of a file, and which parts are missing from them."""
    stored = _read(path)
    if stored.origin.control != control.digest:
        raise MismatchError(
            f"{path} was made with another control set (of attribute '{printable(stored.origin.attribute)}'); "
            "use that control set, or sketch the collection again with this one"
        )
    if stored.origin != Origin.of(control, stored.origin.seed):
        raise _damaged(
            path, "its numbers of groups, dimensions or similarities are not those of its control set"
        )
    scorer = scorer_for(control, stored.origin.seed)
    return SketchFile(stored.sketches.sketches(control, scorer), stored.missing)


def merge_sketches(paths: Sequence[PathLike], out: PathLike) -> dict[str, int]:
    """Merge sketch files without their control set; return the number of items of each collection.

    Files of one collection each become one collection, named after `out`. Otherwise collections of the same name are
    merged.
    """
    names = [_names(path) for path in paths]
    single = all(len(each) == 1 for each in names)
    merged, missing = None, Missing()
    for path in paths:  # one after the other: each may have hundreds of megabytes
        stored = _read(path)
        if single:
            stored.sketches.names = {Path(out).stem: 0}
        if merged is None:
            merged = stored.sketches
        else:
            _check_same(stored.origin, path, merged.table.origin, paths[0], "merged")
            merged.merge(stored.sketches)
        missing = missing + stored.missing
    assert merged is not None
    _write(out, merged, missing)
    return _counts(merged)


def subtract_sketches(path: PathLike, minus: Sequence[PathLike], out: PathLike) -> dict[str, int]:
    """Take sketch files out of another without their control set; return the items left in each collection.

    If every file has one collection, it is taken out of that one. Otherwise collections of the same name are taken
    out of each other. All that is taken out must have been added before.
    """
    whole = _read(path)
    single = all(len(_names(each)) == 1 for each in (path, *minus))
    only = next(iter(whole.sketches.names))
    for each in minus:
        stored = _read(each)
        _check_same(stored.origin, each, whole.origin, path, "subtracted")
        for name, at in stored.sketches.names.items():
            target = only if single else name
            if target not in whole.sketches.names:
                raise InputError(f"{each} has the collection '{printable(name)}', {path} has not")
            try:
                whole.sketches.subtract(target, stored.sketches.table.take(np.array([at])))
            except InputError as error:
                which = "" if single else f" (collection {printable(name)!r})"
                raise InputError(
                    f"{each} cannot be subtracted from {path}: some of its items were never added{which}; "
                    "nothing was written"
                ) from error
    _write(out, whole.sketches, whole.missing)
    return _counts(whole.sketches)


def _counts(sketches: Sketches) -> dict[str, int]:
    return {name: int(sketches.table.count[at]) for name, at in sketches.names.items()}


def _check_same(origin: Origin, path: PathLike, first: Origin, first_path: PathLike, what: str) -> None:
    if (origin.control, origin.seed) != (first.control, first.seed):
        raise MismatchError(
            f"{path} and {first_path} were made with different control sets or seeds and cannot be {what}"
        )
    if origin != first:
        raise FileError(
            f"{path} or {first_path} is damaged: they name the same control set, but have different numbers of groups "
            "or dimensions; sketch the collections again"
        )


# ------------------------------------------------------------------------------------------------------ writing


def _write(path: PathLike, sketches: Sketches, missing: Missing) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if Path(path).suffix.lower() in TABLES:
        raise InputError(f"{path} would be taken for a table of vectors; name it {Path(path).stem}.sketch")
    check_writable(path, "sketch")
    table, names = sketches.table, list(sketches.names)
    joint = 0 if table.joint is None else table.joint.k
    header = _SketchHeader(FORMAT, table.origin, table.sample.k, joint, SKIPS, missing)
    state = hashlib.blake2b(header.json)
    at = np.fromiter(sketches.names.values(), dtype=np.intp, count=len(names))
    size = max(1, GROUP // (table.sample.k * table.origin.dimension))
    with atomic_file(path) as temporary:
        writer = None
        try:
            for start in range(0, len(names), size):
                columns = _columns(names[start : start + size], table.take(at[start : start + size]))
                _update(state, columns)
                content = pa.table({key: _arrow(*column) for key, column in columns.items()})
                # The numbers look random: dictionaries, statistics and compression would bring nothing.
                writer = writer or pq.ParquetWriter(
                    temporary,
                    content.schema,
                    compression="none",
                    use_dictionary=False,
                    write_statistics=False,
                    store_schema=False,
                    write_page_checksum=True,
                )
                writer.write_table(content)
            assert writer is not None
            writer.add_key_value_metadata({KEY: replace(header, checksum=state.hexdigest()).json})
        finally:
            if writer is not None:
                writer.close()


def _columns(names: Sequence[str], part: SketchTable) -> Columns:
    """Take the sketches of a table apart."""
    keys, counts = part.cells.table()
    owner, cells = np.divmod(keys, SIDE)
    raw = [name.encode("utf-8", "surrogatepass") for name in names]
    one, sizes = np.ones_like(part.count), np.bincount(owner, minlength=len(names))
    columns: Columns = {
        "name": (np.frombuffer(b"".join(raw), dtype=np.uint8), np.array([len(each) for each in raw])),
        "count": (part.count, one),
        "skipped": (part.skipped.ravel(), one * len(SKIPS)),
        "total": (part.total.ravel(), one * part.total.shape[1]),
        "similarity": (part.similarity.ravel(), one * part.similarity.shape[1]),
        "cells": (cells, sizes),
        "cell_counts": (counts, sizes),
    }
    for key, sample in (("sample", part.sample), ("joint", part.joint)):
        if sample is not None:
            items = sample.items()
            sizes = np.bincount(items["owner"], minlength=len(names))
            columns |= {f"{key}_{name}": (items[name].copy(), sizes) for name in ("hash", "copies")}
            columns[f"{key}_step"] = items["step"].astype(np.float32), sizes
            columns[f"{key}_limit"] = sample.limit, one
            columns[f"{key}_rows"] = sample.rows().ravel(), sizes * sample.width
    return columns


def _update(state: Any, columns: Columns) -> None:
    for values, sizes in columns.values():
        state.update(np.ascontiguousarray(values).data)
        state.update(sizes.astype(np.int64).data)


def _arrow(values: NDArray[Any], sizes: NDArray[np.int64]) -> Any:
    import pyarrow as pa

    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    if values.dtype != np.uint8:
        return pa.LargeListArray.from_arrays(offsets, pa.array(values))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(sizes), buffers)


# ------------------------------------------------------------------------------------------------------ reading


def _names(path: PathLike) -> list[str]:
    """Read the names of a file's collections only."""
    return _opened(path, lambda file, _: _decoded(*_numpy(file.read(columns=["name"]).column(0))))


def _read(path: PathLike) -> _Stored:
    return _opened(path, _stored)


def _opened(path: PathLike, read: Callable[[Any, _SketchHeader], T]) -> T:
    """Open a file and check its header; whatever is wrong with its content becomes one kind of error."""
    import pyarrow.parquet as pq

    try:
        with open(path, "rb") as stream:
            _demand(stream.read(len(PARQUET)) == PARQUET, "unknown file header")
            file = pq.ParquetFile(stream, page_checksum_verification=True)
            header = (file.metadata.metadata or {}).get(KEY, b"")
            _demand(bool(header), "it has no header of a sketch")
            where = f"{path} is not a sketch, or is damaged: its header"
            version = read_json(_Version, header, where).format
            if version != FORMAT:
                raise FileError(
                    f"{path} has format {version[:40]!r}; this version reads {FORMAT}. Sketch the collection again"
                )
            return read(file, read_json(_SketchHeader, header, where))
    except OSError as error:
        if error.errno is None:  # raised by Arrow: the content is wrong
            raise _damaged(path, error) from error
        raise unreadable(path, error) from error
    except FileError:
        raise
    except Exception as error:  # a damaged file can fail in a dozen ways
        raise _damaged(path, error) from error


def _stored(file: Any, header: _SketchHeader) -> _Stored:
    state = hashlib.blake2b(replace(header, checksum="").json)
    parts: list[Columns] = []
    for group in range(file.num_row_groups):
        content = file.read_row_group(group)
        parts.append({key: _numpy(content.column(key)) for key in content.column_names})
        _update(state, parts[-1])
    _demand(state.hexdigest() == header.checksum, "its checksum does not match")
    columns = {
        key: (
            np.concatenate([part[key][0] for part in parts]),
            np.concatenate([part[key][1] for part in parts]),
        )
        for key in parts[0]
    }
    parts.clear()
    names = _decoded(*columns["name"])
    _demand(len(set(names)) == len(names), "two collections have the same name")
    _demand(header.skips == SKIPS, "it counts other kinds of skipped items")
    return _Stored(Sketches.restored(names, _table(columns, header)), header.missing)


def _numpy(column: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Turn a column into its numbers and how many of them belong to each row."""
    array = column.combine_chunks()
    _demand(array.null_count == 0, "a cell is empty")
    wide = str(array.type).startswith("large")
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int64 if wide else np.int32)
    offsets = offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)
    if "binary" in str(array.type):
        values = np.frombuffer(array.buffers()[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
        return values, np.diff(offsets)
    return array.flatten().to_numpy(), np.diff(offsets)


def _decoded(values: NDArray[Any], sizes: NDArray[np.int64]) -> list[str]:
    raw, ends = values.tobytes(), np.cumsum(sizes).tolist()
    return [
        raw[end - size : end].decode("utf-8", "surrogatepass")
        for end, size in zip(ends, sizes.tolist(), strict=True)
    ]


def _table(columns: Columns, header: _SketchHeader) -> SketchTable:
    """Put sketches together again. A checksum only shows that a file is as somebody wrote it: check the numbers too."""
    origin, n = header.origin, len(columns["count"][1])
    _demand(origin.seed < 1 << 64, "its seed is too large")
    table = SketchTable(origin, 0)

    def fixed(key: str, width: int, kind: type) -> NDArray[Any]:
        values, sizes = columns[key]
        _demand(values.dtype == kind and bool((sizes == width).all()), f"{key} has another shape")
        _demand(
            kind is np.uint64 or bool((np.isfinite(values) & (np.abs(values) < MOST)).all()),
            f"{key} is impossible",
        )
        return values.reshape(n, width).copy()

    table.count = fixed("count", 1, np.int64)[:, 0]
    table.skipped = fixed("skipped", len(SKIPS), np.int64)
    table.total = fixed("total", origin.dimension, np.float64)
    table.similarity = fixed("similarity", origin.similarities, np.float64)
    count = table.count
    _demand(int(count.min(initial=0)) >= 0 and int(table.skipped.min(initial=0)) >= 0, "a count is negative")
    # Each item adds a unit vector; what rounding leaves after many were removed is far below one.
    _demand(
        bool((np.abs(table.total) <= 2.0 * count[:, None] + 1.0).all()), "a total is larger than its items"
    )
    cells, sizes = columns["cells"]
    counts = _list(columns, "cell_counts", sizes, np.int64)
    keys = np.repeat(np.arange(n), sizes) * SIDE + cells
    if table.joint is None:
        _demand(_within(cells, 0, SIDE - 1) and bool((np.diff(keys) > 0).all()), "scores are out of order")
        _demand(_within(counts, 1, MOST), "a score has no items")
        summed = np.bincount(keys // SIDE, counts.astype(float), minlength=n)
        _demand(bool((summed == count).all()), "counts of scores do not add up")
        table.cells.add(keys, counts)
    else:
        _demand(not len(cells), "it has scores of two groups")
        table.joint = _sample(columns, "joint", header.joint_items, table.joint, count)
        _demand(_within(table.joint.rows().view(np.int16), 0, SIDE - 1), "a score is outside its grid")
    table.sample = _sample(columns, "sample", header.items, table.sample, count)
    # The largest component of a unit vector is 127 steps, at most 1 and at least 1/√d.
    length = 127 * table.sample.items()["step"]
    _demand(
        bool(((length > 0.999 * origin.dimension**-0.5) & (length < 1.001)).all()),
        "a vector has another length than 1",
    )
    return table


def _sample(columns: Columns, key: str, k: int, like: Sample, count: NDArray[np.int64]) -> Sample:
    hashes, sizes = columns[f"{key}_hash"]
    limit, rows = (
        columns[f"{key}_limit"][0].copy(),
        _list(columns, f"{key}_rows", sizes * like.width, np.uint8),
    )
    copies = _list(columns, f"{key}_copies", sizes, np.int64)
    step = _list(columns, f"{key}_step", sizes, np.float32)
    owner = np.repeat(np.arange(len(count), dtype=np.int32), sizes)
    _demand(hashes.dtype == limit.dtype == np.uint64 and len(limit) == len(count), f"{key} has other hashes")
    ordered = (hashes[1:] >= hashes[:-1]) | (owner[1:] != owner[:-1])
    _demand(bool(ordered.all() and (hashes < limit[owner]).all()), f"{key} is out of order")
    _demand(_within(sizes, 0, k) and _within(copies, 1, MOST), f"{key} has an impossible number of items")
    summed = np.bincount(owner, copies.astype(float), minlength=len(count))
    _demand(bool(np.where(limit == TOP, summed == count, summed <= count).all()), f"{key} does not add up")
    items = np.empty(len(hashes), dtype=ITEM)
    items["owner"], items["hash"], items["copies"], items["step"] = owner, hashes, copies, step
    return Sample.restored((k, like.least, like.room), limit, items, rows.reshape(-1, like.width))


def _list(columns: Columns, key: str, sizes: NDArray[np.int64], kind: type) -> NDArray[Any]:
    values, own = columns[key]
    _demand(values.dtype == kind and np.array_equal(own, sizes), f"{key} has another number of items")
    return values


def _within(numbers: NDArray[Any], least: int, most: int) -> bool:
    return not numbers.size or (int(numbers.min()) >= least and int(numbers.max()) <= most)


def _demand(fine: bool, otherwise: str) -> None:
    if not fine:
        raise ValueError(otherwise)


def _damaged(path: PathLike, how: object) -> FileError:
    return FileError(f"{path} is not a sketch, or is damaged ({how}); sketch the collection again")
