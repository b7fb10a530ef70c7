"""What `embed` could not read is missing from every later audit; no manifest makes an audit fall."""

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
from test_engines import matrix, write

from divscore import sources
from divscore.errors import FileError
from divscore.jobs import embed as itempart
from divscore.sketch.missing import LONGEST
from divscore.sources import manifest as manifests
from divscore.sources import open_table
from divscore.sources.manifest import FORMAT, Manifest, read_manifest
from divscore.sources.recognise import tables_in

WORDS = {"a": ["anna", "ada", "alma"], "b": ["bruno", "bela", "bob"]}
ROWS = 100


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(itempart.ROWS, "text", 40)


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
    """Three whole tables, and the labelled texts."""
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
    """Spoil the first group of rows, which is only noticed when it is read."""
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    path.write_bytes(data)


def edited(**changed: Any) -> None:
    """Write something else into the manifest of a finished folder."""
    place = Path("vectors/manifest.json")
    place.write_text(json.dumps({**json.loads(place.read_text()), **changed}))


def parts_of(told: Any) -> list[tuple[str, str]]:
    return [(each["part"], each["reason"]) for each in told["missing"]["listed"]]


def test_what_embed_could_not_read_is_missing_from_later_audits(posts: Path) -> None:
    cut(posts / "1.parquet")
    scar(posts / "2.parquet")
    done = json.loads(run("embed", "posts", "-o", "vectors", "--column", "text", "--json").stdout)
    assert [(each["part"], each["rows"]) for each in done["missing"]] == [
        ("posts/1.parquet", None),
        ("posts/2.parquet, row groups 0 to 1", 40),
    ]
    noted = [
        (each["part"], f"vectors was embedded without it: {each['reason']}"[:LONGEST])
        for each in done["missing"]
    ]
    ways = (["vectors"], ["vectors/"], ["vectors", "--by", "country"], ["vectors", "--workers", "2"])
    for asked in (*ways, ["vectors", "--estimator", "self-training"]):
        told = audited(*asked)
        assert parts_of(told) == noted
        assert [each["rows"] for each in told["missing"]["listed"]] == [None, 40]
        assert sum(each["count"] for each in told["collections"]) == 2 * ROWS - 40
        for each in told["collections"]:
            assert "2 parts of the source could not be read and are missing" in each["warnings"][0]
            assert "posts/1.parquet, posts/2.parquet, row groups 0 to 1" in each["warnings"][0]
    assert told["collections"][0]["skipped"]["unreadable"] == 40
    assert audited("vectors")["collections"][0]["skipped"]["unreadable"] == 40
    made = run("sketch", "vectors", "--control", "c.csv", "-o", "v.sketch")
    assert "v.sketch: 2 parts of the source could not be read and are missing" in made.stderr
    assert "missing: " in made.stderr
    assert parts_of(audited("v.sketch")) == noted


def test_a_folder_with_a_single_part_is_not_whole_either(posts: Path) -> None:
    pq.write_table(pq.read_table(posts / "0.parquet").slice(0, 30), posts / "0.parquet")
    for at in (1, 2):
        cut(posts / f"{at}.parquet")
    run("embed", "posts", "-o", "vectors", "--column", "text")
    assert len(list(Path("vectors").glob("*.arrow"))) == 1
    told = audited("vectors")
    assert [part for part, _ in parts_of(told)] == ["posts/1.parquet", "posts/2.parquet"]
    assert [each["name"] for each in told["collections"]] == ["vectors"]
    refused = invoke("audit", "vectors", "--control", "c.csv", "--strict")
    assert refused.exit_code == 2
    assert "vectors was embedded without it: posts/1.parquet cannot be read" in refused.stderr
    assert "leave out --strict" in refused.stderr


def test_what_is_mended_and_embedded_again_is_not_missing(posts: Path) -> None:
    whole = (posts / "1.parquet").read_bytes()
    cut(posts / "1.parquet")
    run("embed", "posts", "-o", "vectors", "--column", "text")
    assert parts_of(audited("vectors"))
    (posts / "1.parquet").write_bytes(whole)
    run("embed", "posts", "-o", "vectors", "--column", "text")
    told = audited("vectors", "--strict")
    assert parts_of(told) == []
    assert told["collections"][0]["count"] == 3 * ROWS


