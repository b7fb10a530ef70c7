"""Routers of collections and audits: items that come and go, what was audited and when, and how results differ."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, FiniteFloat, StringConstraints
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from divscore.jobs.pool import Progress, Warn
from divscore.web.store import now
from divscore.web.workspace import Given, Id, Name, Space, Started, WithTarget, Workspace, clean, read_target

if TYPE_CHECKING:
    from divscore.jobs.members import Content, Member
    from divscore.sketch.sketch import Sketch

MOST_ITEMS = 2_000  # in one request
MOST_TEXT = 100_000  # characters
router = APIRouter()
R = TypeVar("R")
ItemId = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Kind = Literal["image", "text", "vectors"]
TRUST = ("good", "caution", "poor")
# The report is one page with its own style and script, which its own policy names; here it can reach nothing else.
REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; frame-ancestors 'self'"
)


class NewCollection(WithTarget):
    """A source that is audited with a control set, or a kind of items that clients add and remove.

    A `live` collection is audited again whenever it has changed, and its shares are compared with its target.
    """

    name: Name
    control: Id
    source: Id | None = None
    column: Name | None = None
    kind: Kind | None = None
    live: bool = False


class CollectionChange(WithTarget):
    """What can be changed of a collection; an empty target is an even split."""

    name: Name | None = None
    live: bool | None = None


class CollectionView(BaseModel):
    """A collection, and its latest audit."""

    id: int
    name: str
    control: int
    source: int | None
    column: str | None
    kind: Literal["image", "text", "vectors", "source"]
    live: bool
    made: str
    count: int | None
    skipped: int | None
    version: int
    audit: int | None
    target: dict[str, float] | None
    target_source: str


class GivenItem(BaseModel):
    """One item: a text, the bytes of a picture (base64), or a vector of the control set's encoder."""

    id: ItemId
    text: Annotated[str, StringConstraints(max_length=MOST_TEXT)] | None = None
    image: str | None = None
    vector: Annotated[list[FiniteFloat], Field(max_length=1 << 20)] | None = None


class GivenItems(Given):
    """Items to add; an item with a known id replaces the one before."""

    items: Annotated[list[GivenItem], Field(max_length=MOST_ITEMS)]


class KnownItem(BaseModel):
    """An item of a collection: the SHA-256 of what was sent, and why it is skipped, if it is."""

    id: str
    sha256: str | None
    skipped: str


class ItemIds(BaseModel):
    """Items to remove."""

    ids: Annotated[list[ItemId], Field(max_length=100_000)]


class Changed(BaseModel):
    """What a request changed; the same request again changes nothing."""

    added: int
    replaced: int
    unchanged: int
    removed: int
    count: int
    skipped: dict[str, int]


class AuditWish(WithTarget):
    """A target for this audit alone, in place of that of the collection; an empty one is an even split.

    With `max_disparity`, the result has the verdict of `divscore audit --max-disparity`: pass, fail or inconclusive.
    """

    max_disparity: Annotated[float, Field(ge=0, le=1)] | None = None


class AuditEntry(BaseModel):
    """An audit in a list; shares and disparity are null where the result is inconclusive.

    Of an audit of several `parts` of a collection, the list has no shares, and the trust of the worst.
    """

    id: int
    name: str
    at: str
    project: int | None
    collection: int | None
    count: int
    attribute: str
    groups: list[str]
    headline: str
    disparity: float | None
    interval: list[float]
    shares: dict[str, float | None]
    share_intervals: dict[str, list[float]]
    trust: str
    warnings: list[str]
    target: dict[str, float] | None
    parts: int


# Collections


def described_collection(space: Workspace, number: int) -> CollectionView:
    """A collection as the API shows it."""
    row = space.one("collections", number)
    count = skipped = None
    if row["source"] is None:
        total, skipped = (
            space.store.number("SELECT count(*) FROM members WHERE collection = ?", number),
            space.store.number("SELECT count(*) FROM members WHERE collection = ? AND skip != ''", number),
        )
        count = total - skipped
    latest = space.store.row("SELECT max(id) AS id FROM audits WHERE collection = ?", number)
    names = ("id", "name", "control", "source", "kind", "made", "version")
    target, target_source = read_target(row["target"])
    return CollectionView(
        **{name: row[name] for name in names},
        column=row["choice"],
        live=bool(row["live"]),
        count=count,
        skipped=skipped,
        audit=latest["id"] if latest else None,
        target=target,
        target_source=target_source,
    )


