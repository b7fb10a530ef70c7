"""audit_source(): from a path or an object to audits; the command line, Python and the web app call it."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from divscore.audit.audit import LABELLED, audit_vectors, check_method, chosen_estimator
from divscore.audit.audits import Audits
from divscore.audit.result import Audit
from divscore.audit.target import Target
from divscore.blas import one_thread
from divscore.control.controlset import ControlSet
from divscore.control.labelledsample import LabelledSample, labelled_control
from divscore.errors import FileError, InputError, MismatchError
from divscore.files import PathLike
from divscore.jobs.drawfile import Draw
from divscore.jobs.engine import Engine
from divscore.jobs.finding import open_items
from divscore.jobs.labels import Labels
from divscore.jobs.pool import Warn, is_ready, no_progress, no_warning
from divscore.jobs.sketching import PATH, Run, Sketched, check_sendable, running
from divscore.sketch.many import Sketches
from divscore.sketch.missing import Missing, MissingPart
from divscore.sketch.scorer import Scorer, scorer_for, shared_scorer
from divscore.sketch.sketch import Sketch
from divscore.sketch.sketchfile import is_sketch, open_sketches
from divscore.sources import Items, Table
from divscore.sources.items import is_picture
from divscore.sources.places import Location, folder_values
from divscore.text import listed, named

MANY = 100  # collections: their audits take a second or more, so progress is shown
WORTH_PROCESSES = 1_000  # collections: their audits take longer than starting processes


@one_thread
def audit_source(
    collection: Any,
    control: Any = None,
    *,
    attribute: str | None = None,
    by: str | None = None,
    groups: Sequence[str] | None = None,
    rename: Mapping[Any, str] | None = None,
    estimator: str | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    sample: Draw | LabelledSample | tuple[Any, Iterable[Any]] | PathLike | None = None,
    target: Mapping[str, float] | Target | None = None,
    target_source: str = "",
    population: bool = False,
    show_untrusted: bool = False,
    name: str | None = None,
    column: str | None = None,
    form: str = "",
    **how: Any,
) -> Audits:
    """Audit whatever a user names, against labelled examples or a control set.

    Parameters
    ----------
    collection, control, by, estimator, confidence, seed, sample, target, target_source, population, show_untrusted :
        As in `divscore.audit`; "-" is standard input. Each path of a list is a collection of its own.
    attribute : str, optional
        Column of group names, if `control` is a table; "gender×tone" for intersections.
    groups : sequence of str, optional
        Order of the groups: disparity = share(first) − share(second). Without `control` also their names.
    rename : mapping of label to name, optional
        Names for labels such as 0 and 1, in `control` and in a file of `sample`.
    column, form : str
        Column of texts, image paths or vectors where it is not clear; the suffix a file should be read as.
    **how :
        Encoder, workers, and where messages go: the arguments of `divscore.jobs.sketching.running`.
    """
    several = isinstance(collection, (list, tuple)) and all(isinstance(path, PATH) for path in collection)
    things = _expand(collection if several else [collection], control)
    if not things:
        raise InputError("no collection was given: the list is empty")
    if sample is not None and len(things) > 1:
        raise InputError("a labelled sample belongs to one collection; audit one at a time with it")
    estimator = estimator or chosen_estimator(control, sample)
    check_method(estimator, control, sample, confidence)
    with running(by=by, seed=seed, **how) as run:
        labels = None
        if sample is not None:
            words = {"attribute": attribute, "groups": groups, "rename": rename, "column": column}
            labels = Labels.read(run, sample, **words)
            if by and labels.draw is None:
                raise InputError(
                    f"{labels.name} does not say which collection an item is from; draw the items with "
                    "'divscore sample --by'"
                )
        # Opened before the labelled examples are encoded, which may take minutes: a wrong name is an error at once.
        found_again = labels is not None and labels.draw is not None
        opened = open_items if found_again else Run.open
        sources = [opened(run, thing, column, form) for thing in things]
        if control is not None:
            control = run.read_control(
                control,
                attribute=attribute,
                order=groups,
                likely_column=column,
                # With a control set, the labels that need names are those of the sample.
                rename=None if labels is not None and is_ready(control) else rename,
                every=labels is None,
                fit_with=[source for source in sources[:1] if source is not None],
            )
        # Not before: the few labelled examples are encoded here.
        run.encoding.engines.cluster = run.engines.cluster
        if target is not None and not isinstance(target, Target) and control is not None:
            target = Target.of(target, control.groups, target_source)
        settings: dict[str, Any] = {"estimator": estimator, "confidence": confidence, "target": target}
        settings |= {"target_source": target_source, "population": population}
        settings |= {"show_untrusted": show_untrusted}
        pairs: list[tuple[str, Audit]] = []  # each audit with its path
        missing = Missing()
        for thing, source in zip(things, sources, strict=True):
            path = os.fspath(thing) if isinstance(thing, PATH) else ""
            if source is not None:
                audits, absent = _audit_table(run, source, control, labels, settings)
            elif path:
                audits, absent = _audit_sketch_file(run, path, control, labels, settings)
            else:
                own = labels.alone(control) if labels is not None else None
                audit = audit_vectors(
                    thing, control, sample=own, seed=seed, workers=how.get("workers", 1), **settings
                )
                if run.strict and any(audit.skipped.values()):
                    raise InputError(f"{sum(audit.skipped.values())} items have no usable vector (strict)")
                audits, absent = [audit], Missing()
            pairs += [(path, audit) for audit in audits]
            missing += absent
    if len(things) == len(pairs) == 1:
        audit = pairs[0][1]
        return Audits((audit if name is None or by else replace(audit, name=name),), missing)
    return Audits(_distinct_names(pairs), missing)


def sketch_collection(
    collection: Any,
    control: Any,
    *,
    attribute: str | None = None,
    rename: Mapping[Any, str] | None = None,
    column: str | None = None,
    form: str = "",
    **how: Any,
) -> Sketched:
    """Sketch a collection, or one for each value of the column `by`; the parameters are those of `audit_source`."""
    with running(**how) as run:
        source = run.open(collection, column, form)
        if source is None:
            raise InputError(f"{collection} is a sketch already")
        labelled = run.read_control(control, attribute=attribute, rename=rename)
        run.encoding.engines.cluster = run.engines.cluster
        return run.sketch(run.vectors_of(source, labelled), labelled)


def _audit_table(
    run: Run,
    opened: Items | Table,
    control: ControlSet | None,
    labels: Labels | None,
    options: dict[str, Any],
) -> tuple[list[Audit], Missing]:
    """Audit a collection, or many by the values of a column; with all that is missing from the source."""
    by, source = run.by, None if control is None else run.vectors_of(opened, control)
    samples = labels.samples(opened, control) if labels is not None else {}
    fitted = control
    if samples and (control is None or options["estimator"] in ("rectified", "crossfit")):
        # The fit is on the labels of all collections; each is corrected with its own.
        known = None if options["estimator"] == "crossfit" else control
        fitted = labelled_control(list(samples.values()), known)
    assert fitted is not None
    source = run.vectors_of(opened, fitted) if source is None else source
    if options["estimator"] == "self-training":
        if by:
            raise InputError("'self-training' audits one collection at a time; leave out --by")
        vectors, skipped, parts = run.read_vectors(source)
        audit = audit_vectors(vectors, control, name=source.name, seed=run.seed, **options)
        audit = replace(audit, skipped={**audit.skipped, **skipped}, noun=source.noun)
        return [_with_missing(audit, Missing.of(parts))], Missing.of(parts)
    done = run.sketch(source, fitted)
    sketches = {name: sketch for name, sketch in done.sketches.items() if sketch.count}
    if not sketches and len(done.sketches) > 1:
        raise FileError(f"{source.path} has no item with a usable vector")
    for name in done.sketches if sketches else ():
        if name not in sketches:
            run.warn(f"{named(name)}: skipped, as none of its items has a usable vector")
    if options["estimator"] in LABELLED:
        sketches = _with_labels(run, sketches or done.sketches, samples, control)
    audits = [
        replace(audit, noun=source.noun)
        for audit in _audit_sketches(run, sketches or done.sketches, control, samples, options)
    ]
    if not done.missing:
        return audits, Missing()
    # Folders name the collections only if they do so for all files: any row may be in a file with the column.
    missing = MissingByCollection(done.missing, by if by in source.folder_columns else None)
    for name in sorted(missing.known - set(done.sketches)):
        run.warn(f"{named(name)}: skipped, as none of its files could be read")
    return [_with_missing(audit, missing.of(audit.name)) for audit in audits], Missing.of(done.missing)


def _with_labels(
    run: Run, sketches: dict[str, Sketch], samples: Mapping[str, LabelledSample], control: ControlSet | None
) -> dict[str, Sketch]:
    """The collections of which some items are labelled; the others are an error if something else could audit them."""
    without = [name for name in sketches if name not in samples]
    names = listed([named(name) for name in without])
    if without and (control is not None or run.strict or len(without) == len(sketches)):
        raise InputError(
            f"no item of {names} is labelled; draw and label some, or audit without --labelled-sample"
        )
    if without:
        run.warn(f"{names}: skipped, as no item is labelled")
    return {name: sketch for name, sketch in sketches.items() if name in samples}


def _audit_sketch_file(
    run: Run, path: str, control: ControlSet | None, labels: Labels | None, options: dict[str, Any]
) -> tuple[list[Audit], Missing]:
    """Audit every collection of a file of sketches."""
    if control is None:
        raise InputError(f"{path} is a sketch; pass the control set that it was made with: --control")
    file = open_sketches(path, control)
    sketches = file.sketches
    if list(sketches) == [""]:  # made without --by
        sketches = {_stem(path): sketches[""]}
    samples: dict[str, LabelledSample] = {}
    if labels is not None:
        if len(sketches) > 1:
            raise InputError(f"{path} has several collections; a labelled sample belongs to one")
        samples = dict.fromkeys(sketches, labels.alone(control))
    audits = _audit_sketches(run, sketches, control, samples, options)
    return [_with_missing(audit, file.missing) for audit in audits], file.missing


def _audit_sketches(
    run: Run,
    sketches: Mapping[str, Sketch],
    control: ControlSet | None,
    samples: Mapping[str, LabelledSample],
    options: dict[str, Any],
) -> Iterator[Audit]:
    """Audit sketches one by one; where they are many, with progress, and where they are very many, in processes."""
    audits: Iterator[Audit] = (
        audit_vectors(sketch, control, name=name, sample=samples.get(name), **options)
        for name, sketch in sketches.items()
    )
    if len(sketches) >= WORTH_PROCESSES and control is not None and not samples:
        audits = audit_many(sketches, control, engine=run.engines.start(processes=True), **options)
    shown = run.progress if len(sketches) >= MANY else no_progress
    with shown("collections", len(sketches)) as advance:
        for audit in audits:
            yield audit
            advance(1)


def sketch_files(path: str, *, output: str | None = None, warn: Warn = no_warning) -> list[str]:
    """The sketches of a folder or pattern in the order of their names, or the file itself.

    Hidden files are skipped, as a killed job may leave one, and so is the `output` of an earlier run.
    """
    if not os.path.isdir(path):
        if os.path.exists(path) or not path.endswith(".sketch") or not glob.has_magic(path):
            return [path]
        return sorted(filter(is_sketch, glob.glob(path, recursive=True))) or [path]
    with os.scandir(path) as listing:
        visible = sorted(file.path for file in listing if not file.name.startswith(".") and file.is_file())
    files = [file for file in visible if is_sketch(file)]
    kept = [file for file in files if output is None or os.path.realpath(file) != os.path.realpath(output)]
    if len(kept) < len(files):
        warn(f"{output} is in {path} and is not counted: it is the output file")
    if not kept:
        raise FileError(f"{path} is a folder without sketches; expected files written by 'divscore sketch'")
    return kept


def _expand(collections: Sequence[Any], control: Any) -> list[Any]:
    """Replace a folder or a pattern of sketches by its files; refuse likely mistakes."""
    things: list[Any] = []
    for thing in collections:
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
            f"{len(things)} images were passed separately, so each would be a collection of its own; quote the pattern "
            "('photos/*.jpg') or name their folder"
        )
    return things


def _same_file(path: str, other: Any) -> bool:
    exist = isinstance(other, PATH) and os.path.exists(path) and os.path.exists(other)
    return exist and os.path.samefile(path, other)


def _distinct_names(pairs: Sequence[tuple[str, Audit]]) -> tuple[Audit, ...]:
    """Give each audit a name of its own: of two files with the same name, the paths become the names.

    A sketch is named after its source. Where that is the same for several, such as one feed on several days, all that
    contain one collection are named after their files. Values of a column, which other files have too, stay in the
    names.
    """
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
        for part in parts:
            value = folder_values(Location(part.part, part.part)).get(by) if by else None
            (unknown if value is None else known.setdefault(value, [])).append(part)
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

BATCH = 100  # sketches of a task


def audit_many(
    sketches: Mapping[str, Sketch], control: ControlSet, *, engine: Engine, **options: Any
) -> Iterator[Audit]:
    """Audit sketches that were made in one pass, or read from one file, in their order; none may be empty.

    The same as ``audit(sketch, control, **options)`` for each, on any engine. An engine of processes, or a cluster, is
    worth it from about a thousand sketches on; audits hold Python's lock, so threads do not help.
    """
    first = next(iter(sketches.values()), None)
    if first is None:
        return
    for name, sketch in sketches.items():
        if sketch.control.digest != control.digest:
            raise MismatchError(
                f"the sketch of {named(name)} was made with another control set; audit it with that one, or create "
                "it again"
            )
        if sketch.seed != first.seed:
            raise MismatchError(
                f"the sketch of {named(name)} has a different seed than the first; audit sketches of one seed together"
            )
    if not engine.local:
        check_sendable(control)
    scorer = scorer_for(control, first.seed)
    _ = scorer.replicates  # fitted here, once, and sent to all workers
    work = partial(_audit_batch, scorer, options)
    for _, audits in engine.map(work, _batches(sketches)):
        for audit in audits:
            # An audit comes back with the worker's copy of the control set.
            yield replace(audit, control=control)


@dataclass(frozen=True)
class _Batch:
    sketches: Sketches

    def __str__(self) -> str:
        return f"the audits of {len(self.sketches)} collections"


def _batches(sketches: Mapping[str, Sketch]) -> Iterator[_Batch]:
    rest = iter(sketches.items())
    while batch := dict(islice(rest, BATCH)):
        yield _Batch(Sketches.of(batch))


def _audit_batch(scorer: Scorer, options: dict[str, Any], batch: _Batch) -> list[Audit]:
    # The first scorer that reaches a process is kept for all batches, with everything computed from it.
    scorer = shared_scorer(scorer)
    sketches = batch.sketches.sketches(scorer.control, scorer)
    return [audit_vectors(sketch, scorer.control, name=name, **options) for name, sketch in sketches.items()]
