"""Draw: items of a collection that a person labels, how they were drawn, and the table they are written to."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import MAX_GROUPS, ControlSet
from divscore.control.labelledsample import UNSURE, is_unknown, plain
from divscore.errors import FileError, InputError, in_python, warn_in_python
from divscore.files import PathLike, atomic_file, check_writable, is_url, write_file
from divscore.sources import Table, open_table
from divscore.sources.items import fingerprint
from divscore.sources.manifest import ENCODER_KEY
from divscore.text import brief, count, listed, printable, public, quoted

ID, PATH, TEXT, GROUP, COLLECTION, ROW = "id", "path", "text", "group", "collection", "row"
STRATUM, BATCH, DRAWN, PROBABILITY, SIZE = "stratum", "batch", "drawn", "probability", "collection_size"
ATTRIBUTE, GROUPS, ITEM_DIGEST, CONTROL_DIGEST = "attribute", "groups", "item_digest", "control_digest"
VECTOR = "embedding"
DESIGN = (ROW, STRATUM, BATCH, DRAWN, PROBABILITY, SIZE, ATTRIBUTE, GROUPS, ITEM_DIGEST, CONTROL_DIGEST)
NEEDED = (ID, GROUP, ROW, STRATUM, BATCH, DRAWN)  # without these a draw cannot be used
BETWEEN = " | "  # names of groups in one cell
OF_VECTOR = "blake2b-vector-"  # begins the digest of a vector
FORMULA = re.compile(r"[=+\-@\t\r](?!\d+([.,]\d+)?$)")  # begins a cell that a spreadsheet would run
GUARD = "'"
Shown = Literal["image", "text", "vectors"]  # what people see of an item; nothing of a vector
PAGES, TABLES = (".html", ".htm"), (".csv", ".parquet")
PAGE_MARK = 'data-draw="'  # in a page, before the key of its draw


@dataclass(frozen=True)
class DrawnItem:
    """One drawn item. `content` is a text, the address or the bytes of a picture, or None for a vector.

    `row` is its position in the collection when it was drawn, −1 if unknown; `group` is what a person wrote. Items of
    one `stratum` have similar scores; 0 is no stratum. `drawn` is the number of items of its batch, from `size` items.
    """

    id: str
    content: str | bytes | None = None
    digest: str = ""
    row: int = -1
    group: str = ""
    collection: str | None = None
    stratum: int = 0
    batch: int = 1
    drawn: int | None = None
    size: int | None = None
    control: str = ""
    vector: NDArray[Any] | None = field(default=None, compare=False, repr=False)

    @property
    def key(self) -> tuple[str | None, str, str, int]:
        """What tells it from others: copies differ in their rows alone, 007 and 7 are one id to a spreadsheet."""
        return self.collection, self.id, self.digest, self.row

    @property
    def probability(self) -> float | None:
        """The chance of every item in its batch."""
        return self.drawn / self.size if self.drawn and self.size else None


@dataclass(frozen=True)
class Draw:
    """Items that were drawn from a collection to be labelled, in random order.

    `kind` says what is shown to the person who labels: images, texts, or nothing (vectors). Save the draw, fill in the
    column ``group`` (or label on the page), and audit the collection with it: ``audit(collection, sample="file.csv")``.
    Or label in Python: ``audit(collection, sample=draw.labelled(names))``.
    """

    items: tuple[DrawnItem, ...]
    kind: Shown = "vectors"
    attribute: str = ""
    groups: tuple[str, ...] = ()
    encoder: str | None = None

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        collections = {item.collection for item in self.items}
        of = f" of {len(collections)} collections" if len(collections) > 1 else ""
        return f"<Draw: {count(len(self), 'items')}{of}, {self.labels} labelled>"

    @property
    def ids(self) -> tuple[str, ...]:
        """Names of the items."""
        return tuple(item.id for item in self.items)

    @property
    def rows(self) -> NDArray[np.intp]:
        """Positions of the items in the collection when they were drawn, counted from 0."""
        return np.array([item.row for item in self.items], dtype=np.intp)

    @property
    def labels(self) -> int:
        """Items with a group."""
        return sum(not is_unknown(item.group, self.groups) for item in self.items)

    @property
    def key(self) -> str:
        """Tells this draw from others, whatever is labelled."""
        parts = ("\0".join(map(str, (*item.key, item.batch))) for item in self.items)
        return fingerprint("\0".join(parts)).hex()

    @property
    def missing(self) -> dict[str | None, int]:
        """How many drawn items of each collection are no longer here: rows that somebody deleted."""
        rows = Counter((item.collection, item.batch) for item in self.items)
        drawn = {(item.collection, item.batch): item.drawn for item in self.items if item.drawn is not None}
        missing: dict[str | None, int] = {}
        for (collection, batch), number in drawn.items():
            missing[collection] = missing.get(collection, 0) + max(0, number - rows[collection, batch])
        return missing

    def labelled(self, groups: Iterable[str | None] | Mapping[str, str | None]) -> Draw:
        """The same items with their groups, in the order of `ids` or by id; None for items that nobody can label."""
        if isinstance(groups, Mapping):
            unknown = [name for name in groups if name not in self.ids]
            if unknown:
                raise InputError(f"'{brief(str(unknown[0]))}' is not the id of a drawn item")
            groups = [groups.get(item.id, item.group) for item in self.items]
        names = ["" if name is None else str(name) for name in groups]
        if len(names) != len(self):
            raise InputError(
                f"{len(names)} groups for {len(self)} drawn items; expected one, or None, for each"
            )
        return replace(
            self,
            items=tuple(replace(item, group=n.strip()) for item, n in zip(self.items, names, strict=True)),
        )

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        force: bool = False,
        advance: Callable[[int], None] | None = None,
    ) -> None:
        """Write a table (.csv, .parquet), or one page that shows the items and saves the table (.html).

        A file with labels that this draw does not have is overwritten only with `force`. `advance` is called with
        numbers of items as they get their place on a page.
        """
        with in_python():
            check_draw_target(path, self, force=force)
            suffix = Path(path).suffix.lower()
            if suffix in PAGES:
                from divscore.report.labelling import render_labelling

                write_file(path, render_labelling(self, saved_table(path), advance))
            elif suffix == ".csv":
                write_file(path, self.csv(_folder_of(path)))
            else:
                self._save_parquet(path)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Draw:
        """Read the table of a draw, with the labels that are filled in."""
        with in_python():
            draw = read_draw(path, warn_in_python)
            if draw is None:
                raise FileError(
                    f"{os.fspath(path)} has no column '{ITEM_DIGEST}', so it was not written by 'divscore sample'"
                )
        return draw

    def csv(self, folder: str | None = None) -> str:
        """The table as text; paths start at `folder`, or at the root."""
        columns, rows = self.cells(folder)
        stream = io.StringIO(newline="")
        csv.writer(stream).writerows([columns, *rows])
        text = stream.getvalue()
        # Without a mark, spreadsheets take UTF-8 for another encoding.
        return text if text.isascii() else f"\ufeff{text}"

    def cells(self, folder: str | None = None) -> tuple[list[str], list[list[str]]]:
        """Names of the columns, and the cells of every row as text that a spreadsheet does not run."""
        columns = self._columns(folder)
        return list(columns), [
            [guarded(value) for value in row] for row in zip(*columns.values(), strict=True)
        ]

    def examples(self, attribute: str) -> Any:
        """A table of the labelled items, as labelled examples are read, with their groups in the column `attribute`."""
        import pyarrow as pa

        known = [item for item in self.items if not is_unknown(item.group, self.groups)]
        spelled: dict[str, str] = {}
        for name in (*self.groups, *(item.group for item in known)):
            spelled.setdefault(plain(name), name)
        ids = [item.id if item.collection is None else f"{item.collection}/{item.id}" for item in known]
        often = Counter(ids)  # examples need different ids; items of a collection may share one
        ids = [
            f"{name} (row {i.row})" if often[name] > 1 else name for name, i in zip(ids, known, strict=True)
        ]
        columns: dict[str, Any] = {ID: ids, attribute: [spelled[plain(item.group)] for item in known]}
        encoder = None
        if known and all(item.vector is not None for item in known):
            columns[VECTOR], encoder = [item.vector for item in known], self.encoder
        elif self.kind != "vectors" and all(isinstance(item.content, str) for item in known):
            columns[PATH if self.kind == "image" else TEXT] = [item.content for item in known]
        else:
            raise InputError("it has no texts, paths or vectors of its items; write the draw as .parquet")
        return pa.table(columns).replace_schema_metadata({ENCODER_KEY: encoder} if encoder else None)

    def _columns(self, folder: str | None) -> dict[str, list[Any]]:
        """Values by column."""
        items, shown = self.items, {"image": PATH, "text": TEXT}.get(self.kind)
        columns: dict[str, list[Any]] = {ID: [item.id for item in items]}
        if shown == PATH and any(isinstance(item.content, str) for item in items):
            columns[PATH] = [_path_from(folder, item.content) for item in items]
        elif shown == TEXT:
            columns[TEXT] = [item.content for item in items]
        columns[GROUP] = [item.group for item in items]
        if any(item.collection is not None for item in items):
            columns[COLLECTION] = [item.collection for item in items]
        return columns | {
            ROW: [None if item.row < 0 else item.row for item in items],
            STRATUM: [item.stratum or None for item in items],
            BATCH: [item.batch for item in items],
            DRAWN: [item.drawn for item in items],
            PROBABILITY: [item.probability for item in items],
            SIZE: [item.size for item in items],
            ATTRIBUTE: [self.attribute] * len(items),
            GROUPS: [BETWEEN.join(self.groups)] * len(items),
            ITEM_DIGEST: [item.digest for item in items],
            CONTROL_DIGEST: [item.control for item in items],
        }

    def _save_parquet(self, path: PathLike) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        whole = dict.fromkeys((ROW, STRATUM, BATCH, DRAWN, SIZE), pa.int64()) | {PROBABILITY: pa.float64()}
        columns = self._columns(_folder_of(path))
        data = {name: pa.array(values, whole.get(name, pa.string())) for name, values in columns.items()}
        if all(item.vector is not None for item in self.items):
            data[VECTOR] = pa.array([item.vector for item in self.items])
        table = pa.table(data)
        if self.encoder:
            table = table.replace_schema_metadata({ENCODER_KEY: self.encoder})
        with atomic_file(path) as temporary:
            pq.write_table(table, temporary)


def control_mark(control: ControlSet | None) -> str:
    """The digest of a control set, which no spreadsheet takes for a number."""
    return "" if control is None else f"sha256-{control.digest}"


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names of groups that a person can give, trimmed."""
    groups = tuple(name.strip() for name in names)
    if not 2 <= len(groups) <= MAX_GROUPS:
        raise InputError(f"{count(len(groups), 'groups')}; expected 2 to {MAX_GROUPS} names")
    if len({plain(name) for name in groups}) < len(groups):
        raise InputError(f"the groups {quoted(groups)} are not all different")
    bad = [name for name in groups if plain(name) in UNSURE or "|" in name or name in ("0", "1")]
    if bad:
        raise InputError(f"'{printable(bad[0])}' cannot be the name of a group; choose another")
    return groups


