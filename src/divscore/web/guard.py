"""Guard: what every request must show before anything of the app sees it, static files included.

In this order: Host, Origin, Sec-Fetch-Site, token, content type, size of the body. The server listens on loopback,
where any page in any browser of this machine, and any program, can reach it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Literal
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from divscore import __version__
from divscore.text import printable

API = "/api/v1"
LOCAL = ("127.0.0.1", "localhost", "[::1]")
EXTENSION = re.compile(r"(chrome|moz)-extension://[A-Za-z0-9-]{1,64}")
READS = ("GET", "HEAD")
MB = 1 << 20
SMALL_BODY, LARGE_BODY = 4 * MB, 64 * MB
LARGE = re.compile(rf"{API}/(collections|page-audits)/\d+/(items|save)")
TABLE = re.compile(rf"{API}/projects/\d+/labels\.csv")
PAIR = re.compile(rf"(GET|HEAD|POST) {API}/pair(/[\w-]+)?")  # the only routes without a token
FOR_EXTENSIONS = re.compile(rf"\w+ {API}/page-audits(/.*)?|GET {API}/(control-sets|status)|DELETE {API}/pair")
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "X-Divscore": __version__,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
CLOSED = """<!doctype html><html lang="en"><meta charset="utf-8"><title>divscore</title>
<h1>This page needs its link</h1>
<p>Open the address that divscore printed in the terminal. It works once. For another browser, make a link where you
are signed in: press your name on the page of the labels. Or start divscore again.</p>
"""
ENTERED = """<!doctype html><html lang="en"><meta charset="utf-8"><title>divscore</title>
<meta http-equiv="refresh" content="0; url=/"><p><a href="/">Continue to divscore</a></p>
"""
MOST_LINKS = 100  # that wait for their visit
Role = Literal["person", "client", "extension"]


def token() -> str:
    """A new secret."""
    return secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """What is kept of a secret: whoever reads the database cannot use it."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def problem(status: int, title: str, detail: str, **more: object) -> Response:
    """An error as a problem document (RFC 9457)."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": printable(detail), **more}
    text = json.dumps(body, ensure_ascii=True)
    return Response(text, status_code=status, media_type="application/problem+json")


@dataclass
class Keys:
    """Who may come in.

    `links` are tokens that work once, in the address of the page; `clients` are digests of tokens for programs.
    `session` and `paired` look up digests that outlive the process: of cookies, and of the tokens of extensions;
    `paired` returns the extension that a token belongs to. `keep` stores the digest of a new cookie.
    """

    session: Callable[[str], bool]
    keep: Callable[[str], None]
    paired: Callable[[str], str | None]
    extension: Callable[[str], bool]
    links: set[str] = field(default_factory=set)
    clients: set[str] = field(default_factory=set)

    def link(self) -> str:
        """A new token for one visit."""
        self.links.add(secret := token())
        return secret

    def use(self, secret: str) -> bool:
        """Whether a link's token is good; it is not good again."""
        for each in self.links:
            if hmac.compare_digest(each.encode(), secret.encode("utf-8", "replace")):
                self.links.discard(each)  # before the answer: two requests at once get one cookie
                return True
        return False


