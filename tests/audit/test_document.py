"""The JSON document: the schemas describe every key that is written, and no other; what is read is checked."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import draw_groups
from documents import changed

from divscore import ControlSet, Sketch
from divscore.audit.audit import ESTIMATORS, audit
from divscore.audit.document import document, parse_document, read_document
from divscore.cli import main
from divscore.errors import FileError
from divscore.sketch.missing import Missing, MissingPart
from divscore.text import as_json

jsonschema = pytest.importorskip("jsonschema", reason="pip install jsonschema")

SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"
Document = dict[str, Any]


def read(name: str) -> Document:
    found: Document = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def parts(schema: Any) -> Iterator[Document]:
    """Every schema inside a schema."""
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from parts(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from parts(value)


def closed(name: str) -> Document:
    """The schema with no room for keys that it does not name."""
    schema = copy.deepcopy(read(name))
    for part in parts(schema):
        if "properties" in part and part.get("type") == "object":
            part["additionalProperties"] = False
    return schema


def check(found: Document, name: str = "divscore.audit-1") -> Document:
    again: Document = json.loads(json.dumps(found, allow_nan=False))
    jsonschema.Draft202012Validator(closed(name)).validate(again)
    return again


@pytest.mark.parametrize("name", ["divscore.audit-1", "divscore.diff-1"])
def test_schema_is_one_and_explains_every_key(name: str) -> None:
    schema = read(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    for part in parts(schema):
        for value in (
            part["properties"].values() if isinstance(part.get("type"), str) and "properties" in part else ()
        ):
            assert value["description"].endswith((".", "…"))


CASES = [(name, groups) for name in ESTIMATORS for groups in (2, 3) if (name, groups) != ("self-training", 3)]


@pytest.mark.parametrize(("estimator", "groups"), CASES)
def test_every_estimator(draw: Any, make_control: Any, estimator: str, groups: int) -> None:
    entry = estimated(draw, make_control, estimator, groups)
    assert ("replicates" in entry) == (estimator == "likelihood")
    assert ("pair" in entry.get("replicates", {})) == (estimator == "likelihood" and groups == 3)
    if estimator != "divscore":
        assert ("most" in entry) == ("least" in entry) == (groups == 3)


def test_without_shares_no_group_is_the_largest(draw: Any, make_control: Any) -> None:
    assert "most" not in estimated(draw, make_control, "divscore", 3)


def estimated(draw: Any, make_control: Any, estimator: str, groups: int) -> Document:
    vectors, names = draw(1, [150, *[75] * (groups - 1)])
    control = make_control(0, [60] * groups)
    found = audit(vectors, control, estimator=estimator, sample=(vectors[:40], names[:40]))
    entry: Document = check(document([found], replicates=True))["collections"][0]
    return entry


def test_groups_that_cannot_be_distinguished() -> None:
    vectors, names = draw_groups(0, [40, 40, 40], gap=3.0)
    halves = np.where(
        names == "c", np.where(np.arange(len(names)) % 2, "c", "d"), names
    )  # c and d are the same
    control = ControlSet(vectors, halves, attribute="letter")
    found = document([audit(draw_groups(1, [100, 200, 100], gap=3.0)[0], control)], replicates=True)
    assert check(found)["collections"][0]["merged"] == [["c", "d"]]


def test_intersection(draw: Any) -> None:
    vectors, names = draw(0, (60, 60, 60, 60))
    first = ControlSet(vectors, ["f" if n in "ab" else "m" for n in names], attribute="gender")
    second = ControlSet(vectors, ["d" if n in "ac" else "l" for n in names], attribute="tone")
    again = check(document([audit(draw(1, (90, 60, 30, 20))[0], first.cross(second))], replicates=True))
    assert [part["attribute"] for part in again["collections"][0]["marginals"]] == ["gender", "tone"]


@pytest.mark.parametrize("size", [2, 10, 300])
def test_cannot_tell(make_control: Any, size: int) -> None:
    """Groups that do not differ, and too few items: numbers are null, never NaN."""
    rng = np.random.default_rng(2)
    control = make_control(0, (40, 40), gap=0.0)
    found = audit(rng.normal(size=(size, 8)), control)
    assert found.trust == "poor"
    entry = check(document([found], replicates=True))["collections"][0]
    assert (entry["disparity"] is None) == math.isnan(found.disparity)
    if size == 2:
        assert entry["divscore"] is None
        assert entry["disparity"] is None


def test_items_that_were_skipped(draw: Any, make_control: Any) -> None:
    control = make_control(0, (40, 40), skipped={"a": 3})
    vectors = draw(1, (60, 60))[0]
    vectors[0], vectors[1] = 0.0, np.nan
    sketch = Sketch(control)
    sketch.add(vectors)
    sketch.skip("empty", 4)
    sketch.skip("unreadable")
    again = check(document([audit(sketch, control)]))
    assert again["collections"][0]["skipped"] == {"zero": 1, "nonfinite": 1, "unreadable": 1, "empty": 4}
    assert again["control"]["left_out"] == {"a": 3}


def test_what_is_missing(draw: Any, make_control: Any) -> None:
    found = audit(draw(1, (60, 60))[0], make_control(0, (40, 40)))
    for lost in ([], [MissingPart("a.npy", "damaged", 7), MissingPart("b.npy", "empty")]):
        again = check(document([replace(found, missing=Missing.of(lost))]))
        assert again["collections"][0]["missing_parts"] == len(again["missing"]["listed"]) == len(lost)


def test_what_the_command_line_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke

    def audited(*more: str) -> Document:
        words = ["audit", "demo/names.parquet", "--control", "demo/control", *more]
        assert run(main, [*words, "--json", "found.json"]).exit_code == 0
        return check(json.loads(Path("found.json").read_text(encoding="utf-8")))

    assert run(main, ["demo", "--out", "demo"]).exit_code == 0
    assert len(audited("--by", "list")["collections"]) == 3
    Path("found.json").rename("before.json")
    audited("--by", "list", "--seed", "1")
    for after, limit, wanted in (
        ("before", "0.2", "the same items"),
        ("found", "0.5", "both intervals added"),
    ):
        words = ["diff", "before.json", f"{after}.json", "--json", "changes.json", "--max-change", limit]
        assert run(main, words).exit_code in (0, 3)
        changes = check(json.loads(Path("changes.json").read_text(encoding="utf-8")), "divscore.diff-1")
        assert {entry["interval_method"] for entry in changes["collections"]} == {wanted}
        assert all("gate" in entry for entry in changes["collections"])


def test_a_change_that_is_paired(draw: Any, make_control: Any, tmp_path: Path) -> None:
    for counts in ((40, 40), (40, 40, 40)):
        control = make_control(0, counts)
        for name, lead in (("before", 100), ("after", 400)):
            vectors = draw(3, [lead, *[100] * (len(counts) - 1)])[0]
            text = json.dumps(document([audit(vectors, control)], replicates=True))
            (tmp_path / f"{name}.json").write_text(text, encoding="utf-8")
        words = ["diff", str(tmp_path / "before.json"), str(tmp_path / "after.json"), "--json", "-"]
        found = check(json.loads(CliRunner().invoke(main, words).stdout), "divscore.diff-1")
        assert found["collections"][0]["interval_method"] == "paired refits"
        assert found["collections"][0]["verdict"] == "less even"
        assert "gate" not in found["collections"][0]


def test_a_closed_schema_sees_a_key_that_is_new() -> None:
    """The checks above can fail."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(closed("divscore.diff-1")["$defs"]["side"]).validate({"size": 3})


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    vectors, names = draw_groups(0, (30, 30), gap=1.5)
    control = ControlSet(vectors, names, attribute="letter")
    result = audit(draw_groups(1, (60, 30))[0], control, name="x")
    found: dict[str, Any] = json.loads(as_json(document([result], replicates=True)))
    return found


