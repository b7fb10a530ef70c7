"""Summary: everything a report says, as text and numbers that only need to be laid out."""

from __future__ import annotations

import base64
import platform
from collections.abc import Sequence
from dataclasses import dataclass

from divscore import __version__
from divscore.audit.result import Audit
from divscore.audit.trust import control_facts
from divscore.control.controlset import ControlSet
from divscore.errors import InputError, MismatchError
from divscore.report.context import Context, Example
from divscore.report.embedded import Embedded, embed
from divscore.report.headline import headline, lead
from divscore.report.lights import Light, lights
from divscore.report.listing import MARGINALS, Listing, listing, marginal_listing
from divscore.report.notices import Notice, notices
from divscore.report.phrases import bare, count, level, plain, short, without
from divscore.report.picture import Picture, disparities, shares
from divscore.report.prose import assumptions, method, noise_note
from divscore.text import printable

__all__ = ["ControlPart", "Shown", "Summary", "Warned", "summarise"]

NAMED = 12  # collections that a warning names
FEW = 5  # collections of which no list has an end worth a remark
TEXT = 280  # characters of a text that are shown


@dataclass(frozen=True)
class Warned:
    """A warning, and whom it concerns."""

    text: str
    about: str


@dataclass(frozen=True)
class Shown:
    """The representatives of one group that are shown: texts, or addresses of small pictures."""

    group: str
    texts: tuple[str, ...]
    pictures: tuple[str, ...]


@dataclass(frozen=True)
class ControlPart:
    """The control set: a line a group (name, labelled, representatives, not encoded), and facts."""

    groups: tuple[tuple[str, int, int, int], ...]
    facts: tuple[tuple[str, str], ...]
    examples: tuple[Shown, ...]
    remark: str


@dataclass(frozen=True)
class Summary:
    """A report in the order in which it is read."""

    title: str
    kicker: str
    headline: str
    lead: str
    trust: str
    pictures: tuple[Picture, ...]
    remark: str
    listing: Listing
    marginals: Listing | None
    marginals_left: str
    lights: tuple[Light, ...]
    warnings: tuple[Warned, ...]
    control: ControlPart
    method: tuple[str, ...]
    assumptions: tuple[tuple[str, str], ...]
    repeat: tuple[tuple[str, str], ...]
    embedded: Embedded


def summarise(audits: Sequence[Audit], context: Context) -> Summary:
    """First stage: from audits made with one control set to the words and numbers of their report."""
    if not audits:
        raise InputError("a report needs at least one audit")
    first = audits[0]
    _check_alike(audits)
    pictures = _pictures(audits, context.limit)
    attribute = short(first.control.attribute)
    what = short(first.name) if len(audits) == 1 else count(len(audits), "collections")
    return Summary(
        title=f"{attribute} in {what}: divscore report",
        kicker=f"Audit of {what}, by {attribute}",
        headline=headline(audits),
        lead=lead(audits),
        trust=first.trust if len(audits) == 1 else "",
        pictures=pictures,
        remark=" ".join(filter(None, [noise_note(first), _remark(audits)])),
        listing=listing(audits, context.limit),
        marginals=marginal_listing(audits),
        marginals_left=_marginals_left(audits),
        lights=lights(audits, context.missing),
        warnings=tuple(_warned(notice, len(audits)) for notice in notices(audits, context.missing)),
        control=_control(first.control, context),
        method=method(first, any(picture.hollow for picture in pictures)),
        assumptions=assumptions(first),
        repeat=_repeat(first, context),
        embedded=embed(audits, context.missing),
    )


def _pictures(audits: Sequence[Audit], limit: float | None) -> tuple[Picture, ...]:
    first, drawn = audits[0], disparities(audits, limit)
    by_group = len(audits) == 1 and len(first.shares) > 2 and first.has_shares
    return (shares(first), drawn) if by_group else (drawn,)


def _remark(audits: Sequence[Audit]) -> str:
    """What to bear in mind when many collections are looked at together."""
    told = [a for a in audits if a.trust != "poor"]
    if len(told) < FEW:
        return ""
    chance = (
        "Collections at the ends of the list are there partly by chance: small ones more than large ones."
    )
    # What is the whole range can miss nothing.
    limited = [a for a in told if not bare(a.interval, len(a.shares))]
    if not limited:
        return chance
    miss = 1 - limited[0].interval.level
    missed = len(limited) * miss
    expected = (
        f"about {missed:.0f} of these {len(limited):,} intervals"
        if missed >= 1
        else "one of them now and then"
    )
    return f"Each interval misses the truth in up to {level(miss)} of cases, so expect {expected} to do so. {chance}"


