from __future__ import annotations

import csv
import io
import itertools
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from webapp import BASE, Desk, change, desk, offline, opened_desk, own_cache, truth, write_texts  # noqa: F401  fixtures

from divscore.web.answers import settled_labels


@pytest.fixture
def project(desk: Desk) -> int:
    """A project with 20 drawn items."""
    return desk.project(size=20)


def items_of(desk: Desk, project: int, annotator: str = "ann") -> list[dict[str, object]]:
    listed: list[dict[str, object]] = desk.get(f"/projects/{project}/items", annotator=annotator)["items"]
    return listed


def test_the_same_key_counts_once(desk: Desk, project: int) -> None:
    first = items_of(desk, project)[0]["id"]
    body = {"annotator": "ann", "changes": [change(first, "sea", key="k1")]}
    done = {"saved": 1, "accepted": ["k1"]}
    assert desk.post(f"/projects/{project}/labels", body) == done | {"version": 1, "superseded": []}
    desk.label(project, {first: "wood"})
    # The first request again, as a page sends it that did not see the answer: the later label stays.
    again = desk.post(f"/projects/{project}/labels", body)
    assert again == done | {"version": 2, "superseded": ["k1"]}
    assert items_of(desk, project)[0]["label"] == "wood"
    # The same key of somebody else is another change.
    other = desk.post(f"/projects/{project}/labels", body | {"annotator": "bob"})
    assert other == done | {"version": 1, "superseded": []}
    assert items_of(desk, project, "bob")[0]["label"] == "sea"
    desk.label(project, {first: None})  # undo
    assert items_of(desk, project)[0]["label"] is None
    assert desk.get(f"/projects/{project}/progress", annotator="ann")["saved"] == 0


def test_the_later_label_counts_whichever_arrives_first(desk: Desk, project: int) -> None:
    """Each order of arrival of changes with different times ends in the same labels."""
    first = items_of(desk, project)[0]["id"]
    times = [f"2026-01-01T00:00:0{second}Z" for second in range(4)]
    labels: list[str | None] = ["sea", "wood", None, "unsure"]
    for at, order in enumerate(itertools.permutations(range(4))):
        annotator = f"order {at}"
        for step in order:
            body = [change(first, labels[step], at=times[step])]
            desk.post(f"/projects/{project}/labels", {"annotator": annotator, "changes": body})
        assert items_of(desk, project, annotator)[0]["label"] == "unsure"


def test_a_clock_that_is_ahead_keeps_no_later_label_out(desk: Desk, project: int) -> None:
    first = items_of(desk, project)[0]["id"]
    desk.post(
        f"/projects/{project}/labels",
        {"annotator": "ann", "changes": [change(first, "sea", at="2999-01-01T00:00:00Z")]},
    )
    desk.label(project, {first: "wood"})
    assert items_of(desk, project)[0]["label"] == "wood"


def test_what_is_not_a_label_of_the_project_is_refused_as_a_whole(desk: Desk, project: int) -> None:
    first, second = (item["id"] for item in items_of(desk, project)[:2])
    for wrong in (
        [change(first, "sea"), change(second, "river")],
        [change(first, "sea"), change(10**6, "sea")],
    ):
        desk.call("POST", f"/projects/{project}/labels", 422, json={"annotator": "ann", "changes": wrong})
    many = [change(first, "sea")] * 10_001
    desk.call("POST", f"/projects/{project}/labels", 422, json={"annotator": "ann", "changes": many})
    desk.call("POST", f"/projects/{project}/labels", 422, json={"annotator": " ", "changes": []})
    assert desk.get(f"/projects/{project}/progress", annotator="ann")["saved"] == 0


