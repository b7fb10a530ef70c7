"""One pass over a collection given on the command line, with progress, and every skipped row accounted for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from divscore.cli.console import progress_bar, warn
from divscore.cli.options import tell_dividing, watched
from divscore.control.controlset import ControlSet
from divscore.errors import DivscoreError, FileError, InputError, MismatchError
from divscore.jobs.encode import EncodedSource, Encoding
from divscore.jobs.engine import Engine
from divscore.jobs.opening import open_any
from divscore.jobs.sketching import RowWatch, Sketched, tabulate_blocks, tried
from divscore.jobs.sketching import sketch_source as run_pass
from divscore.sketch.missing import Missing, MissingPart
from divscore.sources.labelled import ENCODER_KEY
from divscore.sources.manifest import read_embedded
from divscore.sources.open import Partition, UnseenError, partitions_of
from divscore.sources.table import Table
from divscore.text import named

__all__ = ["Whole", "count_skipped", "open_collection", "sketch_source", "skipped_in", "whole_source"]


# Items that have no vector: how many, of which collection.


def count_skipped(source: Table, found: Sketched, by: str | None) -> None:
    """Tell each collection how many of its items have no vector."""
    sketches = found.sketches
    if isinstance(source, EncodedSource) and by:
        for name, sketch in sketches.items():
            for kind, number in source.skipped(name).items():
                sketch.skip(kind, number)
        lost = source.items.unreadable
        for name in sorted({values[0] for _, values in source.skips} - set(sketches)):
            number = sum(source.skipped(name).values())
            warn(f"{named(name)}: none of its {number:,} items has a vector; left out")
    elif by and (known := _skipped_by(source, by)) is not None:
        for name, kinds in known.items():
            if name in sketches:
                for kind, number in kinds.items():
                    sketches[name].skip(kind, number)
            else:
                warn(f"{named(name)}: none of its {sum(kinds.values()):,} items has a vector; left out")
        lost = found.unreadable
    elif not by and len(sketches) == 1:
        only = next(iter(sketches.values()))
        for kind, number in skipped_in(source, found.unreadable).items():
            only.skip(kind, number)
        only.skip("unreadable", sum(each.rows or 0 for each in found.missing))
        return
    else:
        lost = sum(skipped_in(source, found.unreadable).values())
    if lost:
        # Which collection such a row belonged to is not known; it is said once, for all.
        warn(f"{source.path}: {lost:,} items have no vector and were left out")


def skipped_in(source: Table, unreadable: int) -> dict[str, int]:
    """Items of a whole source that have no vector, by kind, also those that `embed` left out of its file."""
    if isinstance(source, EncodedSource):
        return source.skipped()
    counts = {"unreadable": unreadable, "empty": 0}
    for part in source.parts:
        about = read_embedded(part.metadata, part.label)
        for kind, number in about.skipped.items() if about else ():
            counts[kind] += number
    return counts


def _skipped_by(source: Table, by: str) -> dict[str, dict[str, int]] | None:
    """What `embed` noted of the items without a vector, by the values of a column; None where it did not."""
    found: dict[str, dict[str, int]] = {}
    for part in source.parts:
        about = read_embedded(part.metadata, part.label)
        if about is None:
            continue
        noted = about.skipped_by.get(by, {})
        if about.lost != sum(sum(kinds.values()) for kinds in noted.values()):
            return None
        for name, kinds in noted.items():
            mine = found.setdefault(name, {})
            for kind, number in kinds.items():
                mine[kind] = mine.get(kind, 0) + number
    return found


LISTED = 20
FEW_NUMBERS = 8


def open_collection(
    path: str,
    control: ControlSet,
    encoding: Encoding,
    *,
    column: str | None,
    by: str | None,
    form: str,
    strict: bool,
) -> Table:
    """Open a collection and check that its vectors can be compared with the control set's."""
    source = open_any(path, encoding, column=column, extra=[by] if by else [], form=form, strict=strict)
    if isinstance(source, EncodedSource) and control.encoder is None and not encoding.forced:
        raise MismatchError(
            f"{source.path} has to be encoded, but the control set does not say what encoded its vectors; name the "
            "encoder with --encoder, if you know it, or give labelled examples instead of vectors"
        )
    if 0 < len(source.number_columns) < FEW_NUMBERS:
        warn(
            f"{source.path}: taking the columns {', '.join(source.number_columns)} as vectors (--column names another)"
        )
    for part in source.parts:
        encoder = part.metadata.get(ENCODER_KEY)
        if encoder is None and control.encoder and part.path != "-":
            warn(
                f"{part.path} does not say what encoded it; taken to be {control.encoder}, as the control set"
            )
        if encoder and control.encoder and encoder != control.encoder:
            raise MismatchError(
                f"{part.path} was encoded by '{encoder}', the control set by '{control.encoder}'; encode both alike"
            )
    if source.dimension != control.dimension:
        raise MismatchError(
            f"{source.path} has vectors of {source.dimension} numbers, the control set of {control.dimension}; "
            "both must come from the same encoder"
        )
    return source


