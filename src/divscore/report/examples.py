"""Representatives that people can look at: their texts and thumbnails in a report, and a page about a control set."""

from __future__ import annotations

import base64
import io
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from divscore.audit.trust import coverage
from divscore.control.controlfile import is_control
from divscore.control.controlset import ControlSet
from divscore.control.selection import Standing, standings
from divscore.encoders.registry import ENCODERS, Kind
from divscore.errors import DivscoreError, FileError, MissingExtraError
from divscore.files import PathLike, check_writable, write_file
from divscore.jobs.encode import Encoding
from divscore.jobs.pool import open_labelled
from divscore.report.caveats import LARGEST, sentences
from divscore.report.listing import MINUS, shortened
from divscore.report.page import render_page
from divscore.report.summary import TEXT, Example, Examples
from divscore.sources import Items
from divscore.sources.items import is_picture
from divscore.sources.pictures import decode, read_picture
from divscore.text import brief, count, printable, unsigned

SIDE = 64  # pixels of a thumbnail's longer side in a report
SQUARE = 144  # pixels of a square thumbnail on a page of its own
MOST = 24  # examples of one group in a report
MOST_ON_PAGE = 200
QUALITY = 72
NAME = 40  # characters of an example's name
NO_PILLOW = "Images cannot be shown: Pillow is not installed (pip install pillow)"
NOT_HERE = "the control set has vectors and names, not the labelled items"


# Finding texts and images again


def open_again(
    control: ControlSet, path: str, encoding: Encoding, attribute: str | None, column: str | None
) -> Items | None:
    """The labelled items themselves, for a control set that does not say where they are: images inside a table."""
    if control.origins is not None or is_control(path):
        return None
    try:
        source = open_labelled(path, encoding, attribute, likely_column=column)
    except (DivscoreError, OSError, ValueError):
        return None
    return None if source.kind == "vectors" else source


def look_up(
    control: ControlSet, rows: Iterable[int], source: Items | None, *, square: int = 0
) -> dict[int, Example]:
    """The text or thumbnail of each of these examples that can be found.

    An example is found by its origin, or by its name in the labelled source itself. Its name alone is not enough: a
    file with that name may be anything, an image that nobody labelled or one that is private.
    """
    wanted = list(rows)
    contents: dict[int, str | bytes] = {}
    if control.origins is not None:
        contents = {row: origin for row in wanted if (origin := control.origins[row])}
    elif source is not None:
        at = {control.ids[row]: row for row in wanted}
        names: Counter[str] = Counter()
        for batch in source:
            names.update(batch.ids)
            for name, content in zip(batch.ids, batch.contents, strict=True):
                if name in at:
                    contents[at[name]] = content
        # An id that two items have is not shown: one of them may not have been encoded.
        contents = {row: content for row, content in contents.items() if names[control.ids[row]] == 1}
    found: dict[int, Example] = {}
    for row, content in contents.items():
        group = control.groups[control.labels[row]]
        if isinstance(content, str) and not is_place(content, control.encoder):
            found[row] = Example(group, text=content)
            continue
        try:
            if isinstance(content, str) and "://" in content and "…" in content:
                raise FileError("was named by an address with a password, which is not kept")
            found[row] = Example(group, picture=thumbnail(read_picture(content), square=square))
        except DivscoreError:
            continue
    return found


def kinds_of(encoder: str | None) -> tuple[Kind, ...]:
    """Kinds of items that an encoder takes, by its identity; both where it is unknown, none where it is None."""
    if encoder is None:
        return ()
    about = ENCODERS.get(encoder.partition("/")[0])
    return tuple(about.loaders) if about else ("image", "text")


def is_place(origin: str, encoder: str | None) -> bool:
    """Whether an origin is the place of an image; texts can look like one, so the encoder decides if it can."""
    kinds = set(kinds_of(encoder or ""))
    place = os.path.isabs(origin) or re.match(r"[A-Za-z][\w+.-]*://", origin)
    return kinds == {"image"} or ("image" in kinds and bool(place) and is_picture(origin.partition("?")[0]))


def thumbnail(data: bytes, *, side: int = SIDE, square: int = 0) -> bytes:
    """A small JPEG made from an image's pixels, without its metadata.

    Its longer side has at most `side` pixels; or it is cut to a `square` with sides of so many.
    """
    from PIL import Image, ImageOps

    small = Image.fromarray(decode(data, enough=square or side))
    if square:
        # Heads are in the upper part of a portrait.
        small = ImageOps.fit(small, (square, square), centering=(0.5, 0.3))
    else:
        small.thumbnail((side, side))
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=QUALITY, optimize=True)
    return stream.getvalue()


def find_examples(control: ControlSet, source: Items | None) -> Examples:
    """Texts or thumbnails of representatives for a report, or the reason why there are none."""
    rows = _some(control, MOST)
    if control.origins is None and source is None:
        return Examples(
            remark=f"The representatives cannot be shown: {NOT_HERE}. To show them, select them again, or give the "
            "labelled folder or table itself as --control."
        )
    try:
        shown = list(look_up(control, rows, source).values())
    except ImportError:
        return Examples(remark=f"{NO_PILLOW}.")
    except (DivscoreError, OSError, ValueError) as error:
        reason = f"they could not be read a second time ({printable(str(error))})"
        return Examples(remark=f"The representatives cannot be shown: {reason}.")
    total = int(control.representative.sum())
    remark = f"{len(shown):,} of {total:,} representatives are shown, at most {MOST} of each group."
    if len(shown) == total:
        remark = f"All {total:,} representatives are shown."
    if len(shown) < len(rows):
        remark += f" {len(rows) - len(shown):,} were not found again."
    return Examples(shown, f"{remark} They are labelled examples, not items of a collection.")


