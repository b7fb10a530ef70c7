"""Plain text: every line is an item."""

from __future__ import annotations

from collections.abc import Iterator

from divscore.sources.byterange import check_records, open_piece
from divscore.sources.cuts import BOM, mark_lines, pieces_of
from divscore.sources.places import Location
from divscore.sources.table import Block, Piece, Request, VectorSource

__all__ = ["LinesSource"]

COLUMN = "text"
# A line beyond this is no item of a list but a whole document, or no text at all.
LONGEST = 1 << 20


class LinesSource(VectorSource):
    """The lines of a .txt file as a column named ``text``; blank lines are passed over."""

    def __init__(self, location: Location, request: Request) -> None:
        super().__init__(location, request)
        self.columns = {COLUMN: "text"}
        self._require(self.columns)

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Runs of lines."""
        return pieces_of(self.location, mark_lines, rows)

    def _blocks(self) -> Iterator[Block]:
        piece = self.request.piece
        first = piece.first if piece else 0
        number = first - 1
        texts: list[str] = []
        numbers: list[int] = []
        for number, (at, line) in enumerate(self._lines(piece), start=first):
            reason = _trouble(line)
            if reason:
                self._refuse([at], lambda _, why=reason: why, "line")  # type: ignore[misc]
                continue
            texts.append(line.decode("utf-8"))
            numbers.append(number)
            if len(texts) == self.request.batch_rows:
                yield self._block(texts, numbers)
                texts, numbers = [], []
        if texts:
            yield self._block(texts, numbers)
        check_records(self.location, piece, number + 1 - first)

    def _block(self, texts: list[str], numbers: list[int]) -> Block:
        return Block.without_vectors(len(texts), dict.fromkeys(self.request.extra, texts), numbers=numbers)

    def _lines(self, piece: Piece | None) -> Iterator[tuple[int, bytes]]:
        with self.location.reading("text"), open_piece(self.location, piece) as stream:
            number = piece.line if piece else 0
            while line := stream.readline(LONGEST + 1):
                number += 1
                whole = line
                while not line.endswith(b"\n") and (line := stream.readline(LONGEST)):
                    pass  # the rest of an overlong line
                text = whole.removeprefix(BOM).strip() if number == 1 else whole.strip()
                if text:
                    yield number, text


def _trouble(line: bytes) -> str:
    if len(line) > LONGEST:
        return f"is longer than {LONGEST:,} bytes"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"is not UTF-8 text ({error.reason})"
    return ""
