"""Many clients add and remove items of one collection of the web app; what is left is the sketch of a batch run.

Every client has ids of its own, so that what is left at the end is known; all of them change the same collection. One
request in ten is sent twice, and must change nothing the second time. The sketch of the server and that of `divscore
sketch` are compared number by number, to the last bit.
"""

from __future__ import annotations

import csv
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from record import Check, Record, Table, parser
from web import served

from divscore.control.controlfile import load_control
from divscore.sketch.sketch import Sketch

WORDS = {
    "sea": ("wave", "salt", "gull", "tide", "sail"),
    "wood": ("oak", "moss", "fern", "root", "leaf"),
}
OWN = 40  # ids of each client


def text(rng: np.random.Generator, group: str) -> str:
    """A short text of a group."""
    return " ".join([*rng.choice(WORDS[group], 4), str(rng.integers(1000))])


class Client:
    """One program that changes a collection as fast as it is answered."""

    def __init__(self, number: int, url: str, secret: str) -> None:
        self.rng = np.random.default_rng(number)
        self.ids = [f"{number:03}-{at:03}" for at in range(OWN)]
        self.left: dict[str, str] = {}
        self.seconds: list[float] = []
        self.failures: list[str] = []
        headers = {"Authorization": f"Bearer {secret}"}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=120, trust_env=False)

    def call(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request and keep how long it took."""
        begun = time.perf_counter()
        answer = self.http.request(method, path, json=body)
        self.seconds.append(time.perf_counter() - begun)
        if answer.status_code != 200:
            self.failures.append(answer.text[:200])
            return {}
        found: dict[str, Any] = answer.json()
        return found

    def run(self, end: float) -> None:
        """Add, replace and remove until the time is over."""
        while time.perf_counter() < end:
            some = [name for name in self.ids if self.rng.random() < 0.3]
            if self.rng.random() < 0.6:
                given = {name: text(self.rng, self.rng.choice(list(WORDS))) for name in some}
                request = (
                    "PUT",
                    "/items",
                    {"items": [{"id": name, "text": own} for name, own in given.items()]},
                )
                self.left.update(given)
            else:
                request = ("POST", "/remove", {"ids": some})
                for name in some:
                    self.left.pop(name, None)
            self.call(*request)
            if self.rng.random() < 0.1:
                again = self.call(*request)
                if any(again.get(name) for name in ("added", "replaced", "removed")):
                    self.failures.append(f"the same request changed something: {again}")
        self.http.close()


def write_table(path: Path, rows: list[list[str]]) -> None:
    """Write a table with its columns first."""
    with open(path, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(rows)


def different_numbers(one: Sketch, other: Sketch) -> int:
    """In how many parts two sketches differ."""
    pairs: list[tuple[Any, Any]] = [(one.total, other.total), ([one.count], [other.count])]
    for name in ("scores", "units"):
        pairs += zip(getattr(one, name)(), getattr(other, name)(), strict=True)
    return sum(not np.array_equal(first, second) for first, second in pairs) + (one.skipped != other.skipped)


def main() -> None:
    options = parser("clients", (__doc__ or "").partition("\n")[0])
    options.add_argument("--clients", type=int, default=50, help="programs at once")
    options.add_argument("--seconds", type=float, default=60, help="how long they change the collection")
    found = options.parse_args()
    record = Record("clients", {name: getattr(found, name) for name in ("clients", "seconds")})
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["DIVSCORE_CACHE"] = str(folder / "cache")
        divscore = [sys.executable, "-m", "divscore"]
        labelled = [[text(rng, group), group] for group in WORDS for _ in range(60)]
        write_table(folder / "labelled.csv", [["text", "group"], *labelled])
        made = [
            "control",
            "select",
            str(folder / "labelled.csv"),
            "--attribute",
            "group",
            "-o",
            str(folder / "C"),
        ]
        subprocess.run([*divscore, *made], check=True, capture_output=True)
        with served(folder / "project", "--control", str(folder / "C")) as server:
            server.call("POST", "/collections", {"name": "posts", "control": 1, "kind": "text"})
            url = server.url.partition("/?")[0] + "/api/v1/collections/1"
            clients = [Client(number, url, server.secret) for number in range(found.clients)]
            begun = time.perf_counter()
            end = begun + found.seconds
            threads = [threading.Thread(target=client.run, args=(end,)) for client in clients]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            taken = time.perf_counter() - begun
            headers = {"Authorization": f"Bearer {server.secret}"}
            sketch = httpx.get(f"{url}/sketch", headers=headers, timeout=120, trust_env=False).content
            memory = server.memory
        left = {name: own for client in clients for name, own in client.left.items()}
        (folder / "server.sketch").write_bytes(sketch)
        write_table(folder / "left.csv", [["id", "text"], *map(list, sorted(left.items()))])
        batch = [
            "sketch",
            str(folder / "left.csv"),
            "--control",
            str(folder / "C"),
            "-o",
            str(folder / "b.sketch"),
        ]
        subprocess.run([*divscore, *batch], check=True, capture_output=True)
        control = load_control(folder / "C")
        ours, theirs = (Sketch.load(folder / file, control) for file in ("server.sketch", "b.sketch"))
        seconds = [each for client in clients for each in client.seconds]
        failures = [each for client in clients for each in client.failures]
        record.notes += failures[:3]
        rows = [
            [len(seconds), taken, len(seconds) / taken, 1000 * statistics.median(seconds), len(left), memory]
        ]
        columns = ["requests", "s", "requests a second", "median ms", "items left", "memory MB"]
        record.tables.append(Table(f"{found.clients} clients", columns, rows))
        record.checks = [
            Check("parts of the sketch that differ from the batch run", different_numbers(ours, theirs), 0),
            Check("items too many or too few", abs(ours.count - len(left)), 0),
            Check("requests that failed or changed something twice", len(failures), 0),
            Check("requests of each client", len(seconds) / found.clients, 10, upper=False),
        ]
        record.finish(found.out)


if __name__ == "__main__":
    main()
