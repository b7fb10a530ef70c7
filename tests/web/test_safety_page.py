"""Labels when things go wrong: the server ends, the page is closed, the network is gone."""

from __future__ import annotations

import csv
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from browsing import until
from webapp import own_cache, started_server, write_texts  # noqa: F401  a fixture
from webpages import (
    client,
    drawn,
    make_project,
    open_labels,
    opened_page,
    press_all,
    press_quickly,
    wait_for_item,
    wait_saved,
)

pytestmark = pytest.mark.browser

# A socket of the server that would leave the machine is an error that the test sees.
NO_NETWORK = """
import os, socket
plain = socket.socket.connect
def connect(self, address):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1"):
        with open(os.environ["NETWORK_LOG"], "a") as log:
            log.write(f"{address}\\n")
        raise OSError("the network is blocked")
    return plain(self, address)
socket.socket.connect = connect
"""

# A server that ends in the middle of an answer: what the page makes of it.
HALF = """async () => {
  const { get } = await import("./api.js");
  const whole = window.fetch;
  const body = new ReadableStream({ pull: (half) => half.error(new TypeError("Failed to fetch")) });
  window.fetch = async () => new Response(body, { headers: { "Content-Type": "application/json" } });
  try {
    return await get("/status").catch((error) => error.message);
  } finally {
    window.fetch = whole;
  }
}"""
# Answers to two tabs need not arrive in the order in which labels were saved: the number of the latest stays.
LATE = """async () => {
  const { Queue } = await import("./queue.js");
  const queue = new Queue({ id: 99, made: "" }, "Ann", 0);
  for (const version of [1, 3, 2]) queue.count({ saved: 10 * version, version });
  queue.close();
  return queue.saved;
}"""


def saved_changes(folder: Path) -> list[tuple[str, int, str | None]]:
    """All changes in the database: key, item, label."""
    database = sqlite3.connect(f"file:{folder / 'divscore.db'}?mode=ro", uri=True)
    try:
        return database.execute("SELECT key, item, label FROM changes").fetchall()
    finally:
        database.close()


def test_labels_wait_in_the_browser_while_the_server_is_gone(browser: Any, tmp_path: Path) -> None:
    write_texts(tmp_path / "posts.csv", {"sea": 75, "wood": 225})
    words = ("--source", str(tmp_path / "posts.csv"))
    with started_server(tmp_path / "project", "--port", "0", *words) as server:
        make_project(server, ["sea", "wood"], 60)
        with opened_page(browser, server, quiet=False) as page:
            open_labels(page)
            press_all(page, ["1", "2"])
            wait_saved(page, "Saved 2/60")
            server.kill()
            press_all(page, ["1", "2", "1"], first=3)
            page.wait_for_function(
                "() => document.querySelector('#banner').textContent.includes('Not saved yet: 3')"
            )
            assert "kept in this browser and sent when the server is back" in page.inner_text("#banner")
            assert page.inner_text(".saved") == "Saved 2/60, 3 not yet"
            assert page.evaluate(HALF) == "divscore does not answer. Is it still running in the terminal?"
            # Another page of the same browser has them too, if this one is closed.
            other = page.context.new_page()
            page.close()
            port = server.base.rpartition(":")[2]
            with started_server(tmp_path / "project", "--port", port, *words) as again:
                other.goto(f"{again.base}/#/label/1")
                other.wait_for_selector(".stage > *")
                wait_saved(other, "Saved 5/60")
                wait_for_item(other, 6)
                assert other.inner_text("#banner") == ""
                labels = [item["label"] for item in drawn(again, annotator="Ann")]
                assert labels[:6] == ["sea", "wood", "sea", "wood", "sea", None]
                assert other.evaluate("Object.keys(localStorage).filter(key => key.includes('change'))") == []


