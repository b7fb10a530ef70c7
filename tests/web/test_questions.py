from __future__ import annotations

import io
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner
from PIL import Image
from webapp import Desk, desk, offline, opened_desk, own_cache, truth, write_texts  # noqa: F401  fixtures

from divscore.cli import main
from divscore.errors import InputError
from divscore.jobs.drawfile import Draw
from divscore.jobs.pool import Progress, Warn


def run(*words: str) -> None:
    result = CliRunner().invoke(main, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output


def test_the_sample_and_the_answer_are_those_of_the_command_line(
    desk: Desk, truth: dict[str, str], tmp_path: Path
) -> None:
    project = desk.project(size=40)
    drawn = desk.get(f"/projects/{project}/items", annotator="ann")["items"]
    posts, table, result = (str(tmp_path / name) for name in ("posts.csv", "draw.csv", "audit.json"))
    run("sample", posts, "--size", "40", "--groups", "sea,wood", "--attribute", "place", "-o", table)
    assert [item["name"] for item in drawn] == list(Draw.read(table).ids)

    assert not desk.get(f"/projects/{project}/progress", annotator="ann")["ready"]
    desk.label(project, {item["id"]: truth[item["name"]] for item in drawn[:20]})
    for early in ("audit", "control"):  # no estimate before the planned number
        desk.call("POST", f"/projects/{project}/{early}", 409, json={})
    desk.call("GET", f"/projects/{project}/sample.csv", 409)
    desk.label_all(project, truth)
    progress = desk.get(f"/projects/{project}/progress", annotator="ann")
    assert progress["ready"]
    assert (progress["saved"], progress["planned"], progress["answer"]) == (40, 40, None)
    audit = desk.finish(desk.post(f"/projects/{project}/audit", expected=202))["audit"]
    assert desk.get(f"/projects/{project}/progress", annotator="ann")["answer"] == audit

    draw = Draw.read(table)
    draw.labelled(truth[name] for name in draw.ids).save(table, force=True)
    run("audit", posts, "--labelled-sample", table, "--json", result)
    ours, theirs = desk.get(f"/audits/{audit}"), json.loads(Path(result).read_text())
    assert ours == theirs
    low, high = ours["collections"][0]["interval"]
    assert low <= (75 - 225) / 300 <= high
    report = desk.call("GET", f"/audits/{audit}/report")
    assert ours["headline"].split(",")[0] in report.text
    assert str(tmp_path) not in report.text + json.dumps(ours)
    assert "sandbox" in report.headers["content-security-policy"]


def test_the_downloaded_sample_gives_the_same_answer(
    desk: Desk, truth: dict[str, str], tmp_path: Path
) -> None:
    project = desk.project(size=40)
    desk.label_all(project, truth)
    first, second, third = (
        item["id"] for item in desk.get(f"/projects/{project}/items", annotator="ann")["items"][:3]
    )
    desk.label(project, {first: "unsure", second: "skip", third: "sea"})
    desk.label(project, {third: "wood"}, "bob")
    audit = desk.finish(desk.post(f"/projects/{project}/audit", expected=202))["audit"]
    table, result = tmp_path / "sample.csv", tmp_path / "audit.json"
    table.write_bytes(desk.call("GET", f"/projects/{project}/sample.csv").content)
    run("audit", str(tmp_path / "posts.csv"), "--labelled-sample", str(table), "--json", str(result))
    ours = desk.get(f"/audits/{audit}")
    assert json.loads(result.read_text()) == ours
    assert ours["collections"][0]["labels"]["labelled"] == 37


def test_the_items_of_a_table_are_counted_while_the_page_is_shown(desk: Desk) -> None:
    for _ in range(6000):
        (source,) = desk.get("/sources")
        if source["state"] != "reading" and not source["counting"]:  # when a page stops to ask
            break
        time.sleep(0.01)
    about = {name: source[name] for name in ("name", "kind", "state", "items", "columns", "text_columns")}
    names = ["id", "text"]
    ready = {"kind": "text", "state": "ready", "items": 300}
    assert about == {"name": "posts.csv", **ready, "columns": names, "text_columns": names}


def test_pictures_are_turned_resized_and_found_by_number(tmp_path: Path) -> None:
    folder = tmp_path / "some photos #1 100%"
    folder.mkdir()
    wide = Image.fromarray(np.random.default_rng(0).integers(0, 255, (600, 1200, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[274] = 6  # on its side
    wide.save(folder / "a b#%3f.jpg", exif=exif)
    wide.save(folder / b"caf\xe9.png".decode("utf-8", "surrogateescape"))
    with opened_desk(tmp_path / "project", [str(folder)]) as desk:
        project = desk.project(size=2)
        items = {
            item["name"]: item for item in desk.get(f"/projects/{project}/items", annotator="x")["items"]
        }
        assert len(items) == 2
        sizes = set()
        for item in items.values():
            answer = desk.client.get(f"{item['image']}?size=480")
            assert answer.headers["content-type"] == "image/jpeg"
            assert "private" in answer.headers["cache-control"]
            sizes.add(Image.open(io.BytesIO(answer.content)).size)
        assert sizes == {(480, 240), (240, 480)}
        desk.call("GET", "/items/1/image", 422, params={"size": "5000"})
        desk.call("GET", "/items/99/image", 404)
        desk.call("GET", "/items/1/text", 404)
        # A picture that is gone is an answer, not an error of the server.
        for path in folder.iterdir():
            path.unlink()
        assert (
            desk.client.get(f"/api/v1/items/{items['a b#%3f.jpg']['id']}/image?size=960").status_code == 404
        )


def test_messages_name_sources_without_their_paths(desk: Desk, tmp_path: Path) -> None:
    def work(progress: Progress, warn: Warn) -> dict[str, Any]:
        warn(f"{tmp_path}/posts.csv: 2 items were skipped (--verbose lists them)")
        warn(f"{tmp_path}/photos/a.jpg cannot be read")
        raise InputError(f"{tmp_path}/project/control-sets/1 is gone")

    job = desk.finish(desk.space.begin("test", work).model_dump(), "failed")
    assert job["warnings"] == ["posts.csv: 2 items were skipped", "photos/a.jpg cannot be read"]
    assert job["error"]["detail"] == "project/control-sets/1 is gone"


def test_names_have_no_control_characters(desk: Desk) -> None:
    plain = {"source": 1, "attribute": "place", "groups": ["sea", "wood"], "basis": "perceived", "name": "n"}
    for bad in ("a\0b", "a\nb", "a\x1b[2J", "a\x7f", "a\x85b"):
        for wrong in ({"groups": [bad, "wood"]}, {"name": bad}, {"attribute": bad}):
            desk.call("POST", "/projects", 422, json=plain | wrong)
    project = desk.post("/projects", plain | {"groups": ["Ā 海", " wood "]}, 201)
    assert project["groups"] == ["Ā 海", "wood"]
    desk.call("PATCH", f"/projects/{project['id']}", 422, json={"name": "a\0"})
    body = {"annotator": "a\0", "changes": []}
    desk.call("POST", f"/projects/{project['id']}/labels", 422, json=body)


def test_a_collection_has_a_plan_before_there_is_a_project(desk: Desk) -> None:
    planned = desk.get(f"/projects/{desk.project(size=30)}/plan")  # a draw has counted the items
    assert desk.get("/sources/1/plan") == planned
    desk.call("GET", "/sources/99/plan", 404)


def test_what_is_copied_into_the_project_folder_is_found_without_a_restart(
    desk: Desk, tmp_path: Path
) -> None:
    assert [source["name"] for source in desk.get("/sources")] == ["posts.csv"]
    write_texts(tmp_path / "new.csv", {"sea": 20, "wood": 20})
    shutil.copy(tmp_path / "new.csv", desk.space.folder)
    (desk.space.folder / "notes.docx").touch()
    for _ in range(6000):
        (_, source) = desk.get("/sources")
        if source["items"] is not None:
            break
        time.sleep(0.01)
    assert (source["name"], source["state"], source["items"]) == ("new.csv", "ready", 40)
    project = desk.project(size=10, source=source["id"])
    assert len(desk.get(f"/projects/{project}/items", annotator="ann")["items"]) == 10
    assert [each["id"] for each in desk.get("/sources")] == [1, source["id"]]  # each once


def test_an_answer_says_that_labels_were_added(desk: Desk, truth: dict[str, str]) -> None:
    project = desk.project(size=30)
    for more in (0, 30):
        if more:
            desk.finish(desk.post(f"/projects/{project}/sample", {"size": more}, 202))
        desk.label_all(project, truth)
        audit = desk.finish(desk.post(f"/projects/{project}/audit", expected=202))["audit"]
        told = str(desk.get(f"/audits/{audit}")["collections"][0]["warnings"])
        report = desk.call("GET", f"/audits/{audit}/report").text
        for text in (told, report):
            assert ("abels were added after a first batch" in text) is bool(more)


def test_a_project_has_its_size_and_its_target(desk: Desk, truth: dict[str, str]) -> None:
    new = {"source": 1, "attribute": "place", "groups": ["sea", "wood"], "basis": "perceived", "size": 24}
    desk.call("POST", "/projects", 422, json=new | {"target": {"sea": 0.2, "wood": 0.2}})
    project = desk.post("/projects", new | {"target": {"sea": 0.25}, "target_source": "Atlas"}, 201)
    assert (project["target"], project["target_source"]) == ({"sea": 0.25, "wood": 0.75}, "Atlas")
    assert desk.finish(desk.post("/projects/1/sample", {}, 202))["drawn"] == 24
    desk.label_all(1, truth)
    audit = desk.finish(desk.post("/projects/1/audit", expected=202))["audit"]
    document = desk.get(f"/audits/{audit}")
    assert document["target"] == {"shares": project["target"], "source": "Atlas"}
    assert "(the target is 25%, Atlas)" in document["headline"]


def test_parts_of_a_collection_are_sampled_and_audited_as_the_command_line_does(
    desk: Desk, truth: dict[str, str], tmp_path: Path
) -> None:
    lines = (tmp_path / "posts.csv").read_text().splitlines()
    feeds = ["feed", *("north" if number % 3 else "south" for number in range(len(truth)))]
    table = "\n".join(f"{line},{feed}" for line, feed in zip(lines, feeds, strict=True))
    (tmp_path / "project" / "feeds.csv").write_text(table + "\n")
    source = desk.get("/sources")[1]["id"]
    project = desk.project(size=20, source=source, column="text", by="feed")
    desk.label_all(project, truth)
    assert desk.get(f"/projects/{project}/progress", annotator="ann")["planned"] == 40
    desk.call("POST", f"/projects/{project}/plan", 409, json={})
    audit = desk.finish(desk.post(f"/projects/{project}/audit", expected=202))["audit"]
    (tmp_path / "sample.csv").write_text(desk.call("GET", f"/projects/{project}/sample.csv").text)
    words = ("--column", "text", "--by", "feed", "--labelled-sample", str(tmp_path / "sample.csv"))
    run("audit", str(tmp_path / "project" / "feeds.csv"), *words, "--json", str(tmp_path / "audit.json"))
    ours, theirs = desk.get(f"/audits/{audit}"), json.loads((tmp_path / "audit.json").read_text())
    for name in ("headline", "groups"):
        assert ours[name] == theirs[name]
    for one, other in zip(ours["collections"], theirs["collections"], strict=True):
        assert (one["name"], one["interval"], one["count"]) == (
            other["name"],
            other["interval"],
            other["count"],
        )
    (entry,) = desk.get("/audits")
    assert (entry["name"], entry["parts"], entry["count"], entry["shares"]) == ("feeds.csv", 2, 300, {})
