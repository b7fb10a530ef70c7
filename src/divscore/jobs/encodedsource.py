"""EncodedSource: items as a table of vectors, which are encoded while they are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from divscore.errors import FileError
from divscore.jobs.cache import UNREADABLE, ItemVectors
from divscore.sources.items import ItemBatch, Items, item_labels
from divscore.sources.manifest import ENCODER_KEY
from divscore.sources.pictures import UNSUPPORTED, not_read, suffix_of
from divscore.sources.places import Location
from divscore.sources.table import PROBLEMS_KEPT, Block, Request, Table
from divscore.text import count

if TYPE_CHECKING:
    from divscore.jobs.encode import Encoding

BLOCK = 4096  # items of a block of vectors
SEVERAL = ("faces", "all")  # the option that gives an item more than one vector
SKIPPED = {"unreadable": "could not be read", "empty": "had nothing to encode"}


def refused(path: str, batch: ItemBatch, at: int, reason: str) -> FileError:
    """The error for an item that would be skipped."""
    label = item_labels(path, [(batch, at)])[0]
    return FileError(f"{label}: {reason}; fix or remove it, or leave out --strict to skip such items")


def face_messages(several: int, small: int, *, every: bool) -> list[str]:
    """How many images show several faces and which of them count, and how many faces are too small to count."""
    texts = []
    if several:
        shown = "1 image shows" if several == 1 else f"{several:,} images show"
        texts.append(f"{shown} more than one face; {'all are' if every else 'the largest is'} counted")
    if small:
        from divscore.encoders.faces import FLOOR

        texts.append(f"{count(small, 'faces')} {'was' if small == 1 else 'were'} not counted: {FLOOR}")
    return texts


def embedded_messages(source: Table) -> list[str]:
    """The same about images that were embedded before, as their files note it."""
    notes = [part.embedded for part in source.parts if part.embedded]
    several, small = sum(note.several for note in notes), sum(note.small for note in notes)
    every = any(note.vectors > note.items - note.skipped_items for note in notes)
    return [f"{source.path}: {text}" for text in face_messages(several, small, every=every)]


class EncodedSource(Table):
    """Vectors of items that are encoded while they are read, in this process.

    `tally` counts the items of the last iteration, those with several faces, and faces that are too small; `skips`
    counts those without a vector by kind and by the values of the extra columns, `unsupported` those among them that no
    decoder is here for, by what to do and suffix. Copies share all three.
    """

    def __init__(self, items: Items, encoding: Encoding, *, strict: bool, single: bool) -> None:
        super().__init__(Location(items.path, ""), Request(extra=items.extra, strict=strict))
        self.items = items
        self.encoding = encoding
        self.name, self.path, self.label = items.name, items.path, items.path
        self.rows, self.columns, self.missing = items.rows, items.columns, items.missing
        self.noun = "pictures" if items.kind == "image" else "texts"
        if SEVERAL in encoding.options:
            self.noun = "faces"
        self.here_only = True
        self.dimension = encoding.dimension(items.kind)
        self.metadata = {ENCODER_KEY: encoding.identity(items.kind)}
        self.single = single
        self.tally: Counter[str] = Counter()
        self.skips: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.unsupported: Counter[tuple[str, str]] = Counter()
        self._advance: Callable[[int], None] = lambda items: None

    @property
    def table(self) -> Table | None:
        """The table that the items are in; None for a folder."""
        return self.items.table

    @property
    def folder_columns(self) -> set[str]:
        """Those of the tables that the items are in."""
        return self.items.table.folder_columns if self.items.table is not None else set()

    def watch(self, advance: Callable[[int], None]) -> Callable[[int], None]:
        """Progress counts items, many times a block, and not vectors: an item may have none, or several."""
        self._advance = advance
        return lambda rows: None

    def _plan(self) -> None:
        """Nothing is to be chosen: the items are."""

    def _blocks(self) -> Iterator[Block]:
        self.tally.clear()
        self.skips.clear()
        self.unsupported.clear()
        if self.request.strict and self.items.unlisted:
            raise FileError(f"{self.items.unlisted[0]}; fix it, or leave out --strict")
        rows: list[tuple[ItemBatch, int, ItemVectors]] = []
        before = 0  # items of earlier blocks
        skipped: list[tuple[ItemBatch, int]] = []  # the first ones, and why
        reasons: list[str] = []
        encoded = self.encoding.run(self.items, self.items.kind, single=self.single, rows=self.items.rows)
        batch: ItemBatch | None
        for batch, results in chain(encoded, [(None, [])]):  # the last writes what is left
            for at, result in enumerate(results):
                assert batch is not None
                rows.append((batch, at, result))
                self.tally["several"] += result.detected > 1
                self.tally["small"] += result.small
                if not result.kind:
                    continue
                if self.request.strict:
                    raise refused(self.path, batch, at, result.reason)
                self.skips[result.kind, tuple(batch.values[name][at] for name in self.items.extra)] += 1
                self.unreadable += result.kind == UNREADABLE
                if result.reason.startswith(UNSUPPORTED):
                    content = batch.contents[at]
                    suffix = suffix_of(content if isinstance(content, str) else batch.ids[at])
                    self.unsupported[result.reason.removeprefix(UNSUPPORTED), suffix] += 1
                if len(skipped) < PROBLEMS_KEPT:
                    skipped.append((batch, at))
                    reasons.append(result.reason)
            if batch is not None:
                self.tally["items"] += len(batch)
                self._advance(len(batch))
            if len(rows) >= BLOCK or batch is None:
                # The item of each vector.
                of = [(n, *row[:2]) for n, row in enumerate(rows, before) for _ in range(len(row[2].vectors))]
                if of:
                    some = [result.vectors for *_, result in rows if len(result.vectors)]
                    contents = [owner.contents[at] for _, owner, at in of]
                    yield Block(
                        self.encoding.shorten(np.concatenate(some)),
                        {n: [owner.values[n][at] for _, owner, at in of] for n in self.items.extra},
                        ids=[owner.ids[at] for _, owner, at in of],
                        origins=[content if isinstance(content, str) else None for content in contents],
                        numbers=[number for number, *_ in of],
                    )
                before, rows = before + len(rows), []
        if self.unsupported and self.unsupported.total() == self.tally["items"]:
            raise FileError("; ".join(self.not_read()))
        self.unreadable += self.items.unreadable
        labels = item_labels(self.path, skipped)
        problems = [f"{label}: {reason}" for label, reason in zip(labels, reasons, strict=True)]
        self.problems = [*self.items.problems, *problems][:PROBLEMS_KEPT]

    def skipped_by(self, by: str | None, unreadable: int) -> tuple[dict[str, Counter[str]], int]:
        """Items without a vector by collection and kind; rows that the source could not read have no collection."""
        own = self.items.unreadable
        known: dict[str, Counter[str]] = {} if by else {self.name: Counter(unreadable=own, empty=0)}
        for (kind, values), number in self.skips.items():
            known.setdefault(values[0] if by else self.name, Counter())[kind] += number
        return known, own if by else 0

    def skipped_values(self) -> Counter[tuple[str, ...]]:
        """Items without a vector by the values of the extra columns, whatever the kind."""
        counts: Counter[tuple[str, ...]] = Counter()
        for (_, values), number in self.skips.items():
            counts[values] += number
        return counts

    def not_read(self) -> list[str]:
        """Which pictures no decoder was here for, and what to do."""
        return [f"{self.path}: {text}" for text in not_read(self.unsupported)]

    def messages(self, verbose: bool) -> list[str]:
        """How many items were encoded, why others were not, and which files of a folder were not read."""
        texts = []
        skipped = self.skipped_by(None, 0)[0][self.name]
        total = self.tally["items"] + self.items.unreadable
        words = dict(SKIPPED)
        if self.encoding.spec(self.items.kind).name == "faces":
            words["empty"] = "showed no face" + (", or only small ones" if self.tally["small"] else "")
        kinds = [f"{number:,} {words[kind]}" for kind, number in skipped.items() if number]
        if kinds:
            hint = "" if verbose else " (--verbose lists them)"
            encoded = total - skipped.total()
            all_items = count(total, "items")
            texts.append(f"{self.path}: {encoded:,} of {all_items} encoded; {', '.join(kinds)}{hint}")
        texts += self.not_read()
        several, small, every = self.tally["several"], self.tally["small"], SEVERAL in self.encoding.options
        texts += [f"{self.path}: {text}" for text in face_messages(several, small, every=every)]
        texts += [f"{problem}; its images are missing from the result" for problem in self.items.unlisted]
        if self.items.other:
            most = self.items.other.most_common(5)
            listed = ", ".join(f"{number:,} {suffix or 'without suffix'}" for suffix, number in most)
            texts.append(f"{self.path}: these files are not images and were not read: {listed}")
        return texts + self.encoding.troubles()