@pytest.mark.slow
def test_every_acknowledged_label_survives_kill_9_and_none_is_there_twice(
    quick_browser: Any, tmp_path: Path
) -> None:
    number = 1000
    write_texts(tmp_path / "posts.csv", {"sea": number, "wood": number})
    words = ("--source", str(tmp_path / "posts.csv"))
    folder = tmp_path / "project"
    keys = ["12us"[place * 7 % 4] for place in range(number)]
    with started_server(folder, "--port", "0", *words) as server:
        make_project(server, ["sea", "wood"], number + 1)
        with opened_page(quick_browser, server, quiet=False) as page:
            open_labels(page)
            press_quickly(page, keys[: number // 2 + 1])
            server.kill()  # while the last label is on its way
            acknowledged = int(page.inner_text(".saved").split()[1].split("/")[0])
            assert len(saved_changes(folder)) >= acknowledged > 0
            press_all(page, keys[number // 2 + 1 : number // 2 + 20], first=number // 2 + 2)
            port = server.base.rpartition(":")[2]
            with started_server(folder, "--port", port, *words) as again:
                press_quickly(page, keys[number // 2 + 20 :], first=number // 2 + 21)
                wait_saved(page, f"Saved {number}/{number + 1}")
                meaning = {"1": "sea", "2": "wood", "u": "unsure", "s": "skip"}
                labels = [item["label"] for item in drawn(again, annotator="Ann")]
                assert labels == [*(meaning[key] for key in keys), None]
    changes = saved_changes(folder)
    assert (
        len(changes) == len({key for key, _, _ in changes}) == len({item for _, item, _ in changes}) == number
    )


def test_two_tabs_of_one_person_do_not_lose_each_others_labels(browser: Any, tmp_path: Path) -> None:
    write_texts(tmp_path / "posts.csv", {"sea": 75, "wood": 225})
    with started_server(
        tmp_path / "project", "--port", "0", "--source", str(tmp_path / "posts.csv")
    ) as server:
        make_project(server, ["sea", "wood"], 40)
        with opened_page(browser, server) as page:
            open_labels(page)
            other = page.context.new_page()
            other.goto(f"{server.base}/#/label/1")
            other.wait_for_selector(".stage > *")
            for _ in range(20):
                other.keyboard.press("ArrowRight")
            press_all(page, ["1"] * 10)
            press_all(other, ["2"] * 10, first=21)
            for each in (page, other):
                wait_saved(each, "Saved 20/40")
            labels = [item["label"] for item in drawn(server, annotator="Ann")]
            assert labels == ["sea"] * 10 + [None] * 10 + ["wood"] * 10 + [None] * 10
            assert other.evaluate(LATE) == 30


def test_a_tab_passes_over_what_another_tab_of_the_same_person_labelled(browser: Any, tmp_path: Path) -> None:
    write_texts(tmp_path / "posts.csv", {"sea": 75, "wood": 225})
    with started_server(
        tmp_path / "project", "--port", "0", "--source", str(tmp_path / "posts.csv")
    ) as server:
        make_project(server, ["sea", "wood"], 30)
        with opened_page(browser, server) as page:
            open_labels(page)
            other = page.context.new_page()
            other.goto(f"{server.base}/#/label/1")
            other.wait_for_selector(".stage > *")
            press_all(page, ["1"])
            other.wait_for_selector(".toast:has-text('in another tab')")  # which goes away after some seconds
            press_all(page, ["1", "1"], first=2)
            wait_for_item(other, 4)
            wait_saved(other, "Saved 3/30")
            press_all(other, ["2"], first=4)
            wait_for_item(page, 5)
            for each in (page, other):
                wait_saved(each, "Saved 4/30")
            page.keyboard.press("Control+z")  # takes back the last label of this tab, not that of the other
            for each in (page, other):
                wait_saved(each, "Saved 3/30")
            labels = [item["label"] for item in drawn(server, annotator="Ann")]
            assert labels[:5] == ["sea", "sea", None, "wood", None]


def test_labels_that_the_server_refuses_are_not_sent_for_ever_and_can_be_downloaded(
    browser: Any, tmp_path: Path
) -> None:
    write_texts(tmp_path / "posts.csv", {"sea": 75, "wood": 225})
    with started_server(
        tmp_path / "project", "--port", "0", "--source", str(tmp_path / "posts.csv")
    ) as server:
        make_project(server, ["sea", "wood"], 30)
        names = [item["name"] for item in drawn(server)]
        with opened_page(browser, server, quiet=False) as page:
            open_labels(page)
            press_all(page, ["1"])
            wait_saved(page, "Saved 1/30")
            with client(server) as api:
                api.delete("/projects/1").raise_for_status()
            sent: list[str] = []
            page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
            press_all(page, ["2", "u"], first=2)
            page.wait_for_selector(".refused:has-text('2 labels could not be saved: There is no project 1')")
            assert "kept in this browser" in page.inner_text(".refused")
            page.wait_for_timeout(1000)  # in which it was sent again twice
            assert len(sent) == 1
            with page.expect_download() as download:
                page.click("text=Download these labels")
            with open(download.value.path(), encoding="utf-8", newline="") as stream:
                rows = [(row["item"], row["annotator"], row["group"]) for row in csv.DictReader(stream)]
            assert rows == [(names[1], "Ann", "wood"), (names[2], "Ann", "unsure")]
            assert (
                page.evaluate("Object.keys(localStorage).filter(key => key.includes('change')).length") == 2
            )


def test_nothing_leaves_the_machine(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "block").mkdir()
    (tmp_path / "block" / "sitecustomize.py").write_text(NO_NETWORK)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'block'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("NETWORK_LOG", str(tmp_path / "network.log"))
    truth = write_texts(tmp_path / "posts.csv", {"sea": 75, "wood": 225})
    with started_server(
        tmp_path / "project", "--port", "0", "--source", str(tmp_path / "posts.csv")
    ) as server:
        make_project(server, ["sea", "wood"], 30)
        with opened_page(browser, server) as page:  # which fails if the page asks anybody else
            open_labels(page)
            press_all(page, ["1" if truth[item["name"]] == "sea" else "2" for item in drawn(server)])
            page.wait_for_selector(".shares svg")
        with client(server) as api:
            assert api.get("/audits").json()
    assert not (tmp_path / "network.log").exists()


def test_nobody_else_on_this_machine_sees_the_address_that_is_opened(browser: Any, tmp_path: Path) -> None:
    write_texts(tmp_path / "posts.csv", {"sea": 30, "wood": 30})
    command = tmp_path / "browser"
    command.write_text('#!/bin/sh\nprintf "%s" "$*" > arguments.part && mv arguments.part arguments\n')
    command.chmod(0o700)
    popen = subprocess.Popen(
        [sys.executable, "-m", "divscore", "label", "posts.csv", "--port", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
        env=os.environ | {"BROWSER": f"{command} %s"},
    )
    try:
        told = tmp_path / "arguments"
        words = until(lambda: told.exists() and told.read_text(), 60, "the command of the browser")
        file = tmp_path / "divscore-project" / "open-divscore.html"
        assert words == file.as_uri()
        assert file.stat().st_mode & 0o777 == 0o600
        with browser.new_context() as context:
            page = context.new_page()
            page.goto(words)
            page.wait_for_selector("form")
            assert "token" not in page.url
        popen.terminate()
        assert popen.wait(timeout=60) == 0
        assert not file.exists()
    finally:
        popen.kill()
        popen.wait()