def test_what_is_encoded_again_is_missing_still(posts: Path) -> None:
    cut(posts / "1.parquet")
    run("embed", "posts", "-o", "vectors", "--column", "text")
    told = audited("vectors", "--encoder", "ngrams", "--column", "text")
    assert [part for part, _ in parts_of(told)] == ["posts/1.parquet"]
    again = json.loads(run("embed", "vectors", "-o", "again", "--column", "text", "--json").stdout)
    assert [each["part"] for each in again["missing"]] == ["posts/1.parquet"]


def test_tables_of_texts_that_cannot_be_opened_are_missing(posts: Path) -> None:
    cut(posts / "1.parquet")
    for estimator in ("likelihood", "self-training"):
        done = run("audit", "posts", "--control", "c.csv", "--estimator", estimator, "--json", "-")
        told = json.loads(done.stdout)
        assert [part for part, _ in parts_of(told)] == ["posts/1.parquet"]
        assert "posts/1.parquet" in told["collections"][0]["warnings"][0]
        assert done.stderr.count("missing: posts/1.parquet cannot be read as Parquet") == 1


FORGED: dict[str, Any] = {
    "null": None,
    "a number": 7,
    "a table": {"of": "x"},
    "texts": ["x"],
    "no reason": [{"of": "x"}],
    "no part": [{"reason": "x"}],
    "a number as part": [{"of": 1, "reason": "x"}],
    "a list as reason": [{"of": "x", "reason": ["x"]}],
    "rows below zero": [{"of": "x", "reason": "x", "rows": -1}],
    "rows without end": [{"of": "x", "reason": "x", "rows": 1 << 60}],
    "half a row": [{"of": "x", "reason": "x", "rows": 0.5}],
    "rows as text": [{"of": "x", "reason": "x", "rows": "7"}],
    "true": [{"of": "x", "reason": "x", "rows": True}],
}


@pytest.mark.parametrize("missing", FORGED.values(), ids=FORGED)
def test_a_forged_list_of_what_is_missing_is_refused(posts: Path, missing: Any) -> None:
    run("embed", "posts", "-o", "vectors", "--column", "text")
    edited(missing=missing)
    done = invoke("audit", "vectors", "--control", "c.csv")
    assert done.exit_code == 2
    assert "manifest.json does not say what is missing as 'divscore embed' does; it is damaged" in done.stderr
    run("embed", "posts", "-o", "vectors", "--column", "text")  # as the message says
    assert parts_of(audited("vectors")) == []


def test_forged_texts_stay_short_and_do_nothing_to_the_terminal(posts: Path) -> None:
    run("embed", "posts", "-o", "vectors", "--column", "text")
    nasty = "\x1b[2J\r\n\ud800<script>" + "x" * 2000
    edited(missing=[{"of": nasty, "reason": nasty, "rows": 3}] * 500)
    done = run("audit", "vectors", "--control", "c.csv", "--json", "-")
    told = json.loads(done.stdout)
    assert (len(told["missing"]["listed"]), told["missing"]["more"]) == (100, 400)
    assert all(len(part) <= LONGEST and len(why) <= LONGEST for part, why in parts_of(told))
    assert len(done.stdout) < 200_000
    assert len(done.stderr) < 1_000_000
    assert "\x1b" not in done.stdout + done.stderr
    assert "\ud800" not in done.stdout + done.stderr
    run("audit", "vectors", "--control", "c.csv", "--report", "report.html")
    assert "<script>x" not in Path("report.html").read_text()


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["of", "reason", "rows", "file", "?"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    anything | st.lists(st.fixed_dictionaries({"file": st.sampled_from(["a.arrow", "b.arrow"])}), max_size=3),
    anything | st.lists(st.fixed_dictionaries({"of": st.text(), "reason": st.text()}), max_size=3),
    anything | st.booleans(),
)
def test_whatever_a_manifest_says_it_is_read_or_refused(
    tmp_path: Path, parts: Any, missing: Any, finished: Any
) -> None:
    told = {"format": FORMAT, "parts": parts, "missing": missing, "finished": finished}
    (tmp_path / "manifest.json").write_text(json.dumps(told))
    try:
        found = read_manifest(str(tmp_path))
    except FileError:
        return
    assert isinstance(found, Manifest)
    assert len(found.missing) == len(missing)
    assert all(isinstance(each.part, str) and len(each.part) <= LONGEST for each in found.missing)
    assert len(set(found.parts)) == len(found.parts)
    assert found.finished is finished


