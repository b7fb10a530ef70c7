"""What `embed` noted about its vectors: known in every later audit, refused where `embed` did not write it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import audited, invoke, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vectorfiles import matrix, write

from divscore import ControlSet, sources
from divscore.errors import FileError
from divscore.jobs import parts
from divscore.sketch.missing import LONGEST, MOST_ROWS, MissingPart
from divscore.sources import manifest as manifests
from divscore.sources import open_table
from divscore.sources.manifest import (
    ABOUT_KEY,
    FORMAT,
    MOST_VALUES,
    Embedded,
    Manifest,
    note_missing,
    read_embedded,
    read_manifest,
)
from divscore.sources.places import NoRowsError
from divscore.sources.recognise import tables_in

WORDS = {"a": ["anna", "ada", "alma"], "b": ["bruno", "bela", "bob"]}
ROWS = 100
ENCODE = ("--column", "text")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(parts.ROWS, "text", 40)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(*arguments: str) -> str:
    done = invoke("audit", *arguments, "--control", "c.csv")
    assert done.exit_code == 2, done.output
    return str(done.stderr)


def texts(seed: int, count: int = ROWS) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS["ab"[at % 2]], 3)) for at in range(count)]


@pytest.fixture
def posts() -> Path:
    """Three complete tables, and the labelled texts."""
    rows = (f"{text},{'ab'[at % 2]}" for at, text in enumerate(texts(9, 120)))
    Path("c.csv").write_text("\n".join(["text,group", *rows]))
    Path("posts").mkdir()
    for at in range(3):
        table = pa.table({"text": texts(at), "country": ["SA", "SE"] * (ROWS // 2)})
        pq.write_table(table, f"posts/{at}.parquet", row_group_size=20, compression="none")
    return Path("posts")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def scar(path: Path) -> None:
    """Spoil the first group of rows, which is noticed only when it is read."""
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    path.write_bytes(data)


def missing_in(document: Any) -> list[tuple[str, str]]:
    return [(each["part"], each["reason"]) for each in document["missing"]["listed"]]


def parts_in(document: Any) -> list[str]:
    return [part for part, _ in missing_in(document)]


# What could not be read stays missing, from a folder of parts and from one file.


def test_what_embed_could_not_read_is_missing_from_later_audits(posts: Path) -> None:
    cut(posts / "1.parquet")
    scar(posts / "2.parquet")
    done = json.loads(run("embed", "posts", "-o", "vectors", *ENCODE, "--json").stdout)
    assert [(each["part"], each["rows"]) for each in done["missing"]] == [
        ("posts/1.parquet", None),
        ("posts/2.parquet, row groups 0 to 1", 40),
    ]
    noted = [
        (each["part"], f"vectors was embedded without it: {each['reason']}"[:LONGEST])
        for each in done["missing"]
    ]
    for asked in (["vectors/"], ["vectors", "--by", "country"], ["vectors", "--estimator", "self-training"]):
        document = audited(*asked)
        assert missing_in(document) == noted
        assert [each["rows"] for each in document["missing"]["listed"]] == [None, 40]
        assert sum(each["count"] for each in document["collections"]) == 2 * ROWS - 40
        for each in document["collections"]:
            assert "2 parts of the source could not be read and are missing" in each["warnings"][0]
            assert "posts/1.parquet, posts/2.parquet, row groups 0 to 1" in each["warnings"][0]
    assert document["collections"][0]["skipped"]["unreadable"] == 40
    made = run("sketch", "vectors", "--control", "c.csv", "-o", "v.sketch")
    assert "v.sketch: 2 parts of the source could not be read and are missing" in made.stderr
    assert missing_in(audited("v.sketch")) == noted


@pytest.mark.parametrize("out", ["vectors", "v.arrow"])
def test_it_stays_missing_until_it_is_fixed(posts: Path, out: str) -> None:
    complete = (posts / "1.parquet").read_bytes()
    cut(posts / "1.parquet")
    run("embed", "posts", "-o", out, *ENCODE)
    assert parts_in(audited(out, "--encoder", "ngrams", *ENCODE)) == ["posts/1.parquet"]
    run("embed", out, "-o", f"again-{out}", *ENCODE)
    assert parts_in(audited(f"again-{out}")) == ["posts/1.parquet"]
    assert f"{out} was embedded without it: posts/1.parquet cannot be read" in refused(out, "--strict")
    gate = invoke("audit", out, "--control", "c.csv", "--max-disparity", "1")
    assert (gate.exit_code, "parts of the source are missing" in gate.stderr) == (3, True)
    (posts / "1.parquet").write_bytes(complete)
    run("embed", "posts", "-o", out, *ENCODE)
    document = audited(out, "--strict")
    assert (parts_in(document), document["collections"][0]["count"]) == ([], 3 * ROWS)


def test_one_file_of_vectors_knows_it_wherever_it_is(posts: Path) -> None:
    cut(posts / "1.parquet")
    run("embed", "posts", "-o", "v.arrow", *ENCODE)
    Path("day=monday").mkdir()
    shutil.copy("v.arrow", "day=monday/v.arrow")
    for source in (
        open_table("v.arrow"),
        open_table("v*.arrow"),
        open_table("day=monday/v.arrow", extra=["day"]),
    ):
        assert [each.part for each in source.missing] == ["posts/1.parquet"]
    for each in audited("v.arrow", "--by", "country")["collections"]:  # any of them may have lost rows
        assert "posts/1.parquet" in each["warnings"][0]
    with pytest.raises(FileError, match=r"embedded without it.*labelled examples would be missing"):
        ControlSet.read("v.arrow", attribute="country")


def test_tables_of_texts_that_cannot_be_opened_are_missing(posts: Path) -> None:
    cut(posts / "1.parquet")
    for estimator in ("likelihood", "self-training"):
        done = run("audit", "posts", "--control", "c.csv", "--estimator", estimator, "--json", "-")
        document = json.loads(done.stdout)
        assert parts_in(document) == ["posts/1.parquet"]
        assert "posts/1.parquet" in document["collections"][0]["warnings"][0]
        assert done.stderr.count("missing: posts/1.parquet cannot be read as Parquet") == 1


# A manifest is read or refused.


def manifest(**changed: Any) -> None:
    content = {"format": FORMAT, "finished": True, "parts": [{"file": "a.arrow"}], "missing": [], **changed}
    Path("manifest.json").write_text(json.dumps(content))


NO_LISTS: list[Any] = [
    None,
    7,
    {"of": "x"},
    ["x"],
    [{"of": "x"}],
    [{"reason": "x"}],
    [{"of": 1, "reason": "x"}],
    [{"of": "x", "reason": ["x"]}],
    *([{"of": "x", "reason": "x", "rows": rows}] for rows in (-1, 1 << 60, 0.5, "7", True)),
]
NO_PARTS: list[Any] = [
    [{"file": "a.arrow"}, {"file": "b.arrow"}, {"file": "a.arrow"}],
    *(None, 7, {"a": 1}, ["a.arrow"], [{}], [{"file": 3}]),
    *([{"file": n}] for n in ("", "../a.arrow", "..", "/etc/a", "b/../../a", "..\\a.arrow", ".a", "a\0")),
]


@pytest.mark.parametrize(
    "changed",
    [
        *({"missing": each} for each in NO_LISTS),
        *({"parts": each} for each in NO_PARTS),
        *({"finished": each} for each in ("no", 1, None)),
    ],
    ids=str,
)
def test_a_manifest_that_embed_would_not_write_is_damaged(changed: dict[str, Any]) -> None:
    manifest(**changed)
    with pytest.raises(FileError, match=r"manifest\.json.*it is damaged: run 'divscore embed' again"):
        read_manifest(".")


def test_a_manifest_that_is_cut_off_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest()
    complete = Path("manifest.json").read_text()
    for text in (complete[:-40], complete[:-40] + "[" * 100_000):
        Path("manifest.json").write_text(text)
        with pytest.raises(FileError, match="is cut off or not JSON; it is damaged"):
            tables_in(".")
    Path("manifest.json").write_text(complete)
    monkeypatch.setattr(manifests, "LARGEST", 50)
    with pytest.raises(FileError, match="is cut off or not JSON"):
        read_manifest(".")


def test_a_manifest_of_somebody_else_does_not_count() -> None:
    write(Path("a.npy"), matrix(0))
    for text in ("no JSON", "[1]", '{"format": "other"}', "[" * 100_000):
        Path("manifest.json").write_text(text)
        assert [each.name for each in tables_in(".").locations] == ["a"]


def test_a_folder_without_vectors_names_what_is_missing() -> None:
    manifest(parts=[], missing=[{"of": "posts/1.csv", "reason": "damaged"}])
    with pytest.raises(FileError, match=r"has no vectors: no item could be encoded .*missing: posts/1\.csv"):
        sources.open(".")


def test_forged_texts_stay_short_and_do_nothing_to_the_terminal(posts: Path) -> None:
    run("embed", "posts", "-o", "vectors", *ENCODE)
    place = Path("vectors/manifest.json")
    nasty = "\x1b[2J\r\n\ud800<script>" + "x" * 2000
    missing = [{"of": nasty, "reason": nasty, "rows": 3}] * 500
    place.write_text(json.dumps({**json.loads(place.read_text()), "missing": missing}))
    done = run("audit", "vectors", "--control", "c.csv", "--json", "-", "--report", "report.html")
    document = json.loads(done.stdout)
    assert (len(document["missing"]["listed"]), document["missing"]["more"]) == (100, 400)
    assert all(len(part) <= LONGEST and len(why) <= LONGEST for part, why in missing_in(document))
    assert (len(done.stdout) < 200_000, len(done.stderr) < 1_000_000) == (True, True)
    assert not {"\x1b", "\ud800"} & set(done.stdout + done.stderr)
    assert "<script>x" not in Path("report.html").read_text()


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["of", "reason", "rows", "file", "?"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    anything | st.lists(st.fixed_dictionaries({"file": st.sampled_from(["a.arrow", "b.arrow"])}), max_size=3),
    anything | st.lists(st.fixed_dictionaries({"of": st.text(), "reason": st.text()}), max_size=3),
    anything | st.booleans(),
)
def test_any_manifest_is_read_or_refused(parts: Any, missing: Any, finished: Any) -> None:
    manifest(parts=parts, missing=missing, finished=finished)
    try:
        read = read_manifest(".")
    except FileError:
        return
    assert isinstance(read, Manifest)
    assert len(read.missing) == len(missing)
    assert all(isinstance(each.part, str) and len(each.part) <= LONGEST for each in read.missing)
    assert len(set(read.parts)) == len(read.parts)
    assert read.finished is finished


# Folders below the one that is named, and patterns.


@pytest.fixture
def below(posts: Path) -> Path:
    """Two folders that `embed` wrote, one of them without a file that it could not read, below a third."""
    shutil.copytree(posts, "whole")
    for at, text in enumerate(("", "anna")):
        pq.write_table(pa.table({"text": [text] * 10, "country": ["SA"] * 10}), f"whole/{at + 3}.parquet")
    cut(posts / "1.parquet")
    for name in (posts.name, "whole"):
        run("embed", name, "-o", f"vectors/{name}", *ENCODE)
    assert list(Path("vectors/whole").glob("*.skipped.csv"))  # which are of another kind
    return Path("vectors")


PATTERNS = ("vectors/*/*.arrow", "vectors/**/*.arrow", "vectors/p*/part-*.arrow", f"{'?' * 7}/posts/*0.arrow")


def test_what_is_missing_from_folders_below_and_of_patterns_is_known(
    below: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for asked in ("vectors", "vectors/", *PATTERNS):
        source = sources.open(asked)
        assert [each.part for each in source.missing] == ["posts/1.parquet"], asked
        with pytest.raises(FileError, match="vectors/posts was embedded without it"):
            sources.open(asked, strict=True)
    assert source.many
    assert not open_table("vectors/posts/part-00000.arrow").many  # one file, and no pattern
    for way in ([], ["--by", "country"], ["--estimator", "self-training"]):
        document = audited("vectors", *way)
        assert all("posts/1.parquet" in each["warnings"][0] for each in document["collections"])
        assert sum(each["count"] for each in document["collections"]) == 5 * ROWS + 10
    monkeypatch.chdir("vectors/posts")
    (only,) = sources.open("*.arrow").missing
    assert only.reason.startswith("this folder was embedded without it: posts/1.parquet")


def test_an_unfinished_folder_below_is_no_collection(below: Path) -> None:
    place = Path("vectors/posts/manifest.json")
    place.write_text(json.dumps({**json.loads(place.read_text()), "finished": False}))
    for asked in ("vectors", *PATTERNS):
        with pytest.raises(
            FileError, match="vectors/posts is not finished: its job is running or was stopped"
        ):
            sources.open(asked)
    assert audited("vectors/w*/*.arrow")["collections"][0]["count"] == 3 * ROWS + 10


def test_files_that_no_manifest_below_lists_do_not_count(below: Path) -> None:
    first = Path("vectors/posts/part-00000.arrow")
    Path("vectors/posts/inner").mkdir()
    for name in ("posts/part-00009", "posts/inner/a", "beside"):
        shutil.copy(first, f"vectors/{name}.arrow")
    shutil.copytree("vectors/whole", "vectors/posts/again")
    kept = [location.path for location in tables_in("vectors").locations]
    listed = json.loads(Path("vectors/posts/manifest.json").read_text())["parts"]
    assert kept[0] == "vectors/beside.arrow"
    assert [name for name in kept if "posts" in name] == [f"vectors/posts/{part['file']}" for part in listed]
    assert {name.split("/")[1] for name in kept[1:]} == {"posts", "whole"}


def test_other_manifests_and_other_files_do_not_count(below: Path) -> None:
    shutil.copy("vectors/posts/part-00000.arrow", "vectors/posts/a.arrow")
    shutil.copy("c.csv", "vectors/posts/c.csv")
    for asked in ("vectors/posts/c*.csv", "vectors/posts/a*.arrow"):
        assert sources.open(asked).missing == ()
    Path("vectors/posts/manifest.json").write_text('{"format": "other"}')
    assert sources.open("vectors/p*/*.arrow").missing == ()
    Path("vectors/posts/manifest.json").write_text(f'{{"format": "{FORMAT}", "parts"')
    for asked in ("vectors", "vectors/p*/*.arrow"):
        with pytest.raises(FileError, match=r"vectors/posts/manifest\.json is cut off or not JSON"):
            sources.open(asked)


def test_many_remote_folders_of_a_pattern_are_not_asked(below: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fsspec.filesystem("memory")
    memory.put("vectors", "/vectors", recursive=True)
    try:
        for asked, parts in ((2, ["posts/1.parquet"]), (1, [])):
            monkeypatch.setattr(manifests, "ASKED", asked)
            assert [each.part for each in sources.open("memory://vectors/*/*.arrow").missing] == parts
        assert [each.part for each in sources.open("memory://vectors").missing] == ["posts/1.parquet"]
    finally:
        memory.rm("/vectors", recursive=True)


# What a file of vectors says about items without one.

ABOUT: dict[str, Any] = {
    "source": "posts",
    "items": 293,
    "vectors": 290,
    "several": 1,
    "skipped": {"unreadable": 2, "empty": 3},
    "skipped_by": {"who": {"anna": {"empty": 3}, "\x1b[2Jnobody": {"unreadable": 2}}},
}


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
    **{f"missing {each}": about(missing=each) for each in NO_LISTS},
}


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


def save_control() -> None:
    pq.write_table(
        pa.table({"embedding": list(matrix(9)[20:60]), "group": ["a"] * 20 + ["b"] * 20}), "c.parquet"
    )


@pytest.mark.parametrize("text", FORGED.values(), ids=FORGED)
def test_a_note_that_embed_would_not_write_is_refused(text: str) -> None:
    with pytest.raises(
        FileError, match=rf"^v\.arrow, metadata '{ABOUT_KEY}'.*it is damaged: run 'divscore embed' again"
    ):
        read_embedded({ABOUT_KEY: text}, "v.arrow")


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_no_command_reads_a_file_with_such_a_note(form: str) -> None:
    save_control()
    for text in (about(skipped=None), b"\xff\xfe{"):
        save(f"v.{form}", text)
        for way in ([], ["--by", "who"], ["--estimator", "self-training"]):
            done = invoke("audit", f"v.{form}", *way, "--control", "c.parquet")
            assert done.exit_code == 2
            assert f"v.{form}, metadata '{ABOUT_KEY}'" in done.stderr


def test_skipped_items_are_known_by_kind_and_value() -> None:
    save_control()
    save("v.arrow", about())
    audit = ("audit", "v.arrow", "--control", "c.parquet", "--json", "-")
    collection = json.loads(run(*audit).stdout)["collections"][0]
    assert collection["skipped"].items() >= {"unreadable": 2, "empty": 3}.items()
    done = run(*audit, "--by", "who")
    skipped = {each["name"]: each["skipped"] for each in json.loads(done.stdout)["collections"]}
    assert (skipped["anna"]["empty"], skipped["ada"].get("empty", 0)) == (3, 0)
    assert "\\x1b[2Jnobody: skipped, as none of its 2 items has a vector" in done.stderr
    assert "\x1b" not in done.stderr


def test_such_a_file_among_several_is_missing() -> None:
    Path("v").mkdir()
    save("v/a.arrow", about())
    save("v/b.arrow", about(skipped=None))
    source = sources.open("v")
    assert ([each.part for each in source.missing], source.rows) == (["v/b.arrow"], 290)
    assert f"metadata '{ABOUT_KEY}'" in source.missing[0].reason
    with pytest.raises(FileError, match="it is damaged"):
        sources.open("v", strict=True)


def test_no_rows_are_fine_where_embed_wrote_them_and_only_there() -> None:
    none = about(items=5, vectors=0)
    save("v.arrow", none, 0)
    assert (open_table("v.arrow").rows, open_table("v.arrow").dimension) == (0, matrix(0).shape[1])
    lists = pa.table({"embedding": pa.array([], pa.list_(pa.float32()))}, metadata={ABOUT_KEY: none})
    pq.write_table(lists, "v.parquet")  # of no length, which `embed` does not write
    with pytest.raises(NoRowsError, match="has 0 rows"):
        open_table("v.parquet")


def test_a_file_of_somebody_else_says_nothing() -> None:
    assert read_embedded({"pandas": "{}"}, "v.parquet") is None


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
def test_any_note_is_read_or_refused(note: Any) -> None:
    try:
        read = read_embedded({ABOUT_KEY: json.dumps(note)}, "v.arrow")
    except FileError:
        return
    assert isinstance(read, Embedded)
    assert read.skipped_items <= read.items <= read.vectors + read.skipped_items
    assert read.several <= read.items
    for values in read.skipped_by.values():
        assert sum(sum(kinds.values()) for kinds in values.values()) <= read.skipped_items
        assert all(set(kinds) <= {"unreadable", "empty"} for kinds in values.values())


plain = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=LONGEST)


@given(st.lists(st.builds(MissingPart, plain, plain, st.none() | st.integers(0, MOST_ROWS - 1)), max_size=4))
def test_what_is_noted_is_read_again(missing: list[MissingPart]) -> None:
    note = read_embedded({ABOUT_KEY: about(missing=note_missing(missing))}, "v.arrow")
    assert note is not None
    assert [(each.part, each.rows) for each in note.missing] == [(each.part, each.rows) for each in missing]
    assert all(a.reason.endswith(f": {b.reason}") for a, b in zip(note.missing, missing, strict=True))
