"""embed_parts(): items to a folder with one Arrow file a partition, by whatever workers there are."""

from __future__ import annotations

import json
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from divscore.errors import DivscoreError, FileError
from divscore.files import lock_file, refuse_url, write_file
from divscore.jobs.embed import (
    EmbedResult,
    ItemPartition,
    Predecessor,
    embed,
    item_partitions,
    place_of,
    places_of,
)
from divscore.jobs.encode import Encoding
from divscore.jobs.engine import Engine
from divscore.jobs.projection import Projection
from divscore.sketch.missing import MissingPart
from divscore.sources import Items, open_table
from divscore.sources.manifest import FORMAT, KINDS, MANIFEST, Embedded, note_left_out, read_embedded
from divscore.sources.places import UnseenError
from divscore.text import printable

__all__ = ["PartsFolder", "PartsResult", "about", "check_parts", "embed_parts"]


# PartsFolder: the folder of an embedding job, and the manifest that says which files in it are the job's own.

LOCK = ".divscore.lock"
PART = re.compile(r"part-\d{5,}\.arrow")
BESIDE = (
    "",
    ".skipped.csv",
    ".part",
)  # what a job leaves of a part: itself, its list of skipped items, its journal
LEFTOVER = re.compile(rf"\.({PART.pattern})(\.skipped\.csv)?\.[0-9a-f]+(\.part)?")

Stamp = list[int]  # size and time of a file, which change when another takes its place


