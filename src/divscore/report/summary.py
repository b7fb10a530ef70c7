"""Summary: everything a report says, as text and numbers that only need to be laid out."""

from __future__ import annotations

import base64
import math
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass

from divscore import __version__
from divscore.audit.document import missing_from
from divscore.audit.result import Audit
from divscore.audit.trust import (
    ALARM,
    DIFFERS,
    MISFIT,
    NO_MIXTURE,
    NOT_QUITE,
    control_facts,
    coverage,
    left_out_by_chance,
)
from divscore.control.controlset import ControlSet
from divscore.errors import InputError, MismatchError
from divscore.estimators.checks import SEPARABLE_P
from divscore.report.auditjson import Embedded, embed
from divscore.report.context import Context, Example
from divscore.report.picture import Picture, disparities, shares
from divscore.report.prose import (
    assumptions,
    bare,
    count,
    interval_level,
    level,
    limits,
    listed,
    method,
    noise_note,
    p_value,
    percent,
    percents,
    plain,
    short,
    signed,
    without,
)
from divscore.report.table import MARGINALS, Listing, listing, marginal_listing
from divscore.sketch.missing import Missing
from divscore.text import printable

__all__ = [
    "ControlPart",
    "Light",
    "Notice",
    "Shown",
    "Summary",
    "Warned",
    "headline",
    "lead",
    "lights",
    "notices",
    "noun_of",
    "summarise",
]


# The first sentences of a report: one collection, or what several have in common.


def noun_of(audits: Sequence[Audit]) -> str:
    """What the items of all collections are called."""
    nouns = {audit.noun for audit in audits}
    return nouns.pop() if len(nouns) == 1 else "items"


def headline(audits: Sequence[Audit]) -> str:
    """One plain sentence, the interval in it; of several collections, how many lean which way."""
    if len(audits) == 1:
        return audits[0].headline
    told = [a for a in audits if a.trust != "poor"]
    unknown = len(audits) - len(told)
    about = short(audits[0].control.attribute)
    if not told:
        return f"Cannot tell how {about} is distributed in any of {len(audits):,} collections."
    if any(without(a.interval) for a in told):
        return f"{len(told):,} of {len(audits):,} collections have an estimate, by a method that gives no interval."
    more = sum(a.interval.low > 0 for a in told)
    less = sum(a.interval.high < 0 for a in told)
    if len(audits[0].shares) > 2:
        said = [f"{more:,} {'is' if more == 1 else 'are'} uneven"] if more else []
    else:
        first, second = (short(name) for name in audits[0].control.groups)
        parts = [(more, f"more {first} than {second}"), (less, f"more {second} than {first}")]
        said = [f"{number:,} {_holds(number)} {what}" for number, what in parts if number]
    balanced = len(told) - more - less
    if balanced:
        said.append(f"{balanced:,} may be balanced")
    if unknown:
        said.append(f"{unknown:,} cannot be told")
    return f"Of {len(audits):,} collections, {listed(said)}."


def lead(audits: Sequence[Audit]) -> str:
    """The figures behind the headline."""
    if len(audits) == 1:
        return _lead_of_one(audits[0])
    total = f"{count(sum(a.count for a in audits), noun_of(audits))} in all."
    told = [a for a in audits if a.trust != "poor" and math.isfinite(a.disparity)]
    if not told:
        return total
    low, high = min(told, key=lambda a: a.disparity), max(told, key=lambda a: a.disparity)
    group = low.control.groups[0]
    if not low.has_shares:
        ends = [_end(a, plain(a.disparity), limits(a.interval, len(a.shares))) for a in (low, high)]
        said = "By DivScore, which gives no shares, the gap between the largest and the smallest group runs"
        return f"{said} from {ends[0]} to {ends[1]}. {total}"
    if len(low.shares) > 2:
        ends = [_end(a, f"{100 * a.disparity:.0f}", _points(a)) for a in (low, high)]
        said = "In percentage points, the gap between the largest and the smallest group runs"
        return f"{said} from {ends[0]} to {ends[1]} by best estimates. {total}"
    ends = [_end(a, percent(a.shares[group]), percents(a.share_intervals[group])) for a in (low, high)]
    return f"The share of {short(group)} runs from {ends[0]} to {ends[1]}; balanced would be 50%. {total}"


