from __future__ import annotations

from pathlib import Path

import pytest
from webapp import offline, opened_desk, own_cache, text_control, write_texts  # noqa: F401  fixtures

from divscore.errors import InputError
from divscore.web.watching import Watcher, signature, watch_sources


@pytest.fixture
def control(tmp_path: Path) -> str:
    return text_control(tmp_path)


def wait(watcher: Watcher) -> None:
    import time

    while any(not task.finished for task in watcher.space.tasks.list()):
        time.sleep(0.01)


def test_a_table_is_audited_again_when_it_has_changed_and_is_still(tmp_path: Path, control: str) -> None:
    posts = tmp_path / "posts.csv"
    write_texts(posts, {"sea": 50, "wood": 150})
    with opened_desk(tmp_path / "project", [str(posts)], [control]) as desk:
        watch_sources(desk.space, [str(posts)], desk.space.sources[:1])
        watch_sources(desk.space, [str(posts)], desk.space.sources[:1])  # the next start: it is there already
        assert [each["live"] for each in desk.get("/collections")] == [True]
        watcher = Watcher(desk.space)
        counts = []
        for look in range(8):
            if look == 4:
                write_texts(posts, {"sea": 150, "wood": 50})
            watcher.look()
            wait(watcher)
            counts.append(len(desk.get("/collections/1/audits")))
        # At the second look it was still; changed before the fifth, still at the sixth.
        assert counts == [0, 1, 1, 1, 1, 2, 2, 2]
        first, second = desk.get("/collections/1/audits")
        assert first["disparity"] < 0 < second["disparity"]
    with opened_desk(tmp_path / "project", [str(posts)], [control]) as desk:
        watcher = Watcher(desk.space)
        for _ in range(3):  # after a restart nothing has changed
            watcher.look()
            wait(watcher)
        assert len(desk.get("/collections/1/audits")) == 2


def test_a_live_collection_of_the_api_is_audited_after_it_changed(tmp_path: Path, control: str) -> None:
    with opened_desk(tmp_path / "project", [], [control]) as desk:
        desk.post("/collections", {"name": "x", "control": 1, "kind": "text", "live": True}, 201)
        watcher = Watcher(desk.space)
        for _ in range(2):
            watcher.look()
        assert desk.get("/jobs") == []  # it is empty
        items = [{"id": str(at), "text": f"wave salt {at}"} for at in range(30)]
        desk.call("PUT", "/collections/1/items", json={"items": items})
        for _ in range(3):
            watcher.look()
            wait(watcher)
        (audit,) = desk.get("/collections/1/audits")
        assert audit["count"] == 30


def test_a_signature_changes_with_names_sizes_and_times(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    seen = {signature(str(folder))}
    for name, text in (("a.jpg", "1"), ("inner/b.jpg", "1"), ("inner/b.jpg", "12")):
        (folder / name).write_text(text)
        seen.add(signature(str(folder)))
    (folder / "a.jpg").rename(folder / "c.jpg")
    seen.add(signature(str(folder)))
    assert len(seen) == 5
    assert signature(str(folder)) in seen
    assert signature("s3://bucket/folder") is None


def test_watching_needs_one_control_set(tmp_path: Path, control: str) -> None:
    with opened_desk(tmp_path / "project", [str(tmp_path / "labelled.csv")]) as desk:
        with pytest.raises(InputError, match="--watch needs one --control"):
            watch_sources(desk.space, ["x"], [1])
        watch_sources(desk.space, [], [])