def _check_alike(audits: Sequence[Audit]) -> None:
    """A report tells the control set and the method once, for all of its collections."""
    first = audits[0]
    for each in audits:
        if each.control is not first.control and each.control.digest != first.control.digest:
            raise MismatchError(
                f"'{printable(each.name)}' was audited with another control set than '{printable(first.name)}'; make a "
                "report for each"
            )
        if (each.estimator, each.confidence) != (first.estimator, first.confidence):
            raise MismatchError(
                f"'{printable(each.name)}' was audited by {each.estimator} at {each.confidence:g}, "
                f"'{printable(first.name)}' by {first.estimator} at {first.confidence:g}; make a report for each"
            )


def _marginals_left(audits: Sequence[Audit]) -> str:
    if len(audits) <= MARGINALS or not any(a.marginals for a in audits):
        return ""
    return "The attributes one by one are in the download below; there are too many collections to list them here."


def _warned(notice: Notice, total: int) -> Warned:
    said = printable(notice.text)
    text = said[:1].upper() + said[1:]
    if not notice.names:
        return Warned(f"{text}.", "The source")
    if total == 1:
        return Warned(f"{text}.", "")
    if len(notice.names) == total:
        about = "All collections"
    else:
        more = f" and {len(notice.names) - NAMED:,} more" if len(notice.names) > NAMED else ""
        about = ", ".join(short(name, 40) for name in notice.names[:NAMED]) + more
    return Warned(f"{text}.", f"{about} (figures of the first)" if notice.alike else about)


def _control(control: ControlSet, context: Context) -> ControlPart:
    facts = control_facts(control)
    rows = tuple(
        (
            short(name),
            control.counts[name],
            len(control.rows(at, representatives=True)),
            control.left_out.get(name, 0),
        )
        for at, name in enumerate(control.groups)
    )
    picked = "; the whole pool was picked by hand" if control.hand_picked else ""
    said = (
        ("Labelled examples", f"{len(control):,}{picked}"),
        ("Representatives", f"{int(control.representative.sum()):,}, chosen by: {printable(control.method)}"),
        (
            "γ of all labelled examples",
            f"{plain(facts.separability.gamma, 3)} (how much more alike two examples of "
            "one group are than two of different groups)",
        ),
        ("γ of the representatives", plain(facts.gamma_control, 3)),
        ("Encoder", printable(control.encoder) if control.encoder else "not recorded: vectors were given"),
        ("Similarity", f"{printable(control.similarity.name)}, vectors of {control.dimension:,} numbers"),
    )
    examples = context.examples
    if examples is None:
        return ControlPart(rows, said, (), "Examples are shown only on request (--show-examples).")
    shown = tuple(
        _shown(short(name), [e for e in examples.shown if e.group == name]) for name in control.groups
    )
    return ControlPart(rows, said, shown if examples.shown else (), printable(examples.remark))


def _shown(group: str, examples: Sequence[Example]) -> Shown:
    pictures = (
        f"data:image/jpeg;base64,{base64.b64encode(e.picture).decode()}" for e in examples if e.picture
    )
    return Shown(group, tuple(short(e.text, TEXT) for e in examples if e.text), tuple(pictures))


def _repeat(audit: Audit, context: Context) -> tuple[tuple[str, str], ...]:
    import numpy

    how = f"confidence {audit.confidence:g}, interval by {audit.interval.method}"
    if without(audit.interval):
        how = "no interval"
    facts = [
        ("Made", context.created.strftime("%Y-%m-%d %H:%M %Z").strip()),
        ("Command", printable(context.command) or "made from Python"),
        ("Estimator", f"{audit.estimator}, {how}"),
        ("Seed", str(audit.seed)),
        (
            "Versions",
            f"divscore {__version__}, Python {platform.python_version()}, numpy {numpy.__version__}",
        ),
        ("Control set's digest", audit.control.digest),
    ]
    if context.limit is not None:
        facts.append(("Limit", f"disparity of at most {context.limit:g}"))
    facts += [
        (
            f"{each.role} {short(each.path, 80)}",
            each.digest or "no digest: a folder, a stream, remote or large",
        )
        for each in context.inputs
    ]
    return tuple(facts)
