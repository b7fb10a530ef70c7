"""Everything that the server refuses, each once, and that it refuses on every route."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient
from webapp import BASE, PORT, SECRET, Desk, offline, opened_desk, own_cache  # noqa: F401  fixtures

from divscore.web.app import STATIC, create_app, inner_app, routers
from divscore.web.guard import API, LARGE_BODY, MOST_LINKS, SMALL_BODY
from divscore.web.pairing import MOST_PROGRAMS

ALLOWED = {"Authorization": f"Bearer {SECRET}"}
OPEN = {
    ("POST", "/api/v1/pair"),
    ("GET", "/api/v1/pair/{wanted}"),
    ("POST", "/api/v1/pair/proof"),
}  # whoever asks to be paired has no token yet, and nobody shows it to a server that has not proved to know it


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with opened_desk(tmp_path_factory.mktemp("guard")) as opened:
        yield opened


@pytest.fixture
def stranger(desk: Desk) -> TestClient:
    """A client without any token."""
    return TestClient(create_app(desk.space, port=PORT), base_url=BASE, follow_redirects=False)


def every_route(desk: Desk) -> list[tuple[str, str]]:
    routes = [route for part in routers() for route in part.routes if isinstance(route, APIRoute)]
    every = [(method, f"{API}{route.path}") for route in routes for method in sorted(route.methods)]
    described = inner_app(desk.space).openapi()["paths"]
    assert {(method.upper(), path) for path, own in described.items() for method in own} == set(every)
    return every


def test_every_route_needs_a_token(desk: Desk, stranger: TestClient) -> None:
    routes = every_route(desk)
    assert len(routes) > 60
    assert set(routes) >= OPEN
    files = [("GET", f"/{path.relative_to(STATIC)}") for path in STATIC.rglob("*") if path.is_file()]
    assert files
    others = [
        ("GET", "/"),
        ("GET", "/api/v1/openapi.json"),
        ("GET", "/no-such-file"),
        ("GET", "/api/v1/nothing"),
    ]
    for method, path in [*routes, *files, *others]:
        if (method, path) in OPEN:
            continue
        url = re.sub(r"\{\w+\}", "1", path)
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": f"divscore-{PORT}=wrong"}):
            answer = stranger.request(method, url, json=None if method == "GET" else {}, headers=headers)
            assert answer.status_code == 401, (method, url, headers)
            assert answer.headers["x-divscore"]
            assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_the_description_says_which_routes_need_the_token(desk: Desk) -> None:
    described = desk.get("/openapi.json")
    assert described["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}
    assert described["security"] == [{"token": []}]
    free = {
        (method.upper(), path)
        for path, own in described["paths"].items()
        for method, operation in own.items()
        if operation.get("security") == []
    }
    assert free == OPEN


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "0.0.0.0",
        "127.0.0.2",
        "",
        "[::2]",
        "a b",
        "127.1",
    ],
)
def test_another_host_is_refused_as_rebinding_would_send_it(stranger: TestClient, host: str) -> None:
    for path in ("/", "/api/v1/status", "/index.html"):
        for name in (host, f"{host}:{PORT}"):
            answer = stranger.get(path, headers={"Host": name, "Origin": f"http://{name}", **ALLOWED})
            assert answer.status_code == 403, name
            assert answer.json()["title"] == "Wrong host"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "LOCALHOST", "127.0.0.1:9999", "localhost:1"]
)
def test_loopback_is_answered_at_any_port_as_tunnels_need(stranger: TestClient, host: str) -> None:
    assert stranger.get("/api/v1/status", headers={"Host": host, **ALLOWED}).status_code == 200


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "https://evil.example",
        f"https://127.0.0.1:{PORT}",
        "http://127.0.0.1:3000",
        f"http://localhost:{PORT}",
        "http://127.0.0.1",
        "chrome-extension://abcdefghijklmnop",
        "file://",
        "",
    ],
)
def test_another_origin_is_refused(stranger: TestClient, origin: str) -> None:
    for method in ("GET", "POST"):
        answer = stranger.request(method, "/api/v1/projects", json={}, headers={"Origin": origin, **ALLOWED})
        assert answer.status_code == 403
        assert answer.json()["title"] == "Wrong origin"


def test_our_own_origin_is_answered(stranger: TestClient) -> None:
    assert stranger.get("/api/v1/projects", headers={"Origin": BASE, **ALLOWED}).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
def test_another_site_and_another_port_are_refused(stranger: TestClient, site: str) -> None:
    for path in ("/", "/index.html", "/api/v1/status"):
        assert stranger.get(path, headers={"Sec-Fetch-Site": site, **ALLOWED}).status_code == 403
    assert (
        stranger.get("/index.html", headers={"Sec-Fetch-Site": "same-origin", **ALLOWED}).status_code == 200
    )


def test_a_link_works_once(desk: Desk, stranger: TestClient) -> None:
    link = desk.space.keys.link()
    first = stranger.get(f"/?token={link}")
    assert first.status_code == 303
    assert first.headers["location"] == "/"
    cookie = first.headers["set-cookie"]
    assert cookie.startswith(f"divscore-{PORT}=")
    for word in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert word.lower() in cookie.lower()
    assert link not in cookie
    assert first.headers["referrer-policy"] == "no-referrer"
    assert stranger.get("/", headers={"Accept": "text/html"}).status_code == 200  # by the cookie
    assert stranger.get(f"/?token={link}").status_code == 303  # its own browser, again
    thief = TestClient(create_app(desk.space, port=PORT), base_url=BASE, follow_redirects=False)
    stolen = thief.get(f"/?token={link}", headers={"Accept": "text/html"})
    assert stolen.status_code == 401
    assert "set-cookie" not in stolen.headers
    assert thief.get("/api/v1/status", headers={"Authorization": f"Bearer {link}"}).status_code == 401
    unused = desk.space.keys.link()
    assert (
        stranger.get(f"/?token={unused}").status_code == 303
    )  # with a cookie; the link is used up all the same
    assert thief.get(f"/?token={unused}").status_code == 401
    # Another port is another server, and takes none of these cookies.
    other = TestClient(create_app(desk.space, port=PORT + 1), base_url=BASE, cookies=dict(stranger.cookies))
    assert other.get("/api/v1/status").status_code == 401
    # A person who opens a report in another browser can read why not.
    opened = other.get("/api/v1/page-audits/1/report", headers={"Accept": "text/html,*/*"})
    assert (opened.status_code, "needs its link" in opened.text) == (401, True)


def test_only_a_link_lets_a_visit_from_elsewhere_in(desk: Desk, stranger: TestClient) -> None:
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for path in ("/", "/index.html", "/api/v1/status", "/?token=wrong"):
        assert stranger.get(path, headers=visit).status_code in (401, 403)
    link = desk.post("/links", expected=201)["token"]
    assert stranger.get(f"/?token={link}", headers=visit | {"Sec-Fetch-Dest": "image"}).status_code == 403
    entered = stranger.get(f"/?token={link}", headers=visit)
    # A redirect would still count as a visit from elsewhere, without the cookie.
    assert (entered.status_code, "url=/" in entered.text, link in entered.text) == (200, True, False)
    assert stranger.get("/", headers=visit).status_code == 403  # the cookie alone is not enough
    assert stranger.get("/", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
    for _ in range(MOST_LINKS - len(desk.space.keys.links)):
        desk.post("/links", expected=201)
    desk.call("POST", "/links", 409, json={})
    desk.space.keys.links.clear()


def test_a_cookie_ends_after_a_month(desk: Desk, stranger: TestClient) -> None:
    stranger.get(f"/?token={desk.space.keys.link()}")
    assert stranger.get("/api/v1/status").status_code == 200
    desk.space.store.write("UPDATE sessions SET made = '2020-01-01T00:00:00.000000+00:00'")
    assert stranger.get("/api/v1/status").status_code == 401


def test_the_page_makes_tokens_for_programs(desk: Desk, stranger: TestClient) -> None:
    secret = desk.post("/tokens", expected=201)["token"]
    assert stranger.get("/api/v1/status").status_code == 401
    answer = stranger.get("/api/v1/status", headers={"Authorization": f"Bearer {secret}"})
    assert answer.status_code == 200
    for _ in range(MOST_PROGRAMS - len(desk.space.keys.clients)):
        desk.post("/tokens", expected=201)
    desk.call("POST", "/tokens", 409, json={})


def test_tokens_are_not_in_the_database(desk: Desk, stranger: TestClient) -> None:
    stranger.get(f"/?token={desk.space.keys.link()}")
    (cookie,) = stranger.cookies.values()
    assert stranger.get("/api/v1/status").status_code == 200
    files = [path.read_bytes() for path in Path(desk.space.folder).iterdir() if path.is_file()]
    assert files
    assert not any(cookie.encode() in data for data in files)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None]
)
def test_writes_are_json(stranger: TestClient, kind: str | None) -> None:
    headers = ALLOWED | ({"Content-Type": kind} if kind else {})
    answer = stranger.post("/api/v1/projects", content=b"{}", headers=headers)
    assert answer.status_code == 415
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_body_that_is_too_large_is_refused(stranger: TestClient, desk: Desk) -> None:
    headers = ALLOWED | {"Content-Type": "application/json"}
    for path, limit in (("/api/v1/projects", SMALL_BODY), ("/api/v1/collections/1/items", LARGE_BODY)):
        told = stranger.request(
            "PUT", path, content=b"", headers=headers | {"Content-Length": str(limit + 1)}
        )
        assert told.status_code == 413

    def stream() -> Iterator[bytes]:  # which does not say how long it is
        for _ in range(SMALL_BODY // (1 << 20) + 1):
            yield b" " * (1 << 20)

    untold = stranger.post("/api/v1/projects", content=stream(), headers=headers)
    assert untold.status_code == 413
    assert untold.json()["status"] == 413


@pytest.mark.parametrize(
    "path",
    [
        "/../../../etc/passwd",
        "/..%2f..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/app.py",
        "//etc/passwd",
        "/static/../guard.py",
        "/api/v1/items/..%2f..%2fetc%2fpasswd/image",
        "/api/v1/audits/../../app.py",
    ],
)
def test_no_path_leads_out_of_the_static_files(stranger: TestClient, path: str) -> None:
    answer = stranger.get(path, headers=ALLOWED)
    assert answer.status_code in (404, 405, 422)
    assert b"root:" not in answer.content
    assert b"import" not in answer.content


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
def test_a_preflight_is_not_answered(stranger: TestClient, method: str) -> None:
    headers = {"Origin": BASE, "Access-Control-Request-Method": "POST", **ALLOWED}
    answer = stranger.request(method, "/api/v1/projects", headers=headers)
    assert answer.status_code == 405
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_a_public_address_is_one_more_host_and_origin(desk: Desk) -> None:
    app = create_app(desk.space, port=PORT, public_url="https://audits.example.org")
    client = TestClient(app, base_url="https://audits.example.org", headers=ALLOWED, follow_redirects=False)
    assert client.get("/api/v1/status", headers={"Origin": "https://audits.example.org"}).status_code == 200
    assert client.get("/api/v1/status", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.get("/api/v1/status", headers={"Host": "www.audits.example.org"}).status_code == 403
    fresh = TestClient(app, base_url="https://audits.example.org", follow_redirects=False)
    assert "secure" in fresh.get(f"/?token={desk.space.keys.link()}").headers["set-cookie"].lower()


def test_errors_are_problem_documents(desk: Desk) -> None:
    for method, path, body, status in (
        ("GET", "/api/v1/nothing", None, 404),
        ("GET", "/api/v1/projects/99", None, 404),
        ("GET", "/api/v1/projects/99999999999999999999999999", None, 422),
        ("POST", "/api/v1/projects", {"source": 1}, 422),
        ("PUT", "/api/v1/projects", {}, 405),
    ):
        answer = desk.client.request(method, path, json=body)
        assert answer.headers["content-type"] == "application/problem+json", path
        assert answer.json().keys() == {"type", "title", "status", "detail"}
        assert answer.json()["status"] == answer.status_code == status
    broken = desk.client.post("/api/v1/projects", content=b"{", headers={"Content-Type": "application/json"})
    assert broken.status_code == 422
    assert broken.json()["detail"].startswith("the body is not valid JSON: ")
