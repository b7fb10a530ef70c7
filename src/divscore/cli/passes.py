"""One pass over a collection given on the command line, with progress, and every skipped row accounted for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from divscore.cli.console import progress_bar, warn
from divscore.cli.encoding import watched
from divscore.control import ControlSet
from divscore.embedding.encoding import Encoding
from divscore.embedding.open import open_any
from divscore.embedding.source import EncodedSource
from divscore.engines import Engine, sketch_blocks
from divscore.errors import FileError, MismatchError
from divscore.missing import Gaps, Missing
from divscore.passes import Sketched
from divscore.passes import sketch_source as run_pass
from divscore.passes.partial import RowWatch
from divscore.sources import VectorSource
from divscore.sources.delimited import DelimitedSource
from divscore.sources.open import ManySource, parts_of
from divscore.sources.pool import ABOUT_KEY, ENCODER_KEY
from divscore.wording import printable

__all__ = ["open_collection", "sketch_source", "skipped_in", "unopened_in", "whole_source"]

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
) -> VectorSource:
    """Open a collection and check that its vectors can be compared with the control set's."""
    source = open_any(path, encoding, column=column, extra=[by] if by else [], form=form, strict=strict)
    if isinstance(source, EncodedSource) and control.encoder is None and not encoding.forced:
        raise MismatchError(
            f"{source.path} has to be encoded, but the control set does not say what encoded its vectors; name the "
            "encoder with --encoder, if you know it, or give labelled examples instead of vectors"
        )
    if isinstance(source, DelimitedSource) and 0 < len(source.numbers) < FEW_NUMBERS:
        warn(
            f"{source.path}: taking the columns {', '.join(source.numbers)} as vectors (--column names another)"
        )
    for part in parts_of(source):
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
    source: VectorSource,
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
        _count_skipped(source, found, by)
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
    watch = RowWatch(source, strict, verbose)
    sketches = sketch_blocks(watch.blocks(by), control, name=source.name, seed=seed, workers=min(workers, 4))
    problems = [*source.problems, *watch.problems][:LISTED]
    return Sketched(sketches, 1, watch.rows, source.unreadable, tuple(problems))


def _tell_failure(missing: Missing) -> None:
    rows = f" ({missing.rows:,} rows)" if missing.rows else ""
    warn(f"left out{rows}: {missing.reason}")


@contextmanager
def _bar(source: VectorSource, verbose: bool) -> Iterator[Callable[[int], None]]:
    """A bar of vectors, or of items where those are encoded first."""
    if isinstance(source, EncodedSource):
        with watched(source, verbose):
            yield lambda rows: None
        return
    with progress_bar(source.name, source.rows) as advance:
        yield advance


def _count_skipped(source: VectorSource, found: Sketched, by: str | None) -> None:
    """Tell each collection how many of its items have no vector."""
    sketches = found.sketches
    if isinstance(source, EncodedSource) and by:
        for name, sketch in sketches.items():
            for kind, number in source.skipped(name).items():
                sketch.skip(kind, number)
        lost = source.items.unreadable
        for name in sorted({values[0] for _, values in source.skips} - set(sketches)):
            number = sum(source.skipped(name).values())
            warn(f"{printable(name)}: none of its {number:,} items has a vector; left out")
    elif by and (known := _skipped_by(source, by)) is not None:
        for name, kinds in known.items():
            if name in sketches:
                for kind, number in kinds.items():
                    sketches[name].skip(kind, number)
            else:
                warn(f"{name}: none of its {sum(kinds.values()):,} items has a vector; left out")
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


def skipped_in(source: VectorSource, unreadable: int) -> dict[str, int]:
    """Items of a whole source that have no vector, by kind, also those that `embed` left out of its file."""
    if isinstance(source, EncodedSource):
        return source.skipped()
    counts = {"unreadable": unreadable, "empty": 0}
    for part in parts_of(source):
        for kind, number in json.loads(part.metadata.get(ABOUT_KEY, "{}")).get("skipped", {}).items():
            counts[kind] += int(number)
    return counts


def _skipped_by(source: VectorSource, by: str) -> dict[str, dict[str, int]] | None:
    """What `embed` noted of the items without a vector, by the values of a column; None where it did not."""
    found: dict[str, dict[str, int]] = {}
    for part in parts_of(source):
        about = json.loads(part.metadata.get(ABOUT_KEY, "{}"))
        lost, noted = sum(about.get("skipped", {}).values()), about.get("skipped_by", {}).get(by, {})
        if lost != sum(sum(kinds.values()) for kinds in noted.values()):
            return None
        for name, kinds in noted.items():
            mine = found.setdefault(name, {})
            for kind, number in kinds.items():
                mine[kind] = mine.get(kind, 0) + int(number)
    return found


def unopened_in(source: VectorSource) -> Gaps:
    """Files among several that could not even be opened."""
    files = source.unopened if isinstance(source, ManySource) else ()
    return Gaps.among(Missing(file.label, file.reason) for file in files)


def whole_source(source: VectorSource, *, strict: bool, verbose: bool) -> Any:
    """All vectors of a source in memory, for the one estimator that cannot do with less."""
    for missing in unopened_in(source).listed:
        _tell_failure(missing)
    watch = RowWatch(source, strict, verbose)
    with _bar(source, verbose) as advance:
        blocks = []
        for vectors, _ in watch.blocks(None):
            blocks.append(vectors)
            advance(len(vectors))
    for problem in [*source.problems, *watch.problems] if verbose else ():
        warn(problem)
    if not blocks:
        raise FileError(f"{source.path} holds no row with a usable vector")
    return np.concatenate(blocks)
