"""audit_source(): from a path or an object to audits; the command line, Python and the web app call it."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from divscore.audit.audit import audit_vectors
from divscore.audit.audits import Audits
from divscore.audit.result import Audit
from divscore.control.controlset import ControlSet, LabelledSample
from divscore.errors import FileError, InputError, MismatchError
from divscore.jobs.encode import SEVERAL, EncodedSource, Encoding
from divscore.jobs.engine import Engine
from divscore.jobs.pool import Progress, Warn, make_encoding, no_progress, no_warning, read_control
from divscore.jobs.sketching import Engines, Run, Sketched, check_sendable
from divscore.sketch.many import Sketches
from divscore.sketch.missing import Missing, MissingPart
from divscore.sketch.scorer import Scorer, scorer_for, shared_scorer
from divscore.sketch.sketch import Sketch
from divscore.sketch.sketchfile import is_sketch, open_sketches
from divscore.sources import Items, Table
from divscore.sources import open as open_collection
from divscore.sources.items import is_picture
from divscore.sources.manifest import ENCODER_KEY
from divscore.sources.places import Location, folder_values
from divscore.text import named, printable

PATH = (str, os.PathLike)
MANY = 100  # collections: their audits take a second or more, so progress is shown
WORTH_PROCESSES = 1_000  # collections: their audits take longer than starting processes
FEW_NUMBERS = 8


def audit_source(
    collection: Any,
    control: Any,
    *,
    attribute: str | None = None,
    by: str | None = None,
    groups: Sequence[str] | None = None,
    estimator: str = "likelihood",
    confidence: float = 0.95,
    seed: int = 0,
    sample: LabelledSample | tuple[Any, Iterable[str]] | str | os.PathLike[str] | None = None,
    target: str = "collection",
    name: str | None = None,
    column: str | None = None,
    form: str = "",
    encoder: str | Encoding | None = None,
    model: str | os.PathLike[str] | None = None,
    options: dict[str, str] | None = None,
    pca: int | str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | bool = True,
    workers: int = 1,
    cluster: str | None = None,
    strict: bool = False,
    verbose: bool = False,
    progress: Progress = no_progress,
    warn: Warn = no_warning,
) -> Audits:
    """Audit whatever a user names, against labelled examples or a control set.

    Parameters
    ----------
    collection : path, table, array, Sketch, iterable of arrays, or list of paths
        A folder of images, a table, a list of texts, vectors, a pattern, a sketch, "-", local or remote; a pandas,
        polars or Arrow table. Each path of a list is a collection of its own.
    control : ControlSet, path or table
        Labelled examples, or what `read_control` takes.
    attribute : str, optional
        Column of group names, if `control` is a table; "gender×tone" for intersections.
    by : str, optional
        Audit every value of this column as its own collection, in one pass; "folder" for images.
    groups : sequence of str, optional
        Order of the groups: disparity = share(first) − share(second).
    sample : LabelledSample, (vectors, groups) or path, optional
        Random items of the collection with their groups, for the estimators "rectified" and "iid".
    column, form : str
        Column of texts, image paths or vectors where it is not clear; the suffix a file should be read as.
    encoder, model, options, pca, cache :
        What turns items into vectors, see `Encoding`. By default the control set's encoder, "faces" for images and
        "ngrams" for texts, and the user's cache folder; ``cache=False`` keeps no vectors.
    workers : int
        Number of parallel workers.
    cluster : str, optional
        Address of a Dask scheduler, or its scheduler file.
    strict : bool
        Raise an error at the first item that would be skipped.
    verbose : bool
        Name the skipped items in warnings.
    progress : callable
        Called with a name and a total (or None) where something takes long; returns a context manager that gives a
        function to call with the number of finished items.
    warn : callable
        Called with each message about the input that a person should read.
    """
    several = isinstance(collection, (list, tuple)) and all(isinstance(each, PATH) for each in collection)
    things = _expand(collection if several else [collection], control)
    if not things:
        raise InputError("no collection was given: the list is empty")
    if sample is not None and (by or len(things) > 1):
        raise InputError("a labelled sample belongs to one collection; audit one at a time with it")
    with ExitStack() as stack:
        if not isinstance(encoder, Encoding):
            encoder = stack.enter_context(
                make_encoding(encoder, model=model, options=options, pca=pca, cache=cache, workers=workers)
            )
        engines = stack.enter_context(Engines(workers, cluster, warn))
        reading: dict[str, Any] = {"by": by, "seed": seed, "strict": strict, "verbose": verbose}
        job = _Job(encoding=encoder, engines=engines, progress=progress, warn=warn, **reading)
        # Opened before the labelled examples are encoded, which may take minutes: a wrong name is an error at once.
        opened = [job.open(thing, column, form) for thing in things]
        if isinstance(control, ControlSet):
            if attribute not in (None, control.attribute):
                raise MismatchError(
                    f"the control set has the attribute '{printable(control.attribute)}', not '{attribute}'"
                )
            control = control if groups is None else control.with_order(groups)
            encoder.expect(control.encoder)
        else:
            items = opened[0] if isinstance(opened[0], Items) and encoder.pca is not None else None
            control = read_control(
                control,
                encoder,
                attribute=attribute,
                order=groups,
                likely_column=column,
                fit_with=() if items is None else (items,),
                progress=progress,
                warn=warn,
            )
        engines.lend(encoder)
        if isinstance(sample, PATH):
            sample = _read_sample(sample, control, encoder, column)
        how: dict[str, Any] = {
            "estimator": estimator,
            "confidence": confidence,
            "target": target,
            "sample": sample,
        }
        found = []
        for thing, source in zip(things, opened, strict=True):
            path = os.fspath(thing) if isinstance(thing, PATH) else ""
            if source is not None:
                found.append(_Audited(path, *job.audit(source, control, how)))
            elif path:
                found.append(_Audited(path, *job.audit_sketches(path, control, how)))
            else:
                only = audit_vectors(thing, control, name="collection", seed=seed, workers=workers, **how)
                if strict and any(only.skipped.values()):
                    raise InputError(f"{sum(only.skipped.values())} items have no usable vector (strict)")
                found.append(_Audited(path, [only], Missing()))
    if len(found) == len(found[0].audits) == 1:
        (only,) = found[0].audits
        return Audits((only if name is None or by else replace(only, name=name),), found[0].missing)
    return Audits(_distinct_names(found), sum((each.missing for each in found), Missing()))


def sketch_collection(
    collection: Any,
    control: Any,
    encoding: Encoding,
    *,
    attribute: str | None = None,
    by: str | None = None,
    column: str | None = None,
    form: str = "",
    seed: int = 0,
    workers: int = 1,
    cluster: str | None = None,
    strict: bool = False,
    verbose: bool = False,
    progress: Progress = no_progress,
    warn: Warn = no_warning,
) -> Sketched:
    """Sketch a collection, or one for each value of the column `by`; the parameters are those of `audit_source`."""
    with Engines(workers, cluster, warn) as engines:
        reading: dict[str, Any] = {"by": by, "seed": seed, "strict": strict, "verbose": verbose}
        job = _Job(encoding=encoding, engines=engines, progress=progress, warn=warn, **reading)
        source = job.open(collection, column, form)
        if source is None:
            raise InputError(f"{collection} is a sketch already")
        labelled = read_control(control, encoding, attribute=attribute, progress=progress, warn=warn)
        engines.lend(encoding)
        return job.sketch(job.comparable(source, labelled), labelled)


@dataclass(frozen=True, kw_only=True)
class _Job(Run):
    """A run with an encoder for items."""

    encoding: Encoding

    def open(self, thing: Any, column: str | None, form: str) -> Items | Table | None:
        """Open a path or a table; items are not encoded yet. None for sketches, and vectors in memory."""
        if not hasattr(thing, "__arrow_c_stream__") and (not isinstance(thing, PATH) or is_sketch(thing)):
            if self.by and isinstance(thing, PATH):
                raise InputError(
                    f"{thing} is a sketch and has no columns; create it with 'divscore sketch --by {self.by}'"
                )
            if self.by:
                raise InputError("--by needs a table or a file with columns; vectors alone have none")
            return None
        extra = [self.by] if self.by else []
        forced = self.encoding.forced
        return open_collection(
            thing, column=column, extra=extra, form=form, strict=self.strict, forced=forced
        )

    def comparable(self, source: Items | Table, control: ControlSet) -> Table:
        """The vectors of a collection, if they can be compared with the control set's."""
        if isinstance(source, Items):
            if control.encoder is None and not self.encoding.forced:
                raise MismatchError(
                    f"{source.path} has to be encoded, but the control set does not say which encoder made its "
                    "vectors; name it with --encoder, or use labelled examples instead of vectors"
                )
            self.encoding.fit(source)
            source = EncodedSource(source, self.encoding, strict=self.strict)
        elif self.encoding.shortens:
            raise FileError(f"{source.path} has vectors already; --pca shortens only what is encoded")
        if 0 < len(source.number_columns) < FEW_NUMBERS:
            names = ", ".join(source.number_columns)
            self.warn(f"{source.path}: the columns {names} are used as vectors (--column names another)")
        for part in source.parts:
            encoder = part.metadata.get(ENCODER_KEY)
            if encoder is None and control.encoder and os.path.exists(part.location.url):
                self.warn(
                    f"{part.path} does not say which encoder made it; assuming the control set's, {control.encoder}"
                )
            if encoder and control.encoder and encoder != control.encoder:
                raise MismatchError(
                    f"{part.path} was encoded by '{encoder}', the control set by '{control.encoder}'; use the same "
                    "encoder for both"
                )
        if source.dimension != control.dimension:
            raise MismatchError(
                f"{source.path} has vectors of {source.dimension} numbers, the control set of {control.dimension}; "
                "both must come from the same encoder"
            )
        return source

    def audit(
        self, opened: Items | Table, control: ControlSet, how: dict[str, Any]
    ) -> tuple[list[Audit], Missing]:
        """Audit a collection, or many by the values of a column; with all that is missing from the source."""
        source, by = self.comparable(opened, control), self.by
        noun = "items"  # vectors do not say what they were made from
        if isinstance(source, EncodedSource):
            noun = "pictures" if source.items.kind == "image" else "texts"
            noun = "faces" if SEVERAL in self.encoding.options else noun
        if how["estimator"] == "self-training":
            if by:
                raise InputError("'self-training' audits one collection at a time; leave out --by")
            vectors, skipped, parts = self.read_vectors(source)
            only = audit_vectors(vectors, control, name=source.name, seed=self.seed, **how)
            only = replace(only, skipped={**only.skipped, **skipped}, noun=noun)
            return [_with_missing(only, Missing.of(parts))], Missing.of(parts)
        done = self.sketch(source, control)
        sketches = {name: sketch for name, sketch in done.sketches.items() if sketch.count}
        if not sketches and len(done.sketches) > 1:
            raise FileError(f"{source.path} has no item with a usable vector")
        for name in done.sketches if sketches else ():
            if name not in sketches:
                self.warn(f"{named(name)}: skipped, as none of its items has a usable vector")
        audits = [
            replace(each, noun=noun) for each in self.audit_each(sketches or done.sketches, control, how)
        ]
        if not done.missing:
            return audits, Missing()
        # Folders name the collections only if they do so for all files: a file with the column has anybody's rows.
        tables = source.items.parts if isinstance(source, EncodedSource) else source.parts
        folders = bool(tables) and all(by in table.folder_values for table in tables)
        missing = MissingByCollection(done.missing, by if folders else None)
        for name in sorted(missing.known - set(done.sketches)):
            self.warn(f"{named(name)}: skipped, as none of its files could be read")
        return [_with_missing(each, missing.of(each.name)) for each in audits], Missing.of(done.missing)

    def audit_sketches(
        self, path: str, control: ControlSet, how: dict[str, Any]
    ) -> tuple[list[Audit], Missing]:
        """Audit every collection of a file of sketches."""
        file = open_sketches(path, control)
        sketches = file.sketches
        if list(sketches) == [""]:  # made without --by
            sketches = {_stem(path): sketches[""]}
        audits = self.audit_each(sketches, control, how)
        return [_with_missing(each, file.missing) for each in audits], file.missing

    def audit_each(
        self, sketches: Mapping[str, Sketch], control: ControlSet, how: dict[str, Any]
    ) -> Iterator[Audit]:
        """Audit sketches one by one; where they are many, with progress and in several processes."""
        if len(sketches) < MANY or how["sample"] is not None or how["target"] != "collection":
            yield from (audit_vectors(sketch, control, name=name, **how) for name, sketch in sketches.items())
            return
        engine = self.engines.start(processes=True) if len(sketches) >= WORTH_PROCESSES else Engine(1)
        options = {key: how[key] for key in ("estimator", "confidence")}
        with self.progress("collections", len(sketches)) as advance:
            for each in audit_many(sketches, control, engine=engine, **options):
                yield each
                advance(1)


