"""Columns of Arrow tables: what they hold, and their contents as arrays and text."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.sources.table import as_float
from divscore.sources.texts import Texts

__all__ = [
    "decoded",
    "kind_of",
    "lengths_of",
    "matrix_of",
    "pictures_of",
    "stored",
    "stored_type",
    "texts_of",
]

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
