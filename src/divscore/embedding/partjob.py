"""embed_parts(): items to a folder with one Arrow file a partition, by whatever workers there are."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from divscore.embedding.encoding import Encoding
from divscore.embedding.itempart import ItemPartition, item_partitions
from divscore.embedding.job import EmbedResult, embed
from divscore.embedding.projection import Projection
from divscore.engines import Engine
from divscore.errors import DivscoreError, FileError
from divscore.sources.block import Request
from divscore.sources.dataset import FORMAT, MANIFEST
from divscore.sources.items import ItemSource
from divscore.sources.location import Location
from divscore.sources.open import open_one
from divscore.sources.partition import UnseenError
from divscore.sources.pool import ABOUT_KEY
from divscore.sources.tableitems import TableItems

__all__ = ["PartsResult", "embed_parts"]

KINDS = ("unreadable", "empty")


@dataclass(frozen=True)
class PartsResult(EmbedResult):
    """What a job of parts did; `missing` are the parts that could not be made, and why."""

    parts: int = 0
    missing: tuple[tuple[str, str], ...] = ()


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

    def __str__(self) -> str:
        return str(self.partition)


@dataclass(frozen=True)
class _Done:
    items: int = 0
    failed: str | None = None
    fatal: bool = False


def embed_parts(
    source: ItemSource,
    out: str | os.PathLike[str],
    encoding: Encoding,
    engine: Engine,
    *,
    strict: bool = False,
    progress: Callable[[int], None] = lambda items: None,
    on_failure: Callable[[str], None] = lambda reason: None,
) -> PartsResult:
    """Encode every item of `source` into files ``part-00000.arrow`` … of the folder `out`, with a manifest.

    Each file appears when it is whole. After an interruption the same call makes only those that are not there; the
    files are the same to the byte whoever made them. How the source is cut depends on the source alone.
    """
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise FileError(
            f"{folder} is a file; give the name of a folder, or one that ends in .arrow for a single file"
        )
    tasks = [_Task(at, each) for at, each in enumerate(item_partitions(source, strict=strict))]
    job = _Parts(folder, source, encoding, tasks)
    kept = job.begin()
    for task in tasks:
        if task.file in kept:
            progress(kept[task.file])
    assignment = _Assignment(
        os.fspath(folder.absolute()),
        encoding.spec(source.kind).name,
        _anywhere(encoding.model),
        encoding.options,
        encoding.projection,
        strict,
    )
    missing = (
        [(file.label, file.reason) for file in source.unopened] if isinstance(source, TableItems) else []
    )
    waiting = [task for task in tasks if task.file not in kept]
    for task, done in engine.run(partial(_embed_part, assignment), waiting):
        if done.failed is not None:
            if strict or done.fatal or len(tasks) == 1:
                raise FileError(done.failed)
            missing.append((task.partition.label, done.failed))
            on_failure(done.failed)
        progress(done.items)
    return job.finish(missing, sum(kept.values()))


def _anywhere(model: str | None) -> str | None:
    """A model's path for a process that works in another folder; a name stays as it is."""
    return os.path.abspath(model) if model is not None and os.path.exists(model) else model


def _embed_part(assignment: _Assignment, task: _Task) -> _Done:
    """Make one part, in whichever process or machine; its encoder is loaded once a process."""
    target = Path(assignment.folder) / task.file
    try:
        with assignment.encoding() as encoding:
            made = embed(task.partition.open(), target, encoding, strict=assignment.strict, may_be_empty=True)
        return _Done(made.items)
    except UnseenError as error:
        return _Done(failed=str(error), fatal=True)
    except DivscoreError as error:
        return _Done(failed=str(error))


@dataclass(frozen=True)
class _Parts:
    """The folder of a job, and its manifest."""

    folder: Path
    source: ItemSource
    encoding: Encoding
    tasks: Sequence[_Task]
    header: dict[str, Any] = field(default_factory=dict)

    def begin(self) -> dict[str, int]:
        """Find the parts that an earlier start finished, with their numbers of items; remove those of other jobs."""
        encoder = self.encoding.encoder(self.source.kind)
        self.header.update(
            format=FORMAT,
            source=self.source.path,
            encoder=self.encoding.identity(self.source.kind),
            variant=encoder.variant,
            columns=list(self.source.extra),
        )
        earlier = self._read()
        same = earlier is not None and all(earlier.get(key) == value for key, value in self.header.items())
        known = {part["file"]: part["signature"] for part in earlier["parts"]} if same and earlier else {}
        kept: dict[str, int] = {}
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self.folder.glob("part-*.arrow*")):
            number = int(path.name[5:10]) if path.name[5:10].isdigit() else -1
            task = self.tasks[number] if 0 <= number < len(self.tasks) else None
            if task is None or known.get(task.file) != task.partition.signature:
                path.unlink()
            elif path.name == task.file:
                kept[task.file] = _about(path)["items"]
        self._write(finished=False, missing=[])
        return kept

    def finish(self, missing: list[tuple[str, str]], resumed: int) -> PartsResult:
        """Add up the parts and say in the manifest that they are complete."""
        counts: Counter[str] = Counter()
        for path in self._made():
            about = _about(path)
            counts.update({key: int(about[key]) for key in ("items", "vectors", "several")})
            counts.update({kind: int(about["skipped"].get(kind, 0)) for kind in KINDS})
        if not counts["vectors"]:
            why = missing[0][1] if missing else "the files part-*.skipped.csv say why"
            raise FileError(f"{self.source.path}: none of {counts['items']:,} items has a vector; {why}")
        self._write(finished=True, missing=missing)
        return PartsResult(
            os.fspath(self.folder),
            counts["items"],
            counts["vectors"],
            resumed,
            counts["several"],
            {kind: counts[kind] for kind in KINDS},
            parts=sum(1 for _ in self._made()),
            missing=tuple(missing),
        )

    def _made(self) -> Iterator[Path]:
        paths = (self.folder / task.file for task in self.tasks)
        return (path for path in paths if path.exists())

    def _read(self) -> dict[str, Any] | None:
        try:
            found = json.loads((self.folder / MANIFEST).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and isinstance(found.get("parts"), list) else None

    def _write(self, *, finished: bool, missing: list[tuple[str, str]]) -> None:
        made = {path.name for path in self._made()}
        parts = [
            {"file": task.file, "of": task.partition.label, "signature": task.partition.signature}
            for task in self.tasks
            if not finished or task.file in made
        ]
        told = [{"of": label, "reason": reason} for label, reason in missing]
        content = {**self.header, "finished": finished, "missing": told, "parts": parts}
        fresh = self.folder / f".{MANIFEST}.{uuid.uuid4().hex}"
        try:
            fresh.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            fresh.replace(self.folder / MANIFEST)
        finally:
            fresh.unlink(missing_ok=True)


def _about(path: Path) -> dict[str, Any]:
    """What a finished part says of itself."""
    found: dict[str, Any] = json.loads(
        open_one(Location(str(path), str(path)), Request(vectors=False)).metadata[ABOUT_KEY]
    )
    return found