def check_draw_target(
    path: PathLike, draw: Draw | None = None, *, force: bool = False, source: str | None = None
) -> None:
    """Refuse a path that no draw can be written to, and one with labels that would be lost.

    `draw` is what will be written, if it is known; `source` is a file that its items, and labels, come from.
    """
    name = os.fspath(path)
    suffix = Path(name).suffix.lower()
    if suffix not in (*TABLES, *PAGES):
        got = f"the suffix '{suffix}'" if suffix else "no suffix"
        raise FileError(f"{name} has {got}; expected a file that ends in .csv, .parquet or .html")
    check_writable(name, "the sample")
    if force or is_url(name) or not os.path.isfile(name):
        return
    if source is not None and os.path.samefile(name, source):
        return
    if suffix in PAGES:
        with open(name, encoding="utf-8", errors="replace") as stream:
            _, mark, rest = stream.read(1 << 16).partition(PAGE_MARK)
        if not mark:
            raise FileError(
                f"{name} exists and is not a page of 'divscore sample'; choose another name, or --force"
            )
        if draw is not None and rest.partition('"')[0] != draw.key:
            raise FileError(
                f"{name} exists and shows other items, which may be labelled in your browser; choose another name, or "
                "--force"
            )
        return
    try:
        earlier = read_draw(name, lambda text: None)
    except FileError:
        earlier = None
    if earlier is None:
        raise FileError(
            f"{name} exists and was not written by 'divscore sample'; choose another name, or --force"
        )
    kept = {} if draw is None else {item.key: item.group for item in draw.items}
    lost = sum(
        not is_unknown(item.group, earlier.groups) and kept.get(item.key, "").strip() != item.group.strip()
        for item in earlier.items
    )
    if lost:
        raise FileError(
            f"{name} has {count(lost, 'labels')} that would be lost; choose another name, or --force"
        )