@router.get("/collections")
def list_collections(space: Space) -> list[CollectionView]:
    """All collections, without those of page audits."""
    rows = space.store.rows(
        "SELECT id FROM collections WHERE id NOT IN (SELECT collection FROM pages) ORDER BY id LIMIT 1000"
    )
    return [described_collection(space, row["id"]) for row in rows]


@router.post("/collections", status_code=201)
def make_collection(new: NewCollection, space: Space) -> CollectionView:
    """Begin a collection."""
    if (new.source is None) == (new.kind is None):
        raise HTTPException(422, "give either a source, or the kind of items that will be added")
    space.one("controls", new.control)
    if new.source is not None:
        space.source_path(new.source)
    else:
        space.members(new.control, new.kind)  # refuses a kind that the control set's encoder does not take
    return described_collection(space, add_collection(space, new))


def add_collection(space: Workspace, new: NewCollection) -> int:
    """Store a new collection."""
    kind, target = new.kind or "source", None
    if new.target or new.target_source:
        target = new.stored_target(space.control(new.control).groups)
    return space.store.write(
        "INSERT INTO collections (name, control, source, choice, kind, live, made, target) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        *(new.name, new.control, new.source, new.column, kind, int(new.live), now(), target),
    )


@router.get("/collections/{collection}")
def show_collection(collection: Id, space: Space) -> CollectionView:
    """One collection."""
    return described_collection(space, collection)


@router.patch("/collections/{collection}")
def change_collection(collection: Id, change: CollectionChange, space: Space) -> CollectionView:
    """Give a collection another name or target; audit it by itself whenever it changes, or no longer."""
    row = space.one("collections", collection)
    target = row["target"]
    if change.target is not None or change.target_source:
        target = change.stored_target(space.control(row["control"]).groups)
    space.store.write(
        "UPDATE collections SET name = coalesce(?, name), live = coalesce(?, live), target = ? WHERE id = ?",
        *(change.name, change.live, target, collection),
    )
    return described_collection(space, collection)


@router.delete("/collections/{collection}", status_code=204, response_model=None, response_class=Response)
def remove_collection(collection: Id, space: Space) -> None:
    """Remove a collection; its audits stay."""
    space.one("collections", collection)
    space.store.write("DELETE FROM collections WHERE id = ?", collection)


# Items


@router.put("/collections/{collection}/items")
async def put_items(collection: Id, given: GivenItems, space: Space) -> Changed:
    """Add items, or replace those with the same ids. The answer is sent when they are on the disk."""
    row = await run_in_threadpool(_changing, space, collection)
    twice = [name for name, number in Counter(item.id for item in given.items).items() if number > 1]
    if twice:  # which of the two is meant? And the same request again would change something.
        raise HTTPException(422, f"item '{twice[0]}' is in the request more than once; send each id once")
    contents = await run_in_threadpool(contents_of, row["kind"], given.items)
    return await on_encoder(space, lambda: add_items(space, row, given.items, contents))


@router.get("/collections/{collection}/items")
def list_items_of_collection(
    collection: Id,
    space: Space,
    after: Annotated[str, Query(max_length=500)] = "",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> list[KnownItem]:
    """Items in the order of their ids, for programs that compare them with their own; `after` is the last id so far."""
    row = _changing(space, collection)
    rows = space.store.rows(
        "SELECT id, sha256, skip AS skipped FROM members WHERE collection = ? AND id > ? ORDER BY id LIMIT ?",
        *(row["id"], clean(after), limit),
    )
    return [KnownItem(**dict(each)) for each in rows]


async def on_encoder(space: Workspace, work: Callable[[], R]) -> R:
    """Run what encodes, one at a time."""
    return await asyncio.get_running_loop().run_in_executor(space.encoder, work)


def _changing(space: Workspace, number: int) -> Any:
    row = space.one("collections", number)
    if row["source"] is not None:
        raise HTTPException(409, "the items of this collection are those of its source")
    return row


def contents_of(kind: str, items: Sequence[GivenItem]) -> list[Content]:
    """What was given of each item; refuses another kind than that of the collection."""
    contents: list[Content] = []
    name = {"vectors": "vector"}.get(kind, kind)
    for item in items:
        value = getattr(item, name)
        if value is None:
            raise HTTPException(422, f"item '{item.id}' has no {name}; this collection takes nothing else")
        if kind == "image":
            try:
                value = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError) as error:
                raise HTTPException(422, f"item '{item.id}': the image is not valid base64") from error
        contents.append(value)
    return contents


