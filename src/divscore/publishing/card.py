"""The words about a control set: a section for somebody else's card, and the parts of its own."""

from __future__ import annotations

import json
import re

from divscore.control.controlfile import TABLE, plain
from divscore.publishing.about import NOT_STATED, SUMS
from divscore.publishing.objections import COLUMNS, OBJECTIONS, WHOLE
from divscore.publishing.publication import Publication
from divscore.text import printable

__all__ = [
    "LIMITS",
    "README",
    "card_section",
    "counts_row",
    "counts_table",
    "gammas",
    "header",
    "license_address",
    "prose",
    "readme",
]


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


# The YAML lines above a dataset card, as the Hugging Face hub reads them.

# Terms that the hub knows by name, with their SPDX identifiers.
LICENSES = {
    "apache-2.0": "Apache-2.0",
    "cc0-1.0": "CC0-1.0",
    "cc-by-2.0": "CC-BY-2.0",
    "cc-by-3.0": "CC-BY-3.0",
    "cc-by-4.0": "CC-BY-4.0",
    "cc-by-sa-3.0": "CC-BY-SA-3.0",
    "cc-by-sa-4.0": "CC-BY-SA-4.0",
    "cc-by-nc-4.0": "CC-BY-NC-4.0",
    "cc-by-nc-nd-4.0": "CC-BY-NC-ND-4.0",
    "cc-by-nc-sa-4.0": "CC-BY-NC-SA-4.0",
    "cc-by-nd-4.0": "CC-BY-ND-4.0",
    "cdla-permissive-1.0": "CDLA-Permissive-1.0",
    "cdla-permissive-2.0": "CDLA-Permissive-2.0",
    "cdla-sharing-1.0": "CDLA-Sharing-1.0",
    "mit": "MIT",
    "odbl": "ODbL-1.0",
    "odc-by": "ODC-By-1.0",
    "pddl": "PDDL-1.0",
}
SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
)
TAGS = ("divscore", "control-set", "audit", "diversity")


def header(publication: Publication) -> str:
    """The header, between its two lines of dashes."""
    about, count = publication.about, len(publication.control)
    size = next((name for limit, name in SIZES if count < limit), "1M<n<10M")
    lines = [f"pretty_name: {_quoted(publication.title)}", *_license(about.license)]
    if about.languages:
        lines += ["language:", *(f"- {_quoted(code)}" for code in about.languages)]
    lines += ["tags:", *(f"- {tag}" for tag in TAGS), "size_categories:", f"- {size}"]
    lines += [
        "configs:",
        "- config_name: default",
        "  data_files:",
        "  - split: control",
        f"    path: {TABLE}",
    ]
    return "\n".join(["---", *lines, "---", ""])


def license_address(license: str) -> str:
    """Where the terms can be read, if they are known ones; or else what was stated."""
    name = LICENSES.get(license.lower())
    return f"https://spdx.org/licenses/{name}.html" if name else license


def _license(text: str) -> list[str]:
    if not text:
        return ["license: unknown"]
    if text.lower() in LICENSES:
        return [f"license: {text.lower()}"]
    if re.fullmatch(r"https?://\S+", text):
        return ["license: other", "license_name: see-link", f"license_link: {_quoted(text)}"]
    name = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")[:40]
    return ["license: other", f"license_name: {_quoted(name or 'other')}"]


def _quoted(text: str) -> str:
    """A string that means itself in YAML, which takes JSON's."""
    return json.dumps(printable(" ".join(text.split())), ensure_ascii=False)


# The dataset card of a published control set, for people who were not there.

README = "README.md"


