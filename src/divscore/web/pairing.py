"""Routers of tokens: an extension asks, a person compares a code and accepts; programs get theirs from the page."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, StringConstraints
from starlette.exceptions import HTTPException
from starlette.responses import Response

from divscore.web.guard import digest, token
from divscore.web.store import now
from divscore.web.workspace import Id, Name, Space, Workspace

MOST_PENDING, PENDING_SECONDS = 5, 300.0
MOST_A_MINUTE = 10
MOST_PROGRAMS = 100  # tokens that were made since the start
router = APIRouter()
Secret = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{8,64}$")]


class PairWish(BaseModel):
    """An extension that asks to be let in; whoever has a token for programs has decided that already."""

    name: Name
    extension: Annotated[str, StringConstraints(pattern=r"^(chrome|moz)-extension://[A-Za-z0-9-]{1,64}$")]
    token: Secret | None = None


class PairRequest(BaseModel):
    """What the extension polls with, and the code that a person compares."""

    request: str
    code: str


class PairAnswer(BaseModel):
    """Whether a person has decided; the token is given once."""

    state: Literal["pending", "accepted", "rejected"]
    token: str | None = None


class Challenge(BaseModel):
    """A number that was never used before."""

    nonce: Secret


class Proofs(BaseModel):
    """An HMAC of the nonce for each token: only who knows a token can tell which is its own."""

    proofs: list[str]


class Pairing(BaseModel):
    """A request that waits, or an extension that is paired (`id`)."""

    id: int | None
    request: str | None
    name: str
    extension: str
    code: str | None
    state: Literal["pending", "paired"]
    made: str


@dataclass
class Asking:
    """A request of an extension, in memory only."""

    name: str
    extension: str
    code: str = field(default_factory=lambda: f"{secrets.randbelow(10**6):06}")
    state: Literal["pending", "accepted", "rejected"] = "pending"
    secret: str | None = None
    made: str = field(default_factory=now)
    until: float = field(default_factory=lambda: time.monotonic() + PENDING_SECONDS)


class Lobby:
    """Requests of extensions: few, and not for long."""

    def __init__(self) -> None:
        self.requests: dict[str, Asking] = {}
        self.lock = threading.Lock()
        self._times: list[float] = []

    def ask(self, wish: PairWish) -> tuple[str, Asking]:
        """Let one more wait."""
        with self.lock:
            self._expire()
            moment = time.monotonic()
            self._times = [each for each in self._times if moment - each < 60]
            pending = sum(each.state == "pending" for each in self.requests.values())
            if len(self._times) >= MOST_A_MINUTE or pending >= MOST_PENDING:
                raise HTTPException(
                    429, "too many requests to pair; decide on those that wait", {"Retry-After": "60"}
                )
            self._times.append(moment)
            name = secrets.token_urlsafe(24)
            self.requests[name] = Asking(wish.name, wish.extension)
            return name, self.requests[name]

    def get(self, request: str) -> Asking:
        """A request, or 404."""
        self._expire()
        if request not in self.requests:
            raise HTTPException(404, "there is no such request, or it is too old; ask again")
        return self.requests[request]

    def _expire(self) -> None:
        moment = time.monotonic()
        for name in [name for name, each in self.requests.items() if each.until < moment]:
            self.requests.pop(name, None)


def lobby_of(request: Request) -> Lobby:
    """The requests of this app."""
    lobby: Lobby = request.app.state.lobby
    return lobby


@router.post("/pair")
def ask_to_pair(wish: PairWish, request: Request, space: Space) -> PairRequest:
    """Ask to be paired; a person decides. Needs no token."""
    origin = request.headers.get("origin")
    if origin is not None and origin != wish.extension:
        raise HTTPException(403, "an extension can ask for itself only")
    if wish.token is not None:
        mark = digest(wish.token)
        if not any(hmac.compare_digest(mark, each) for each in space.keys.clients):
            raise HTTPException(403, "this token is not known here")
    lobby = lobby_of(request)
    name, asking = lobby.ask(wish)
    if wish.token is not None:
        with lobby.lock:
            _accept(space, asking)
    return PairRequest(request=name, code=asking.code)


def _accept(space: Workspace, asking: Asking) -> int:
    """Make the token of an extension; return the number of its pairing."""
    asking.state, asking.secret = "accepted", token()
    return space.store.write(
        "INSERT INTO pairings (name, extension, token, made) VALUES (?, ?, ?, ?)",
        *(asking.name, asking.extension, digest(asking.secret), now()),
    )


@router.post("/pair/proof")
def prove_pairings(challenge: Challenge, space: Space) -> Proofs:
    """Show an extension that this server knows its token, before it sends it: any program can listen on a port."""
    rows = space.store.rows("SELECT token FROM pairings ORDER BY id LIMIT 1000")
    marks = [*(row["token"] for row in rows), *space.keys.clients]
    nonce = challenge.nonce.encode()
    return Proofs(proofs=[hmac.new(mark.encode(), nonce, hashlib.sha256).hexdigest() for mark in marks])


@router.delete("/pair", status_code=204, response_model=None, response_class=Response)
def leave(space: Space, request: Request) -> None:
    """Revoke the token that the request is sent with."""
    secret = request.headers.get("authorization", "").partition(" ")[2].strip()
    space.store.write("DELETE FROM pairings WHERE token = ?", digest(secret))


@router.get("/pair/{wanted}")
def poll_pairing(wanted: Secret, request: Request) -> PairAnswer:
    """Whether a person has decided. Needs no token, but the secret number of the request."""
    lobby = lobby_of(request)
    with lobby.lock:
        asking = lobby.get(wanted)
        secret, asking.secret = asking.secret, None
        if asking.state != "pending":
            del lobby.requests[wanted]
    return PairAnswer(state=asking.state, token=secret)


@router.get("/pairings")
def list_pairings(space: Space, request: Request) -> list[Pairing]:
    """Requests that wait for a decision, and extensions that are paired."""
    lobby = lobby_of(request)
    with lobby.lock:
        lobby._expire()
        waiting = [
            Pairing(
                id=None,
                request=name,
                name=each.name,
                extension=each.extension,
                code=each.code,
                state="pending",
                made=each.made,
            )
            for name, each in lobby.requests.items()
            if each.state == "pending"
        ]
    rows = space.store.rows("SELECT id, name, extension, made FROM pairings ORDER BY id")
    return waiting + [Pairing(**dict(row), request=None, code=None, state="paired") for row in rows]


@router.post("/pairings/{wanted}/accept")
def accept_pairing(wanted: Secret, space: Space, request: Request) -> Pairing:
    """Let an extension in; it can use page audits, and nothing else."""
    lobby = lobby_of(request)
    with lobby.lock:
        asking = lobby.get(wanted)
        if asking.state != "pending":
            raise HTTPException(409, "this request is decided already")
        number = _accept(space, asking)
    row = space.one("pairings", number)
    own = {name: row[name] for name in ("id", "name", "extension", "made")}
    return Pairing(**own, request=None, code=None, state="paired")


@router.post("/pairings/{wanted}/reject")
def reject_pairing(wanted: Secret, request: Request) -> PairAnswer:
    """Keep an extension out."""
    lobby = lobby_of(request)
    with lobby.lock:
        asking = lobby.get(wanted)
        if asking.state != "pending":
            raise HTTPException(409, "this request is decided already")
        asking.state = "rejected"
    return PairAnswer(state="rejected")


@router.delete("/pairings/{pairing}", status_code=204, response_model=None, response_class=Response)
def revoke_pairing(pairing: Id, space: Space) -> None:
    """Revoke the token of an extension."""
    space.one("pairings", pairing)
    space.store.write("DELETE FROM pairings WHERE id = ?", pairing)


class ProgramToken(BaseModel):
    """A token for programs, valid until the server stops."""

    token: str


@router.post("/tokens", status_code=201)
def make_token(space: Space) -> ProgramToken:
    """Let a program on this machine use the API, as `--headless` does; extensions cannot ask for this."""
    if len(space.keys.clients) >= MOST_PROGRAMS:
        raise HTTPException(
            409, f"{MOST_PROGRAMS} tokens were made since divscore was started; use one of them"
        )
    space.keys.clients.add(digest(secret := token()))
    return ProgramToken(token=secret)