def _holds(number: int) -> str:
    return "holds" if number == 1 else "hold"


def _end(audit: Audit, value: str, between: str) -> str:
    spread = "" if without(audit.interval) else f" ({between})"
    return f"{value} in {short(audit.name, 40)}{spread}"


def _points(audit: Audit) -> str:
    return f"between {100 * audit.interval.low:.0f} and {100 * audit.interval.high:.0f}"


def _lead_of_one(audit: Audit) -> str:
    if audit.trust == "poor":
        return "The checks below say why. The numbers in brackets are shown for completeness only."
    if not math.isfinite(audit.disparity):
        return ""
    spread = f"{interval_level(audit.interval)} {limits(audit.interval, len(audit.shares))}"
    if without(audit.interval):
        spread = "no interval"
    if not audit.has_shares:
        nothing = " This is the whole range: the bound rules nothing out."
        return f"{spread}.{nothing if bare(audit.interval, len(audit.shares)) else ''}"
    if len(audit.shares) == 2:
        first, second = (short(name) for name in audit.control.groups)
        share = percent(audit.shares[audit.control.groups[0]])
        return (
            f"Best estimate {share} {first}. Disparity (share of {first} minus share of {second}) "
            f"{signed(audit.disparity)}, {spread}."
        )
    most, least = short(audit.most), short(audit.least)
    return (
        f"Largest group {most}, smallest {least}. Disparity (largest share minus smallest) "
        f"{plain(audit.disparity)}, {spread}."
    )


# Lights: how far to trust a report, one check at a time, as a word, a sentence and a number.

VISIBLE = 0.005  # a shift that two decimals show
CHANCE = 0.1  # by how much more than random representatives chosen ones may leave out
LARGEST = 4000  # examples of one group of which all distances are computed


@dataclass(frozen=True)
class Light:
    """One check: `state` is good, caution, poor or info; `figure` the number, `sentence` what it means."""

    name: str
    state: str
    figure: str
    sentence: str


def lights(audits: Sequence[Audit], missing: Missing | None = None) -> tuple[Light, ...]:
    """Every check of a report, in the order of the page; `missing` from the source, as a document has it."""
    direct = audits[0].estimator in ("iid", "rectified")
    checks = (_separability(audits), _relevance(audits), _score_fit(audits))
    found = [_for_information(light) if direct else light for light in checks]
    return (*found, _coverage(audits[0].control), _skipped(audits, missing_from(audits, missing).count))


def _for_information(light: Light) -> Light:
    told = f"{light.sentence} This estimate rests on labels from the collection itself and does not need it."
    return Light(light.name, "info", light.figure, told)


def _separability(audits: Sequence[Audit]) -> Light:
    found = audits[0].diagnostics
    figure = f"{found.auc:.0%} told apart, {p_value(found.separability_p)}"
    if found.separability_p > SEPARABLE_P:
        state, told = (
            "poor",
            "The labelled examples cannot be told apart better than chance: no number means anything.",
        )
    elif found.auc < 0.75:
        state, told = "caution", "The groups overlap much; the interval is wide because of it."
    else:
        state, told = (
            "good",
            "Without seeing its label, a labelled example is nearly always closer to its own group.",
        )
        if found.auc < 0.95:
            told = "Without seeing its label, a labelled example is mostly closer to its own group."
    return Light("Separability of the groups", state, figure, f"{told} 50% would be chance.")


