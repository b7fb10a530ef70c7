"""create_app(): the routers, the static files and the errors of the web app, behind its guard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from divscore import __version__
from divscore.errors import DivscoreError, MismatchError
from divscore.web.guard import API, MOST_LINKS, PAIR, Guard, problem
from divscore.web.tasks import Task
from divscore.web.workspace import PROBLEMS, Problem, Space, Workspace, clean

STATIC = Path(__file__).with_name("static")
POLL_SECONDS = 0.1
TITLES = {
    400: "Bad request",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Content too large",
    422: "The input cannot be used",
    429: "Too many requests",
}
router = APIRouter()


class Status(BaseModel):
    """What runs here."""

    version: str
    project: str
    sources: int
    control_sets: int
    projects: int
    collections: int
    start: dict[str, Any]


class JobRequest(BaseModel):
    """The request that started a job, a POST: below /api/v1, with its body."""

    path: str
    body: dict[str, Any]


class Job(BaseModel):
    """A job that was started, and its result.

    It is `interrupted` if the server ended before it did: send its `request` again to start it again.
    """

    id: str
    kind: str
    state: Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
    done: int
    total: int | None
    message: str
    warnings: list[str]
    result: dict[str, Any] | None
    error: Problem | None
    request: JobRequest | None


class Link(BaseModel):
    """A token for one visit: the address of the server with `?token=` lets one more browser in."""

    token: str


@router.post("/links", status_code=201)
def make_link(space: Space) -> Link:
    """Let another browser in: that of a second annotator, here or through a tunnel. The link works once."""
    if len(space.keys.links) >= MOST_LINKS:
        raise HTTPException(409, f"{MOST_LINKS} links were not used yet; use one of them")
    return Link(token=space.keys.link())


@router.get("/status")
def status(space: Space) -> Status:
    """What runs here, and what the command line said about the first project."""
    count = {
        name: space.store.number(f"SELECT count(*) FROM {name}")
        for name in ("controls", "projects", "collections")
    }
    return Status(
        version=__version__,
        project=clean(space.folder.absolute().name),
        sources=len(space.sources),
        control_sets=count["controls"],
        projects=count["projects"],
        collections=count["collections"],
        start=space.start,
    )


def described(space: Workspace, task: Task) -> Job:
    """A job as the API shows it."""
    error = None
    if task.error is not None:
        known = isinstance(task.error, DivscoreError)
        detail = (
            space.in_page(str(task.error)) if known else "an error of divscore; the terminal has the details"
        )
        code = 422 if known else 500
        error = Problem(
            type="about:blank", title=TITLES.get(code, "Internal error"), status=code, detail=detail
        )
    return Job(
        id=task.id,
        kind=task.kind,
        state=task.state,
        done=task.done,
        total=task.total,
        message=clean(task.message),
        warnings=[space.in_page(text) for text in task.warnings],
        result=task.result,
        error=error,
        request=JobRequest(path=task.request[0], body=task.request[1]) if task.request else None,
    )


def _task(space: Workspace, job: str) -> Task:
    task = space.tasks.get(job)
    if task is None:
        raise HTTPException(404, "there is no such job; finished jobs are forgotten when the server ends")
    return task


@router.get("/jobs")
def list_jobs(space: Space) -> list[Job]:
    """Jobs of this server, the newest last."""
    return [described(space, task) for task in space.tasks.list()]


@router.get("/jobs/{job}")
def show_job(job: str, space: Space) -> Job:
    """How far a job is, and its result."""
    return described(space, _task(space, job))


@router.delete("/jobs/{job}")
def cancel_job(job: str, space: Space) -> Job:
    """Stop a job; forget an interrupted one."""
    task = _task(space, job)
    if task.state == "interrupted":
        space.forget_job(task)
    else:
        space.tasks.stop(task)
    return described(space, task)


@router.get(
    "/jobs/{job}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
def follow_job(job: str, space: Space) -> StreamingResponse:
    """Server-sent events with the job, at every change, until it is finished."""
    task = _task(space, job)

    async def events() -> AsyncIterator[str]:
        version = -1
        while not space.tasks.closed.is_set():
            if task.version != version:
                version = task.version
                yield f"data: {described(space, task).model_dump_json()}\n\n"
                if task.finished:
                    return
            await asyncio.sleep(POLL_SECONDS)

    return StreamingResponse(events(), media_type="text/event-stream")


def create_app(space: Workspace, *, port: int, public_url: str | None = None) -> ASGIApp:
    """The whole app around a workspace, as an ASGI application that refuses whatever its guard does not know."""
    return Guard(inner_app(space), space.keys, port, public_url)


class App(FastAPI):
    """The app without its guard."""

    def openapi(self) -> dict[str, Any]:
        """The description of the API, made when somebody asks for it."""
        if self.openapi_schema is None:
            schema = super().openapi()
            schema["components"]["schemas"].setdefault("Problem", Problem.model_json_schema())
            schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"token": []}]
            for place, path in schema["paths"].items():
                for method, operation in path.items():
                    if PAIR.fullmatch(f"{method.upper()} {place}".replace("{wanted}", "wanted")):
                        operation["security"] = []
                    operation["responses"].pop(
                        "422", None
                    )  # FastAPI's own form of an error, which is not ours
        return self.openapi_schema or {}


def routers() -> list[APIRouter]:
    """All parts of the API."""
    from divscore.web import (
        answers,
        collecting,
        curation,
        history,
        labeltable,
        outlook,
        pageaudits,
        pairing,
        questions,
        savedpages,
        sharing,
    )

    parts = (questions, outlook, answers, labeltable, curation, sharing, collecting, history)
    for_pages = (pageaudits, savedpages, pairing)
    return [router, *(part.router for part in (*parts, *for_pages))]


def inner_app(space: Workspace) -> App:
    """The app around a workspace, without its guard."""
    app = App(
        title="divscore",
        version=__version__,
        openapi_url=f"{API}/openapi.json",
        docs_url=None,  # their scripts come from the network
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
    )
    from divscore.web.pageaudits import PageDesk
    from divscore.web.pairing import Lobby

    app.state.workspace, app.state.pages, app.state.lobby = space, PageDesk(), Lobby()
    for part in routers():
        app.include_router(part, prefix=API, responses=PROBLEMS)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(DivscoreError, _unusable)
    app.add_exception_handler(Exception, _failed)
    app.mount("/", StaticFiles(directory=STATIC, html=True))
    return app


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    title = TITLES.get(error.status_code, "The request cannot be fulfilled")
    answer = problem(error.status_code, title, str(error.detail))
    answer.headers.update(error.headers or {})
    return answer


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return problem(422, TITLES[422], f"the body is not valid JSON: {first['ctx']['error']}")
    place = ".".join(str(part) for part in first["loc"][1:])
    return problem(422, TITLES[422], f"{place}: {first['msg']}" if place else str(first["msg"]))


async def _unusable(request: Request, error: Exception) -> Response:
    code = 409 if isinstance(error, MismatchError) else 422
    space: Workspace = request.app.state.workspace
    return problem(code, TITLES[code], space.in_page(str(error)))


async def _failed(request: Request, error: Exception) -> Response:
    return problem(500, "Internal error", "an error of divscore; the terminal has the details")