def test_what_was_written_is_read_back(plain: dict[str, Any]) -> None:
    found = parse_document(json.dumps(plain))
    first = plain["collections"][0]
    assert found.collections[0].disparity == first["disparity"]
    assert (found.collections[0].interval.low, found.collections[0].interval.high) == tuple(first["interval"])
    assert found.collections[0].refits is not None
    assert found.collections[0].refits.disparity.tolist() == first["replicates"]["disparity"]
    assert found.control == plain["control"]["digest"]
    assert found.collections[0].missing_parts == first["missing_parts"] == 0


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("schema", "divscore.audit/2", "a newer divscore wrote it"),
        ("schema", "divscore.audit/x", "write it again"),
        ("schema", "divscore.diff/1", "two audits"),
        ("schema", KeyError, "not an audit by divscore"),
        ("schema", 1, "not an audit by divscore"),
        ("collections", KeyError, "'collections' is missing"),
        ("collections", [], "collections: expected a list of length >= 1"),
        ("collections", {}, "expected a list"),
        ("collections", [3], "expected an object"),
        ("collections/0/name", KeyError, "'name' is missing"),
        ("collections/0/disparity", "0.1", "expected a number"),
        ("collections/0/disparity", True, "expected a number"),
        ("collections/0/disparity", 1e300, "disparity: expected a number <= 1000000.0"),
        ("collections/0/disparity", 10**400, "number out of range"),
        ("collections/0/disparity", KeyError, "'disparity' is missing"),
        ("collections/0/interval", [0.1], "interval: expected a list of length 2"),
        ("collections/0/interval", [0.1, 7], "interval: expected two ascending numbers from -1 to 1"),
        ("collections/0/interval", [0.5, 0.1], "got 0.5, 0.1"),
        ("collections/0/interval", [None, 0.1], "expected a number"),
        ("collections/0/trust", "great", "trust: unknown value 'great'"),
        ("collections/0/count", -1, "expected a whole number"),
        ("collections/0/count", 1.5, "a whole number"),
        ("collections/0/missing_parts", -1, "expected a whole number"),
        ("collections/0/missing_parts", 10**20, "expected a whole number"),
        ("collections/0/missing_parts", True, "a whole number"),
        ("collections/0/replicates", 4, "expected an object"),
        ("collections/0/replicates/own", -0.1, "own: expected a number >= 0"),
        (
            "collections/0/replicates/disparity",
            [0.1],
            "replicates.disparity: expected a list of length >= 20",
        ),
        ("collections/0/replicates/disparity", ["x"] * 20, "expected a number"),
        ("groups", ["a"], "groups: expected a list of length >= 2"),
        ("groups", ["a", "a"], "same name"),
        ("groups", ["a", 1], "groups[1]: expected a text"),
        ("confidence", 95, "confidence: expected a number <= 1"),
        ("seed", None, "expected a whole number"),
        ("control", None, "expected an object"),
        ("control/digest", 5, "expected a text"),
        ("encoder", [], "expected a text"),
    ],
)
def test_documents_that_are_refused(plain: dict[str, Any], path: str, value: Any, said: str) -> None:
    with pytest.raises(FileError, match=r"^here\.json: ") as caught:
        parse_document(changed(plain, path, value), "here.json")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "  \n", "[1, 2", "NaN", "hello", "[" * 100_000, '{"schema": "divscore.audit/1", "seed": Infinity}'],
)
def test_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(FileError, match="not valid JSON"):
        parse_document(text)


