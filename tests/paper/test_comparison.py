"""`divscore compare`: which estimator, control set and number of labels suit a pool."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PPB, draw_groups
from experiments import run, table
from family import alive, children

from divscore.audit.audit import audit
from divscore.control.controlset import ControlSet
from divscore.control.selection import select_adaptive, select_dpp, select_random
from divscore.control.similarity import COSINE, Similarity
from divscore.errors import ControlError, InputError, MissingExtraError
from divscore.paper.comparison import (
    FEW_HELD_OUT,
    FEW_ITEMS,
    FEW_LABELS,
    FEW_REST,
    FEW_SPLITS,
    QUAPY,
    Compared,
    Comparison,
    Setup,
    advice,
    candidates,
    clearly_low,
    compare,
    comparison_document,
    comparison_table,
    usable_labels,
)
from divscore.paper.draws import Attribute, Collection, Labelled
from divscore.paper.labelleddata import LabelledData
from divscore.paper.methods import Method, undefined
from divscore.paper.records import Answer, summarise


def pool_of(counts: list[int], gap: float = 2.5, seed: int = 0) -> ControlSet:
    vectors, names = draw_groups(seed, counts, gap=gap)
    return ControlSet(vectors, names, attribute="letter")


def write(path: Path, pool: ControlSet) -> Path:
    return table(path, pool.vectors.astype(np.float32), letter=[pool.groups[g] for g in pool.labels])


@pytest.fixture(scope="module")
def found() -> Comparison:
    return compare(pool_of([120, 120]), Setup((30, 60), repetitions=2, collection_size=60))


def test_every_method_is_asked_with_every_number_of_labels(found: Comparison) -> None:
    titles = [m.title for m in candidates((15, 15), Setup(()))]
    assert [(row.method.labels, row.method.title) for row in found.rows] == [
        (n, t) for n in (30, 60) for t in titles
    ]
    assert {"likelihood", "divscore, dpp", "self-training"} < set(titles)
    assert {f"divscore, {which}" for which in ("random", "proportional", "random, all labels")} < set(titles)
    assert {f"divscore, adaptive α = {a}" for a in ("0.1", "1", "auto")} < set(titles)
    for row in found.rows:
        assert row.summary.answers + row.summary.excluded == 2 * 11


@pytest.mark.parametrize(
    ("counts", "size", "chosen", "whole"),
    [((40, 40), 20, 20, 80), ((15, 15), 50, 15, 30), ((90, 10), 50, 20, 20), ((20, 20, 20), 4, 6, 60)],
)
def test_control_sets_are_compared_at_one_size(
    counts: tuple[int, ...], size: int, chosen: int, whole: int
) -> None:
    """Otherwise a method would win by its size; `random, all labels` is there to show what size alone does."""
    methods = candidates(counts, Setup((), size=size))
    sets = {m.title: m.representatives for m in methods if m.title.startswith("divscore")}
    assert sets.pop("divscore, random, all labels") == whole
    assert set(sets.values()) == {chosen}
    assert next(m.representatives for m in methods if m.key == "likelihood") is None


def labelled_of(counts: tuple[int, ...]) -> Labelled:
    vectors, names = draw_groups(0, counts)
    data = LabelledData("some", vectors, {"group": names}, tuple(map(str, range(len(names)))))
    attribute = Attribute("letter", "group", ("a", "b", "c")[: len(counts)])
    return Labelled.draw(data, attribute, np.arange(len(names)), np.random.default_rng(0), seed=3)


def test_the_sets_are_those_of_control_select() -> None:
    labelled = labelled_of((30, 50))
    sample, groups = draw_groups(1, (60, 40))
    collection = Collection("", sample, groups, 0.2, np.arange(100))
    pool = labelled.pool
    expected = {
        "random": labelled.balanced(20),
        "proportional": select_random(pool, 20, balanced=False, seed=3),
        "adaptive α = 0.1": select_adaptive(pool, 20, alpha=0.1),
        "dpp": select_dpp(pool, 20),
        "random, all labels": labelled.balanced(60),
    }
    methods = {m.title.removeprefix("divscore, "): m for m in candidates((30, 50), Setup((), size=20))}
    for kind, control in expected.items():
        assert int(control.representative.sum()) == methods[kind].representatives
        value = methods[kind].prepare(labelled)(collection)[0]
        assert value == pytest.approx(audit(sample, control, show_untrusted=True).divscore, abs=1e-9), kind


def test_proportional_is_not_defined_where_a_group_is_too_rare_for_it() -> None:
    method = next(m for m in candidates((5, 2000), Setup((), size=4)) if m.key == "proportional")
    assert method.representatives == 4
    answer = method.prepare(labelled_of((5, 2000)))
    assert math.isnan(answer(None)[0])  # type: ignore[arg-type]


def test_all_methods_see_the_same_collections(found: Comparison) -> None:
    seen = {
        (row.method.labels, row.method.key): [
            (a.repetition, a.at, a.truth, a.items)
            for a in found.answers
            if a.method == row.method.key and a.sweep == f"{row.method.labels} labels"
        ]
        for row in found.rows
    }
    assert len({str(value) for value in seen.values()}) == 1
    truths = {a.truth for a in found.answers}
    assert {-1.0, 0.0, 1.0} < truths
    assert max(truths) <= 1.0


def test_likelihood_does_well_where_groups_are_apart(found: Comparison) -> None:
    error = {(row.method.labels, row.method.key): row.summary for row in found.rows}
    best = error[60, "likelihood"]
    assert best.mae < 0.15
    assert best.coverage is not None
    assert best.coverage > 0.8
    assert error[60, "random-balanced"].coverage is None


@pytest.mark.slow
def test_the_outcome_does_not_depend_on_the_number_of_workers() -> None:
    pool, setup = pool_of([60, 60]), Setup((30,), repetitions=2, collection_size=40)
    one, two = (compare(pool, setup, workers=workers) for workers in (1, 2))
    bare = [[repr(replace(a, prepared=0.0, seconds=0.0)) for a in c.answers] for c in (one, two)]
    assert bare[0] == bare[1]


@pytest.mark.slow
def test_three_groups() -> None:
    found = compare(pool_of([60, 60, 60], gap=4.0), Setup((60,), repetitions=2, collection_size=60))
    assert "self-training" not in [row.method.title for row in found.rows]
    assert all(0 <= a.truth <= 1 for a in found.answers)
    error = {row.method.key: row.summary.mae for row in found.rows}
    assert error["likelihood"] < 0.2


def test_about_a_hundred_items_are_enough() -> None:
    pool = pool_of([60, 44])
    assert usable_labels(pool, None) == (50,)
    found = compare(pool, Setup((50,), repetitions=2))
    assert found.items[0] >= 20
    assert math.isfinite(found.rows[0].summary.mae)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [([30, 30], (30,)), ([60, 60], (50,)), ([80, 80], (50, 100)), ([200, 200], (50, 100, 200)), ([14, 300], (50, 100))],
)  # fmt: skip
def test_the_usual_numbers_of_labels_as_far_as_the_pool_allows(
    counts: list[int], expected: tuple[int, ...]
) -> None:
    assert usable_labels(pool_of(counts), None) == expected


def test_a_pool_that_is_too_small_says_how_many_are_needed() -> None:
    with pytest.raises(ControlError, match=f"only 7 of 'b' in the pool; .* at least {FEW_LABELS + FEW_REST}"):
        usable_labels(pool_of([40, 7]), None)
    with pytest.raises(
        InputError, match=r"--labels 100: .* of the 100 labelled .* label about 16 more"
    ) as error:
        usable_labels(pool_of([50, 50]), (100,))
    assert "--labels 84 or less" in str(error.value)
    assert usable_labels(pool_of([50, 50]), (84,)) == (84,)
    with pytest.raises(InputError, match="at least 10 labels"):
        usable_labels(pool_of([50, 50]), (8,))


def test_another_similarity_is_refused() -> None:
    pool = pool_of([40, 40])
    pool.similarity = Similarity("mine", lambda a, b: np.ones((len(a), len(b))))
    with pytest.raises(InputError, match="cosine"):
        compare(pool, Setup((30,), repetitions=2))
    assert pool_of([2, 2]).similarity is COSINE


# Advice


TITLES = {
    "likelihood": "likelihood",
    "random-balanced": "divscore, random",
    "adaptive-auto": "divscore, adaptive α = auto",
    "ss-st": "self-training",
}


def told(
    labels: int,
    method: str,
    error: float,
    *,
    splits: int = 20,
    covered: float = 1.0,
    sure: bool = True,
    each: float = 0.001,
) -> tuple[Compared, list[Answer]]:
    """A row, and its answers: errors that grow by `each` from split to split, intervals of which some miss."""
    answers = []
    for r in range(splits):
        limits = {}
        if method == "likelihood":
            limits = {"low": -1.0 if r < covered * splits else 0.5, "high": 1.0}
        value = error + each * (r - (splits - 1) / 2) if sure else math.nan
        answers.append(Answer(f"{labels} labels", "letter", "0", r, method, 200, 0.0, value, **limits))
    summary = summarise(answers)
    assert summary is not None
    prepared = Method(method, TITLES[method], lambda labelled: undefined, labels, representatives=25)
    return Compared(prepared, summary), answers


def comparison(*told: tuple[Compared, list[Answer]], pool: int = 400, collection: int = 200) -> Comparison:
    rows = tuple(row for row, _ in told)
    answers = tuple(replace(a, items=min(a.items, collection)) for _, some in told for a in some)
    splits = len({a.repetition for a in answers})
    setup = Setup(
        tuple(sorted({row.method.labels for row in rows})), repetitions=splits, collection_size=collection
    )
    return Comparison("letter", ("a", "b"), pool, setup, rows, answers)


def test_advice_names_the_method_with_the_smallest_error() -> None:
    ours, theirs = told(50, "likelihood", 0.05), told(50, "random-balanced", 0.15)
    said = advice(comparison(ours, theirs))
    assert said.startswith(
        "Use likelihood with all of your 400 labels. With 50 of them, tested on the others, its error"
    )
    assert "its error is 0.050 on average" in said
    assert "interval, 2.00 wide, contains the truth in 100%" in said
    assert said.endswith("the best control set is 'random' of 25, with an error of 0.150.")
    assert said.count(". ") == 2
    worse = told(50, "likelihood", 0.25)
    assert advice(comparison(worse, theirs)).startswith(
        "Use divscore, random with all of your 400 labels. With 50"
    )


def test_advice_tells_whether_more_labels_help() -> None:
    rows = [told(n, m, e) for m, n, e in (
        ("likelihood", 50, 0.2), ("likelihood", 100, 0.1), ("random-balanced", 100, 0.3))]  # fmt: skip
    assert "more labels should still help" in advice(comparison(*rows))
    rows[0] = told(50, "likelihood", 0.1)
    assert "more labels would hardly help" in advice(comparison(*rows))


def test_advice_is_not_given_where_nothing_works_and_names_the_best() -> None:
    rows = told(50, "likelihood", 0.35), told(50, "ss-st", 0.34, each=0.01), told(50, "random-balanced", 0.7)
    said = advice(comparison(*rows))
    assert said.startswith("None of these methods")
    assert "the best, self-training, is wrong by 0.34 on average." in said


def test_advice_is_not_given_where_the_best_cannot_tell() -> None:
    said = advice(comparison(told(50, "likelihood", 0.0, sure=False), told(50, "random-balanced", 0.7)))
    assert said.startswith("None of these methods")
    assert "the best, likelihood, is wrong by 0.00 on average and cannot tell in 100% of cases" in said


def test_advice_names_a_rival_that_is_ahead_by_no_more_than_chance() -> None:
    ours, score = told(50, "likelihood", 0.105), told(50, "random-balanced", 0.3)
    close, ahead = told(50, "ss-st", 0.1, each=0.005), told(50, "ss-st", 0.1)
    said = advice(comparison(ours, close, score))
    assert said.startswith("Use likelihood with all")
    assert "its error is 0.105 on average" in said
    assert "self-training has an error of 0.100, but no interval, and its lead may be chance" in said
    assert advice(comparison(ours, ahead, score)).startswith("Use self-training")
    assert "self-training" not in advice(comparison(ours, told(50, "ss-st", 0.2), score))


@pytest.mark.parametrize(
    ("splits", "pool", "collection", "little", "take"),
    [
        (FEW_SPLITS - 1, 400, 200, f"({FEW_SPLITS - 1} splits)", "more --repetitions."),
        (20, 49 + FEW_HELD_OUT, 200, f"({FEW_HELD_OUT - 1} held-out examples)", "more labelled examples."),
        (20, 400, FEW_ITEMS - 1, f"(collections of only {FEW_ITEMS - 1} items)", "a larger --collection-size."),
        (3, 76, 16, "(3 splits, 26 held-out examples, collections of only 16 items)",
         "more --repetitions and a larger --collection-size and more labelled examples."),
        (FEW_SPLITS, 50 + FEW_HELD_OUT, FEW_ITEMS, "", ""),
    ],
)  # fmt: skip
def test_advice_says_when_the_evidence_is_thin(
    splits: int, pool: int, collection: int, little: str, take: str
) -> None:
    rows = told(50, "likelihood", 0.05, splits=splits), told(50, "random-balanced", 0.15, splits=splits)
    said = advice(comparison(*rows, pool=pool, collection=collection))
    assert ("The evidence is thin" in said) is bool(little)
    assert little in said
    assert said.endswith(take)


def test_advice_says_when_intervals_clearly_miss_too_often() -> None:
    score = told(50, "random-balanced", 0.15)
    low = advice(comparison(told(50, "likelihood", 0.05, covered=0.6), score))
    assert "But its interval contains the truth in only 60% of cases, clearly less than 95 %" in low
    fine = advice(comparison(told(50, "likelihood", 0.05, covered=0.95), score))
    assert "clearly less" not in fine


def test_coverage_is_clearly_low_only_beyond_what_shared_labels_explain() -> None:
    """Two of twenty splits that miss throughout are chance; as many misses spread over all splits are not."""

    def coverage(missed: Sequence[int]) -> Any:
        answers = [
            Answer("f", "x", at, r, "m", 50, 0.0, 0.0, 0.5 if at < misses else -0.5, 1.0)
            for r, misses in enumerate(missed)
            for at in range(20)
        ]
        return summarise(answers)

    shared, spread = coverage([20, 20] + [0] * 18), coverage([2] * 20)
    assert shared.coverage == spread.coverage == 0.9
    assert not clearly_low(shared, 20)
    assert clearly_low(spread, 20)
    assert not clearly_low(coverage([1] * 20), 20)
    assert not clearly_low(replace(spread, coverage=None), 20)


# The command


def test_the_command_prints_a_table_and_advice_and_writes_files(tmp_path: Path) -> None:
    path = write(tmp_path / "pool.parquet", pool_of([60, 60]))
    options = ("--repetitions", 2, "--labels", "30,40", "--collection-size", 40, "--workers", 1)
    result = run("compare", path, "--attribute", "letter", *options, "--out", tmp_path / "out")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("letter: 120 labelled examples, 2 splits")
    headings = [line.split("  ")[0] for line in lines if line.startswith("with ")]
    assert headings == ["with 30 labels", "with 40 labels"]
    assert lines[2].split()[3:5] == ["representatives", "error"]
    assert len([line for line in lines if line.startswith("likelihood")]) == 2
    random = next(line.split() for line in lines if line.startswith("divscore, random  "))
    assert random[2] == "15"
    assert random[-1] == "–", "a method without an interval never says that it cannot tell"
    assert lines[-1].startswith(("Use ", "None of these"))
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "comparison.csv", "comparison.json", "comparison.png", "comparison.svg"
    ]  # fmt: skip
    document = json.loads((tmp_path / "out/comparison.json").read_text())
    assert document["advice"] == lines[-1]
    with open(tmp_path / "out/comparison.csv", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [float(r["error"]) for r in rows] == [r["error"] for r in document["rows"]]
    assert "already" not in result.stderr
    # Results of an earlier run are replaced, other files are kept.
    (tmp_path / "out/notes.txt").write_text("mine")
    options = ("--repetitions", 2, "--labels", 30, "--collection-size", 40, "--workers", 1, "--seed", 1)
    again = run("compare", path, "--attribute", "letter", *options, "--out", tmp_path / "out", "--json")
    assert "already has comparison.json, comparison.csv, comparison.svg, comparison.png" in again.stderr
    printed = json.loads(again.stdout)
    assert printed["settings"]["labels"] == [30]
    assert printed["groups"] == ["a", "b"]
    assert json.loads((tmp_path / "out/comparison.json").read_text()) == printed != document
    assert (tmp_path / "out/notes.txt").read_text() == "mine"


def test_json_has_the_numbers_of_the_table(found: Comparison) -> None:
    document = comparison_document(found)
    assert document["schema"] == "divscore.compare/1"
    assert {"labels", "method", "error", "error_se", "bias", "coverage", "width"} < set(document["rows"][0])
    assert {row["method"] for row in document["rows"] if row["cannot_tell"] is not None} == {"likelihood"}
    assert [row["representatives"] for row in document["rows"] if row["method"] == "self-training"] == [
        30,
        60,
    ]
    assert document["collections"]["held_out"] == 240 - 60
    assert [r["error"] for r in document["rows"]] == comparison_table(found).column("error")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--labels", "many"), "--labels takes numbers such as 50,100,200, got 'many'"),
        (("--labels", "500"), "label about"),
        (("--labels", "4"), "at least 10 labels"),
    ],
)
def test_bad_numbers_of_labels_are_one_clean_line(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    result = run("compare", write(tmp_path / "pool.parquet", pool_of([40, 40])), *options, code=2)
    assert result.stderr.startswith("divscore: ")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_the_folder_is_checked_before_the_pool_is_read_and_removed_if_the_run_fails(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "old/comparison.json").mkdir(parents=True)
    for out, message in (("taken", "taken is a file; give a folder"), ("old", "comparison.json is a folder")):
        result = run("compare", tmp_path / "no-such-pool.csv", "--out", tmp_path / out, code=2)
        assert message in result.stderr
        assert "no-such-pool" not in result.stderr
    result = run("compare", tmp_path / "no-such-pool.csv", "--out", tmp_path / "new/and/deep", code=2)
    assert "no-such-pool" in result.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="processes are looked up in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_leaves_no_processes_and_no_files(tmp_path: Path, number: int) -> None:
    path = write(tmp_path / "pool.parquet", pool_of([300, 300]))
    (tmp_path / "temporary").mkdir()
    options = ("--labels", "200", "--repetitions", "2000", "--workers", "2", "--out", str(tmp_path / "out"))
    running = subprocess.Popen(
        [sys.executable, "-m", "divscore", "compare", str(path), *options],
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 60
    while len(children(running.pid)) < 3 and time.monotonic() < until:  # two workers and their tracker
        time.sleep(0.02)
    started = children(running.pid)
    assert list((tmp_path / "temporary").glob("divscore-*"))
    time.sleep(0.3)  # in the middle of starting, or at work
    running.send_signal(number)
    _, said = running.communicate(timeout=60)
    until = time.monotonic() + 30
    while any(alive(pid) for pid in started) and time.monotonic() < until:
        time.sleep(0.05)
    assert len(started) == 3
    assert not [pid for pid in started if alive(pid)]
    if number == signal.SIGKILL:
        return  # nobody is left to tidy up
    assert running.returncode == 128 + number
    assert said.splitlines() == ["stopped"]
    assert not list((tmp_path / "temporary").iterdir())
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("quapy") is None, reason="QuaPy is not installed")
def test_quapy_takes_part() -> None:
    setup = Setup((40,), repetitions=2, collection_size=40, quapy=True, only=QUAPY)
    found, again = (compare(pool_of([60, 60]), setup) for _ in range(2))
    assert [row.method.title for row in found.rows] == [f"QuaPy {name}" for name in QUAPY]
    assert all(row.summary.mae < 0.4 for row in found.rows)
    assert [a.value for a in found.answers] == [a.value for a in again.answers]


def test_quapy_is_imported_before_its_methods_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[bool] = []
    monkeypatch.setattr("divscore.paper.comparison.require_quapy", lambda: imported.append(True))
    candidates((20, 20), Setup((), size=10))
    assert not imported
    candidates((20, 20), Setup((), size=10, quapy=True))
    assert imported


def test_without_quapy_the_extra_is_named_before_anything_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "quapy.method.aggregative", None)
    steps: list[int] = []
    with pytest.raises(MissingExtraError, match="pip install quapy scikit-learn"):
        compare(pool_of([60, 60]), Setup((40,), repetitions=2, quapy=True), progress=steps.append)
    assert not steps


@pytest.mark.slow
def test_on_the_papers_portraits_likelihood_wins() -> None:
    if not PPB.exists():
        pytest.skip(f"the authors' PPB-2017 features are not at {PPB}")
    options = ("--repetitions", 2, "--labels", 100, "--attribute", "gender", "--workers", 1, "--json")
    printed = json.loads(run("compare", PPB, *options).stdout)
    error = {row["method"]: row["error"] for row in printed["rows"]}
    assert min(error, key=lambda name: error[name]) == "likelihood"
    assert error["likelihood"] < 0.1
    assert printed["advice"].startswith("Use likelihood")
