"""First stage of a report: all words and numbers, ready to be laid out."""

from __future__ import annotations

import base64
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from divscore import __version__
from divscore.audit.document import missing_from
from divscore.audit.result import Audit, headline
from divscore.audit.target import Gate
from divscore.audit.trust import control_facts
from divscore.errors import InputError, MismatchError
from divscore.report.caveats import Check, checks, notices, noun_of, sentences
from divscore.report.listing import (
    FEW,
    MINUS,
    Listing,
    disparity_range,
    has_numbers,
    in_order,
    interval_title,
    listing,
    marginal_listing,
    noise_note,
    scarcest_of,
    share_limits,
    share_range,
    shortened,
    table,
    technical_listing,
    uninformative,
    wanted,
)
from divscore.report.picture import Picture, picture
from divscore.sketch.missing import Missing
from divscore.text import brief, count, exact_percent, joined, level, p_value, percent, printable, unsigned

SOME = 5  # collections; fewer need no remark on chance
TEXT, NOTE = 280, 200  # characters of an example text, and of a title
END = 12  # collections at either end of a long table
TRUST = ("good", "caution", "poor")


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
    """What a report says that the audits do not know."""

    command: str = ""  # that made the audits, as typed
    limit: float | None = None  # the largest disparity that is acceptable
    inputs: Sequence[Input] = ()
    examples: Examples | None = None  # only on the user's request
    missing: Missing | None = None  # by default what the audits list
    title: str = ""
    note: str = ""  # paragraphs of plain text, separated by blank lines
    created: datetime = field(default_factory=lambda: datetime.now(UTC))


# The first sentences


def lead(audits: Sequence[Audit]) -> str:
    """The numbers behind the headline."""
    if len(audits) == 1:
        return _lead_of_one(audits[0])
    first, total = audits[0], f"{count(sum(a.count for a in audits), noun_of(audits))} in total."
    known = [a for a in in_order(audits) if a.conclusive]
    if not known:
        return total
    group, parts = scarcest_of(audits), []
    known = [a for a in known if not a.has_shares or group in a.shares]
    for at in dict.fromkeys([0, len(known) - 1]):
        a = known[at]
        if a.has_shares:
            value, between = percent(a.shares[group]), share_range(a.share_intervals[group])
        else:
            value, between = unsigned(a.disparity), disparity_range(a.interval, len(a.shares))
        parts.append(f"{value} in {brief(a.name, 40)}" + ("" if a.interval.is_none else f" ({between})"))
    if not known[0].has_shares:
        what, after = "The difference in DivScore between the largest and the smallest group", ""
    else:
        kind = "an even split" if first.target is None else "the target"
        what, after = f"The share of {shortened(group)}", f"; {kind} is {wanted(known[0], group)}"
    ranges = f"ranges from {parts[0]} to {parts[1]}" if len(parts) > 1 else f"is {parts[0]}"
    return f"{what} {ranges}{after}. {total}"


def _lead_of_one(audit: Audit) -> str:
    if audit.trust == "poor":
        shown = sentences()["note"]["untrusted"] if has_numbers(audit) else "So there are no numbers."
        return f"The warnings and checks below say why. {shown}"
    if not audit.has_shares:
        spread = f"{interval_title(audit.interval)} {disparity_range(audit.interval, len(audit.shares))}"
        nothing = " This is the whole range: the bound excludes nothing." if uninformative(audit) else ""
        return f"{spread[0].upper()}{spread[1:]}.{nothing}"
    shares = {name: f"{percent(share)} {shortened(name)}" for name, share in audit.shares.items()}
    first, second = audit.control.groups[:2]
    if audit.merged:
        best = joined(list(shares.values()))
    elif len(shares) > 2:
        best = f"from {shares[audit.least]} to {shares[audit.most]}"
    elif audit.target is not None:
        best = f"{shares[first]}, where the target is {exact_percent(audit.wanted[first])}"
    else:
        best = f"{shares[first]} and {shares[second]}"
    return f"Best estimate: {best}.{_both_ranges(audit)}"


