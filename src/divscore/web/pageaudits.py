"""Routers of page audits: what a page shows, sent by the browser extension, with a record of the evidence."""

from __future__ import annotations

import json
import statistics
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field, FiniteFloat, StringConstraints
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from divscore.audit.trust import FEW_ITEMS
from divscore.errors import DivscoreError, InputError
from divscore.text import printable
from divscore.web.collecting import (
    GivenItem,
    ItemId,
    ItemIds,
    NewCollection,
    add_collection,
    add_items,
    contents_of,
    members_of,
    take_items,
)
from divscore.web.store import moment, now
from divscore.web.workspace import Id, Line, Name, Space, Workspace, clean

if TYPE_CHECKING:
    from divscore.audit.audits import Audits
    from divscore.jobs.members import Member

MOST_WAITING = 200  # requests with items that wait for the encoder
KEPT_RESULTS = 32
UNSAVED_HOURS = 24  # after that a page audit that nobody saved is removed
DEPTHS = (20, 50, 100, 200, 500)  # first items whose shares make up the rank-weighted share
router = APIRouter()
Mode = Literal["image", "text"]
Reason = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class NewPage(BaseModel):
    """A page whose pictures or texts are audited; without a mode, whichever the control set's encoder takes."""

    control: Id
    mode: Mode | None = None
    url: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1_000_000)]
    title: Line = ""
    query: Line = ""
    language: Annotated[str, StringConstraints(max_length=100)] = ""
    viewport: Annotated[list[Annotated[int, Field(ge=0, le=100_000)]], Field(max_length=2)] = []
    run: Annotated[str, StringConstraints(max_length=200)] = ""
    study: Annotated[str, StringConstraints(max_length=200)] = ""
    client: Annotated[str, StringConstraints(max_length=200)] = ""
    depth: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    target: Annotated[dict[Name, FiniteFloat], Field(max_length=12)] | None = None
    target_source: Line = ""


class PageMade(BaseModel):
    """The number of a page audit, and what it takes."""

    id: int
    mode: Mode


class Variation(BaseModel):
    """How much the shares differ between saved runs of one group: their standard deviation."""

    runs: int
    spread: dict[str, float]


class PageEntry(BaseModel):
    """A page audit in the list; figures are those of the saved audit."""

    id: int
    url: str
    title: str
    run: str
    study: str
    made: str
    saved: str | None
    audit: int | None
    shares: dict[str, float | None] | None
    share_intervals: dict[str, list[float]] | None
    trust: str | None
    target: dict[str, Any] | None
    variation: Variation | None


class PageItem(GivenItem):
    """An item of a page, and its place in the order of the page."""

    rank: Annotated[int, Field(ge=1, le=1_000_000)]


class PageItems(BaseModel):
    """Items of a page; `skipped` are all items so far that could not be sent, by reason.

    `order` are the ids of all items that the page shows now: others are removed.
    """

    items: Annotated[list[PageItem], Field(max_length=200)] = []
    order: Annotated[list[ItemId], Field(max_length=100_000)] | None = None
    skipped: (
        Annotated[dict[Reason, Annotated[int, Field(ge=0, le=1_000_000)]], Field(max_length=50)] | None
    ) = None


class Taken(BaseModel):
    """How many items were taken, and how many requests wait for the encoder."""

    received: int
    waiting: int


class PageResult(BaseModel):
    """What is known of a page. Shares are those of the whole set, never of single items."""

    id: int
    state: Literal["empty", "working", "ready"]
    waiting: int
    control: int
    mode: Literal["image", "text"]
    url: str
    title: str
    run: str
    study: str
    made: str
    used: int
    few: bool
    fewest: int
    skipped: dict[str, int]
    attribute: str
    groups: list[str]
    shares: dict[str, float | None] | None
    share_intervals: dict[str, list[float]] | None
    disparity: float | None
    interval: list[float] | None
    trust: str | None
    message: str
    warnings: list[str]
    rank_weighted: dict[str, float] | None
    rank_weighted_intervals: dict[str, list[float]] | None
    target: dict[str, Any] | None
    variation: Variation | None
    audit: int | None


