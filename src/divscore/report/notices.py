"""Notices: the warnings of all collections, those that say the same joined."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from divscore.result import Audit

__all__ = ["Notice", "notices"]


@dataclass(frozen=True)
class Notice:
    """A warning and the collections it is about; `alike` where their figures differ from the text's."""

    text: str
    names: tuple[str, ...]
    alike: bool


def notices(audits: Sequence[Audit]) -> tuple[Notice, ...]:
    """Warnings in order of appearance; those that differ in their figures only are said once."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for audit in audits:
        for warning in audit.warnings:
            kind = re.sub(r"\(.*?\)|[\d.<=]", "", warning)
            kinds.setdefault(kind, []).append((audit.name, warning))
    return tuple(
        Notice(told[0][1], tuple(name for name, _ in told), len({text for _, text in told}) > 1)
        for told in kinds.values()
    )
