"""A published control set for machines: Croissant 1.0, its RAI vocabulary, and words of our own for the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from divscore import __version__
from divscore.control.controlfile import croissant
from divscore.errors import FileError
from divscore.publishing.card import LIMITS, license_address
from divscore.publishing.objections import OBJECTIONS
from divscore.publishing.publication import Publication

__all__ = ["CROISSANT", "PREFIX", "SCHEMA", "described", "read_description"]

CROISSANT = "croissant.json"
CONFORMS = ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"]
PREFIX = "divscore"
NAMESPACE = "urn:divscore:control:"
SCHEMA = "divscore.publication/1"


def described(publication: Publication, table: Path) -> dict[str, Any]:
    """Describe an edition and its Parquet file; facts that nobody stated are left out."""
    base = croissant(publication.control, table)
    context = {
        **base["@context"],
        PREFIX: NAMESPACE,
        f"{PREFIX}:groups": {"@type": "@json"},
        f"{PREFIX}:measured": {"@type": "@json"},
    }
    about = publication.about
    return {
        "@context": context,
        "@type": base["@type"],
        "conformsTo": CONFORMS,
        "name": publication.title,
        "description": publication.summary,
        "version": f"{publication.edition}.0.0",
        "datePublished": publication.first_day,
        "dateModified": publication.day,
        "keywords": [publication.control.attribute, *publication.control.groups, "control set", "audit"],
        **_stated(license=license_address(about.license), citeAs=about.citation),
        **({"inLanguage": list(about.languages)} if about.languages else {}),
        **{f"rai:{name}": value for name, value in _responsible(publication).items()},
        **{f"{PREFIX}:{name}": value for name, value in _own(publication).items()},
        "distribution": base["distribution"],
        "recordSet": base["recordSet"],
    }


def read_description(folder: Path) -> dict[str, Any]:
    """Read what `described` gave; an error says what is wrong with the file."""
    file = folder / CROISSANT
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"{CROISSANT} cannot be read ({error})") from error
    if not isinstance(found, dict):
        raise FileError(f"{CROISSANT} does not describe a data set")
    return found


def _responsible(publication: Publication) -> dict[str, Any]:
    """What the RAI vocabulary has words for."""
    control, about = publication.control, publication.about
    encoded = (
        f"Each item became {control.dimension} numbers by: {control.encoder or 'an unrecorded encoder'}."
    )
    private = [f"Every example is labelled with its {control.attribute}.", publication.vectors_warning]
    basis = f"Basis of the labels: {about.basis}" if about.basis else ""
    chosen = f"The representatives were chosen by: {control.method}. Such a choice can favour stereotypes."
    objections = (
        f"Anybody can object in {OBJECTIONS}; CHANGELOG.md says what changed from edition to edition."
    )
    return {
        **_stated(dataCollection=about.source, dataCollectionMissingData=publication.lost),
        **_listed(
            dataPreprocessingProtocol=[encoded],
            dataAnnotationProtocol=[about.labelled_how, basis],
            annotatorDemographics=[about.labelled_by],
            dataLimitations=[*LIMITS, *publication.cautions, about.left_out],
            dataBiases=[about.biases, chosen],
            dataUseCases=[about.uses, f"Not for: {about.unsuitable}" if about.unsuitable else ""],
            personalSensitiveInformation=[*private, f"Consent: {about.consent}" if about.consent else ""],
        ),
        "dataReleaseMaintenancePlan": " ".join(filter(None, [about.maintenance, objections])),
    }


def _own(publication: Publication) -> dict[str, Any]:
    """What no vocabulary has words for."""
    control, about, sound = publication.control, publication.about, publication.sound
    rest = {} if sound.gamma_rest is None else {"gammaControlRest": round(sound.gamma_rest, 6)}
    return {
        "schema": SCHEMA,
        "softwareVersion": __version__,
        "edition": publication.edition,
        "attribute": control.attribute,
        **_stated(
            attributeDefinition=about.definition,
            labelBasis=about.basis,
            groupsLeftOut=about.left_out,
            itemsAvailable=about.items,
            consent=about.consent,
            unsuitableUses=about.unsuitable,
            publishedBy=about.publisher,
            contact=about.contact,
            encoder=control.encoder or "",
        ),
        "groups": publication.groups,
        "representativesMethod": control.method,
        "handPicked": control.hand_picked,
        "similarity": control.similarity.name,
        "dimension": control.dimension,
        "digest": control.digest,
        "gamma": round(sound.gamma, 6),
        "gammaControl": round(sound.gamma_control, 6),
        **rest,
        "toldApart": round(sound.auc, 6),
        "measured": publication.measured.to_dict(),
    }


def _stated(**answers: str) -> dict[str, str]:
    return {name: answer for name, answer in answers.items() if answer}


def _listed(**answers: list[str]) -> dict[str, list[str]]:
    return {name: kept for name, texts in answers.items() if (kept := [text for text in texts if text])}