class PageDesk:
    """Requests of each page that wait for the encoder, results by version, and what went wrong."""

    def __init__(self) -> None:
        self.waiting: dict[int, int] = {}
        self.trouble: dict[int, str] = {}
        self.results: dict[tuple[int, int, str, int | None], Any] = {}
        self.lock = threading.Lock()


def desk_of(request: Request) -> PageDesk:
    """What this app keeps about pages."""
    desk: PageDesk = request.app.state.pages
    return desk


@router.get("/page-audits")
def list_pages(space: Space, saved: bool = False) -> list[PageEntry]:
    """All page audits, or the saved ones only; the newest first."""
    rows = space.store.rows(
        "SELECT pages.id, about, pages.made, audit, at, document FROM pages LEFT JOIN audits ON audits.id = audit "
        f"{'WHERE audit IS NOT NULL ' if saved else ''}ORDER BY pages.id DESC LIMIT 1000"
    )
    entries, variations = [], _variations(rows)
    for row in rows:
        about = json.loads(row["about"])
        document = json.loads(row["document"]) if row["document"] else {"collections": [{}]}
        (first,) = document["collections"]
        texts = {name: about.get(name, "") for name in ("url", "title", "run", "study")}
        figures: dict[str, Any] = {name: first.get(name) for name in ("shares", "share_intervals", "trust")}
        entry = PageEntry(
            id=row["id"],
            **texts,
            made=row["made"],
            saved=row["at"],
            audit=row["audit"],
            **figures,
            target=document.get("target"),
            variation=variations.get(texts["study"]),
        )
        entries.append(entry)
    return entries


def _variations(rows: Sequence[Any]) -> dict[str, Variation]:
    """How much saved runs of each named group differ; runs without shares do not count."""
    shares: dict[str, list[dict[str, float]]] = {}
    for row in rows:
        study = json.loads(row["about"]).get("study", "")
        own = json.loads(row["document"])["collections"][0]["shares"] if study and row["document"] else {}
        if own and None not in own.values():
            shares.setdefault(study, []).append(own)
    found = {}
    for study, some in shares.items():
        alike = [each for each in some if set(each) == set(some[0])]
        if len(alike) > 1:
            spread = {name: statistics.stdev(each[name] for each in alike) for name in alike[0]}
            found[study] = Variation(runs=len(alike), spread=spread)
    return found


@router.post("/page-audits", status_code=201)
def make_page(new: NewPage, space: Space) -> PageMade:
    """Begin the audit of a page."""
    control = space.control(new.control)
    if new.target is not None:
        from divscore.audit.target import Target

        Target.of(new.target, control.groups)
    mode = new.mode or _kind(space, new.control)
    space.members(new.control, mode)
    oldest = moment(datetime.now(UTC) - timedelta(hours=UNSAVED_HOURS))
    for row in space.store.rows("SELECT id FROM pages WHERE audit IS NULL AND made < ?", oldest):
        space.encoder.submit(_remove, space, row["id"])
    name = printable(new.title.strip() or new.url)[:200].strip() or "page"
    collection = add_collection(space, NewCollection(name=name, control=new.control, kind=mode))
    number = space.store.write(
        "INSERT INTO pages (collection, about, skipped, made) VALUES (?, ?, '{}', ?)",
        *(collection, new.model_dump_json(exclude={"control", "mode"}), now()),
    )
    return PageMade(id=number, mode=mode)


def _kind(space: Workspace, control: int) -> Mode:
    try:
        space.members(control, "image")
        return "image"
    except InputError:
        return "text"


@router.delete("/page-audits/{page}", status_code=204, response_model=None, response_class=Response)
def forget_page(page: Id, space: Space) -> None:
    """Remove a page audit that is not saved, with all that was kept of its items."""
    if space.one("pages", page)["audit"] is not None:
        raise HTTPException(409, "this page audit is saved; delete its audit in the app")
    space.encoder.submit(_remove, space, page)  # after all items that wait