def saved_table(page: PathLike) -> str:
    """Name of the table that a page saves: that of the page, unless there is another file with it."""
    name = Path(page).with_suffix(".csv")
    return f"{name.stem}-labels.csv" if name.exists() and not is_draw(name) else name.name


# Reading: a person, and often a spreadsheet, has changed the file.


def is_draw(path: object) -> bool:
    """Whether a path is that of drawn items: their table, or a page, which `read_draw` explains."""
    suffix = Path(path).suffix.lower() if isinstance(path, str | os.PathLike) else ""
    if suffix not in (*TABLES, ".tsv"):
        return suffix in PAGES
    with contextlib.suppress(FileError):
        table = open_table(path, vectors=False)
        return any(column.strip().casefold() == ITEM_DIGEST for column in table.columns)
    return False


def read_draw(path: PathLike, warn: Callable[[str], None]) -> Draw | None:
    """Read the table of a draw; None for a table that has no columns of one."""
    name = os.fspath(path)
    if Path(name).suffix.lower() in PAGES:
        raise FileError(
            f"{name} is the page for labelling: open it in a browser, label the items, press 'Save table', and pass "
            "the .csv file that it saves"
        )
    table = open_table(name, vectors=False, strict=True)
    actual = {column.strip().casefold(): column for column in table.columns}
    if ITEM_DIGEST not in actual:
        rest = [column for column in DESIGN if column in actual]
        if len(rest) > len(DESIGN) // 2:
            raise FileError(_absent(table, ITEM_DIGEST))
        return None
    for needed in NEEDED:
        if needed not in actual:
            raise FileError(_absent(table, needed))
    wanted = {name: actual[name] for name in (ID, PATH, TEXT, GROUP, COLLECTION, *DESIGN) if name in actual}
    vectors: Sequence[NDArray[Any]] = ()
    if table.columns.get(VECTOR) == "vector":
        vectors = [row for block in open_table(name, column=VECTOR, strict=True) for row in block.vectors]
    items, attribute, groups = _design(table, list(_items(table, wanted, vectors)), warn)
    if not items:
        raise FileError(f"{table.label} has no items")
    kind: Shown = "vectors"
    if PATH in wanted:
        kind = "image"
    elif TEXT in wanted:
        kind = "text"
    return Draw(tuple(items), kind, attribute, groups, table.metadata.get(ENCODER_KEY))


