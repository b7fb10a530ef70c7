"""The JSON document `divscore.audit/1`: one control set, any number of collections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from divscore import __version__
from divscore.diagnostics import control_facts
from divscore.result import Audit

__all__ = ["SCHEMA", "document"]

SCHEMA = "divscore.audit/1"


def document(audits: Sequence[Audit]) -> dict[str, Any]:
    """Join audits made with the same control set and options."""
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
        },
        "collections": [audit.to_dict() for audit in audits],
    }