def test_two_tabs_and_two_annotators_at_once(desk: Desk, project: int) -> None:
    ids = [item["id"] for item in items_of(desk, project)]
    failures = []
    counted: dict[str, list[tuple[int, int]]] = {"ann": [], "bob": []}

    def tab(annotator: str, seed: int) -> None:
        for item in random.Random(seed).sample(ids, len(ids)):
            try:
                answer = desk.label(project, {item: "sea" if item % 2 else "wood"}, annotator)
                counted[annotator].append((answer["version"], answer["saved"]))
            except AssertionError as error:
                failures.append(error)

    tabs = [
        threading.Thread(target=tab, args=each) for each in (("ann", 1), ("ann", 2), ("bob", 3), ("bob", 4))
    ]
    for thread in tabs:
        thread.start()
    for thread in tabs:
        thread.join()
    assert failures == []
    for annotator in ("ann", "bob"):
        assert [item["label"] for item in items_of(desk, project, annotator)] == [
            "sea" if item % 2 else "wood" for item in ids
        ]
        # Whichever answer arrives last: of that with the highest version, the number is right.
        assert max(counted[annotator]) == (2 * len(ids), len(ids))


def test_annotators_are_blind_and_their_disagreements_are_settled(
    desk: Desk, project: int, truth: dict[str, str]
) -> None:
    items = items_of(desk, project)
    desk.label_all(project, truth, "ann")
    assert all(item["label"] is None for item in items_of(desk, project, "bob"))
    other = {"sea": "wood", "wood": "sea"}
    names = [truth[str(item["name"])] for item in items]
    bob = [other[names[0]], other[names[1]], "unsure", "skip", *names[4:]]
    desk.label(project, dict(zip((item["id"] for item in items), bob, strict=True)), "bob")
    found = desk.get(f"/projects/{project}/agreement", annotator="bob")
    assert found["annotators"] == ["ann", "bob"]
    assert found["both"] == found["kappa"]["items"] == 19  # a skipped item has no answer
    assert found["kappa"]["name"] == "Cohen"
    assert [each["item"] for each in found["disagreements"]] == [item["id"] for item in items[:3]]
    assert found["disagreements"][0]["labels"] == {"ann": names[0], "bob": bob[0]}
    body = {"label": names[0], "by": "eve", "reason": "a clear case"}
    desk.call("PUT", f"/projects/{project}/settled/{items[0]['id']}", json=body)
    settled = desk.get(f"/projects/{project}/agreement", annotator="ann")["disagreements"][0]
    assert (settled["settled"], settled["reason"]) == (names[0], "a clear case")
    # Open disagreements count as unsure: the audit has 18 labels and bounds for the other two.
    audit = desk.finish(desk.post(f"/projects/{project}/audit", expected=202))["audit"]
    labels = desk.get(f"/audits/{audit}")["collections"][0]["labels"]
    assert (labels["labelled"], labels["without_label"]) == (18, 2)
    desk.call("PUT", f"/projects/{project}/settled/{items[0]['id']}", 422, json=body | {"label": "river"})
    desk.call("PUT", f"/projects/{project}/settled/99999", 404, json=body)
    desk.label(project, {items[0]["id"]: names[0]}, "cleo")
    assert desk.get(f"/projects/{project}/agreement", annotator="ann")["kappa"]["name"] == "Fleiss"


