"""Routers of control sets: how they are made, the choice of representatives, and their map."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from divscore.errors import InputError
from divscore.jobs.pool import Progress, Warn
from divscore.web.questions import Question, finished_draw
from divscore.web.store import now
from divscore.web.workspace import PUBLISHED, Given, Id, Line, Name, Space, Started, Workspace, clean

if TYPE_CHECKING:
    from divscore.control.controlset import ControlSet

MOST_FITTED = 1000  # examples that the plane of the map is fitted on
router = APIRouter()
Row = Annotated[int, Field(ge=0, le=10**9)]
Size = Annotated[int, Field(ge=2, le=100_000)]
Alpha = Annotated[float, Field(ge=0, le=1000)]
Pair = Annotated[list[float], Field(min_length=2, max_length=2)]


class ControlEntry(BaseModel):
    """A control set in the list."""

    id: int
    name: str
    attribute: str
    groups: list[str]
    counts: dict[str, int]
    labelled: int
    representatives: int
    method: str
    encoder: str | None
    kinds: list[Literal["image", "text", "vectors"]]
    digest: str
    made: str
    project: int | None
    published: bool


class NewControl(Given):
    """Labelled examples among the sources: a table with a column of group names, or one sub-folder for each group."""

    source: Id
    column: Name | None = None
    attribute: Name | None = None
    name: Name | None = None


class Map(BaseModel):
    """Labelled examples in the plane in which they vary most; rows are those of the control set."""

    points: list[Pair]
    groups: list[int]
    labels_of: list[str]
    ids: list[str]
    explained: Pair


class ByHand(Given):
    """An example that a person added or dropped, and why."""

    row: Row
    reason: Line = ""


class Selection(Given):
    """How to choose representatives: Algorithm 2, and changes by hand."""

    size: Size
    alpha: Alpha
    added: Annotated[list[ByHand], Field(max_length=1000, default_factory=list)]
    dropped: Annotated[list[ByHand], Field(max_length=1000, default_factory=list)]


class Gaps(BaseModel):
    """Labelled examples that no representative is near to."""

    count: int
    of: int
    rows: list[int]


class Selected(BaseModel):
    """The representatives, and what they leave out."""

    representatives: list[int]
    by_group: dict[str, list[int]]
    gaps: Gaps
    gamma: float | None
    gamma_control: float | None


class NewChoice(Selection):
    """A selection with a name."""

    name: Name


class Choice(NewChoice):
    """A selection that was kept."""

    id: int
    made: str


class ChoiceComparison(BaseModel):
    """Two choices: what they have in common, and what only one of them has."""

    a: Selected
    b: Selected
    both: list[int]
    only_a: list[int]
    only_b: list[int]


def published_folder(space: Workspace, control: int) -> Path | None:
    """Where the published edition of a control set is; None before the first."""
    from divscore.publishing.edition import is_published

    for folder in (space.folder / PUBLISHED / str(control), Path(space.control_path(control))):
        if is_published(folder):
            return folder
    return None


def described_control(space: Workspace, number: int) -> ControlEntry:
    """A control set as the list shows it."""
    from divscore.report.examples import kinds_of

    row, control = space.one("controls", number), space.control(number)
    return ControlEntry(
        id=number,
        name=row["name"],
        attribute=control.attribute,
        groups=list(control.groups),
        counts=control.counts,
        labelled=len(control),
        representatives=int(control.representative.sum()),
        method=control.method,
        encoder=control.encoder,
        kinds=[*kinds_of(control.encoder), "vectors"],
        digest=control.digest,
        made=row["made"],
        project=row["project"],
        published=published_folder(space, number) is not None,
    )


@router.get("/control-sets")
def list_controls(space: Space) -> list[ControlEntry]:
    """All control sets."""
    rows = space.store.rows("SELECT id FROM controls ORDER BY id LIMIT 1000")
    return [described_control(space, row["id"]) for row in rows]


@router.post("/control-sets", status_code=202)
def read_examples(new: NewControl, space: Space) -> Started:
    """Make a control set of labelled examples; the job's result has its number."""
    path = space.source_path(new.source)

    def work(progress: Progress, warn: Warn) -> dict[str, Any]:
        from divscore.jobs.pool import read_control

        with space.encoding() as encoding:
            reading: dict[str, Any] = {"attribute": new.attribute, "column": new.column}
            control = read_control(path, encoding, **reading, progress=progress, warn=warn)
            return {"control": space.save_control(control, new.name or control.attribute, encoding)}

    return space.begin("control", work, "/control-sets", new)


@router.post("/projects/{project}/control", status_code=202)
def make_control(project: Id, space: Space) -> Started:
    """Make a control set of the labelled items of a project, once all drawn ones have an answer."""
    from divscore.web.answers import settled_labels

    question = Question.of(space, project)
    draw = finished_draw(space, question, settled_labels(space, project))
    path = space.source_path(question.source)

    def work(progress: Progress, warn: Warn) -> dict[str, Any]:
        from divscore.jobs.labels import labelled_examples

        with space.encoding() as encoding:
            column = question.column
            control = labelled_examples(path, draw, encoding, column=column, progress=progress, warn=warn)
            return {"control": space.save_control(control, question.name, encoding, project=project)}

    return space.begin("control", work, f"/projects/{project}/control")


@router.get("/control-sets/{control}")
def show_control(control: Id, space: Space) -> ControlEntry:
    """One control set."""
    return described_control(space, control)


@router.delete("/control-sets/{control}", status_code=204, response_model=None, response_class=Response)
def remove_control(control: Id, space: Space) -> None:
    """Remove a control set from the project, unless something uses it; folders from elsewhere stay on the disk."""
    space.one("controls", control)
    for table in ("projects", "collections"):
        if used := space.store.number(f"SELECT count(*) FROM {table} WHERE control = ?", control):
            raise HTTPException(409, f"{used} {table} use this control set; remove them first")
    space.forget_control(control)


