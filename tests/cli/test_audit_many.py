"""`divscore audit --by`: many collections on a screen, at a gate and in a pipe."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from commands import on_screen, on_terminal, run
from pyarrow import parquet
from tables import (
    AUDIT,
    USERS,
    D,
    Whole,
    write_table,
)

from divscore.cli import main
from divscore.text import brief, named

TOLD = ("outside", "possibly outside")


def test_a_pipe_gets_every_collection(whole: Whole) -> None:
    assert len(whole.table) == 1 + USERS
    assert whole.table[0].startswith("collection")
    shown = [re.split(r" {2,}", line)[0] for line in whole.table[1:]]
    assert shown == [named(each["name"]) for each in whole.entries]


@pytest.mark.slow
def test_a_terminal_gets_the_ends_of_a_long_table(whole: Whole, posts: None) -> None:
    lines = on_terminal(["-m", "divscore", *AUDIT], "stdout").splitlines()
    counted = r"Of 60 collections, \d+ have fewer a than b, \d+ have more a than b, .* inconclusive\."
    assert re.fullmatch(counted, lines[0])
    assert lines[1] == ""
    assert lines[2].split() == whole.table[0].split()
    shown = [re.split(r" {2,}", line)[0] for line in lines[3:28]]
    assert shown == [*whole.ordered()[:12], "…", *whole.ordered()[-12:]]
    assert "(no value)" in shown
    rows = {" ".join(line.split()) for line in whole.table}
    assert {" ".join(line.split()) for line in lines[3:28]} - rows == {"…"}
    assert lines[28:30] == [
        "",
        "36 of 60 collections are not in this table. To get all of them, add --json FILE or --report FILE.html, or "
        "redirect the output.",
    ]
    trust = [each["trust"] for each in whole.entries]
    counts = [f"{trust.count(word)} {word}" for word in ("good", "caution", "poor") if word in trust]
    assert lines[30:] == [f"Trust: {', '.join(counts)}."]


def test_a_terminal_gets_the_whole_of_a_short_table(posts: None) -> None:
    rows = parquet.read_table("posts.parquet")
    few = {f"user{at:02d}" for at in range(1, 51)}
    parquet.write_table(
        rows.filter(pa.array([name in few for name in rows["user"].to_pylist()])), "posts.parquet"
    )
    shown = on_screen(*AUDIT)
    assert shown == run(*AUDIT).stdout
    assert len(shown.splitlines()) == 51


def test_where_little_can_be_told_the_rest_fills_the_table(posts: None) -> None:
    noise = np.random.default_rng(1).normal(size=(120, D))
    write_table("labelled.parquet", noise, letter=["a", "b"] * 60)
    lines = on_screen(*AUDIT).splitlines()
    assert lines[0] == "Cannot tell how letter is distributed in any of 60 collections."
    assert len(lines[3:27]) == sum(line.endswith("poor") for line in lines)
    assert lines[-1] == "Trust: 60 poor."


@pytest.mark.parametrize(("limit", "many"), [(0.3, ["outside"]), (0.85, ["possibly outside"]), (0.75, [])])
def test_a_gate_names_a_few_and_counts_many(whole: Whole, posts: None, limit: float, many: list[str]) -> None:
    verdicts = [(named(each["name"]), judged(each, limit)) for each in whole.entries]
    names = {told: [name for name, each in verdicts if each == told] for told in TOLD}
    assert [told for told in TOLD if len(names[told]) > 12] == many
    poor = {named(each["name"]) for each in whole.entries if each["trust"] == "poor"}
    expected = [
        f"{name}: {told} the limit of ±{limit:g}{', as the result is inconclusive' if name in poor else ''}"
        for name, told in verdicts
        if told and told not in many
    ]
    for told in many:
        first = ", ".join(names[told][:12])
        expected.append(f"{first} and {len(names[told]) - 12} more: {told} the limit of ±{limit:g}")
    beyond, unclear = (len(names[told]) for told in TOLD)
    parts = [
        f"{number} {word}" for number, word in ((beyond, "outside"), (unclear, "inconclusive")) if number
    ]
    within = f"{60 - beyond - unclear} of 60 within the limit of ±{limit:g}"
    expected.append(f"gate: {'fail' if beyond else 'inconclusive'} ({'; '.join([within, *parts])})")
    done = CliRunner().invoke(main, [*AUDIT, "--max-disparity", str(limit)])
    assert done.exit_code == (1 if names["outside"] else 3)
    assert done.stderr.splitlines()[-len(expected) :] == expected
    assert "the limit" not in "".join(done.stderr.splitlines()[: -len(expected)])


def test_a_missing_value_has_a_name_for_people_only(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(whole.folder)
    assert sum(line.startswith("(no value)  ") for line in whole.table) == 1
    assert "<bdi>(no value)</bdi>" in Path("r.html").read_text(encoding="utf-8")
    assert "| (no value) | 30 |" in Path("r.md").read_text(encoding="utf-8")
    found = [each["name"] for each in whole.entries]
    assert found.count("") == 1
    assert "(no value)" not in found
    compared = run("diff", "r.json", "r.json").stdout
    assert sum(line.startswith("(no value)  ") for line in compared.splitlines()) == 1


def test_only_what_has_no_name_is_given_one() -> None:
    assert (named(""), named(" "), named("\n"), brief("")) == ("(no value)", " ", "\\n", "(no value)")


def judged(entry: dict[str, Any], limit: float) -> str:
    low, high = entry["interval"]
    if entry["trust"] == "poor" or (low <= limit < high) or (low < -limit <= high):
        return "possibly outside"
    return "outside" if max(abs(low), abs(high)) > limit else ""
