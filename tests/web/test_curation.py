from __future__ import annotations

import io
import json
import socket
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from webapp import Desk, desk, offline, opened_desk, own_cache, truth, write_texts  # noqa: F401  fixtures

from divscore.control.controlfile import load_control, save_control
from divscore.control.controlset import ControlSet
from divscore.control.selection import select_adaptive
from divscore.publishing.about import QUESTIONS
from divscore.publishing.edition import check_published


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Desk]:
    """An app with a control set of 200 labelled texts."""
    write_texts(tmp_path / "labelled.csv", {"sea": 100, "wood": 100}, seed=3, groups=True)
    with opened_desk(tmp_path / "project", [str(tmp_path / "labelled.csv")]) as desk:
        body = {"source": 1, "attribute": "group", "name": "places"}
        assert desk.finish(desk.post("/control-sets", body, 202)) == {"control": 1}
        yield desk


def test_the_choice_is_that_of_the_algorithm(shelf: Desk) -> None:
    pool = load_control(shelf.space.control_path(1))
    chosen = shelf.post("/control-sets/1/selection", {"size": 20, "alpha": 1.0})
    rows = np.flatnonzero(select_adaptive(pool, 20, alpha=1.0).representative).tolist()
    assert chosen["representatives"] == rows
    assert sorted(row for own in chosen["by_group"].values() for row in own) == rows
    assert chosen["gaps"]["of"] == 200
    assert chosen["gaps"]["count"] == len(chosen["gaps"]["rows"])
    assert not set(chosen["gaps"]["rows"]) & set(rows)
    times = []
    for alpha in (0.1, 0.3, 1.0, 3.0, 10.0):
        start = time.process_time()
        shelf.post("/control-sets/1/selection", {"size": 40, "alpha": alpha})
        times.append(time.process_time() - start)
    assert min(times) < 0.15  # of a slider


def test_changes_by_hand_are_kept_with_their_reasons(shelf: Desk) -> None:
    plain = {"size": 20, "alpha": 1.0}
    rows = shelf.post("/control-sets/1/selection", plain)["representatives"]
    other = next(row for row in range(200) if row not in rows)
    by_hand = plain | {
        "added": [{"row": other, "reason": "storms"}],
        "dropped": [{"row": rows[0], "reason": "dull"}],
    }
    first = shelf.post("/control-sets/1/choices", plain | {"name": "first"}, 201)
    second = shelf.post("/control-sets/1/choices", by_hand | {"name": "second"}, 201)
    assert shelf.get("/control-sets/1/choices") == [first, second]
    assert second["added"] == by_hand["added"]
    compared = shelf.get("/control-sets/1/choices/compare", a=first["id"], b=second["id"])
    assert (compared["only_a"], compared["only_b"]) == ([rows[0]], [other])
    assert len(compared["both"]) == 19
    third = shelf.post("/control-sets/1/choices", plain | {"name": "third"}, 201)
    shelf.call("DELETE", f"/control-sets/1/choices/{third['id']}", 204)
    shelf.call("DELETE", f"/control-sets/1/choices/{third['id']}", 404)
    assert shelf.get("/control-sets/1/choices") == [first, second]
    shelf.call("POST", "/control-sets/1/choices", 422, json=plain | {"name": "x", "added": [{"row": 200}]})
    shelf.call("POST", "/control-sets/1/choices", 422, json={"size": 300, "alpha": 1, "name": "too many"})


def test_the_map_has_the_labelled_examples_and_their_groups(shelf: Desk) -> None:
    pool = load_control(shelf.space.control_path(1))
    shown = shelf.get("/control-sets/1/map")
    points = np.array(shown["points"])
    assert points.shape == (200, 2)
    assert shown["groups"] == pool.labels.tolist()
    # No two directions explain more of the variance than the principal ones.
    values = np.linalg.svd(pool.units - pool.units.mean(axis=0), compute_uv=False) ** 2
    np.testing.assert_allclose(shown["explained"], values[:2] / values.sum(), rtol=1e-4)
    example = shelf.get("/control-sets/1/items/7")
    assert example["group"] == pool.groups[pool.labels[7]]
    assert example["text"] == pool.origins[7]
    assert example["image"] is None
    assert example["standing"]["rank"] >= 1
    shelf.call("GET", "/control-sets/1/items/200", 404)
    several = shelf.get("/control-sets/1/items", row=[7, 3])
    assert several == [example, shelf.get("/control-sets/1/items/3")]
    shelf.call("GET", "/control-sets/1/items", 404, params={"row": [3, 200]})
    assert shelf.get("/control-sets/1")["kinds"] == ["text", "vectors"]


