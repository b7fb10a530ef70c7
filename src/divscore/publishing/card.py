"""Descriptions of a published control set: README.md for people, croissant.json for machines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import msgspec

from divscore import __version__
from divscore.control.controlfile import TABLE, croissant
from divscore.files import read_json, templates
from divscore.publishing.objections import OBJECTIONS, WHOLE
from divscore.publishing.publication import Publication, group_numbers
from divscore.text import escape_markdown, printable

README, CROISSANT = "README.md", "croissant.json"
SCHEMA = "divscore.publication/1"
ADDRESS = re.compile(r"(https?://[^\s<>]+[^\s<>.,;:!?)\]'\"])")
LIMITS = [
    "The groups were defined in advance. No result describes people who fit none of them, or several.",
    "Examples that were chosen because they are typical can carry stereotypes; an audit then measures the stereotype. "
    "Look at the examples, and object if they are wrong, biased or hurtful.",
    "Results are about a collection as a whole. Do not use the examples to assign a group to an individual.",
]
# Licenses that the Hugging Face hub knows by name (lower case), as SPDX identifiers.
SPDX = (
    "Apache-2.0 CC0-1.0 CC-BY-2.0 CC-BY-3.0 CC-BY-4.0 CC-BY-SA-3.0 CC-BY-SA-4.0 CC-BY-NC-4.0 CC-BY-NC-ND-4.0 "
    "CC-BY-NC-SA-4.0 CC-BY-ND-4.0 CDLA-Permissive-1.0 CDLA-Permissive-2.0 CDLA-Sharing-1.0 MIT"
)
LICENSES = {name.lower(): name for name in SPDX.split()}
LICENSES |= {"odbl": "ODbL-1.0", "odc-by": "ODC-By-1.0", "pddl": "PDDL-1.0"}
SIZES = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 1_000_000: "100K<n<1M"}


def card_section(publication: Publication) -> str:
    """Describe a control set in a section for the card of another data set or model."""
    return _rendered("section.md.j2", publication)


def readme(publication: Publication, digest: str) -> str:
    """The dataset card, with the header that the Hugging Face hub reads; `digest` is over all other files."""
    return _rendered("README.md.j2", publication, digest=digest)


def _rendered(template: str, publication: Publication, **more: str) -> str:
    environment = templates("divscore.publishing")
    environment.filters |= {"plain": escape_markdown, "prose": _prose, "quoted": _quoted}
    control, sound = publication.control, publication.sound
    rest = "" if sound.gamma_rest is None else f" ({sound.gamma_rest:.3f} on the other examples)"
    return environment.get_template(template).render(
        publication=publication,
        control=control,
        about=publication.about,
        representatives=int(control.representative.sum()),
        rows=[counts_row(name, **numbers) for name, numbers in group_numbers(control).items()],
        gammas=f"γ = {sound.gamma:.3f} on all examples, γ^(T) = {sound.gamma_control:.3f} on the representatives"
        f"{rest}; two examples of different groups are distinguished without their labels in {sound.auc:.1%} of cases "
        "(50% is chance)",
        limits=LIMITS,
        license=_license(publication.about.license),
        size=next((name for limit, name in SIZES.items() if len(control) < limit), "1M<n<10M"),
        table=TABLE,
        objections=OBJECTIONS,
        whole=WHOLE,
        **more,
    )


def counts_row(name: str, labelled: int, representatives: int) -> str:
    """One line of the table of groups."""
    return f"| {escape_markdown(name)} | {labelled} | {representatives} |"


def _prose(answer: str) -> str:
    """An answer as one paragraph of plain text, in which web addresses stay links."""
    parts = ADDRESS.split(" ".join(answer.split()))
    text = "".join(f"<{part}>" if at % 2 else _spaced(part) for at, part in enumerate(parts))
    return text or "*not stated*"


def _spaced(text: str) -> str:
    """Plain text with the spaces at its ends."""
    return f"{' ' * text.startswith(' ')}{escape_markdown(text)}{' ' * (text.endswith(' ') and bool(text.strip()))}"


def _quoted(text: str) -> str:
    """A string in YAML, which reads JSON's."""
    return json.dumps(printable(" ".join(text.split())), ensure_ascii=False)


def _license(text: str) -> list[str]:
    if not text:
        return ["license: unknown"]
    if text.lower() in LICENSES:
        return [f"license: {text.lower()}"]
    if re.fullmatch(r"https?://\S+", text):
        return ["license: other", "license_name: see-link", f"license_link: {_quoted(text)}"]
    name = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")[:40]
    return ["license: other", f"license_name: {_quoted(name or 'other')}"]


# Croissant 1.0, its RAI vocabulary, and terms of our own for the rest.


