"""Arrow IPC files: record batches, mapped into memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from divscore.sources.arrow import TableSource
from divscore.sources.table import Piece

__all__ = ["ArrowSource"]

# Record batches are gathered until they take as many bytes, which is known without reading them.
PIECE_BYTES = 64 << 20


class ArrowSource(TableSource):
    """An Arrow IPC file (or stream), memory-mapped."""

    format = "Arrow IPC"

    def _read_schema(self) -> Any:
        import pyarrow as pa

        with self._file() as file:
            return (pa.ipc.open_file if _is_random_access(file) else pa.ipc.open_stream)(file).schema

    def _count_rows(self) -> int | None:
        """Add up the batches; None where that would read the whole file (remote, compressed, a stream)."""
        import pyarrow as pa

        if self.request.piece:
            return self.request.piece.rows
        with self._file() as file:
            if self.location.remote or not _is_random_access(file):
                return None
            reader = pa.ipc.open_file(file)
            batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
            first = next(batches, None)
            if first is None or reader.num_record_batches == 1:
                return 0 if first is None else int(first.num_rows)
            return sum((int(b.num_rows) for b in batches), first.num_rows) if _is_view(first, file) else None

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Consecutive record batches, as many as take `PIECE_BYTES` on the average."""
        import pyarrow as pa

        with self.location.reading(self.format), self._file() as file:
            if not _is_random_access(file):
                return []
            size = file.size()
            reader = pa.ipc.open_file(file)
            count = reader.num_record_batches
            step = max(1, -(-PIECE_BYTES * count // max(1, size)))
            found: list[Piece] = []
            first = 0
            for start in range(0, count, step):
                stop = min(start + step, count)
                number = None
                if self.rows is not None:
                    number = sum(int(reader.get_batch(at).num_rows) for at in range(start, stop))
                found.append(Piece(start, stop, "record batches", number, first))
                first += number or 0
            return found

    def _batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        import pyarrow as pa

        # Choosing columns makes pyarrow copy them out of a memory map: done only where files are fetched.
        chosen = [list(self.columns).index(name) for name in columns] if self.location.remote else None
        options = pa.ipc.IpcReadOptions(included_fields=chosen)
        with self._file() as file:
            for batch in _read_batches(file, options, self.request.piece):
                for name in columns:
                    # A damaged file may hold offsets that point outside of it.
                    batch.column(name).validate(full=True)
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)

    @contextlib.contextmanager
    def _file(self) -> Iterator[Any]:
        import pyarrow as pa

        if self.location.remote:
            with self.location.open() as stream:
                yield pa.PythonFile(stream, mode="r")
            return
        # Not closed here: blocks that were handed out may still view the mapping, and keep it alive.
        yield pa.memory_map(self.location.url)


def _is_random_access(file: Any) -> bool:
    start = file.read(6)
    file.seek(0)
    if start[:4] == b"FEA1":
        raise ValueError("Feather version 1 is not Arrow IPC; write it again with a current pyarrow")
    return bool(start == b"ARROW1")


def _is_view(batch: Any, file: Any) -> bool:
    """Whether a batch lies in the mapped file as it is, not decompressed."""
    file.seek(0)
    whole = file.read_buffer(file.size())
    filled = [
        buffer
        for column in batch.columns
        for buffer in column.buffers()
        if buffer is not None and buffer.size
    ]
    return all(whole.address <= buffer.address < whole.address + whole.size for buffer in filled)


def _read_batches(file: Any, options: Any, piece: Piece | None) -> Iterator[Any]:
    import pyarrow as pa

    if not _is_random_access(file):
        yield from pa.ipc.open_stream(file, options=options)
        return
    reader = pa.ipc.open_file(file, options=options)
    for number in range(*((piece.start, piece.stop) if piece else (0, reader.num_record_batches))):
        yield reader.get_batch(number)