def _both_ranges(audit: Audit) -> str:
    """The range of the headline's group with and without an allowance for a difference, where there is one."""
    if not audit.differs or audit.if_similar is None:
        return ""
    group = audit.control.groups[0] if len(audit.control.groups) == 2 else audit.scarcest
    similar = audit.if_similar.share_intervals[list(audit.shares).index(group)]
    ranges = [f"{share_range(each)} {shortened(group)}" for each in (similar, audit.share_intervals[group])]
    return f" {sentences()['similar']['one'].format(audit.noun, *ranges)}"


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

    def size(audit: Audit) -> float:
        """The distance; its largest possible value where groups are merged."""
        return audit.distance_interval.high if audit.merged else audit.distance

    ordered = sorted(audits, key=lambda a: (not a.conclusive, -size(a) if a.conclusive else 0.0, a.name))
    known = sum(audit.conclusive for audit in audits)
    split = len(audits[0].control.groups) == 2 and known > 2 * END
    shown = [*ordered[:END], *ordered[known - END : known]] if split else ordered[: 2 * END]
    trust = Counter(audit.trust for audit in audits)
    counts = ", ".join(f"{trust[word]:,} {word}" for word in TRUST if trust[word])
    notes = (
        f"{len(audits) - len(shown):,} of {len(audits):,} collections are not in this table. To get all of them, add "
        "--json FILE or --report FILE.html, or redirect the output.",
        f"Trust: {counts}.",
    )
    return Overview(headline(audits), tuple(shown), table(shown, END if split else None), notes)


# The whole report


@dataclass(frozen=True)
class GroupExamples:
    """The representatives of one group that are shown: texts, or small pictures as data addresses."""

    group: str
    texts: tuple[str, ...]
    pictures: tuple[str, ...]


@dataclass(frozen=True)
class ControlPart:
    """The labelled examples: a row a group (name, labelled, representatives, not encoded), and examples to show."""

    groups: tuple[tuple[str, int, int, int], ...]
    examples: tuple[GroupExamples, ...]
    remark: str


@dataclass(frozen=True)
class Summary:
    """A report, in reading order: badges are label, word and state; warnings are text and collections.

    From `statistics` on it is what most readers do not need; facts are term and text.
    """

    page_title: str
    title: str
    kicker: str
    headline: str
    lead: str
    badges: tuple[tuple[str, str, str], ...]
    standards: tuple[str, ...]
    note: tuple[str, ...]
    picture: Picture | None
    remark: str
    listing: Listing | None
    marginals: Listing | None
    checks: tuple[Check, ...]
    warnings: tuple[tuple[str, str], ...]
    control: ControlPart
    method: str
    assumptions: tuple[tuple[str, str], ...]
    statistics: Listing | None
    definitions: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


def summarise(audits: Sequence[Audit], context: Context) -> Summary:
    """From audits made with one control set to the words and numbers of their report."""
    if not audits:
        raise InputError("a report needs at least one audit")
    _check_alike(audits)
    first, alone = audits[0], len(audits) == 1
    attribute = shortened(first.control.attribute)
    what = shortened(first.name) if alone else count(len(audits), "collections")
    gate = None
    if context.limit is not None:
        gate = Gate.of(audits, context.limit, missing_from(audits, context.missing).count)
    paragraphs = [" ".join(text.split()) for text in context.note.split("\n\n")]
    return Summary(
        page_title=brief(context.title, NOTE) if context.title else f"{attribute} in {what}: divscore report",
        title=brief(context.title, NOTE) if context.title else "",
        kicker=f"Audit of {what} by {attribute}, {context.created.day} {context.created:%B %Y}",
        headline=headline(audits),
        lead=lead(audits),
        badges=tuple(_badges(audits, gate)),
        standards=tuple(_standards(audits, gate)),
        note=tuple(printable(text) for text in paragraphs if text),
        picture=picture(audits, context.limit),
        remark=_remark(audits),
        listing=listing(audits, context.limit),
        marginals=marginal_listing(audits),
        checks=checks(audits, context.missing),
        warnings=tuple(
            (notice.sentence, notice.about(len(audits))) for notice in notices(audits, context.missing)
        ),
        control=_control(first, context.examples),
        method=sentences()["method"][first.estimator],
        assumptions=tuple(
            (assumption["title"], assumption["text"])
            for assumption in sentences()["assumptions"]
            if not (assumption.get("control") and first.labels is not None)
            and not (assumption.get("examples") and first.control.incomplete)
        ),
        statistics=technical_listing(audits),
        definitions=tuple(_definitions(audits)),
        facts=tuple(_facts(first, context)),
    )


