"""Labels of the collection itself, as a user gives them: found in the collection, encoded, with their design."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet, name_groups
from divscore.control.labelledsample import LabelledSample, is_unknown, plain
from divscore.errors import FileError, InputError, MismatchError
from divscore.jobs.cache import ItemVectors
from divscore.jobs.drawfile import GROUP, ITEM_DIGEST, OF_VECTOR, Draw, control_mark, once, read_draw
from divscore.jobs.encode import Encoding
from divscore.jobs.finding import FoundItem, Places, Search, VectorPlaces, find_items, open_items, places_of
from divscore.jobs.pool import Warn, no_warning, origin_of
from divscore.jobs.sketching import PATH, Run, running
from divscore.sources import Items, Table
from divscore.sources import open as open_collection
from divscore.sources.items import ItemBatch
from divscore.sources.manifest import ENCODER_KEY
from divscore.text import brief, count, listed, printable

NAMED = 5  # items in a message
ALIKE = 0.82  # similarity of names that may be one, as difflib measures it; male and female have 0.8


@dataclass(frozen=True)
class Labels:
    """A labelled sample as it was given: a draw, whose items are found in the collection, or items with vectors."""

    run: Run
    name: str
    draw: Draw | None
    given: LabelledSample | tuple[Any, Iterable[Any]] | None
    attribute: str | None
    groups: Sequence[str] | None
    rename: Mapping[Any, str] | None
    column: str | None

    @classmethod
    def read(cls, run: Run, sample: Any, **how: Any) -> Labels:
        """Read a file, or take what was given; a file that nobody has labelled is an error at once."""
        name, draw = "the labelled sample", sample if isinstance(sample, Draw) else None
        if isinstance(sample, PATH):
            name = os.fspath(sample)
            if os.path.isdir(name):
                raise FileError(
                    f"{name} is a folder; expected the table of labelled items, such as a .csv file"
                )
            draw = read_draw(sample, run.warn)
        elif not isinstance(sample, Draw | LabelledSample) and not (
            isinstance(sample, tuple | list) and len(sample) == 2 and not isinstance(sample[0], str)
        ):
            raise InputError(
                f"a labelled sample cannot be {brief(repr(sample))}; expected a path, what draw_sample returns, or "
                "vectors and the groups of their items: (vectors, groups)"
            )
        if draw is not None and not draw.labels:
            raise FileError(f"{name}: no row has a label; fill in the column '{GROUP}'")
        given = None if isinstance(sample, (*PATH, Draw)) else sample
        return cls(run, name, draw, given, **how)

    def samples(self, source: Items | Table, control: ControlSet | None) -> dict[str, LabelledSample]:
        """The labelled items of each collection, with their vectors; of a draw, only these items are encoded.

        What is no longer in the collection, or has changed, is reported and not used. Without `by` the only collection
        is named after the source.
        """
        run, draw, path = self.run, self.draw, self.name
        if draw is None:
            return {source.name: self.alone(control)}
        _check_design(run, draw, path)
        search, found, encoder = _find(run, source, draw, path)
        marks = {item.control for item in draw.items if item.stratum} - {""}
        if marks and control is not None and control_mark(control) not in marks:
            run.warn(
                f"{path}: its pairs were made with another control set. The interval is still correct, but may be "
                "wider than with pairs of this one"
            )
        order = tuple(self.groups or draw.groups)
        if control is None and not order:
            _warn_of_typos(path, [item.group for item in draw.items], run.warn)
            order = _names(draw, self.rename)
        own: dict[str, list[int]] = defaultdict(list)
        for number, item in found.items():
            own[(item.collection or "") if run.by else source.name].append(number)
        # Items that cannot be encoded are not missing: the result is about those that can.
        missing = Counter(draw.missing)
        missing.update(draw.items[number].collection for number in (*search.gone, *search.changed))
        known = (*(order if control is None else control.groups), *(self.rename or ()))
        samples: dict[str, LabelledSample] = {}
        for name, numbers in own.items():
            drawn = [draw.items[number] for number in numbers]
            if all(is_unknown(item.group, known) for item in drawn):
                continue
            strata = np.array([item.stratum for item in drawn], dtype=np.intp)
            first = min(drawn, key=lambda item: item.batch)
            # Rows that are gone may be of any collection if only a column of the collection tells them apart.
            lost = sum(missing.values()) if first.collection is None else missing[first.collection]
            samples[name] = LabelledSample.of(
                np.stack([vector for number in numbers if (vector := found[number].vector) is not None]),
                [item.group for item in drawn],
                control=control,
                order=None if control is not None else order,
                attribute=self.attribute or draw.attribute or None,
                rename=self.rename,
                strata=_in_pairs(strata) if strata.any() else None,
                batches=max(item.batch for item in drawn),
                drawn_from=None if run.by and first.collection is None else first.size,
                encoder=encoder,
                missing=lost,
            )
        return samples

    def alone(self, control: ControlSet | None) -> LabelledSample:
        """Labelled items that bring their vectors, or are encoded themselves: they were drawn at random."""
        if isinstance(self.given, LabelledSample):
            return self.given
        words: dict[str, Any] = {"control": control, "order": None if control is not None else self.groups}
        words |= {"attribute": self.attribute, "rename": self.rename}
        if self.given is not None:
            return LabelledSample.of(*self.given, **words)
        names = [name for name in (control.attribute if control else self.attribute, GROUP) if name]
        options: dict[str, Any] = {"strict": True, "forced": self.run.encoding.forced, "labelled": True}
        source = open_collection(self.name, column=self.column, exclude=names, **options)
        name = next((column for column in names if column in source.columns), None)
        if name is None:
            wanted = " or ".join(f"'{name}'" for name in names)
            raise FileError(
                f"{source.path} has no column {wanted} with the groups of the labelled items; its columns are "
                f"{', '.join(source.columns) or 'none'}"
            )
        identity = [column for column in source.columns if column.lower() == "id"][:1]
        vectors = self.run.encoding.encode(source.select(extra=(name, *identity)), strict=True)
        blocks = list(vectors)
        labels = [group for block in blocks for group in block.values[name]]
        ids = [text for block in blocks for text in block.values[identity[0]]] if identity else []
        pairs = zip(ids, labels, strict=True) if identity else ()  # rows without an id are different items
        keys = [(text or number, text, label) for number, (text, label) in enumerate(pairs)]
        rows = once(self.name, keys, words["order"] or (), self.run.warn) if identity else range(len(labels))
        if not any(labels):
            raise FileError(f"{source.path}: no row has a label; fill in the column '{name}'")
        if control is None and not self.groups:
            _warn_of_typos(self.name, labels, self.run.warn)
        matrix = np.concatenate([block.vectors for block in blocks])[rows]
        encoder = vectors.metadata.get(ENCODER_KEY)
        return LabelledSample.of(matrix, [labels[row] for row in rows], encoder=encoder, **words)


def _check_design(run: Run, draw: Draw, path: str) -> None:
    """Refuse a draw that says nothing about the collections that are audited."""
    by_collection = draw.items[0].collection is not None
    if by_collection and run.by is None:
        raise MismatchError(
            f"{path} was drawn for each of several collections; audit them with the same --by"
        )
    if run.by is not None and not by_collection and any(item.stratum for item in draw.items):
        raise MismatchError(
            f"{path} was drawn in pairs from the whole collection; draw it with --by {run.by} for each collection"
        )


def _find(
    run: Run, source: Items | Table, draw: Draw, path: str
) -> tuple[Search, dict[int, FoundItem], str | None]:
    """Find drawn items again: the search, those that have a vector by their numbers, and what made the vectors."""
    places = places_of(run, source)
    search = find_items(places, draw.items)
    _report(run, draw, search, places, path)
    found = {number: item for number, (_, item) in search.found.items()}
    if isinstance(places, VectorPlaces):
        return search, found, places.encoder
    return search, _encoded(run, places.source, found), run.encoding.identity(places.source.kind)


def _report(run: Run, draw: Draw, search: Search, places: Places, path: str) -> None:
    """Say which drawn items are not used, and why."""
    where, total = places.source.path, len(draw)
    if deleted := sum(draw.missing.values()):
        run.warn(
            f"{path}: {count(deleted, 'drawn items')} of {total + deleted:,} have no row. Put the rows back, and leave "
            f"'{GROUP}' blank where nobody can tell: without them the labels may not be typical of the collection"
        )
    if blank := sum(not item.digest for item in draw.items):
        run.warn(
            f"{path}: {count(blank, 'rows')} without '{ITEM_DIGEST}': whether these items have changed is unknown"
        )
    if 2 * len(search.found) < total:
        raise MismatchError(
            f"only {len(search.found)} of the {total} items of {path} are in {where}: was it drawn from another "
            "collection?"
        )
    for numbers, why in ((search.gone, "no longer in"), (search.changed, "changed in")):
        if numbers:
            names = _named(draw.items[number].id for number in numbers)
            run.warn(f"{path}: {len(numbers)} of {total} items {why} {where}, so not used: {names}")
    if search.renamed:
        run.warn(
            f"{path}: {count(len(search.renamed), 'items')} found by content, as the ids differ; a spreadsheet may "
            "have changed them"
        )
    if any(item.digest and item.digest.startswith(OF_VECTOR) != places.vectors for item in draw.items):
        kind = "vectors" if places.vectors else {"image": "pictures", "text": "texts"}[places.kind]
        run.warn(f"{path}: the items were found by their ids alone; {where} has their {kind} only")


def _named(ids: Iterable[str]) -> str:
    return listed([f"'{brief(name)}'" for name in ids], NAMED)


def _encoded(run: Run, source: Items, found: Mapping[int, FoundItem]) -> dict[int, FoundItem]:
    """Encode the items that were found; those that cannot be encoded are reported."""
    encoding = run.encoding
    encoding.fit(source)
    numbers = list(found)
    contents = [found[number].content or "" for number in numbers]
    batch = ItemBatch(contents, [found[number].id for number in numbers])
    with run.progress("labelled items", len(numbers)) as advance:
        results: list[ItemVectors] = []
        for piece, some in encoding.run([batch], source.kind, rows=len(numbers)):
            results += some
            advance(len(piece))
    bad = [number for number, result in zip(numbers, results, strict=True) if not len(result.vectors)]
    if bad:
        verb, names = "is" if len(bad) == 1 else "are", _named(found[number].id for number in bad)
        run.warn(f"{count(len(bad), 'labelled items')} cannot be encoded and {verb} not used: {names}")
    return {
        number: replace(found[number], vector=encoding.shorten(result.vectors)[0])
        for number, result in zip(numbers, results, strict=True)
        if len(result.vectors)
    }


def _names(draw: Draw, rename: Mapping[Any, str] | None) -> tuple[str, ...]:
    """Names of groups, if only the labels say them; the first spelling counts."""
    labels = [item.group for item in draw.items if not is_unknown(item.group, rename or ())]
    spelled: dict[str, str] = {}
    for name in name_groups({GROUP: labels}, rename, no_warning, every=False)[GROUP]:
        spelled.setdefault(plain(name), name)
    return tuple(sorted(spelled.values()))


def _warn_of_typos(path: str, labels: Sequence[str], warn: Warn) -> None:
    """Warn of a group with one label and almost the name of another: nothing else says what the groups are."""
    counts = Counter(plain(label) for label in labels if not is_unknown(label))
    for name, number in counts.items():
        others = [other for other in counts if counts[other] > 1]
        like = [other for other in others if sorted(other) == sorted(name)]  # two letters in the wrong order
        like = like or get_close_matches(name, others, 1, ALIKE)
        if number == 1 and like:
            warn(
                f"{path}: one label is '{printable(name)}', {counts[like[0]]} are '{printable(like[0])}'. If it is a "
                "typo, correct it; else name the groups with --groups"
            )


def _in_pairs(strata: NDArray[np.intp]) -> NDArray[np.intp]:
    """Strata of two items or more: those that lost an item become one.

    Its items differ more than those of a pair, so the interval is rather too wide.
    """
    names, stratum, sizes = np.unique(strata, return_inverse=True, return_counts=True)
    single = sizes[stratum] == 1
    if not single.any():
        return strata
    merged = strata.copy()
    merged[single] = names.max() + 1 if single.sum() > 1 else names[0] if sizes[0] > 1 else names[-1]
    return merged


def labelled_examples(
    collection: Any, draw: Draw, encoding: Encoding, *, column: str | None = None, **how: Any
) -> ControlSet:
    """The labelled items of a draw as a control set for other collections of the same kind, with their origins.

    The items are found again in their collection, so it does not matter whether the draw has their contents.
    """
    with running(encoder=encoding, **how) as run:
        source = open_items(run, collection, column, "")
        _, found, encoder = _find(run, source, draw, "the draw")
    items = [replace(draw.items[number], vector=item.vector) for number, item in found.items()]
    attribute = draw.attribute or GROUP
    known = [item for item in items if not is_unknown(item.group, draw.groups)]
    if not known:
        raise InputError("no item of the draw has a group; label them first")
    table = replace(draw, items=tuple(known), encoder=encoder).examples(attribute)
    names = table.column(attribute).to_pylist()
    origins = [origin_of(c if isinstance(c := item.content, str) else None, draw.kind) for item in known]
    return ControlSet(
        np.stack([item.vector for item in known if item.vector is not None]),
        names,
        attribute=attribute,
        order=draw.groups if set(draw.groups) == set(names) else None,
        ids=table.column("id").to_pylist(),
        origins=origins,
        encoder=encoder,
    )