def _relevance(audits: Sequence[Audit]) -> Light:
    name = "Domain relevance"
    if len(audits) == 1:
        found = audits[0].diagnostics
        figure = f"{plain(found.relevance, 1)} × the expected distance, {p_value(found.relevance_p)}"
        if found.relevance_p < ALARM:
            return Light(
                name,
                "caution",
                figure,
                "The collection differs from the labelled examples in more than its composition: another source, "
                "time or place, perhaps. The estimate holds if the difference is the same in all groups.",
            )
        return Light(
            name, "good", figure, "The collection looks as a mixture of the labelled groups should look."
        )
    off = [a for a in audits if a.diagnostics.relevance_p < ALARM]
    worst = max(audits, key=lambda a: _or_less(a.diagnostics.relevance))
    most = f"{plain(worst.diagnostics.relevance, 1)} × ({short(worst.name, 30)})"
    figure = f"{len(off):,} of {len(audits):,} differ; at most {most}"
    if off:
        return Light(
            name,
            "caution",
            figure,
            "These collections differ from the labelled examples in more than their composition. Their estimates hold "
            "if the difference is the same in all groups. About 1 is expected.",
        )
    return Light(
        name,
        "good",
        figure,
        "All collections look as mixtures of the labelled groups should; about 1 is expected.",
    )


def _score_fit(audits: Sequence[Audit]) -> Light:
    name = "Fit of the scores"
    bad = [a for a in audits if a.diagnostics.misfit]
    odd = [a for a in audits if a.diagnostics.score_fit_p < ALARM and not a.diagnostics.misfit]
    worst = max(audits, key=lambda a: _or_less(a.diagnostics.score_fit))
    found = worst.diagnostics
    figure = f"misfit {plain(found.score_fit)}, {p_value(found.score_fit_p)}"
    if len(audits) > 1:
        figure = (
            f"{len(bad) + len(odd):,} of {len(audits):,} do not fit; largest misfit {plain(found.score_fit)} "
            f"({short(worst.name, 30)})"
        )
    scale = f"Beyond {MISFIT} it is “cannot tell”."
    if bad:
        whole = len(bad) == len(audits)
        told = (
            "The scores look like no mixture of the labelled groups: the control set does not stand for it."
            if len(audits) == 1
            else f"The scores of {count(len(bad), 'collections')} look like no mixture of the labelled groups."
        )
        return Light(name, "poor" if whole else "caution", figure, f"{told} {scale}")
    if odd:
        told = "The scores are not quite those of a mixture of the labelled groups."
        return Light(name, "caution", figure, f"{told} {scale}")
    return Light(name, "good", figure, f"The scores look like a mixture of the labelled groups. {scale}")


def _coverage(control: ControlSet) -> Light:
    name = "Coverage of the control set"
    if control.representative.all():
        return Light(
            name,
            "good",
            "0% left out",
            "All labelled examples are representatives, so none of them is left out.",
        )
    if max(control.counts.values()) > LARGEST:
        told = f"Not computed for groups of more than {LARGEST:,} labelled examples."
        return Light(name, "info", "not computed", told)
    usual = left_out_by_chance(control)
    worst = max(coverage(control), key=lambda part: part.uncovered - usual[part.group])
    figure = f"{percent(worst.uncovered)} of {short(worst.group, 30)} left out, {percent(usual[worst.group])} by chance"
    if worst.uncovered > usual[worst.group] + CHANCE:
        told = (
            "Some labelled examples lie far from every representative, more than with random ones: the choice may "
            "favour what is typical. It touches the DivScore and what is shown as examples, not the default estimate."
        )
        return Light(name, "caution", figure, told)
    told = "The representatives leave out no larger part of the labelled examples than random ones would."
    return Light(name, "good", figure, told)