def test_a_choice_is_published_and_objections_are_shown_beside_the_item(shelf: Desk) -> None:
    choice = shelf.post("/control-sets/1/choices", {"size": 20, "alpha": 1.0, "name": "first"}, 201)
    before = shelf.get("/control-sets/1/publication")
    assert (before["edition"], before["folder"], before["downloadable"]) == (0, None, False)
    assert {each["name"]: each["answer"] for each in before["questions"]} == dict.fromkeys(QUESTIONS, "") | {
        "title": "places"
    }
    about = {"contact": "somebody", "definition": "what it is about"}
    body = {"choice": choice["id"], "about": about, "measure": False}
    result = shelf.finish(shelf.post("/control-sets/1/publish", body, 202))
    folder = Path(result["folder"])
    verdict = check_published(folder)
    assert verdict.problems == ()
    assert verdict.control is not None
    assert int(verdict.control.representative.sum()) == 20
    assert result["edition"] == 1
    assert "license" in result["missing"]
    after = shelf.get("/control-sets/1/publication")
    assert (after["edition"], after["folder"], after["downloadable"]) == (1, str(folder), True)
    assert {each["name"]: each["answer"] for each in after["questions"] if each["answer"]} == about
    archive = zipfile.ZipFile(io.BytesIO(shelf.call("GET", "/control-sets/1/publication.zip").content))
    assert "control-set-1/README.md" in archive.namelist()
    with open(folder / "objections.csv", "a", encoding="utf-8") as table:
        table.write(f"{verdict.control.ids[7]},not of this place,,Kim,,2026-01-31,open\n")
    (complaint,) = shelf.get("/control-sets/1/items/7")["objections"]
    assert (complaint["row"], complaint["objection"], complaint["by"]) == (7, "not of this place", "Kim")
    assert shelf.get("/control-sets/1/items/8")["objections"] == []
    shelf.call("POST", "/control-sets/1/publish", 422, json={"about": {"password": "x"}})


def test_labels_of_a_project_become_a_control_set(desk: Desk, truth: dict[str, str]) -> None:
    project = desk.project(size=60)
    desk.label_all(project, truth)
    number = desk.finish(desk.post(f"/projects/{project}/control", expected=202))["control"]
    control = desk.space.control(number)
    assert {name: control.groups[label] for name, label in zip(control.ids, control.labels, strict=True)} == {
        item["name"]: truth[item["name"]]
        for item in desk.get(f"/projects/{project}/items", annotator="x")["items"]
    }
    shown = desk.get(f"/control-sets/{number}")
    assert (shown["labelled"], shown["groups"], shown["project"]) == (60, ["sea", "wood"], project)
    # The next collection is sampled in pairs by it, and more labels are planned from it.
    body = {
        "source": 1,
        "attribute": "place",
        "groups": ["wood", "sea"],
        "basis": "perceived",
        "control": number,
    }
    other = desk.post("/projects", body | {"size": 20}, 201)
    assert other["groups"] == ["sea", "wood"]
    desk.finish(desk.post(f"/projects/{other['id']}/sample", {"size": 20}, 202))
    worst = desk.get(f"/projects/{other['id']}/plan")
    desk.finish(desk.post(f"/projects/{other['id']}/plan", expected=202))
    better = desk.get(f"/projects/{other['id']}/plan")
    assert better["labels"] < worst["labels"]
    assert json.dumps(better).isascii()
    desk.call("DELETE", f"/control-sets/{number}", 409)
    desk.call("DELETE", f"/projects/{other['id']}", 204)
    desk.call("DELETE", f"/control-sets/{number}", 204)
    assert desk.get("/control-sets") == []


def test_a_control_set_opens_nothing_that_the_person_did_not(tmp_path: Path) -> None:
    """Origins come with a control set, which may be anybody's: no address is fetched, no file elsewhere is read."""
    control, photos = tmp_path / "theirs", tmp_path / "photos"
    photos.mkdir()
    picture = Image.new("RGB", (8, 8), "red")
    for place in (photos / "in.png", tmp_path / "out.png"):
        picture.save(place)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        port = listener.getsockname()[1]
        origins = [
            *(f"{scheme}://127.0.0.1:{port}/a.png" for scheme in ("http", "HTTP", "simplecache::http")),
            f"file://{tmp_path}/out.png",
            f"{tmp_path}/out.png",
            f"{photos}/../out.png",
            f"{control}/link.png",
            f"{control}/own.png",
            f"{photos}/in.png",
            f"{photos}-2/in.png",
        ]
        vectors = np.random.default_rng(0).normal(size=(len(origins), 4))
        groups = ["sea", "wood"] * (len(origins) // 2)
        save_control(ControlSet(vectors, groups, origins=origins, encoder="faces/2"), control)
        picture.save(control / "own.png")
        (control / "link.png").symlink_to(tmp_path / "out.png")
        with opened_desk(tmp_path / "project", [str(photos)], [str(control)]) as desk:
            shown = desk.get("/control-sets/1/items", row=list(range(len(origins))))
            assert [each["row"] for each in shown if each["image"]] == [7, 8]
            for row in range(len(origins)):
                desk.call("GET", f"/control-sets/1/items/{row}/image", 200 if row in (7, 8) else 404)
            refused = desk.call("POST", "/control-sets/1/publish", 422, json={"measure": False})
            assert "If you may publish them, send faces: true" in refused["detail"]
            desk.finish(desk.post("/control-sets/1/publish", {"measure": False, "faces": True}, 202))
        with pytest.raises(TimeoutError):
            listener.accept()
