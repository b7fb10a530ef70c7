from __future__ import annotations

import base64
import hmac
import io
import json
import math
import sqlite3
import statistics
import threading
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest
from PIL import Image
from starlette.testclient import TestClient
from webapp import BASE, PORT, SECRET, WORDS, Desk, offline, opened_desk, own_cache, text_control, write_texts  # noqa: F401  fixtures

from divscore.jobs.evidence import verify_evidence
from divscore.web import savedpages
from divscore.web.app import create_app
from divscore.web.pairing import MOST_A_MINUTE, MOST_PENDING

EXTENSION = "chrome-extension://abcdefghijklmnopabcdefghijklmnop"
PAGE = {"control": 1, "mode": "text", "url": "https://example.org/search?q=place", "title": "Places"}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    text_control(tmp_path)
    with opened_desk(tmp_path / "project", [], [str(tmp_path / "C")]) as opened:
        yield opened


def page_items(tmp_path: Path, sea: int, wood: int) -> list[dict[str, Any]]:
    import csv

    write_texts(tmp_path / "page.csv", {"sea": sea, "wood": wood}, seed=9)
    with open(tmp_path / "page.csv", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return [{"id": row["id"], "rank": at, "text": row["text"]} for at, row in enumerate(rows, start=1)]


def ready(desk: Desk, page: int) -> dict[str, Any]:
    for _ in range(6000):
        result: dict[str, Any] = desk.get(f"/page-audits/{page}")
        if result["state"] != "working":
            return result
        time.sleep(0.01)
    raise AssertionError(result)


def test_a_page_is_audited_while_its_items_come_and_saved_with_evidence(desk: Desk, tmp_path: Path) -> None:
    page = desk.post(
        "/page-audits", PAGE | {"language": "en", "viewport": [1280, 720], "query": "place"}, 201
    )["id"]
    assert ready(desk, page)["state"] == "empty"
    items = page_items(tmp_path, 60, 20)
    for start in range(0, 80, 20):
        skipped = {"cross-origin": start // 20}
        body = {"items": items[start : start + 20], "skipped": skipped}
        assert desk.post(f"/page-audits/{page}/items", body, 202)["received"] == 20
    result = ready(desk, page)
    assert (result["state"], result["used"], result["skipped"]) == ("ready", 80, {"cross-origin": 3})
    low, high = result["interval"]
    assert low <= 0.5 <= high
    assert result["trust"] in ("good", "caution")
    assert result["message"]
    # The same items again change nothing; those that left the page are gone.
    desk.post(f"/page-audits/{page}/items", {"items": items[:20]}, 202)
    assert ready(desk, page)["used"] == 80
    desk.post(f"/page-audits/{page}/remove", {"ids": [items[0]["id"]]})
    assert ready(desk, page)["used"] == 79
    assert desk.get(f"/page-audits/{page}", depth=30)["used"] == 29

    stream = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(stream, "PNG")
    body = {"screenshot": base64.b64encode(stream.getvalue()).decode(), "note": "seen on a Monday"}
    saved = desk.post(f"/page-audits/{page}/save", body)
    archive = zipfile.ZipFile(io.BytesIO(desk.client.get(saved["evidence"]).content))
    assert set(archive.namelist()) == {
        "evidence.json",
        "audit.json",
        "report.html",
        "screenshot.png",
        "SHA256SUMS",
    }
    record = json.loads(archive.read("evidence.json"))
    assert (record["url"], record["viewport"], record["query"]) == (PAGE["url"], [1280, 720], "place")
    assert record["control_digest"] == desk.space.control(1).digest
    assert [each["rank"] for each in record["items"]] == list(range(2, 81))
    assert record["items"][0]["sha256"] == sha256(items[1]["text"].encode()).hexdigest()
    stored, written = desk.get(f"/audits/{saved['audit']}"), json.loads(archive.read("audit.json"))
    assert stored == written
    assert stored["collections"][0]["skipped"]["unreadable"] == 3
    assert desk.get("/collections") == []  # those of pages are listed apart
    bad = {"screenshot": base64.b64encode(b"no picture").decode()}
    desk.call("POST", f"/page-audits/{page}/save", 422, json=bad)


def test_an_extension_is_paired_by_a_person_and_can_do_page_audits_only(desk: Desk) -> None:
    app = create_app(desk.space, port=PORT)
    outside = TestClient(
        desk.client.app, base_url=BASE, headers={"Origin": EXTENSION, "Sec-Fetch-Site": "none"}
    )
    api = f"{BASE}/api/v1"
    asked = outside.post(f"{api}/pair", json={"name": "Chromium", "extension": EXTENSION}).json()
    assert outside.get(f"{api}/pair/{asked['request']}").json() == {"state": "pending", "token": None}
    (waiting,) = desk.get("/pairings")
    assert (waiting["state"], waiting["code"], waiting["name"]) == ("pending", asked["code"], "Chromium")
    accepted = desk.post(f"/pairings/{asked['request']}/accept")
    secret = outside.get(f"{api}/pair/{asked['request']}").json()["token"]
    assert outside.get(f"{api}/pair/{asked['request']}").status_code == 404  # given once
    mine = {"Authorization": f"Bearer {secret}"}
    assert outside.post(f"{api}/page-audits", json=PAGE, headers=mine).status_code == 201
    assert outside.get(f"{api}/control-sets", headers=mine).status_code == 200
    for method, path in (
        ("GET", "/projects"),
        ("GET", "/pairings"),
        ("GET", "/audits"),
        ("POST", "/control-sets"),
        ("GET", "/collections"),
        ("GET", "/openapi.json"),
        ("DELETE", f"/pairings/{accepted['id']}"),
    ):
        assert outside.request(method, f"{api}{path}", json={}, headers=mine).status_code == 403, path
    assert outside.get(f"{BASE}/index.html", headers=mine).status_code == 403
    # Another extension that has found the token cannot use it.
    thief = {"Origin": "chrome-extension://zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", **mine}
    assert TestClient(app, base_url=BASE).get(f"{api}/page-audits", headers=thief).status_code == 403
    second = desk.post("/pair", {"name": "other", "extension": thief["Origin"]})
    desk.post(f"/pairings/{second['request']}/accept")
    assert TestClient(app, base_url=BASE).get(f"{api}/page-audits", headers=thief).status_code == 401
    desk.call("DELETE", f"/pairings/{accepted['id']}", 204)
    assert outside.get(f"{api}/page-audits", headers=mine).status_code == 403  # no longer a known origin
    assert TestClient(app, base_url=BASE).get(f"{api}/page-audits", headers=mine).status_code == 401


def test_a_request_to_pair_can_be_rejected_and_few_can_wait(desk: Desk) -> None:
    wish = {"name": "x", "extension": EXTENSION}
    first = desk.post("/pair", wish)
    assert desk.post(f"/pairings/{first['request']}/reject") == {"state": "rejected", "token": None}
    desk.call("POST", f"/pairings/{first['request']}/accept", 409, json={})
    assert desk.get(f"/pair/{first['request']}")["state"] == "rejected"
    answers = [desk.client.post("/api/v1/pair", json=wish).status_code for _ in range(MOST_A_MINUTE)]
    assert answers == [200] * MOST_PENDING + [429] * (MOST_A_MINUTE - MOST_PENDING)
    desk.call("POST", "/pair", 422, json={"name": "x", "extension": "https://evil.example"})
    other = desk.client.post("/api/v1/pair", json=wish, headers={"Origin": "moz-extension://1-2-3"})
    assert other.status_code == 403
    page = desk.client.post("/api/v1/pair", json=wish, headers={"Origin": "https://evil.example"})
    assert page.status_code == 403


def test_a_server_proves_that_it_knows_a_token_and_extensions_can_leave(desk: Desk) -> None:
    outside = TestClient(
        desk.client.app, base_url=BASE, headers={"Origin": EXTENSION, "Sec-Fetch-Site": "none"}
    )
    api, nonce = f"{BASE}/api/v1", "0123456789abcdef"

    def proved(secret: str) -> str:
        key = sha256(secret.encode()).hexdigest().encode()
        return hmac.new(key, nonce.encode(), "sha256").hexdigest()

    program = proved(SECRET)
    assert outside.post(f"{api}/pair/proof", json={"nonce": nonce}).json() == {"proofs": [program]}
    asked = desk.post("/pair", {"name": "x", "extension": EXTENSION})
    desk.post(f"/pairings/{asked['request']}/accept")
    secret = desk.get(f"/pair/{asked['request']}")["token"]
    proofs = outside.post(f"{api}/pair/proof", json={"nonce": nonce}).json()
    assert proofs == {"proofs": [proved(secret), program]}
    assert outside.post(f"{api}/pair/proof", json={"nonce": "short"}).status_code == 422
    page = TestClient(desk.client.app, base_url=BASE, headers={"Origin": "https://evil.example"})
    assert page.post(f"{api}/pair/proof", json={"nonce": nonce}).status_code == 403
    # A wrong token revokes nothing, the own one revokes itself.
    outside.delete(f"{api}/pair", headers={"Authorization": "Bearer wrong"})
    assert len(desk.get("/pairings")) == 1
    assert outside.delete(f"{api}/pair", headers={"Authorization": f"Bearer {secret}"}).status_code == 204
    assert desk.get("/pairings") == []
    # Who has a token for programs needs no app; any other token lets nobody in.
    wish = {"name": "x", "extension": EXTENSION}
    for wrong in (secret, "x" * 43):
        assert outside.post(f"{api}/pair", json=wish | {"token": wrong}).status_code == 403
    assert desk.get("/pairings") == []
    asked = outside.post(f"{api}/pair", json=wish | {"token": SECRET}).json()
    secret = outside.get(f"{api}/pair/{asked['request']}").json()["token"]
    mine = {"Authorization": f"Bearer {secret}"}
    assert outside.get(f"{api}/page-audits", headers=mine).status_code == 200
    assert outside.get(f"{api}/projects", headers=mine).status_code == 403


def test_items_follow_the_order_of_the_page_and_leave_nothing_behind(desk: Desk, tmp_path: Path) -> None:
    target = {"target": {"sea": 0.6}, "target_source": "a register"}
    made = desk.post("/page-audits", PAGE | {"mode": None} | target, 201)
    assert made["mode"] == "text"  # what the encoder of the control set takes
    page, items = made["id"], page_items(tmp_path, 50, 50)
    sea = [each for each in items if any(word in each["text"] for word in WORDS["sea"])]
    wood = [each for each in items if each not in sea]
    names = [each["id"] for each in sea + wood]
    desk.post(f"/page-audits/{page}/items", {"items": items, "order": names}, 202)
    result = ready(desk, page)
    assert result["target"] == {"shares": {"sea": 0.6, "wood": 0.4}, "source": "a register"}
    # The first half is of the sea, so it counts for more: DCG weights say how much.
    weights = [1 / math.log2(rank + 1) for rank in range(1, 101)]
    truth = sum(weights[: len(sea)]) / sum(weights)
    assert truth > 0.6
    low, high = result["rank_weighted_intervals"]["sea"]
    assert low - 0.02 <= truth <= high + 0.02  # steps in place of a smooth curve
    assert result["rank_weighted"]["sea"] > result["shares"]["sea"] + 0.05
    desk.post(f"/page-audits/{page}/items", {"order": names[::-1], "skipped": {"too large": 2}}, 202)
    result = ready(desk, page)
    assert result["rank_weighted"]["sea"] < result["shares"]["sea"] - 0.05
    # Mixed, it depends on the first few whom they show, which shares of many cannot tell: the interval is wider.
    mixed = [name for pair in zip(names[:50], names[:-51:-1], strict=True) for name in pair]
    desk.post(f"/page-audits/{page}/items", {"order": mixed}, 202)
    result = ready(desk, page)
    low, high = result["rank_weighted_intervals"]["sea"]
    own = {each["id"] for each in sea}
    truth = sum(w for w, name in zip(weights, mixed, strict=True) if name in own) / sum(weights)
    assert low <= truth <= high
    first = weights[:20]
    order = math.sqrt(0.25 * 20 * statistics.variance(first)) / sum(
        weights
    )  # of the first 20, half are of the sea
    plain = result["share_intervals"]["sea"]
    assert high - low > 2 * math.hypot((plain[1] - plain[0]) / 2, 1.96 * order)
    desk.post(f"/page-audits/{page}/items", {"order": names[:15]}, 202)
    result = ready(desk, page)
    assert (result["used"], result["few"], result["fewest"]) == (15, True, 20)
    assert set(result["shares"].values()) == {None}
    vectors = next((tmp_path / "project" / "vectors").glob("*.sqlite"))

    def kept() -> int:
        with closing(sqlite3.connect(vectors)) as connection:
            return int(connection.execute("SELECT count(*) FROM items").fetchone()[0])

    assert kept() >= 15
    desk.call("DELETE", f"/page-audits/{page}", 204)
    desk.space.encoder.submit(int).result()
    assert desk.get("/page-audits") == []
    assert kept() == 0
    bad = PAGE | {"target": {"sky": 1.0}}
    assert desk.client.post("/api/v1/page-audits", json=bad).status_code in (409, 422)


def test_runs_of_one_group_show_how_much_they_vary(desk: Desk, tmp_path: Path) -> None:
    shares = []
    for at, counts in enumerate([(30, 30), (40, 20)]):
        about = {"study": "CEO", "run": f"Berlin, repetition {at}"}
        page = desk.post("/page-audits", PAGE | about, 201)["id"]
        desk.post(f"/page-audits/{page}/items", {"items": page_items(tmp_path, *counts)}, 202)
        shares.append(ready(desk, page)["shares"]["sea"])
        assert desk.get(f"/page-audits/{page}")["variation"] is None
        desk.post(f"/page-audits/{page}/save", {})
        desk.call("DELETE", f"/page-audits/{page}", 409)
    variation = {
        "runs": 2,
        "spread": {"sea": pytest.approx(stdev(shares)), "wood": pytest.approx(stdev(shares))},
    }
    assert [each["variation"] for each in desk.get("/page-audits", saved=True)] == [variation] * 2
    unsaved = desk.post("/page-audits", PAGE | {"study": "CEO"}, 201)["id"]
    assert desk.get(f"/page-audits/{unsaved}")["variation"] == variation
    assert len(desk.get("/page-audits", saved=True)) == 2
    report = desk.client.get(f"/api/v1/page-audits/{page}/report")
    assert "sandbox" in report.headers["content-security-policy"]


def test_saving_waits_for_changes_and_takes_the_names_of_now(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, items = desk.post("/page-audits", PAGE, 201)["id"], page_items(tmp_path, 30, 30)
    desk.post(f"/page-audits/{page}/items", {"items": items}, 202)
    ready(desk, page)
    gate, waits, wait = threading.Event(), threading.Event(), savedpages.wait
    monkeypatch.setattr(savedpages, "wait", lambda *about: (waits.set(), wait(*about))[1])
    desk.space.encoder.submit(gate.wait)  # items of some request are being changed
    with ThreadPoolExecutor(1) as pool:
        names = {"run": "Berlin", "study": "CEO", "part": [0, 10, 600, 400]}  # given after the audit began
        saving = pool.submit(desk.post, f"/page-audits/{page}/save", names)
        try:
            assert waits.wait(60)
            with pytest.raises(TimeoutError):
                saving.result(0.3)
            # Nobody waits for long.
            monkeypatch.setattr(savedpages, "MOST_SECONDS", 0.1)
            desk.call("POST", f"/page-audits/{page}/save", 409, json=names)
        finally:
            gate.set()
        saved = saving.result(60)
    file = tmp_path / "evidence.zip"
    file.write_bytes(desk.client.get(saved["evidence"]).content)
    checked = verify_evidence(file)
    with zipfile.ZipFile(file) as archive:
        assert json.loads(archive.read("evidence.json"))["part"] == [0, 10, 600, 400]
    assert (checked.items, checked.pictures, checked.run) == (
        saved["items"],
        saved["pictures"],
        "CEO, Berlin",
    )
    (entry,) = desk.get("/page-audits", saved=True)
    assert (entry["run"], entry["study"]) == ("Berlin", "CEO")


def test_titles_may_have_control_characters(desk: Desk, tmp_path: Path) -> None:
    long = "https://example.org/?q=" + "x" * 100_000
    for title, url in (("CEO\n\x8f\x00", "https://example.org"), ("", "\x8f7u\ud9a0"[:2]), ("", long)):
        desk.post("/page-audits", {"control": 1, "mode": "text", "url": url, "title": title}, 201)
