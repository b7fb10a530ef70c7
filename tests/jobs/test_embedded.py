"""What a file of vectors says about the items that have none: believed where `embed` may have written it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from test_engines import matrix

from divscore.cli import main
from divscore.errors import FileError
from divscore.sketch.missing import MOST_ROWS
from divscore.sources import open_table
from divscore.sources.manifest import ABOUT_KEY, MOST_VALUES, Embedded, read_embedded
from divscore.sources.places import NoRowsError

ABOUT: dict[str, Any] = {
    "source": "posts",
    "items": 293,
    "vectors": 290,
    "several": 1,
    "skipped": {"unreadable": 2, "empty": 3},
    "skipped_by": {"who": {"anna": {"empty": 3}, "\x1b[2Jnobody": {"unreadable": 2}}},
}
SAYS = "does not say which items have no vector as 'divscore embed' does"


def about(**changed: Any) -> str:
    return json.dumps({**ABOUT, **changed})


FORGED: dict[str, str] = {
    "no JSON": "not json",
    "too deep": "[" * 100_000,
    "a number too long": '{"items": ' + "9" * 5000 + "}",
    "a list": "[1]",
    "null": "null",
    "nothing": "{}",
    "only skipped": '{"skipped":{"empty":1}}',
    "another kind": about(skipped={"unreadable": 2, "empty": 3, "foo": 1}),
    "one kind": about(skipped={"empty": 3}),
    "a text as number": about(skipped={"unreadable": 2, "empty": "x"}),
    "a list of kinds": about(skipped=[1]),
    "no kinds": about(skipped=None),
    "below zero": about(skipped={"unreadable": 2, "empty": -5}),
    "half an item": about(skipped={"unreadable": 2, "empty": 0.5}),
    "true": about(skipped={"unreadable": 2, "empty": True}),
    "without end": about(items=2 * MOST_ROWS, skipped={"unreadable": 2, "empty": MOST_ROWS}),
    "more than there are": about(skipped={"unreadable": 2, "empty": 300}),
    "items without vectors or reason": about(items=1000),
    "more with several than there are": about(several=294),
    "no items": about(items=None),
    "vectors as text": about(vectors="290"),
    "no columns": about(skipped_by=None),
    "a list of columns": about(skipped_by=["who"]),
    "a column of numbers": about(skipped_by={"who": 3}),
    "a value of numbers": about(skipped_by={"who": {"anna": 3}}),
    "a value's other kind": about(skipped_by={"who": {"anna": {"foo": 1}}}),
    "a value's text": about(skipped_by={"who": {"anna": {"empty": "1"}}}),
    "a value below zero": about(skipped_by={"who": {"anna": {"empty": -1}}}),
    "more by value than in all": about(skipped_by={"who": {"anna": {"empty": 2}, "ada": {"empty": 2}}}),
    "too many values": about(skipped_by={"who": {str(at): {"empty": 0} for at in range(MOST_VALUES + 1)}}),
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = pa.table({"embedding": list(matrix(9)[20:60]), "group": ["a"] * 20 + ["b"] * 20})
    pq.write_table(table, "c.parquet")


def save(path: str, text: str | bytes, rows: int = 290) -> None:
    vectors = matrix(0)[10:][:rows]
    numbers = pa.array(list(vectors), pa.list_(pa.float32(), vectors.shape[1]))
    who = ["anna", "ada"] * (rows // 2)
    table = pa.table({"embedding": numbers, "who": pa.array(who, pa.string())}, metadata={ABOUT_KEY: text})
    if path.endswith(".parquet"):
        pq.write_table(table, path)
        return
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def audit(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["audit", *arguments, "--control", "c.parquet"])


def audited(*arguments: str) -> Any:
    done = audit(*arguments, "--json", "-")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("text", FORGED.values(), ids=FORGED)
def test_what_embed_would_not_write_is_refused(form: str, text: str) -> None:
    save(f"v.{form}", text)
    for way in ([], ["--by", "who"], ["--estimator", "self-training"]):
        done = audit(f"v.{form}", *way)
        assert done.exit_code == 2
        assert f"v.{form} {SAYS}" in done.stderr
        assert "it is damaged: let 'divscore embed' make it again" in done.stderr
        assert "Traceback" not in done.output


def test_what_is_no_text_is_refused() -> None:
    save("v.parquet", b"\xff\xfe{")
    assert f"v.parquet {SAYS}" in audit("v.parquet").stderr


def test_what_embed_writes_is_believed() -> None:
    save("v.arrow", about())
    skipped = {"unreadable": 2, "empty": 3}
    assert audited("v.arrow")["collections"][0]["skipped"].items() >= skipped.items()
    done = audit("v.arrow", "--by", "who", "--json", "-")
    told = {each["name"]: each["skipped"] for each in json.loads(done.stdout)["collections"]}
    assert (told["anna"]["empty"], told["ada"].get("empty", 0)) == (3, 0)
    assert "\\x1b[2Jnobody: skipped, as none of its 2 items has a vector" in done.stderr
    assert "\x1b" not in done.stderr


def test_a_file_among_several_that_is_damaged_so_is_left_out_and_named() -> None:
    Path("v").mkdir()
    save("v/a.arrow", about())
    save("v/b.arrow", about(skipped=None))
    told = audited("v")
    assert [each["part"] for each in told["missing"]["listed"]] == ["v/b.arrow"]
    assert SAYS in told["missing"]["listed"][0]["reason"]
    assert told["collections"][0]["count"] == 290
    assert audit("v", "--strict").exit_code == 2


def test_no_rows_are_no_mistake_where_embed_wrote_them_and_only_there() -> None:
    none = about(items=5, vectors=0)
    save("v.arrow", none, 0)
    assert (open_table("v.arrow").rows, open_table("v.arrow").dimension) == (0, matrix(0).shape[1])
    lists = pa.table({"embedding": pa.array([], pa.list_(pa.float32()))}, metadata={ABOUT_KEY: none})
    pq.write_table(lists, "v.parquet")  # of no length, which `embed` does not write
    with pytest.raises(NoRowsError, match="has 0 rows"):
        open_table("v.parquet")


counts: st.SearchStrategy[Any] = st.integers(-1, 6) | st.sampled_from([None, True, 0.5, "1", MOST_ROWS])
by_kind = st.dictionaries(st.sampled_from(["unreadable", "empty", "?"]), counts, max_size=3)
full = st.fixed_dictionaries({"unreadable": st.integers(0, 3), "empty": st.integers(0, 3)})
by_value = st.dictionaries(st.text(max_size=2), by_kind | counts, max_size=3)


@given(
    st.fixed_dictionaries(
        {"items": counts, "vectors": counts, "several": counts, "skipped": full | by_kind | counts},
        optional={"skipped_by": st.dictionaries(st.text(max_size=2), by_value | counts, max_size=2)},
    )
)
def test_whatever_is_said_it_is_read_or_refused(told: Any) -> None:
    try:
        found = read_embedded({ABOUT_KEY: json.dumps(told)}, "v.arrow")
    except FileError:
        return
    assert isinstance(found, Embedded)
    assert found.lost <= found.items <= found.vectors + found.lost
    assert found.several <= found.items
    for values in found.skipped_by.values():
        assert sum(sum(kinds.values()) for kinds in values.values()) <= found.lost
        assert all(set(kinds) <= {"unreadable", "empty"} for kinds in values.values())


def test_a_file_of_somebody_else_says_nothing() -> None:
    assert read_embedded({"pandas": "{}"}, "v.parquet") is None