class Guard:
    """ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp, keys: Keys, port: int, public_url: str | None = None) -> None:
        self.app, self.keys = app, keys
        self.cookie = f"divscore-{port}"  # cookies ignore ports: two servers must not take each other's
        public = urlsplit(public_url or "")
        self.hosts = {*LOCAL, *([public.hostname] if public.hostname else [])}
        self.public = f"{public.scheme}://{public.netloc}" if public_url else None
        self.secure = public.scheme == "https"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on with the role of who sent it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        started = False

        async def send_safely(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Content-Security-Policy", POLICY)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        answer = self.check(scope)
        if answer is not None:
            await answer(scope, receive, send_safely)
            return
        limit = LARGE_BODY if LARGE.fullmatch(scope["path"]) or TABLE.fullmatch(scope["path"]) else SMALL_BODY
        read = 0

        async def receive_limited() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > limit:
                raise HTTPException(413, _too_large(limit))
            return message

        try:
            await self.app(scope, receive_limited, send_safely)
        except HTTPException as error:
            if started:
                raise
            refusal = problem(error.status_code, "Content too large", str(error.detail))
            await refusal(scope, receive, send_safely)

    def check(self, scope: Scope) -> Response | None:
        """The refusal of a request, or None; sets ``scope["role"]``."""
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        host = headers.get("host", "")
        if _hostname(host) not in self.hosts or len(headers.getlist("host")) != 1:
            return problem(403, "Wrong host", "this server answers under its own address only")
        pairing = bool(PAIR.fullmatch(f"{method} {path}"))
        for origin in headers.getlist("origin"):
            own = origin in (f"http://{host}", self.public)
            known = bool(EXTENSION.fullmatch(origin)) and (pairing or self.keys.extension(origin))
            if not own and not known:
                return problem(403, "Wrong origin", "the request comes from another page")
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        entering = given[0] if given and path == "/" and method == "GET" else None
        foreign = any(site not in ("same-origin", "none") for site in headers.getlist("sec-fetch-site"))
        # The file that opens the page in a browser is no page of ours, but knows a link; nothing else comes from there.
        if foreign and not (entering and headers.get("sec-fetch-dest") == "document"):
            return problem(403, "Wrong origin", "the request comes from another site")
        if method not in (*READS, "POST", "PUT", "PATCH", "DELETE"):
            return problem(405, "Method not allowed", f"{method} is not used here")
        role = self.role(headers)
        if entering:
            return self.enter(entering, role, foreign=foreign)
        if role is None and (not pairing or method == "DELETE"):
            if "text/html" in headers.get("accept", ""):  # such as a report that the extension opens
                return Response(CLOSED, 401, media_type="text/html")
            return problem(401, "Not signed in", "a token is missing or no longer valid")
        if role == "extension" and not pairing and not FOR_EXTENSIONS.fullmatch(f"{method} {path}"):
            return problem(403, "Not allowed", "an extension can use page audits only")
        scope["role"] = role
        return self.check_body(method, path, headers)

    def check_body(self, method: str, path: str, headers: Headers) -> Response | None:
        """Writes are JSON, because pages of other sites can send plain text without asking; no body is too large."""
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            return problem(400, "Bad request", "Content-Length is not a number")
        large = LARGE.fullmatch(path) or TABLE.fullmatch(path)
        limit = LARGE_BODY if large else SMALL_BODY
        if len(length) > 12 or int(length) > limit:
            return problem(413, "Content too large", _too_large(limit))
        has_body = int(length) > 0 or "transfer-encoding" in headers
        if method in READS or (method in ("DELETE", "PUT") and not has_body):
            return None
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/json" or (kind == "text/csv" and method == "PUT" and TABLE.fullmatch(path)):
            return None
        return problem(415, "Unsupported media type", "send application/json")

    def role(self, headers: Headers) -> Role | None:
        """Who sent a request, by its cookie or its token."""
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            mark = digest(secret.strip())
            if any(hmac.compare_digest(mark, each) for each in self.keys.clients):
                return "client"
            owner = self.keys.paired(mark)
            # A token belongs to one extension; requests that only read carry no origin.
            return "extension" if owner and headers.get("origin", owner) == owner else None
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return None
        return "person" if cookie is not None and self.keys.session(digest(cookie.value)) else None

    def enter(self, secret: str, role: Role | None, *, foreign: bool) -> Response:
        """Exchange the token of a link for a cookie, and lead to an address without it.

        A browser counts a redirect as part of the visit that began elsewhere, and keeps the cookie back. So whoever
        comes from a file gets a page of ours, which leads on.
        """
        clean: Response = RedirectResponse("/", status_code=303)
        if foreign:
            clean = Response(ENTERED, media_type="text/html")
        good = self.keys.use(secret)
        if role == "person":
            return clean  # a browser that has a cookie already; the link is used up all the same
        if not good:
            return Response(CLOSED, 401, media_type="text/html")
        session = token()
        self.keys.keep(digest(session))
        clean.set_cookie(
            self.cookie, session, max_age=30 * 86400, httponly=True, samesite="strict", secure=self.secure
        )
        return clean


def _hostname(host: str) -> str:
    """The name in a Host header; the port is ignored, because tunnels change it."""
    name = re.fullmatch(r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9.-]+)(:\d{1,5})?", host)
    return name[1].lower() if name else ""


def _too_large(limit: int) -> str:
    return f"the request is larger than {limit // MB} MB; send it in parts"
