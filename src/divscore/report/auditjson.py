"""The JSON document `divscore.audit/1`: one control set, any number of collections."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from divscore import __version__
from divscore.audit.missing import Gaps
from divscore.audit.result import Audit
from divscore.audit.trust import control_facts

__all__ = ["SCHEMA", "as_text", "document", "missing_from"]

SCHEMA = "divscore.audit/1"
# Raw line breaks stand between values only, never inside a JSON string.
NUMBERS = re.compile(r"\[\n\s+(?:-?\d[\d.e+-]*|null)(?:,\n\s+(?:-?\d[\d.e+-]*|null))*\n\s+\]")


def document(
    audits: Sequence[Audit], *, replicates: bool = False, missing: Gaps | None = None
) -> dict[str, Any]:
    """Join audits made with the same control set and options.

    With `replicates` (some 1.6 KB a collection) `divscore diff` can pair it with a later audit. `missing` is all that
    could not be read of the source, that of collections without an audit too; by default what the audits name.
    """
    first = audits[0]
    control = first.control
    facts = control_facts(control)
    return {
        "schema": SCHEMA,
        "version": __version__,
        "attribute": control.attribute,
        "groups": list(control.groups),
        "estimator": first.estimator,
        "confidence": first.confidence,
        "seed": first.seed,
        "encoder": control.encoder,
        "control": {
            "labelled": len(control),
            "representatives": int(control.representative.sum()),
            "counts": control.counts,
            "gamma": facts.separability.gamma,
            "gamma_control": facts.gamma_control,
            "method": control.method,
            "digest": control.digest,
            "left_out": control.left_out,
            "noisy_groups": list(first.noisy_groups),
        },
        "missing": missing_from(audits, missing).to_dict(),
        "collections": [
            # A sketch brings its own seed, and replicates of another seed are not those that the document names.
            audit.to_dict(replicates=replicates and audit.seed == first.seed)
            for audit in audits
        ],
    }


def missing_from(audits: Sequence[Audit], missing: Gaps | None) -> Gaps:
    """All that is missing from the source of some audits: as it is known, or else as they name it."""
    return Gaps.joined(audit.missing for audit in audits) if missing is None else missing


def as_text(found: dict[str, Any]) -> str:
    """JSON with an indent, lists of numbers on one line."""
    text = json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False)
    return NUMBERS.sub(
        lambda match: re.sub(r"\s*\n\s*", " ", match[0]).replace("[ ", "[").replace(" ]", "]"), text
    )
