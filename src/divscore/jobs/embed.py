"""embed(): items to vectors on disk, as a job that can be killed at any moment and resumed.

The job makes parts, each complete or not there, and after a stop only those that are missing. The result is a folder
of parts with a manifest, or one file: the parts are then in a hidden folder next to it until they are joined. For an
address (``s3://…``) the parts are in the user's cache folder until the result is uploaded.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from divscore.errors import FileError
from divscore.files import (
    PathLike,
    check_writable,
    filesystem_of,
    is_url,
    lock_file,
    remove_file,
    upload_files,
    write_file,
)
from divscore.jobs.cache import default_cache
from divscore.jobs.encode import Encoding
from divscore.jobs.engine import Engine
from divscore.jobs.parts import (
    IDENTITY,
    VECTOR,
    ItemPartition,
    Made,
    PartFacts,
    PartMaker,
    Tally,
    item_partitions,
    join_parts,
    listing_of,
    read_facts,
    write_listing,
)
from divscore.jobs.projection import Projection
from divscore.sketch.missing import MissingPart
from divscore.sources import Items
from divscore.sources import open as open_collection
from divscore.sources.items import fingerprint
from divscore.sources.manifest import FORMAT, MANIFEST, note_missing, part_of
from divscore.sources.places import Location
from divscore.text import brief, count, printable, public

LOCK = ".divscore.lock"
PART = re.compile(r"(part-\d{5,})(_\d{5})?\.arrow(\.skipped\.csv)?")
TEMPORARY = re.compile(rf"\.{PART.pattern}\.[0-9a-f]+\.part")
SHOWN = 200  # letters of a name in a message
OTHER = "choose another name, or --overwrite to replace"


@dataclass(frozen=True)
class EmbedResult:
    """What a job did: `resumed` items were finished before, `skipped` counts the items without a vector by kind."""

    path: str
    items: int
    vectors: int
    several: int
    small: int  # faces that are too small to count
    skipped: dict[str, int]
    listing: str | None  # file that lists the skipped items
    missing: tuple[MissingPart, ...]  # parts of the source that could not be read
    parts: int | None  # of a folder
    resumed: int = 0
    replaced: bool = False  # there were vectors of another source or encoder
    projection: str | None = None  # file of the projection that --pca N fitted


def open_items(
    thing: Any,
    *,
    column: str | None = None,
    form: str = "",
    strict: bool = False,
    extra: Sequence[str] | None = (),
) -> Items:
    """Open a collection of items to encode; `extra` None takes every column of text and numbers."""
    source = open_collection(thing, column=column, extra=extra or (), form=form, strict=strict, forced=True)
    if source.kind == "vectors":
        raise FileError(f"{source.path} has vectors, not items; there is nothing to encode")
    return source.select(source.readable) if extra is None else source


def embed(
    source: Items,
    out: PathLike,
    encoding: Encoding,
    *,
    engine: Engine | None = None,
    strict: bool = False,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda items: None,
    on_missing: Callable[[str], None] = lambda reason: None,
) -> EmbedResult:
    """Encode every item of `source` into the file `out` (``.arrow``) or the folder `out` of parts, here or in a store.

    After an interruption the same call resumes and makes only the missing parts. The result has the same bytes
    whoever made it. Skipped items are listed in ``….arrow.skipped.csv`` next to the vectors, and a projection that
    ``pca=N`` asks for is saved as ``….pca.npz``. Vectors of another source or encoder are replaced only with
    `overwrite`.

    The workers of an `engine`, those of a cluster, must read `source` and write `out` under the same paths; `out` is
    then no address. Without it this process makes the parts, with the workers of `encoding`. `strict` makes the first
    item that would be skipped an error. `progress` is called with numbers of finished items, `on_missing` with the
    reason why a part of the source is missing.
    """
    folder = PartsFolder(out)
    if folder.remote and engine is not None:
        raise FileError(
            f"{public(folder.out)}: the workers of a cluster write to a folder that all machines share; give such a "
            "folder, then copy the result"
        )
    if folder.remote:
        check_writable(folder.out if folder.single else f"{folder.out}/{MANIFEST}", "vectors")
    folder.check(source)
    projection, fitted = _fit(encoding, source, folder)
    encoder = encoding.encoder(source.kind)
    maker = PartMaker(
        folder=os.fspath(folder.path.absolute()),
        source=source.name,
        origin=_origin(source),
        kind=source.kind,
        encoder=encoding.identity(source.kind),
        variant=encoder.variant,
        columns=tuple(name for name in source.extra if name.lower() != IDENTITY),
        dimension=encoding.dimension(source.kind),
        strict=strict,
    )
    if not overwrite:
        folder.check_same(maker)
    if fitted and encoding.projection is not None:
        encoding.projection.save(projection)
    with folder.locked():
        folder.check(source)  # again, as another job may have been at work
        missing = list(source.missing)
        missing += [MissingPart(text.partition(" cannot be listed")[0], text) for text in source.unlisted]
        if strict and missing:
            raise FileError(f"{missing[0].reason}; fix it, or leave out --strict")
        partitions = list(item_partitions(source))
        replaced = folder.begin(maker, partitions)
        # What another start of this job finished stays; a long partition resumes after its last complete part.
        resumed, waiting = 0, []
        for partition in partitions:
            parts = folder.finished(maker, partition)
            items = sum(part.about.items for part in parts)
            if items:
                resumed += items
                progress(items)
            if not parts or not parts[-1].last:
                waiting.append(replace(partition, done=len(parts), done_items=items))
        results: Iterable[tuple[ItemPartition, Made]]
        if engine is None:
            results = ((partition, maker.make(encoding, partition, progress)) for partition in waiting)
        elif any(location.path == "-" for location in source.locations):
            raise FileError("a cluster cannot read standard input; save it as a file first")
        else:
            results = engine.map(
                partial(maker.make, encoding), waiting, killed=lambda _, reason: Made(0, reason)
            )
        for partition, made in results:
            if engine is not None:
                progress(made.items)
            if made.unreadable:
                if strict or made.fatal or len(partitions) == 1:
                    raise FileError(made.unreadable)
                missing.append(MissingPart(str(partition), made.unreadable, partition.items.rows))
                on_missing(made.unreadable)
        result = folder.finish(maker, partitions, missing, source.path)
        saved = f"{folder.out}.pca.npz" if fitted or (folder.remote and projection.exists()) else None
        if saved and folder.remote:
            upload_files({saved: projection})
            projection.unlink()
        return replace(result, resumed=resumed, replaced=replaced, projection=saved)


def _fit(encoding: Encoding, source: Items, folder: PartsFolder) -> tuple[Path, bool]:
    """With --pca N, take the projection of this job if it began before, or fit one that is to be saved."""
    path = Path(f"{folder.path if folder.remote else folder.out}.pca.npz")
    if encoding.pca is None or encoding.projection is not None:
        return path, False
    begun = folder.manifest() or {}
    if path.is_file() and (begun.get("source"), begun.get("origin")) == (source.name, _origin(source)):
        saved = Projection.load(path)
        if saved.size == encoding.pca and saved.encoder == encoding.encoder(source.kind).identity:
            encoding.projection = saved
            return path, False
    encoding.fit(source)
    return path, True


def _origin(source: Items) -> str:
    """Tells sources of the same name apart without saying where they are: files are shared, paths are private."""
    local = not is_url(source.path) and source.path != "-"
    return fingerprint(os.path.abspath(source.path) if local else source.path).hex()


class PartsFolder:
    """Parts of a job and their manifest: in the folder `out`, or in a hidden one next to the file `out`.

    If `out` is an address, they are in a folder of the user's cache that belongs to this address, and are uploaded at
    the end, so that an interrupted job can resume. Files that no job made are never touched. Parts of an earlier job
    are replaced one by one, and those left are removed when the new job is finished.
    """

    def __init__(self, out: PathLike) -> None:
        text, target = os.fspath(out), Path(out)
        self.remote = is_url(out)
        self.out = text.rstrip("/") if self.remote else os.fspath(target)
        self.single = bool(target.suffix) and not text.endswith("/") and (self.remote or not target.is_dir())
        self.path = target.with_name(f".{target.name}.parts") if self.single else target
        if self.remote:
            self.path = default_cache() / f"upload-{fingerprint(self.out).hex()}"
        # Where parts of an earlier job can be.
        self.places = [os.fspath(self.path), *([self.out] if self.remote and not self.single else [])]

    def check(self, source: Items) -> None:
        """Refuse a target that vectors cannot be written to, before anything is touched."""
        if VECTOR in source.extra:
            raise FileError(f"{source.path} has a column '{VECTOR}', the name of the new vectors; rename it")
        if self.single and Path(self.out).suffix != ".arrow":
            raise FileError(
                f"{self.out}: vectors are written as Arrow; give a name that ends in .arrow, or a folder"
            )
        if self.single and not self.remote:
            whole = part_of(self.out)
            if whole is not None:
                raise FileError(
                    f"{self.out} is one part of the vectors in {whole}; give that folder, or a file elsewhere"
                )
        if not self.single and os.path.exists(self.out) and not os.path.isdir(self.out):
            raise FileError(f"{self.out} is a file; give a folder, or a name that ends in .arrow")
        target = _place(self.out)
        urls = [source.path, *(location.url for location in source.locations)]
        for url in urls:
            if not is_url(url) and not os.path.exists(url):
                continue
            place = _place(url)
            if self.single and target == place:
                raise FileError(f"{self.out} is the source itself; choose another name")
            if not self.single and (target == place or target in place.parents):
                raise FileError(f"{self.out} contains the source {source.path}; choose another folder")
            if not self.single and place in target.parents:
                raise FileError(
                    f"{self.out} is inside the source {source.path}, and its files would become part of it; choose "
                    "another folder"
                )
        for where in self.places:
            own = {MANIFEST, *self._own_files(where)} if self.manifest(where) else set()
            foreign = sorted(name for name in _names(where) if name not in own and not name.startswith("."))
            if foreign:
                more = f" and {len(foreign) - 1} more" if foreign[1:] else ""
                raise FileError(
                    f"{where} has files that no embedding job made ({printable(foreign[0])}{more}); choose a new or "
                    "empty folder"
                )

    def check_same(self, maker: PartMaker) -> None:
        """Refuse to replace vectors of another source or encoder, finished or not."""
        for where in self.places:
            parts = [name for name in self._own_files(where) if name.endswith(".arrow")]
            if parts:
                what = f"{where} has {count(len(parts), 'parts')} with vectors"
                _check_same(maker, self.manifest(where) or {}, what)
        file = Location(self.out, self.out)
        if self.single and file.exists() and file.size():
            facts = read_facts(self.out)
            if facts is None:
                raise FileError(f"{self.out} was not written by 'divscore embed'; {OTHER} it")
            _check_same(maker, facts.header, f"{self.out} has vectors")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other jobs out; however this process ends, the folder is free again."""
        self.path.mkdir(0o700 if self.remote else 0o777, parents=True, exist_ok=True)
        try:
            with lock_file(self.path / LOCK):
                try:
                    yield
                finally:
                    names = _names(self.path)
                    for name in filter(TEMPORARY.fullmatch, names):  # of workers that were killed
                        (self.path / name).unlink(missing_ok=True)
                    if self.manifest() and not self._own_files():
                        (self.path / MANIFEST).unlink(missing_ok=True)
        finally:
            with suppress(OSError):
                self.path.rmdir()  # if nothing is in it

    def begin(self, maker: PartMaker, partitions: Sequence[ItemPartition]) -> bool:
        """Write which parts will be here; return whether there were parts of another source or encoder."""
        replaced = any(
            self._own_files(where) and not _same(maker, self.manifest(where) or {}) for where in self.places
        )
        parts = [{"file": partition.file(0), "of": str(partition)} for partition in partitions]
        self._write(self.path, maker, parts, finished=False, earlier=self._own_files())
        return replaced

    def finished(self, maker: PartMaker, partition: ItemPartition) -> list[PartFacts]:
        """Read the parts of a partition that this job, or an earlier start of it, made."""
        parts: list[PartFacts] = []
        while not parts or not parts[-1].last:
            facts = read_facts(self.path / partition.file(len(parts)))
            if facts is None or facts.signature != maker.signature(partition, len(parts)):
                break
            if maker.strict and facts.about.skipped_items:
                break  # made again, to say what is wrong
            parts.append(facts)
        return parts

    def finish(
        self,
        maker: PartMaker,
        partitions: Sequence[ItemPartition],
        missing: Sequence[MissingPart],
        source: str,
    ) -> EmbedResult:
        """Add up the parts, then mark the folder as finished or join them to one file."""
        tally, parts = Tally(maker.columns), []
        unreadable = {part.part for part in missing}
        for partition in partitions:
            finished = self.finished(maker, partition)
            if finished and finished[-1].last:
                for at, facts in enumerate(finished):
                    parts.append({"file": partition.file(at), "of": str(partition)})
                    tally.add(facts.about)
            elif str(partition) not in unreadable:
                raise FileError(
                    f"{self.path} does not have the part of {partition}; on a cluster it must be a folder that all "
                    "machines share"
                )
        files, listing = [self.path / part["file"] for part in parts], listing_of(self.out)
        skipped = list(_listed(files)) if self.single else []
        if self.single:
            write_listing(listing, maker.columns, skipped)
        about = tally.to_dict()
        if not about["vectors"]:
            where = listing if self.single else f"{self.path}/part-*.skipped.csv"
            reason = missing[0].reason if missing else f"see {where}"
            if first := next(_listed(files), None):
                reason = f"{printable(first[0])}: {first[2]}; {reason}"
            if self.single:  # without a vector there is nothing to resume from
                for name in self._own_files():
                    (self.path / name).unlink(missing_ok=True)
            raise FileError(
                f"{source}: none of its {count(about['items'], 'items')} could be encoded; {reason}"
            )
        noted = note_missing(missing)
        if self.single:
            by = {name: values for name, values in about["skipped_by"].items() if values}
            extra = {"skipped_by": by, "origin": maker.origin, "missing": noted}
            join_parts(files, self.out, maker.schema(about | extra))
        elif self.remote:
            self._upload(maker, parts, noted)
        keep = set() if self.single or self.remote else _with_listings(path.name for path in files)
        for name in set(self._own_files()) - keep:
            (self.path / name).unlink(missing_ok=True)
        if not self.single and not self.remote:
            self._write(self.path, maker, parts, finished=True, missing=noted)
        del about["skipped_by"]
        return EmbedResult(
            self.out,
            **about,
            listing=listing if skipped else None,
            missing=tuple(missing),
            parts=None if self.single else len(parts),
        )

    def _upload(
        self, maker: PartMaker, parts: Sequence[Mapping[str, str]], missing: list[dict[str, Any]]
    ) -> None:
        """Put the parts in the store. Until the last of them is there, the manifest says that others are to come."""
        old = self._own_files(self.out)
        self._write(self.out, maker, parts, finished=False, earlier=old)
        names = _with_listings(part["file"] for part in parts).intersection(_names(self.path))
        upload_files({f"{self.out}/{name}": self.path / name for name in sorted(names)})
        for name in set(old) - names:
            remove_file(f"{self.out}/{name}")
        self._write(self.out, maker, parts, finished=True, missing=missing)

    def _own_files(self, where: PathLike | None = None) -> list[str]:
        """Parts in the folder that its manifest lists, and the listings of their skipped items."""
        where = self.path if where is None else where
        manifest = self.manifest(where) or {"parts": []}
        listed = {*(part["file"] for part in manifest["parts"]), *manifest.get("earlier", [])}
        own = []
        for name in sorted(_names(where)):
            match = PART.fullmatch(name)
            if match and not listed.isdisjoint({f"{match[1]}.arrow", name.removesuffix(".skipped.csv")}):
                own.append(name)
        return own

    def manifest(self, where: PathLike | None = None) -> dict[str, Any] | None:
        """The manifest of a folder, by default of the one that parts are made in, if `embed` wrote it."""
        place = f"{os.fspath(self.path if where is None else where)}/{MANIFEST}"
        try:
            with Location(place, place).open() as stream:
                manifest = json.loads(stream.read())
            parts, earlier = manifest["parts"], manifest.get("earlier", [])
            names = [*(part["file"] for part in parts), *(earlier if isinstance(earlier, list) else [None])]
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        ours = manifest.get("format") == FORMAT and all(isinstance(name, str) for name in names)
        return manifest if ours else None

    def _write(
        self, where: PathLike, maker: PartMaker, parts: Sequence[Mapping[str, str]], **facts: Any
    ) -> None:
        manifest = {"format": FORMAT, **maker.header, "missing": [], **facts, "parts": list(parts)}
        text = json.dumps(manifest, indent=1, ensure_ascii=False)
        write_file(f"{os.fspath(where)}/{MANIFEST}", f"{text}\n")


