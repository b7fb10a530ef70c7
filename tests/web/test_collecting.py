from __future__ import annotations

import csv
import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from webapp import Desk, offline, opened_desk, own_cache, started_server, text_control, write_texts  # noqa: F401  fixtures

from divscore.cli import main
from divscore.control.controlfile import save_control
from divscore.control.controlset import ControlSet
from divscore.sketch.sketch import Sketch


def run(*words: str) -> None:
    result = CliRunner().invoke(main, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output


@pytest.fixture
def control(tmp_path: Path) -> str:
    """A control set of 120 labelled texts."""
    return text_control(tmp_path)


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, str]:
    """Texts by id."""
    write_texts(tmp_path / "posts.csv", {"sea": 100, "wood": 200}, seed=1)
    with open(tmp_path / "posts.csv", encoding="utf-8", newline="") as stream:
        return {row["id"]: row["text"] for row in csv.DictReader(stream)}


@pytest.fixture
def hall(tmp_path: Path, control: str, texts: dict[str, str]) -> Iterator[Desk]:
    """An app with a control set, and a source."""
    with opened_desk(tmp_path / "project", [str(tmp_path / "posts.csv")], [control]) as desk:
        yield desk


def as_items(texts: dict[str, str]) -> dict[str, Any]:
    return {"items": [{"id": name, "text": text} for name, text in texts.items()]}


def write_table(path: Path, texts: dict[str, str]) -> str:
    with open(path, "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([["id", "text"], *sorted(texts.items())])
    return str(path)


def test_items_that_came_and_went_leave_what_a_batch_run_gives(
    hall: Desk, texts: dict[str, str], control: str, tmp_path: Path
) -> None:
    number = hall.post("/collections", {"name": "posts", "control": 1, "kind": "text"}, 201)["id"]
    first = hall.call("PUT", f"/collections/{number}/items", json=as_items(texts))
    assert (first["added"], first["count"]) == (300, 300)
    again = hall.call("PUT", f"/collections/{number}/items", json=as_items(texts))
    assert (again["added"], again["replaced"], again["unchanged"], again["count"]) == (0, 0, 300, 300)
    gone = {"ids": [f"t{at}" for at in range(0, 300, 3)]}
    assert hall.post(f"/collections/{number}/remove", gone)["removed"] == 100
    assert hall.post(f"/collections/{number}/remove", gone)["removed"] == 0
    left = {name: text for name, text in texts.items() if name not in gone["ids"]} | {
        "t1": "wave and gull and tide"
    }
    other = hall.call("PUT", f"/collections/{number}/items", json=as_items({"t1": left["t1"]}))
    assert (other["replaced"], other["count"]) == (1, 200)
    listed = hall.get(f"/collections/{number}/items", limit=150)
    listed += hall.get(f"/collections/{number}/items", limit=150, after=listed[-1]["id"])
    known = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in left.items()}
    assert [(each["id"], each["sha256"]) for each in listed] == sorted(known.items())

    audit = hall.finish(hall.post(f"/collections/{number}/audits", expected=202))["audit"]
    table = write_table(tmp_path / "posts left.csv", left)
    run("audit", table, "--control", control, "--json", str(tmp_path / "batch.json"))
    run("sketch", table, "--control", control, "-o", str(tmp_path / "batch.sketch"))
    ours, batch = hall.get(f"/audits/{audit}"), json.loads((tmp_path / "batch.json").read_text())
    assert ours["collections"][0].pop("name") == "posts"
    batch["collections"][0].pop("name")
    for document in (ours, batch):  # which name their collection
        document.pop("headline"), document["collections"][0].pop("headline")
    assert ours == batch
    same(
        hall.call("GET", f"/collections/{number}/sketch").content,
        tmp_path / "batch.sketch",
        control,
        tmp_path,
    )


