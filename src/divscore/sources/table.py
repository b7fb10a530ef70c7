"""Table: vectors and columns of a file or object, a few megabytes at a time."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import NDArray

from divscore.control.similarity import usable_rows
from divscore.errors import FileError
from divscore.sketch.missing import MissingPart
from divscore.sources.manifest import Embedded
from divscore.sources.places import Location, NoRowsError, UnseenError, folder_values, unseen
from divscore.text import public, quoted

# Larger blocks fall out of the processor's cache and are slower to fill; smaller ones cost calls.
BLOCK_BYTES = 16 << 20
PROBLEMS_KEPT = 20
HEAD = 200  # rows that decide the kind of a column
PREFERRED = ("embedding", "embeddings", "vector", "vectors", "features")
REFUSED = {"refuse": ", or leave out --strict to skip such rows", "never": ""}
KINDS = {
    "vector": "vectors",
    "text": "text",
    "number": "one number per row",
    "bool": "true/false",
    "date": "dates or times",
    "picture": "pictures",
    "object": "pickled Python objects, which divscore never loads",
    "other": "neither text nor numbers",
}


@dataclass(frozen=True)
class Block:
    """Some vectors and, for each, the text of the requested columns (a missing value is an empty text).

    Without vectors, as in a table of items, the matrix has no columns; `pictures` are then the bytes of a column of
    pictures. `numbers` are the row numbers in the file, set where rows before may have been skipped.
    """

    vectors: NDArray[Any]
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    pictures: Sequence[bytes] = ()
    ids: Sequence[str] = ()  # names of encoded items
    numbers: Sequence[int] = ()
    origins: Sequence[str | None] = ()  # of encoded items: a text, or the address of a picture that is a file


def no_vectors(rows: int) -> NDArray[Any]:
    """The matrix of a block of items that are still to be encoded."""
    return np.empty((rows, 0), dtype=np.float32)


@dataclass(frozen=True)
class Piece:
    """A run of a file's rows that can be read on its own: from `start` to `stop`, in the format's own unit.

    How a file is divided depends on the file alone, so results never depend on who read which piece.
    """

    start: int  # row groups of Parquet, record batches of Arrow IPC, rows of arrays, bytes of text
    stop: int
    unit: str
    rows: int | None = None
    first: int = 0  # number of its first row in the file, for messages
    line: int = 0  # lines before it, in a text file

    def __str__(self) -> str:
        return f"{self.unit} {self.start} to {self.stop - 1}"

    @classmethod
    def runs(cls, count: int, step: int) -> list[Piece]:
        """Runs of `step` rows out of `count`."""
        stops = (min(start + step, count) for start in range(0, count, step))
        return [cls(at * step, stop, "rows", stop - at * step, at * step) for at, stop in enumerate(stops)]


@dataclass(frozen=True)
class Request:
    """What to read of a table; without `vectors` only the `extra` columns, and the bytes of the `pictures` column."""

    column: str | None = None
    extra: tuple[str, ...] = ()
    strict: bool = False
    batch_rows: int = 65536
    block_bytes: int = 0  # of a block, in place of `BLOCK_BYTES`
    vectors: bool = True
    pictures: str | None = None
    piece: Piece | None = None
    peek: bool = True  # read the first cells of texts while the file is open
    unusable: Literal["", "list", "refuse", "never"] = (
        ""  # vectors of zeros, and with NaN: a sketch skips them
    )

    def rows_within(self, dimension: int, itemsize: int = 8) -> int:
        """Rows in a block that keeps memory small whatever the dimension; a block has float32 at least."""
        row_bytes = max(1, dimension * max(4, itemsize))
        return max(1, min(self.batch_rows, (self.block_bytes or BLOCK_BYTES) // row_bytes))

    def alone(self) -> Request:
        """The same request to a table that has only the rows of the piece."""
        piece = self.piece
        return replace(self, piece=piece and replace(piece, start=0, stop=piece.stop - piece.start))


class Table:
    """Vectors and columns of one file or object, read again at every iteration and never loaded whole.

    `opened` opens the file once. `select` then says what an iteration yields, and opens nothing: `columns` maps each
    column to its kind ("vector", "text", "number", "bool", …), `rows` is None where the format does not say.
    `read`, `unreadable` and `problems` describe the last iteration: how many rows were read and skipped, and the first
    messages.
    `missing` are files that could not be read, now or when `embed` wrote this one.
    """

    kind: Literal["vectors"] = "vectors"
    many = False  # whether it has several files: a bad one among them is missing, and no error

    def __init__(self, location: Location, request: Request | None = None) -> None:
        self.location = location
        self.request = request or Request()
        self.here_only = location.path == "-"  # whether other processes cannot read it
        self.name = location.name
        self.path = public(location.path)  # for messages; `location` says where it really is
        self.label = location.label
        self.rows: int | None = None
        self.dimension = 0
        self.columns: dict[str, str] = {}
        self.metadata: dict[str, str] = {}
        self.embedded: Embedded | None = None  # what `embed` noted in the file
        self.missing: tuple[MissingPart, ...] = ()
        self.folder_values: dict[str, str] = {}  # requested columns that the names of its folders add
        self.number_columns: list[str] = []  # columns that together are the vector
        self.noun = "items"  # what a row is; vectors do not say what they were made from
        self.size = 0  # bytes of the file when it was divided
        self.unreadable = 0
        self.read = 0  # rows
        self.problems: list[str] = []
        self.column = ""  # of vectors
        self._head: dict[str, list[str]] = {}

    def opened(self) -> Self:
        """Open the file, once, to see what is in it."""
        self._open()
        self._plan()
        return self

    def select(self, **changes: Any) -> Self:
        """The same table, with other fields of its `Request`; nothing is opened again."""
        other = copy(self)
        other.request = replace(self.request, **changes)
        other.unreadable, other.problems = 0, []
        other._plan()
        return other

    def __copy__(self) -> Self:
        other = object.__new__(type(self))  # the usual way would drop what is not pickled
        vars(other).update(vars(self))
        return other

    def anywhere(self) -> Self:
        """The same table for a process that works in another folder."""
        other = copy(self)
        other.location, other.size = self.location.anywhere, self.location.size()
        return other

    def divided(self) -> Iterator[Table]:
        """Runs of rows that any worker can read, in order: the files alone decide how they are divided."""
        for part in self.parts:
            table, pieces = part.anywhere(), part.pieces()
            yield from (table.select(piece=piece) for piece in (pieces if len(pieces) > 1 else [None]))

    def check_visible(self) -> None:
        """Refuse a run of `divided` that this machine does not see, or that has changed since it was divided."""
        if self.location.in_memory:
            return
        if not self.location.remote and not os.path.exists(self.location.url):
            raise UnseenError(unseen(self.location.label))
        now = self.location.size()
        if now != self.size:
            raise FileError(
                f"{self.location.label} has {now:,} bytes, and had {self.size:,} when the work was planned: it was "
                "changed, or this machine has another copy"
            )

    def __iter__(self) -> Iterator[Block]:
        self.read, self.unreadable, self.problems = 0, 0, []
        for block in self._blocks():
            if self.request.unusable:
                self._check_usable(block)
            self.read += len(block.vectors)
            if not self.folder_values:
                yield block
                continue
            codes = np.zeros(len(block.vectors), dtype=np.intp)
            added = {name: Texts([value], codes) for name, value in self.folder_values.items()}
            yield replace(block, values={**block.values, **added})

    def __str__(self) -> str:
        piece = self.request.piece
        return f"{self.label}, {piece}" if piece else self.label

    def __repr__(self) -> str:
        rows = "" if self.rows is None else f"{self.rows} × "
        return f"<{type(self).__name__} {self.path}: {rows}{self.dimension}>"

    def __getstate__(self) -> dict[str, Any]:
        # Sent to a worker with each piece: what only planning needs would be sent a thousand times.
        return {**self.__dict__, "_head": {}, "metadata": {}, "embedded": None, "missing": ()}

    @property
    def parts(self) -> Sequence[Table]:
        """One table for each file."""
        return (self,)

    @property
    def table(self) -> Table | None:
        """The table that the rows are in: this one, but for items."""
        return self

    @property
    def locations(self) -> list[Location]:
        """Where its files are."""
        return [part.location for part in self.parts]

    @property
    def folder_columns(self) -> set[str]:
        """Requested columns that the names of its folders add, for all of its files."""
        return set.intersection(*(set(part.folder_values) for part in self.parts))

    def watch(self, advance: Callable[[int], None]) -> Callable[[int], None]:
        """Say where progress goes; returns what to call with the number of rows that were read."""
        return advance

    def skipped_values(self) -> Counter[tuple[str, ...]]:
        """Items that could not be encoded in the last iteration, by the values of the extra columns."""
        return Counter()

    def not_read(self) -> list[str]:
        """Which items of the last iteration no decoder was here for, and what to do."""
        return []

    def messages(self, verbose: bool) -> list[str]:
        """What a person should know about the last iteration."""
        return []

    def skipped_by(self, by: str | None, unreadable: int) -> tuple[dict[str, Counter[str]], int]:
        """Items without a vector by collection and kind, and how many belong to an unknown collection.

        Here these are the rows that could not be read, and what `embed` noted in the metadata of its files.
        """
        known: dict[str, Counter[str]] = {} if by else {self.name: Counter(unreadable=unreadable, empty=0)}
        notes = [part.embedded for part in self.parts if part.embedded]
        for note in notes:
            by_name = note.skipped_by.get(by, {}) if by else {self.name: note.skipped}
            if note.skipped_items != sum(sum(kinds.values()) for kinds in by_name.values()):
                # Some are not attributed, so the counts of all collections would be too low.
                return {}, unreadable + sum(note.skipped_items for note in notes)
            for name, kinds in by_name.items():
                known.setdefault(name, Counter()).update(kinds)
        return known, unreadable if by else 0

    def head(self, name: str) -> list[str]:
        """The first cells of a column of text."""
        if name not in self._head:
            some = self.select(vectors=False, extra=(name,), pictures=None, piece=None, batch_rows=HEAD)
            self._head[name] = next((list(block.values[name]) for block in some), [])
        return self._head[name]

    def kind_of(self, column: str) -> str:
        """Kind of the column that a user named."""
        if column not in self.columns:
            raise FileError(
                f"{self.label} has no column '{column}'; give --column one of {quoted(self.columns)}"
            )
        return self.columns[column]

    def check_header(self, usual: Container[str]) -> None:
        """Refuse labelled examples that begin with one of them instead of the names of columns.

        A name that is `usual` shows that there are names.
        """

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Runs of rows that can be read on their own, in order; none where the file is read from end to end.

        `rows` asks for runs of about as many rows, where the usual number does not suit.
        """
        return []

    def _open(self) -> None:
        """Read from the file what `_plan` needs: columns, rows, metadata, dimensions."""
        raise NotImplementedError

    def _blocks(self) -> Iterator[Block]:
        raise NotImplementedError

    def _find_vectors(self) -> None:
        """Choose what makes the vectors, and set their dimension."""
        raise NotImplementedError

    @property
    def _own(self) -> tuple[str, ...]:
        """Requested columns that are in the file itself."""
        return tuple(name for name in self.request.extra if name not in self.folder_values)

    def _plan(self) -> None:
        """Check the request against what the file has."""
        extra, piece = self.request.extra, self.request.piece
        named = folder_values(self.location) if extra else {}
        # A column of the file counts more than the name of its folder.
        self.folder_values = {n: v for n, v in named.items() if n in extra and n not in self.columns}
        if piece is not None:
            self.rows = piece.rows
        for name in self._own:
            if name not in self.columns:
                more = f"; its folders add {quoted(named)}" if named else ""
                raise FileError(f"{self.label} has no column '{name}'; it has {quoted(self.columns)}{more}")
            if self.columns[name] in {"vector", "picture", "object", "other"}:
                raise FileError(
                    f"{self.label}: column '{name}' has {KINDS[self.columns[name]]}; expected text or single numbers"
                )
        if self.request.vectors:
            self._find_vectors()

    def places(self, numbers: Sequence[int]) -> list[str]:
        """Rows as messages name them: by the line that an editor shows, or counted from 0 where there are no lines."""
        lines: Mapping[int, int] = {}
        with contextlib.suppress(FileError):  # the message is about something else
            lines = self._lines(numbers) if numbers else {}
        return [f"line {lines[number]}" if number in lines else f"row {number}" for number in numbers]

    def _lines(self, numbers: Sequence[int]) -> Mapping[int, int]:
        """The lines, counted from 1, at which these rows begin, in a text file."""
        return {}

    def _skip(
        self, reasons: Mapping[int, str], *, more: int = 0, lines: Mapping[int, int] | None = None
    ) -> None:
        """Count rows without a usable vector, and `more` without a reason; the first is an error when strict."""
        self.unreadable += len(reasons) + more
        shown = list(islice(reasons, PROBLEMS_KEPT - len(self.problems)))
        places = self.places(shown) if lines is None else [f"line {lines[number]}" for number in shown]
        for number, place in zip(shown, places, strict=True):
            problem = f"{self.label}, {place}: {reasons[number]}"
            if self.request.strict:
                expected = f"expected {self.dimension} numbers; " if self.request.vectors else ""
                raise FileError(f"{problem}; {expected}fix or remove the {place.split()[0]}")
            self.problems.append(problem)

    def _check_usable(self, block: Block) -> None:
        """Name rows that a sketch will skip."""
        first = (self.request.piece.first if self.request.piece else 0) + self.read
        bad = np.flatnonzero(~usable_rows(block.vectors)).tolist()[: PROBLEMS_KEPT - len(self.problems)]
        places = self.places([block.numbers[at] if block.numbers else first + at for at in bad])
        for at, place in zip(bad, places, strict=True):
            kind = "only zeros" if np.isfinite(block.vectors[at]).all() else "NaN or infinite numbers"
            problem = f"{self.path}, {place}: the vector has {kind}"
            if self.request.unusable in REFUSED:
                raise FileError(f"{problem}; fix or remove it{REFUSED[self.request.unusable]}")
            self.problems.append(problem)

    def _choose(self, expected: str = "lists of numbers") -> str:
        """Name the column of vectors: the requested one, the only one, or the one with a usual name."""
        label, column, columns = self.label, self.request.column, self.columns
        vectors = [name for name, kind in columns.items() if kind == "vector"]
        if column is not None:
            if self.kind_of(column) != "vector":
                raise FileError(
                    f"{label}: column '{column}' has {KINDS[columns[column]]}, expected {expected}; "
                    f"give --column a column of vectors (here: {quoted(vectors)})"
                )
            return column
        if not vectors:
            kinds = ", ".join(f"'{name}' ({KINDS[kind]})" for name, kind in columns.items()) or "none"
            raise FileError(
                f"{label} has no column of vectors; expected {expected}. Its columns: {kinds}. "
                "Add a column of vectors, or name one with --column"
            )
        usual = [name for wanted in PREFERRED for name in vectors if name.lower() == wanted]
        if len(vectors) > 1 and not usual:
            raise FileError(
                f"{label} has {len(vectors)} columns of vectors, {quoted(vectors)}; choose one with --column"
            )
        return usual[0] if usual else vectors[0]

    def _numbers(self, row_names: Container[str]) -> list[str]:
        """Columns of numbers that together are the vector, where there is no column of vectors."""
        if self.request.column is not None or "vector" in self.columns.values():
            return []
        extra, kinds = self.request.extra, self.columns.items()
        return [n for n, kind in kinds if kind == "number" and n not in extra and n.lower() not in row_names]

    def _check_names(self, names: Sequence[str]) -> None:
        twice = sorted(name for name, times in Counter(names).items() if times > 1)
        if twice:
            raise FileError(f"{self.label} has more than one column named {quoted(twice)}; rename them")

    def _check_shape(self) -> None:
        """Refuse files without rows, and vectors without numbers."""
        if self.rows == 0:
            raise NoRowsError(f"{self.label} has 0 rows; expected at least one vector")
        if self.dimension == 0:
            raise FileError(f"{self.label} has no row with a usable vector; expected lists of numbers")


