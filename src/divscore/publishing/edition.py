"""Write a control set as a folder that can be made public, and again over an earlier edition of it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from divscore.control.controlcard import TABLE
from divscore.control.controlfile import whole_folder, write_table
from divscore.control.controlset import ControlSet
from divscore.errors import FileError, InputError
from divscore.jobs.pool import PROJECTION
from divscore.publishing.about import ABOUT, About, write_about
from divscore.publishing.changelog import CHANGELOG, changes, edition_of, with_entry
from divscore.publishing.croissant import CROISSANT, described
from divscore.publishing.digests import SUMS, digest_of, overall, read_sums, sums_text
from divscore.publishing.earlier import Earlier, read_earlier
from divscore.publishing.ids import public_ids
from divscore.publishing.measure import Measured, NotMeasured
from divscore.publishing.objections import EMPTY, OBJECTIONS, Carried
from divscore.publishing.publication import Publication, today
from divscore.publishing.readme import README, readme
from divscore.publishing.soundness import soundness

__all__ = ["GENERATED", "OURS", "Published", "is_published", "publish"]

GENERATED = (TABLE, README, CROISSANT)  # written anew in every edition; nobody should edit them
OURS = {*GENERATED, ABOUT, CHANGELOG, OBJECTIONS, SUMS, PROJECTION}
NO_OBJECTIONS = Carried(EMPTY)
Measure = Callable[[ControlSet], Measured | NotMeasured]


@dataclass(frozen=True)
class Published:
    """What was written: the edition, and the overall digest.

    `renamed` examples go by another name than in the control set that was given. `carried` says that the figures are
    those of the edition before. `still_named` are files in which examples are called by names, though this edition
    calls them by numbers.
    """

    publication: Publication
    digest: str
    renamed: int
    carried: bool = False
    objections: Carried = NO_OBJECTIONS
    still_named: tuple[str, ...] = ()


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
        Gives the figures of error and coverage. Where it gives none, those of the earlier edition stay if the control
        set is the same.
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
    earlier = read_earlier(target) if is_published(target) else Earlier()
    public = control.with_ids(public_ids(control, ids, earlier.control))
    figures = measure(public)
    told = earlier.figures(figures, public)
    carried = earlier.carried(public)
    day = today()
    publication = Publication(
        public,
        earlier.about if about is None else about,
        soundness(public),
        told,
        edition_of(earlier.changelog) + 1,
        day,
        earlier.first_day or day,
    )
    changed = changes(public, earlier.control, earlier.answers(publication.about), ids=ids)
    log = with_entry(earlier.changelog, publication.edition, day, changed)
    digest = _write(publication, {CHANGELOG: log, OBJECTIONS: carried.text}, target, projection)
    return Published(
        publication,
        digest,
        renamed=sum(a != b for a, b in zip(control.ids, public.ids, strict=True)),
        carried=told is not figures,
        objections=carried,
        still_named=earlier.still_named(carried.text) if ids == "numbers" else (),
    )


def _write(
    publication: Publication, growing: Mapping[str, str], target: Path, projection: Path | None
) -> str:
    """Write all files, of which those that are `growing` take over what the earlier edition held."""
    control = publication.control
    with whole_folder(target, OURS) as fresh:
        write_table(control, fresh / TABLE)
        if projection is not None:
            shutil.copyfile(projection, fresh / PROJECTION)
        description = described(publication, fresh / TABLE)
        texts = {
            ABOUT: write_about(publication.about, control),
            CROISSANT: json.dumps(description, indent=2, ensure_ascii=False) + "\n",
            CHANGELOG: growing[CHANGELOG],
        }
        for name, text in texts.items():
            (fresh / name).write_text(text, encoding="utf-8")
        digest = overall(_digests(fresh), [README])
        (fresh / README).write_text(readme(publication, digest), encoding="utf-8")
        (fresh / SUMS).write_text(sums_text(_digests(fresh)), encoding="utf-8")
        (fresh / OBJECTIONS).write_text(growing[OBJECTIONS], encoding="utf-8", newline="")
    return digest


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