def _remove(space: Workspace, page: int) -> None:
    row = space.store.row("SELECT collection FROM pages WHERE id = ? AND audit IS NULL", page)
    if row is not None:
        space.store.write("DELETE FROM collections WHERE id = ?", row["collection"])
        space.forget_vectors()


def page_rows(space: Workspace, number: int) -> tuple[Any, Any]:
    """The row of a page, and that of its collection."""
    page = space.one("pages", number)
    return page, space.one("collections", page["collection"])


@router.post("/page-audits/{page}/items", status_code=202)
async def add_page_items(page: Id, given: PageItems, space: Space, request: Request) -> Taken:
    """Add items. The answer comes at once; the items are encoded one request after the other."""
    _, row = await run_in_threadpool(page_rows, space, page)
    contents = await run_in_threadpool(contents_of, row["kind"], given.items)
    desk = desk_of(request)
    busy = bool(given.items) or given.order is not None
    if given.skipped is not None:
        text = json.dumps(given.skipped)
        await run_in_threadpool(space.store.write, "UPDATE pages SET skipped = ? WHERE id = ?", text, page)
    with desk.lock:
        if sum(desk.waiting.values()) >= MOST_WAITING:
            raise HTTPException(
                429, "too many items wait for the encoder; send them later", {"Retry-After": "5"}
            )
        desk.waiting[page] = desk.waiting.get(page, 0) + busy
        waiting = desk.waiting[page]

    def work() -> None:
        try:
            if given.items:
                add_items(space, row, given.items, contents, [item.rank for item in given.items])
            if given.order is not None:
                _arrange(space, row["id"], given.order)
        except DivscoreError as error:
            desk.trouble[page] = clean(str(error))
        finally:
            with desk.lock:
                desk.waiting[page] -= 1

    if busy:
        space.encoder.submit(work)
    return Taken(received=len(given.items), waiting=waiting)


def _arrange(space: Workspace, collection: int, order: Sequence[str]) -> None:
    """Give items their places on the page, and remove those that are no longer there."""
    rows = space.store.rows("SELECT id, rank FROM members WHERE collection = ?", collection)
    known = {row["id"]: row["rank"] for row in rows}
    places = {name: rank for rank, name in enumerate(dict.fromkeys(order), start=1)}
    take_items(space, collection, [name for name in known if name not in places])
    with space.store.writing() as database:
        moved = [
            (places[name], collection, name) for name in known if places.get(name) not in (None, known[name])
        ]
        database.executemany("UPDATE members SET rank = ? WHERE collection = ? AND id = ?", moved)
        if moved:
            database.execute("UPDATE collections SET version = version + 1 WHERE id = ?", (collection,))


@router.post("/page-audits/{page}/remove")
def remove_page_items(page: Id, wanted: ItemIds, space: Space) -> Taken:
    """Remove items that are no longer on the page."""
    _, row = page_rows(space, page)
    taken = space.encoder.submit(take_items, space, row["id"], wanted.ids).result()
    return Taken(received=taken.removed, waiting=0)


