"""audit_source(): from a path or an object to audits; the command line, Python and the web app call it."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, Self

import numpy as np

from divscore.audit.audit import audit_vectors
from divscore.audit.audits import Audits
from divscore.audit.result import Audit
from divscore.control.controlset import ControlSet, LabelledSample
from divscore.errors import DivscoreError, FileError, InputError, MismatchError
from divscore.jobs.cluster import ClusterEngine
from divscore.jobs.encode import SEVERAL, EncodedSource, Encoding
from divscore.jobs.engine import Engine
from divscore.jobs.opening import open_any, open_source
from divscore.jobs.pool import Progress, Warn, make_encoding, no_progress, no_warning, read_control
from divscore.jobs.sketching import (
    RowWatch,
    Sketched,
    check_sendable,
    sketch_source,
    tried,
)
from divscore.sketch.many import Sketches, sketch_blocks
from divscore.sketch.missing import Missing, MissingPart
from divscore.sketch.scorer import Scorer, scorer_for, shared_scorer
from divscore.sketch.sketch import Sketch
from divscore.sketch.sketchfile import is_sketch, open_sketches
from divscore.sources.cuts import divisible
from divscore.sources.items import Items, is_picture
from divscore.sources.manifest import ENCODER_KEY
from divscore.sources.places import WHOLE, Location, UnseenError, folder_values
from divscore.sources.table import Partition, Table, partitions_of
from divscore.text import named

__all__ = [
    "Engines",
    "Losses",
    "audit_many",
    "audit_source",
    "read_vectors",
    "sketch_collection",
    "sketch_files",
    "warn_of_dividing",
]

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
    worth while from about a thousand on; an audit holds Python's lock, so threads are of no use.
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
            f"the sketch of {named(name)} was made with another control set; audit it with that one, or make it "
            "anew"
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


# audit_source: what the command line, Python and the web app call.

MANY = 100  # collections: their audits take a second or more, so progress is shown
WORTH_PROCESSES = 1_000  # collections: their audits take longer than starting processes
WORTH_PARSING = 64 << 20  # bytes of text: parsing them takes longer than starting processes
SLOW_TO_DIVIDE = 1 << 30  # bytes of text: looking for record boundaries takes seconds
LISTED = 20  # skipped items that are named with `verbose`
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
    several = isinstance(collection, (list, tuple)) and all(_is_path(each) for each in collection)
    things = [each for thing in (collection if several else [collection]) for each in _expand(thing)]
    if sample is not None and (by or len(things) > 1):
        raise InputError(
            "a labelled sample belongs to one collection; audit one collection at a time with it"
        )
    with ExitStack() as stack:
        if not isinstance(encoder, Encoding):
            encoder = stack.enter_context(
                make_encoding(encoder, model=model, options=options, pca=pca, cache=cache, workers=workers)
            )
        engines = stack.enter_context(Engines(workers, cluster, warn))
        job = _Job(encoder, engines, by, column, form, seed, strict, verbose, progress, warn)
        _check_paths(things, control)
        # Opened before the labelled examples are encoded, which may take minutes: a wrong name is an error at once.
        opened = [job.open(thing) if _is_source(thing) else None for thing in things]
        if not isinstance(control, ControlSet):
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
        else:
            encoder.expect(control.encoder)
        engines.lend(encoder)
        if sample is not None and _is_path(sample):
            sample = _read_sample(sample, control, encoder, column)
        how: dict[str, Any] = {
            "estimator": estimator,
            "confidence": confidence,
            "target": target,
            "sample": sample,
        }
        found = []
        for thing, source in zip(things, opened, strict=True):
            if source is not None:
                path = str(thing) if _is_path(thing) else source.name
                found.append(_Audited(path, *job.audit(source, control, how)))
            elif _is_path(thing):
                found.append(_Audited(str(thing), *job.audit_sketches(thing, control, how)))
            else:
                if by:
                    raise InputError("--by needs a table or a file with columns; vectors alone have none")
                only = audit_vectors(
                    thing, control, name=name or "collection", seed=seed, workers=workers, **how
                )
                found.append(_Audited(only.name, [only], Missing()))
    if name is not None and not by and len(found) == len(found[0].audits) == 1:
        found = [replace(found[0], audits=[replace(found[0].audits[0], name=name)])]
    return Audits(_distinct_names(found), sum((each.missing for each in found), Missing()))


def sketch_collection(
    collection: str,
    control: str | os.PathLike[str],
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
        job = _Job(encoding, engines, by, column, form, seed, strict, verbose, progress, warn)
        source = job.open(collection)
        labelled = read_control(control, encoding, attribute=attribute, progress=progress, warn=warn)
        engines.lend(encoding)
        return job.sketch(job.comparable(source, labelled), labelled)


@dataclass(frozen=True)
class _Job:
    """What the collections of one call share: how they are read, who works, and who is told about it."""

    encoding: Encoding
    engines: Engines
    by: str | None
    column: str | None
    form: str
    seed: int
    strict: bool
    verbose: bool
    progress: Progress
    warn: Warn

    def open(self, path: Any) -> Items | Table:
        """Open a collection; items are not encoded yet."""
        return open_source(
            path,
            self.encoding,
            column=self.column,
            extra=[self.by] if self.by else [],
            form=self.form,
            strict=self.strict,
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
        if 0 < len(source.number_columns) < FEW_NUMBERS:
            names = ", ".join(source.number_columns)
            self.warn(f"{source.path}: the columns {names} are used as vectors (--column names another)")
        for part in source.parts:
            encoder = part.metadata.get(ENCODER_KEY)
            if encoder is None and control.encoder and part.path != "-":
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
            vectors, skipped, missing = read_vectors(
                source, strict=self.strict, verbose=self.verbose, progress=self.progress, warn=self.warn
            )
            only = audit_vectors(vectors, control, name=source.name, seed=self.seed, **how)
            only = replace(only, skipped={**only.skipped, **skipped}, noun=noun)
            return [_with_missing(only, Missing.of(missing))], Missing.of(missing)
        done = self.sketch(source, control)
        sketches = {name: sketch for name, sketch in done.sketches.items() if sketch.count}
        if not sketches and len(done.sketches) > 1:
            raise FileError(f"{source.path} has no item with a usable vector")
        for name in done.sketches if sketches else ():
            if name not in sketches:
                self.warn(f"{named(name)}: skipped, as none of its items has a usable vector")
        losses = Losses(done.missing, by if _named_by_folders(source, by) else None)
        for name in sorted(losses.known - set(done.sketches)):
            self.warn(f"{named(name)}: skipped, as none of its files could be read")
        audits = [
            _with_missing(replace(each, noun=noun), losses.of(each.name))
            for each in self.audit_each(sketches or done.sketches, control, how)
        ]
        return audits, Missing.of(done.missing)

    def audit_sketches(
        self, path: Any, control: ControlSet, how: dict[str, Any]
    ) -> tuple[list[Audit], Missing]:
        """Audit every collection of a file of sketches."""
        if self.by:
            raise InputError(
                f"{path} is a sketch and has no columns; create it with 'divscore sketch --by {self.by}'"
            )
        file = open_sketches(path, control)
        sketches = file.sketches
        if list(sketches) == [""]:  # made without --by
            sketches = {_stem(path): sketches[""]}
        return [
            _with_missing(each, file.missing) for each in self.audit_each(sketches, control, how)
        ], file.missing

    def audit_each(
        self, sketches: Mapping[str, Sketch], control: ControlSet, how: dict[str, Any]
    ) -> Iterator[Audit]:
        """Audit sketches one by one; where they are many, with progress and in several processes."""
        if len(sketches) < MANY or how["sample"] is not None or how["target"] != "collection":
            yield from (audit_vectors(sketch, control, name=name, **how) for name, sketch in sketches.items())
            return
        engine = self.engines.crunching() if len(sketches) >= WORTH_PROCESSES else Engine(1)
        options = {key: how[key] for key in ("estimator", "confidence")}
        with self.progress("collections", len(sketches)) as advance:
            for each in audit_many(sketches, control, engine=engine, **options):
                yield each
                advance(1)

    def sketch(self, source: Table, control: ControlSet) -> Sketched:
        """Sketch a source in one pass, and count what was skipped."""
        with _watched(source, self.verbose, self.progress, self.warn) as advance:
            if isinstance(source, EncodedSource):
                done = self._sketch_items(source, control)
            else:
                done = sketch_source(
                    source,
                    control,
                    by=self.by,
                    seed=self.seed,
                    engine=self.engines.suiting(source),
                    strict=self.strict,
                    verbose=self.verbose,
                    progress=advance,
                    on_failure=lambda missing: _warn_of_missing(missing, self.warn),
                )
        if not done.sketches:
            raise FileError(f"{source.path} has no item with a usable vector")
        self._count_skipped(source, done)
        for problem in done.problems if self.verbose else ():
            self.warn(problem)
        return done

    def _sketch_items(self, source: EncodedSource, control: ControlSet) -> Sketched:
        """Items are encoded while they are read, by the encoding's own workers."""
        for each in source.missing:
            _warn_of_missing(each, self.warn)
        rows = RowWatch(source, self.strict, self.verbose)
        threads = min(self.engines.suiting(source).workers, 4)
        blocks = rows.blocks(self.by)
        scorer = scorer_for(control, self.seed)
        sketches = sketch_blocks(blocks, control, scorer, name=source.name, workers=threads)
        problems = [*source.problems, *rows.problems][:LISTED]
        return Sketched(
            sketches.sketches(control, scorer),
            1,
            rows.rows,
            source.unreadable,
            tuple(problems),
            source.missing,
        )

    def _count_skipped(self, source: Table, done: Sketched) -> None:
        """Add the items without a vector to the counts of their collections."""
        known, unknown = _skipped(source, done.unreadable, self.by)
        if not self.by:
            known[source.name]["unreadable"] += sum(each.rows or 0 for each in done.missing)
        for name, kinds in known.items():
            if name in done.sketches:
                for kind, number in kinds.items():
                    done.sketches[name].skip(kind, number)
            elif number := sum(kinds.values()):
                self.warn(f"{named(name)}: skipped, as none of its {number:,} items has a vector")
        if unknown:
            self.warn(f"{source.path}: {unknown:,} items have no vector and were skipped")


