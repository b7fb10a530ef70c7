"""Notices: the warnings of all collections, those that say the same joined."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from divscore.audit.missing import NO_GAPS, Gaps
from divscore.audit.result import Audit
from divscore.audit.trust import ALARM, DIFFERS, NO_MIXTURE, NOT_QUITE

__all__ = ["Notice", "notices"]

GRAVEST = "cannot tell"  # how warnings begin that take the number away
MANY = 100  # collections, of which tests flag some by chance


@dataclass(frozen=True)
class Notice:
    """A warning and the collections it is about, none if it is the source; `alike` where their figures differ."""

    text: str
    names: tuple[str, ...]
    alike: bool


def notices(audits: Sequence[Audit], missing: Gaps | None = None) -> tuple[Notice, ...]:
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
    return (*found[:place], *_of_the_source(audits, missing or NO_GAPS), *found[place:])


def _of_the_source(audits: Sequence[Audit], missing: Gaps) -> list[Notice]:
    if not missing.count:
        return []
    lists = {id(audit.missing): audit.missing.listed for audit in audits}.values()
    named = {part for each in lists for part in each}
    nobodys = Gaps.among(part for part in missing.listed if part not in named)
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