def _some(control: ControlSet, most: int) -> list[int]:
    """Up to `most` representatives of each group; of more, some from all over the list, which may be sorted."""
    rows: list[int] = []
    for group in range(len(control.groups)):
        own = control.rows(group, representatives=True)
        rows += own[np.linspace(0, len(own) - 1, min(len(own), most)).round().astype(int)].tolist()
    return rows


# A page about a control set


@dataclass(frozen=True)
class Card:
    """A representative on the page: its name, its text or thumbnail, why it was chosen, and the numbers behind it."""

    name: str
    text: str
    picture: str
    reason: str
    numbers: tuple[str, str, str]


@dataclass(frozen=True)
class Shelf:
    """The representatives of one group; `about` says how many there are, and `uncovered` what they leave out."""

    group: str
    about: str
    uncovered: str
    cards: tuple[Card, ...]


def check_page(path: PathLike) -> None:
    """Refuse a path that no page can be written to, before anything is read."""
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise FileError(f"--html {os.fspath(path)}: expected a file that ends in .html")
    check_writable(path, "--html")


def write_page(path: PathLike, control: ControlSet, source: Items | None = None) -> None:
    """Write one self-contained HTML page with the representatives, why they were chosen, and what they leave out."""
    words, gaps = sentences()["representatives"], _gaps(control)
    rows = _some(control, MOST_ON_PAGE)
    try:
        found = look_up(control, rows, source, square=SQUARE)
    except ImportError as error:
        raise MissingExtraError(NO_PILLOW) from error
    every, shelves = standings(control, rows), []
    for group, name in enumerate(control.groups):
        total = len(control.rows(group, representatives=True))
        own = [each for each in every if control.labels[each.row] == group]
        cards = tuple(_card(control, each, found.get(each.row), total) for each in own)
        about = f"{total:,} of {count(control.counts[name], 'labelled examples')} represent this group."
        shelves.append(Shelf(shortened(name), about, gaps[group], cards))
    chosen, attribute = int(control.representative.sum()), shortened(control.attribute)
    notes, missing, kept_back = [], len(rows) - len(found), chosen - len(rows)
    if missing and control.origins is None and source is None:
        notes.append(words["unknown"])
    elif missing:
        notes.append(words["missing"].format(count(missing, "representatives")))
    if kept_back:
        notes.append(words["more"].format(count(kept_back, "representatives"), MOST_ON_PAGE))
    if skipped := sum(control.skipped.values()):
        notes.append(words["skipped"].format(count(skipped, "labelled examples")))
    kind = _kind(control)
    text = render_page(
        "representatives.html.j2",
        ("report.css", "representatives.css"),
        title=f"{attribute}: representatives",
        kicker=f"Control set for {attribute}",
        headline=f"{chosen:,} of {count(len(control), 'labelled examples')} represent {len(shelves)} groups",
        lead=words["lead"],
        shelves=shelves,
        notes=notes,
        method=(
            words[kind].format(printable(control.method)),
            words["scale" if control.similarity.collapses else "own"],
        ),
        labels=tuple(words["labels"]),
        uncovered=words["uncovered"],
        facts=(
            ("Selected by", printable(control.method)),
            ("Encoder", printable(control.encoder or "not recorded: the input was vectors")),
            ("Digest", control.digest),
        ),
    )
    write_file(path, text)


def _kind(control: ControlSet) -> str:
    """How the representatives were selected, by the method's first word."""
    if control.representative.all():
        return "all"
    first = re.split(r"\W", control.method, maxsplit=1)[0]
    return first if first in ("adaptive", "random", "dpp") else "chosen"


def _gaps(control: ControlSet) -> list[str]:
    """How many labelled examples of each group have no representative near."""
    if max(control.counts.values()) > LARGEST:
        return [sentences()["coverage"]["large"].format(f"{LARGEST:,}")] * len(control.groups)
    words, gaps = sentences()["representatives"], []
    for part in coverage(control):
        number = round(part.uncovered * part.labelled)
        sentence = words["covered" if not number else "gap_one" if number == 1 else "gap"]
        gaps.append(sentence.format(f"{number:,}", count(part.labelled, "labelled examples")))
    return gaps


def _card(control: ControlSet, standing: Standing, example: Example | None, total: int) -> Card:
    words = sentences()["representatives"]
    group = control.groups[control.labels[standing.row]]
    kind, labelled = _kind(control), control.counts[group]
    if kind in ("adaptive", "dpp"):
        # Those that their γ alone would have chosen are typical; the others owe their place to being different.
        kind = "typical" if standing.rank <= total else "varied"
    reason = words[f"why_{kind}"].format(standing.rank, f"{labelled:,}")
    numbers = [
        unsigned(number, 3).replace("-", MINUS)
        for number in (standing.own, standing.others, standing.redundancy)
    ]
    picture = base64.b64encode(example.picture).decode() if example and example.picture else ""
    name = control.ids[standing.row]
    return Card(
        f"example {name}" if name.isdecimal() else brief(name, NAME),
        brief(example.text, TEXT) if example and example.text else "",
        f"data:image/jpeg;base64,{picture}" if picture else "",
        reason,
        (numbers[0], numbers[1], numbers[2]),
    )
