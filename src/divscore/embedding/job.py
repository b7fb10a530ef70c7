"""embed(): items to a file of vectors, as a job that can be killed at any moment and started again."""

from __future__ import annotations

import csv
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from divscore.checkedfile import refuse_address
from divscore.embedding.arrowfile import IDENTITY, VECTOR, Layout
from divscore.embedding.contents import KEY_BYTES, fingerprint, signature
from divscore.embedding.encoding import Encoding
from divscore.embedding.itempart import unopened
from divscore.embedding.journal import Journal
from divscore.embedding.pipeline import Pipeline, chunks
from divscore.errors import FileError
from divscore.missing import Missing
from divscore.sources.embedded import KINDS, MOST_VALUES
from divscore.sources.items import Items, ItemSource

__all__ = ["EmbedResult", "embed"]

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
    missing: tuple[Missing, ...] = ()  # files or parts that could not be read at all


def embed(
    source: ItemSource,
    out: str | os.PathLike[str],
    encoding: Encoding,
    *,
    strict: bool = False,
    may_be_empty: bool = False,
    progress: Callable[[int], None] = lambda items: None,
) -> EmbedResult:
    """Encode every item of `source` into the Arrow file `out`, which appears when it is whole.

    Finished chunks are kept beside it until then; after an interruption the same call goes on from there.
    Items without a vector are listed in ``out`` + ``.skipped.csv``. That no item has one is an error, unless this
    is a part of something larger, which `may_be_empty`.
    """
    refuse_address(out, "a file of vectors")
    target = Path(out)
    _check(target, source)
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
        return job.finish(target, resumed, may_be_empty)
    finally:
        job.journal.close()


class _Lost:
    """Items without a vector by the values of each column, for audits --by that column later."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._by: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in columns}

    def add(self, kind: str, values: list[str]) -> None:
        for name, value in zip(self._columns, values, strict=True):
            found = self._by.get(name)
            if found is not None:
                found[value, kind] += 1
                if len(found) > MOST_VALUES:
                    del self._by[name]  # nearly every item its own: no column to audit by

    def counts(self) -> dict[str, dict[str, dict[str, int]]]:
        told: dict[str, dict[str, dict[str, int]]] = {}
        for name, found in self._by.items():
            for (value, kind), number in found.items():
                told.setdefault(name, {}).setdefault(value, {})[kind] = number
        return told


@dataclass(frozen=True)
class _Job:
    source: ItemSource
    encoding: Encoding
    pipeline: Pipeline
    layout: Layout
    journal: Journal

    def pieces(self) -> Iterator[Items]:
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

    def rest(self) -> Iterator[Items]:
        done = len(self.journal.marks)
        for at, piece in enumerate(self.pieces()):
            if at >= done:
                yield piece

    def finish(self, target: Path, resumed: int, may_be_empty: bool) -> EmbedResult:
        """Write the list of skipped items and the vectors, then drop the journal."""
        listing = target.with_name(f"{target.name}.skipped.csv")
        lost = _Lost(self.layout.columns)
        counts = self._list_skipped(listing, lost)
        counts["unreadable"] += self.source.unreadable
        if not counts["vectors"] and not may_be_empty:
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
            unopened(self.source),
        )
        about = {key: value for key, value in asdict(result).items() if key not in NOT_KEPT}
        about["skipped_by"] = lost.counts()
        identity = self.encoding.identity(self.source.kind)
        self.layout.write(target, self.journal.payloads(), identity, {"source": self.source.name, **about})
        self.journal.close()
        self.journal.path.unlink(missing_ok=True)
        return result

    def _list_skipped(self, listing: Path, lost: _Lost) -> Counter[str]:
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

    def signature(self, piece: Items) -> bytes:
        """Tell whether a chunk's items are those of an earlier start."""
        state = hashlib.blake2b(digest_size=KEY_BYTES)
        for content, name in zip(piece.contents, piece.ids, strict=True):
            state.update(signature(content, self.source.kind))
            state.update(name.encode("utf-8", "surrogatepass") + b"\0")
        for column in self.layout.columns:
            state.update(fingerprint("\0".join(piece.values[column])))
        return state.digest()


def _check(target: Path, source: ItemSource) -> None:
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


def _open_journal(target: Path, source: ItemSource, encoding: Encoding, chunk: int) -> Journal:
    path = target.with_name(f"{target.name}.part")
    header = {
        "source": source.path if "://" in source.path else os.path.normpath(source.path),
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