def _skipped(audits: Sequence[Audit], parts: int) -> Light:
    name, noun = "Skipped items", noun_of(audits)
    lost = sum(sum(a.skipped.values()) for a in audits)
    total = lost + sum(a.count for a in audits)
    if parts:
        told = (
            "Nothing is known of the items in parts of the source that could not be read; see the warnings."
        )
        figure = f"{lost:,} of {count(total, noun)}, and {count(parts, 'parts')} of the source"
        return Light(name, "caution", figure, told)
    if not lost:
        return Light(name, "good", f"0 of {count(total, noun)}", "Every item was counted.")
    far = [a for a in audits if a.diagnostics.skipped_shift > _allowed(a)]
    most = max(audits, key=lambda a: a.diagnostics.skipped_shift)
    where = f" ({short(most.name, 30)})" if len(audits) > 1 else ""
    figure = f"{lost:,} of {count(total, noun)}; shift at most {plain(most.diagnostics.skipped_shift)}{where}"
    if far:
        much = "by more than the interval allows for"
        if all(bare(a.interval, len(a.shares)) for a in far):
            much = "by as much, and no interval says whether it would matter"
        told = f"If all skipped items were of one group, the disparity would move {much}."
        return Light(name, "caution", figure, told)
    kept = "stay within what the interval allows for"
    if all(bare(a.interval, len(a.shares)) for a in audits):
        kept = "hardly move"
    told = f"Even if all skipped items were of one group, the disparity would {kept}."
    return Light(name, "good", figure, told)


def _allowed(audit: Audit) -> float:
    """How far skipped items may move a disparity; where nothing is ruled out, by no more than is printed."""
    return VISIBLE if bare(audit.interval, len(audit.shares)) else audit.interval.width / 2


def _or_less(value: float) -> float:
    return value if math.isfinite(value) else -math.inf


# Notices: the warnings of all collections, those that say the same joined.

GRAVEST = "cannot tell"  # how warnings begin that take the number away
MANY = 100  # collections, of which tests flag some by chance


@dataclass(frozen=True)
class Notice:
    """A warning and the collections it is about, none if it is the source; `alike` where their figures differ."""

    text: str
    names: tuple[str, ...]
    alike: bool


def notices(audits: Sequence[Audit], missing: Missing | None = None) -> tuple[Notice, ...]:
    """Warnings, the gravest first; those that differ in their figures only are said once.

    Each audit has its own in that order, so what comes late in any of them is less grave than what never does. Of what
    is `missing` from the source, parts that no audit names make a warning too: a collection may be lost altogether.
    """
    kinds: dict[str, list[tuple[str, str]]] = {}
    latest: dict[str, int] = {}
    for audit in audits:
        for place, warning in enumerate(audit.warnings):
            kind = re.sub(r"\(.*?\)|[\d.<=]", "", warning)
            kinds.setdefault(kind, []).append((audit.name, warning))
            latest[kind] = max(latest.get(kind, 0), place)
    ordered = sorted(kinds, key=lambda kind: (not kind.startswith(GRAVEST), latest[kind]))
    found = [
        Notice(
            told[0][1] + _by_chance(told[0][1], len(told), audits),
            tuple(name for name, _ in told),
            len({text for _, text in told}) > 1,
        )
        for told in (kinds[kind] for kind in ordered)
    ]
    place = sum(kind.startswith(GRAVEST) for kind in kinds)
    return (*found[:place], *_of_the_source(audits, missing or Missing()), *found[place:])


def _of_the_source(audits: Sequence[Audit], missing: Missing) -> list[Notice]:
    if not missing.count:
        return []
    lists = {id(audit.missing): audit.missing.listed for audit in audits}.values()
    named = {part for each in lists for part in each}
    nobodys = Missing.of(part for part in missing.listed if part not in named)
    return [Notice(text, (), False) for text in nobodys.warning]


def _by_chance(warning: str, flagged: int, audits: Sequence[Audit]) -> str:
    """Of many collections, how many a test would flag if nothing were wrong with any.

    Warnings on scores have further conditions, so that the level of their test is the most there can be.
    """
    if warning.startswith(DIFFERS):
        tested, about = [a.diagnostics.relevance_p for a in audits], "about"
    elif warning.startswith((NO_MIXTURE, NOT_QUITE)):
        tested, about = [a.diagnostics.score_fit_p for a in audits], "at most about"
    else:
        return ""
    number = sum(map(math.isfinite, tested))
    if number <= MANY:
        return ""
    chance = ALARM * number
    so = ", so that these may all be" if flagged <= chance else ""
    return (
        f" ({flagged:,} of {len(audits):,} collections; {about} {chance:,.0f} would be by chance alone{so})"
    )


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