def read_vectors(
    source: Table,
    *,
    strict: bool = False,
    verbose: bool = False,
    progress: Progress = no_progress,
    warn: Warn = no_warning,
) -> tuple[Any, dict[str, int], list[MissingPart]]:
    """All vectors of a source, skipped items by kind, and missing parts; for 'self-training', which needs them all."""
    encoded = isinstance(source, EncodedSource)
    missing = list(source.missing)
    for each in missing:
        _warn_of_missing(each, warn)
    blocks: list[Any] = []
    problems: list[str] = []
    unreadable = 0
    with _watched(source, verbose, progress, warn) as advance:

        def read(part: Table | Partition) -> tuple[RowWatch, list[Any]]:
            rows = RowWatch(part.open() if isinstance(part, Partition) else part, strict, verbose)
            vectors = []
            for block, _ in rows.blocks(None):
                vectors.append(block)
                advance(len(block))
            return rows, vectors

        for part in [source] if encoded else partitions_of(source):
            try:
                rows, vectors = (
                    tried(part, partial(read, part)) if isinstance(part, Partition) else read(part)
                )
            except DivscoreError as error:
                if strict or isinstance(error, UnseenError) or not source.many:
                    raise
                missing.append(MissingPart(part.label, str(error), part.rows))
                _warn_of_missing(missing[-1], warn)
                continue
            blocks += vectors
            problems += [*rows.source.problems, *rows.problems]
            unreadable += rows.source.unreadable
    for problem in problems[:LISTED] if verbose else ():
        warn(problem)
    if not blocks:
        why = f"; {missing[0].reason}" if missing else ""
        raise FileError(f"{source.path} has no row with a usable vector{why}")
    skipped = _skipped(source, unreadable, None)[0][source.name]
    skipped["unreadable"] += sum(each.rows or 0 for each in missing)
    return np.concatenate(blocks), dict(skipped), missing


