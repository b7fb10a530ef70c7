"""`divscore compare`: which estimator, control set and number of labels suit a pool."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from conftest import PPB, draw_groups
from pyarrow import parquet

from divscore.cli.compare import compare as command
from divscore.control import ControlSet
from divscore.errors import ControlError, InputError
from divscore.experiments.candidates import QUAPY, candidates
from divscore.experiments.comparison import (
    FEW_HELD,
    FEW_LABELS,
    Compared,
    Comparison,
    Setup,
    compare,
    usable_labels,
)
from divscore.experiments.comparisonresults import advice, comparison_document, comparison_table
from divscore.experiments.records import Answer
from divscore.experiments.summary import summarise
from divscore.similarity import COSINE, Similarity


def pool_of(counts: list[int], gap: float = 2.5, seed: int = 0) -> ControlSet:
    vectors, names = draw_groups(seed, counts, gap=gap)
    return ControlSet(vectors, names, attribute="letter")


def write(path: Path, pool: ControlSet) -> Path:
    vectors = pool.vectors.astype(np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    names = [pool.groups[g] for g in pool.labels]
    parquet.write_table(pa.table({"letter": names, "embedding": lists}), path)
    return path


def run(*args: object, code: int = 0) -> Any:
    result = CliRunner().invoke(command, [str(a) for a in args])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def found() -> Comparison:
    return compare(pool_of([120, 120]), Setup((30, 60), repetitions=3, collection=60))


def test_every_method_is_asked_with_every_number_of_labels(found: Comparison) -> None:
    titles = [m.title for m in candidates(30, 2, 50)]
    assert [(row.labels, row.title) for row in found.rows] == [(n, t) for n in (30, 60) for t in titles]
    assert {"likelihood", "divscore, random", "divscore, dpp", "self-training"} < set(titles)
    assert {f"divscore, adaptive α = {a}" for a in ("0.1", "1", "auto")} < set(titles)
    for row in found.rows:
        assert row.summary.answers + row.summary.undefined == 3 * 11


def test_all_methods_see_the_same_collections(found: Comparison) -> None:
    seen = {
        (row.labels, row.method): [
            (a.repetition, a.at, a.truth, a.items)
            for a in found.answers
            if a.method == row.method and a.sweep == f"{row.labels} labels"
        ]
        for row in found.rows
    }
    assert len({str(value) for value in seen.values()}) == 1
    truths = {a.truth for a in found.answers}
    assert {-1.0, 0.0, 1.0} < truths
    assert max(truths) <= 1.0


def test_likelihood_does_well_where_groups_are_apart(found: Comparison) -> None:
    error = {(row.labels, row.method): row.summary for row in found.rows}
    best = error[60, "likelihood"]
    assert best.mae < 0.15
    assert best.coverage is not None
    assert best.coverage > 0.8
    assert error[60, "random-balanced"].coverage is None


def test_the_outcome_does_not_depend_on_the_number_of_workers() -> None:
    pool, setup = pool_of([60, 60]), Setup((30,), repetitions=2, collection=40)
    one, two = (compare(pool, setup, workers=workers) for workers in (1, 2))
    bare = [[repr(replace(a, prepared=0.0, seconds=0.0)) for a in c.answers] for c in (one, two)]
    assert bare[0] == bare[1]


def test_three_groups() -> None:
    found = compare(pool_of([60, 60, 60], gap=4.0), Setup((60,), repetitions=2, collection=60))
    assert "self-training" not in [row.title for row in found.rows]
    assert all(0 <= a.truth <= 1 for a in found.answers)
    error = {row.method: row.summary.mae for row in found.rows}
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
    with pytest.raises(ControlError, match=f"only 7 of 'b' in the pool; .* at least {FEW_LABELS + FEW_HELD}"):
        usable_labels(pool_of([40, 7]), None)
    with pytest.raises(InputError, match=r"--labels 100: of 100 labelled .* label about 16 more") as error:
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


def told(labels: int, method: str, error: float, *, interval: bool = False) -> Compared:
    limits = {"low": -1.0, "high": 1.0} if interval else {}
    answers = [
        Answer(f"{labels} labels", "letter", "0", r, method, 50, 0.0, error + 0.001 * r, **limits)
        for r in range(3)
    ]
    summary = summarise(answers)
    assert summary is not None
    title = {"likelihood": "likelihood", "random-balanced": "divscore, random"}[method]
    return Compared(labels, method, title, summary)


def comparison(*rows: Compared) -> Comparison:
    labels = tuple(sorted({row.labels for row in rows}))
    return Comparison("letter", ("a", "b"), 200, Setup(labels, repetitions=3), rows, ())


def test_advice_names_the_method_with_the_smallest_error() -> None:
    ours, theirs = told(50, "likelihood", 0.05, interval=True), told(50, "random-balanced", 0.15)
    said = advice(comparison(ours, theirs))
    assert said.startswith("Use likelihood with 50 labels: it is off by 0.051")
    assert "interval, 2.00 wide, held the truth in 100%" in said
    assert "control set was 'random'" in said
    assert said.count(". ") == 0
    worse = told(50, "likelihood", 0.25, interval=True)
    assert advice(comparison(worse, theirs)).startswith("Use divscore, random with 50 labels")


def test_advice_tells_whether_more_labels_help() -> None:
    rows = [told(n, m, e, interval=m == "likelihood") for m, n, e in (
        ("likelihood", 50, 0.2), ("likelihood", 100, 0.1), ("random-balanced", 100, 0.3))]  # fmt: skip
    assert "more labels should still help" in advice(comparison(*rows))
    rows[0] = told(50, "likelihood", 0.1, interval=True)
    assert "more would hardly help" in advice(comparison(*rows))


def test_advice_is_not_given_where_nothing_works() -> None:
    rows = told(50, "likelihood", 0.6), told(50, "random-balanced", 0.7)
    assert advice(comparison(*rows)).startswith("None of these methods")


# The command


def test_the_command_prints_a_table_and_advice_and_writes_files(tmp_path: Path) -> None:
    path = write(tmp_path / "pool.parquet", pool_of([60, 60]))
    options = ("--repetitions", 2, "--labels", "30,40", "--collection-size", 40, "--workers", 1)
    result = run(path, "--attribute", "letter", *options, "--out", tmp_path / "out")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("letter: 120 labelled examples, 2 splits")
    assert lines[2].split()[:3] == ["method", "labels", "error"]
    assert len([line for line in lines if line.startswith("likelihood")]) == 2
    assert lines[-1].startswith(("Use ", "None of these"))
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "comparison.csv", "comparison.json", "comparison.png", "comparison.svg"
    ]  # fmt: skip
    document = json.loads((tmp_path / "out/comparison.json").read_text())
    assert document["advice"] == lines[-1]
    with open(tmp_path / "out/comparison.csv", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [float(r["error"]) for r in rows] == [r["error"] for r in document["rows"]]


def test_json_has_the_numbers_of_the_table(tmp_path: Path, found: Comparison) -> None:
    document = comparison_document(found)
    assert document["schema"] == "divscore.compare/1"
    assert {"labels", "method", "error", "error_se", "bias", "coverage", "width"} < set(document["rows"][0])
    assert [r["error"] for r in document["rows"]] == comparison_table(found).column("error")
    path = write(tmp_path / "pool.parquet", pool_of([40, 40]))
    options = ("--repetitions", 2, "--labels", 30, "--collection-size", 30, "--workers", 1, "--json")
    printed = json.loads(run(path, *options).stdout)
    assert printed["settings"]["labels"] == [30]
    assert printed["groups"] == ["a", "b"]


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
    result = run(write(tmp_path / "pool.parquet", pool_of([40, 40])), *options, code=2)
    assert result.stderr.startswith("divscore: ")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.skipif(importlib.util.find_spec("quapy") is None, reason="QuaPy is not installed")
def test_quapy_takes_part() -> None:
    found = compare(pool_of([60, 60]), Setup((40,), repetitions=2, collection=40, quapy=True))
    error = {row.title: row.summary.mae for row in found.rows}
    for name in QUAPY:
        assert error[f"QuaPy {name}"] < 0.4
    again = compare(pool_of([60, 60]), Setup((40,), repetitions=2, collection=40, quapy=True))
    values = [[a.value for a in c.answers if a.method in QUAPY] for c in (found, again)]
    assert values[0] == values[1]


def test_on_the_papers_portraits_likelihood_wins() -> None:
    if not PPB.exists():
        pytest.skip(f"the authors' PPB-2017 features are not at {PPB}")
    options = ("--repetitions", 2, "--labels", 100, "--attribute", "gender", "--workers", 1, "--json")
    printed = json.loads(run(PPB, *options).stdout)
    error = {row["method"]: row["error"] for row in printed["rows"]}
    assert min(error, key=lambda name: error[name]) == "likelihood"
    assert error["likelihood"] < 0.1
    assert printed["advice"].startswith("Use likelihood")
