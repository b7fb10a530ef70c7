"""Routers of labels: saved at once and exactly once, blind to other annotators, compared, and settled."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import AwareDatetime, BaseModel, Field, StringConstraints
from starlette.exceptions import HTTPException

from divscore.control.agreement import agreement
from divscore.text import count
from divscore.web.outlook import outlook_of
from divscore.web.questions import (
    SKIP,
    UNSURE,
    Annotator,
    Question,
    answered,
)
from divscore.web.store import moment, now
from divscore.web.workspace import Given, Id, Line, Name, Space, Workspace, clean, etag

MOST_CHANGES = 10_000
router = APIRouter()
Key = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:-]{1,100}$")]


class ShownItem(BaseModel):
    """A drawn item, and what this annotator said about it."""

    id: int
    number: int
    kind: Literal["image", "text", "vectors"]
    name: str
    text: str | None = None
    image: str | None = None
    label: str | None


class ItemList(BaseModel):
    """The items to label, in the order of the draw."""

    items: list[ShownItem]
    planned: int
    saved: int


class LabelChange(Given):
    """One label, or null to take it back; `key` is new for every change, so that it counts once."""

    key: Key
    item: Id
    label: Name | None
    at: AwareDatetime


class Changes(Given):
    """Labels of one annotator."""

    annotator: Name
    changes: Annotated[list[LabelChange], Field(max_length=MOST_CHANGES)]


class Saved(BaseModel):
    """How many items of this annotator have a label on the disk, and which changes are there.

    Send none of the `accepted` again. Of these, the `superseded` do not count: a later label of the item does.
    `version` rises with every change: of two answers, `saved` of the higher one is the later.
    """

    saved: int
    version: int
    accepted: list[str]
    superseded: list[str]


class LabelProgress(BaseModel):
    """How far the labels are; there is no estimate before the planned number is reached."""

    saved: int
    planned: int
    unsure: int
    skipped: int
    answered: int
    width: float | None
    answer: int | None
    ready: bool


class Kappa(BaseModel):
    """Agreement beyond chance, of two annotators (Cohen) or more (Fleiss); null where it is not defined."""

    name: Literal["Cohen", "Fleiss"]
    value: float | None
    items: int


class Disagreement(BaseModel):
    """An item with different labels."""

    item: int
    labels: dict[str, str]
    settled: str | None
    reason: str | None


class AgreementReport(BaseModel):
    """How well annotators agree."""

    annotators: list[str]
    both: int
    kappa: Kappa | None
    disagreements: list[Disagreement]


class Settlement(Given):
    """The label that a disagreement is settled with."""

    label: Name
    by: Name
    reason: Line = ""


@router.get("/projects/{project}/items")
def list_items(project: Id, annotator: Annotator, space: Space) -> ItemList:
    """The drawn items with the labels of this annotator alone."""
    question = Question.of(space, project)
    rows = space.store.rows(
        "SELECT items.id, number, design, form, CASE form WHEN 'text' THEN content END AS content, label FROM items "
        "LEFT JOIN labels ON labels.item = items.id AND annotator = ? WHERE project = ? ORDER BY number",
        annotator.strip(),
        project,
    )
    items = []
    for row in rows:
        text = bytes(row["content"]).decode("utf-8", "surrogatepass") if row["content"] is not None else None
        items.append(
            ShownItem(
                id=row["id"],
                number=row["number"] + 1,
                kind=question.shown or "vectors",
                name=clean(json.loads(row["design"])["id"]),
                text=None if text is None else clean(text),
                image=f"/api/v1/items/{row['id']}/image" if row["form"] in ("path", "picture") else None,
                label=row["label"],
            )
        )
    return ItemList(items=items, planned=len(items), saved=sum(item.label is not None for item in items))


@router.post("/projects/{project}/labels")
def save_labels(project: Id, changes: Changes, space: Space) -> Saved:
    """Save labels. The answer is sent when they are on the disk; the same keys again change nothing."""
    question = Question.of(space, project)
    allowed = {*question.groups, SKIP, UNSURE, None}
    for change in changes.changes:
        if change.label not in allowed:
            names = ", ".join((*question.groups, UNSURE, SKIP))
            raise HTTPException(422, f"'{change.label}' is not a label of this project; expected {names}")
    rows = [(change.key, change.item, change.label, moment(change.at)) for change in changes.changes]
    apply_changes(space, project, changes.annotator, rows)
    version = space.store.number(
        "SELECT count(*) FROM changes JOIN items ON items.id = item WHERE project = ? AND annotator = ?",
        *(project, changes.annotator),
    )  # before the labels: those are then as late, or later
    present = own_labels(space, project, changes.annotator)
    return Saved(
        saved=len(present),
        version=version,
        accepted=[key for key, *_ in rows],
        superseded=[key for key, item, label, _ in rows if present.get(item) != label],
    )


def apply_changes(
    space: Workspace, project: int, annotator: str, rows: list[tuple[str, int, str | None, str]]
) -> int:
    """Write changes (key, item, label, time) that are not known yet, in one transaction; return how many count.

    Of two changes of one label the later one counts, whichever arrives first: a page that was offline sends old ones.
    """
    received, new = now(), 0
    with space.store.writing() as database:
        for key, item, label, at in rows:
            known = database.execute("SELECT 1 FROM items WHERE id = ? AND project = ?", (item, project))
            if known.fetchone() is None:
                raise HTTPException(422, f"item {item} is not in project {project}; nothing was saved")
            at = min(at, received)  # a clock that is ahead must not keep later labels out
            try:
                inserted = database.execute(
                    "INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (key, item, annotator, label, at, received),
                ).rowcount
            except UnicodeEncodeError as error:
                raise HTTPException(422, "a label is not valid text") from error
            if inserted:
                new += database.execute(
                    "INSERT INTO labels VALUES (?, ?, ?, ?) ON CONFLICT (item, annotator) DO UPDATE "
                    "SET label = excluded.label, at = excluded.at WHERE excluded.at >= labels.at",
                    (item, annotator, label, at),
                ).rowcount
    return new


def blind_projects(space: Workspace, annotator: str) -> set[int]:
    """Projects that others have labels in, and this annotator has not finished: results would influence them."""
    rows = space.store.rows(
        "SELECT project FROM items LEFT JOIN labels ON labels.item = items.id AND label IS NOT NULL GROUP BY project "
        "HAVING count(CASE WHEN annotator != ? THEN 1 END) > 0 "
        "AND count(CASE WHEN annotator = ? THEN 1 END) < count(DISTINCT items.id)",
        *(annotator.strip(), annotator.strip()),
    )
    return {row["project"] for row in rows}


def check_sight(space: Workspace, project: int, annotator: str) -> None:
    """Refuse to show labels of others to somebody who has not answered all drawn items."""
    drawn = space.store.number("SELECT count(*) FROM items WHERE project = ?", project)
    if left := drawn - len(own_labels(space, project, annotator.strip())):
        raise HTTPException(
            409, f"{annotator.strip()} has {count(left, 'items')} left; labels of others are shown after them"
        )


def own_labels(space: Workspace, project: int, annotator: str) -> dict[int, str]:
    """What one annotator said, by item."""
    rows = space.store.rows(
        "SELECT item, label FROM labels JOIN items ON items.id = item "
        "WHERE project = ? AND annotator = ? AND label IS NOT NULL",
        project,
        annotator,
    )
    return {row["item"]: row["label"] for row in rows}


@router.get("/projects/{project}/progress")
def show_progress(project: Id, annotator: Annotator, space: Space) -> LabelProgress:
    """How many labels are saved, and the width that all planned ones are expected to give.

    `ready` and `answer` are for this annotator, who must have answered all drawn items first; an answer that was
    computed from other labels than the present ones is none.
    """
    question = Question.of(space, project)
    own = own_labels(space, project, annotator.strip())
    counts = Counter(own.values())
    drawn = space.store.number("SELECT count(*) FROM items WHERE project = ?", project)
    planned = drawn or question.size
    ready = bool(drawn) and len(own) == drawn
    return LabelProgress(
        saved=len(own),
        planned=planned,
        unsure=counts[UNSURE],
        skipped=counts[SKIP],
        answered=answered(space, project),
        width=_expected_width(space, question, planned // _parts(space, question)),
        answer=present_audit(space, project) if ready else None,
        ready=ready,
    )


def _parts(space: Workspace, question: Question) -> int:
    """How many parts of the collection have a sample of their own."""
    if question.by is None:
        return 1
    query = "SELECT count(DISTINCT json_extract(design, '$.collection')) FROM items WHERE project = ?"
    return max(1, space.store.number(query, question.id))


def _expected_width(space: Workspace, question: Question, labels: int) -> float | None:
    from divscore.audit.planning import FEWEST_LABELS

    outlook = outlook_of(space, question)
    return outlook.width(labels, outlook.basis) if outlook is not None and labels >= FEWEST_LABELS else None


# Several annotators


def labels_by_item(space: Workspace, project: int) -> dict[int, dict[str, str]]:
    """What each annotator said about each drawn item; skipped items have no answer."""
    labels: dict[int, dict[str, str]] = {}
    for row in space.store.rows(
        "SELECT item, annotator, label FROM labels JOIN items ON items.id = item "
        "WHERE project = ? AND label IS NOT NULL AND label != ? ORDER BY number, annotator",
        project,
        SKIP,
    ):
        labels.setdefault(row["item"], {})[row["annotator"]] = row["label"]
    return labels


def settlements(space: Workspace, project: int, labels: Mapping[int, dict[str, str]]) -> dict[int, Any]:
    """How disagreements were settled; once a label of the item is another, nothing is settled any more."""
    rows = space.store.rows(
        "SELECT settled.* FROM settled JOIN items ON items.id = item WHERE project = ?", project
    )
    return {row["item"]: row for row in rows if json.loads(row["labels"]) == labels.get(row["item"])}


def settled_labels(space: Workspace, project: int) -> dict[int, str]:
    """One label for each drawn item that has any: what was settled, or what all annotators said.

    An open disagreement counts as unsure: the audit then gives bounds with the item in either group.
    """
    given = labels_by_item(space, project)
    decided = settlements(space, project, given)
    labels: dict[int, str] = {}
    for item, own in given.items():
        names = set(own.values())
        if item in decided:
            labels[item] = decided[item]["label"]
        else:
            labels[item] = names.pop() if len(names) == 1 else UNSURE
    return labels


def labels_note(space: Workspace, question: Question) -> str:
    """What a report says about where its labels come from; it names nobody."""
    given = labels_by_item(space, question.id)
    people = {name for own in given.values() for name in own}
    note = f"Labels: {question.basis} {question.attribute}"
    found = agreement(list(given.values()), (*question.groups, UNSURE))
    if found is None:
        return f"{note}."
    differing = {item for item, own in given.items() if len(set(own.values())) > 1}
    kappa = "" if found.value is None else f" ({found.name}’s κ {found.value:.2f})"
    note += (
        f", by {len(people)} people{kappa}. They differ on {len(differing)} of {count(found.items, 'items')}"
    )
    if not differing:
        return f"{note}."
    settled = len(differing & settlements(space, question.id, given).keys())
    return (
        f"{note}; {settled} settled, {len(differing) - settled} open, which count as items without a label."
    )


def labels_mark(drawn: int, labels: Mapping[int, str]) -> str:
    """Tells the labels that an answer was computed from; so does the number of items, some of which have none."""
    return etag(drawn, sorted(labels.items()))


def present_audit(space: Workspace, project: int) -> int | None:
    """The latest audit that was computed from the labels as they are now."""
    if space.store.row("SELECT 1 FROM audits WHERE project = ?", project) is None:
        return None
    drawn = space.store.number("SELECT count(*) FROM items WHERE project = ?", project)
    mark = labels_mark(drawn, settled_labels(space, project))
    row = space.store.row("SELECT max(id) AS id FROM audits WHERE project = ? AND labels = ?", project, mark)
    return row["id"] if row else None


@router.get("/projects/{project}/agreement")
def show_agreement(project: Id, annotator: Annotator, space: Space) -> AgreementReport:
    """Cohen's κ of two annotators or Fleiss' κ of more, and the items with different labels.

    Somebody who has not answered all drawn items gets 409: labels of others would influence them.
    """
    question = Question.of(space, project)
    check_sight(space, project, annotator)
    labels = labels_by_item(space, project)
    decided = settlements(space, project, labels)
    found = agreement(list(labels.values()), (*question.groups, UNSURE))
    kappa = None
    if found is not None:
        kappa = Kappa(name=found.name, value=found.value, items=found.items)
    return AgreementReport(
        annotators=sorted({name for own in labels.values() for name in own}),
        both=sum(len(own) > 1 for own in labels.values()),
        kappa=kappa,
        disagreements=[
            Disagreement(
                item=item,
                labels=own,
                settled=decided[item]["label"] if item in decided else None,
                reason=decided[item]["reason"] if item in decided else None,
            )
            for item, own in labels.items()
            if len(set(own.values())) > 1
        ],
    )


@router.put("/projects/{project}/settled/{item}")
def settle(project: Id, item: Id, settlement: Settlement, space: Space) -> Disagreement:
    """Decide a disagreement; who decided and why is kept. It counts as long as nobody changes a label of the item."""
    question = Question.of(space, project)
    if settlement.label not in (*question.groups, UNSURE):
        raise HTTPException(422, f"'{settlement.label}' is not a label of this project")
    if space.store.row("SELECT 1 FROM items WHERE id = ? AND project = ?", item, project) is None:
        raise HTTPException(404, f"item {item} is not in project {project}")
    own = labels_by_item(space, project).get(item, {})
    if len(set(own.values())) < 2:
        raise HTTPException(409, f"nobody disagrees about item {item}; there is nothing to settle")
    space.store.write(
        "INSERT OR REPLACE INTO settled (item, label, person, reason, at, labels) VALUES (?, ?, ?, ?, ?, ?)",
        *(item, settlement.label, settlement.by, settlement.reason, now(), json.dumps(own)),
    )
    return Disagreement(item=item, labels=own, settled=settlement.label, reason=settlement.reason)
