"""Find the representatives' own texts and pictures again, for a report that is to show them."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np

from divscore.control.controlset import ControlSet
from divscore.errors import DivscoreError
from divscore.jobs.contents import read_picture
from divscore.jobs.encode import Encoding
from divscore.jobs.pool import open_labelled
from divscore.report.context import Example, Examples
from divscore.sources.items import ItemSource
from divscore.text import printable

__all__ = ["find_examples"]

SIDE = 64  # pixels of a small picture's longer side
MOST = 24  # examples of one group
QUALITY = 72


def find_examples(
    path: str,
    control: ControlSet,
    encoding: Encoding,
    *,
    attribute: str | None,
    likely_column: str | None,
) -> Examples:
    """Texts or small pictures of labelled examples that are representatives, or the reason why there are none.

    They are taken from the labelled source alone. A saved control set knows names and vectors, and a file that bears
    such a name may be anything: a picture that nobody labelled, or one that is none of the reader's business.
    """
    wanted = _wanted(control)
    try:
        source = open_labelled(path, encoding, attribute=attribute, likely_column=likely_column)
        if source is None:
            return Examples(
                remark="The representatives cannot be shown: the control set holds vectors and names, not what was "
                "labelled. To show them, give the labelled folder or table itself as --control."
            )
        contents = _contents(source, wanted)
    except (DivscoreError, OSError, ValueError) as error:
        told = printable(str(error))
        return Examples(
            remark=f"The representatives cannot be shown: they could not be read a second time ({told})."
        )
    if source.kind == "text":
        shown = [Example(group, text=str(contents[n])) for n, group in wanted.items() if contents.get(n)]
        return Examples(shown, _left(control, len(shown), len(wanted) - len(shown)))
    return _pictures(control, wanted, contents)


def _contents(source: ItemSource, wanted: Mapping[str, str]) -> dict[str, str | bytes]:
    """What the wanted examples are, by id; not those whose id another item bears too, one that was not encoded."""
    found: dict[str, str | bytes] = {}
    twice = set()
    for run in source:
        for name, each in zip(run.ids, run.contents, strict=True):
            if name in found:
                twice.add(name)
            elif name in wanted:
                found[name] = each
    return {name: each for name, each in found.items() if name not in twice}


def _wanted(control: ControlSet) -> dict[str, str]:
    """Representatives by id, with their groups; of many, some from all over the list, which may be sorted."""
    wanted: dict[str, str] = {}
    for group, name in enumerate(control.groups):
        rows = control.rows(group, representatives=True)
        some = np.linspace(0, len(rows) - 1, min(len(rows), MOST)).round().astype(int)
        wanted.update((control.ids[row], name) for row in rows[some])
    return wanted


def _pictures(
    control: ControlSet, wanted: Mapping[str, str], contents: Mapping[str, str | bytes]
) -> Examples:
    shown, lost = [], 0
    for name, group in wanted.items():
        try:
            shown.append(Example(group, picture=thumbnail(read_picture(contents[name]))))
        except (DivscoreError, KeyError):
            lost += 1
        except ImportError:
            return Examples(remark="Pictures cannot be shown: Pillow is not installed (pip install pillow).")
    return Examples(shown, _left(control, len(shown), lost))


def thumbnail(data: bytes) -> bytes:
    """A small JPEG of a picture, made anew from its pixels: nothing else that its file told is in it."""
    from PIL import Image

    from divscore.sources.pictures import decode

    small = Image.fromarray(decode(data, enough=SIDE))
    small.thumbnail((SIDE, SIDE))
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=QUALITY, optimize=True)
    return stream.getvalue()


def _left(control: ControlSet, shown: int, lost: int) -> str:
    total = int(control.representative.sum())
    said = [f"{shown:,} of {total:,} representatives are shown, at most {MOST} of each group."]
    if shown == total:
        said = [f"All {total:,} representatives are shown."]
    if lost:
        said.append(f"{lost:,} could not be read again.")
    return printable(" ".join([*said, "They are labelled examples, not items of a collection."]))
