"""Routers of sources and projects: what is asked of which collection, and which items are drawn and shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from divscore.errors import InputError, MismatchError
from divscore.jobs.drawfile import Draw, DrawnItem, check_names
from divscore.jobs.pool import Progress, Warn
from divscore.text import count
from divscore.web.store import now
from divscore.web.thumbnails import Thumbnails
from divscore.web.workspace import (
    PLAIN,
    Given,
    Id,
    Name,
    Space,
    Started,
    WithTarget,
    Workspace,
    clean,
    etag,
    read_target,
)

SKIP, UNSURE = "skip", "unsure"
USUAL_SIZE = 60
MOST_ITEMS = 20_000  # drawn items of a project
DESIGN = ("id", "digest", "row", "collection", "stratum", "batch", "drawn", "size", "control")
router = APIRouter()
Annotator = Annotated[str, Query(min_length=1, max_length=200, pattern=PLAIN)]
MaybeAnnotator = Annotated[str | None, Query(min_length=1, max_length=200, pattern=PLAIN)]
PICTURES = Thumbnails()


class Source(BaseModel):
    """A collection that can be labelled or audited."""

    id: int
    name: str
    kind: Literal["image", "text", "vectors", "unknown"]
    state: Literal["reading", "ready", "failed"]
    problem: str
    items: int | None
    counting: bool
    columns: list[str]
    text_columns: list[str]


class NewProject(WithTarget):
    """What to ask; with `by`, of each part of the collection that has its own value in this column (as `--by`)."""

    name: Name | None = None
    source: Id
    column: Name | None = None
    by: Name | None = None
    attribute: Name
    groups: Annotated[list[Name], Field(min_length=2, max_length=12)]
    basis: Literal["perceived", "self-declared"]
    purpose: Literal["audit", "control"] = "audit"
    control: Id | None = None
    size: Annotated[int, Field(ge=1, le=MOST_ITEMS)] = USUAL_SIZE


class ProjectChange(Given):
    """What can be changed later."""

    name: Name


class Project(BaseModel):
    """A question about a collection, and the sample that answers it.

    `own` is how many items the annotator who asks has labelled. They are `blind` as long as items are left and others
    have labels: what these show would influence them.
    """

    id: int
    name: str
    source: int
    column: str | None
    by: str | None
    attribute: str
    groups: list[str]
    basis: Literal["perceived", "self-declared"]
    purpose: Literal["audit", "control"]
    control: int | None
    size: int
    seed: int
    made: str
    drawn: int
    kind: Literal["", "image", "text", "vectors"]
    answered: int
    annotators: list[str]
    audit: int | None
    target: dict[str, float] | None
    target_source: str
    own: int
    blind: bool


class Sampling(Given):
    """How many items to draw, in addition to those that are drawn already; by default as many as the project says.

    A project about parts of a collection draws as many of each part.
    """

    size: Annotated[int, Field(ge=1, le=MOST_ITEMS)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**32)] | None = None


class ItemText(BaseModel):
    """The text of an item."""

    text: str


# Sources


@router.get("/sources")
def list_sources(space: Space) -> list[Source]:
    """Collections that were named at the start or are in the project folder.

    `items` is null until it is known, and stays so for a large file; while it is `counting`, ask again.
    """
    space.find_sources()
    numbers = list(dict.fromkeys(space.sources))
    rows = {row["id"]: row["name"] for row in space.store.rows("SELECT id, name FROM sources")}
    listed = []
    for number in numbers:
        known = space.described.get(number)
        columns = known.columns if known else {}
        listed.append(
            Source(
                id=number,
                name=rows[number],
                kind=known.kind if known else "unknown",
                state=known.state if known else "reading",
                problem=known.problem if known else "",
                items=known.items if known else None,
                counting=known.counting if known else False,
                columns=list(columns),
                text_columns=[name for name, kind in columns.items() if kind == "text"],
            )
        )
    return listed


# Projects


@dataclass(frozen=True)
class Question:
    """A project as it is stored."""

    id: int
    name: str
    source: int
    column: str | None
    by: str | None
    attribute: str
    groups: tuple[str, ...]
    basis: str
    purpose: str
    control: int | None
    size: int
    seed: int
    made: str
    shown: Literal["", "image", "text", "vectors"]
    encoder: str | None
    plan: Mapping[str, Any]
    target: Mapping[str, float] | None
    target_source: str

    @classmethod
    def of(cls, space: Workspace, number: int) -> Question:
        """A project by its number, or 404."""
        row = dict(space.one("projects", number))
        row["groups"], row["column"] = tuple(json.loads(row.pop("names"))), row.pop("choice")
        row["by"] = row.pop("parts")
        row["plan"] = json.loads(row["plan"] or "{}")
        row["target"], row["target_source"] = read_target(row["target"])
        return cls(**row)


def described_project(space: Workspace, number: int, annotator: str | None = None) -> Project:
    """A project with what is known of its labels."""
    from divscore.web.answers import own_labels, present_audit

    question = Question.of(space, number)
    rows = space.store.rows(
        "SELECT DISTINCT annotator FROM labels JOIN items ON items.id = item "
        "WHERE project = ? AND label IS NOT NULL ORDER BY annotator",
        number,
    )
    annotators = [row["annotator"] for row in rows]
    who = (annotator or "").strip()
    own = len(own_labels(space, number, who)) if who else 0
    drawn = space.store.number("SELECT count(*) FROM items WHERE project = ?", number)
    return Project(
        **{name: getattr(question, name) for name in Project.model_fields if hasattr(question, name)},
        drawn=drawn,
        kind=question.shown,
        answered=answered(space, number),
        annotators=annotators,
        audit=present_audit(space, number),
        own=own,
        blind=bool(who) and own < drawn and any(name != who for name in annotators),
    )


def answered(space: Workspace, project: int) -> int:
    """Drawn items that somebody has labelled, unsure and skipped ones included."""
    return space.store.number(
        "SELECT count(DISTINCT item) FROM labels JOIN items ON items.id = item WHERE project = ? AND label IS NOT NULL",
        project,
    )


@router.get("/projects")
def list_projects(space: Space, annotator: MaybeAnnotator = None) -> list[Project]:
    """All projects, the newest first."""
    rows = space.store.rows("SELECT id FROM projects ORDER BY id DESC LIMIT 1000")
    return [described_project(space, row["id"], annotator) for row in rows]


@router.post("/projects", status_code=201)
def make_project(new: NewProject, space: Space) -> Project:
    """Ask a question about a collection; nothing is drawn yet."""
    space.source_path(new.source)
    groups, attribute = check_names(new.groups), new.attribute
    if any(name.casefold() == SKIP for name in groups):
        raise HTTPException(422, f"'{SKIP}' cannot be the name of a group; choose another")
    if new.control is not None:
        control = space.control(new.control)
        if {name.casefold() for name in control.groups} != {name.casefold() for name in groups}:
            raise HTTPException(409, f"the control set has the groups {', '.join(control.groups)}")
        groups, attribute = control.groups, control.attribute
        if new.size % 2:
            raise HTTPException(
                422, f"with a control set, items are drawn in pairs: use an even size, not {new.size}"
            )
    about = (new.name or attribute, new.source, new.column, attribute, json.dumps(groups))
    number = space.store.write(
        "INSERT INTO projects (name, source, choice, attribute, names, basis, purpose, control, size, seed, made, "
        "target, parts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        *(*about, new.basis, new.purpose, new.control, new.size, 0, now(), new.stored_target(groups), new.by),
    )
    return described_project(space, number)


@router.get("/projects/{project}")
def show_project(project: Id, space: Space, annotator: MaybeAnnotator = None) -> Project:
    """One project."""
    return described_project(space, project, annotator)


@router.patch("/projects/{project}")
def rename_project(project: Id, change: ProjectChange, space: Space) -> Project:
    """Give a project another name."""
    Question.of(space, project)
    space.store.write("UPDATE projects SET name = ? WHERE id = ?", change.name, project)
    return described_project(space, project)


@router.delete("/projects/{project}", status_code=204, response_model=None, response_class=Response)
def remove_project(project: Id, space: Space) -> None:
    """Remove a project with its labels; its audits stay."""
    Question.of(space, project)
    space.store.write("DELETE FROM projects WHERE id = ?", project)


# The sample


@router.post("/projects/{project}/sample", status_code=202)
def draw_items(project: Id, sampling: Sampling, space: Space) -> Started:
    """Draw items to label, or more of them: those that `divscore sample` draws with the same seed."""
    question = Question.of(space, project)
    drawn = space.store.number("SELECT count(*) FROM items WHERE project = ?", project)
    size = sampling.size or question.size
    if drawn + size > MOST_ITEMS:
        raise HTTPException(422, f"a project has at most {count(MOST_ITEMS, 'items')}")
    seed = question.seed if sampling.seed is None else sampling.seed
    if drawn and seed != question.seed:
        raise HTTPException(
            409, f"this sample was drawn with seed {question.seed}; more items need the same seed"
        )
    path = space.source_path(question.source)
    control = None if question.control is None else space.control_path(question.control)

    def work(progress: Progress, warn: Warn) -> dict[str, Any]:
        from divscore.jobs.sampling import sample_source

        earlier = project_draw(space, question) if drawn else None
        with space.encoding() as encoding:
            draw = sample_source(
                path,
                size,
                control,
                attribute=question.attribute,
                groups=question.groups,
                column=question.column,
                by=question.by,
                add_to=earlier,
                seed=seed,
                encoder=encoding,
                progress=progress,
                warn=warn,
            )
        if len(draw) > MOST_ITEMS:
            raise InputError(
                f"{count(len(draw), 'items')} would be drawn; a project has at most {MOST_ITEMS:,}"
            )
        keep_draw(space, project, draw, known=drawn, seed=seed)
        return {"drawn": len(draw), "added": len(draw) - drawn}

    return space.begin("sample", work, f"/projects/{project}/sample", sampling)


def keep_draw(space: Workspace, project: int, draw: Draw, *, known: int, seed: int) -> None:
    """Store the new items of a draw."""
    rows = []
    for number, item in enumerate(draw.items[known:], start=known):
        design = json.dumps({name: getattr(item, name) for name in DESIGN})
        form, content = "", None
        if isinstance(item.content, bytes):
            form, content = "picture", item.content
        elif item.content is not None:
            # A path may be no valid text; bytes keep it as it is.
            form = "path" if draw.kind == "image" else "text"
            content = item.content.encode("utf-8", "surrogateescape" if form == "path" else "surrogatepass")
        rows.append((project, number, design, form, content))
    with space.store.writing() as database:
        have = database.execute("SELECT count(*) FROM items WHERE project = ?", (project,)).fetchone()[0]
        if have != known:
            raise MismatchError("other items were drawn at the same time; look at the sample again")
        database.executemany(
            "INSERT INTO items (project, number, design, form, content) VALUES (?, ?, ?, ?, ?)", rows
        )
        database.execute(
            "UPDATE projects SET seed = ?, shown = ?, encoder = ? WHERE id = ?",
            (seed, draw.kind, draw.encoder, project),
        )


def item_content(row: Any) -> str | bytes | None:
    """What people see of an item."""
    form, content = row["form"], row["content"]
    if form in ("path", "text"):
        return str(bytes(content).decode("utf-8", "surrogateescape" if form == "path" else "surrogatepass"))
    return None if content is None else bytes(content)


def project_draw(space: Workspace, question: Question, labels: Mapping[int, str] | None = None) -> Draw:
    """The draw of a project, as `divscore sample` would have written it; `labels` by the ids of items."""
    rows = space.store.rows("SELECT * FROM items WHERE project = ? ORDER BY number", question.id)
    if not rows:
        raise HTTPException(409, "no items are drawn yet; draw a sample first")
    items = [
        DrawnItem(
            **json.loads(row["design"]), content=item_content(row), group=(labels or {}).get(row["id"], "")
        )
        for row in rows
    ]
    kind: Any = question.shown or "vectors"
    return Draw(tuple(items), kind, question.attribute, question.groups, question.encoder)


def finished_draw(space: Workspace, question: Question, labels: Mapping[int, str]) -> Draw:
    """The labelled draw, once all its items have an answer; what is estimated earlier does not hold."""
    draw = project_draw(space, question, labels)
    if left := len(draw) - answered(space, question.id):
        raise HTTPException(409, f"{count(left, 'drawn items')} wait for a label; label them first")
    return draw


# What is shown


@router.get(
    "/items/{item}/image",
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def show_image(item: Id, space: Space, size: Literal["480", "960"] = "960") -> Response:
    """The picture of an item, turned upright and no larger than `size` pixels."""
    row = space.store.row("SELECT form, content, design FROM items WHERE id = ?", item)
    if row is None or row["form"] not in ("path", "picture"):
        raise HTTPException(404, f"item {item} has no picture")
    content = item_content(row)
    assert content is not None
    data = await PICTURES.get(content, int(size))
    mark = etag(row["design"], size)
    return Response(
        data, media_type="image/jpeg", headers={"ETag": mark, "Cache-Control": "private, max-age=86400"}
    )


@router.get("/items/{item}/text")
def show_text(item: Id, space: Space) -> ItemText:
    """The text of an item."""
    row = space.store.row("SELECT form, content FROM items WHERE id = ?", item)
    if row is None or row["form"] != "text":
        raise HTTPException(404, f"item {item} has no text")
    return ItemText(text=clean(str(item_content(row))))
