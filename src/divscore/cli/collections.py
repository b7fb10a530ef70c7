"""The collections that `divscore audit` is given, from what was typed to their audits."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from divscore.audit.audit import audit
from divscore.audit.result import Audit
from divscore.cli.console import progress_bar, warn
from divscore.cli.options import Engines
from divscore.cli.passes import open_collection, sketch_source, whole_source
from divscore.cli.sketch_command import sketch_files
from divscore.control.controlset import ControlSet, LabelledSample
from divscore.errors import FileError, InputError
from divscore.jobs.auditing import audit_many
from divscore.jobs.encode import SEVERAL, EncodedSource, Encoding
from divscore.jobs.engine import Engine
from divscore.jobs.opening import open_any, open_items
from divscore.sketch.missing import Missing, MissingPart
from divscore.sketch.sketch import Sketch
from divscore.sketch.sketchfile import is_sketch, open_sketches
from divscore.sources.items import Items, is_picture
from divscore.sources.places import Location, folder_values
from divscore.sources.recognise import recognise
from divscore.sources.table import Table
from divscore.text import named

__all__ = [
    "Audited",
    "Losses",
    "audits_of",
    "called_by_folders",
    "expanded",
    "look_ahead",
    "to_fit_on",
    "told_apart",
    "with_gaps",
]


# Which collections are concerned by what could not be read.


class Losses:
    """Parts of a source that are missing, by collection where the names of their folders tell.

    Only if collections are called by folders, that is: a file that has the column itself may hold anybody's rows.

    >>> parts = [MissingPart("feed/country=SE/0.parquet", "damaged"), MissingPart("feed/1.parquet", "empty")]
    >>> lost = Losses(parts, "country")
    >>> [len(lost.of(name).listed) for name in ("SE", "SA")], lost.known
    ([2, 1], {'SE'})
    """

    def __init__(self, missing: Sequence[MissingPart], by: str | None) -> None:
        anyones: list[MissingPart] = []
        known: dict[str, list[MissingPart]] = {}
        for each in missing:
            value = folder_values(Location(each.part, each.part)).get(by) if by else None
            (anyones if value is None else known.setdefault(value, [])).append(each)
        self._anyones = Missing.of(anyones)
        self._known = {name: Missing.of(mine) for name, mine in known.items()}

    @property
    def known(self) -> set[str]:
        """Collections of which a part is known to be missing."""
        return set(self._known)

    def of(self, name: str) -> Missing:
        """What is, or may be, missing from a collection."""
        mine = self._known.get(name)
        return self._anyones if mine is None else mine + self._anyones


def called_by_folders(source: Table, by: str | None) -> bool:
    """Whether all files of a source have a column from the names of their folders alone."""
    parts = source.items.parts if isinstance(source, EncodedSource) else source.parts
    return bool(parts) and all(by in part.folder_values for part in parts)


def with_gaps(found: Audit, missing: Missing) -> Audit:
    """Say what is, or may be, missing from a collection; it cannot be trusted as if nothing were."""
    trust = "caution" if missing.count and found.trust == "good" else found.trust
    return replace(found, warnings=(*missing.warning, *found.warnings), missing=missing, trust=trust)


MANY = 100  # collections, whose audits take a second or more
WORTH_SHARING = 1_000  # collections whose audits take longer than processes take to start


@dataclass(frozen=True)
class Audited:
    """What was typed, the audits that came of it, and all that could not be read of it, whosever it was."""

    path: str
    audits: Sequence[Audit]
    missing: Missing


def expanded(path: str) -> list[str]:
    """A folder of sketches stands for all of them, and so does a pattern."""
    if os.path.isdir(path) and not any(name.endswith(".sketch") for name in os.listdir(path)):
        return [path]
    return sketch_files(path)


def look_ahead(
    collections: tuple[str, ...], control: str, encoding: Encoding, options: dict[str, Any]
) -> None:
    """Find out what is missing or named wrongly before labelled examples are encoded, which may take minutes."""
    extra = [options["by"]] if options["by"] else []
    if len(collections) > 1 and all(is_picture(path) for path in collections):
        raise InputError(
            f"{len(collections)} pictures were named one by one, and each would be a collection of its own; quote "
            "the pattern ('photos/*.jpg') or name their folder"
        )
    for path in collections:
        if os.path.exists(path) and os.path.exists(control) and os.path.samefile(path, control):
            raise InputError(
                f"{path} is the control set itself: the groups of its items are known, and judged by themselves they "
                "tell nothing. Audit other items; 'divscore compare' tests a method on labelled ones"
            )
        if path != "-" and not is_sketch(path):
            recognise(
                path, column=options["column"], extra=extra, form=options["form"], forced=encoding.forced
            )


def to_fit_on(path: str, encoding: Encoding, options: dict[str, Any]) -> tuple[Items, ...]:
    """With --pca N, the projection is fitted on the first collection's items as well."""
    if encoding.pca is None or path == "-" or is_sketch(path):
        return ()
    return (open_items(path, column=options["column"], form=options["form"]),)


