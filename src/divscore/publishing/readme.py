"""The dataset card of a published control set, for people who were not there."""

from __future__ import annotations

from divscore.control.controlcard import TABLE, plain
from divscore.publishing.card import LIMITS, counts_table, gammas, prose
from divscore.publishing.digests import SUMS
from divscore.publishing.header import header
from divscore.publishing.objections import COLUMNS, OBJECTIONS, WHOLE
from divscore.publishing.publication import Publication

__all__ = ["README", "readme"]

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
