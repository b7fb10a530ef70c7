"""The server as a process: start, ports, Ctrl-C, kill -9."""

from __future__ import annotations

import csv
import io
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from webapp import change, offline, own_cache, started_server, write_texts  # noqa: F401  fixtures

from divscore.errors import InputError
from divscore.web.server import MORE_PORTS, PORT, bound_socket, check_public_url, serve


def wait_for(client: httpx.Client, started: dict[str, str]) -> None:
    while (state := client.get(started["url"]).json()["state"]) != "done":
        assert state in ("queued", "running")
        time.sleep(0.02)


def test_every_acknowledged_label_survives_a_kill(tmp_path: Path) -> None:
    """A client labels as fast as it can; the server is killed in the middle, twice, and the client sends again."""
    write_texts(tmp_path / "posts.csv", {"sea": 400, "wood": 400})
    project, port = "/api/v1/projects/1", []
    acknowledged: dict[str, str] = {}  # by item
    sent = 0
    items: list[int] = []
    for attempt in range(3):
        # Not the usual port at first: another test may take it before this server is back.
        words = ["--source", str(tmp_path / "posts.csv"), "--port", *(port or ["0"])]
        with started_server(tmp_path / "project", *words) as server:
            port = port or [server.base.rpartition(":")[2]]
            headers = {"Authorization": f"Bearer {server.secret}"}
            with httpx.Client(base_url=server.base, headers=headers, timeout=60) as client:
                if not attempt:
                    body = {
                        "source": 1,
                        "attribute": "place",
                        "groups": ["sea", "wood"],
                        "basis": "perceived",
                    }
                    assert client.post("/api/v1/projects", json=body).status_code == 201
                    wait_for(client, client.post(f"{project}/sample", json={"size": 600}).json())
                    shown = client.get(f"{project}/items", params={"annotator": "ann"}).json()["items"]
                    items = [item["id"] for item in shown]
                else:
                    shown = client.get(f"{project}/items", params={"annotator": "ann"}).json()
                    saved = {item["id"]: item["label"] for item in shown["items"] if item["label"]}
                    assert acknowledged.items() <= {str(key): label for key, label in saved.items()}.items()
                    # What was on its way when the server died may be there, but nothing else.
                    assert len(acknowledged) <= shown["saved"] <= len(acknowledged) + 1
                if attempt == 2:
                    table = client.get(f"{project}/labels.csv").text
                    rows = list(csv.DictReader(io.StringIO(table)))
                    assert len({row["item"] for row in rows}) == len(rows) == shown["saved"]
                    break
                killer = threading.Timer(0.05, server.popen.kill)
                first, most = sent, len(items) * (attempt + 1) // 2
                try:
                    while sent < most:
                        if sent == first + 40:  # counted: how many a machine manages in a time differs
                            killer.start()
                        label = ("sea", "wood")[sent % 2]
                        changes = [change(items[sent], label, key=f"key-{sent}")]
                        answer = client.post(
                            f"{project}/labels", json={"annotator": "ann", "changes": changes}
                        )
                        assert answer.json()["accepted"] == [f"key-{sent}"]
                        acknowledged[str(items[sent])] = label
                        sent += 1
                except httpx.TransportError:
                    pass
                killer.join()
                server.popen.wait(timeout=60)
    assert len(acknowledged) > 20


def test_ctrl_c_ends_with_0_and_streams_are_closed(tmp_path: Path) -> None:
    write_texts(tmp_path / "posts.csv", {"sea": 30, "wood": 30})
    with started_server(tmp_path / "project", "--source", str(tmp_path / "posts.csv")) as server:
        with httpx.Client(
            base_url=server.base, headers={"Authorization": f"Bearer {server.secret}"}, timeout=60
        ) as client:
            body = {"source": 1, "attribute": "x", "groups": ["a", "b"], "basis": "perceived"}
            client.post("/api/v1/projects", json=body)
            job = client.post("/api/v1/projects/1/sample", json={"size": 5}).json()
            with client.stream("GET", f"{job['url']}/events") as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")
                lines = [line for line in stream.iter_lines() if line]
            assert lines[-1].startswith("data: ")
            assert '"state":"done"' in lines[-1]
        assert server.interrupt() == 0
    assert server.popen.returncode == 0
    # The log is folded into the database, which is complete alone.
    assert not (tmp_path / "project" / "divscore.db-wal").exists()


