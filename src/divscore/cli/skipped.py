"""Items that have no vector: how many, of which collection."""

from __future__ import annotations

from divscore.cli.console import warn
from divscore.jobs.sketching import Sketched
from divscore.jobs.source import EncodedSource
from divscore.sources.embedded import read_embedded
from divscore.sources.open import parts_of
from divscore.sources.table import VectorSource
from divscore.text import named

__all__ = ["count_skipped", "skipped_in"]


def count_skipped(source: VectorSource, found: Sketched, by: str | None) -> None:
    """Tell each collection how many of its items have no vector."""
    sketches = found.sketches
    if isinstance(source, EncodedSource) and by:
        for name, sketch in sketches.items():
            for kind, number in source.skipped(name).items():
                sketch.skip(kind, number)
        lost = source.items.unreadable
        for name in sorted({values[0] for _, values in source.skips} - set(sketches)):
            number = sum(source.skipped(name).values())
            warn(f"{named(name)}: none of its {number:,} items has a vector; left out")
    elif by and (known := _skipped_by(source, by)) is not None:
        for name, kinds in known.items():
            if name in sketches:
                for kind, number in kinds.items():
                    sketches[name].skip(kind, number)
            else:
                warn(f"{named(name)}: none of its {sum(kinds.values()):,} items has a vector; left out")
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
        about = read_embedded(part.metadata, part.label)
        for kind, number in about.skipped.items() if about else ():
            counts[kind] += number
    return counts


def _skipped_by(source: VectorSource, by: str) -> dict[str, dict[str, int]] | None:
    """What `embed` noted of the items without a vector, by the values of a column; None where it did not."""
    found: dict[str, dict[str, int]] = {}
    for part in parts_of(source):
        about = read_embedded(part.metadata, part.label)
        if about is None:
            continue
        noted = about.skipped_by.get(by, {})
        if about.lost != sum(sum(kinds.values()) for kinds in noted.values()):
            return None
        for name, kinds in noted.items():
            mine = found.setdefault(name, {})
            for kind, number in kinds.items():
                mine[kind] = mine.get(kind, 0) + number
    return found