@router.get("/page-audits/{page}")
def show_page(
    page: Id, space: Space, request: Request, depth: Annotated[int | None, Query(ge=1, le=1_000_000)] = None
) -> PageResult:
    """What is known of a page, or of its first items (`depth`)."""
    kept, row = page_rows(space, page)
    desk = desk_of(request)
    about, skipped = json.loads(kept["about"]), json.loads(kept["skipped"])
    version, members = members_of(space, row["id"], depth)
    for member in members:
        if member.skip:
            skipped[member.skip] = skipped.get(member.skip, 0) + 1
    used = sum(not member.skip for member in members)
    waiting = desk.waiting.get(page, 0)
    control = space.control(row["control"])
    figures: dict[str, Any] = dict.fromkeys(
        (
            "shares",
            "share_intervals",
            "disparity",
            "interval",
            "trust",
            "rank_weighted",
            "rank_weighted_intervals",
        )
    )
    message, warnings, found = desk.trouble.get(page, ""), [], None
    if used:
        key = (page, version, kept["skipped"], depth)
        with desk.lock:
            known = desk.results
            # While items wait, the latest result is shown: the encoder needs the processor.
            found = known.get(key) or (waiting and _latest(known, page))
        if not found and not waiting:
            audits = audit_page(space, kept, row, depth)
            found = audits.to_dict()
            found |= _rank_weighted(space, kept, row, audits) if depth is None else {}
            with desk.lock:
                desk.results[key] = found
                for old in list(desk.results)[:-KEPT_RESULTS]:
                    del desk.results[old]
    if found:
        first = {**dict.fromkeys(figures), **found, **found["collections"][0]}
        figures = {name: first[name] for name in figures}
        message, warnings = message or first["headline"], first["warnings"]
    return PageResult(
        id=page,
        state="working" if waiting else "ready" if members or skipped else "empty",
        waiting=waiting,
        control=row["control"],
        mode=row["kind"],
        **{name: about.get(name, "") for name in ("url", "title", "run", "study")},
        made=kept["made"],
        used=used,
        few=used < FEW_ITEMS,
        fewest=FEW_ITEMS,
        skipped=skipped,
        attribute=control.attribute,
        groups=list(control.groups),
        **figures,
        message=message,
        warnings=warnings,
        target=found["target"] if found else None,
        variation=_variation(space, about.get("study", "")),
        audit=kept["audit"],
    )


def _latest(results: dict[tuple[int, int, str, int | None], Any], page: int) -> Any:
    """The latest result of a page that is not about too few items."""
    own = (result for key, result in reversed(results.items()) if key[0] == page)
    return next((result for result in own if result["collections"][0]["count"] >= FEW_ITEMS), None)


def _variation(space: Workspace, study: str) -> Variation | None:
    if not study:
        return None
    rows = space.store.rows("SELECT about, document FROM pages JOIN audits ON audits.id = audit")
    return _variations(rows).get(study)


def audit_page(
    space: Workspace, kept: Any, row: Any, depth: int | None = None, members: Sequence[Member] | None = None
) -> Audits:
    """Audit the items of a page, or some of them; those that could not be sent count as unreadable."""
    keeper = space.members(row["control"], row["kind"])
    everything = members_of(space, row["id"], depth)[1] if members is None else members
    sketch = keeper.sketch(everything)
    total = space.store.number("SELECT count(*) FROM members WHERE collection = ?", row["id"])
    part = 1.0 if members is None else len(members) / max(total, 1)
    sketch.skip("unreadable", round(part * sum(json.loads(kept["skipped"]).values())))
    about = json.loads(kept["about"])
    return keeper.audit(
        sketch, row["name"], target=about.get("target"), target_source=about.get("target_source", "")
    )


def _rank_weighted(space: Workspace, kept: Any, row: Any, whole: Audits) -> dict[str, Any]:
    """Shares in which the first items count most; nothing if no first items can be audited on their own."""
    from divscore.audit.ranks import rank_weighted
    from divscore.jobs.members import Member

    rows = space.store.rows(
        "SELECT digest, skip FROM members WHERE collection = ? ORDER BY rank, id", row["id"]
    )
    members = [Member(each["digest"], each["skip"]) for each in rows]
    (last,) = whole.audits
    if not last.has_shares or last.trust == "poor":
        return {}
    parts = []
    for depth in DEPTHS:
        if depth <= 0.8 * len(members):
            (audit,) = audit_page(space, kept, row, members=members[:depth]).audits
            if audit.has_shares and audit.trust != "poor" and set(audit.shares) == set(last.shares):
                parts.append((depth, audit))
    if not parts:
        return {}
    found = rank_weighted([*parts, (len(members), last)])
    return {
        "rank_weighted": {name: share for name, (share, _) in found.items()},
        "rank_weighted_intervals": {name: [limits.low, limits.high] for name, (_, limits) in found.items()},
    }
