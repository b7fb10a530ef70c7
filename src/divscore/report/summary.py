"""First stage of a report: all words and numbers, ready to be laid out."""

from __future__ import annotations

import base64
import math
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from divscore import __version__
from divscore.audit.result import Audit, headline
from divscore.audit.trust import control_facts
from divscore.control.controlset import ControlSet
from divscore.errors import InputError, MismatchError
from divscore.report.caveats import Check, checks, notices, noun_of, sentences
from divscore.report.listing import (
    MARGINALS,
    MINUS,
    Listing,
    disparity_range,
    disparity_text,
    interval_title,
    listing,
    marginal_listing,
    noise_note,
    share_range,
    shortened,
    table,
    uninformative,
)
from divscore.report.picture import Picture, pictures
from divscore.sketch.missing import Missing
from divscore.text import brief, count, level, percent, printable, unsigned

FEW = 5  # collections; so few need no remark on chance
TEXT = 280  # characters of an example text
END = 12  # collections at either end of a long table


# What the caller adds to the audits


@dataclass(frozen=True)
class Example:
    """A representative that a person labelled: its group, and its text or a small picture (JPEG)."""

    group: str
    text: str = ""
    picture: bytes = b""


@dataclass(frozen=True)
class Examples:
    """Representatives to show, and a remark: how many there are, or why there are none."""

    shown: Sequence[Example] = ()
    remark: str = ""


@dataclass(frozen=True)
class Input:
    """Something that was read: its role, its path as typed, and its digest where that is cheap."""

    role: str
    path: str
    digest: str = ""


@dataclass(frozen=True)
class Context:
    """What a report says that the audits do not know.

    Parameters
    ----------
    command : str
        The command line that made the audits, as typed.
    limit : float, optional
        The largest disparity that is acceptable.
    inputs : sequence of Input
        What was read.
    examples : Examples, optional
        Labelled examples to show; only on the user's request.
    missing : Missing, optional
        The missing parts of the source; by default those that the audits list.
    created : datetime
        When the report was made.
    title, note : str
        The user's own title of the report, and a remark at its top.
    """

    command: str = ""
    limit: float | None = None
    inputs: Sequence[Input] = ()
    examples: Examples | None = None
    missing: Missing | None = None
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    title: str = ""
    note: str = ""


# The first sentences


def lead(audits: Sequence[Audit]) -> str:
    """The numbers behind the headline."""
    if len(audits) == 1:
        return _lead_of_one(audits[0])
    total = f"{count(sum(a.count for a in audits), noun_of(audits))} in total."
    known = [a for a in audits if a.conclusive]
    if not known:
        return total
    ends = [min(known, key=lambda a: a.disparity), max(known, key=lambda a: a.disparity)]
    first, group = ends[0], ends[0].control.groups[0]
    parts = []
    for a in ends:
        if not first.has_shares:
            what, after = "The difference in DivScore between the largest and the smallest group", ""
            value, between = unsigned(a.disparity), disparity_range(a.interval, len(a.shares))
        elif len(first.shares) > 2:
            what, after = "The gap between the largest and the smallest group", ""
            value = f"{100 * a.disparity:.0f} percentage points"
            between = f"{100 * a.interval.low:.0f} to {100 * a.interval.high:.0f}"
        else:
            what, after = f"The share of {shortened(group)}", "; an even split is 50%"
            value, between = percent(a.shares[group]), share_range(a.share_intervals[group])
        parts.append(f"{value} in {brief(a.name, 40)}" + ("" if a.interval.is_none else f" ({between})"))
    return f"{what} ranges from {parts[0]} to {parts[1]}{after}. {total}"


def _lead_of_one(audit: Audit) -> str:
    if audit.trust == "poor":
        return "The checks below explain why. Numbers in brackets are shown for completeness only."
    if not math.isfinite(audit.disparity):
        return ""
    groups = len(audit.shares)
    spread = f"{interval_title(audit.interval)} {disparity_range(audit.interval, groups)}"
    if audit.interval.is_none:
        spread = "no interval"
    if not audit.has_shares:
        nothing = " This is the whole range: the bound excludes nothing." if uninformative(audit) else ""
        return f"{spread[0].upper()}{spread[1:]}.{nothing}"
    value = disparity_text(audit.disparity, groups)
    if groups == 2:
        first, second = map(shortened, audit.control.groups)
        share = percent(audit.shares[audit.control.groups[0]])
        return (
            f"Best estimate: {share} {first}. Disparity (share of {first} {MINUS} share of {second}): "
            f"{value}, {spread}."
        )
    return (
        f"Largest group: {shortened(audit.most)}, smallest: {shortened(audit.least)}. "
        f"Disparity (largest share {MINUS} smallest): {value}, {spread}."
    )


