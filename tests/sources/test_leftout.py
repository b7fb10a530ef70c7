"""Files that `embed SOURCE -o one.arrow` could not open are missing from every later audit of that file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import audited, invoke, run
from hypothesis import given
from hypothesis import strategies as st
from test_manifest import FORGED, ROWS, cut, parts_of, texts

from divscore.control.controlset import ControlSet
from divscore.errors import FileError
from divscore.jobs.sketching import sketch_source
from divscore.sketch.missing import LONGEST, MOST_ROWS, MissingPart
from divscore.sources import open_table
from divscore.sources.manifest import ABOUT_KEY, note_left_out, read_left_out

LEFT_OUT = "1 part of the source could not be read and is missing: posts/country=SE/1.parquet"
SAYS = "v.arrow does not say which files it is made without as 'divscore embed' does"


@pytest.fixture(autouse=True)
def posts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three tables, of which the second is damaged, and the labelled texts."""
    monkeypatch.chdir(tmp_path)
    rows = (f"{text},{'ab'[at % 2]}" for at, text in enumerate(texts(9, 120)))
    Path("c.csv").write_text("\n".join(["text,group", *rows]))
    for at, country in enumerate(("SA", "SE", "SE")):
        Path(f"posts/country={country}").mkdir(parents=True, exist_ok=True)
        groups = ["a", "b"] * (ROWS // 2)
        pq.write_table(
            pa.table({"text": texts(at), "group": groups}), f"posts/country={country}/{at}.parquet"
        )
    shutil.copy("posts/country=SE/1.parquet", "whole.parquet")
    cut(Path("posts/country=SE/1.parquet"))
    return Path("posts")


def embed(*options: str) -> Any:
    return run("embed", "posts", "-o", "v.arrow", "--column", "text", *options)


def noted() -> Any:
    return json.loads(pa.ipc.open_file("v.arrow").schema.metadata[ABOUT_KEY.encode()])


def rewritten(**changed: Any) -> None:
    """Write something else into the metadata of the vectors."""
    table = pa.ipc.open_file("v.arrow").read_all()
    about = json.dumps({**noted(), **changed})
    with pa.ipc.new_file("v.arrow", table.schema.with_metadata({ABOUT_KEY: about})) as writer:
        writer.write_table(table)


def test_what_could_not_be_opened_is_missing_from_later_audits() -> None:
    done = embed("--json")
    assert f"v.arrow: {LEFT_OUT}" in done.stderr
    (lost,) = json.loads(done.stdout)["missing"]
    reason = f"v.arrow was embedded without it: {lost['reason']}"[:LONGEST]
    ways = ([], ["--by", "country"], ["--workers", "2"], ["--estimator", "self-training"])
    for asked in (["v.arrow", *way] for way in ways):
        told = audited(*asked)
        assert parts_of(told) == [("posts/country=SE/1.parquet", reason)]
        assert sum(each["count"] for each in told["collections"]) == 2 * ROWS
    assert LEFT_OUT in audited("v.arrow")["collections"][0]["warnings"][0]
    assert audited("v.arrow")["collections"][0]["name"] == "v"
    said = run("audit", "v.arrow", "--control", "c.csv").stderr
    assert f"missing: {reason}"[:200] in said
    gate = invoke("audit", "v.arrow", "--control", "c.csv", "--max-disparity", "1")
    assert gate.exit_code == 3
    assert "parts of the source are missing" in gate.stderr


def test_every_collection_that_may_have_lost_it_says_so() -> None:
    """The vectors have the column themselves by now, and files that had it, too, may hold anybody's rows."""
    embed()
    told = {each["name"]: each["warnings"] for each in audited("v.arrow", "--by", "country")["collections"]}
    for name in ("SE", "SA"):
        assert any(LEFT_OUT in each for each in told[name])


def test_it_stays_missing_from_sketches_folders_patterns_and_what_is_encoded_again() -> None:
    embed()
    made = run("sketch", "v.arrow", "--control", "c.csv", "-o", "v.sketch")
    assert f"v.sketch: {LEFT_OUT}" in made.stderr
    Path("all").mkdir()
    for name in ("v", "w"):
        shutil.copy("v.arrow", f"all/{name}.arrow")
    for path, times in (("v.sketch", 1), ("all", 2), ("all/*.arrow", 2), ("all/v.*", 1)):
        told = audited(path)
        assert [part for part, _ in parts_of(told)] == ["posts/country=SE/1.parquet"] * times
    told = audited("v.arrow", "--encoder", "ngrams", "--column", "text")
    assert [part for part, _ in parts_of(told)] == ["posts/country=SE/1.parquet"]
    for again in ("again.arrow", "again"):
        run("embed", "v.arrow", "-o", again, "--column", "text")
        assert [part for part, _ in parts_of(audited(again))] == ["posts/country=SE/1.parquet"]


def test_the_library_knows_it_too() -> None:
    embed()
    run("embed", "c.csv", "-o", "c.arrow", "--column", "text")
    control = ControlSet.read("c.arrow", attribute="group")
    assert isinstance(control, ControlSet)
    Path("day=monday").mkdir()
    shutil.copy("v.arrow", "day=monday/v.arrow")
    inside = open_table("day=monday/v.arrow", extra=["day"])
    for source in (open_table("v.arrow"), open_table("v*.arrow"), inside):
        assert [each.part for each in source.missing] == ["posts/country=SE/1.parquet"]
        assert sketch_source(source, control).missing == source.missing
    with pytest.raises(FileError, match=r"embedded without it.*labelled examples would be missing"):
        ControlSet.read("v.arrow", attribute="group")


def test_strict_refuses_it() -> None:
    embed()
    for asked in ([], ["--estimator", "self-training"], ["--encoder", "ngrams", "--column", "text"]):
        done = invoke("audit", "v.arrow", "--control", "c.csv", "--strict", *asked)
        assert done.exit_code == 2
        assert "v.arrow was embedded without it: posts/country=SE/1.parquet cannot be read" in done.stderr
        assert "leave out --strict" in done.stderr
    assert invoke("embed", "posts", "-o", "w.arrow", "--column", "text", "--strict").exit_code == 2


def test_what_is_mended_and_embedded_again_is_not_missing(posts: Path) -> None:
    embed()
    shutil.copy("whole.parquet", posts / "country=SE" / "1.parquet")
    embed()
    assert noted()["missing"] == []
    told = audited("v.arrow", "--strict")
    assert (parts_of(told), told["collections"][0]["count"]) == ([], 3 * ROWS)


def test_parts_of_a_folder_leave_it_to_the_manifest() -> None:
    run("embed", "posts", "-o", "vectors", "--column", "text")
    for part in Path("vectors").glob("*.arrow"):
        assert open_table(part).missing == ()
    assert len(parts_of(audited("vectors"))) == 1


@pytest.mark.parametrize("missing", FORGED.values(), ids=FORGED)
def test_a_forged_list_is_refused(missing: Any) -> None:
    embed()
    rewritten(missing=missing)
    for way in ([], ["--by", "country"], ["--estimator", "self-training"]):
        done = invoke("audit", "v.arrow", "--control", "c.csv", *way)
        assert done.exit_code == 2
        assert SAYS in done.stderr


def test_a_file_without_the_list_is_whole() -> None:
    embed()
    table = pa.ipc.open_file("v.arrow").read_all()
    about = {key: value for key, value in noted().items() if key != "missing"}
    with pa.ipc.new_file("v.arrow", table.schema.with_metadata({ABOUT_KEY: json.dumps(about)})) as writer:
        writer.write_table(table)
    assert parts_of(audited("v.arrow")) == []


def test_forged_texts_do_nothing_to_the_terminal() -> None:
    embed()
    rewritten(missing=[{"of": "\x1b[2J" * 500, "reason": "\x1b[31mred\n" * 500}])
    done = run("audit", "v.arrow", "--control", "c.csv")
    assert "\x1b" not in done.output
    (only,) = open_table("v.arrow").missing
    assert max(len(only.part), len(only.reason)) <= LONGEST + len("v.arrow was embedded without it: ")


plain = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=LONGEST)


@given(st.lists(st.builds(MissingPart, plain, plain, st.none() | st.integers(0, MOST_ROWS - 1)), max_size=4))
def test_what_is_noted_is_read_again(missing: list[MissingPart]) -> None:
    found = read_left_out(json.loads(json.dumps(note_left_out(missing))), "v.arrow")
    assert found is not None
    assert [(each.part, each.rows) for each in found] == [(each.part, each.rows) for each in missing]
    assert all(a.reason.endswith(f": {b.reason}") for a, b in zip(found, missing, strict=True))