def _place(path: str) -> PurePath:
    """Where something is, to compare it with others."""
    return PurePath(path) if is_url(path) else Path(os.path.realpath(path))


def _names(folder: PathLike) -> list[str]:
    """Names of the files in a folder, here or in a store; a folder that does not exist has none."""
    if not is_url(folder):
        return os.listdir(folder) if os.path.isdir(folder) else []
    filesystem, path = filesystem_of(os.fspath(folder))
    filesystem.invalidate_cache()
    with Location(path, os.fspath(folder)).reading("a remote folder"), suppress(FileNotFoundError):
        names = [entry.removeprefix(path).strip("/") for entry in filesystem.ls(path, detail=False)]
        return [name for name in names if name]
    return []


def _with_listings(names: Iterable[str]) -> set[str]:
    return {each for name in names for each in (name, listing_of(name))}


def _same(maker: PartMaker, header: Mapping[str, Any]) -> bool:
    return all(header.get(key) == maker.header[key] for key in ("source", "origin", "encoder", "variant"))


def _check_same(maker: PartMaker, header: Mapping[str, Any], what: str) -> None:
    if _same(maker, header):
        return

    def described(header: Mapping[str, Any]) -> str:
        source, encoder, variant = (header.get(key) for key in ("source", "encoder", "variant"))
        by = f"{encoder} ({variant})" if variant else encoder
        return f"{brief(str(source), SHOWN)} by {brief(str(by), SHOWN)}"

    theirs, ours = described(header), described(maker.header)
    which = f"another source named {theirs}" if theirs == ours else f"{theirs}, not of {ours}"
    raise FileError(f"{what} of {which}; {OTHER} them")


def _listed(parts: Sequence[Path]) -> Iterator[list[str]]:
    """Rows of the listings of parts."""
    for path in map(listing_of, parts):
        if os.path.exists(path):
            with open(path, encoding="utf-8", newline="") as stream:
                yield from list(csv.reader(stream))[1:]
