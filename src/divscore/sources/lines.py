"""Plain text: every line is an item."""

from __future__ import annotations

from collections.abc import Iterator

from divscore.sources.block import Block, Request, VectorSource
from divscore.sources.location import Location

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

    def _blocks(self) -> Iterator[Block]:
        texts: list[str] = []
        for number, line in self._lines():
            reason = _trouble(line)
            if reason:
                self._refuse([number], lambda _, why=reason: why, "line")  # type: ignore[misc]
                continue
            texts.append(line.decode("utf-8"))
            if len(texts) == self.request.batch_rows:
                yield self._block(texts)
                texts = []
        if texts:
            yield self._block(texts)

    def _block(self, texts: list[str]) -> Block:
        return Block.without_vectors(len(texts), dict.fromkeys(self.request.extra, texts))

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        with self.location.reading("text"), self.location.open() as stream:
            number = 0
            while line := stream.readline(LONGEST + 1):
                number += 1
                whole = line
                while not line.endswith(b"\n") and (line := stream.readline(LONGEST)):
                    pass  # the rest of an overlong line
                text = whole.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else whole.strip()
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
