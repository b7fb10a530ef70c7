"""Earlier: the edition that lies in a folder already, and what of it the next one takes over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from divscore.control.controlfile import load_control
from divscore.control.controlset import ControlSet
from divscore.errors import DivscoreError, FileError, InputError
from divscore.publishing.about import ABOUT, About, read_about
from divscore.publishing.changelog import CHANGELOG, names_examples
from divscore.publishing.croissant import CROISSANT, PREFIX, read_description
from divscore.publishing.digests import digest_of, read_sums
from divscore.publishing.ids import counterparts
from divscore.publishing.measure import Measured, NotMeasured, measured_from
from divscore.publishing.objections import EMPTY, OBJECTIONS, Carried, carry_over, names_other_than_numbers

__all__ = ["Earlier", "read_earlier"]

NOTHING = About()


@dataclass(frozen=True)
class Earlier:
    """What was published before; `measured` holds for the control set with the digest and method `measured_on`."""

    control: ControlSet | None = None
    about: About = NOTHING
    changelog: str = ""
    objections: str = EMPTY
    first_day: str = ""
    edited_about: bool = False
    measured: Measured | None = None
    measured_on: tuple[object, object] = ("", "")

    def figures(self, found: Measured | NotMeasured, control: ControlSet) -> Measured | NotMeasured:
        """What was `found`, or else the figures of this edition if they are of the same control set."""
        if isinstance(found, Measured) or self.measured is None:
            return found
        return self.measured if self.measured_on == (control.digest, control.method) else found

    def answers(self, about: About) -> list[str]:
        """Questions that are answered differently now, as far as can be told."""
        changed = about.changed(self.about)
        return [*changed, f"others in {ABOUT}"] if self.edited_about else changed

    def carried(self, control: ControlSet) -> Carried:
        """The objections, to the examples as they are called now."""
        if self.control is None:
            return Carried(self.objections)
        now = {old: control.ids[new] for new, old in counterparts(control, self.control)}
        names = {name: now.get(row, "") for row, name in enumerate(self.control.ids)}
        return carry_over(self.objections, names)

    def still_named(self, objections: str) -> tuple[str, ...]:
        """Files of the next edition that would call examples by names where it has numbers."""
        found = {CHANGELOG: names_examples(self.changelog), OBJECTIONS: names_other_than_numbers(objections)}
        return tuple(name for name, named in found.items() if named)


def read_earlier(folder: Path) -> Earlier:
    """Read what is left of an edition, if perhaps damaged since."""
    try:
        control = load_control(folder, verify=False)
    except DivscoreError:
        control = None
    sums = read_sums(folder) or {}
    about = folder / ABOUT
    try:
        description = read_description(folder)
        whole = sums.get(CROISSANT) == digest_of(folder / CROISSANT)
    except (DivscoreError, OSError):
        description, whole = {}, False
    return Earlier(
        control,
        read_about(about) if about.is_file() else NOTHING,
        _text(folder / CHANGELOG),
        _text(folder / OBJECTIONS, newline="") or EMPTY,
        _day(description.get("datePublished")),
        about.is_file() and sums.get(ABOUT) != digest_of(about),
        _measured(description.get(f"{PREFIX}:measured")) if whole else None,
        (description.get(f"{PREFIX}:digest"), description.get(f"{PREFIX}:representativesMethod")),
    )


def _measured(values: object) -> Measured | None:
    try:
        found = measured_from(values)
    except InputError:
        return None
    return found if isinstance(found, Measured) else None


def _day(value: object) -> str:
    """A date such as 2026-01-31, or nothing."""
    try:
        return date.fromisoformat(value).isoformat() if isinstance(value, str) else ""
    except ValueError:
        return ""


def _text(file: Path, newline: str | None = None) -> str:
    try:
        with file.open(encoding="utf-8", newline=newline) as stream:
            return stream.read()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise FileError(f"{file} is not in UTF-8 ({error}); save it as UTF-8, it is kept as it is") from error