def add_items(
    space: Workspace,
    row: Any,
    items: Sequence[GivenItem],
    contents: Sequence[Content],
    ranks: Sequence[int | None] = (),
) -> Changed:
    """Encode items and store them as members, all or none; on the thread of the encoder."""
    kept = space.members(row["control"], row["kind"]).put(contents)
    added = replaced = unchanged = 0
    skipped: dict[str, int] = {}
    marks = [hashlib.sha256(_bytes(content)).hexdigest() for content in contents]
    with space.store.writing() as database:
        for at, (item, member) in enumerate(zip(items, kept, strict=True)):
            if member.skip:
                skipped[member.skip] = skipped.get(member.skip, 0) + 1
            rank = ranks[at] if ranks else None
            known = database.execute(
                "SELECT digest, rank FROM members WHERE collection = ? AND id = ?", (row["id"], item.id)
            ).fetchone()
            if known is not None and (known["digest"], known["rank"]) == (member.digest, rank):
                unchanged += 1
                continue
            added, replaced = added + (known is None), replaced + (known is not None)
            database.execute(
                "INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?, ?, ?)",
                (row["id"], item.id, member.digest, member.skip, rank, marks[at]),
            )
        count = _after_change(database, row["id"], added + replaced)
    return Changed(
        added=added, replaced=replaced, unchanged=unchanged, removed=0, count=count, skipped=skipped
    )


def _bytes(content: Content) -> bytes:
    if isinstance(content, bytes):
        return content
    return (content if isinstance(content, str) else json.dumps(list(content))).encode()


def _after_change(database: Any, collection: int, changes: int) -> int:
    """Give the collection a new version if anything changed; return how many items it has."""
    if changes:
        database.execute("UPDATE collections SET version = version + 1 WHERE id = ?", (collection,))
    query = "SELECT count(*) FROM members WHERE collection = ?"
    return int(database.execute(query, (collection,)).fetchone()[0])


@router.post("/collections/{collection}/remove")
def remove_items(collection: Id, wanted: ItemIds, space: Space) -> Changed:
    """Remove items; those that are not there any more are no error."""
    row = _changing(space, collection)
    return take_items(space, row["id"], wanted.ids)


def take_items(space: Workspace, collection: int, ids: Sequence[str]) -> Changed:
    """Remove members by their ids."""
    with space.store.writing() as database:
        removed = sum(
            database.execute(
                "DELETE FROM members WHERE collection = ? AND id = ?", (collection, each)
            ).rowcount
            for each in dict.fromkeys(ids)
        )
        count = _after_change(database, collection, removed)
    absent = len(dict.fromkeys(ids)) - removed
    return Changed(added=0, replaced=0, unchanged=absent, removed=removed, count=count, skipped={})


# The sketch


def members_of(space: Workspace, collection: int, depth: int | None = None) -> tuple[int, list[Member]]:
    """The version of a collection and its items in the order of their ids; `depth` keeps the first ranks only."""
    from divscore.jobs.members import Member

    # One query, so that version and items belong together.
    rows = space.store.rows(
        "SELECT version, digest, skip, rank FROM collections LEFT JOIN members ON collection = collections.id "
        "WHERE collections.id = ? ORDER BY members.id",
        collection,
    )
    members = [
        Member(row["digest"], row["skip"])
        for row in rows
        if row["digest"] is not None and (depth is None or (row["rank"] or 0) <= depth)
    ]
    return (rows[0]["version"] if rows else 0), members


