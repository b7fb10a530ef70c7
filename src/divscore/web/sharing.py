"""Routers of what others see of a control set: its examples, their objections, and the published edition."""

from __future__ import annotations

import io
import zipfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, StringConstraints
from starlette.exceptions import HTTPException
from starlette.responses import Response

from divscore.jobs.pool import Progress, Warn
from divscore.publishing.about import QUESTIONS, About
from divscore.web.curation import Row, chosen, kept_choice, published_folder
from divscore.web.questions import PICTURES, Question
from divscore.web.workspace import PUBLISHED, Given, Id, Space, Started, Workspace, clean

if TYPE_CHECKING:
    from divscore.control.controlset import ControlSet

MOST_SHOWN = 500  # examples in one request
router = APIRouter()
Answer = Annotated[str, StringConstraints(max_length=20_000)]


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


class Publishing(Given):
    """What to publish: a choice, the answers that only people can give, and whether to measure the error.

    Face descriptors, by which people can be recognised, need the confirmation `faces` that they may be published.
    """

    choice: Id | None = None
    about: Annotated[dict[str, Answer], Field(default_factory=dict)]
    ids: Literal["names", "numbers", "keep"] = "names"
    measure: bool = True
    faces: bool = False


# Examples, and what others say about them


@router.get("/control-sets/{control}/objections")
def list_objections(control: Id, space: Space) -> list[Complaint]:
    """Objections in the published folder: a table that others can edit."""
    from divscore.control.controlfile import load_control
    from divscore.publishing.objections import OBJECTIONS, read_objections

    folder = published_folder(space, control)
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
def show_example(control: Id, row: Row, space: Space) -> LabelledExample:
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
    row: Row,
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

    row, folder = space.one("controls", control), published_folder(space, control)
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
    from divscore.publishing.publication import has_faces, vectors_warning

    unknown = [name for name in publishing.about if name not in QUESTIONS]
    if unknown:
        raise HTTPException(422, f"unknown answer '{unknown[0]}'; expected {', '.join(QUESTIONS)}")
    pool = space.control(control)
    if publishing.choice is not None:
        pool = chosen(pool, kept_choice(space, control, publishing.choice))
    if has_faces(pool) and not publishing.faces:
        raise HTTPException(422, f"{vectors_warning(pool)} If you may publish them, send faces: true.")
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

    return space.begin("publish", work, f"/control-sets/{control}/publish", publishing)


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