def _badges(audits: Sequence[Audit], gate: Gate | None) -> Iterator[tuple[str, str, str]]:
    trust = Counter(audit.trust for audit in audits)
    worst = max(trust, key=TRUST.index)
    words = [f"{word} in {trust[word]:,}" for word in TRUST if trust[word]]
    if len(trust) == 1:
        words = [worst if len(audits) == 1 else f"{worst} in all {len(audits):,}"]
    yield "Trust", joined(words), worst
    if gate is not None:
        yield "Limit", gate.verdict, {"pass": "good", "fail": "poor"}.get(gate.verdict, "caution")


def _standards(audits: Sequence[Audit], gate: Gate | None) -> Iterator[str]:
    """What the collections are held to: the target with its source, and the limit with the verdict."""
    first, groups = audits[0], audits[0].control.groups
    if first.target is not None:
        shares = [f"{exact_percent(share)} {shortened(name)}" for name, share in first.target.shares.items()]
        source = f" Source: {printable(first.target.source)}." if first.target.source else ""
        yield f"Target: {joined(shares)}.{source}"
    if gate is not None:
        if len(groups) == 2:
            low, high = map(percent, share_limits(first, groups[0], gate.limit))
            allowed = f"{low} to {high} {shortened(groups[0])} (±{gate.limit:g} in disparity)"
        else:
            pair = "the groups farthest above and below their targets"
            pair = "the largest and the smallest share" if first.target is None else pair
            allowed = f"{pair} may differ by {100 * gate.limit:.0f} points"
        reason = gate.reason if len(audits) > 1 else gate.verdicts[0].reason
        yield f"Limit: {allowed}. {reason[:1].upper()}{reason[1:]}."


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
    """What to keep in mind when reading the table."""
    note, known = sentences()["note"], [a for a in audits if a.trust != "poor"]
    said = []
    if len(audits) > 1 and any(a.trust == "poor" and has_numbers(a) for a in audits):
        said.append(note["untrusted"])
    if len(audits) > FEW and any(a.marginals for a in audits):
        said.append(note["many"].format("single attributes"))
    differ = [a for a in known if a.differs]
    if len(audits) > 1 and differ:
        ratio = sum(a.interval_if_similar.width for a in differ) / sum(a.interval.width for a in differ)
        number = f"{len(differ):,} of {len(audits):,}"
        said.append(sentences()["similar"]["many"].format(number, percent(ratio)))
    if len(known) >= SOME:
        limited = [a for a in known if not uninformative(a)]  # the whole range misses nothing
        if limited:
            miss = 1 - limited[0].interval.level
            missed = len(limited) * miss
            expected = f"about {missed:.0f} of these {len(limited):,} to miss"
            said.append(note["misses"].format(level(miss), expected if missed >= 1 else "an occasional miss"))
        said.append(note["chance"])
    return " ".join(said)


