"""Routers of audits: what was audited and when, their reports, and how two of them differ."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from divscore.web.answers import blind_projects
from divscore.web.collecting import REPORT_POLICY, AuditEntry, audit_entry
from divscore.web.questions import MaybeAnnotator
from divscore.web.workspace import Id, Space, Workspace, clean

router = APIRouter()


@router.get("/collections/{collection}/audits")
def show_history(collection: Id, space: Space) -> list[AuditEntry]:
    """All audits of a collection, the oldest first."""
    space.one("collections", collection)
    rows = space.store.rows(
        "SELECT * FROM (SELECT id, name, at, project, collection, document FROM audits WHERE collection = ? "
        "ORDER BY id DESC LIMIT 1000) ORDER BY id",
        collection,
    )
    return [audit_entry(row) for row in rows]


@router.get("/audits")
def list_audits(space: Space, annotator: MaybeAnnotator = None) -> list[AuditEntry]:
    """All audits, the newest first; without those that come from labels to which this annotator is still blind."""
    hidden = blind_projects(space, annotator) if annotator else set()
    rows = space.store.rows(
        "SELECT audits.id, audits.name, at, audits.project, collection, document, controls.project AS labels "
        "FROM audits LEFT JOIN collections ON collections.id = collection LEFT JOIN controls ON controls.id = control "
        "ORDER BY audits.id DESC LIMIT 500"
    )
    return [audit_entry(row) for row in rows if not hidden & {row["project"], row["labels"]}]


def _difference(space: Workspace, before: int, after: int) -> tuple[dict[str, Any], str]:
    from divscore.audit.change import compare_documents
    from divscore.audit.document import parse_document
    from divscore.report.changes import change_document, change_table

    first, second = (
        parse_document(str(space.one("audits", number)["document"]), f"audit {number}")
        for number in (before, after)
    )
    changes = compare_documents(first, second)
    return change_document(changes), change_table(changes)


@router.get("/audits/difference")
def show_difference(
    before: Annotated[Id, Query()], after: Annotated[Id, Query()], space: Space
) -> dict[str, Any]:
    """What changed between two audits, as `divscore diff --json` writes it."""
    return _difference(space, before, after)[0]


@router.get(
    "/audits/difference/report",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def show_difference_report(
    before: Annotated[Id, Query()], after: Annotated[Id, Query()], space: Space
) -> Response:
    """What changed between two audits, as `divscore diff` prints it."""
    document, table = _difference(space, before, after)
    text = "\n\n".join([document["headline"], table, *document["notes"]])
    return Response(clean(text), media_type="text/plain; charset=utf-8")


@router.get("/audits/{audit}")
def show_audit(audit: Id, space: Space) -> dict[str, Any]:
    """An audit as `divscore audit --json` writes it (divscore.audit/1)."""
    document: dict[str, Any] = json.loads(space.one("audits", audit)["document"])
    return document


@router.get(
    "/audits/{audit}/report",
    response_class=Response,
    responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
)
def show_report(audit: Id, space: Space) -> Response:
    """The report of `divscore audit --report`."""
    row = space.one("audits", audit)
    return Response(row["report"], media_type="text/html", headers={"Content-Security-Policy": REPORT_POLICY})


@router.delete("/audits/{audit}", status_code=204, response_model=None, response_class=Response)
def remove_audit(audit: Id, space: Space) -> None:
    """Remove an audit."""
    space.one("audits", audit)
    space.store.write("DELETE FROM audits WHERE id = ?", audit)
