"""Routers of what labels give: the width to expect before they are there, and the audit after."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from divscore.jobs.pool import Progress, Warn
from divscore.web.questions import Question, finished_draw, project_draw
from divscore.web.workspace import Id, Space, Started, Workspace

if TYPE_CHECKING:
    from divscore.audit.planning import LabelPlan

EXPECTED = (30, 60, 100, 200, 400)  # numbers of labels for which a width is shown
router = APIRouter()
Width = Annotated[float, Query(gt=0, lt=2)]


class Expectation(BaseModel):
    """A number of labels, and the width of the interval that it is expected to give."""

    labels: int
    width: float


class PlanView(BaseModel):
    """How many labels a width takes."""

    labels: int | None
    width: float
    items: int | None
    basis: str
    expected: list[Expectation]


def outlook_of(space: Workspace, question: Question) -> LabelPlan | None:
    """What is known about widths and numbers of labels; None as long as the number of items is unknown.

    Before any item is labelled, that is the worst case of a simple sample; `improve_plan` uses the first labels.
    """
    from divscore.audit.planning import LabelPlan

    drawn = space.store.row(
        "SELECT json_extract(design, '$.size') AS size FROM items WHERE project = ? LIMIT 1", question.id
    )
    items = drawn["size"] if drawn else _items(space, question.source)
    if not items:
        return None
    if not question.plan:
        return _worst_case(items, question.attribute)
    points = tuple((int(labels), float(variance)) for labels, variance in question.plan["points"])
    way = str(question.plan["way"])
    return LabelPlan(question.attribute, items, int(question.plan["groups"]), 0.95, way, {way: points})


def _items(space: Workspace, source: int) -> int | None:
    known = space.described.get(source)
    return known.items if known else None


def _worst_case(items: int, attribute: str = "") -> LabelPlan:
    from divscore.audit.planning import SIMPLE, LabelPlan

    return LabelPlan(attribute, items, 2, 0.95, SIMPLE, {SIMPLE: ((1, 1.0),)})


@router.get("/projects/{project}/plan")
def plan_project(project: Id, space: Space, width: Width = 0.15) -> PlanView:
    """How many labels an interval of this width takes, and which widths to expect."""
    return _described_plan(outlook_of(space, Question.of(space, project)), width)


@router.get("/sources/{source}/plan")
def plan_source(source: Id, space: Space, width: Width = 0.15) -> PlanView:
    """The same before there is a project: the worst case of a simple sample."""
    space.source_path(source)
    items = _items(space, source)
    return _described_plan(_worst_case(items) if items else None, width)


def _described_plan(outlook: LabelPlan | None, width: float) -> PlanView:
    from divscore.audit.planning import FEWEST_LABELS

    if outlook is None:
        return PlanView(labels=None, width=width, items=None, basis="nothing", expected=[])
    way = outlook.basis
    numbers = [n for n in EXPECTED if n <= outlook.items] or [max(outlook.items, FEWEST_LABELS)]
    return PlanView(
        labels=outlook.labels(width, way),
        width=width,
        items=outlook.items,
        basis=way,
        expected=[Expectation(labels=n, width=outlook.width(n, way)) for n in numbers],
    )


@router.post("/projects/{project}/plan", status_code=202)
def improve_plan(project: Id, space: Space) -> Started:
    """Plan with what is known: the control set, or the first labels (at least ten). It says nothing about shares."""
    from divscore.web.answers import settled_labels

    question = Question.of(space, project)
    if question.by is not None:
        raise HTTPException(409, "a project about parts of a collection has the plan of a simple sample only")
    labels = settled_labels(space, project)
    draw = project_draw(space, question, labels) if question.control is None else None
    path = space.source_path(question.source)
    control = None if question.control is None else space.control_path(question.control)

    def work(progress: Progress, warn: Warn) -> dict[str, Any]:
        from divscore.jobs.labelplan import plan_collection

        options: dict[str, Any] = {
            "groups": question.groups,
            "column": question.column,
            "seed": question.seed,
        }
        with space.encoding() as encoding:
            outlook = plan_collection(
                path, encoding, control=control, sample=draw, **options, progress=progress, warn=warn
            )
        way = list(outlook.variances)[
            -2 if len(outlook.variances) > 1 else -1
        ]  # the best; the last is the simple one
        plan = {"way": way, "points": outlook.variances[way], "groups": outlook.groups}
        space.store.write("UPDATE projects SET plan = ? WHERE id = ?", json.dumps(plan), project)
        return {"basis": outlook.basis}

    return space.begin("plan", work)


@router.post("/projects/{project}/audit", status_code=202)
def audit_project(project: Id, space: Space) -> Started:
    """Audit the collection with its labels, once all drawn items have an answer; earlier, it does not hold."""
    from divscore.web.answers import labels_mark, labels_note, settled_labels

    question = Question.of(space, project)
    labels = settled_labels(space, project)
    draw = finished_draw(space, question, labels)
    mark, note = labels_mark(len(draw), labels), labels_note(space, question)
    path = space.source_path(question.source)
    control = None if question.control is None else space.control_path(question.control)

    def work(progress: Progress, warn: Warn) -> dict[str, Any]:
        from divscore.jobs.auditing import audit_source

        with space.encoding() as encoding:
            audits = audit_source(
                path,
                control,
                sample=draw,
                groups=question.groups,
                attribute=question.attribute,
                column=question.column,
                by=question.by,
                seed=question.seed,
                target=question.target,
                target_source=question.target_source,
                encoder=encoding,
                progress=progress,
                warn=warn,
            )
        read = [("Collection", path)]
        about: dict[str, Any] = {"inputs": read, "note": note, "project": project, "labels": mark}
        name = space.one("sources", question.source)["name"] if question.by else None
        return {"audit": space.keep_audit(audits, name=name, **about)}

    return space.begin("audit", work, f"/projects/{project}/audit")