class PartsFolder:
    """Files ``part-00000.arrow`` … of a folder that belongs to a job alone.

    Only what a manifest of an earlier job lists is ever removed, and only when its successor is there or the new job is
    finished. Until then the manifest keeps the earlier parts apart from the new ones, so that a job that is stopped
    halfway does not take them for its own.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.replaced = False  # whether vectors of another source or by another encoder were there
        self._header: dict[str, Any] = {}
        self._parts: Mapping[str, Mapping[str, str]] = {}
        self._old: set[str] = set()  # parts that an earlier manifest lists
        self._stale: dict[str, Stamp] = {}  # those of them that are not this job's

    def check(self, source: Items) -> None:
        """Refuse a folder that is not the job's own, before anything in it is touched."""
        if self.path.exists() and not self.path.is_dir():
            raise FileError(
                f"{self.path} is a file; give the name of a folder, or one that ends in .arrow for a single file"
            )
        here = Path(os.path.realpath(self.path))
        for place in map(Path, map(os.path.realpath, places_of(source))):
            if here == place or here in place.parents:
                raise FileError(
                    f"{self.path} contains the source {source.path}; give a new folder for the vectors"
                )
            if place in here.parents:
                raise FileError(
                    f"{self.path} lies inside the source {source.path}, and its files would belong to it; give a "
                    "folder elsewhere for the vectors"
                )
        other = self._foreign(_listed(self._read()))
        if other:
            raise FileError(
                f"{self.path} holds files that are not of an embedding job ({printable(other[0])}"
                f"{f' and {len(other) - 1} more' if other[1:] else ''}); give a new or an empty folder"
            )

    def refuse_other(self, header: Mapping[str, Any]) -> None:
        """Refuse a folder in which vectors of another source or by another encoder lie, finished or not."""
        found = self._read() or {}
        there = [file for file in sorted(_listed(found)) if any(map(os.path.exists, self._beside(file)))]
        mine, its = Predecessor.in_header(header), Predecessor.in_header(found)
        if there and its.differs(mine):
            raise FileError(
                f"{self.path} holds {len(there):,} part{'s' if there[1:] else ''} with vectors of {its.unlike(mine)}; "
                "give another folder, or --overwrite to replace them"
            )

    def begun_for(self, source: str) -> bool:
        """Whether a job for this source was begun here."""
        return (self._read() or {}).get("source") == source

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other jobs out; however this process ends, the folder is free again."""
        self.path.mkdir(parents=True, exist_ok=True)
        with lock_file(self.path / LOCK):
            yield

    def begin(self, header: Mapping[str, Any], parts: Mapping[str, Mapping[str, str]]) -> dict[str, int]:
        """Find the parts that an earlier start of the same job finished, with their numbers of items."""
        self._header, self._parts = {"format": FORMAT, **header}, parts
        found = self._read() or {}
        same = all(found.get(key) == value for key, value in self._header.items())
        self.replaced = bool(found) and not same
        self._old = _listed(found)
        signatures = {part["file"]: part.get("signature") for part in found.get("parts", [])} if same else {}
        kept: dict[str, int] = {}
        for file in sorted(self._old):
            stamp = self._stamp(file)
            own = file in parts and parts[file]["signature"] == signatures.get(file)
            if stamp is not None and own and stamp != found.get("earlier", {}).get(file):
                items = _items(self.path / file)
                if items is not None:
                    kept[file] = items
                    continue
            if stamp is not None:
                self._stale[file] = stamp
        self._write(list(parts), earlier=self._stale)
        return kept

    def made(self) -> list[Path]:
        """Parts of this job that are there."""
        return [self.path / file for file in self._parts if self._is_own(file)]

    def finish(self, missing: Sequence[MissingPart]) -> None:
        """Say in the manifest that the parts are complete, then remove what is left of earlier jobs."""
        own = [path.name for path in self.made()]
        self._write(own, finished=True, missing=note_left_out(missing))
        for file in self._old.difference(own):
            for path in self._beside(file)[: 3 if file not in self._parts else 1]:
                path.unlink(missing_ok=True)
        self.tidy()

    def tidy(self) -> None:
        """Remove what workers that were stopped had not finished writing."""
        for path in self.path.iterdir():
            left = LEFTOVER.fullmatch(path.name)
            if left and (left[1] in self._parts or left[1] in self._old):
                path.unlink(missing_ok=True)

    def _beside(self, file: str) -> list[Path]:
        return [self.path / f"{file}{ending}" for ending in BESIDE]

    def _is_own(self, file: str) -> bool:
        stamp = self._stamp(file)
        return stamp is not None and stamp != self._stale.get(file)

    def _stamp(self, file: str) -> Stamp | None:
        try:
            found = os.stat(self.path / file)
        except FileNotFoundError:
            return None
        return [found.st_size, found.st_mtime_ns]

    def _foreign(self, listed: set[str]) -> list[str]:
        """Names in the folder that no job wrote; hidden ones are let be."""
        if not self.path.is_dir():
            return []
        known = {f"{file}{ending}" for file in listed for ending in BESIDE}
        known |= {MANIFEST} if self._read() is not None else set()
        return sorted(
            name for name in os.listdir(self.path) if name not in known and not name.startswith(".")
        )

    def _read(self) -> dict[str, Any] | None:
        """The manifest, if it is one of ours."""
        try:
            found = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))
            _listed(found)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        return found if found.get("format") == FORMAT else None

    def _write(
        self,
        files: Sequence[str],
        *,
        finished: bool = False,
        missing: Sequence[Mapping[str, Any]] = (),
        earlier: Mapping[str, Stamp] | None = None,
    ) -> None:
        parts = [{"file": file, **self._parts[file]} for file in files]
        content = {**self._header, "finished": finished, "missing": list(missing), "parts": parts}
        if earlier:
            content["earlier"] = earlier
        write_file(self.path / MANIFEST, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def about(path: Path) -> Embedded:
    """What a finished part says of itself."""
    part = open_table(path, vectors=False)
    found = read_embedded(part.metadata, part.label)
    if found is None:
        raise FileError(
            f"{part.label} is no longer the part that was written; let 'divscore embed' start again"
        )
    return found


def _items(path: Path) -> int | None:
    """Items of a part; none where it cannot be read, so that it is made anew."""
    try:
        return about(path).items
    except DivscoreError:
        return None


def _listed(manifest: Mapping[str, Any] | None) -> set[str]:
    """Files that a manifest lists; names that no job gives are left out."""
    if manifest is None:
        return set()
    names = [*(part["file"] for part in manifest.get("parts", [])), *manifest.get("earlier", {}).keys()]
    return {name for name in names if PART.fullmatch(name)}


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
    source: Items,
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
        missing = list(source.missing)
        waiting = [task for task in tasks if task.file not in kept]
        resumed = sum(kept.values())
        here = engine.inline or engine.local
        work = partial(_embed_part, assignment, progress=_one_at_a_time(progress) if here else None)
        try:
            for task, done in engine.run(work, waiting, killed=_killed):
                if done.failed is not None:
                    if strict or done.fatal or len(tasks) == 1:
                        raise FileError(done.failed)
                    missing.append(MissingPart(task.partition.label, done.failed, task.partition.rows))
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


def check_parts(source: Items, out: str | os.PathLike[str], encoding: Encoding | None = None) -> PartsFolder:
    """Refuse a folder that vectors cannot be written to, or that holds something else, before anything is done.

    With an encoding, vectors of another source or by another encoder are something else, too.
    """
    refuse_url(out, "a folder of vectors")
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


def _header(source: Items, encoding: Encoding) -> dict[str, Any]:
    """What parts must have in common to be of one job."""
    return {
        "source": place_of(source),
        "encoder": encoding.identity(source.kind),
        "variant": encoding.encoder(source.kind).variant,
        "columns": list(source.extra),
    }


def _finished(folder: PartsFolder, source: Items, missing: list[MissingPart], resumed: int) -> PartsResult:
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