# What was named: paths, and sketches that stand for many collections.


@dataclass(frozen=True)
class _Audited:
    """A path, its audits, and all that is missing from its source."""

    path: str
    audits: Sequence[Audit]
    missing: Missing


def sketch_files(path: str, *, output: str | None = None, warn: Warn = no_warning) -> list[str]:
    """The sketches of a folder or pattern in the order of their names, or the file itself.

    Hidden files are skipped, as a killed job may leave one, and so is the `output` of an earlier run.
    """
    if not os.path.isdir(path):
        if os.path.exists(path) or not path.endswith(".sketch") or not glob.has_magic(path):
            return [path]
        return sorted(filter(is_sketch, glob.glob(path, recursive=True))) or [path]
    with os.scandir(path) as listing:
        visible = sorted(each.path for each in listing if not each.name.startswith(".") and each.is_file())
    files = [each for each in visible if is_sketch(each)]
    kept = [each for each in files if output is None or os.path.realpath(each) != os.path.realpath(output)]
    if len(kept) < len(files):
        warn(f"{output} is in {path} and is not counted: it is the output file")
    if not kept:
        raise FileError(f"{path} is a folder without sketches; expected files written by 'divscore sketch'")
    return kept


def _expand(named: Sequence[Any], control: Any) -> list[Any]:
    """What is audited: a folder or a pattern of sketches stands for all of them; refuses what cannot be meant."""
    things: list[Any] = []
    for thing in named:
        path = os.fspath(thing) if isinstance(thing, PATH) else None
        sketches = path is not None and (
            any(name.endswith(".sketch") for name in os.listdir(path))
            if os.path.isdir(path)
            else path.endswith(".sketch")
        )
        things += sketch_files(path) if sketches and path is not None else [thing]
        if path is not None and _same_file(path, control):
            raise InputError(
                f"{path} is the control set itself, and its groups are known. Audit other items; 'divscore compare' "
                "tests a method on labelled ones"
            )
    if len(things) > 1 and all(isinstance(thing, PATH) and is_picture(os.fspath(thing)) for thing in things):
        raise InputError(
            f"{len(things)} images were named one by one, and each would be a collection of its own; quote the pattern "
            "('photos/*.jpg') or name their folder"
        )
    return things