def _control(audit: Audit, examples: Examples | None) -> ControlPart:
    control = audit.control
    chosen = np.bincount(control.labels[control.representative], minlength=len(control.groups)).tolist()
    groups = tuple(
        (shortened(name), control.counts[name], number, control.skipped.get(name, 0))
        for name, number in zip(control.groups, chosen, strict=True)
    )
    if control.incomplete:
        return ControlPart(groups, (), sentences()["labels"]["only"])
    if examples is None:
        return ControlPart(groups, (), sentences()["note"]["examples"])
    shown = []
    for name in control.groups if examples.shown else ():
        own = [example for example in examples.shown if example.group == name]
        texts = tuple(brief(example.text, TEXT) for example in own if example.text)
        thumbnails = [base64.b64encode(example.picture).decode() for example in own if example.picture]
        addresses = tuple(f"data:image/jpeg;base64,{thumbnail}" for thumbnail in thumbnails)
        shown.append(GroupExamples(shortened(name), texts, addresses))
    return ControlPart(groups, tuple(shown), printable(examples.remark))


def _definitions(audits: Sequence[Audit]) -> Iterator[str]:
    first, measure = audits[0], sentences()["measure"]
    two, scored = len(first.control.groups) == 2, first.estimator == "divscore"
    yield measure["two" if two else "scores" if scored else "more"].format(
        *map(shortened, first.control.groups)
    )
    if any(audit.merged for audit in audits):
        yield measure["merged"]
    if not scored:
        yield f"{measure['divscore']} {noise_note(first)}".strip()
    if first.target is not None and not two:
        yield measure["target"]
    if first.labels is None:
        yield measure["checks"]
    if len(audits) > FEW:
        yield sentences()["note"]["many"].format("these numbers")


def _facts(audit: Audit, context: Context) -> Iterator[tuple[str, str]]:
    """How to reproduce the numbers, and what is known of the control set."""
    control, checked, labels = audit.control, audit.diagnostics, audit.labels
    interval = f"confidence {audit.confidence:g}, interval by {audit.interval.method}"
    by_hand = "; the whole pool was picked by hand" if control.hand_picked else ""
    chosen = f"{int(control.representative.sum()):,} representatives ({printable(control.method)})"
    yield "Created", context.created.strftime("%Y-%m-%d %H:%M %Z").strip()
    yield "Command", printable(context.command) or "made from Python"
    yield "Estimator", f"{audit.estimator}, {'no interval' if audit.interval.is_none else interval}"
    yield "Seed", str(audit.seed)
    yield "Versions", f"divscore {__version__}, Python {platform.python_version()}, numpy {np.__version__}"
    if labels is not None:
        missing = f", {labels.without_label:,} without a label" if labels.without_label else ""
        batches = f", in {labels.batches} batches" if labels.batches > 1 else ""
        how = sentences()["labels"][f"{labels.drawn}_fact"]
        yield "Labels of the collection", f"{labels.labelled:,}{missing}; {how}{batches}"
    if not control.incomplete:
        facts = control_facts(control)
        pool, own = (unsigned(f.gamma, 3).replace("-", MINUS) for f in (facts.separability, facts.reference))
        yield "Labelled examples", f"{len(control):,}{by_hand}; {chosen}"
        if labels is None:
            pair = joined([shortened(name) for name in audit.hardest_pair if name])
            apart = f"{checked.auc:.0%} of pairs ranked correctly, {p_value(checked.separability_p)}"
            yield "Separability", f"{apart} ({pair})" if pair else apart
        both = f"{pool} of all labelled examples, {own} of the representatives"
        yield "γ", f"{both} ({sentences()['measure']['gamma']})"
    yield "Encoder", printable(control.encoder or "not recorded: the input was vectors")
    yield "Similarity", f"{printable(control.similarity.name)}, vectors of {control.dimension:,} numbers"
    yield "Control set digest", control.digest
    if context.limit is not None:
        of = "disparity" if audit.target is None else "distance from the target"
        yield "Limit", f"{of} of at most {context.limit:g}"
    for source in context.inputs:
        digest = source.digest or "no digest: a folder, a stream, a remote or a large file"
        yield f"{source.role} {brief(source.path, 80)}", digest