@contextmanager
def _watched(source: Table, verbose: bool, progress: Progress, warn: Warn) -> Iterator[Callable[[int], None]]:
    """Show the progress of vectors, or of items where these are encoded first."""
    if not isinstance(source, EncodedSource):
        warn_of_dividing(source.path, source.locations, warn)
        with progress(source.name, source.rows) as advance:
            yield advance
        return
    with progress(source.name, source.rows) as advance:
        source.on_items = advance
        yield lambda rows: None
    _warn_of_encoding(source, verbose, warn)


def _warn_of_missing(missing: MissingPart, warn: Warn) -> None:
    rows = f" ({missing.rows:,} rows)" if missing.rows else ""
    warn(f"missing{rows}: {missing.reason}")


class Engines:
    """The engine that suits a source; started when first needed, closed at the end."""

    def __init__(self, workers: int, cluster: str | None, warn: Warn = no_warning) -> None:
        self._workers = workers
        # Connects at once: a wrong address is an error before anything else is done.
        self._cluster = ClusterEngine(cluster, notify=warn) if cluster is not None else None
        self._started: dict[bool, Engine] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for engine in (self._cluster, *self._started.values()):
            if engine is not None:
                engine.__exit__(kind, error, trace)

    def lend(self, encoding: Encoding) -> None:
        """Encode items on the cluster too, where there is one."""
        if self._cluster is not None:
            encoding.use(self._cluster)

    def suiting(self, source: Table) -> Engine:
        """The cluster, or else threads, or processes for much text: parsing holds Python's lock."""
        return self._cluster or self._start(processes=_much_text(source))

    def crunching(self) -> Engine:
        """The cluster, or else processes, for thousands of audits: they hold Python's lock."""
        return self._cluster or self._start(processes=True)

    def _start(self, *, processes: bool) -> Engine:
        processes = processes and self._workers > 1
        if processes not in self._started:
            self._started[processes] = Engine(self._workers, processes=processes)
        return self._started[processes]