def test_every_cut_of_a_document_is_refused(plain: dict[str, Any]) -> None:
    text = json.dumps(plain)
    for end in range(0, len(text), 97):
        with pytest.raises(FileError):
            parse_document(text[:end])


def test_overflowing_numbers_are_refused(plain: dict[str, Any]) -> None:
    text = changed(plain, "collections/0/disparity", 12345.5).replace("12345.5", "1e999")
    with pytest.raises(FileError, match="expected a number <= 1000000"):
        parse_document(text)


def test_two_collections_of_one_name_are_refused(plain: dict[str, Any]) -> None:
    with pytest.raises(FileError, match="2 collections are named 'x'"):
        parse_document(changed(plain, "collections", plain["collections"] * 2))


def test_files_that_cannot_be_read_are_named(tmp_path: Any) -> None:
    with pytest.raises(FileError, match=r"absent\.json"):
        read_document(tmp_path / "absent.json")
    (tmp_path / "picture.json").write_bytes(b"\xff\xd8\xff\xe0")
    with pytest.raises(FileError, match="not UTF-8"):
        read_document(tmp_path / "picture.json")
    with pytest.raises(FileError, match="cannot read"):
        read_document(tmp_path)


def test_documents_of_three_groups_are_checked_too(make_control: Any, draw: Any) -> None:
    found = document([audit(draw(1, (60, 40, 30))[0], make_control(0, (40, 40, 40)))], replicates=True)
    assert parse_document(json.dumps(found)).collections[0].refits is not None
    for path, value, said in (
        ("collections/0/interval", [-0.1, 0.5], r"collections\[0\].interval: below 0"),
        ("collections/0/replicates/pair", [0.1] * 20, "differ in length"),
        ("collections/0/replicates/pair", KeyError, "differ in length"),
    ):
        with pytest.raises(FileError, match=said):
            parse_document(changed(found, path, value))
