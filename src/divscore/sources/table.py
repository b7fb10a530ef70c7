"""Block and VectorSource: vectors of a file, a few megabytes at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.audit.missing import Missing
from divscore.errors import FileError
from divscore.sources.places import Location, NoRowsError, folder_values, quoted
from divscore.text import public

__all__ = ["Block", "Piece", "Request", "VectorSource"]

# Larger blocks fall out of the processor's cache and are slower to fill; smaller ones cost calls.
BLOCK_BYTES = 16 << 20
PROBLEMS_KEPT = 20
PREFERRED = ("embedding", "embeddings", "vector", "vectors", "features")
KINDS = {
    "vector": "vectors",
    "text": "text",
    "number": "one number a row",
    "bool": "true/false",
    "date": "dates or times",
    "picture": "pictures",
    "object": "pickled Python objects, which divscore never loads",
    "other": "neither text nor numbers",
}


@dataclass(frozen=True)
class Block:
    """Some vectors and, for each, the text of the requested columns (a missing value is an empty text).

    Where only columns were asked for, the vectors have no numbers; `pictures` are the bytes of a column of pictures.
    `numbers` are the rows of the file that these are, where some may have been left out before.
    """

    vectors: NDArray[Any]
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    pictures: Sequence[bytes] = ()
    ids: Sequence[str] = ()  # what encoded items are called
    numbers: Sequence[int] = ()

    @classmethod
    def without_vectors(
        cls,
        rows: int,
        values: Mapping[str, Sequence[str]],
        pictures: Sequence[bytes] = (),
        numbers: Sequence[int] = (),
    ) -> Block:
        """Rows of a table of items that are still to be encoded."""
        return cls(np.empty((rows, 0), dtype=np.float32), values, pictures, numbers=numbers)


@dataclass(frozen=True)
class Piece:
    """A run of a file's rows that can be read on its own: from `start` to `stop`, in the format's own unit.

    How a file is divided depends on the file alone, so that results never depend on who read which piece.
    """

    start: int  # row groups of Parquet, record batches of Arrow IPC, rows of .npy, bytes of text
    stop: int
    unit: str
    rows: int | None = None
    first: int = 0  # row of the file with which it begins, for messages
    line: int = 0  # lines before it, in a file of lines

    def __str__(self) -> str:
        return f"{self.unit} {self.start} to {self.stop - 1}"


@dataclass(frozen=True)
class Request:
    """What to read of a file, and how; without `vectors` only the `extra` columns are read.

    `pictures` is a column whose cells are whole pictures, as image data sets in Parquet have them. A `piece` is read
    in place of the whole file; `dimension` is given where the file was opened before, and need not be found again.
    """

    column: str | None = None
    extra: tuple[str, ...] = ()
    strict: bool = False
    batch_rows: int = 65536
    block_bytes: int = 0  # of a block, in place of `BLOCK_BYTES`
    vectors: bool = True
    pictures: str | None = None
    piece: Piece | None = None
    dimension: int = 0

    def rows_within(self, dimension: int, itemsize: int = 8) -> int:
        """Rows in a block that keeps memory small whatever the dimension."""
        return max(1, min(self.batch_rows, (self.block_bytes or BLOCK_BYTES) // max(1, dimension * itemsize)))


class VectorSource:
    """Vectors of one file, read anew at every iteration and never loaded whole.

    `rows` is None where the format does not tell. `unreadable` and `problems` speak of the last iteration:
    how many rows had no usable vector, and the first messages about them. `columns` maps the file's columns
    to their kind ("vector", "text", "number", "bool", …); `metadata` is what a table says about itself. `unopened`
    are files that had to be left out: here, or when `embed` made this one.
    """

    def __init__(self, location: Location, request: Request) -> None:
        self.location = location
        self.request = request
        self.name = location.name
        self.path = public(location.path)  # for messages; `location` says where it really is
        self.label = location.label
        self.rows: int | None = None
        self.dimension = 0
        self.columns: dict[str, str] = {}
        self.metadata: dict[str, str] = {}
        self.unopened: tuple[Missing, ...] = ()
        self.unreadable = 0
        self.problems: list[str] = []

    def __iter__(self) -> Iterator[Block]:
        self.unreadable = 0
        self.problems = []
        yield from self._blocks()

    def __repr__(self) -> str:
        rows = "" if self.rows is None else f"{self.rows} × "
        return f"<{type(self).__name__} {self.path}: {rows}{self.dimension}>"

    def _blocks(self) -> Iterator[Block]:
        raise NotImplementedError

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Runs of rows that can be read on their own, in order; none where the file is read from end to end.

        `rows` asks for runs of about as many rows, where the usual number does not suit.
        """
        return []

    def _refuse(self, rows: Iterable[int], reason: Callable[[int], str], unit: str = "row") -> None:
        """Count rows without a usable vector; the first of them is an error when strict."""
        numbers = list(rows)
        self.unreadable += len(numbers)
        for number in islice(numbers, PROBLEMS_KEPT - len(self.problems)):
            problem = f"{self.location.label}, {unit} {number}: {reason(number)}"
            if self.request.strict:
                wanted = f"expected {self.dimension} numbers: " if self.request.vectors else ""
                raise FileError(f"{problem}; {wanted}mend the {unit} or leave it out")
            self.problems.append(problem)

    def _require(self, columns: Mapping[str, str]) -> None:
        """Refuse requested extra columns that the file lacks or that are not text or numbers."""
        for name in self.request.extra:
            if name not in columns:
                folders = folder_values(self.location)
                more = f", and its folders name {quoted(folders)}" if folders else ""
                raise FileError(
                    f"{self.location.label} has no column '{name}'; it has {quoted(columns)}{more}"
                )
            if columns[name] in {"vector", "picture", "object", "other"}:
                raise FileError(
                    f"{self.location.label}: column '{name}' holds {KINDS[columns[name]]}; "
                    "expected a column of text or single numbers"
                )

    def _choose(self, columns: Mapping[str, str], expected: str = "lists of numbers") -> str:
        """Name the column of vectors: the requested one, the only one, or the one with a usual name."""
        label, column = self.location.label, self.request.column
        found = [name for name, kind in columns.items() if kind == "vector"]
        if column is not None:
            if column not in columns:
                raise FileError(f"{label} has no column '{column}'; give --column one of {quoted(columns)}")
            if column not in found:
                raise FileError(
                    f"{label}: column '{column}' holds {KINDS[columns[column]]}, expected {expected}; "
                    f"give --column a column of vectors (here: {quoted(found)})"
                )
            return column
        if not found:
            kinds = ", ".join(f"'{name}' ({KINDS[kind]})" for name, kind in columns.items()) or "nothing"
            raise FileError(
                f"{label} has no column of vectors; it has {kinds}. Expected {expected}: "
                "add such a column, or name one with --column"
            )
        usual = [name for wanted in PREFERRED for name in found if name.lower() == wanted]
        if len(found) > 1 and not usual:
            raise FileError(
                f"{label} has {len(found)} columns of vectors, {quoted(found)}; choose one with --column"
            )
        return usual[0] if usual else found[0]

    def _check_shape(self) -> None:
        """Refuse files without rows, and vectors without numbers."""
        if self.rows == 0:
            raise NoRowsError(f"{self.location.label} holds 0 rows; expected at least one vector")
        if self.dimension == 0:
            raise FileError(
                f"{self.location.label} has no row with a usable vector; expected lists of numbers"
            )


def as_float(vectors: NDArray[Any]) -> NDArray[Any]:
    """Make numbers float32 where that is exact and float64 otherwise; float32 and float64 are not copied."""
    wanted = np.promote_types(vectors.dtype, np.float32)
    return np.ascontiguousarray(vectors, dtype=wanted if wanted.itemsize <= 8 else np.float64)