def _much_text(source: Table) -> bool:
    if isinstance(source, EncodedSource):
        return False
    files = source.locations
    if any(each.suffix not in WHOLE for each in files) or (len(files) < 2 and not divisible(files[0])):
        return False
    return sum(each.size() for each in files) >= WORTH_PARSING


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


def _is_path(thing: Any) -> bool:
    return isinstance(thing, (str, os.PathLike))


def _is_source(thing: Any) -> bool:
    """Whether `sources.open` opens it: a path, unless it is a sketch, or a table in memory."""
    return not is_sketch(thing) if _is_path(thing) else hasattr(thing, "__arrow_c_stream__")


def _expand(thing: Any) -> list[Any]:
    """A folder or a pattern of sketches stands for all of them."""
    if not _is_path(thing):
        return [thing]
    path = os.fspath(thing)
    if os.path.isdir(path) and not any(name.endswith(".sketch") for name in os.listdir(path)):
        return [path]
    return sketch_files(path)


def _check_paths(things: Sequence[Any], control: Any) -> None:
    paths = [thing for thing in things if _is_path(thing)]
    if len(paths) > 1 and all(map(is_picture, paths)):
        raise InputError(
            f"{len(paths)} images were named one by one, and each would be a collection of its own; quote the pattern "
            "('photos/*.jpg') or name their folder"
        )
    for path in paths if _is_path(control) else ():
        if os.path.exists(path) and os.path.exists(control) and os.path.samefile(path, control):
            raise InputError(
                f"{path} is the control set itself, and its groups are known. Audit other items; 'divscore compare' "
                "tests a method on labelled ones"
            )


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
    source = open_any(path, encoding, column=column, taken=names, strict=True)
    name = next((each for each in names if each in source.columns), None)
    if name is None:
        raise FileError(
            f"{source.path} has no column '{control.attribute}' or 'group' with the groups of the labelled items; its "
            f"columns are {', '.join(source.columns) or 'none'}"
        )
    blocks = list(open_any(path, encoding, column=column, extra=[name], strict=True))
    groups = [group for block in blocks for group in block.values[name]]
    return LabelledSample.of(np.concatenate([block.vectors for block in blocks]), groups, control)