def test_nobody_sees_labels_of_others_or_an_answer_before_their_own_labels(
    desk: Desk, truth: dict[str, str]
) -> None:
    project = desk.project(size=60)
    items = items_of(desk, project)
    desk.label_all(project, truth, "ann")
    audit = desk.finish(desk.post(f"/projects/{project}/audit", expected=202))["audit"]

    def state(annotator: str) -> tuple[bool, int | None]:
        progress = desk.get(f"/projects/{project}/progress", annotator=annotator)
        return progress["ready"], progress["answer"]

    assert state("ann") == (True, audit)
    assert state("bob") == (False, None)
    desk.label(project, {item["id"]: truth[str(item["name"])] for item in items[:3]}, "bob")
    assert state("bob") == (False, None)
    refused = desk.call("GET", f"/projects/{project}/agreement", 409, params={"annotator": "bob"})
    assert "57 items left" in refused["detail"]
    desk.call("GET", f"/projects/{project}/agreement", 422)
    for table in ("labels.csv", "sample.csv"):
        desk.call("GET", f"/projects/{project}/{table}", 409, params={"annotator": "bob"})
        desk.call("GET", f"/projects/{project}/{table}", params={"annotator": "ann"})
        desk.call("GET", f"/projects/{project}/{table}")  # a program with its token
        person = TestClient(desk.client.app, base_url=BASE)
        person.get(f"/?token={desk.space.keys.link()}")
        assert person.get(f"/api/v1/projects/{project}/{table}").status_code == 422
    desk.finish(desk.post(f"/projects/{project}/control", expected=202))
    collection = desk.post("/collections", {"name": "posts", "source": 1, "control": 1}, 201)["id"]
    desk.finish(desk.post(f"/collections/{collection}/audits", expected=202))

    def seen(**who: str) -> tuple[int, int, bool]:
        (shown,) = desk.get("/projects", **who)
        return len(desk.get("/audits", **who)), shown["own"], shown["blind"]

    assert (seen(), seen(annotator="ann"), seen(annotator="bob")) == (
        (2, 0, False),
        (2, 60, False),
        (0, 3, True),
    )
    desk.label_all(project, truth, "bob")
    assert seen(annotator="bob") == (2, 60, False)
    assert state("bob") == (True, audit)  # nothing differs, so the answer is still that of the labels
    assert desk.get(f"/projects/{project}/agreement", annotator="bob")["disagreements"] == []


def test_an_answer_is_shown_only_with_the_labels_it_was_computed_from(
    desk: Desk, project: int, truth: dict[str, str]
) -> None:
    items = items_of(desk, project)
    desk.label_all(project, truth)

    def answer() -> int | None:
        found: int | None = desk.get(f"/projects/{project}/progress", annotator="ann")["answer"]
        assert desk.get(f"/projects/{project}")["audit"] == found
        return found

    first = desk.finish(desk.post(f"/projects/{project}/audit", expected=202))["audit"]
    assert answer() == first
    other = {"sea": "wood", "wood": "sea"}
    wrong = {item["id"]: other[truth[str(item["name"])]] for item in items[:3]}
    desk.label(project, dict(wrong), "bob")
    assert answer() is None
    second = desk.finish(desk.post(f"/projects/{project}/audit", expected=202))["audit"]
    assert answer() == second
    labels = desk.get(f"/audits/{second}")["collections"][0]["labels"]
    assert (labels["labelled"], labels["without_label"]) == (17, 3)
    desk.label(project, dict.fromkeys(wrong), "bob")  # taken back
    assert answer() == first


def test_what_was_settled_does_not_outlive_the_disagreement(
    desk: Desk, project: int, truth: dict[str, str]
) -> None:
    desk.label_all(project, truth, "ann")
    desk.label_all(project, truth, "bob")
    item = items_of(desk, project)[0]
    right = truth[str(item["name"])]
    wrong = {"sea": "wood", "wood": "sea"}[right]
    address = f"/projects/{project}/settled/{item['id']}"
    body = {"label": wrong, "by": "eve"}
    assert "nobody disagrees" in desk.call("PUT", address, 409, json=body)["detail"]
    desk.label(project, {item["id"]: wrong}, "bob")
    desk.call("PUT", address, json=body)
    number = int(str(item["id"]))
    assert settled_labels(desk.space, project)[number] == wrong
    desk.label(project, {number: right}, "bob")  # now both agree
    assert settled_labels(desk.space, project)[number] == right
    desk.label(project, {number: "unsure"}, "bob")  # another disagreement than the one that was settled
    assert settled_labels(desk.space, project)[number] == "unsure"
    (open_one,) = desk.get(f"/projects/{project}/agreement", annotator="ann")["disagreements"]
    assert open_one["settled"] is None