def as_float(vectors: NDArray[Any]) -> NDArray[Any]:
    """Make numbers float32 where that is exact and float64 otherwise; float32 and float64 are not copied."""
    wanted = np.promote_types(vectors.dtype, np.float32)
    return np.ascontiguousarray(vectors, dtype=wanted if wanted.itemsize <= 8 else np.float64)


# Texts: a column of text in which values repeat, kept as different names and codes.


class Texts(Sequence[str]):
    """Reads like a list of strings; `names` are the different ones, `codes` say which each row has.

    >>> column = Texts.of(["b", "a", "b"])
    >>> column.names, column.codes.tolist(), list(column)
    (['b', 'a'], [0, 1, 0], ['b', 'a', 'b'])
    """

    def __init__(self, names: list[str], codes: NDArray[np.intp]) -> None:
        self.names = names
        self.codes = codes

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """Code a list of strings, names in the order of their first appearance; Texts stay as they are."""
        if isinstance(texts, Texts):
            return texts
        position: dict[str, int] = {}
        codes = [position.setdefault(text, len(position)) for text in texts]
        return cls(list(position), np.array(codes, dtype=np.intp))

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Texts: ...
    def __getitem__(self, index: int | slice) -> str | Texts:
        if isinstance(index, slice):
            return Texts(self.names, self.codes[index])
        return self.names[int(self.codes[index])]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Texts({list(self)!r})"

    def where(self, keep: NDArray[np.bool_]) -> Texts:
        """Rows that a mask keeps."""
        return Texts(self.names, self.codes[keep])
