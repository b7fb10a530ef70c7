"""Block and Table: vectors of a file, a few megabytes at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError
from divscore.sketch.missing import MissingPart
from divscore.sources.places import Location, NoRowsError, folder_values, quoted
from divscore.text import public

__all__ = [
    "Block",
    "Piece",
    "Request",
    "Table",
    "Texts",
    "decoded",
    "kind_of",
    "lengths_of",
    "matrix_of",
    "pictures_of",
    "stored",
    "stored_type",
    "texts_of",
]


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


class Table:
    """Vectors of one file, read anew at every iteration and never loaded whole.

    `rows` is None where the format does not tell. `unreadable` and `problems` speak of the last iteration:
    how many rows had no usable vector, and the first messages about them. `columns` maps the file's columns
    to their kind ("vector", "text", "number", "bool", …); `metadata` is what a table says about itself. `missing`
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
        self.missing: tuple[MissingPart, ...] = ()
        self.parts: tuple[Table, ...] = (self,)  # its files
        self.folder_values: dict[str, str] = {}  # columns that the names of its folders add
        self.number_columns: list[str] = []  # columns that are together the vector
        self.unreadable = 0
        self.problems: list[str] = []

    def __iter__(self) -> Iterator[Block]:
        self.unreadable = 0
        self.problems = []
        yield from self._blocks()

    def __repr__(self) -> str:
        rows = "" if self.rows is None else f"{self.rows} × "
        return f"<{type(self).__name__} {self.path}: {rows}{self.dimension}>"

    @property
    def locations(self) -> list[Location]:
        """Where its files are."""
        return [part.location for part in self.parts]

    @property
    def many(self) -> bool:
        """Whether it has several files, so that a bad one is missing and not the end."""
        return False

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
        """Code a list of strings, names in the order of their first appearance."""
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


# Columns of Arrow tables: what they hold, and their contents as arrays and text.

MOST_HELD = 65_536  # names of a dictionary
_HELD = threading.local()


def stored_type(kind: Any) -> Any:
    """Return the plain type below an extension type, such as a fixed-shape tensor."""
    return getattr(kind, "storage_type", kind)


def stored(array: Any) -> Any:
    """Return the plain array below one of an extension type."""
    return getattr(array, "storage", array)


def kind_of(kind: Any) -> str:
    """Tell what a column of this Arrow type holds."""
    from pyarrow import types

    if types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind):
        item = kind.value_type
        return "vector" if types.is_floating(item) or types.is_integer(item) else "other"
    if types.is_dictionary(kind):
        return kind_of(kind.value_type)
    if _is_binary(kind) or (types.is_struct(kind) and _is_binary(_bytes_field(kind))):
        return "picture"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_boolean(kind):
        return "bool"
    if types.is_temporal(kind):
        return "date"
    number = types.is_floating(kind) or types.is_integer(kind) or types.is_decimal(kind)
    return "number" if number else "other"


def lengths_of(column: Any) -> NDArray[Any]:
    """Return the length of every list, −1 for null."""
    import pyarrow.compute as pc

    lengths: NDArray[Any] = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    return lengths


def matrix_of(column: Any, dimension: int) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return the rows of `column` that are whole vectors, and which rows those are (None: all of them)."""
    import pyarrow as pa

    good: NDArray[np.bool_] | None = None
    if column.null_count or not pa.types.is_fixed_size_list(column.type):
        fits = lengths_of(column) == dimension
        if not fits.all():
            good, column = fits, column.filter(pa.array(fits))
    numbers = column.flatten()
    matrix = numbers.to_numpy(zero_copy_only=not numbers.null_count).reshape(-1, dimension)
    if numbers.null_count:
        whole = numbers.is_valid().to_numpy(zero_copy_only=False).reshape(-1, dimension).all(axis=1)
        good = np.ones(len(whole), dtype=bool) if good is None else good.copy()
        good[good] = whole
        matrix = matrix[whole]
    return as_float(matrix), good


def pictures_of(column: Any) -> list[bytes]:
    """Return the bytes of pictures, empty for null; the usual form is a struct of bytes and path."""
    import pyarrow as pa

    cells = column.field("bytes") if pa.types.is_struct(column.type) else column
    return [cell or b"" for cell in cells.to_pylist()]


def _is_binary(kind: Any) -> bool:
    from pyarrow import types

    return kind is not None and (types.is_binary(kind) or types.is_large_binary(kind))


def _bytes_field(kind: Any) -> Any:
    at = kind.get_field_index("bytes")
    return kind.field(at).type if at >= 0 else None


def texts_of(column: Any) -> Texts:
    """Return values as text, empty for null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        if not column.null_count and not column.dictionary.null_count:
            return Texts(_names(column.dictionary), column.indices.to_numpy().astype(np.intp))
        column = column.dictionary_decode()
    coded = pc.fill_null(column.cast(pa.string()), "").dictionary_encode()
    return Texts(coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False).astype(np.intp))


def _names(dictionary: Any) -> list[str]:
    """The values of a dictionary as text; mostly those of the block before."""
    import pyarrow as pa

    texts = dictionary.cast(pa.string())
    known: tuple[Any, list[str]] | None = getattr(_HELD, "names", None)
    if known is not None and known[0].equals(texts):
        return known[1]
    names: list[str] = texts.to_pylist()
    if len(names) <= MOST_HELD:
        _HELD.names = pa.array(names, pa.string()), names  # a copy: the file may change, or vanish
    return names


def decoded(metadata: dict[bytes, bytes] | None) -> dict[str, str]:
    """Return the metadata of a schema as text."""
    return {k.decode(errors="replace"): v.decode(errors="replace") for k, v in (metadata or {}).items()}
