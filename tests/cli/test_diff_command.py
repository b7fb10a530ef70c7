"""`divscore diff`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from commands import on_screen, run
from pyarrow import parquet
from tables import (
    AUDIT,
    USERS,
    D,
    Whole,
    mixed,
    write_table,
)

from divscore.cli import main
from divscore.text import named


def diff(folder: Path, before: str, after: str, *options: str, code: int = 0, **more: Any) -> Result:
    paths = [str(folder / f"{name}.json") if name != "-" else name for name in (before, after)]
    done = CliRunner().invoke(main, ["diff", *paths, *options], **more)
    assert done.exit_code == code, done.output
    return done


def test_headline_then_table(audited: Path) -> None:
    lines = diff(audited, "even", "more").stdout.splitlines()
    assert re.fullmatch(
        r"The share of female rose by [\d.]+ to [\d.]+ points, from about \d+% to \d+%: less even\.", lines[0]
    )
    assert lines[2].split() == ["collection", "before", "after", "change", "95%", "interval", "verdict"]
    assert lines[3].endswith("less even")


@pytest.mark.parametrize(
    ("before", "after", "limit", "code"),
    [
        ("even", "grown", "0.2", 0),
        ("even", "more", "0.2", 1),
        ("even", "little", "0.2", 3),
        ("more", "even", "0", 0),  # towards balance
        ("even", "even", "0", 0),
    ],
)
def test_exit_codes(audited: Path, before: str, after: str, limit: str, code: int) -> None:
    done = diff(audited, before, after, "--max-change", limit, code=code)
    assert ("over 0.2" in done.stderr) == (code > 0)
    assert diff(audited, before, after).exit_code == 0  # no gate, no verdict


def several(audited: Path, folder: Path, name: str, **lists: str) -> None:
    """An audit of several collections, put together from those of one."""
    found = [json.loads((audited / f"{file}.json").read_text(encoding="utf-8")) for file in lists.values()]
    both = zip(lists, found, strict=True)
    entries = [{**each["collections"][0], "name": called} for called, each in both]
    (folder / f"{name}.json").write_text(json.dumps({**found[0], "collections": entries}))


def test_what_vanished_does_not_pass_in_silence(audited: Path, tmp_path: Path) -> None:
    several(audited, tmp_path, "monday", north="even", south="even", west="even")
    several(audited, tmp_path, "friday", south="even", east="even")
    gate = "--max-change", "0.1"
    done = diff(tmp_path, "monday", "friday", *gate, code=3)
    assert done.stdout.startswith("In 'south' nothing has changed")
    assert done.stderr == (
        "vanished, so not compared: north, west; if that is intended, add --allow-vanished\n"
        "new, so not compared: east\n"
        "gate: inconclusive (the limit is an increase of 0.1)\n"
    )
    done = diff(tmp_path, "monday", "friday", *gate, "--allow-vanished")
    assert done.stderr == (
        "vanished, so not compared: north, west\nnew, so not compared: east\n"
        "gate: pass (the limit is an increase of 0.1)\n"
    )
    assert diff(tmp_path, "monday", "friday").stderr == ""
    assert "needs --max-change" in diff(tmp_path, "monday", "friday", "--allow-vanished", code=2).stderr
    several(audited, tmp_path, "sunday", south="more")
    assert "south: more uneven" in diff(tmp_path, "monday", "sunday", *gate, code=1).stderr


def test_new_collections_pass(audited: Path, tmp_path: Path) -> None:
    several(audited, tmp_path, "monday", north="even", south="more")
    several(audited, tmp_path, "friday", north="even", south="more", east="beyond")
    done = diff(tmp_path, "monday", "friday", "--max-change", "0")
    assert done.stderr == "new, so not compared: east\ngate: pass (the limit is an increase of 0)\n"
    several(audited, tmp_path, "again", south="more", north="even")
    same = diff(tmp_path, "monday", "again", "--max-change", "0").stdout
    assert same.startswith("Nothing has changed: all 2 collections have the same items.\n")


def test_a_name_of_any_length_fits_a_line(audited: Path, tmp_path: Path) -> None:
    name = "n" * 5000
    several(audited, tmp_path, "monday", **{name: "even", f"{name}o": "even"})
    several(audited, tmp_path, "friday", **{name: "more", f"{name}p": "even"})
    done = diff(tmp_path, "monday", "friday", "--max-change", "0.2", code=1)
    assert max(map(len, (done.stdout + done.stderr).splitlines())) < 200


def test_json(audited: Path, tmp_path: Path) -> None:
    out = tmp_path / "changes.json"
    shown = diff(audited, "even", "more", "--json", str(out), "--max-change", "0.2", code=1).stdout
    printed = diff(audited, "even", "more", "--json", "-", "--max-change", "0.2", code=1).stdout
    assert "less even" in shown
    found = json.loads(printed)
    assert json.loads(out.read_text(encoding="utf-8")) == found
    assert [path.name for path in tmp_path.iterdir()] == ["changes.json"]
    entry = found["collections"][0]
    assert (found["schema"], found["groups"]) == ("divscore.diff/1", ["female", "male"])
    assert (entry["gate"], entry["verdict"], entry["towards"]) == ("fail", "less even", "female")
    assert entry["interval_method"] == "paired refits"
    truth = (1500 - 450) / 1950 - 50 / 950
    assert entry["interval"][0] <= truth <= entry["interval"][1]
    assert entry["change"] == pytest.approx(entry["after"]["disparity"] - entry["before"]["disparity"])


def test_standard_input(audited: Path) -> None:
    after = (audited / "more.json").read_text(encoding="utf-8")
    assert diff(audited, "even", "-", input=after).stdout == diff(audited, "even", "more").stdout
    assert "only one" in diff(audited, "-", "-", input=after, code=2).stderr


@pytest.mark.parametrize("text", ["", "{", '{"schema": "divscore.audit/9"}', "sex,name\nfemale,Mary\n"])
def test_wrong_files_end_with_2_and_one_line(audited: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "wrong.json").write_text(text)
    done = CliRunner().invoke(main, ["diff", str(audited / "even.json"), str(tmp_path / "wrong.json")])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "wrong.json" in done.stderr


def redrawn(shares: dict[int, float], renamed: dict[str, str] | None = None, shaken: int = 0) -> None:
    """Audit the users once more, some with other posts, slightly other ones or another name, into s.json."""
    rng = np.random.default_rng(11)
    table = parquet.read_table("posts.parquet")
    names = [name or "" for name in table["user"].to_pylist()]
    rows = np.array(table["embedding"].to_pylist())
    for user, share in shares.items():
        mine = np.array([name == f"user{user:02d}" for name in names])
        rows[mine] = mixed(rng, rng.random(mine.sum()) < share)
    moved = np.array([name in {f"user{user:02d}" for user in range(20, 20 + shaken)} for name in names])
    rows[moved] += rng.normal(scale=0.2, size=(moved.sum(), D))
    write_table("posts.parquet", rows, user=[(renamed or {}).get(name, name) or None for name in names])
    run(*AUDIT, "--json", "s.json")


@pytest.fixture
def before(whole: Whole, posts: None) -> str:
    return str(whole.folder / "r.json")


def compared(before: str, *options: str, code: int = 0) -> Any:
    return json.loads(run("diff", before, "s.json", *options, "--json", "-", code=code).stdout)


def changes(before: str, *options: str, code: int = 0) -> Any:
    return compared(before, *options, code=code)["collections"]


def is_sure(entry: dict[str, Any]) -> bool:
    return bool(entry["verdict"] not in ("cannot tell", "no clear change"))


def first_column(lines: list[str]) -> list[str]:
    return [re.split(r" {2,}", line)[0] for line in lines]


@pytest.mark.slow
def test_a_terminal_gets_the_largest_changes_at_both_ends(before: str) -> None:
    lone = {f"user{at}": f"newcomer{at}" for at in range(53, 59)}
    redrawn({at: (at + 30) % USERS / USERS for at in range(1, 53)}, lone)
    found = compared(before)
    assert (set(found["new"]), set(found["vanished"])) == (set(lone.values()), set(lone))
    sure = sorted(filter(is_sure, found["collections"]), key=lambda each: -each["change"])
    assert len(sure) > 24
    assert sum(each["change"] > 0 for each in sure) > 12
    assert sum(each["change"] < 0 for each in sure) > 12
    piped = run("diff", before, "s.json").stdout.splitlines()
    assert len(piped) == 3 + USERS + len(lone)
    lines = on_screen("diff", before, "s.json").splitlines()
    assert lines[0] == piped[0]
    assert re.fullmatch(
        r"Of 54 collections in both audits: .* 6 new and 6 vanished, not compared\.", lines[0]
    )
    names = [each["name"] for each in sure]
    ends = [*names[:12], "…", *names[-12:]]
    assert first_column(lines[3:36]) == [*ends, *found["new"][:4], *found["vanished"][:4]]
    rows = {" ".join(line.split()) for line in piped}
    assert {" ".join(line.split()) for line in lines[:36]} - rows == {"…"}
    assert lines[36:] == [
        "",
        "34 of 66 collections are not in this table. To get all of them, add --json FILE, or redirect the output.",
    ]


def test_where_little_has_changed_what_may_be_chance_fills_the_table(before: str) -> None:
    redrawn({5: 0.95, 6: 0.95, 50: 0.1}, shaken=6)
    found = changes(before)
    rises = sorted(
        (each for each in found if is_sure(each) and each["change"] > 0), key=lambda c: -c["change"]
    )
    falls = sorted(
        (each for each in found if is_sure(each) and each["change"] < 0), key=lambda c: -c["change"]
    )
    assert {"user05", "user06"} <= {each["name"] for each in rises}
    assert "user50" in {each["name"] for each in falls}
    chance = sorted(
        (each for each in found if not is_sure(each) and each["change"]), key=lambda c: -abs(c["change"])
    )
    assert chance
    lines = on_screen("diff", before, "s.json").splitlines()
    changed = [each["name"] for each in (*rises, *falls, *chance)]
    shown = first_column(lines[3:27])
    assert shown[: len(changed)] == changed
    assert all("the same items" in line for line in lines[3 + len(changed) : 27])
    assert "…" not in shown
    assert lines[28].startswith("36 of 60 collections are not in this table")


def test_changes_in_one_direction_fill_both_ends(before: str) -> None:
    redrawn(dict.fromkeys(range(1, 41), 0.99))
    rises = sorted(filter(is_sure, changes(before)), key=lambda each: -each["change"])
    assert len(rises) > 24
    assert rises[-1]["change"] > 0
    lines = on_screen("diff", before, "s.json").splitlines()
    assert first_column(lines[3:28]) == [*(each["name"] for each in rises[:24]), "…"]


def test_a_gate_on_changes_names_a_few_and_counts_many(before: str) -> None:
    redrawn(dict.fromkeys(range(20, 46), 0.88))
    limit = "0.2"
    gates = [(named(each["name"]), each["gate"]) for each in changes(before, "--max-change", limit, code=1)]
    failed, unclear = ([name for name, gate in gates if gate == each] for each in ("fail", "inconclusive"))
    assert len(failed) > 12
    assert 0 < len(unclear) <= 12
    told = run("diff", before, "s.json", "--max-change", limit, code=1).stderr.splitlines()
    assert told == [
        *(f"{name}: possibly more uneven by over 0.2" for name in unclear),
        f"{', '.join(failed[:12])} and {len(failed) - 12} more: more uneven by over 0.2",
        f"{len(failed)} of 60 collections are more uneven by over 0.2; {len(unclear)} are inconclusive",
        "gate: fail (the limit is an increase of 0.2)",
    ]