def _absent(table: Table, column: str) -> str:
    return (
        f"{table.label} has no column '{column}', which 'divscore sample' wrote; put it back, under this name. Its "
        f"columns are {quoted(table.columns)}"
    )


def _items(
    table: Table, wanted: Mapping[str, str], vectors: Sequence[NDArray[Any]]
) -> Iterator[tuple[int, DrawnItem, str, str]]:
    """Number of a row, its item, and the cells that say what the groups are."""
    folder = _folder_of(table.location.url)
    at = 0
    for block in table.select(extra=tuple(wanted.values())):
        numbers = block.numbers or range(at, at + len(block.vectors))
        at += len(block.vectors)
        columns = {name: [cell.strip() for cell in block.values[actual]] for name, actual in wanted.items()}
        for number, *values in zip(numbers, *columns.values(), strict=True):
            cells = dict(zip(columns, values, strict=True))
            if not any(cells.values()):
                continue  # spreadsheets leave such rows behind
            content = unguarded(cells[TEXT]) if TEXT in cells else None
            if path := unguarded(cells.get(PATH, "")):
                content = path if is_url(path) or folder is None else os.path.join(folder, path)
            item = DrawnItem(
                unguarded(cells[ID]),
                content,
                cells[ITEM_DIGEST],
                _number(table, number, ROW, cells, -1),
                unguarded(cells[GROUP]),
                collection=unguarded(cells[COLLECTION]) if COLLECTION in cells else None,
                stratum=_number(table, number, STRATUM, cells, 0),
                batch=_number(table, number, BATCH, cells, 1),
                drawn=_number(table, number, DRAWN, cells, 0) or None,
                size=_whole(cells.get(SIZE, "")),
                control=cells.get(CONTROL_DIGEST, ""),
                vector=vectors[number] if vectors else None,
            )
            yield number, item, cells.get(ATTRIBUTE, ""), cells.get(GROUPS, "")


