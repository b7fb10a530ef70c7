"""Find the texts and images of representatives again, for a report that shows them."""

from __future__ import annotations

import io

import numpy as np

from divscore.control.controlfile import is_control
from divscore.control.controlset import ControlSet
from divscore.errors import DivscoreError
from divscore.jobs.encode import Encoding
from divscore.jobs.pool import open_labelled
from divscore.report.summary import Example, Examples
from divscore.sources.pictures import decode, read_picture
from divscore.text import printable

SIDE = 64  # pixels of a thumbnail's longer side
MOST = 24  # examples of one group
QUALITY = 72


def find_examples(
    path: str, control: ControlSet, encoding: Encoding, attribute: str | None, column: str | None
) -> Examples:
    """Texts or thumbnails of representatives, or the reason why there are none.

    They come from the labelled source only. A saved control set has names and vectors, and a file with such a name may
    be anything: an image that nobody labelled, or one that is private.
    """
    # Of many representatives, some from all over the list, which may be sorted.
    wanted: dict[str, str] = {}
    for group, name in enumerate(control.groups):
        rows = control.rows(group, representatives=True)
        spread = np.linspace(0, len(rows) - 1, min(len(rows), MOST)).round().astype(int)
        wanted.update((control.ids[row], name) for row in rows[spread])
    try:
        saved = is_control(path)
        source = None if saved else open_labelled(path, encoding, attribute, likely_column=column)
        if source is None or source.kind == "vectors":
            return Examples(
                remark="The representatives cannot be shown: the control set has vectors and names, not the labelled "
                "items. To show them, give the labelled folder or table itself as --control."
            )
        # An id that two items have is not shown: one of them may not have been encoded.
        contents: dict[str, str | bytes] = {}
        twice = set()
        for run in source:
            for name, content in zip(run.ids, run.contents, strict=True):
                if name in contents:
                    twice.add(name)
                elif name in wanted:
                    contents[name] = content
    except (DivscoreError, OSError, ValueError) as error:
        reason = f"they could not be read a second time ({printable(str(error))})"
        return Examples(remark=f"The representatives cannot be shown: {reason}.")
    shown = []
    for name in wanted:
        item = contents.get(name) if name not in twice else None
        if source.kind == "text" and item:
            shown.append(Example(wanted[name], text=str(item)))
        elif source.kind == "image" and item is not None:
            try:
                shown.append(Example(wanted[name], picture=thumbnail(read_picture(item))))
            except DivscoreError:
                continue
            except ImportError:
                return Examples(
                    remark="Images cannot be shown: Pillow is not installed (pip install pillow)."
                )
    total = int(control.representative.sum())
    remark = f"{len(shown):,} of {total:,} representatives are shown, at most {MOST} of each group."
    if len(shown) == total:
        remark = f"All {total:,} representatives are shown."
    if len(shown) < len(wanted):
        remark += f" {len(wanted) - len(shown):,} could not be read again."
    return Examples(shown, f"{remark} They are labelled examples, not items of a collection.")


def thumbnail(data: bytes) -> bytes:
    """A small JPEG made from an image's pixels, without its metadata."""
    from PIL import Image

    small = Image.fromarray(decode(data, enough=SIDE))
    small.thumbnail((SIDE, SIDE))
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=QUALITY, optimize=True)
    return stream.getvalue()
