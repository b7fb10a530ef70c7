"""Publication: everything that is said about a control set in public, before it is put into words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from divscore.control.controlset import ControlSet
from divscore.publishing.about import About
from divscore.publishing.measure import Measured, NotMeasured
from divscore.publishing.soundness import Soundness

__all__ = ["Publication", "group_numbers", "today"]


@dataclass(frozen=True)
class Publication:
    """One edition of a control set: what it holds, what people know of it and what was measured on it."""

    control: ControlSet
    about: About
    sound: Soundness
    measured: Measured | NotMeasured
    edition: int = 1
    day: str = ""
    first_day: str = ""

    @property
    def title(self) -> str:
        """Its name."""
        return self.about.title or f"Control set for {self.control.attribute}"

    @property
    def summary(self) -> str:
        """What it is, in one sentence."""
        counts = ", ".join(f"{n} {name}" for name, n in self.control.counts.items())
        return f"{len(self.control)} labelled examples of {self.control.attribute} ({counts}), for audits."

    @property
    def groups(self) -> dict[str, dict[str, int]]:
        """Numbers of examples and of representatives in each group."""
        return group_numbers(self.control)

    @property
    def vectors_warning(self) -> str:
        """What the vectors give away of the items."""
        if (self.control.encoder or "").startswith("faces/"):
            return (
                "The vectors are face descriptors: whoever has another photograph of one of these people can recognise "
                "them by it. In many countries such numbers are personal data under special protection."
            )
        return "A vector tells something of its item: whoever has the item can recognise it, and may guess at others."

    @property
    def lost(self) -> str:
        """Labelled examples that are not in it, because they could not be encoded; empty if none is known."""
        left = self.control.left_out
        told = ", ".join(f"{left[name]} of {name}" for name in left)
        return f"Labelled, but not in the set because they could not be encoded: {told}." if told else ""

    @property
    def cautions(self) -> list[str]:
        """What speaks against using it as it is."""
        found = [f"{problem[0].upper()}{problem[1:]}." for problem in self.sound.problems]
        if self.control.hand_picked:
            found.append(
                "The examples were picked by hand, not drawn at random; results will carry a warning."
            )
        if self.lost:
            found.append(self.lost)
        return found


def group_numbers(control: ControlSet) -> dict[str, dict[str, int]]:
    """Numbers of examples and of representatives in each group."""
    return {
        name: {"labelled": n, "representatives": len(control.rows(at, representatives=True))}
        for at, (name, n) in enumerate(control.counts.items())
    }


def today() -> str:
    """The date in UTC."""
    return datetime.now(UTC).date().isoformat()