class Description(msgspec.Struct, frozen=True):
    """The facts that are read back from croissant.json, which anybody may have edited."""

    first_day: str = msgspec.field(name="datePublished", default="")
    distribution: list[dict[str, Any]] = []
    schema: str = msgspec.field(name="divscore:schema", default="")
    edition: Annotated[int, msgspec.Meta(ge=0, le=10**9)] = msgspec.field(name="divscore:edition", default=0)
    groups: dict[str, dict[str, int]] = msgspec.field(name="divscore:groups", default_factory=dict)
    digest: str = msgspec.field(name="divscore:digest", default="")
    method: str = msgspec.field(name="divscore:representativesMethod", default="")
    measured: dict[str, Any] = msgspec.field(name="divscore:measured", default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Description:
        """Read it from a published folder; an error says what is wrong with the file."""
        return read_json(cls, (folder / CROISSANT).read_bytes(), CROISSANT)


def described(publication: Publication, table: Path) -> dict[str, Any]:
    """Describe an edition and its Parquet file; facts that nobody stated are not mentioned."""
    control, about, sound = publication.control, publication.about, publication.sound
    base = croissant(control, table)
    counts = ", ".join(f"{n} {name}" for name, n in control.counts.items())
    encoder = control.encoder or "an unrecorded encoder"
    spdx = LICENSES.get(about.license.lower())
    document = {
        "@context": {
            **base["@context"],
            "divscore": "urn:divscore:control:",
            "divscore:groups": {"@type": "@json"},
            "divscore:measured": {"@type": "@json"},
        },
        "@type": base["@type"],
        "conformsTo": ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": publication.title,
        "description": f"{len(control)} labelled examples of {control.attribute} ({counts}), for audits.",
        "version": f"{publication.edition}.0.0",
        "datePublished": publication.first_day,
        "dateModified": publication.day,
        "keywords": [control.attribute, *control.groups, "control set", "audit"],
        "license": f"https://spdx.org/licenses/{spdx}.html" if spdx else about.license,
        "citeAs": about.citation,
        "inLanguage": about.languages,
        "rai:dataCollection": about.source,
        "rai:dataCollectionMissingData": publication.not_encoded,
        "rai:dataPreprocessingProtocol": [
            f"Each item was encoded as {control.dimension} numbers by: {encoder}."
        ],
        "rai:dataAnnotationProtocol": [
            about.labelled_how,
            about.basis and f"Basis of the labels: {about.basis}",
        ],
        "rai:annotatorDemographics": [about.labelled_by],
        "rai:dataLimitations": [*LIMITS, *publication.cautions, about.left_out],
        "rai:dataBiases": [
            about.biases,
            f"The representatives were chosen by: {control.method}. Such a choice can favour stereotypes.",
        ],
        "rai:dataUseCases": [about.uses, about.unsuitable and f"Not for: {about.unsuitable}"],
        "rai:personalSensitiveInformation": [
            f"Every example is labelled with its {control.attribute}.",
            publication.vectors_warning,
            about.consent and f"Consent: {about.consent}",
        ],
        "rai:dataReleaseMaintenancePlan": (
            f"{about.maintenance} Anybody can object in {OBJECTIONS}; CHANGELOG.md lists the changes of each edition."
        ).lstrip(),
        "divscore:schema": SCHEMA,
        "divscore:softwareVersion": __version__,
        "divscore:edition": publication.edition,
        "divscore:attribute": control.attribute,
        "divscore:attributeDefinition": about.definition,
        "divscore:labelBasis": about.basis,
        "divscore:groupsLeftOut": about.left_out,
        "divscore:itemsAvailable": about.items,
        "divscore:consent": about.consent,
        "divscore:unsuitableUses": about.unsuitable,
        "divscore:publishedBy": about.publisher,
        "divscore:contact": about.contact,
        "divscore:encoder": control.encoder,
        "divscore:groups": group_numbers(control),
        "divscore:representativesMethod": control.method,
        "divscore:handPicked": control.hand_picked,
        "divscore:similarity": control.similarity.name,
        "divscore:dimension": control.dimension,
        "divscore:digest": control.digest,
        "divscore:gamma": round(sound.gamma, 6),
        "divscore:gammaControl": round(sound.gamma_control, 6),
        "divscore:gammaControlRest": None if sound.gamma_rest is None else round(sound.gamma_rest, 6),
        "divscore:toldApart": round(sound.auc, 6),
        "divscore:measured": publication.measured.to_dict(),
        "distribution": base["distribution"],
        "recordSet": base["recordSet"],
    }
    stated = {k: [part for part in v if part] if isinstance(v, list) else v for k, v in document.items()}
    return {key: value for key, value in stated.items() if value not in (None, "", [])}