@dataclass(frozen=True)
class Overview:
    """Many collections on one screen: a sentence about all, those shown with their table, and notes."""

    headline: str
    shown: tuple[Audit, ...]
    table: str
    notes: tuple[str, ...]


def overview(audits: Sequence[Audit]) -> Overview:
    """The short form of a long table: both ends of the disparities; with more than two groups the largest.

    Inconclusive collections have no place in that order and fill up what the others leave.
    """
    ordered = sorted(audits, key=lambda a: (not a.conclusive, -a.disparity if a.conclusive else 0.0, a.name))
    known = sum(audit.conclusive for audit in audits)
    split = len(audits[0].shares) == 2 and known > 2 * END
    shown = [*ordered[:END], *ordered[known - END : known]] if split else ordered[: 2 * END]
    lines = table(shown).split("\n")
    if split:
        lines.insert(1 + END, "…")
    trust = Counter(audit.trust for audit in audits)
    counts = ", ".join(f"{trust[word]:,} {word}" for word in ("good", "caution", "poor") if trust[word])
    notes = (
        f"{len(audits) - len(shown):,} of {len(audits):,} collections are not in this table. To get all of them, add "
        "--json FILE or --report FILE.html, or redirect the output.",
        f"Trust: {counts}.",
    )
    return Overview(headline(audits), tuple(shown), "\n".join(lines), notes)


# The whole report


@dataclass(frozen=True)
class GroupExamples:
    """The representatives of one group that are shown: texts, or small pictures as data addresses."""

    group: str
    texts: tuple[str, ...]
    pictures: tuple[str, ...]


@dataclass(frozen=True)
class ControlPart:
    """The control set: a row a group (name, labelled, representatives, not encoded), facts and examples."""

    groups: tuple[tuple[str, int, int, int], ...]
    facts: tuple[tuple[str, str], ...]
    examples: tuple[GroupExamples, ...]
    remark: str


@dataclass(frozen=True)
class Summary:
    """A report, in reading order; warnings are pairs of text and collections, facts pairs of term and text."""

    title: str
    kicker: str
    headline: str
    lead: str
    trust: str
    pictures: tuple[Picture, ...]
    remark: str
    listing: Listing
    marginals: Listing | None
    marginals_note: str
    checks: tuple[Check, ...]
    warnings: tuple[tuple[str, str], ...]
    control: ControlPart
    method: tuple[str, ...]
    assumptions: tuple[tuple[str, str], ...]
    reproduce: tuple[tuple[str, str], ...]


def summarise(audits: Sequence[Audit], context: Context) -> Summary:
    """From audits made with one control set to the words and numbers of their report."""
    if not audits:
        raise InputError("a report needs at least one audit")
    _check_alike(audits)
    first, note = audits[0], sentences()["note"]
    alone = len(audits) == 1
    plots = pictures(audits, context.limit)
    too_many = len(audits) > MARGINALS and any(a.marginals for a in audits)
    two, measure = len(first.shares) == 2, sentences()["measure"]
    method = [measure["two" if two else "more"].format(*map(shortened, first.control.groups))]
    if first.estimator != "divscore":
        drawn = any(plot.has_divscores for plot in plots)
        method.append(measure["divscore"].format(", the hollow mark," if drawn else ""))
    elif not two:
        method = [measure["scores"]]
    attribute = shortened(first.control.attribute)
    what = shortened(first.name) if alone else count(len(audits), "collections")
    return Summary(
        title=f"{attribute} in {what}: divscore report",
        kicker=f"Audit of {what} by {attribute}",
        headline=headline(audits),
        lead=lead(audits),
        trust=first.trust if alone else "",
        pictures=plots,
        remark=" ".join(filter(None, [noise_note(first), _remark(audits)])),
        listing=listing(audits, context.limit),
        marginals=marginal_listing(audits),
        marginals_note=note["marginals"] if too_many else "",
        checks=checks(audits, context.missing),
        warnings=tuple(
            (notice.sentence, notice.about(len(audits))) for notice in notices(audits, context.missing)
        ),
        control=_control(first.control, context.examples),
        method=(sentences()["method"][first.estimator], *method),
        assumptions=tuple(
            (assumption["title"], assumption["text"])
            for assumption in sentences()["assumptions"]
            if not (assumption.get("control") and first.estimator in ("iid", "rectified"))
        ),
        reproduce=_reproduce(first, context),
    )


