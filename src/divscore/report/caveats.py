"""What limits a result: the trust checks of a report, and the warnings of all collections joined."""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from divscore.audit.document import missing_from
from divscore.audit.result import Audit
from divscore.audit.trust import DIFFERS, DOMINANT, FREQUENT, NO_MIXTURE, coverage, uncovered_by_chance
from divscore.control.controlset import ControlSet
from divscore.estimators.checks import ALARM, SEPARABLE_P
from divscore.report.listing import uninformative
from divscore.sketch.missing import Missing
from divscore.text import brief, count, finite, joined, listed, percent, printable, unsigned

VISIBLE = 0.005  # a shift that two decimals show
CHANCE = 0.1  # chosen representatives may cover so much less than random ones
LARGEST = 4000  # examples of one group for which all distances are computed
GRAVEST = "cannot tell"  # how warnings begin that make a result inconclusive
MANY = 100  # collections; tests flag some of so many by chance


@lru_cache(maxsize=1)
def sentences() -> dict[str, Any]:
    """The sentences of a report, by section and key."""
    return tomllib.loads((files("divscore.report") / "templates" / "sentences.toml").read_text("utf-8"))


def noun_of(audits: Sequence[Audit]) -> str:
    """What the items of all collections are called."""
    nouns = {audit.noun for audit in audits}
    return nouns.pop() if len(nouns) == 1 else "items"


@dataclass(frozen=True)
class Check:
    """One check: the question it answers; `state` is good, caution, poor or info; `sentence` is the answer."""

    name: str
    state: str
    sentence: str


def checks(audits: Sequence[Audit], missing: Missing | None = None) -> tuple[Check, ...]:
    """Every check of a report, in the order of the page; `missing` parts as in a document."""
    skipped = _skipped(audits, missing_from(audits, missing).count)
    if audits[0].labels is not None:  # the result does not depend on the control set
        return (*_labels(audits), skipped, _copies(audits))
    assumed = _relevance(audits), _separability(audits), _score_fit(audits)
    return (*assumed, _coverage(audits[0].control), skipped, _copies(audits), _inside(audits))


def _check(section: str, key: str, *values: object, state: str = "") -> Check:
    """The check of a section; the state is the first word of the sentence's key unless given."""
    words = sentences()[section]
    return Check(words["title"], state or key.partition("_")[0], words[key].format(*values))


def _labels(audits: Sequence[Audit]) -> Iterator[Check]:
    """The labels of the collections themselves: how many, how they were drawn, and how many are missing."""
    facts = [audit.labels for audit in audits if audit.labels is not None]
    fewest = min(facts, key=lambda each: each.labelled)
    many = f"at least {fewest.labelled:,}" if len(facts) > 1 else f"{fewest.labelled:,}"
    yield _check("labels", fewest.drawn, many, state="good")
    missing, drawn = sum(f.without_label for f in facts), sum(f.without_label + f.labelled for f in facts)
    if missing:
        yield _check("unlabelled", "caution", f"{missing:,} of {drawn:,}", "has" if missing == 1 else "have")
    else:
        yield _check("unlabelled", "good")
    if max(f.batches for f in facts) > 1:
        yield _check("stopping", "caution")


def _relevance(audits: Sequence[Audit]) -> Check:
    off = sum(a.diagnostics.relevance_p < ALARM for a in audits)
    key = "caution" if off else "good"
    worst = _largest(audits, "relevance")
    times = unsigned(worst.diagnostics.relevance, 1)
    if len(audits) == 1:
        return _allowed(_check("relevance", key, times), audits)
    check = _check("relevance", f"{key}_many", f"{off:,} of {len(audits):,}", times, brief(worst.name, 30))
    return _allowed(check, audits)


