"""What could not be read concerns the collections that it may have belonged to, and every output says so alike."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from vectorfiles import write

from divscore.audit.document import read_document
from divscore.cli import main
from divscore.jobs.auditing import MissingByCollection
from divscore.sketch.missing import Missing, MissingPart

LIMIT = "1"  # which every interval keeps


@pytest.fixture
def posts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files of Sweden, one of Saudi Arabia, and a control set beside them."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    for country, day in (("SA", 1), ("SE", 1), ("SE", 2)):
        folder = Path(f"posts/country={country}")
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / f"{day}.parquet", items(rng, 144))
    np.savez("c.npz", embedding=items(rng, 20), group=np.repeat(["a", "b"], 20))
    return Path("posts")


def items(rng: np.random.Generator, each: int) -> Any:
    return rng.normal(size=(2 * each, 8)) + np.repeat([[1.0], [-1.0]], each, axis=0)


def spoil(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def run(*arguments: Any, code: int = 0) -> Any:
    done = CliRunner().invoke(main, [str(each) for each in arguments])
    assert done.exit_code == code, done.stderr
    return done


def audited(path: Path, *more: str, code: int = 0, by: bool = True) -> Any:
    asked = ["--control", "c.npz", "--json", "a.json", "--report", "r.md", "--report", "r.html"]
    return run("audit", path, *asked, *(["--by", "country"] if by else []), *more, code=code)


def document() -> Any:
    return json.loads(Path("a.json").read_text(encoding="utf-8"))


def collections() -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in document()["collections"]}


def within(name: str) -> dict[str, str]:
    """The column of a report that is about the limit, by collection."""
    text = Path(name).read_text(encoding="utf-8")
    if name.endswith(".md"):
        table = text[text.index("| collection") :].split("\n\n")[0]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    else:
        rows = [
            [re.sub(r"<.*?>", "", cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.S)]
            for row in re.findall(r"<tr.*?</tr>", re.findall(r"<table.*?</table>", text, re.S)[0], re.S)
        ]
    at = next(at for at, heading in enumerate(rows[0]) if heading.startswith("limit"))
    return {row[0]: row[at] for row in rows[1:] if row[0] != "---"}


def test_a_bad_file_concerns_the_collection_whose_folder_it_is_in(posts: Path) -> None:
    audited(posts, "--max-disparity", LIMIT)
    whole = collections()
    assert [within(name) for name in ("r.md", "r.html")] == [{"SA": "pass", "SE": "pass"}] * 2
    spoil(posts / "country=SE" / "2.parquet")
    done = audited(posts, "--max-disparity", LIMIT, code=3)
    found = collections()
    assert found["SA"] == whole["SA"]
    assert (found["SA"]["trust"], found["SA"]["missing_parts"]) == ("good", 0)
    assert (found["SE"]["trust"], found["SE"]["missing_parts"]) == ("caution", 1)
    assert [each["part"] for each in document()["missing"]["listed"]] == ["posts/country=SE/2.parquet"]
    assert [within(name) for name in ("r.md", "r.html")] == [{"SA": "pass", "SE": "inconclusive"}] * 2
    assert f"SE: possibly outside the limit of ±{LIMIT}" in done.stderr
    assert "SA:" not in done.stderr
    assert "parts of the source are missing, so the result is inconclusive" in done.stderr
    audited(posts / "country=SA", "--max-disparity", LIMIT, by=False)
    audited(posts / "country=SE", "--max-disparity", LIMIT, by=False, code=3)


def test_a_bad_file_that_could_be_anybodys_concerns_all(posts: Path) -> None:
    (posts / "0.parquet").write_bytes(b"PAR1 and no more")
    spoil(posts / "country=SE" / "2.parquet")
    audited(posts, "--max-disparity", LIMIT, code=3)
    assert {name: each["missing_parts"] for name, each in collections().items()} == {"SA": 1, "SE": 2}
    assert {each["trust"] for each in collections().values()} == {"caution"}
    assert len(document()["missing"]["listed"]) == 2
    assert within("r.md") == {"SA": "inconclusive", "SE": "inconclusive"}


def test_of_several_sources_each_has_its_own(posts: Path) -> None:
    spoil(posts / "country=SE" / "2.parquet")
    done = run(
        *("audit", posts / "country=SA", posts / "country=SE", "--control", "c.npz"),
        *("--json", "-", "--max-disparity", LIMIT),
        code=3,
    )
    told = json.loads(done.stdout)
    assert [each["missing_parts"] for each in told["collections"]] == [0, 1]
    assert len(told["missing"]["listed"]) == 1


def test_what_is_beyond_the_limit_stays_so(posts: Path) -> None:
    rng = np.random.default_rng(1)
    write(posts / "country=SE" / "1.parquet", items(rng, 144)[:144])
    spoil(posts / "country=SE" / "2.parquet")
    done = audited(posts, "--max-disparity", "0.5", code=1)
    assert "SE: outside the limit of ±0.5" in done.stderr
    assert "so the result is inconclusive" not in done.stderr


def test_a_collection_of_which_nothing_could_be_read_is_told_everywhere(posts: Path) -> None:
    spoil(posts / "country=SA" / "1.parquet")
    done = audited(posts, "--max-disparity", LIMIT, code=3)
    assert "SA: skipped, as none of its files could be read" in done.stderr
    assert "parts of the source are missing" in done.stderr
    assert "SE: possibly outside" not in done.stderr
    assert {name: (each["trust"], each["missing_parts"]) for name, each in collections().items()} == {
        "SE": ("good", 0)
    }
    lost = document()["missing"]
    assert [each["part"] for each in lost["listed"]] == ["posts/country=SA/1.parquet"]
    markdown, page = (Path(name).read_text(encoding="utf-8") for name in ("r.md", "r.html"))
    for text in (markdown, page):
        assert re.search(r"Limit: (<strong>|\*\*)inconclusive", text)
        assert "and 1 part of the source" in text
        assert re.search(r"1 part of the source could not be read and is missing: posts/country=SA", text)
        assert "The source" in text
    inside = [
        json.loads(re.findall(r"```json\n(.*?)\n```", markdown, re.S)[0]),
        json.loads(re.findall(r'id="audit">(.*?)</script>', page, re.S)[0]),
    ]
    assert [each["missing"] for each in inside] == [lost] * 2


# Changes


def test_the_gaps_of_the_later_collection_decide(posts: Path) -> None:
    audited(posts)
    Path("a.json").rename("whole.json")
    spoil(posts / "country=SE" / "2.parquet")
    audited(posts)
    done = run("diff", "whole.json", "a.json", "--max-change", "1", "--json", "-", code=3)
    told = json.loads(done.stdout)
    assert {each["name"]: each["gate"] for each in told["collections"]} == {
        "SA": "pass",
        "SE": "inconclusive",
    }
    assert told["gate"] == "inconclusive"
    assert "SE: possibly more uneven by over 1" in done.stderr
    assert "SA: cannot tell" not in done.stderr
    run("diff", "a.json", "whole.json", "--max-change", "1")  # what was missing has been mended


def test_documents_that_do_not_say_whose_the_parts_are(posts: Path) -> None:
    """As they were before collections had `missing_parts`."""
    audited(posts)
    spoil(posts / "country=SE" / "2.parquet")
    for name in ("whole.json", "damaged.json"):
        told = document()
        for each in told["collections"]:
            del each["missing_parts"]
        Path(name).write_text(json.dumps(told))
        audited(posts)
    found = read_document("damaged.json")
    assert [each.missing_parts for each in found.collections] == [None, None]
    assert found.missing.count == 1
    run("diff", "whole.json", "whole.json", "--max-change", "1")
    run("diff", "damaged.json", "whole.json", "--max-change", "1")
    done = run("diff", "whole.json", "damaged.json", "--max-change", "1", "--json", "-", code=3)
    assert [each["gate"] for each in json.loads(done.stdout)["collections"]] == ["pass", "pass"]
    assert "the later audit: 1 part of the source could not be read and is missing" in done.stderr
    assert run("diff", "damaged.json", "a.json", "--max-change", "1", code=3).stdout


def test_a_file_with_the_column_inside_may_hold_anybodys_rows(posts: Path) -> None:
    rng = np.random.default_rng(5)
    for day in (1, 2):
        vectors = items(rng, 144)
        countries = np.array(["SA", "SE"])[np.arange(len(vectors)) % 2]
        table = pa.table({"embedding": vectors.tolist(), "country": countries})
        pq.write_table(table, posts / f"country=SE/{day}.parquet")
    spoil(posts / "country=SE/2.parquet")
    audited(posts, "--max-disparity", LIMIT, code=3)
    assert {name: each["missing_parts"] for name, each in collections().items()} == {"SA": 1, "SE": 1}
    assert {each["trust"] for each in collections().values()} == {"caution"}
    assert set(within("r.md").values()) == {"inconclusive"}


def test_who_asks_for_a_column_that_is_not_there_is_told_those_of_the_folders(posts: Path) -> None:
    told = run("audit", posts, "--control", "c.npz", "--by", "contry", code=2).stderr
    assert "has no column 'contry'; it has 'embedding', 'kind'; its folders add 'country'" in told


# Lists of parts

places = st.sampled_from(["", "country=SE/", "country=SA/", "day=1/"])
parts = st.lists(
    st.builds(
        lambda place, name, rows: MissingPart(f"feed/{place}{name}.npy", "damaged", rows),
        places,
        st.integers(0, 400),
        st.none() | st.integers(0, 9),
    ),
    max_size=260,
)


@given(parts)
def test_every_part_counts_for_whom_it_may_concern(missing: list[MissingPart]) -> None:
    lost = MissingByCollection(missing, "country")
    for name in ("SE", "SA", "NO"):
        own = [each for each in missing if f"country={name}/" in each.part]
        anyones = [each for each in missing if "country=" not in each.part]
        assert lost.of(name) == Missing.of([*own, *anyones])
        assert lost.of(name).count == len(own) + len(anyones)
    assert MissingByCollection(missing, None).of("SE") == Missing.of(missing)


@given(st.lists(parts.map(lambda found: found[:30]), max_size=3))
def test_what_several_collections_lack_counts_once(lists: list[list[MissingPart]]) -> None:
    joined = Missing.union([Missing.of(each) for each in lists] * 2)
    assert joined.count == len({part for each in lists for part in each})
    assert set(joined.listed) == {part for each in lists for part in each}