@pytest.mark.parametrize(
    "parts",
    [[{"file": "a.arrow"}, {"file": "b.arrow"}, {"file": "a.arrow"}]]
    + [None, 7, {"a": 1}, ["a.arrow"], [{}], [{"file": 3}], [{"file": ""}], [{"file": "../a.arrow"}]]
    + [[{"file": name}] for name in ("..", "/etc/a.arrow", "b/../../a.arrow", "..\\a.arrow", ".a", "a\0")],
)
def test_a_manifest_that_names_no_files_beside_it_is_damaged(tmp_path: Path, parts: Any) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"format": FORMAT, "finished": True, "parts": parts}))
    with pytest.raises(FileError, match=r"manifest\.json does not list the files that lie beside it"):
        tables_in(str(tmp_path))


def test_a_part_that_is_listed_twice_is_not_counted_twice(posts: Path) -> None:
    run("embed", "posts", "-o", "vectors", "--column", "text")
    listed = json.loads(Path("vectors/manifest.json").read_text())["parts"]
    edited(parts=[*listed, listed[0]])
    for asked in ("vectors", "vectors/*.arrow"):
        assert "the files that lie beside it, each once; it is damaged" in refused(asked)


@pytest.mark.parametrize("finished", ["no", 1, None])
def test_a_manifest_says_whether_it_is_finished(posts: Path, finished: Any) -> None:
    run("embed", "posts", "-o", "vectors", "--column", "text")
    edited(finished=finished)
    assert "does not say whether its job is finished; it is damaged" in refused("vectors")


def test_where_nothing_was_embedded_what_is_missing_is_named(posts: Path) -> None:
    cut(posts / "1.parquet")
    run("embed", "posts", "-o", "vectors", "--column", "text")
    edited(parts=[])
    for asked in ("vectors", "."):
        told = refused(asked)
        assert "vectors has no vectors, as nothing could be embedded: 1 part of the source" in told
        assert "is missing: posts/1.parquet" in told


# Folders below the one that is named, and patterns


@pytest.fixture
def below(posts: Path) -> Path:
    """Two folders that `embed` wrote, one of them without a file that it could not read, below a third."""
    shutil.copytree(posts, "whole")
    for at, text in enumerate(("", "anna")):
        pq.write_table(pa.table({"text": [text] * 10, "country": ["SA"] * 10}), f"whole/{at + 3}.parquet")
    cut(posts / "1.parquet")
    for name in (posts.name, "whole"):
        run("embed", name, "-o", f"vectors/{name}", "--column", "text")
    assert list(Path("vectors/whole").glob("*.skipped.csv"))  # which are of another kind
    return Path("vectors")


PATTERNS = ("vectors/*/*.arrow", "vectors/**/*.arrow", "vectors/p*/part-*.arrow", f"{'?' * 7}/posts/*0.arrow")


@pytest.mark.parametrize("asked", ["vectors", "vectors/", ".", *PATTERNS])
def test_what_is_missing_from_folders_below_and_of_patterns_is_known(below: Path, asked: str) -> None:
    if asked == ".":
        for name in ("posts", "whole"):
            shutil.rmtree(name)
        Path("c.csv").rename("../c.csv")
    ways = ([], ["--by", "country"], ["--estimator", "self-training"])
    for way in ways:
        command = ["audit", asked, "--control", "../c.csv" if asked == "." else "c.csv", *way]
        told = json.loads(run(*command, "--json", "-").stdout)
        (part, reason), *others = parts_of(told)
        assert (part, others) == ("posts/1.parquet", [])
        assert "vectors/posts was embedded without it: posts/1.parquet cannot be read" in reason
        assert all("posts/1.parquet" in each["warnings"][0] for each in told["collections"])
        if not asked.endswith("0.arrow") and "p*" not in asked:
            assert sum(each["count"] for each in told["collections"]) == 5 * ROWS + 10
    assert "was embedded without it" in invoke(*command, "--strict").stderr


