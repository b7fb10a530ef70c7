"""Routers of labels as a table: one row for each label, or for each drawn item; and back into a project."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from divscore.jobs.drawfile import guarded, unguarded
from divscore.web.answers import apply_changes, check_sight, settled_labels
from divscore.web.questions import SKIP, UNSURE, MaybeAnnotator, Question, finished_draw
from divscore.web.store import moment
from divscore.web.workspace import PLAIN, Id, Space, Workspace, clean

COLUMNS = ("item", "annotator", "group", "time", "item_digest", "row")
router = APIRouter()


class Imported(BaseModel):
    """What became of the rows of a table."""

    saved: int
    unchanged: int
    unknown: int


@router.get(
    "/projects/{project}/labels.csv",
    response_class=Response,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
def export_labels(project: Id, space: Space, request: Request, annotator: MaybeAnnotator = None) -> Response:
    """All labels, one row each: item, annotator, group, time.

    A browser says for whom it asks, and gets 409 as long as that annotator has items left; programs need not.
    """
    Question.of(space, project)
    _check_reader(space, project, request, annotator)
    stream = io.StringIO(newline="")
    table = csv.writer(stream)
    table.writerow(COLUMNS)
    for row in space.store.rows(
        "SELECT design, annotator, label, at FROM labels JOIN items ON items.id = item "
        "WHERE project = ? AND label IS NOT NULL ORDER BY number, annotator",
        project,
    ):
        design = json.loads(row["design"])
        cells = (design["id"], row["annotator"], row["label"], row["at"], design["digest"], design["row"])
        table.writerow([guarded(cell) for cell in cells])
    return _table(stream.getvalue(), f"labels-{project}.csv")


@router.get(
    "/projects/{project}/sample.csv",
    response_class=Response,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
def export_sample(project: Id, space: Space, request: Request, annotator: MaybeAnnotator = None) -> Response:
    """The labelled sample, one row for each drawn item: what `divscore audit --labelled-sample` reads.

    `annotator` is as for the table of labels.
    """
    Question.of(space, project)
    _check_reader(space, project, request, annotator)
    draw = finished_draw(space, Question.of(space, project), settled_labels(space, project))
    return _table(draw.csv(), f"sample-{project}.csv")


def _check_reader(space: Workspace, project: int, request: Request, annotator: str | None) -> None:
    if annotator is not None:
        check_sight(space, project, annotator)
    elif request.scope["role"] == "person":
        raise HTTPException(422, "say who asks: add ?annotator= and your name to the address")


def _table(text: str, name: str) -> Response:
    return Response(
        clean(text),
        media_type="text/csv",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@router.put(
    "/projects/{project}/labels.csv",
    openapi_extra={
        "requestBody": {"content": {"text/csv": {"schema": {"type": "string"}}}, "required": True}
    },
)
async def import_labels(project: Id, request: Request, space: Space) -> Imported:
    """Add the labels of a table with the columns item, annotator, group and time; the later label counts."""
    try:
        text = (await request.body()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HTTPException(422, "the table is not UTF-8 text") from error
    return await run_in_threadpool(_import, space, project, text)


def _import(space: Workspace, project: int, text: str) -> Imported:
    question = Question.of(space, project)
    try:
        table = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        rows = [{(name or "").strip().casefold(): cell for name, cell in row.items()} for row in table]
    except (csv.Error, AttributeError) as error:
        raise HTTPException(422, f"the table cannot be read: {error}") from error
    if not {*COLUMNS[:4]} <= {(name or "").strip().casefold() for name in table.fieldnames or ()}:
        raise HTTPException(422, f"the table needs the columns {', '.join(COLUMNS[:4])}")
    places = _places(space, project)
    present = {
        tuple(row)
        for row in space.store.rows(
            "SELECT item, annotator, label, at FROM labels JOIN items ON items.id = item WHERE project = ?",
            project,
        )
    }
    allowed = {name.casefold(): name for name in (*question.groups, SKIP, UNSURE)}
    known: dict[str, list[tuple[str, int, str | None, str]]] = {}
    unknown = 0
    for line, row in enumerate(rows, start=2):
        cells = {name: unguarded((row.get(name) or "").strip()) for name in COLUMNS}
        item = places.get((cells["item_digest"], cells["row"])) or places.get((cells["item"], ""))
        label = allowed.get(cells["group"].casefold())
        if label is None:
            raise HTTPException(422, f"line {line}: '{cells['group']}' is not a label of this project")
        if not re.fullmatch(PLAIN, cells["annotator"]) or not 1 <= len(cells["annotator"]) <= 200:
            raise HTTPException(422, f"line {line}: the annotator needs a name of 1 to 200 plain characters")
        if item is None:
            unknown += 1
            continue
        at = _time(cells["time"], line)
        if (item, cells["annotator"], label, at) in present:
            continue
        # The same row again is the same change.
        key = f"csv:{item}:{cells['annotator']}:{at}:{label}"
        known.setdefault(cells["annotator"], []).append((key, item, label, at))
    new = sum(apply_changes(space, project, annotator, own) for annotator, own in known.items())
    return Imported(saved=new, unchanged=len(rows) - unknown - new, unknown=unknown)


def _places(space: Workspace, project: int) -> Mapping[tuple[str, str], int]:
    """Items by digest and row, and by their names where these differ."""
    places: dict[tuple[str, str], int] = {}
    names: dict[str, list[int]] = {}
    for row in space.store.rows("SELECT id, design FROM items WHERE project = ?", project):
        design = json.loads(row["design"])
        places[design["digest"], str(design["row"])] = row["id"]
        names.setdefault(design["id"], []).append(row["id"])
    return places | {(name, ""): own[0] for name, own in names.items() if len(own) == 1}


def _time(text: str, line: int) -> str:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise HTTPException(
            422, f"line {line}: '{text}' is not a time such as 2026-01-31T12:00:00Z"
        ) from error
    return moment(time if time.tzinfo else time.replace(tzinfo=UTC))
