"""What a saved control set says of itself: a card for people, a Croissant description for machines."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from divscore.control.controlset import ControlSet
from divscore.text import printable

__all__ = ["TABLE", "card", "croissant", "plain"]

TABLE = "control.parquet"
LISTED_IDS = 200

WARNINGS = """\
## Before you use it

- **The groups were fixed beforehand.** The examples were sorted into a few named groups by whoever labelled
  them. People and things that fit none of the groups, or several, are not described by any result.
- **Examples can carry stereotypes.** A set of examples that all look or sound alike in ways that have nothing
  to do with the attribute makes an audit measure the stereotype instead. Prefer examples that differ in
  everything but the attribute.
- **Look at the examples yourself and change them by hand** where they are wrong, one-sided or hurtful; a
  method chose them, nobody vouched for them.
- **Publish this folder with the results.** Whoever doubts a figure should be able to see the examples
  behind it.
- Results hold for a collection as a whole. Do not use the examples to assign a group to an individual.
"""

# The JSON-LD context that the Croissant 1.0 specification prescribes.
CROISSANT_WORDS = (
    "citeAs column equivalentProperty extract field fileObject fileProperty fileSet format includes "
    "isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace "
    "samplingRate separator source subField transform"
)
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{word: f"cr:{word}" for word in CROISSANT_WORDS.split()},
}


def card(control: ControlSet) -> str:
    """Describe a control set in Markdown."""
    counts = "\n".join(
        f"| {plain(name)} | {n} | {len(control.rows(group, representatives=True))} |"
        for group, (name, n) in enumerate(control.counts.items())
    )
    pool = "by hand" if control.hand_picked else "by whoever collected them (not marked as picked by hand)"
    return f"""\
# Control set for {plain(control.attribute)}

{len(control)} labelled examples, {int(control.representative.sum())} of them representatives. An audit
compares a collection with them to estimate how large a share of it each group has.

| group | labelled | representatives |
|---|---|---|
{counts}

- **How the representatives were chosen:** {plain(control.method)}
- **How the labelled examples were chosen:** {pool}
- **What made the vectors:** {plain(control.encoder or "not recorded")} ({control.dimension} dimensions)
- **Left out, because they could not be encoded:** {_left_out(control)}
- **Similarity:** {plain(control.similarity.name)}
- **Fingerprint:** `{control.digest}`

{WARNINGS}
## Representatives

{_representatives(control)}
"""


def _left_out(control: ControlSet) -> str:
    return ", ".join(f"{number} of {plain(name)}" for name, number in control.left_out.items()) or "none"


def _representatives(control: ControlSet) -> str:
    if control.representative.sum() > LISTED_IDS:
        return f"See the column `representative` of `{TABLE}`."
    lines = []
    for group, name in enumerate(control.groups):
        ids = ", ".join(plain(control.ids[row]) for row in control.rows(group, representatives=True))
        lines.append(f"- {plain(name)}: {ids}")
    return "\n".join(lines)


def plain(text: str) -> str:
    r"""One line of Markdown without mark-up, links or mentions, whatever the name holds.

    >>> print(plain("a_b <i>"))
    a\_b \<i\>
    """
    line = printable(" ".join(text.split()))
    escaped = "".join(f"\\{c}" if c in "\\`*_{}[]<>#|~&@" else c for c in line)
    return escaped.replace("://", "\\://").replace("www.", "www\\.")


def croissant(control: ControlSet, table: Path) -> dict[str, Any]:
    """Describe a control set and its Parquet file as a Croissant 1.0 data set."""

    def field(name: str, kind: str, says: str, **more: Any) -> dict[str, Any]:
        source = {"fileObject": {"@id": TABLE}, "extract": {"column": name}}
        return {
            "@type": "cr:Field",
            "@id": f"examples/{name}",
            "name": name,
            "description": says,
            "dataType": kind,
            "source": source,
            **more,
        }

    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": f"Control set for {control.attribute}",
        "description": f"{len(control)} labelled examples of {', '.join(control.groups)}, for audits.",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": TABLE,
                "name": TABLE,
                "contentUrl": TABLE,
                "encodingFormat": "application/x-parquet",
                "sha256": hashlib.sha256(table.read_bytes()).hexdigest(),
            }
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "examples",
                "name": "examples",
                "field": [
                    field("id", "sc:Text", "What the example is called."),
                    field("group", "sc:Text", f"Its group of {control.attribute}."),
                    field("representative", "sc:Boolean", "Whether DivScore compares with it."),
                    field("embedding", "sc:Float", "Its feature vector.", repeated=True),
                ],
            }
        ],
    }
