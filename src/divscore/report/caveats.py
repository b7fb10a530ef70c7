"""What limits a result: the trust checks of a report, and the warnings of all collections joined."""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from divscore.audit.document import missing_from
from divscore.audit.result import Audit
from divscore.audit.trust import (
    ALARM,
    DIFFERS,
    MISFIT,
    NO_MIXTURE,
    NOT_QUITE,
    coverage,
    uncovered_by_chance,
)
from divscore.control.controlset import ControlSet
from divscore.estimators.checks import SEPARABLE_P
from divscore.report.listing import uninformative
from divscore.sketch.missing import Missing
from divscore.text import brief, count, finite, listed, p_value, percent, printable, unsigned

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
    """One check: `state` is good, caution, poor or info; `figure` the number, `sentence` what it means."""

    name: str
    state: str
    figure: str
    sentence: str


def checks(audits: Sequence[Audit], missing: Missing | None = None) -> tuple[Check, ...]:
    """Every check of a report, in the order of the page; `missing` parts as in a document."""
    assumed = [_separability(audits), _relevance(audits), _score_fit(audits)]
    if audits[0].estimator in ("iid", "rectified"):
        direct = sentences()["note"]["direct"]
        assumed = [replace(check, state="info", sentence=f"{check.sentence} {direct}") for check in assumed]
    return (*assumed, _coverage(audits[0].control), _skipped(audits, missing_from(audits, missing).count))


def _check(section: str, key: str, figure: str, *values: object, state: str = "") -> Check:
    """The check of a section; the state is the first word of the sentence's key unless given."""
    words = sentences()[section]
    return Check(words["title"], state or key.partition("_")[0], figure, words[key].format(*values))


def _separability(audits: Sequence[Audit]) -> Check:
    numbers = audits[0].diagnostics
    figure = f"{numbers.auc:.0%} of pairs ranked correctly, {p_value(numbers.separability_p)}"
    if numbers.separability_p > SEPARABLE_P:
        return _check("separability", "poor", figure)
    if numbers.auc < 0.75:
        return _check("separability", "caution", figure)
    return _check("separability", "good" if numbers.auc >= 0.95 else "mostly", figure, state="good")


def _relevance(audits: Sequence[Audit]) -> Check:
    off = [a for a in audits if a.diagnostics.relevance_p < ALARM]
    state = "caution" if off else "good"
    worst = _largest(audits, "relevance")
    figure = f"{unsigned(worst.diagnostics.relevance, 1)} × the expected distance"
    if len(audits) == 1:
        return _check("relevance", state, f"{figure}, {p_value(worst.diagnostics.relevance_p)}")
    figure = f"{len(off):,} of {len(audits):,} differ; at most {figure} ({brief(worst.name, 30)})"
    return _check("relevance", f"{state}_many", figure)


def _score_fit(audits: Sequence[Audit]) -> Check:
    bad = [a for a in audits if a.diagnostics.misfit]
    odd = [a for a in audits if a.diagnostics.score_fit_p < ALARM and not a.diagnostics.misfit]
    worst = _largest(audits, "score_fit")
    misfit = f"misfit {unsigned(worst.diagnostics.score_fit)}"
    figure = f"{misfit}, {p_value(worst.diagnostics.score_fit_p)}"
    if len(audits) > 1:
        number = f"{len(bad) + len(odd):,} of {len(audits):,}"
        figure = f"{number} do not fit; largest {misfit} ({brief(worst.name, 30)})"
    if not bad:
        return _check("score_fit", "caution" if odd else "good", figure, MISFIT)
    key = "poor" if len(audits) == 1 else "poor_many"
    state = "poor" if len(bad) == len(audits) else "caution"
    return _check("score_fit", key, figure, MISFIT, count(len(bad), "collections"), state=state)


def _coverage(control: ControlSet) -> Check:
    if control.representative.all():
        return _check("coverage", "all", "0% not covered", state="good")
    if max(control.counts.values()) > LARGEST:
        return _check("coverage", "large", "not computed", f"{LARGEST:,}", state="info")
    usual = uncovered_by_chance(control)
    worst = max(coverage(control), key=lambda part: part.uncovered - usual[part.group])
    figure = (
        f"{percent(worst.uncovered)} of {brief(worst.group, 30)} not covered, {percent(usual[worst.group])} with "
        "random representatives"
    )
    return _check("coverage", "caution" if worst.uncovered > usual[worst.group] + CHANCE else "good", figure)


def _skipped(audits: Sequence[Audit], parts: int) -> Check:
    skipped = sum(sum(a.skipped.values()) for a in audits)
    figure = f"{skipped:,} of {count(skipped + sum(a.count for a in audits), noun_of(audits))}"
    if parts:
        figure += f", and {count(parts, 'parts')} of the source"
        return _check("skipped", "missing", figure, state="caution")
    if not skipped:
        return _check("skipped", "none", figure, state="good")

    def allowed(audit: Audit) -> float:
        return VISIBLE if uninformative(audit) else audit.interval.width / 2

    most = max(audits, key=lambda a: a.diagnostics.skipped_shift)
    where = f" ({brief(most.name, 30)})" if len(audits) > 1 else ""
    figure += f"; shift at most {unsigned(most.diagnostics.skipped_shift)}{where}"
    far = [a for a in audits if a.diagnostics.skipped_shift > allowed(a)]
    suffix = "_bare" if all(map(uninformative, far or audits)) else ""
    return _check("skipped", ("caution" if far else "good") + suffix, figure)


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
        """The warning with a capital letter and a full stop."""
        text = printable(self.text)
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
        return f"{names} (figures of the first)" if self.varies else names


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
    elif warning.startswith((NO_MIXTURE, NOT_QUITE)):
        tested, about = [a.diagnostics.score_fit_p for a in audits], "at most about"
    else:
        return ""
    number = sum(map(math.isfinite, tested))
    if number <= MANY:
        return ""
    chance = ALARM * number
    perhaps = ", so it may be all of these" if flagged <= chance else ""
    return f" ({flagged:,} of {len(audits):,} collections; {about} {chance:,.0f} are expected by chance{perhaps})"
