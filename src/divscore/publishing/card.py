"""The words about a control set: a section for somebody else's card, and the parts of its own."""

from __future__ import annotations

import re

from divscore.control.controlcard import plain
from divscore.publishing.about import NOT_STATED
from divscore.publishing.publication import Publication

__all__ = ["LIMITS", "card_section", "counts_row", "counts_table", "gammas", "prose"]

ADDRESS = re.compile(r"https?://[^\s<>]+[^\s<>.,;:!?)\]'\"]")

LIMITS = (
    "The groups were fixed beforehand. Whoever fits none of them, or several, is not described by any result.",
    "Examples chosen because they are typical can carry stereotypes, and an audit then measures the stereotype. Look "
    "at the examples, and object where they are wrong, one-sided or hurtful.",
    "Results hold for a collection as a whole. Do not use the examples to assign a group to an individual.",
)


def card_section(publication: Publication) -> str:
    """Describe a control set in a section that can be pasted into another card."""
    control, about = publication.control, publication.about
    marked = int(control.representative.sum())
    lines = [
        f"## Control set: {plain(control.attribute)}",
        "",
        f"Shares of groups were estimated with {len(control)} labelled examples, {marked} of them representatives. "
        "An audit compares a collection with them; nobody's group is decided one by one.",
        "",
        counts_table(publication),
        "",
        f"- **What the attribute means:** {prose(about.definition)}",
        f"- **Perceived or self-declared:** {prose(about.basis)}",
        f"- **Labelled by:** {prose(about.labelled_by)}",
        f"- **How it was labelled:** {prose(about.labelled_how)}",
        f"- **How the representatives were chosen:** {plain(control.method)}",
        f"- **Groups and people left out:** {prose(about.left_out)}",
        f"- **Encoder:** {plain(control.encoder or 'not recorded')}, {control.dimension} numbers an example",
        f"- **Digest:** `{control.digest}`",
        f"- **Separability:** {gammas(publication)}",
        f"- **Measured error and coverage:** {plain(publication.measured.sentences)}",
        "",
        "Before you rely on it:",
        "",
        *(f"- {plain(text)}" for text in (*publication.cautions, *LIMITS)),
    ]
    return "\n".join(lines) + "\n"


def counts_table(publication: Publication) -> str:
    """Groups with their numbers."""
    rows = [counts_row(name, **numbers) for name, numbers in publication.groups.items()]
    return "\n".join(["| group | labelled | representatives |", "|---|---|---|", *rows])


def counts_row(name: str, labelled: int, representatives: int) -> str:
    """One line of the table."""
    return f"| {plain(name)} | {labelled} | {representatives} |"


def gammas(publication: Publication) -> str:
    """γ and γ^(T), and what they come to."""
    sound = publication.sound
    rest = "" if sound.gamma_rest is None else f" ({sound.gamma_rest:.3f} on the other examples)"
    return (
        f"γ = {sound.gamma:.3f} on all examples, γ^(T) = {sound.gamma_control:.3f} on the representatives{rest}; two "
        f"examples of different groups are told apart {sound.auc:.1%} of the time without their labels (50% is chance)"
    )


def prose(answer: str) -> str:
    """What a person answered, as one paragraph whose web addresses stay links."""
    if not answer.strip():
        return f"*{NOT_STATED}*"
    text = " ".join(answer.split())
    parts, at = [], 0
    for found in ADDRESS.finditer(text):
        parts += [_spaced(text[at : found.start()]), f"<{found[0]}>"]
        at = found.end()
    return "".join([*parts, _spaced(text[at:])])


def _spaced(text: str) -> str:
    """Plain text with the spaces at its ends."""
    return f"{' ' * text.startswith(' ')}{plain(text)}{' ' * (text.endswith(' ') and bool(text.strip()))}"
