"""Routers of control sets: labelled examples, the choice of representatives, their map, and publication."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, StringConstraints
from starlette.exceptions import HTTPException
from starlette.responses import Response

from divscore.errors import InputError
from divscore.jobs.pool import Progress, Warn
from divscore.publishing.about import QUESTIONS, About
from divscore.web.questions import PICTURES, Question, finished_draw
from divscore.web.store import now
from divscore.web.workspace import PUBLISHED, Id, Line, Name, Space, Started, Workspace, clean

if TYPE_CHECKING:
    from divscore.control.controlset import ControlSet

MOST_SHOWN = 500  # examples in one request
MOST_FITTED = 1000  # examples that the plane of the map is fitted on
router = APIRouter()
Row = Annotated[int, Field(ge=0, le=10**9)]
Size = Annotated[int, Field(ge=2, le=100_000)]
Alpha = Annotated[float, Field(ge=0, le=1000)]
Pair = Annotated[list[float], Field(min_length=2, max_length=2)]
Answer = Annotated[str, StringConstraints(max_length=20_000)]


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


class NewControl(BaseModel):
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


class ByHand(BaseModel):
    """An example that a person added or dropped, and why."""

    row: Row
    reason: Line = ""


class Selection(BaseModel):
    """How to choose representatives: Algorithm 2, and changes by hand."""

    size: Size
    alpha: Alpha
    added: Annotated[list[ByHand], Field(max_length=1000)] = []
    dropped: Annotated[list[ByHand], Field(max_length=1000)] = []


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


class ExampleStanding(BaseModel):
    """Where an example stands: mean similarity to its own and to the other groups, rank by their difference."""

    own: float
    others: float
    redundancy: float
    rank: int


class Complaint(BaseModel):
    """An objection to an example, or to the whole set (row null)."""

    row: int | None
    id: str
    objection: str
    proposal: str
    by: str
    date: str
    status: str


class LabelledExample(BaseModel):
    """One labelled example; text and image are null where nobody knows where it can be seen."""

    row: int
    id: str
    group: str
    text: str | None
    image: str | None
    standing: ExampleStanding | None
    objections: list[Complaint]


class AboutQuestion(BaseModel):
    """What only people can answer about a control set, and the answer so far."""

    name: str
    question: str
    optional: bool
    answer: str


class PublicationView(BaseModel):
    """The questions of a publication; `edition` is the one that is published, 0 before the first.

    `warning` is what the vectors reveal; they are `personal` if people can be recognised by them.
    """

    questions: list[AboutQuestion]
    warning: str
    personal: bool
    edition: int
    folder: str | None
    downloadable: bool


class Publishing(BaseModel):
    """What to publish: a choice, the answers that only people can give, and whether to measure the error."""

    choice: Id | None = None
    about: dict[str, Answer] = {}
    ids: Literal["names", "numbers", "keep"] = "names"
    measure: bool = True


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
        published=_published(space, number) is not None,
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

    return space.begin("control", work)


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

    return space.begin("control", work)


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


def _kept(space: Workspace, control: int, choice: int) -> Choice:
    row = space.one("choices", choice)
    if row["control"] != control:
        raise HTTPException(404, f"there is no choice {choice} of control set {control}")
    return _choice(row)


@router.delete("/control-sets/{control}/choices/{choice}", status_code=204)
def remove_choice(control: Id, choice: Id, space: Space) -> None:
    """Remove a choice that was kept."""
    _kept(space, control, choice)
    space.store.write("DELETE FROM choices WHERE id = ?", choice)


@router.get("/control-sets/{control}/choices/compare")
def compare_choices(
    control: Id, a: Annotated[Id, Query()], b: Annotated[Id, Query()], space: Space
) -> ChoiceComparison:
    """What two choices have in common."""
    pool = space.control(control)
    first, second = (described_selection(pool, chosen(pool, _kept(space, control, each))) for each in (a, b))
    rows_a, rows_b = set(first.representatives), set(second.representatives)
    return ChoiceComparison(
        a=first,
        b=second,
        both=sorted(rows_a & rows_b),
        only_a=sorted(rows_a - rows_b),
        only_b=sorted(rows_b - rows_a),
    )


# Examples, and what others say about them


def _published(space: Workspace, control: int) -> Path | None:
    from divscore.publishing.edition import is_published

    for folder in (space.folder / PUBLISHED / str(control), Path(space.control_path(control))):
        if is_published(folder):
            return folder
    return None


@router.get("/control-sets/{control}/objections")
def list_objections(control: Id, space: Space) -> list[Complaint]:
    """Objections in the published folder: a table that others can edit."""
    from divscore.control.controlfile import load_control
    from divscore.publishing.objections import OBJECTIONS, read_objections

    folder = _published(space, control)
    if folder is None:
        return []
    ids = {name: row for row, name in enumerate(load_control(folder).ids)}
    objections, _ = read_objections(folder / OBJECTIONS, None)
    shown = ("id", "objection", "proposal", "by", "date", "status")
    return [
        Complaint(row=ids.get(each.id), **{name: getattr(each, name) for name in shown})
        for each in objections[:10_000]
    ]


@router.get("/control-sets/{control}/items")
def list_examples(
    control: Id, row: Annotated[list[Row], Query(min_length=1, max_length=MOST_SHOWN)], space: Space
) -> list[LabelledExample]:
    """Labelled examples by their rows: what they are, where they stand, who objects to them."""
    from divscore.control.selection import standings

    pool, objections = space.control(control), list_objections(control, space)
    origins = {each: _origin(space, control, each) for each in row}
    standing = {each.row: asdict(each) for each in standings(pool, row)}
    return [
        LabelledExample(
            row=each,
            id=clean(pool.ids[each]),
            group=pool.groups[pool.labels[each]],
            text=clean(origin[1]) if origin and origin[0] == "text" else None,
            image=f"/api/v1/control-sets/{control}/items/{each}/image"
            if origin and origin[0] == "image"
            else None,
            standing=ExampleStanding(**standing[each]) if each in standing else None,
            objections=[complaint for complaint in objections if complaint.row == each],
        )
        for each, origin in origins.items()
    ]


@router.get("/control-sets/{control}/items/{row}")
def show_example(control: Id, row: Annotated[int, Field(ge=0, le=10**9)], space: Space) -> LabelledExample:
    """A labelled example: what it is, where it stands, who objects to it."""
    return list_examples(control, [row], space)[0]


def _origin(space: Workspace, control: int, row: int) -> tuple[Literal["image", "text"], str] | None:
    """Where an example can be seen again, as the control set says, if that is a place the person opened."""
    from divscore.report.examples import is_place

    pool = space.control(control)
    if row >= len(pool):
        raise HTTPException(404, f"control set {control} has no row {row}")
    origin = pool.origins[row] if pool.origins is not None else None
    if not origin:
        return None
    if not is_place(origin, pool.encoder):
        return "text", origin
    return ("image", origin) if space.may_show(origin, space.control_path(control)) else None


@router.get(
    "/control-sets/{control}/items/{row}/image",
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def show_example_image(
    control: Id,
    row: Annotated[int, Field(ge=0, le=10**9)],
    space: Space,
    size: Literal["480", "960"] = "480",
) -> Response:
    """The picture of a labelled example."""
    origin = _origin(space, control, row)
    if origin is None or origin[0] != "image":
        raise HTTPException(404, "this example has no picture")
    data = await PICTURES.get(origin[1], int(size))
    return Response(data, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=86400"})


# Publication


@router.get("/control-sets/{control}/publication")
def show_publication(control: Id, space: Space) -> PublicationView:
    """The questions of `control publish`, with the answers of the latest edition, or what is known before it."""
    from divscore.publishing.edition import CHANGELOG, edition_of, stated
    from divscore.publishing.publication import has_faces, vectors_warning

    row, folder = space.one("controls", control), _published(space, control)
    pool = space.control(control)
    if folder is None:
        basis = Question.of(space, row["project"]).basis if row["project"] else ""
        about, edition = About(title=row["name"], basis=basis), 0
    else:
        about, log = stated(folder)[0], folder / CHANGELOG
        edition = edition_of(log.read_text(encoding="utf-8")) if log.is_file() else 0
    return PublicationView(
        questions=[
            AboutQuestion(
                name=each.name,
                question=each.metadata["question"],
                optional=each.metadata["optional"],
                answer=clean(getattr(about, each.name)),
            )
            for each in fields(About)
        ],
        warning=vectors_warning(pool),
        personal=has_faces(pool),
        edition=edition,
        folder=clean(str(folder.absolute())) if folder else None,
        downloadable=(space.folder / PUBLISHED / str(control)).is_dir(),
    )


@router.post("/control-sets/{control}/publish", status_code=202)
def publish_control(control: Id, publishing: Publishing, space: Space) -> Started:
    """Write the folder of `divscore control publish`, or its next edition."""
    unknown = [name for name in publishing.about if name not in QUESTIONS]
    if unknown:
        raise HTTPException(422, f"unknown answer '{unknown[0]}'; expected {', '.join(QUESTIONS)}")
    pool = space.control(control)
    if publishing.choice is not None:
        pool = chosen(pool, _kept(space, control, publishing.choice))
    folder = space.folder / PUBLISHED / str(control)
    projection = Path(space.control_path(control))

    def work(progress: Progress, warn: Warn) -> dict[str, Any]:
        from divscore.jobs.pool import PROJECTION
        from divscore.publishing.edition import publish
        from divscore.publishing.publication import REPETITIONS, Measured, NotMeasured, measure

        def measured(public: ControlSet) -> Measured | NotMeasured:
            if not publishing.measure:
                return NotMeasured("it was not requested")
            with progress("measuring: splits of the examples", REPETITIONS) as advance:
                return measure(public, progress=advance)

        file = projection / PROJECTION
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        published = publish(
            pool,
            folder,
            about=About(**publishing.about) if publishing.about else None,
            measure=measured,
            ids=publishing.ids,
            projection=file if file.is_file() else None,
        )
        problems = [*published.publication.sound.problems, published.publication.vectors_warning]
        return {
            "folder": clean(str(folder.absolute())),
            "edition": published.publication.edition,
            "digest": published.digest,
            "problems": problems,
            "missing": published.publication.about.missing,
        }

    return space.begin("publish", work)


@router.get(
    "/control-sets/{control}/publication.zip",
    response_class=Response,
    responses={200: {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}},
)
def download_publication(control: Id, space: Space) -> Response:
    """The published folder as one file."""
    space.one("controls", control)
    folder = space.folder / PUBLISHED / str(control)
    if not folder.is_dir():
        raise HTTPException(404, f"control set {control} is not published")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            if file.is_file():
                archive.write(file, f"control-set-{control}/{file.name}")
    name = f'attachment; filename="control-set-{control}.zip"'
    return Response(stream.getvalue(), media_type="application/zip", headers={"Content-Disposition": name})