def test_a_cookie_is_good_after_a_restart_and_a_link_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started_server(tmp_path / "project", "--port", "0") as server:
        with httpx.Client(follow_redirects=True, timeout=60) as browser:
            assert browser.get(server.url).status_code == 200
            cookies = dict(browser.cookies)
        link, port = server.url, server.base.rpartition(":")[2]
        server.kill()
    monkeypatch.setenv("DIVSCORE_TOKEN", "a-token-that-programs-keep-over-restarts")
    with started_server(tmp_path / "project", "--port", port) as server:
        assert httpx.get(f"{server.base}/api/v1/status", cookies=cookies, timeout=60).status_code == 200
        assert server.secret == "$DIVSCORE_TOKEN"
        own = {"Authorization": f"Bearer {os.environ['DIVSCORE_TOKEN']}"}
        assert httpx.get(f"{server.base}/api/v1/status", headers=own, timeout=60).status_code == 200
        monkeypatch.setenv("DIVSCORE_TOKEN", "short")
        with pytest.raises(InputError, match="DIVSCORE_TOKEN has 5 characters; use 32"):
            serve(tmp_path / "third", headless=True)
        monkeypatch.delenv("DIVSCORE_TOKEN")
        assert httpx.get(link, timeout=60).status_code == 401
        second = subprocess.run(
            [
                sys.executable,
                "-m",
                "divscore",
                "serve",
                str(tmp_path / "other"),
                "--headless",
                "--port",
                port,
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert second.returncode == 2
        assert f"port {port} cannot be used" in second.stderr
        shared = subprocess.run(
            [sys.executable, "-m", "divscore", "serve", str(tmp_path / "project"), "--headless"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert shared.returncode == 2
        assert "in use by another" in shared.stderr
        assert server.interrupt() == 0


def test_the_default_port_moves_and_an_explicit_one_does_not() -> None:
    with bound_socket(None) as first, bound_socket(None) as second:
        ports = [each.getsockname() for each in (first, second)]
        assert ports[0][0] == ports[1][0] == "127.0.0.1"
        # The second may be below the first: a server of another test may have ended in between.
        assert len({port for _, port in ports} & {*range(PORT, PORT + MORE_PORTS)}) == 2
        with pytest.raises(InputError, match=f"port {ports[0][1]} cannot be used"):
            bound_socket(ports[0][1])


@pytest.mark.parametrize(
    "url", ["audits.example.org", "ftp://x", "https://", "https://a/path", "https://a/?x=1"]
)
def test_a_public_address_must_be_an_origin(url: str) -> None:
    with pytest.raises(InputError, match="--public-url"):
        check_public_url(url)


def test_label_prints_one_line_and_says_what_the_page_asks_for(tmp_path: Path) -> None:
    write_texts(tmp_path / "my posts.csv", {"sea": 30, "wood": 30})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        "label",
        "my posts.csv",
        "--groups",
        "sea,wood",
        "--attribute",
        "place",
        "--no-browser",
        "--port",
        str(port),
    ]
    popen = subprocess.Popen(
        [sys.executable, "-m", "divscore", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    try:
        assert popen.stdout is not None
        url = popen.stdout.readline().strip()
        assert re.fullmatch(rf"http://127\.0\.0\.1:{port}/\?token=[\w-]{{40,}}", url)
        with httpx.Client(follow_redirects=True, timeout=60) as browser:
            assert browser.get(url).status_code == 200
            status = browser.get(f"http://127.0.0.1:{port}/api/v1/status").json()
        assert status["start"] == {
            "source": 1,
            "groups": ["sea", "wood"],
            "attribute": "place",
            "column": None,
            "by": None,
        }
        assert status["project"] == "divscore-project"
        popen.terminate()
        rest, talk = popen.communicate(timeout=60)
    finally:
        popen.kill()
    assert popen.returncode == 0
    assert rest == ""
    assert "token" not in talk
    assert (tmp_path / "divscore-project" / "divscore.db").stat().st_mode & 0o777 == 0o600


def test_a_source_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "divscore", "label", "nothing", "--no-browser", "--port", "0"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=False,
        env=os.environ,
    )
    assert result.returncode == 2
    assert "nothing does not exist" in result.stderr
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_websocket_is_refused_without_a_word(tmp_path: Path) -> None:
    with started_server(tmp_path / "project") as server:
        port = int(server.base.rpartition(":")[2])
        lines = (
            "GET /api/v1/status HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        )
        with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
            raw.sendall("\r\n".join((*lines, "", "")).encode())
            assert raw.recv(100).startswith(b"HTTP/1.1 401")
        assert server.interrupt() == 0
        assert server.popen.stderr is not None
        assert len(server.popen.stderr.read().splitlines()) == 1  # the one about the address