def _same_file(path: str, other: Any) -> bool:
    exist = isinstance(other, PATH) and os.path.exists(path) and os.path.exists(other)
    return exist and os.path.samefile(path, other)


def _distinct_names(found: Sequence[_Audited]) -> tuple[Audit, ...]:
    """Give each audit a name of its own: of two files with the same name, the paths become the names.

    A sketch is named after its source. Where that is the same for several, such as one feed on several days, all that
    contain one collection are named after their files. Values of a column, which other files have too, stay in the
    names.
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
    return tuple(
        audit
        if times[audit.name] == 1
        else replace(audit, name=path if audit.name not in among_many else f"{path}: {audit.name}")
        for path, audit in pairs
    )


def _stem(path: Any) -> str:
    return str(os.path.splitext(os.path.basename(path))[0])


def _read_sample(path: Any, control: ControlSet, encoding: Encoding, column: str | None) -> LabelledSample:
    names = [control.attribute, "group"]
    source = open_collection(path, column=column, exclude=names, strict=True, forced=encoding.forced)
    name = next((each for each in names if each in source.columns), None)
    if name is None:
        raise FileError(
            f"{source.path} has no column '{control.attribute}' or 'group' with the groups of the labelled items; its "
            f"columns are {', '.join(source.columns) or 'none'}"
        )
    if isinstance(source, Items):
        blocks = list(EncodedSource(source.select([name]), encoding, strict=True))
    else:
        blocks = list(source.select(extra=(name,)))
    groups = [group for block in blocks for group in block.values[name]]
    return LabelledSample.of(np.concatenate([block.vectors for block in blocks]), groups, control)


# What is absent: skipped items by kind, missing parts by collection.


class MissingByCollection:
    """Missing parts of a source, by collection where the names of their folders tell (`by`).

    >>> parts = [MissingPart("feed/country=SE/0.parquet", "damaged"), MissingPart("feed/1.parquet", "empty")]
    >>> missing = MissingByCollection(parts, "country")
    >>> [len(missing.of(name).listed) for name in ("SE", "SA")], missing.known
    ([2, 1], {'SE'})
    """

    def __init__(self, parts: Sequence[MissingPart], by: str | None) -> None:
        unknown: list[MissingPart] = []
        known: dict[str, list[MissingPart]] = {}
        for each in parts:
            value = folder_values(Location(each.part, each.part)).get(by) if by else None
            (unknown if value is None else known.setdefault(value, [])).append(each)
        self._unknown = Missing.of(unknown)
        self._known = {name: Missing.of(own) for name, own in known.items()}

    @property
    def known(self) -> set[str]:
        """Collections that certainly miss a part."""
        return set(self._known)

    def of(self, name: str) -> Missing:
        """What is, or may be, missing from a collection."""
        own = self._known.get(name)
        return self._unknown if own is None else own + self._unknown


def _with_missing(audit: Audit, missing: Missing) -> Audit:
    """Note what is, or may be, missing from a collection; it is not trusted as if it were complete."""
    trust = "caution" if missing.count and audit.trust == "good" else audit.trust
    return replace(audit, warnings=(*missing.warning, *audit.warnings), missing=missing, trust=trust)


# audit_many: the audits of thousands of sketches, shared among workers.

BATCH = 100  # sketches that a worker is given at a time


@dataclass(frozen=True)
class _Order:
    """What is the same for all sketches."""

    scorer: Scorer
    estimator: str
    confidence: float


@dataclass(frozen=True)
class _Batch:
    sketches: Sketches

    def __str__(self) -> str:
        return f"the audits of {len(self.sketches)} collections"


def audit_many(
    sketches: Mapping[str, Sketch],
    control: ControlSet,
    *,
    engine: Engine,
    estimator: str = "likelihood",
    confidence: float = 0.95,
) -> Iterator[Audit]:
    """Audit sketches that were made in one pass, or read from one file, in their order; none may be empty.

    The same as ``audit(sketch, control)`` for each, whoever does the work. An engine of processes, or a cluster, is
    worth it from about a thousand sketches on; audits hold Python's lock, so threads do not help.
    """
    first = next(iter(sketches.values()), None)
    if first is None:
        return
    for name, sketch in sketches.items():
        _check_alike(name, sketch, first, control)
    if not engine.local and not engine.inline:
        check_sendable(control)
    scorer = scorer_for(control, first.seed)
    _ = scorer.replicates  # fitted here, once, and sent to all workers
    order = _Order(scorer, estimator, confidence)
    for _, found in engine.map(partial(_audit_batch, order), _batches(sketches)):
        for each in found:
            yield replace(each, control=control)


def _check_alike(name: str, sketch: Sketch, first: Sketch, control: ControlSet) -> None:
    if sketch.control.digest != control.digest:
        raise MismatchError(
            f"the sketch of {named(name)} was made with another control set; audit it with that one, or create it "
            "again"
        )
    if sketch.seed != first.seed:
        raise MismatchError(
            f"the sketch of {named(name)} has another seed than the first; audit sketches of one seed together"
        )


def _batches(sketches: Mapping[str, Sketch]) -> Iterator[_Batch]:
    rest = iter(sketches.items())
    while some := dict(islice(rest, BATCH)):
        yield _Batch(Sketches.of(some))


def _audit_batch(order: _Order, batch: _Batch) -> list[Audit]:
    scorer = shared_scorer(order.scorer)  # the first that reaches a process stays, with what follows from it
    how: dict[str, Any] = {"estimator": order.estimator, "confidence": order.confidence}
    sketches = batch.sketches.sketches(scorer.control, scorer)
    return [audit_vectors(sketch, scorer.control, name=name, **how) for name, sketch in sketches.items()]
