"""Predecessor: whose vectors lie already where a job is to write, so that no others are replaced unasked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from divscore.errors import DivscoreError, FileError
from divscore.jobs.encode import Encoding
from divscore.jobs.journal import Journal
from divscore.jobs.place import origin_of, place_of
from divscore.sources.embedded import ABOUT_KEY
from divscore.sources.items import ItemSource
from divscore.sources.labelled import ENCODER_KEY
from divscore.sources.open import open_one
from divscore.sources.places import Location
from divscore.sources.table import Request
from divscore.text import brief

__all__ = ["Predecessor", "refuse_other_file"]

SHOWN = 200  # letters of a name in a message


@dataclass(frozen=True)
class Predecessor:
    """What vectors are of and by, as far as it is known."""

    source: str
    encoder: str
    variant: str | None = None
    origin: str | None = None

    @classmethod
    def in_header(cls, header: Mapping[str, Any]) -> Self:
        """What a journal or a manifest says."""
        told = [header.get(key) for key in ("source", "encoder", "variant")]
        source, encoder, variant = (each if isinstance(each, str) else "" for each in told)
        return cls(source, encoder, variant)

    @classmethod
    def in_file(cls, path: Path) -> Self | None:
        """What a finished file says; None where `embed` did not write it."""
        try:
            metadata = open_one(Location(str(path), str(path)), Request(vectors=False)).metadata
            about = json.loads(metadata[ABOUT_KEY])
            return cls(about["source"], metadata[ENCODER_KEY], about.get("variant"), about.get("origin"))
        except (DivscoreError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def differs(self, new: Predecessor) -> bool:
        """Whether this is of another source or by another encoder; what one of both does not say is no difference."""
        if (self.source, self.encoder) != (new.source, new.encoder):
            return True
        both = ((self.variant, new.variant), (self.origin, new.origin))
        return any(None not in (mine, its) and mine != its for mine, its in both)

    def unlike(self, new: Predecessor) -> str:
        """What this is of and by, and what of that is different with others."""
        encoder, other = self._named_encoder, new._named_encoder
        if (self.source, encoder) == (new.source, other):
            return f"another source that is called {brief(self.source, SHOWN)} as well, by {encoder}"
        told = f"{brief(self.source, SHOWN)} by {encoder}, not"
        if self.source != new.source:
            told += f" of {brief(new.source, SHOWN)}"
        return told if encoder == other else f"{told} by {other}"

    @property
    def _named_encoder(self) -> str:
        return brief(self.encoder, SHOWN) + (f" ({brief(self.variant, SHOWN)})" if self.variant else "")


def refuse_other_file(target: Path, source: ItemSource, encoding: Encoding) -> None:
    """Refuse a name under which vectors of another source or by another encoder lie, finished or not."""
    encoder, variant = encoding.identity(source.kind), encoding.encoder(source.kind).variant
    if target.is_file() and target.stat().st_size:
        new = Predecessor(source.name, encoder, variant, origin_of(source))
        found = Predecessor.in_file(target)
        if found is None:
            raise FileError(
                f"{target} was not written by 'divscore embed'; give another name, or --overwrite to replace it"
            )
        if found.differs(new):
            raise FileError(
                f"{target} holds vectors of {found.unlike(new)}; give another name, or --overwrite to replace them"
            )
    unfinished = target.with_name(f"{target.name}.part")
    header = Journal.header_of(unfinished)
    if header is not None and Journal.has_records(unfinished):
        begun, new = Predecessor.in_header(header), Predecessor(place_of(source), encoder, variant)
        if begun.differs(new):
            raise FileError(
                f"{unfinished} keeps unfinished vectors of {begun.unlike(new)}; give another name, or --overwrite to "
                "drop them"
            )