def same(data: bytes, batch: Path, control: str, tmp_path: Path) -> None:
    """Whether two sketches have the same numbers, to the last bit."""
    from divscore.control.controlfile import load_control

    (tmp_path / "ours.sketch").write_bytes(data)
    ours, theirs = (Sketch.load(path, load_control(control)) for path in (tmp_path / "ours.sketch", batch))
    assert ours.count == theirs.count
    assert ours.skipped == theirs.skipped
    assert ours.total.tobytes() == theirs.total.tobytes()
    for one, other in zip(ours.scores(), theirs.scores(), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(ours.units(), theirs.units(), strict=True):
        np.testing.assert_array_equal(one, other)


@settings(max_examples=10)
@given(
    st.lists(st.tuples(st.sampled_from("+-"), st.integers(0, 11), st.integers(0, 3)), min_size=1, max_size=25)
)
def test_any_order_of_changes_gives_the_sketch_of_what_is_left(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("changes")
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(12, 4, 8))
    pool = ControlSet(
        rng.normal(size=(40, 8)) + np.repeat([[1.0], [-1.0]], 20, axis=0), ["a"] * 20 + ["b"] * 20
    )
    save_control(pool, folder / "C")
    left: dict[str, Any] = {}
    with opened_desk(folder / "project", [], [str(folder / "C")]) as desk:
        desk.post("/collections", {"name": "x", "control": 1, "kind": "vectors"}, 201)
        for sign, item, version in changes:
            if sign == "+":
                left[f"i{item}"] = vectors[item, version]
                body = {"items": [{"id": f"i{item}", "vector": vectors[item, version].tolist()}]}
                desk.call("PUT", "/collections/1/items", json=body)
            else:
                left.pop(f"i{item}", None)
                desk.post("/collections/1/remove", {"ids": [f"i{item}"]})
        batch = Sketch(pool)
        if left:
            batch.add(np.stack([vector for _, vector in sorted(left.items())]))
        batch.save(folder / "batch.sketch")
        assert desk.get("/collections/1")["count"] == len(left)
        sketch = desk.call("GET", "/collections/1/sketch").content
    same(sketch, folder / "batch.sketch", str(folder / "C"), folder)


def test_many_clients_at_once_end_in_the_sketch_of_a_batch_run(
    tmp_path: Path, control: str, texts: dict[str, str]
) -> None:
    """Each client owns some ids, so that what is left at the end is known."""
    names, clients = sorted(texts), 50
    left: dict[str, str] = {}
    failures: list[str] = []
    with started_server(tmp_path / "project", "--control", control) as server:
        headers = {"Authorization": f"Bearer {server.secret}"}
        api = f"{server.base}/api/v1/collections"
        body = {"name": "posts", "control": 1, "kind": "text"}
        assert httpx.post(api, json=body, headers=headers, timeout=60).status_code == 201

        def client(number: int) -> None:
            rng = np.random.default_rng(number)
            own = names[number::clients]
            with httpx.Client(headers=headers, timeout=60) as http:
                for _ in range(6):
                    some = [name for name in own if rng.random() < 0.6]
                    if rng.random() < 0.6:
                        answer = http.put(
                            f"{api}/1/items", json=as_items({name: texts[name] for name in some})
                        )
                        left.update({name: texts[name] for name in some})
                    else:
                        answer = http.post(f"{api}/1/remove", json={"ids": some})
                        for name in some:
                            left.pop(name, None)
                    if answer.status_code != 200:
                        failures.append(answer.text)

        threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert httpx.get(f"{api}/1", headers=headers, timeout=60).json()["count"] == len(left)
        sketch = httpx.get(f"{api}/1/sketch", headers=headers, timeout=60).content
    run(
        "sketch",
        write_table(tmp_path / "left.csv", left),
        "--control",
        control,
        "-o",
        str(tmp_path / "b.sketch"),
    )
    same(sketch, tmp_path / "b.sketch", control, tmp_path)


def test_a_source_is_audited_again_and_its_audits_are_compared(
    hall: Desk, tmp_path: Path, control: str
) -> None:
    number = hall.post("/collections", {"name": "posts", "control": 1, "source": 1}, 201)["id"]
    audits = []
    for _ in range(2):
        audits.append(hall.finish(hall.post(f"/collections/{number}/audits", expected=202))["audit"])
        write_texts(tmp_path / "posts.csv", {"sea": 220, "wood": 80}, seed=1)
    history = hall.get(f"/collections/{number}/audits")
    assert [entry["id"] for entry in history] == audits
    assert history[0]["disparity"] < history[1]["disparity"]
    assert all(
        low <= 2 * share - 1 <= high
        for share, (low, high) in zip((1 / 3, 0.733), [e["interval"] for e in history], strict=True)
    )
    change = hall.get("/audits/difference", before=audits[0], after=audits[1])
    assert change["schema"].startswith("divscore.diff")
    assert change["collections"][0]["name"] == "posts"
    assert (
        change["headline"]
        in hall.call("GET", f"/audits/difference/report?before={audits[0]}&after={audits[1]}").text
    )
    hall.call("GET", "/audits/difference", 404, params={"before": 1, "after": 99})
    hall.call("PUT", f"/collections/{number}/items", 409, json=as_items({"a": "b"}))
    named = hall.call("PATCH", f"/collections/{number}", json={"name": "letters"})
    assert (named["name"], named["live"]) == ("letters", False)
    watched = hall.call("PATCH", f"/collections/{number}", json={"live": True})
    assert (watched["name"], watched["live"]) == ("letters", True)
    hall.call("DELETE", f"/collections/{number}", 204)
    assert hall.get("/audits")[0]["collection"] is None


def test_what_does_not_fit_the_collection_is_refused(hall: Desk) -> None:
    hall.call("POST", "/collections", 422, json={"name": "x", "control": 1})
    hall.call("POST", "/collections", 404, json={"name": "x", "control": 7, "kind": "text"})
    hall.call("POST", "/collections", 422, json={"name": "x", "control": 1, "kind": "image"})  # texts only
    hall.post("/collections", {"name": "x", "control": 1, "kind": "vectors"}, 201)
    hall.call("PUT", "/collections/1/items", 422, json={"items": [{"id": "a", "text": "no vector"}]})
    hall.call("PUT", "/collections/1/items", 422, json={"items": [{"id": "a", "vector": [1.0, 2.0]}]})
    assert hall.get("/collections/1")["count"] == 0
    job = hall.finish(hall.post("/collections/1/audits", expected=202), "failed")
    assert "empty" in job["error"]["detail"]
    assert job["error"]["status"] == 422


def test_the_same_request_twice_changes_nothing_so_an_id_is_in_it_once(hall: Desk) -> None:
    hall.post("/collections", {"name": "posts", "control": 1, "kind": "text"}, 201)
    twice = {"items": [{"id": "a", "text": "wave"}, {"id": "a", "text": "oak"}]}
    refused = hall.call("PUT", "/collections/1/items", 422, json=twice)
    assert "'a' is in the request more than once" in refused["detail"]
    assert hall.get("/collections/1")["version"] == 0


def test_a_misspelt_field_is_refused(hall: Desk) -> None:
    hall.post("/collections", {"name": "posts", "control": 1, "source": 1}, 201)
    for path, body in (
        ("/collections/1/audits", {"targets": {"sea": 0.3}}),
        ("/projects", {"source": 1, "attribute": "p", "groups": ["a", "b"], "basis": "perceived", "sise": 4}),
        ("/control-sets/1/selection", {"size": 4, "alpha": 1, "drop": []}),
    ):
        assert "Extra inputs" in hall.call("POST", path, 422, json=body)["detail"]


def test_shares_are_held_to_the_target_of_the_collection(hall: Desk, texts: dict[str, str]) -> None:
    new = {"name": "posts", "control": 1, "kind": "text"}
    for wrong in ({"target": {"sea": 0.3, "wood": 0.3}}, {"target": {"see": 0.3}}, {"target_source": "x"}):
        hall.call("POST", "/collections", 422, json=new | wrong)
    made = hall.post("/collections", new | {"target": {"sea": 0.3}, "target_source": "Census"}, 201)
    assert (made["target"], made["target_source"]) == ({"sea": 0.3, "wood": 0.7}, "Census")
    hall.call("PUT", "/collections/1/items", json=as_items(texts))
    hall.call("POST", "/collections/1/audits", 422, json={"target": {"sea": 2}})
    wishes: tuple[Any, ...] = ({}, {"target": {"wood": 0.6}, "target_source": "Other"}, {"target": {}})
    for wish in wishes:
        hall.finish(hall.post("/collections/1/audits", wish, 202))
    own, other, even = hall.get("/collections/1/audits")
    assert (own["target"], other["target"], even["target"]) == (
        made["target"],
        {"sea": 0.4, "wood": 0.6},
        None,
    )
    assert "(the target is 30%, Census)" in own["headline"]
    assert hall.call("PATCH", "/collections/1", json={"name": "p"})["target"] == made["target"]
    assert hall.call("PATCH", "/collections/1", json={"target": {}})["target"] is None


def test_a_limit_gives_the_verdict_of_the_command_line(
    hall: Desk, texts: dict[str, str], control: str, tmp_path: Path
) -> None:
    hall.post("/collections", {"name": "posts", "control": 1, "kind": "text"}, 201)
    hall.call("PUT", "/collections/1/items", json=as_items(texts))
    table = write_table(tmp_path / "all.csv", texts)
    for limit, code in ((0.9, 0), (0.05, 1)):
        done = hall.finish(hall.post("/collections/1/audits", {"max_disparity": limit}, 202))
        words = ["audit", table, "--control", control, "--max-disparity", str(limit)]
        result = CliRunner().invoke(main, [*words, "--json", str(tmp_path / "gate.json")])
        gate = json.loads((tmp_path / "gate.json").read_text())["gate"]
        assert (result.exit_code, done["verdict"]) == (code, gate["verdict"])
        assert hall.get(f"/audits/{done['audit']}")["gate"] == gate
    hall.call("POST", "/collections/1/audits", 422, json={"max_disparity": 2})
