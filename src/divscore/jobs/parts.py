"""embed_parts(): items to a folder with one Arrow file a partition, by whatever workers there are."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from divscore.audit.missing import Missing
from divscore.errors import DivscoreError, FileError
from divscore.files import refuse_address
from divscore.jobs.embed import EmbedResult, embed
from divscore.jobs.encode import Encoding
from divscore.jobs.engine import Engine
from divscore.jobs.itempart import ItemPartition, item_partitions, unopened
from divscore.jobs.partsfolder import PartsFolder, about
from divscore.jobs.place import place_of
from divscore.jobs.projection import Projection
from divscore.sources.embedded import KINDS
from divscore.sources.items import ItemSource
from divscore.sources.partition import UnseenError

__all__ = ["PartsResult", "check_parts", "embed_parts"]


@dataclass(frozen=True)
class PartsResult(EmbedResult):
    """What a job of parts did."""

    parts: int = 0


@dataclass(frozen=True)
class _Assignment:
    """What is the same for all parts."""

    folder: str
    name: str | None
    model: str | None
    options: tuple[tuple[str, str], ...]
    projection: Projection | None
    strict: bool

    def encoding(self) -> Encoding:
        made = Encoding(self.name, model=self.model, options=dict(self.options))
        made.projection = self.projection
        made.threads = 1  # so that vectors do not depend on the machine's cores
        return made


@dataclass(frozen=True)
class _Task:
    number: int
    partition: ItemPartition

    @property
    def file(self) -> str:
        return f"part-{self.number:05}.arrow"

    @property
    def facts(self) -> dict[str, str]:
        """What the manifest says of it."""
        return {"of": self.partition.label, "signature": self.partition.signature}

    def __str__(self) -> str:
        return str(self.partition)


@dataclass(frozen=True)
class _Done:
    items: int = 0
    resumed: int = 0
    failed: str | None = None
    fatal: bool = False


def embed_parts(
    source: ItemSource,
    out: str | os.PathLike[str],
    encoding: Encoding,
    engine: Engine,
    *,
    strict: bool = False,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda items: None,
    on_failure: Callable[[str], None] = lambda reason: None,
) -> PartsResult:
    """Encode every item of `source` into files ``part-00000.arrow`` … of the folder `out`, with a manifest.

    Each file appears when it is whole. After an interruption the same call makes only those that are not there; the
    files are the same to the byte whoever made them. How the source is cut depends on the source alone. Vectors of
    another source or by another encoder are replaced only where `overwrite` says so. `progress` is told of items as
    they are encoded where that is done in this process, or else of whole parts; never by two threads at once.
    """
    folder = check_parts(source, out)
    with folder.held():
        folder.check(source)  # again, as another job may have been at work
        header = _header(source, encoding)
        if not overwrite:
            folder.refuse_other(header)
        tasks = [_Task(at, each) for at, each in enumerate(item_partitions(source, strict=strict))]
        kept = folder.begin(header, {task.file: task.facts for task in tasks})
        for task in tasks:
            if task.file in kept:
                progress(kept[task.file])
        assignment = _Assignment(
            os.fspath(folder.path.absolute()),
            encoding.spec(source.kind).name,
            _anywhere(encoding.model),
            encoding.options,
            encoding.projection,
            strict,
        )
        missing = list(unopened(source))
        waiting = [task for task in tasks if task.file not in kept]
        resumed = sum(kept.values())
        here = engine.inline or engine.local
        work = partial(_embed_part, assignment, progress=_one_at_a_time(progress) if here else None)
        try:
            for task, done in engine.run(work, waiting, killed=_killed):
                if done.failed is not None:
                    if strict or done.fatal or len(tasks) == 1:
                        raise FileError(done.failed)
                    missing.append(Missing(task.partition.label, done.failed, task.partition.rows))
                    on_failure(done.failed)
                resumed += done.resumed
                if not here:
                    progress(done.items)
        except BaseException:
            engine.abandon()  # while the folder is still held: its own workers write no more
            if engine.own:
                folder.tidy()
            raise
        return _finished(folder, source, missing, resumed)


def check_parts(
    source: ItemSource, out: str | os.PathLike[str], encoding: Encoding | None = None
) -> PartsFolder:
    """Refuse a folder that vectors cannot be written to, or that holds something else, before anything is done.

    With an encoding, vectors of another source or by another encoder are something else, too.
    """
    refuse_address(out, "a folder of vectors")
    folder = PartsFolder(out)
    folder.check(source)
    if encoding is not None:
        folder.refuse_other(_header(source, encoding))
    return folder


def _one_at_a_time(progress: Callable[[int], None]) -> Callable[[int], None]:
    """For several threads that tell of their progress."""
    lock = threading.Lock()

    def tell(items: int) -> None:
        with lock:
            progress(items)

    return tell


def _header(source: ItemSource, encoding: Encoding) -> dict[str, Any]:
    """What parts must have in common to be of one job."""
    return {
        "source": place_of(source),
        "encoder": encoding.identity(source.kind),
        "variant": encoding.encoder(source.kind).variant,
        "columns": list(source.extra),
    }


def _finished(folder: PartsFolder, source: ItemSource, missing: list[Missing], resumed: int) -> PartsResult:
    """Add up the parts and say in the manifest that they are complete."""
    counts: Counter[str] = Counter()
    made = folder.made()
    for path in made:
        said = about(path)
        counts.update({"items": said.items, "vectors": said.vectors, "several": said.several, **said.skipped})
    if not counts["vectors"]:
        why = missing[0].reason if missing else "the files part-*.skipped.csv say why"
        raise FileError(f"{source.path}: none of {counts['items']:,} items has a vector; {why}")
    folder.finish(missing)
    return PartsResult(
        os.fspath(folder.path),
        counts["items"],
        counts["vectors"],
        resumed,
        counts["several"],
        {kind: counts[kind] for kind in KINDS},
        folder.replaced,
        parts=len(made),
        missing=tuple(missing),
    )


def _anywhere(model: str | None) -> str | None:
    """A model's path for a process that works in another folder; a name stays as it is."""
    return os.path.abspath(model) if model is not None and os.path.exists(model) else model


def _killed(task: _Task, reason: str) -> _Done:
    return _Done(failed=reason)


def _embed_part(assignment: _Assignment, task: _Task, progress: Callable[[int], None] | None = None) -> _Done:
    """Make one part, in whichever process or machine; its encoder is loaded once a process."""
    target = Path(assignment.folder) / task.file
    try:
        with assignment.encoding() as encoding:
            made = embed(
                task.partition.open(),
                target,
                encoding,
                strict=assignment.strict,
                part=True,
                progress=progress or (lambda items: None),
            )
        return _Done(made.items, made.resumed)
    except UnseenError as error:
        return _Done(failed=str(error), fatal=True)
    except DivscoreError as error:
        return _Done(failed=str(error))