# The map


@router.get("/control-sets/{control}/map")
def show_map(control: Id, space: Space) -> Map:
    """The labelled examples in a plane (PCA); items that nobody labelled are not on it."""
    pool = space.control(control)
    points, explained = pool.once(plane)
    return Map(
        points=points,
        groups=pool.labels.tolist(),
        labels_of=list(pool.groups),
        ids=[clean(name) for name in pool.ids],
        explained=explained,
    )


def plane(control: ControlSet) -> tuple[list[list[float]], list[float]]:
    """Examples in the plane of their two principal components, and the share of the variance along each."""
    from divscore.jobs.projection import Projection

    units = control.units
    fitted = units
    if len(units) > MOST_FITTED:
        fitted = units[np.random.default_rng(0).choice(len(units), MOST_FITTED, replace=False)]
    try:
        points = Projection.fit(fitted, 2, "map").apply(units)
    except InputError:  # they vary in one direction only, or have two numbers
        points = np.zeros((len(units), 2), dtype=np.float32)
        points[:, : units.shape[1]] = (units - units.mean(axis=0))[:, :2]
    total = float(units.var(axis=0).sum()) or 1.0
    first, second = (float(value) / total for value in points.var(axis=0))
    return points.astype(float).tolist(), [min(first, 1.0), min(second, 1.0)]


# The choice of representatives


def chosen(pool: ControlSet, selection: Selection) -> ControlSet:
    """The pool with the representatives of a selection."""
    from divscore.control.selection import select_adaptive

    selected = select_adaptive(pool, selection.size, alpha=selection.alpha)
    added, dropped = ({each.row for each in own} for own in (selection.added, selection.dropped))
    if max({*added, *dropped}, default=0) >= len(pool):
        raise HTTPException(422, f"there are {len(pool)} labelled examples, with rows from 0")
    if not added and not dropped:
        return selected
    rows = ({*np.flatnonzero(selected.representative).tolist()} | added) - dropped
    by_hand = f"{selected.method}; by hand {len(added)} added, {len(dropped)} dropped"
    return pool.with_representatives(sorted(rows), by_hand)


def described_selection(pool: ControlSet, control: ControlSet) -> Selected:
    """Representatives of a control set by group, and the examples far from all of them."""
    from divscore.audit.trust import control_facts, uncovered_rows
    from divscore.control.theory import Reference
    from divscore.text import finite

    gaps = uncovered_rows(control).tolist()
    return Selected(
        representatives=np.flatnonzero(control.representative).tolist(),
        by_group={
            name: control.rows(at, representatives=True).tolist() for at, name in enumerate(control.groups)
        },
        gaps=Gaps(count=len(gaps), of=len(control), rows=gaps),
        gamma=finite(control_facts(pool).separability.gamma),
        gamma_control=finite(Reference.of(control).gamma),
    )


@router.post("/control-sets/{control}/selection")
def select(control: Id, selection: Selection, space: Space) -> Selected:
    """Choose representatives, without keeping the choice."""
    pool = space.control(control)
    return described_selection(pool, chosen(pool, selection))


def _choice(row: Any) -> Choice:
    lists = {name: json.loads(row[name]) for name in ("added", "dropped")}
    return Choice(**{name: row[name] for name in ("id", "name", "size", "alpha", "made")}, **lists)


@router.get("/control-sets/{control}/choices")
def list_choices(control: Id, space: Space) -> list[Choice]:
    """Choices that were kept."""
    space.one("controls", control)
    rows = space.store.rows("SELECT * FROM choices WHERE control = ? ORDER BY id LIMIT 1000", control)
    return [_choice(row) for row in rows]


@router.post("/control-sets/{control}/choices", status_code=201)
def keep_choice(control: Id, choice: NewChoice, space: Space) -> Choice:
    """Keep a choice under a name, with the reasons of what was changed by hand."""
    chosen(space.control(control), choice)  # refuses what cannot be chosen
    lists = [json.dumps([each.model_dump() for each in own]) for own in (choice.added, choice.dropped)]
    number = space.store.write(
        "INSERT INTO choices (control, name, size, alpha, added, dropped, made) VALUES (?, ?, ?, ?, ?, ?, ?)",
        *(control, choice.name, choice.size, choice.alpha, *lists, now()),
    )
    return _choice(space.one("choices", number))


def kept_choice(space: Workspace, control: int, choice: int) -> Choice:
    """A choice of this control set, or 404."""
    row = space.one("choices", choice)
    if row["control"] != control:
        raise HTTPException(404, f"there is no choice {choice} of control set {control}")
    return _choice(row)


@router.delete("/control-sets/{control}/choices/{choice}", status_code=204)
def remove_choice(control: Id, choice: Id, space: Space) -> None:
    """Remove a choice that was kept."""
    kept_choice(space, control, choice)
    space.store.write("DELETE FROM choices WHERE id = ?", choice)


@router.get("/control-sets/{control}/choices/compare")
def compare_choices(
    control: Id, a: Annotated[Id, Query()], b: Annotated[Id, Query()], space: Space
) -> ChoiceComparison:
    """What two choices have in common."""
    pool = space.control(control)
    first, second = (
        described_selection(pool, chosen(pool, kept_choice(space, control, each))) for each in (a, b)
    )
    rows_a, rows_b = set(first.representatives), set(second.representatives)
    return ChoiceComparison(
        a=first,
        b=second,
        both=sorted(rows_a & rows_b),
        only_a=sorted(rows_a - rows_b),
        only_b=sorted(rows_b - rows_a),
    )