def told_apart(found: Sequence[Audited]) -> list[Audit]:
    """Audits whose names say which is which: of two files called the same, the paths are the names.

    A sketch is called after what it was made of. If that is the same for several, such as a feed's of several days, all
    that hold one collection are called after their own files. Values of a column, of which other files hold many, stay
    in the names.
    """
    pairs = [(each.path, audit) for each in found for audit in each.audits]
    of_path = Counter(path for path, _ in pairs)
    among_many = {audit.name for path, audit in pairs if of_path[path] > 1}
    single = {
        path: audit.name
        for path, audit in pairs
        if of_path[path] == 1 and audit.name not in among_many and is_sketch(path)
    }
    if len(set(single.values())) < len(single):
        pairs = [
            (path, replace(audit, name=_stem(path)) if path in single else audit) for path, audit in pairs
        ]
    times = Counter(audit.name for _, audit in pairs)
    return [
        audit
        if times[audit.name] == 1
        else replace(audit, name=path if audit.name not in among_many else f"{path}: {audit.name}")
        for path, audit in pairs
    ]


def audits_of(
    collections: tuple[str, ...],
    control: ControlSet,
    encoding: Encoding,
    engines: Engines,
    *,
    estimator: str,
    confidence: float,
    seed: int,
    labelled_sample: str | None,
    by: str | None,
    column: str | None,
    samples: str,
    strict: bool,
    verbose: bool,
    form: str,
) -> Iterator[Audited]:
    """Audit what was typed one after the other, each as a collection or as many by the values of a column."""
    if (labelled_sample and len(collections) > 1) or (labelled_sample and by):
        raise InputError("--labelled-sample belongs to one collection; audit one at a time with it")
    sample = _read_sample(labelled_sample, control, encoding, column) if labelled_sample else None
    asked: dict[str, Any] = {"estimator": estimator, "confidence": confidence, "seed": seed, "sample": sample}
    _check_samples(samples, collections, by)
    for path in collections:
        if is_sketch(path):
            if by:
                raise InputError(
                    f"{path} is a sketch, which has no columns any more; make it with 'sketch --by {by}'"
                )
            held = open_sketches(path, control)
            sketches = held.sketches
            if list(sketches) == [""]:  # one that was not made with --by
                sketches = {_stem(path): sketches[""]}
            audits = [with_gaps(each, held.gaps) for each in _each_audited(sketches, control, engines, asked)]
            yield Audited(path, audits, held.gaps)
            continue
        source = open_collection(path, control, encoding, column=column, by=by, form=form, strict=strict)
        if estimator == "self-training":
            if by:
                raise InputError("'self-training' audits one collection at a time; leave out --by")
            whole = whole_source(source, strict=strict, verbose=verbose)
            found = audit(whole.vectors, control, name=source.name, **asked)
            found = replace(found, skipped={**found.skipped, **whole.skipped}, noun=_noun(source, encoding))
            yield Audited(path, [with_gaps(found, whole.gaps)], whole.gaps)
            continue
        done = sketch_source(
            source,
            control,
            by=by,
            seed=seed,
            engine=engines.suiting(source),
            samples=samples,
            strict=strict,
            verbose=verbose,
        )
        sketches = {name: sketch for name, sketch in done.sketches.items() if sketch.count}
        if not sketches and len(done.sketches) > 1:
            raise FileError(f"{source.path} holds no item with a usable vector")
        for name in done.sketches if sketches else ():
            if name not in sketches:
                warn(f"{named(name)}: no item with a usable vector; left out")
        losses = Losses(done.missing, by if called_by_folders(source, by) else None)
        for name in sorted(losses.known - set(done.sketches)):
            warn(f"{named(name)}: none of its files could be read; left out")
        noun = _noun(source, encoding)
        audits = [
            with_gaps(replace(each, noun=noun), losses.of(each.name))
            for each in _each_audited(sketches or done.sketches, control, engines, asked)
        ]
        yield Audited(path, audits, done.gaps)


def _check_samples(samples: str, collections: tuple[str, ...], by: str | None) -> None:
    """Refuse a shared sample where there would be nothing to share."""
    if samples == "shared" and not by:
        made = any(is_sketch(path) for path in collections)
        why = "sketches have samples of their own already" if made else "give --by COLUMN, or leave it out"
        raise InputError(f"--samples shared is for the many collections of one pass; {why}")


def _each_audited(
    sketches: Mapping[str, Sketch], control: ControlSet, engines: Engines, asked: dict[str, Any]
) -> Iterator[Audit]:
    """Audits one by one, with a bar and perhaps other processes where there are so many that they take a while."""
    if len(sketches) < MANY or asked["sample"] is not None:
        yield from (audit(sketch, control, name=name, **asked) for name, sketch in sketches.items())
        return
    how = {"estimator": asked["estimator"], "confidence": asked["confidence"]}
    engine = engines.crunching() if len(sketches) >= WORTH_SHARING else Engine(1)
    with progress_bar("collections", len(sketches)) as advance:
        for found in audit_many(sketches, control, engine=engine, **how):
            yield found
            advance(1)


def _noun(source: Table, encoding: Encoding) -> str:
    """What the items of a collection are called; vectors do not tell."""
    if not isinstance(source, EncodedSource):
        return "items"
    if SEVERAL in encoding.options:
        return "faces"
    return "pictures" if source.items.kind == "image" else "texts"


def _read_sample(path: str, control: ControlSet, encoding: Encoding, column: str | None) -> LabelledSample:
    known = [control.attribute, "group"]
    source = open_any(path, encoding, column=column, taken=known, strict=True)
    name = next((n for n in known if n in source.columns), None)
    if name is None:
        raise FileError(
            f"{source.path} has no column '{control.attribute}' or 'group' with the groups of the labelled "
            f"items; its columns are {', '.join(source.columns) or 'none'}"
        )
    blocks = list(open_any(path, encoding, column=column, extra=[name], strict=True))
    groups = [group for block in blocks for group in block.values[name]]
    return LabelledSample.of(np.concatenate([b.vectors for b in blocks]), groups, control)


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]
