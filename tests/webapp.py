"""The web app for tests: in this process behind its guard, or as a server of its own."""

from __future__ import annotations

import csv
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from divscore.control.controlfile import save_control
from divscore.jobs.encode import Encoding
from divscore.jobs.pool import read_control
from divscore.web.app import create_app
from divscore.web.guard import digest
from divscore.web.workspace import Workspace

PORT = 8642
BASE = f"http://127.0.0.1:{PORT}"
SECRET = "a-token-for-tests"
WORDS = {"sea": ("wave", "salt", "gull", "tide", "sail"), "wood": ("oak", "moss", "fern", "root", "leaf")}


def write_texts(path: Path, counts: dict[str, int], seed: int = 0, *, groups: bool = False) -> dict[str, str]:
    """Write a table of texts of two groups that differ in their words; return the group of each id."""
    rng = np.random.default_rng(seed)
    names = rng.permutation([name for name, number in counts.items() for _ in range(number)])
    truth = {}
    with open(path, "w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["id", "text", *(["group"] if groups else [])])
        for number, name in enumerate(names.tolist()):
            words = [str(rng.choice(WORDS[name])) for _ in range(4)] + [str(rng.integers(1000))]
            truth[f"t{number}"] = name
            table.writerow([f"t{number}", " ".join(words), *([name] if groups else [])])
    return truth


def text_control(folder: Path, each: int = 60) -> str:
    """Write a control set of labelled texts, C in a folder, and return its path."""
    write_texts(folder / "labelled.csv", {"sea": each, "wood": each}, seed=3, groups=True)
    with Encoding() as encoding:
        save_control(read_control(folder / "labelled.csv", encoding), folder / "C")
    return str(folder / "C")


@dataclass
class Desk:
    """A client of an app, and what its tests do again and again."""

    client: TestClient
    space: Workspace

    def call(self, method: str, path: str, expected: int = 200, **options: Any) -> Any:
        """Call the API; return the JSON of the answer."""
        answer = self.client.request(method, f"/api/v1{path}", **options)
        assert answer.status_code == expected, f"{method} {path}: {answer.status_code} {answer.text[:500]}"
        return (
            answer.json() if "json" in answer.headers.get("content-type", "") and answer.content else answer
        )

    def get(self, path: str, **query: Any) -> Any:
        """Read."""
        return self.call("GET", path, params=query)

    def post(self, path: str, body: Any = None, expected: int = 200) -> Any:
        """Write."""
        return self.call("POST", path, expected, json={} if body is None else body)

    def finish(self, started: dict[str, Any], state: str = "done") -> Any:
        """Wait for a job; return its result, or its error."""
        for _ in range(6000):
            job = self.get(f"/jobs/{started['job']}")
            if job["state"] not in ("queued", "running"):
                assert job["state"] == state, job
                return job["result"] if state == "done" else job
            time.sleep(0.01)
        raise AssertionError(f"the job does not end: {job}")

    def project(self, size: int = 20, **more: Any) -> int:
        """A project about the first source, with a sample."""
        body = {
            "source": 1,
            "attribute": "place",
            "groups": ["sea", "wood"],
            "basis": "perceived",
            "size": size,
        }
        number = int(self.post("/projects", body | more, 201)["id"])
        self.finish(self.post(f"/projects/{number}/sample", {"size": size}, 202))
        return number

    def label(self, project: int, labels: dict[int, str | None], annotator: str = "ann", **more: Any) -> Any:
        """Save labels by item."""
        return self.post(
            f"/projects/{project}/labels",
            {
                "annotator": annotator,
                "changes": [change(item, name, **more) for item, name in labels.items()],
            },
        )

    def label_all(self, project: int, truth: dict[str, str], annotator: str = "ann") -> None:
        """Label every drawn item as it is."""
        items = self.get(f"/projects/{project}/items", annotator=annotator)["items"]
        self.label(project, {item["id"]: truth[item["name"]] for item in items}, annotator)


def change(item: int, label: str | None, *, key: str | None = None, at: str | None = None) -> dict[str, Any]:
    """One change, as a page sends it."""
    stamp = at or datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {"key": key or uuid.uuid4().hex, "item": item, "label": label, "at": stamp}


@contextmanager
def opened_desk(folder: Path, sources: Sequence[str] = (), controls: Sequence[str] = ()) -> Iterator[Desk]:
    """An app in this process, with a client that has its token."""
    space = Workspace(folder, sources, controls)
    space.keys.clients.add(digest(SECRET))
    app = create_app(space, port=PORT)
    try:
        with TestClient(app, base_url=BASE, headers={"Authorization": f"Bearer {SECRET}"}) as client:
            yield Desk(client, space)
    finally:
        space.close()


@dataclass
class Process:
    """A server that runs as a process of its own."""

    popen: subprocess.Popen[str]
    url: str
    secret: str

    @property
    def base(self) -> str:
        """Its address, without the token."""
        return self.url.partition("/?")[0]

    def kill(self) -> None:
        """End it without a chance to finish anything."""
        self.popen.kill()
        self.popen.wait(timeout=60)

    def interrupt(self) -> int:
        """Press Ctrl-C; return the exit code."""
        self.popen.send_signal(signal.SIGINT)
        return self.popen.wait(timeout=60)


@contextmanager
def started_server(folder: Path, *words: str, cwd: Path | None = None) -> Iterator[Process]:
    """Start `divscore serve FOLDER --headless`, and end it at last."""
    command = [sys.executable, "-m", "divscore", "serve", str(folder), "--headless", *words]
    popen = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert popen.stdout is not None
    try:
        url, secret = popen.stdout.readline().strip(), popen.stdout.readline().strip()
        if not re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]+", url):
            popen.kill()
            raise AssertionError(f"{url!r}, {popen.communicate()}")
        yield Process(popen, url, secret.rpartition(" ")[2])
    finally:
        if popen.poll() is None:
            popen.kill()
        popen.communicate(timeout=60)


# Fixtures, which the modules of tests/web import


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the vectors of a test out of the user's cache."""
    monkeypatch.setenv("DIVSCORE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request leaves the machine."""
    connect = socket.socket.connect

    def connect_here(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a connection to {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_here)


@pytest.fixture
def truth(tmp_path: Path) -> dict[str, str]:
    """The group of each of 300 texts in posts.csv: 75 of the sea, 225 of the wood."""
    return write_texts(tmp_path / "posts.csv", {"sea": 75, "wood": 225})


@pytest.fixture
def desk(tmp_path: Path, truth: dict[str, str]) -> Iterator[Desk]:
    """An app with one source, posts.csv."""
    with opened_desk(tmp_path / "project", [str(tmp_path / "posts.csv")]) as opened:
        yield opened