def _separability(audits: Sequence[Audit]) -> Check:
    """The pair of groups that is hardest to tell apart decides; with two groups there is only one."""
    audit, merged = audits[0], next((each.merged for each in audits if each.merged), ())
    numbers = audit.diagnostics
    pair = joined([brief(name, 30) for name in audit.hardest_pair if name])
    who = f"examples of {pair}" if pair else "examples of different groups"
    key = "good" if numbers.auc >= 0.95 else "mostly" if numbers.auc >= 0.75 else "caution"
    if numbers.separability_p > SEPARABLE_P:
        key = "poor"
    hardest = sentences()["separability"]["hardest"] if pair and len(audit.control.groups) > 2 else ""
    if merged:
        together = "; ".join(joined([brief(name, 30) for name in names]) for names in merged)
        return _check("separability", "merged", together, state="caution")
    check = _check("separability", key, who, f"{numbers.auc:.0%}", state="good" if key == "mostly" else "")
    return replace(check, sentence=f"{check.sentence} {hardest}".rstrip())


def _score_fit(audits: Sequence[Audit]) -> Check:
    odd = sum(a.diagnostics.score_fit_p < ALARM for a in audits)
    key = "caution" if odd else "good"
    if len(audits) == 1:
        return _allowed(_check("score_fit", key), audits)
    return _allowed(_check("score_fit", f"{key}_many", f"{odd:,} of {len(audits):,}"), audits)


def _allowed(check: Check, audits: Sequence[Audit]) -> Check:
    """Add what the result does about a difference that a check found."""
    if check.state == "good" or not any(audit.differs for audit in audits):
        return check
    return replace(check, sentence=f"{check.sentence} {sentences()['similar']['allowed']}")


def _coverage(control: ControlSet) -> Check:
    if control.representative.all():
        return _check("coverage", "all", state="good")
    if max(control.counts.values()) > LARGEST:
        return _check("coverage", "large", f"{LARGEST:,}", state="info")
    usual = uncovered_by_chance(control)
    worst = max(coverage(control), key=lambda part: part.uncovered - usual[part.group])
    state = "caution" if worst.uncovered > usual[worst.group] + CHANCE else "good"
    shares = percent(worst.uncovered), percent(usual[worst.group])
    return _check("coverage", state, brief(worst.group, 30), *shares)


def _skipped(audits: Sequence[Audit], parts: int) -> Check:
    skipped = sum(sum(a.skipped.values()) for a in audits)
    were = "was" if skipped == 1 else "were"
    number = f"{skipped:,} of {count(skipped + sum(a.count for a in audits), noun_of(audits))} {were} skipped"
    if parts:
        return _check("skipped", "missing", number, count(parts, "parts"), state="caution")
    if not skipped:
        return _check("skipped", "none", state="good")

    def allowed(audit: Audit) -> float:
        return VISIBLE if uninformative(audit) else audit.interval.width / 2

    most = max(audits, key=lambda a: a.diagnostics.skipped_shift)
    where = f" in {brief(most.name, 30)}" if len(audits) > 1 else ""
    # A disparity of two groups changes by twice as much as a share.
    points = most.diagnostics.skipped_shift * (50 if len(most.control.groups) == 2 else 100)
    shift = f"up to {points:.0f} points{where}" if points >= 1.5 else f"about 1 point{where}"
    shift = shift if points >= 0.5 else f"less than 1 point{where}"
    far = [a for a in audits if a.diagnostics.skipped_shift > allowed(a)]
    suffix = "_bare" if all(map(uninformative, far or audits)) else ""
    return _check("skipped", ("caution" if far else "good") + suffix, number, shift)


def _copies(audits: Sequence[Audit]) -> Check:
    def often(audit: Audit) -> float:
        return audit.copies.often(audit.count)

    having = [a for a in audits if a.copies.items]
    if not having and any(a.copies.estimated for a in audits):
        return _check("copies", "sampled", state="info")
    if not having:
        return _check("copies", "none", state="good")
    worst = max(having, key=lambda a: (often(a), a.copies.items / a.count))
    key = "poor" if often(worst) >= DOMINANT else "caution" if often(worst) >= FREQUENT else "good"
    sentence = worst.copies.sentence(worst.count)
    where = (
        f"In {brief(worst.name, 30)}, {sentence}" if len(audits) > 1 else sentence[:1].upper() + sentence[1:]
    )
    state = "caution" if key == "poor" and len(audits) > 1 else ""
    return _check("copies", key, where, state=state)


