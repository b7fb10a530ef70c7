"""Routers of page audits that people keep: the report, what is saved, and its evidence."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import wait
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field, StringConstraints
from starlette.exceptions import HTTPException
from starlette.responses import Response

from divscore import __version__
from divscore.errors import FileError, InputError
from divscore.web.collecting import REPORT_POLICY, ItemId, audit_entry
from divscore.web.pageaudits import audit_page, desk_of, page_rows
from divscore.web.workspace import Id, Space, Workspace, clean

MOST_PICTURE = 16 << 20  # bytes of a screenshot
MOST_SECONDS = 10.0  # that saving waits for items of other pages
router = APIRouter()


class Saving(BaseModel):
    """What to keep next to the audit."""

    screenshot: str | None = None
    pictures: Annotated[dict[ItemId, str], Field(max_length=2000)] = {}
    note: Annotated[str, StringConstraints(max_length=5000)] = ""
    run: Annotated[str, StringConstraints(max_length=200)] | None = None
    study: Annotated[str, StringConstraints(max_length=200)] | None = None
    part: Annotated[list[Annotated[int, Field(ge=-(2**31), le=2**31)]], Field(max_length=4)] | None = None


class PageSaved(BaseModel):
    """Where the audit and the evidence are, and how many of the items are in it as pictures."""

    audit: int
    evidence: str
    items: int
    pictures: int


@router.get("/page-audits/{page}/report", response_class=Response)
def show_page_report(page: Id, space: Space) -> Response:
    """The full report of a page as it is now; it is not kept."""
    kept, row = page_rows(space, page)
    try:
        audits = audit_page(space, kept, row)
    except InputError as error:
        raise HTTPException(409, str(error)) from error
    text = space.report_of(audits, inputs=[("Page", json.loads(kept["about"])["url"])])
    return Response(clean(text), media_type="text/html", headers={"Content-Security-Policy": REPORT_POLICY})


@router.post("/page-audits/{page}/save")
def save_page(page: Id, saving: Saving, space: Space, request: Request) -> PageSaved:
    """Keep the audit, and a record of what it is based on."""
    if desk_of(request).waiting.get(page, 0):
        raise HTTPException(409, "some items are not encoded yet; wait a moment")
    screenshot = _picture(saving.screenshot)
    # Items come and go on the thread of the encoder: there the record and the audit are about the same ones.
    saved = space.encoder.submit(_save, space, page, saving, screenshot)
    if wait([saved], MOST_SECONDS).not_done and saved.cancel():
        raise HTTPException(409, "items of other pages are being encoded; try again in a moment")
    return saved.result()


def _save(space: Workspace, page: int, saving: Saving, screenshot: bytes) -> PageSaved:
    from divscore.jobs.evidence import write_evidence

    kept, row = page_rows(space, page)
    order = space.store.rows(
        "SELECT rank, id, sha256, skip FROM members WHERE collection = ? ORDER BY rank, id", row["id"]
    )
    pictures = _pictures(order, saving.pictures)
    try:
        audits = audit_page(space, kept, row)
    except InputError as error:
        raise HTTPException(409, str(error)) from error
    about = json.loads(kept["about"])
    names = {"run": saving.run, "study": saving.study}  # they may have been given after the audit began
    about |= {name: value for name, value in names.items() if value is not None}
    number = space.keep_audit(audits, inputs=[("Page", about["url"])], note=saving.note, collection=row["id"])
    stored = space.one("audits", number)
    record = {
        **about,
        "mode": row["kind"],
        "began": kept["made"],
        "saved": stored["at"],
        "version": __version__,
        "control_digest": space.control(row["control"]).digest,
        "skipped": json.loads(kept["skipped"]),
        "note": saving.note,
        "part": saving.part,  # of the page, if a person drew a rectangle: left, top, right, bottom
        "items": [dict(each) for each in order],
    }
    evidence = write_evidence(
        record, stored["document"], stored["report"], screenshot=screenshot, pictures=pictures
    )
    space.store.write(
        "UPDATE pages SET audit = ?, evidence = ?, about = ? WHERE id = ?",
        *(number, evidence, json.dumps(about), page),
    )
    where = f"/api/v1/page-audits/{page}/evidence.zip"
    return PageSaved(audit=number, evidence=where, items=len(order), pictures=len(pictures))


def _pictures(order: Sequence[Any], given: dict[str, str]) -> list[tuple[int, bytes]]:
    """Pictures that are to be kept: exactly those that were audited."""
    known = {each["id"]: each for each in order}
    pictures = []
    for name, text in given.items():
        data = _decoded(text, f"the picture of item '{name}'")
        if name in known and hashlib.sha256(data).hexdigest() == known[name]["sha256"]:
            pictures.append((known[name]["rank"], data))
        elif name in known:
            raise HTTPException(422, f"the picture of item '{name}' is not the one that was audited")
    return sorted(pictures)


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise HTTPException(422, f"{what} is not valid base64") from error


def _picture(text: str | None) -> bytes:
    """The bytes of a screenshot; refuses what is no picture."""
    from divscore.sources.pictures import decode

    if not text:
        return b""
    try:
        data = base64.b64decode(text, validate=True)
        if len(data) > MOST_PICTURE:
            raise FileError(f"is larger than {MOST_PICTURE >> 20} MB")
        decode(data, enough=64)
    except (binascii.Error, ValueError) as error:  # FileError is one, too
        raise HTTPException(422, f"the screenshot cannot be read: {error}") from error
    return data


@router.get(
    "/page-audits/{page}/evidence.zip",
    response_class=Response,
    responses={200: {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}},
)
def download_evidence(page: Id, space: Space) -> Response:
    """The record of a saved page audit: what was seen when, its digests, the audit and its report."""
    kept = space.one("pages", page)
    if kept["evidence"] is None:
        raise HTTPException(404, "this page audit is not saved")
    name = f'attachment; filename="evidence-{page}.zip"'
    return Response(kept["evidence"], media_type="application/zip", headers={"Content-Disposition": name})


@router.get("/page-audits/{page}/audit")
def show_page_audit(page: Id, space: Space) -> dict[str, Any]:
    """The figures of the saved audit of a page."""
    kept = space.one("pages", page)
    if kept["audit"] is None:
        raise HTTPException(404, "this page audit is not saved")
    return audit_entry(space.one("audits", kept["audit"])).model_dump()