def sketch_source(
    source: Table,
    control: ControlSet,
    *,
    by: str | None = None,
    seed: int = 0,
    engine: Engine,
    samples: str = "own",
    strict: bool = False,
    verbose: bool = False,
) -> Sketched:
    """Sketch a source in one pass: one collection, or one for each value of the column `by`."""
    with _bar(source, verbose) as advance:
        if isinstance(source, EncodedSource):
            if samples == "shared":
                raise InputError(
                    "--samples shared is for vectors; items that are encoded as they are read have samples of their "
                    "own: embed them first ('divscore embed'), or leave it out"
                )
            found = _sketch_items(source, control, by, seed, engine.workers, strict, verbose)
        else:
            found = run_pass(
                source,
                control,
                by=by,
                seed=seed,
                engine=engine,
                samples=samples,
                strict=strict,
                verbose=verbose,
                progress=advance,
                on_failure=_tell_failure,
            )
    if found.sketches:
        count_skipped(source, found, by)
    for problem in found.problems if verbose else ():
        warn(problem)
    if not found.sketches:
        raise FileError(f"{source.path} holds no item with a usable vector")
    return found


def _sketch_items(
    source: EncodedSource,
    control: ControlSet,
    by: str | None,
    seed: int,
    workers: int,
    strict: bool,
    verbose: bool,
) -> Sketched:
    """Items are encoded while they are read, with the encoding's own workers."""
    missing = _tell_missing(source)
    watch = RowWatch(source, strict, verbose)
    threads = min(workers, 4)
    table = tabulate_blocks(watch.blocks(by), control, name=source.name, seed=seed, workers=threads)
    problems = [*source.problems, *watch.problems][:LISTED]
    return Sketched(table.sketches(), 1, watch.rows, source.unreadable, tuple(problems), missing)


def _tell_failure(missing: MissingPart) -> None:
    rows = f" ({missing.rows:,} rows)" if missing.rows else ""
    warn(f"left out{rows}: {missing.reason}")


@contextmanager
def _bar(source: Table, verbose: bool) -> Iterator[Callable[[int], None]]:
    """A bar of vectors, or of items where those are encoded first."""
    if isinstance(source, EncodedSource):
        with watched(source, verbose):
            yield lambda rows: None
        return
    tell_dividing(source.path, source.locations)
    with progress_bar(source.name, source.rows) as advance:
        yield advance


def _tell_missing(source: Table) -> tuple[MissingPart, ...]:
    """Say which files among several could not even be opened."""
    for each in source.missing:
        _tell_failure(each)
    return source.missing


@dataclass(frozen=True)
class Whole:
    """All vectors of a source, the items that have none, and the parts that are missing."""

    vectors: Any
    skipped: dict[str, int]
    gaps: Missing


def whole_source(source: Table, *, strict: bool, verbose: bool) -> Whole:
    """All vectors of a source in memory, for the one estimator that cannot do with less."""
    missing, blocks, problems, unreadable = list(_tell_missing(source)), [], [], 0
    encoded = isinstance(source, EncodedSource)
    with _bar(source, verbose) as advance:
        for part in [source] if encoded else partitions_of(source):
            read = partial(_vectors_of, part, strict, verbose, advance)
            try:
                watch, vectors = tried(part, read) if isinstance(part, Partition) else read()
            except DivscoreError as error:
                if strict or isinstance(error, UnseenError) or not source.many:
                    raise
                missing.append(MissingPart(part.label, str(error), part.rows))
                _tell_failure(missing[-1])
                continue
            blocks += vectors
            problems += [*watch.source.problems, *watch.problems]
            unreadable += watch.source.unreadable
    for problem in problems[:LISTED] if verbose else ():
        warn(problem)
    if not blocks:
        why = f"; {missing[0].reason}" if missing else ""
        raise FileError(f"{source.path} holds no row with a usable vector{why}")
    skipped = skipped_in(source, unreadable)
    skipped["unreadable"] += sum(each.rows or 0 for each in missing)
    return Whole(np.concatenate(blocks), skipped, Missing.of(missing))


def _vectors_of(
    part: Table | Partition, strict: bool, verbose: bool, advance: Callable[[int], None]
) -> tuple[RowWatch, list[Any]]:
    """Vectors of a part, and the one who watched its rows."""
    watch = RowWatch(part.open() if isinstance(part, Partition) else part, strict, verbose)
    read = []
    for vectors, _ in watch.blocks(None):
        read.append(vectors)
        advance(len(vectors))
    return watch, read