def _inside(audits: Sequence[Audit]) -> Check:
    worst = max(audits, key=lambda a: a.labelled_inside)
    if not worst.labelled_inside:
        return _check("inside", "none", state="good")
    number = f"{worst.labelled_inside:,} of {count(len(worst.control), 'labelled examples')}"
    where = brief(worst.name, 30) if len(audits) > 1 else "the collection"
    return _check("inside", "caution", number, "is" if worst.labelled_inside == 1 else "are", where)


def _largest(audits: Sequence[Audit], name: str) -> Audit:
    """The audit with the largest value of a check; unknown values come last."""

    def value(audit: Audit) -> float:
        number = finite(getattr(audit.diagnostics, name))
        return -math.inf if number is None else number

    return max(audits, key=value)


# Warnings


@dataclass(frozen=True)
class Notice:
    """A warning and its collections (none: the whole source); `varies` where their figures differ."""

    text: str
    names: tuple[str, ...]
    varies: bool

    @property
    def sentence(self) -> str:
        """The warning with a capital letter and a full stop; p-values are in the technical details."""
        text = re.sub(r" \(p [<=] [\d.]+\)|, p [<=] [\d.]+", "", printable(self.text))
        return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"

    def about(self, total: int) -> str:
        """The collections it is about, of `total`."""
        if not self.names:
            return "The source"
        if total == 1:
            return ""
        names = "All collections"
        if len(self.names) < total:
            names = listed([brief(name, 40) for name in self.names])
        return f"{names} (the numbers are those of {brief(self.names[0], 40)})" if self.varies else names


def notices(audits: Sequence[Audit], missing: Missing | None = None) -> tuple[Notice, ...]:
    """Warnings, the gravest first; those that differ only in their figures are joined.

    Each audit lists its warnings by gravity, so a warning that comes late in any audit is less grave than one that
    never does. Missing parts of the source that no audit lists get a warning too: all of a collection may be missing.
    """
    kinds: dict[str, list[tuple[str, str]]] = {}
    latest: Counter[str] = Counter()
    for audit in audits:
        for place, warning in enumerate(audit.warnings):
            kind = re.sub(r"\(.*?\)|[\d.<=]", "", warning)
            kinds.setdefault(kind, []).append((audit.name, warning))
            latest[kind] = max(latest[kind], place)
    grave: list[Notice] = []
    other: list[Notice] = []
    for kind in sorted(kinds, key=lambda kind: latest[kind]):
        names, texts = zip(*kinds[kind], strict=True)
        text = texts[0] + _by_chance(texts[0], len(texts), audits)
        (grave if kind.startswith(GRAVEST) else other).append(Notice(text, names, len(set(texts)) > 1))
    # Of ten thousand audits, most share one list of missing parts.
    lists = {id(audit.missing): audit.missing.listed for audit in audits}.values()
    known = {part for parts in lists for part in parts}
    rest = Missing.of(part for part in (missing or Missing()).listed if part not in known)
    return (*grave, *(Notice(text, (), False) for text in rest.warning), *other)


def _by_chance(warning: str, flagged: int, audits: Sequence[Audit]) -> str:
    """How many of many collections a test flags when nothing is wrong.

    Warnings on scores have further conditions, so the level of their test is an upper limit.
    """
    if warning.startswith(DIFFERS):
        tested, about = [a.diagnostics.relevance_p for a in audits], "about"
    elif warning.startswith(NO_MIXTURE):
        tested, about = [a.diagnostics.score_fit_p for a in audits], "at most about"
    else:
        return ""
    number = sum(map(math.isfinite, tested))
    if number <= MANY:
        return ""
    chance = ALARM * number
    perhaps = ", so it may be all of these" if flagged <= chance else ""
    return f" ({flagged:,} of {len(audits):,} collections; {about} {chance:,.0f} are expected by chance{perhaps})"