def _design(
    table: Table, rows: Sequence[tuple[int, DrawnItem, str, str]], warn: Callable[[str], None]
) -> tuple[list[DrawnItem], str, tuple[str, ...]]:
    """The items, each once, the attribute, and the names of the groups; refuses a design that was changed."""
    attribute = next((attribute for _, _, attribute, _ in rows if attribute), "")
    cell = next((groups for _, _, _, groups in rows if groups), "")
    groups = tuple(name.strip() for name in cell.split(BETWEEN.strip())) if cell else ()
    items = [item for _, item, _, _ in rows]
    labels = [(item.key, item.id, item.group) for item in items]
    items = [items[row] for row in once(table.label, labels, groups, warn)]
    batches: dict[tuple[str | None, int], list[DrawnItem]] = {}
    for item in items:
        batches.setdefault((item.collection, item.batch), []).append(item)
    for (collection, batch), own in batches.items():
        problem = ""
        for column, numbers in ((SIZE, {item.size for item in own}), (DRAWN, {item.drawn for item in own})):
            if len(numbers - {None}) > 1:
                problem = problem or f"different numbers in column '{column}'"
        if any(item.drawn is not None and len(own) > item.drawn for item in own):
            problem = problem or f"more rows than column '{DRAWN}' says"
        if problem:
            advice = f"was '{COLLECTION}' or another column changed? Undo that"
            if collection is None:
                advice = f"is the column '{COLLECTION}' missing, which a draw with --by has? Put it back"
            raise FileError(f"{table.label}: batch {batch} has {problem}; {advice}")
    if any(all(item.drawn is None for item in own) for own in batches.values()):
        warn(f"{table.label}: column '{DRAWN}' is blank, so rows that were deleted are not noticed")
    if any(all(item.size is None for item in own) for own in batches.values()):
        warn(
            f"{table.label}: column '{SIZE}' is blank, so items that were added since the draw are not noticed"
        )
    blank = sum(bool(item.control) and not item.stratum for item in items)
    if blank:
        warn(
            f"{table.label}: {blank} of {count(len(items), 'rows')} have no '{STRATUM}', so all items count as drawn "
            "at random and the interval may be wider; put the numbers back if you can"
        )
        items = [replace(item, stratum=0) for item in items]
    return items, attribute, groups


