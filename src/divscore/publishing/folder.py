"""Write a control set as a folder that can be made public, and again over an earlier edition of it."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from divscore.control import ControlSet
from divscore.controlcard import TABLE
from divscore.controlfile import load_control, put_in_place, write_table
from divscore.embedding.open import PROJECTION
from divscore.errors import DivscoreError, FileError, InputError
from divscore.publishing.about import About, read_about, write_about
from divscore.publishing.changelog import CHANGELOG, changes, edition_of, with_entry
from divscore.publishing.croissant import CROISSANT, described, read_description
from divscore.publishing.digests import SUMS, digest_of, overall, read_sums, sums_text
from divscore.publishing.ids import public_ids
from divscore.publishing.measure import Measured, NotMeasured
from divscore.publishing.objections import EMPTY, OBJECTIONS
from divscore.publishing.publication import Publication, today
from divscore.publishing.readme import README, readme
from divscore.publishing.soundness import soundness

__all__ = ["ABOUT", "GENERATED", "Published", "is_published", "publish"]

ABOUT = "about.toml"
GENERATED = (TABLE, README, CROISSANT)  # written anew in every edition; nobody should edit them
OURS = {*GENERATED, ABOUT, CHANGELOG, OBJECTIONS, SUMS, PROJECTION}
NOTHING = About()
Measure = Callable[[ControlSet], Measured | NotMeasured]


@dataclass(frozen=True)
class Published:
    """What was written: the edition, the overall digest, and how many examples go by another name than before."""

    publication: Publication
    digest: str
    renamed: int


@dataclass(frozen=True)
class _Earlier:
    """The edition that lies in the folder already."""

    control: ControlSet | None = None
    about: About = NOTHING
    changelog: str = ""
    objections: str = EMPTY
    first_day: str = ""
    edited_about: bool = False


def is_published(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a folder that `publish` wrote, if perhaps damaged since."""
    folder = Path(path)
    return (folder / SUMS).is_file() or ((folder / OBJECTIONS).is_file() and (folder / CHANGELOG).is_file())


def publish(
    control: ControlSet,
    folder: str | os.PathLike[str],
    *,
    about: About | None = None,
    measure: Measure = lambda control: NotMeasured("nobody asked for it"),
    ids: str = "names",
    projection: Path | None = None,
    replace: bool = False,
) -> Published:
    """Write `control` with everything about it into `folder`, whole or not at all.

    Parameters
    ----------
    control : ControlSet
        What to publish; its similarity must be the cosine, which every reader has.
    folder : path
        New, empty, or an earlier edition: then its objections stay, its changelog grows, and other files beside it
        stay too.
    about : About, optional
        What people know of it; that of the earlier edition by default.
    measure : callable
        Gives the figures of error and coverage.
    ids : "names", "numbers" or "keep"
        What the examples are called, see `public_ids`.
    projection : path, optional
        The file that shortens vectors of collections as it did the set's.
    replace : bool
        Overwrite files of the earlier edition that were changed by hand.
    """
    target = Path(folder).resolve()
    _check_target(target, replace)
    if not control.similarity.collapses:
        raise InputError(
            f"this control set has the similarity '{control.similarity.name}', which no file can hold; only sets with "
            "cosine similarity can be published"
        )
    earlier = _earlier(target) if target.is_dir() else _Earlier()
    public = control.with_ids(public_ids(control, ids, earlier.control))
    day = today()
    publication = Publication(
        public,
        earlier.about if about is None else about,
        soundness(public),
        measure(public),
        edition_of(earlier.changelog) + 1,
        day,
        earlier.first_day or day,
    )
    digest = _write(publication, earlier, target, projection)
    renamed = sum(a != b for a, b in zip(control.ids, public.ids, strict=True))
    return Published(publication, digest, renamed)


def _write(publication: Publication, earlier: _Earlier, target: Path, projection: Path | None) -> str:
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.parent / f".{target.name}.{uuid.uuid4().hex}"
    fresh.mkdir()
    control = publication.control
    try:
        write_table(control, fresh / TABLE)
        if projection is not None:
            shutil.copyfile(projection, fresh / PROJECTION)
        description = described(publication, fresh / TABLE)
        texts = {
            ABOUT: write_about(publication.about, control),
            CROISSANT: json.dumps(description, indent=2, ensure_ascii=False) + "\n",
            CHANGELOG: with_entry(
                earlier.changelog,
                publication.edition,
                publication.day,
                changes(control, earlier.control, _answers(publication.about, earlier)),
            ),
        }
        for name, text in texts.items():
            (fresh / name).write_text(text, encoding="utf-8")
        digest = overall(_digests(fresh), [README])
        (fresh / README).write_text(readme(publication, digest), encoding="utf-8")
        (fresh / SUMS).write_text(sums_text(_digests(fresh)), encoding="utf-8")
        (fresh / OBJECTIONS).write_text(earlier.objections, encoding="utf-8", newline="")
        put_in_place(fresh, target, OURS)
    except UnicodeEncodeError as error:
        raise FileError(
            f"{target}: {error.object!r} cannot be written as text; rename the example, group or attribute"
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return digest


def _answers(about: About, earlier: _Earlier) -> list[str]:
    """Questions that are answered differently in this edition, as far as can be told."""
    changed = about.changed(earlier.about)
    return [*changed, f"others in {ABOUT}"] if earlier.edited_about else changed


def _digests(folder: Path) -> dict[str, str]:
    return {file.name: digest_of(file) for file in folder.iterdir()}


def _check_target(target: Path, replace: bool) -> None:
    if target.exists() and not target.is_dir():
        raise FileError(f"{target} is a file; a control set is published as a folder: give another name")
    if Path.cwd().is_relative_to(target):
        raise FileError(f"{target} is the folder you are in; go out of it first, it is replaced as a whole")
    if not target.is_dir() or not any(target.iterdir()):
        return
    if not is_published(target):
        raise FileError(
            f"{target} is a folder with other things in it; give a new folder, or one that holds an earlier edition"
        )
    changed = [name for name, digest in (read_sums(target) or {}).items() if _edited(target / name, digest)]
    if changed and not replace:
        raise FileError(
            f"{target}: {' and '.join(changed)} changed after the last edition and would be overwritten; move what "
            f"should stay to {ABOUT} or {CHANGELOG}, and give --replace"
        )


def _edited(file: Path, digest: str) -> bool:
    return file.name in GENERATED and file.is_file() and digest_of(file) != digest


def _earlier(folder: Path) -> _Earlier:
    if not is_published(folder):
        return _Earlier()
    try:
        control = load_control(folder, verify=False)
    except (DivscoreError, KeyError, ValueError):
        control = None
    sums = read_sums(folder) or {}
    return _Earlier(
        control,
        read_about(folder / ABOUT) if (folder / ABOUT).is_file() else About(),
        _text(folder / CHANGELOG),
        _text(folder / OBJECTIONS, newline="") or EMPTY,
        _first_day(folder),
        (folder / ABOUT).is_file() and sums.get(ABOUT) != digest_of(folder / ABOUT),
    )


def _text(file: Path, newline: str | None = None) -> str:
    try:
        with file.open(encoding="utf-8", newline=newline) as stream:
            return stream.read()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise FileError(f"{file} is not in UTF-8 ({error}); save it as UTF-8, it is kept as it is") from error


def _first_day(folder: Path) -> str:
    try:
        return str(read_description(folder).get("datePublished", ""))
    except FileError:
        return ""
