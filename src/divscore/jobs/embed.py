"""embed(): items to a file of vectors, as a job that can be killed at any moment and started again."""

from __future__ import annotations

import csv
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from divscore.audit.missing import Missing
from divscore.errors import FileError
from divscore.files import refuse_address
from divscore.jobs.arrowfile import IDENTITY, VECTOR, Layout
from divscore.jobs.contents import KEY_BYTES, fingerprint, signature
from divscore.jobs.encode import Encoding
from divscore.jobs.itempart import unopened
from divscore.jobs.journal import Journal
from divscore.jobs.lost import Lost
from divscore.jobs.pipeline import Pipeline, chunks
from divscore.jobs.place import origin_of, place_of
from divscore.jobs.predecessor import refuse_other_file
from divscore.sources.embedded import KINDS
from divscore.sources.items import Items, ItemSource
from divscore.sources.leftout import note_left_out

__all__ = ["EmbedResult", "check_file", "embed"]

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
    overwrite: bool = False,
    part: bool = False,
    progress: Callable[[int], None] = lambda items: None,
) -> EmbedResult:
    """Encode every item of `source` into the Arrow file `out`, which appears when it is whole.

    Finished chunks are kept beside it until then; after an interruption the same call goes on from there.
    Items without a vector are listed in ``out`` + ``.skipped.csv``. Vectors of another source or by another encoder
    are replaced only where `overwrite` says so. A `part` of something larger may have no vector at all, and what it
    replaces is the business of the whole.
    """
    refuse_address(out, "a file of vectors")
    target = Path(out)
    check_file(target, source)
    if not (overwrite or part):
        refuse_other_file(target, source, encoding)
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
        return job.finish(target, resumed, part)
    finally:
        job.journal.close()


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

    def finish(self, target: Path, resumed: int, part: bool) -> EmbedResult:
        """Write the list of skipped items and the vectors, then drop the journal."""
        listing = target.with_name(f"{target.name}.skipped.csv")
        lost = Lost(self.layout.columns)
        counts = self._list_skipped(listing, lost)
        counts["unreadable"] += self.source.unreadable
        if not counts["vectors"] and not part:
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
        if not part:
            about["origin"] = origin_of(self.source)
            about["missing"] = note_left_out(result.missing)
        about["variant"] = self.encoding.encoder(self.source.kind).variant
        identity = self.encoding.identity(self.source.kind)
        self.layout.write(target, self.journal.payloads(), identity, {"source": self.source.name, **about})
        self.journal.close()
        self.journal.path.unlink(missing_ok=True)
        return result

    def _list_skipped(self, listing: Path, lost: Lost) -> Counter[str]:
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


def check_file(target: Path, source: ItemSource) -> None:
    """Refuse a name that vectors cannot be written to, before anything is done."""
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
        "source": place_of(source),
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