# What is absent: skipped items by kind, missing parts by collection.


class Losses:
    """Missing parts of a source, by collection where the names of their folders tell.

    `by` is the column that the folders name, if they do: a file that has the column itself may contain rows of any
    collection.

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
        """Collections that certainly miss a part."""
        return set(self._known)

    def of(self, name: str) -> Missing:
        """What is, or may be, missing from a collection."""
        mine = self._known.get(name)
        return self._anyones if mine is None else mine + self._anyones


def _named_by_folders(source: Table, by: str | None) -> bool:
    """Whether all files of a source have a column from the names of their folders alone."""
    parts = source.items.parts if isinstance(source, EncodedSource) else source.parts
    return bool(parts) and all(by in part.folder_values for part in parts)


def _with_missing(found: Audit, missing: Missing) -> Audit:
    """Note what is, or may be, missing from a collection; it is not trusted as if it were complete."""
    trust = "caution" if missing.count and found.trust == "good" else found.trust
    return replace(found, warnings=(*missing.warning, *found.warnings), missing=missing, trust=trust)


def _skipped(source: Table, unreadable: int, by: str | None) -> tuple[dict[str, Counter[str]], int]:
    """Items without a vector by collection and kind, and how many belong to an unknown collection.

    For a file of vectors these are rows that could not be read, and what `embed` noted in its metadata.
    """
    known: dict[str, Counter[str]] = {} if by else {source.name: Counter(unreadable=0, empty=0)}
    if isinstance(source, EncodedSource):
        for (kind, values), number in source.skips.items():
            known.setdefault(values[0] if by else source.name, Counter())[kind] += number
        unreadable = source.items.unreadable
    else:
        about = [part.embedded for part in source.parts]
        for each in filter(None, about):
            noted = each.skipped_by.get(by, {}) if by else {source.name: each.skipped}
            if each.lost != sum(sum(kinds.values()) for kinds in noted.values()):
                # Some are not attributed, so the counts of all collections would be too low.
                return {}, unreadable + sum(each.lost for each in about if each)
            for name, kinds in noted.items():
                known.setdefault(name, Counter()).update(kinds)
    if by:
        return known, unreadable
    known[source.name]["unreadable"] += unreadable
    return known, 0


def warn_of_dividing(what: str, files: Iterable[Location], warn: Warn) -> None:
    """Say that large files of text are scanned first, to find where they can be divided."""
    size = sum(each.size() for each in files if divisible(each))
    if size >= SLOW_TO_DIVIDE:
        warn(f"{what}: finding where to divide {size / 1e9:,.1f} GB of text")


def _warn_of_encoding(source: EncodedSource, verbose: bool, warn: Warn) -> None:
    """Say how many items gave vectors, and why the others did not."""
    skipped = source.skipped()
    total = source.encoded + source.items.unreadable
    words = {**SKIPPED, "empty": "showed no face"} if source.encoding.name == "faces" else SKIPPED
    kinds = [f"{number:,} {words[kind]}" for kind, number in skipped.items() if number]
    if kinds:
        hint = "" if verbose else " (--verbose lists them)"
        encoded = total - sum(skipped.values())
        warn(f"{source.path}: {encoded:,} of {total:,} items encoded; {', '.join(kinds)}{hint}")
    if source.several:
        kept = "all are counted" if SEVERAL in source.encoding.options else "the largest is counted"
        warn(f"{source.path}: {source.several:,} images show more than one face; {kept}")
    for problem in source.items.unlisted:
        warn(f"{problem}; its images are missing from the result")
    if source.items.other:
        most = source.items.other.most_common(5)
        listed = ", ".join(f"{number:,} {suffix or 'without suffix'}" for suffix, number in most)
        warn(f"{source.path}: these files were not read, as their formats are not supported: {listed}")
    for trouble in source.encoding.troubles():
        warn(trouble)


SKIPPED = {"unreadable": "could not be read", "empty": "had nothing to encode"}