def test_what_is_missing_is_known_inside_the_folder_too(below: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("vectors/posts")
    told = json.loads(run("audit", "*.arrow", "--control", "../../c.csv", "--json", "-").stdout)
    assert parts_of(told)[0][1].startswith("this folder was embedded without it: posts/1.parquet")


def test_a_pattern_in_the_library_knows_it_too(below: Path) -> None:
    source = open_table("vectors/*/*.arrow")
    assert source.many
    assert [each.part for each in source.missing] == ["posts/1.parquet"]
    assert not open_table("vectors/posts/part-00000.arrow").many  # one file, and no pattern
    with pytest.raises(FileError, match="vectors/posts was embedded without it"):
        open_table("vectors/*/*.arrow", strict=True)


@pytest.mark.parametrize("asked", ["vectors", *PATTERNS])
def test_an_unfinished_folder_below_is_no_collection(below: Path, asked: str) -> None:
    place = Path("vectors/posts/manifest.json")
    place.write_text(json.dumps({**json.loads(place.read_text()), "finished": False}))
    assert "vectors/posts is being written, or its job was stopped" in refused(asked)
    assert audited("vectors/w*/*.arrow")["collections"][0]["count"] == 3 * ROWS + 10


def test_files_that_no_manifest_below_lists_are_not_meant(below: Path) -> None:
    first = Path("vectors/posts/part-00000.arrow")
    shutil.copy(first, "vectors/posts/part-00009.arrow")
    Path("vectors/posts/inner").mkdir()
    shutil.copy(first, "vectors/posts/inner/a.arrow")
    shutil.copytree("vectors/whole", "vectors/posts/again")
    shutil.copy(first, "vectors/beside.arrow")
    kept = [location.path for location in tables_in("vectors").locations]
    parts = [f"vectors/posts/part-{at:05}.arrow" for at in range(6)]
    assert kept[0] == "vectors/beside.arrow"
    assert [name for name in kept if "posts" in name] == parts
    assert {name.split("/")[1] for name in kept[1:]} == {"posts", "whole"}


def test_other_manifests_below_and_beside_are_passed_by(below: Path) -> None:
    Path("vectors/posts/manifest.json").write_text('{"format": "other"}')
    assert tables_in("vectors/posts").missing == ()
    assert audited("vectors/p*/*.arrow")["missing"]["listed"] == []
    Path("vectors/posts/manifest.json").write_text(f'{{"format": "{FORMAT}", "parts"')
    for asked in ("vectors", "vectors/p*/*.arrow"):
        assert "vectors/posts/manifest.json is cut off or not JSON; it is damaged" in refused(asked)


def test_a_pattern_of_other_files_beside_parts_has_nothing_to_do_with_them(below: Path) -> None:
    for name in ("a.arrow", "a.csv"):
        shutil.copy("vectors/posts/part-00000.arrow", f"vectors/posts/{name}")
    shutil.copy("c.csv", "vectors/posts/c.csv")
    assert audited("vectors/posts/c*.csv")["missing"]["listed"] == []
    assert audited("vectors/posts/a*.arrow")["missing"]["listed"] == []


def test_many_remote_folders_of_a_pattern_are_not_asked(below: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fsspec.filesystem("memory")
    memory.put("vectors", "/vectors", recursive=True)
    try:
        monkeypatch.setattr(manifests, "ASKED", 2)
        assert [each.part for each in sources.open("memory://vectors/*/*.arrow").missing] == [
            "posts/1.parquet"
        ]
        monkeypatch.setattr(manifests, "ASKED", 1)
        assert sources.open("memory://vectors/*/*.arrow").missing == ()
        assert [each.part for each in sources.open("memory://vectors").missing] == ["posts/1.parquet"]
    finally:
        memory.rm("/vectors", recursive=True)


def test_a_manifest_that_is_cut_off_is_damaged(posts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("embed", "posts", "-o", "vectors", "--column", "text")
    place = Path("vectors/manifest.json")
    whole = place.read_text()
    for text in (whole[:-40], whole[:-40] + "[" * 100_000):
        place.write_text(text)
        done = invoke("audit", "vectors", "--control", "c.csv")
        assert done.exit_code == 2
        assert "manifest.json is cut off or not JSON; it is damaged" in done.stderr
    place.write_text(whole)
    monkeypatch.setattr(manifests, "LARGEST", 300)
    with pytest.raises(FileError, match="is cut off or not JSON"):
        read_manifest("vectors")


def test_a_manifest_of_somebody_else_is_passed_by(tmp_path: Path) -> None:
    write(tmp_path / "a.npy", matrix(0))
    for text in ("no JSON", "[1]", '{"format": "other"}', "[" * 100_000):
        (tmp_path / "manifest.json").write_text(text)
        assert [each.name for each in tables_in(str(tmp_path)).locations] == ["a"]