def _check_alike(audits: Sequence[Audit]) -> None:
    """A report states the control set and the method once, for all of its collections."""
    first = audits[0]
    for audit in audits:
        names = f"'{printable(audit.name)}' and '{printable(first.name)}'"
        if audit.control is not first.control and audit.control.digest != first.control.digest:
            raise MismatchError(f"{names} were audited with different control sets; make a report for each")
        if (audit.estimator, audit.confidence) != (first.estimator, first.confidence):
            ways = ", ".join(f"{a.estimator} at {a.confidence:g}" for a in (audit, first))
            raise MismatchError(f"{names} were audited in different ways: {ways}; make a report for each")


def _remark(audits: Sequence[Audit]) -> str:
    """What to keep in mind when comparing many collections."""
    known = [a for a in audits if a.trust != "poor"]
    if len(known) < FEW:
        return ""
    note = sentences()["note"]
    limited = [a for a in known if not uninformative(a)]  # the whole range misses nothing
    if not limited:
        return str(note["chance"])
    miss = 1 - limited[0].interval.level
    missed = len(limited) * miss
    expected = (
        f"about {missed:.0f} of these {len(limited):,} to miss" if missed >= 1 else "an occasional miss"
    )
    return f"{note['misses'].format(level(miss), expected)} {note['chance']}"


def _control(control: ControlSet, examples: Examples | None) -> ControlPart:
    facts = control_facts(control)
    chosen = np.bincount(control.labels[control.representative]).tolist()
    groups = tuple(
        (shortened(name), control.counts[name], number, control.skipped.get(name, 0))
        for name, number in zip(control.groups, chosen, strict=True)
    )
    by_hand = "; the whole pool was picked by hand" if control.hand_picked else ""
    gamma = unsigned(facts.separability.gamma, 3).replace("-", MINUS)
    table = (
        ("Labelled examples", f"{len(control):,}{by_hand}"),
        ("Representatives", f"{sum(chosen):,} ({printable(control.method)})"),
        (
            "γ of all labelled examples",
            f"{gamma} (how much more similar two examples of one group are than two of different groups)",
        ),
        ("γ of the representatives", unsigned(facts.reference.gamma, 3).replace("-", MINUS)),
        ("Encoder", printable(control.encoder or "not recorded: the input was vectors")),
        ("Similarity", f"{printable(control.similarity.name)}, vectors of {control.dimension:,} numbers"),
    )
    if examples is None:
        return ControlPart(groups, table, (), sentences()["note"]["examples"])
    shown = []
    for name in control.groups if examples.shown else ():
        own = [example for example in examples.shown if example.group == name]
        texts = tuple(brief(example.text, TEXT) for example in own if example.text)
        thumbnails = [base64.b64encode(example.picture).decode() for example in own if example.picture]
        addresses = tuple(f"data:image/jpeg;base64,{thumbnail}" for thumbnail in thumbnails)
        shown.append(GroupExamples(shortened(name), texts, addresses))
    return ControlPart(groups, table, tuple(shown), printable(examples.remark))


def _reproduce(audit: Audit, context: Context) -> tuple[tuple[str, str], ...]:
    interval = f"confidence {audit.confidence:g}, interval by {audit.interval.method}"
    versions = f"divscore {__version__}, Python {platform.python_version()}, numpy {np.__version__}"
    facts = [
        ("Created", context.created.strftime("%Y-%m-%d %H:%M %Z").strip()),
        ("Command", printable(context.command) or "made from Python"),
        ("Estimator", f"{audit.estimator}, {'no interval' if audit.interval.is_none else interval}"),
        ("Seed", str(audit.seed)),
        ("Versions", versions),
        ("Control set digest", audit.control.digest),
    ]
    if context.limit is not None:
        facts.append(("Limit", f"disparity of at most {context.limit:g}"))
    for source in context.inputs:
        digest = source.digest or "no digest: a folder, a stream, a remote or a large file"
        facts.append((f"{source.role} {brief(source.path, 80)}", digest))
    return tuple(facts)