def readme(publication: Publication, digest: str) -> str:
    """Write the card; `digest` is the overall one, over all files but this."""
    parts = (
        f"{header(publication)}\n# {plain(publication.title)}",
        _opening(publication, digest),
        _meaning(publication),
        _origin(publication),
        _use(publication),
        _quality(publication),
        _cautions(publication),
        _objecting(publication),
        _files(publication, digest),
        _citation(publication),
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _opening(publication: Publication, digest: str) -> str:
    control = publication.control
    marked = int(control.representative.sum())
    return f"""\
A **control set**: {len(control)} examples whose {plain(control.attribute)} is known, {marked} of them marked as
representatives. With it, [divscore](#use) estimates how large a share each group has in an *unlabelled* collection of
the same kind, and how sure that is.

{counts_table(publication)}

Edition {publication.edition} of {publication.day}. Publisher: {prose(publication.about.publisher)}. Digest:
`{digest}`"""


def _meaning(publication: Publication) -> str:
    about = publication.about
    return f"""\
## What the groups mean

- **Definition:** {prose(about.definition)}
- **Perceived or self-declared:** {prose(about.basis)}
- **Labelled by:** {prose(about.labelled_by)}
- **How they labelled:** {prose(about.labelled_how)}
- **Groups and people left out:** {prose(about.left_out)}"""


def _origin(publication: Publication) -> str:
    control, about = publication.control, publication.about
    known = f"\n- **Known to be one-sided:** {prose(about.biases)}" if about.biases else ""
    lost = f"\n- {plain(publication.lost)}" if publication.lost else ""
    return f"""\
## Where the examples come from

- **Source:** {prose(about.source)}
- **Where to look at them:** {prose(about.items)} (This folder holds their ids and vectors.)
- **Consent:** {prose(about.consent)}{known}
- **How the representatives were chosen:** {plain(control.method)}{lost}
- **License:** {prose(about.license)}"""


def _use(publication: Publication) -> str:
    control, about = publication.control, publication.about
    return f"""\
## Use

```sh
divscore control check FOLDER                  # as published? objections?
divscore audit COLLECTION --control FOLDER     # shares, with an interval
```

divscore is a Python program (`pip install divscore`). `FOLDER` is this folder, `COLLECTION` your pictures, texts or
vectors. Both must be encoded by the same, which divscore sees to:

- **Encoder:** {plain(control.encoder or "not recorded")}, {control.dimension} numbers an example
- **Similarity:** {plain(control.similarity.name)}
- **Meant for:** {prose(about.uses)}
- **Not for:** {prose(about.unsuitable)}"""


def _quality(publication: Publication) -> str:
    return f"""\
## How well it measures

{plain(publication.measured.sentences)}

{gammas(publication)}. (γ and γ^(T) are those of Keswani & Celis, *Auditing for Diversity using Representative
Examples*, KDD 2021.)"""


def _cautions(publication: Publication) -> str:
    texts = (*publication.cautions, publication.vectors_warning, *LIMITS)
    return "\n".join(["## Before you use it", "", *(f"- {plain(text)}" for text in texts)])


def _objecting(publication: Publication) -> str:
    about = publication.about
    return f"""\
## If you object

To an example, a label, a group or a definition: add a line to [`{OBJECTIONS}`]({OBJECTIONS}), or write to the contact.

| column | what to write |
|---|---|
| `{COLUMNS[0]}` | the example's id in `{TABLE}`, or `{WHOLE}` for the set as a whole |
| `{COLUMNS[1]}` | what is wrong |
| `{COLUMNS[2]}` | `remove`, the group it should have, or what else to do |
| `{COLUMNS[3]}`, `{COLUMNS[4]}` | who you are and how to reach you; both may stay empty |
| `{COLUMNS[5]}` | such as 2026-01-31 |
| `{COLUMNS[6]}` | `open`; whoever keeps the set changes it to `accepted` or `declined` |

- **Contact:** {prose(about.contact)}
- **Who decides, and when:** {prose(about.maintenance)}"""


def _files(publication: Publication, digest: str) -> str:
    shortening = ""
    if " pca=" in (publication.control.encoder or ""):
        shortening = (
            "- `projection.npz`: how vectors of a collection are shortened before they are compared\n"
        )
    return f"""\
## Files

- `{TABLE}`: `id`, `group`, `representative`, `embedding`; one line an example. Its own digest, which audits state:
  `{publication.control.digest}`
- `croissant.json`: this card for machines (Croissant 1.0 with the RAI vocabulary)
- `about.toml`: the answers of people on which this card rests
- `{OBJECTIONS}`: objections; the only file that changes between editions
{shortening}- `CHANGELOG.md`: what changed from edition to edition
- `{SUMS}`: digests of all files but `{OBJECTIONS}`; `sha256sum --check {SUMS}` or `divscore control check` names every
  file that was changed

The digest of this edition is that of `{SUMS}` without the line of this card: `{digest}`.
Note it down with your results: whoever changes a file can change the digests in this folder as well, but not
those in your notes."""


def _citation(publication: Publication) -> str:
    return f"## Citation\n\n{prose(publication.about.citation)}" if publication.about.citation else ""