def test_labels_go_out_and_come_back_as_a_table(desk: Desk, project: int, truth: dict[str, str]) -> None:
    desk.label_all(project, truth, "=ann")  # which a spreadsheet would run
    first = items_of(desk, project)[0]["id"]
    desk.label(project, {first: "unsure"}, "bob")
    table = desk.call("GET", f"/projects/{project}/labels.csv").text
    rows = list(csv.DictReader(io.StringIO(table)))
    assert list(rows[0])[:4] == ["item", "annotator", "group", "time"]
    assert len(rows) == 21
    assert {row["annotator"] for row in rows} == {"'=ann", "bob"}
    send = {"content": table.encode(), "headers": {"Content-Type": "text/csv"}}
    again = desk.call("PUT", f"/projects/{project}/labels.csv", **send)
    assert again == {"saved": 0, "unchanged": 21, "unknown": 0}
    # In another project with the same sample, they are all there.
    other = desk.project(size=20)
    assert desk.call("PUT", f"/projects/{other}/labels.csv", **send) == {
        "saved": 21,
        "unchanged": 0,
        "unknown": 0,
    }
    for annotator in ("=ann", "bob"):
        assert [item["label"] for item in items_of(desk, other, annotator)] == [
            item["label"] for item in items_of(desk, project, annotator)
        ]
    # A row that is older than the label that is there changes nothing, and is not said to be saved.
    name = next(row["item"] for row in rows if row["annotator"] == "bob")
    older = f"item,annotator,group,time\n{name},bob,sea,2020-01-01\n".encode()
    assert desk.call("PUT", f"/projects/{other}/labels.csv", **send | {"content": older})["saved"] == 0
    assert items_of(desk, other, "bob")[0]["label"] == "unsure"
    for wrong in ("item,annotator\n", "item,annotator,group,time\nt1,ann,river,2026-01-01\n", "\xff", '"'):
        data = wrong.encode("latin-1")
        desk.call(
            "PUT", f"/projects/{project}/labels.csv", 422, content=data, headers={"Content-Type": "text/csv"}
        )


def test_more_items_can_be_drawn_and_labels_stay(desk: Desk, project: int, truth: dict[str, str]) -> None:
    before = [item["name"] for item in items_of(desk, project)]
    desk.label_all(project, truth)
    desk.finish(desk.post(f"/projects/{project}/audit", expected=202))
    assert desk.finish(desk.post(f"/projects/{project}/sample", {"size": 10}, 202)) == {
        "drawn": 30,
        "added": 10,
    }
    after = items_of(desk, project)
    assert [item["name"] for item in after[:20]] == before
    assert len({item["name"] for item in after}) == 30
    assert [item["label"] is not None for item in after] == [True] * 20 + [False] * 10
    progress = desk.get(f"/projects/{project}/progress", annotator="ann")
    # The answer of the first 20 is no longer shown: 30 are planned now.
    assert (progress["planned"], progress["saved"], progress["ready"], progress["answer"]) == (
        30,
        20,
        False,
        None,
    )
    desk.call("POST", f"/projects/{project}/sample", 409, json={"size": 10, "seed": 7})


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 4), st.sampled_from(["sea", "wood", "unsure", "skip", None]), st.integers(0, 9)
        ),
        max_size=30,
    )
)
def test_saved_is_what_a_plain_model_says(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str | None, int]]
) -> None:
    folder = tmp_path_factory.mktemp("model")
    write_texts(folder / "posts.csv", {"sea": 10, "wood": 10})
    with opened_desk(folder / "project", [str(folder / "posts.csv")]) as desk:
        project = desk.project(size=5)
        ids = [item["id"] for item in items_of(desk, project)]
        model: dict[int, tuple[str, str | None]] = {}
        keys: set[str] = set()
        for number, (item, label, second) in enumerate(steps):
            key, at = f"k{number % 20}", f"2026-01-01T00:00:0{second}Z"
            answer = desk.post(
                f"/projects/{project}/labels",
                {"annotator": "ann", "changes": [change(ids[item], label, key=key, at=at)]},
            )
            if key not in keys and at >= model.get(item, ("", None))[0]:
                model[item] = (at, label)
            keys.add(key)
            assert answer["saved"] == sum(label is not None for _, label in model.values())
        shown = [item["label"] for item in items_of(desk, project)]
        assert shown == [model.get(item, ("", None))[1] for item in range(5)]


def test_nothing_that_is_shown_for_labelling_is_a_score(desk: Desk, project: int, tmp_path: Path) -> None:
    for item in items_of(desk, project):
        assert item.keys() == {"id", "number", "kind", "name", "text", "image", "label"}