def once(
    name: str, labels: Sequence[tuple[Any, str, str]], groups: Sequence[str], warn: Callable[[str], None]
) -> list[int]:
    """Rows of a file, given as key, id and label, that have different keys; of repeated rows one that has a label."""
    rows: dict[Any, int] = {}
    twice: list[str] = []
    for row, (key, item, label) in enumerate(labels):
        if rows.setdefault(key, row) == row:
            continue
        twice.append(f"'{brief(item)}'")
        first = labels[rows[key]][2]
        if is_unknown(first, groups):
            rows[key] = row
        elif not is_unknown(label, groups) and plain(label) != plain(first):
            raise FileError(
                f"{name}: the item '{brief(item)}' is there twice, as '{printable(first)}' and as "
                f"'{printable(label)}'; keep one of the rows"
            )
    if twice:
        warn(f"{name}: {count(len(twice), 'rows')} repeated ({listed(twice)}); each item counts once")
    return list(rows.values())


def _number(table: Table, row: int, column: str, cells: Mapping[str, str], blank: int) -> int:
    value = _whole(cells[column]) if cells[column] else blank
    if value is None:
        raise FileError(
            f"{table.label}, {table.places([row])[0]}: '{brief(cells[column])}' in column '{column}', expected a whole "
            "number; was the column changed in a spreadsheet? Undo that"
        )
    return value


def _whole(text: str) -> int | None:
    """A whole number as spreadsheets write them.

    >>> [_whole(text) for text in ("12", "12.0", "1,270", "1.270", "1E+06", "12-Jan")]
    [12, 12, 1270, 1270, 1000000, None]
    """
    if re.fullmatch(r"\d{1,3}([.,'\s]\d{3})+", text):
        return int(re.sub(r"\D", "", text))
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        return None
    return int(value) if value.is_integer() else None


# Cells


def guarded(value: object) -> str:
    """A value as text; one that a spreadsheet would run as a formula gets an apostrophe.

    >>> [guarded(value) for value in ("a", None, 0.00006, "=1+2", "-3", "-x")]
    ['a', '', '6e-05', "'=1+2", '-3', "'-x"]
    """
    if isinstance(value, float):
        return f"{value:.6g}"
    text = "" if value is None else str(value)
    text = text.encode("utf-8", "replace").decode()  # half a character, which no file can hold
    return f"{GUARD}{text}" if FORMULA.match(text) else text


def unguarded(cell: str) -> str:
    """The text of a cell, without the apostrophe that `guarded` added."""
    return cell[1:] if cell.startswith(GUARD) and FORMULA.match(cell[1:]) else cell


def _folder_of(path: PathLike) -> str | None:
    """The folder that paths in a file start at; None for a file in a store."""
    return None if is_url(path) else os.path.dirname(os.path.abspath(path))


def _path_from(folder: str | None, content: str | bytes | None) -> str | None:
    """Where a picture is: from `folder`, if both are below a common folder; without passwords if it is in a store."""
    if not isinstance(content, str) or is_url(content):
        return public(content) if isinstance(content, str) else None
    place = os.path.abspath(content)
    if folder is not None:
        with contextlib.suppress(ValueError):  # another drive
            near = os.path.commonpath([folder, place]) != os.path.abspath(os.sep)
            place = os.path.relpath(place, folder) if near else place
    try:
        place.encode()
    except UnicodeEncodeError:  # a file name that no table can have
        return None
    return place