def current_sketch(space: Workspace, row: Any) -> tuple[int, Sketch]:
    """The sketch of the items that a collection has now, and its version; made again only if something changed."""
    from divscore.sketch.sketch import Sketch

    keeper = space.members(row["control"], row["kind"])
    stored = space.one("collections", row["id"])
    with tempfile.TemporaryDirectory(prefix="divscore-") as folder:
        file = Path(folder) / "collection.sketch"
        if stored["sketched"] == stored["version"] and stored["sketch"] is not None:
            file.write_bytes(stored["sketch"])
            return int(stored["version"]), Sketch.load(file, keeper.control)
        version, members = members_of(space, row["id"])
        sketch = keeper.sketch(members)
        sketch.save(file)
        space.store.write(
            "UPDATE collections SET sketch = ?, sketched = ? WHERE id = ?",
            file.read_bytes(),
            version,
            row["id"],
        )
    return version, sketch


@router.get(
    "/collections/{collection}/sketch",
    response_class=Response,
    responses={
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
    },
)
def download_sketch(collection: Id, space: Space) -> Response:
    """The sketch of the items that a collection has now, as `divscore sketch` writes it."""
    row = _changing(space, collection)
    current_sketch(space, row)
    data = space.one("collections", collection)["sketch"]
    name = f'attachment; filename="collection-{collection}.sketch"'
    return Response(data, media_type="application/octet-stream", headers={"Content-Disposition": name})


# Audits


@router.post("/collections/{collection}/audits", status_code=202)
def start_audit(collection: Id, wish: AuditWish, space: Space) -> Started:
    """Audit a collection as it is now."""
    row = space.one("collections", collection)
    if wish.target or wish.target_source:
        wish.stored_target(space.control(row["control"]).groups)  # refuses one that does not fit
    work = partial(audit_collection, space, row, wish)
    return space.begin("audit", work, f"/collections/{collection}/audits", wish)


def audit_collection(
    space: Workspace,
    row: Any,
    wish: AuditWish,
    progress: Progress,
    warn: Warn,
    *,
    version: int | None = None,
) -> dict[str, Any]:
    """Audit a collection, as the command line does, and store the result; `version` tells the state of a source."""
    from divscore.jobs.auditing import audit_source

    control = space.control_path(row["control"])
    shares, source = read_target(row["target"]) if wish.target is None else (wish.target, wish.target_source)
    options: dict[str, Any] = {"target": shares or None, "target_source": source}
    inputs = [("Control set", control)]
    if row["source"] is not None:
        path = space.source_path(row["source"])
        inputs.insert(0, ("Collection", path))
        with space.encoding() as encoding:
            audits = audit_source(
                path,
                control,
                column=row["choice"],
                encoder=encoding,
                name=row["name"],
                progress=progress,
                warn=warn,
                **options,
            )
    else:
        version, sketch = current_sketch(space, row)
        audits = space.members(row["control"], row["kind"]).audit(sketch, row["name"], warn=warn, **options)
    limit = wish.max_disparity
    number = space.keep_audit(audits, inputs=inputs, collection=row["id"], version=version, limit=limit)
    return {"audit": number} | ({} if limit is None else {"verdict": audits.gate(limit).verdict})


def audit_entry(row: Any) -> AuditEntry:
    """The figures of an audit, from its document."""
    document = json.loads(row["document"])
    parts = document["collections"]
    own = {name: row[name] for name in ("id", "name", "at", "project", "collection")}
    every = {name: document[name] for name in ("attribute", "groups", "headline")}
    every |= {"target": document["target"]["shares"] if document.get("target") else None, "parts": len(parts)}
    same = ("count", "disparity", "interval", "shares", "share_intervals", "trust", "warnings")
    figures = {name: parts[0][name] for name in same}
    if len(parts) > 1:
        figures = {"disparity": None, "interval": [], "shares": {}, "share_intervals": {}, "warnings": []}
        figures |= {"count": sum(part["count"] for part in parts)}
        figures |= {"trust": max((part["trust"] for part in parts), key=TRUST.index)}
    return AuditEntry(**own, **every, **figures)
