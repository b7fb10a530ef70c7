"""The paper's experiments: draws, methods against oracles, summaries by hand, and what a run leaves behind."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import PPB
from oracles import algorithm_1, algorithm_3

from divscore.audit.audit import audit
from divscore.cli import main
from divscore.control.selection import select_adaptive
from divscore.errors import InputError
from divscore.paper import celeba, ppb, twitteraae
from divscore.paper.draws import (
    Attribute,
    Collection,
    Labelled,
    Material,
    Settings,
    Split,
    check_splits,
    collected,
    composed,
)
from divscore.paper.figures import collection_figure, error_figure, save_figure, size_figure, sweep_figure
from divscore.paper.labelleddata import LabelledData
from divscore.paper.methods import Method, same_labels, with_ours
from divscore.paper.records import Answer, Point, points, ratio, summarise
from divscore.paper.results import Results, ResultTable, shown, write_results
from divscore.paper.sections import equal_cost, equal_cost_text, smaller_sets, strictest
from divscore.paper.sweep import ask

TWEETS = PPB.with_name("tweets_dialect.parquet")
SMALL = Settings(repetitions=2, labels=80, size=20, collection=100, shares=(0.0, 0.5, 1.0), sizes=(10, 20))
GENDER = ppb.ATTRIBUTES[0]


@pytest.fixture(scope="module")
def portraits() -> LabelledData:
    """Like PPB-2017, drawn at random: gender along one axis, skin tone along another, countries along others."""
    rng = np.random.default_rng(3)
    n, d = 600, 10
    gender, tone, country = rng.integers(2, size=n), rng.integers(2, size=n), rng.integers(3, size=n)
    vectors = rng.normal(size=(n, d))
    vectors[:, 0] += 2.0 - 4.0 * gender
    vectors[:, 1] += 1.5 - 3.0 * tone
    vectors[np.arange(n), 2 + country] += 1.0
    group = np.where((gender == 0) & (tone == 0), "dark-skinned women", "others")
    columns = {
        "gender": np.array(["female", "male"])[gender],
        "skin_tone": np.array(["darker", "lighter"])[tone],
        "country": np.array(["FL", "RW", "SW"])[country],
        "group": group,
    }
    return LabelledData("portraits", vectors, columns, tuple(f"{i}.jpg" for i in range(n)))


@pytest.fixture(scope="module")
def material(portraits: LabelledData) -> Material:
    return Material(portraits.vectors, portraits.columns)


@pytest.fixture(scope="module")
def results(portraits: LabelledData) -> Results:
    return ppb.reproduce(portraits, SMALL)


@pytest.fixture(scope="module")
def drawn(material: Material) -> tuple[Labelled, list[Collection]]:
    """One split, and collections of 0, 30 and 100 % women."""
    rng = np.random.default_rng(0)
    split = Split.at_random(len(material), 80, rng)
    labelled = Labelled.draw(material, GENDER, split.labelled, 20, rng, 0)
    labels = GENDER.labels(material)
    rows = [composed(labels, split.rest, (f, 1 - f), 60, rng) for f in (0.0, 0.3, 1.0)]
    return labelled, [
        collected(material, GENDER, r, f, rng) for r, f in zip(rows, (0.0, 0.3, 1.0), strict=True)
    ]


def told(drawn: tuple[Labelled, list[Collection]], key: str) -> list[Answer]:
    methods = [m for m in (*with_ours(SMALL), *same_labels(SMALL)) if m.key == key]
    assert len(methods) == 1
    return ask(methods, *drawn, "f")


def plain(answers: list[Answer]) -> list[str]:
    """Without times, which no two runs share; as text, in which a NaN equals itself."""
    return [repr(replace(a, prepared=0.0, seconds=0.0)) for a in answers]


# Draws


def test_a_split_takes_every_row_once() -> None:
    split = Split.at_random(50, 20, np.random.default_rng(0))
    assert len(split.labelled) == 20
    assert sorted([*split.labelled, *split.rest]) == list(range(50))


def test_a_balanced_split_labels_as_many_of_each_group_however_rare() -> None:
    labels = np.repeat([0, 1], [30, 970])
    split = Split.balanced(labels, 20, np.random.default_rng(0))
    assert np.bincount(labels[split.labelled]).tolist() == [10, 10]
    assert sorted([*split.labelled, *split.rest]) == list(range(1000))


def test_collections_have_the_composition_asked_for_without_repeats() -> None:
    labels = np.repeat([0, 1, 2], 100)
    rows = composed(labels, np.arange(300), (0.5, 0.3, 0.2), 80, np.random.default_rng(0))
    assert np.bincount(labels[rows]).tolist() == [40, 24, 16]
    assert len(set(rows.tolist())) == 80


def test_a_collection_is_as_large_as_its_rarer_group_allows() -> None:
    labels = np.repeat([0, 1], [30, 400])
    rng = np.random.default_rng(0)
    assert len(composed(labels, np.arange(430), (1.0, 0.0), 500, rng)) == 30
    assert np.bincount(labels[composed(labels, np.arange(430), (0.25, 0.75), 500, rng)]).tolist() == [30, 90]


def test_the_truth_is_that_of_the_collection(material: Material) -> None:
    rows = np.arange(40)
    found = collected(material, GENDER, rows, "forty", np.random.default_rng(0))
    women = (material.columns["gender"][:40] == "female").mean()
    assert found.truth == pytest.approx(2 * women - 1)


def test_labelled_parts_are_nested_and_balanced(drawn: tuple[Labelled, list[Collection]]) -> None:
    labelled, _ = drawn
    assert labelled.few.counts == {"female": 10, "male": 10}
    small, large = labelled.balanced(10), labelled.balanced(30)
    assert {v.tobytes() for v in small.vectors} < {v.tobytes() for v in large.vectors}
    assert len(labelled.balanced(1000)) == labelled.largest


def test_a_strange_group_is_named(material: Material) -> None:
    with pytest.raises(InputError, match="column 'country' has 'FL'; expected a or b"):
        Attribute("x", "country", ("a", "b")).labels(
            Material(material.vectors[:1], {"country": np.array(["FL"])})
        )


# Methods, against the paper as printed


def test_iid_measure_is_the_difference_of_shares_in_its_sample(
    drawn: tuple[Labelled, list[Collection]],
) -> None:
    for answer, collection in zip(told(drawn, "iid"), drawn[1], strict=True):
        sample = collection.groups[collection.order[:20]]
        assert answer.value == pytest.approx((sample == "female").mean() - (sample == "male").mean())
        assert answer.low <= answer.value <= answer.high


def test_divscore_random_balanced_is_algorithm_1(drawn: tuple[Labelled, list[Collection]]) -> None:
    few = drawn[0].few
    parts = [few.vectors[few.rows(g)].astype(float) for g in (0, 1)]
    for answer, collection in zip(told(drawn, "random-balanced"), drawn[1], strict=True):
        assert answer.value == pytest.approx(algorithm_1(collection.vectors.astype(float), *parts), abs=1e-9)


def test_divscore_adaptive_is_the_audits_divscore(drawn: tuple[Labelled, list[Collection]]) -> None:
    control = select_adaptive(drawn[0].pool, 20, alpha=SMALL.alpha)
    for answer, collection in zip(told(drawn, "adaptive"), drawn[1], strict=True):
        assert answer.value == pytest.approx(audit(collection.vectors, control).divscore, abs=1e-9)


def test_ss_st_is_algorithm_3(drawn: tuple[Labelled, list[Collection]]) -> None:
    few = drawn[0].few
    parts = [few.vectors[few.rows(g)].astype(float) for g in (0, 1)]
    small = [replace(c, vectors=c.vectors[:25]) for c in drawn[1][:2]]
    (method,) = [m for m in with_ours(SMALL) if m.key == "ss-st"]
    for answer, collection in zip(ask([method], drawn[0], small, "f"), small, strict=True):
        assert answer.value == pytest.approx(algorithm_3(collection.vectors.astype(float), *parts, k=5)[0])


@pytest.mark.parametrize("key", ["likelihood", "likelihood-few"])
def test_likelihood_is_the_audits_default(drawn: tuple[Labelled, list[Collection]], key: str) -> None:
    control = drawn[0].pool if key == "likelihood" else drawn[0].few
    for answer, collection in zip(told(drawn, key), drawn[1], strict=True):
        result = audit(collection.vectors, control, seed=0)
        assert (answer.value, answer.low, answer.high) == pytest.approx(
            (result.disparity, result.interval.low, result.interval.high)
        )


def test_random_proportional_is_not_defined_for_one_group(drawn: tuple[Labelled, list[Collection]]) -> None:
    answers = told(drawn, "random-proportional")
    assert [a.defined for a in answers] == [False, True, False]
    sample, names = drawn[1][1].sample(20)
    parts = [sample[np.array(names) == g].astype(float) for g in ("female", "male")]
    assert answers[1].value == pytest.approx(algorithm_1(drawn[1][1].vectors.astype(float), *parts), abs=1e-9)


def test_every_method_says_what_it_costs() -> None:
    cost = {m.key: (m.labels, m.sampled) for m in (*with_ours(Settings()), *same_labels(Settings()))}
    assert cost["random-balanced"] == cost["likelihood-few"] == cost["ss-st"] == (50, 0)
    assert cost["adaptive"] == cost["likelihood"] == cost["all"] == cost["ss-st-all"] == (200, 0)
    assert cost["iid"] == cost["random-proportional"] == (0, 50)
    assert cost["rectified"] == (200, 50)


# Summaries, by hand


def answer(value: float, truth: float = 0.0, repetition: int = 0, at: float = 0.5, **more: Any) -> Answer:
    values: dict[str, Any] = {"sweep": "f", "attribute": "x", "method": "m", "items": 10} | more
    return Answer(at=at, repetition=repetition, truth=truth, value=value, **values)


def test_errors_bias_and_spread_by_hand() -> None:
    found = summarise(
        [answer(0.1, 0.0, 0), answer(-0.3, 0.0, 1), answer(1.4, 1.0, 0, 1.0), answer(1.2, 1.0, 1, 1.0)]
    )
    assert found is not None
    assert found.mae == pytest.approx((0.1 + 0.3 + 0.4 + 0.2) / 4)
    assert found.clipped == pytest.approx((0.1 + 0.3) / 4)
    assert found.bias == pytest.approx(0.1)
    assert found.worst_bias == pytest.approx(0.3)
    assert found.spread == pytest.approx(math.sqrt((0.08 + 0.02) / 2))
    assert found.largest == pytest.approx(0.4)
    assert found.mae_se == pytest.approx(np.std([0.25, 0.25], ddof=1))
    assert found.coverage is None


def test_cannot_tell_counts_as_zero_but_not_where_that_is_right_by_design() -> None:
    unsure = [answer(math.nan, 0.4, low=-1.0, high=1.0), answer(0.3, 0.4, low=0.35, high=0.5)]
    found = summarise(unsure)
    assert found is not None
    assert (found.mae, found.cannot_tell, found.coverage) == (pytest.approx(0.25), 1, 1.0)
    (point,) = points([replace(a, sweep="size") for a in unsure])
    assert (point.answers, point.left_out, point.mae) == (2, 0, pytest.approx(0.25))
    (point,) = points([replace(a, sweep="size", truth=0.0) for a in unsure])
    assert (point.answers, point.left_out, point.mae) == (1, 1, pytest.approx(0.3))


def test_undefined_answers_are_left_out_and_counted() -> None:
    found = summarise([answer(math.nan), answer(0.2)])
    assert found is not None
    assert (found.answers, found.undefined, found.mae) == (1, 1, pytest.approx(0.2))
    assert summarise([answer(math.nan)]) is None


def test_a_ratio_compares_the_same_draws_only() -> None:
    ours = [answer(0.1, at=at, repetition=r) for at in (0.0, 0.5) for r in (0, 1)]
    rival = [answer(0.3, at=0.5, repetition=r) for r in (0, 1)] + [answer(math.nan, at=0.0)]
    found = ratio(rival, [replace(a, value=9.0) if a.at == 0.0 else a for a in ours])
    assert (found.rival, found.ours, found.value) == pytest.approx((0.3, 0.1, 3.0))
    assert found.se == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("error", "reached"), [(0.3, False), (0.5, True)])
def test_the_factor_of_four_is_told_as_it_is(error: float, reached: bool) -> None:
    methods = [
        m for m in (*with_ours(Settings()), *same_labels(Settings())) if m.key in ("all", "likelihood")
    ]
    answers = [answer(0.1, method="likelihood"), answer(error, method="all")]
    table = equal_cost(answers, methods, ["x"])
    assert table.column("≥ 4 ×") == [reached]
    (sentence,) = equal_cost_text(table)
    assert ("not reached" in sentence) is not reached
    assert ("not reached" in strictest(table)) is not reached
    assert f"{error / 0.1:.1f} ×" in sentence


# A run


def test_results_do_not_depend_on_the_number_of_workers(material: Material, portraits: LabelledData) -> None:
    settings = replace(SMALL, shares=(0.5,), sizes=(10,))
    one, two = (ppb.reproduce(portraits, settings, workers=workers) for workers in (1, 2))
    names = [t.name for t in one.tables if t.name != "time"]
    assert "answers" in names
    for name in names:
        first, second = (next(t for t in r.tables if t.name == name) for r in (one, two))
        assert first.csv() == second.csv()


def test_repetitions_are_the_same_whatever_their_number(material: Material) -> None:
    settings = replace(SMALL, shares=(0.5,), sizes=(10,))
    alone = ppb.work(material, 1, 0, settings)
    ppb.work(material, 0, 0, settings)
    assert plain(ppb.work(material, 1, 0, replace(settings, repetitions=50)).answers) == plain(alone.answers)
    assert plain(ppb.work(material, 1, 0, replace(settings, seed=1)).answers) != plain(alone.answers)


def test_everything_is_written_and_the_page_has_the_numbers_of_the_json(
    results: Results, tmp_path: Path
) -> None:
    written = {path.relative_to(tmp_path).as_posix() for path in write_results(results, tmp_path)}
    assert written == {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert {"RESULTS.md", "results.json", "answers.csv", "points.csv", "figures/figure1.svg"} <= written
    page, document = (
        (tmp_path / "RESULTS.md").read_text(),
        json.loads((tmp_path / "results.json").read_text()),
    )
    assert set(document["tables"]) == {t.name for t in results.tables if t.shown}
    for name, table in document["tables"].items():
        for row in table["rows"]:
            line = [shown(value) for value in row]
            assert any([c.strip() for c in _cells(text)] == line for text in page.splitlines()), (name, row)
        rows = list(csv.reader(io.StringIO((tmp_path / f"{name}.csv").read_text())))
        assert rows[0] == table["columns"]
        assert rows[1:] == [["" if v is None else str(v) for v in row] for row in table["rows"]]
    for section in document["sections"]:
        for stem, _ in section["figures"]:
            assert f"(figures/{stem}.svg)" in page
            assert {f"figures/{stem}.svg", f"figures/{stem}.png"} <= written
    for path in (tmp_path / "figures").glob("*.png"):
        assert path.read_bytes()[:4] == b"\x89PNG"
    assert str(tmp_path) not in page + json.dumps(document)


def _cells(line: str) -> list[str]:
    """The cells of a line of a Markdown table; an escaped bar is part of a cell."""
    return [part.replace("\0", "\\|") for part in line.replace("\\|", "\0").strip("| ").split("|")]


def test_the_error_in_the_table_is_that_of_the_stored_answers(results: Results) -> None:
    tables = {t.name: t for t in results.tables}
    answers = [dict(zip(tables["answers"].columns, row, strict=True)) for row in tables["answers"].rows]
    accuracy = [dict(zip(tables["accuracy"].columns, row, strict=True)) for row in tables["accuracy"].rows]
    asked = ("skin tone", "likelihood, all 80 labels")
    mine = [a for a in answers if (a["attribute"], a["method"]) == asked and a["sweep"] == "f"]
    (row,) = [r for r in accuracy if (r["attribute"], r["method"]) == asked]
    assert len(mine) == 6
    assert row["error"] == pytest.approx(np.mean([abs(a["estimate"] - a["truth"]) for a in mine]), abs=1e-5)


def test_a_run_tells_what_the_paper_says_and_what_was_measured(results: Results) -> None:
    claims = next(t for t in results.tables if t.name == "claims")
    assert set(claims.column("")) <= {"agrees", "differs"}
    verdicts = dict(zip(claims.column("the paper says"), claims.column(""), strict=True))
    assert verdicts["γ^(T) of adaptive control sets is 0.96 (gender)"] == "differs"
    countries = next(t for t in results.tables if t.name == "collections")
    assert set(countries.column("country")) == {"Finland", "Rwanda", "Sweden"}
    trusts = np.array([countries.column(word) for word in ("good", "caution", "poor")], dtype=float)
    assert trusts.sum(axis=0) == pytest.approx(np.ones(len(countries.rows)), abs=1e-4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"labels": 400}, "400 labels of 600 items leave too few"),
        ({"size": 90}, "a control set of 90 from 80 labels"),
        ({"size": 2}, "at least 4"),
        ({"collection": 5}, "at least 20 items"),
        ({"repetitions": 0}, "at least one"),
        ({"alpha": -1.0}, "≥ 0"),
        ({"k": 0}, "at least one item"),
    ],
)
def test_settings_that_cannot_be_run_are_refused(
    portraits: LabelledData, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        ppb.reproduce(portraits, replace(SMALL, **wrong))


def test_too_few_labels_are_told_before_anything_is_computed_and_as_many_as_said_do(
    portraits: LabelledData,
) -> None:
    settings = replace(SMALL, labels=12, size=8, repetitions=30, shares=(0.5,), sizes=(10,))
    steps: list[int] = []
    with pytest.raises(InputError, match=r"--labels 12: in some repetitions fewer than [25] of") as error:
        ppb.reproduce(portraits, settings, progress=steps.append)
    assert not steps
    enough = int(re.findall(r"give --labels (\d+) or more", str(error.value))[0])
    fewest = {a: 5 if a.name in ("gender", "skin tone") else 2 for a in ppb.ATTRIBUTES}
    material = Material(portraits.vectors, portraits.columns)

    def splits(labels: int) -> list[Split]:
        return [
            Split.at_random(len(material), labels, np.random.default_rng([SMALL.seed, r])) for r in range(30)
        ]

    check_splits(splits(enough), material, fewest)
    with pytest.raises(InputError, match=f"give --labels {enough} or more"):
        check_splits(splits(enough - 1), material, fewest)
    few = min(
        (GENDER.labels(material)[split.labelled] == g).sum() for split in splits(enough) for g in (0, 1)
    )
    assert few >= 5


def test_no_method_is_said_to_choose_more_labels_than_there_are() -> None:
    titles = {m.key: m.title for m in same_labels(Settings(labels=10, size=10))}
    assert titles["adaptive-wide"] == "DivScore-Adaptive, 10 of 10"
    assert {m.key: m.title for m in same_labels(Settings())}[
        "adaptive-wide"
    ] == "DivScore-Adaptive, 100 of 200"


def test_a_run_names_the_command_that_repeats_it() -> None:
    settings = replace(ppb.DEFAULTS, repetitions=4, alpha=0.5)
    assert (
        settings.command("ppb", ppb.DEFAULTS)
        == "divscore reproduce ppb --data PATH --alpha 0.5 --repetitions 4"
    )
    assert ppb.DEFAULTS.command("ppb", ppb.DEFAULTS) == "divscore reproduce ppb --data PATH"


# Figures


def by_share(methods: tuple[Method, ...], attributes: tuple[str, ...], sweep: str = "f") -> list[Any]:
    rng = np.random.default_rng(0)
    at: list[Any] = (
        ["north", "south"] if sweep == "country" else [10, 20] if sweep == "size" else [0.0, 0.5, 1.0]
    )
    return points(
        [
            Answer(sweep, name, x, repetition, method.key, 100, 0.0, float(rng.normal(scale=0.2)))
            for name in attributes
            for x in at
            for repetition in range(3)
            for method in methods
        ]
    )


def legend_is_outside(figure: Any) -> bool:
    """Inside the figure, and below every panel."""
    figure.draw_without_rendering()
    box, whole = figure.legends[0].get_window_extent(), figure.bbox
    inside = box.x0 >= whole.x0 - 1 and box.x1 <= whole.x1 + 1 and box.y0 >= whole.y0 - 1
    return bool(inside and all(box.y1 <= axis.get_tightbbox().y0 + 1 for axis in figure.axes))


@pytest.mark.parametrize("kind", ["sweep", "errors", "sizes", "collections"])
def test_figures_have_labels_and_a_line_for_every_method(kind: str) -> None:
    methods, names = with_ours(Settings()), ("gender", "skin tone")
    labels = {name: f"share of {name}" for name in names}
    if kind == "sweep":
        figure = sweep_figure(by_share(methods, names), methods, labels, limit=1.5)
        assert all(axis.get_ylim() == (-1.5, 1.5) for axis in figure.axes)
    elif kind == "errors":
        figure = error_figure(by_share(methods, names), methods, labels)
    elif kind == "sizes":
        methods = tuple(m for m in methods if m.key in ("random-balanced", "adaptive", "likelihood-few"))
        figure = size_figure(by_share(methods, names, "size"), methods, names)
    else:
        figure = collection_figure(by_share(methods, names, "country"), methods, names)
        assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["north", "south"]
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [t for t in texts if t != "true disparity"] == [m.title for m in methods]
    assert ("true disparity" in texts) is (kind != "errors")
    for at, axis in enumerate(figure.axes):
        assert axis.get_title(loc="left")
        assert axis.get_xlabel()
        drawn = len(axis.lines) if kind == "errors" or (kind == "sizes" and at % 2) else len(axis.containers)
        assert drawn == len(methods)
    markers = ((line.get_color(), line.get_marker()) for line in figure.axes[0].lines)
    looks = {look for look in markers if look[1] not in ("None", "_", "|")}
    assert len(looks) == len(methods)
    assert figure.get_figwidth() == 6.0
    assert legend_is_outside(figure)


def test_a_figure_is_written_the_same_twice(tmp_path: Path) -> None:
    methods = with_ours(Settings())
    found = by_share(methods, ("gender",))
    for name in ("one", "two"):
        save_figure(sweep_figure(found, methods, {"gender": "f"}), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.png", "one.svg", "two.png", "two.svg"]


def test_an_estimate_far_out_becomes_an_arrow() -> None:
    methods = with_ours(Settings())[:1]
    far = points([Answer("country", "gender", "north", 0, methods[0].key, 100, 0.0, 7.0)])
    axis = collection_figure(far, methods, ["gender"]).axes[0]
    assert axis.get_xlim()[1] <= 1.6
    assert ">" in [line.get_marker() for line in axis.lines]


def test_tables_read_the_same_everywhere() -> None:
    table = ResultTable.of("t", "T", ("|T|", "x"), [(1, 0.123456789), (2, math.nan)])
    assert table.to_dict()["rows"] == [[1, 0.123457], [2, None]]
    assert table.csv() == "|T|,x\n1,0.123457\n2,\n"
    assert table.markdown().splitlines()[0].startswith("| \\|T\\| |")
    assert table.markdown().splitlines()[2].split("|")[2].strip() == "0.123"


# The other data sets, and the command line


def run(*args: object, code: int = 0) -> Any:
    result = CliRunner().invoke(main, ["reproduce", *map(str, args)])
    assert result.exit_code == code, result.output
    return result


def test_reproduce_ppb_from_a_table(portraits: LabelledData, tmp_path: Path, monkeypatch: Any) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    monkeypatch.chdir(tmp_path)
    vectors = portraits.vectors.astype(np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    tone = np.where(portraits.columns["skin_tone"] == "darker", 5, 2)
    country = portraits.columns["country"]
    ids = [
        f"{i:04d}_{tone[i]}_{portraits.columns['gender'][i][0]}_{country[i]}.jpg"
        for i in range(len(portraits))
    ]
    parquet.write_table(pa.table({"id": ids, "embedding": lists}), "mine.parquet")
    options = ("--repetitions", 1, "--labels", 60, "--size", 12, "--collection-size", 80, "--workers", 1)
    result = run("ppb", "--data", "mine.parquet", *options)
    assert result.stdout.startswith("| mean absolute error of d")
    assert "DivScore-Adaptive" in result.stdout
    document = json.loads((tmp_path / "results/ppb/results.json").read_text())
    assert document["settings"]["labels"] == 60
    assert document["settings"]["repetitions"] == 1
    assert document["settings"]["alpha"] == 1.0
    assert "RESULTS.md" in result.stderr
    assert "already" not in result.stderr
    Path("results/ppb/notes.txt").write_text("mine")
    again = run("ppb", "--data", "mine.parquet", *options)
    assert "RESULTS.md, results.json; they are replaced" in again.stderr
    assert Path("results/ppb/notes.txt").read_text() == "mine"
    bad = run("ppb", "--data", "mine.parquet", "--labels", 400, "--workers", 1, "--out", "new/one", code=2)
    assert "leave too few" in bad.stderr
    assert not Path("new").exists()
    for out in ("mine.parquet", "mine.parquet/deeper"):
        taken = run("ppb", "--data", "nothing.parquet", "--out", out, code=2)
        assert taken.stderr == "divscore: mine.parquet is a file; name a folder\n"
    missing = run("ppb", "--data", "nothing.parquet", code=2)
    assert "gendershades.org" in missing.stderr


def fake_celeba(folder: Path, count: int = 700) -> Path:
    """CelebA's two text files, all pictures in the test partition, and vectors in place of pictures."""
    rng = np.random.default_rng(1)
    names = ["Eyeglasses", "Male", "Smiling", "Wearing_Hat"]
    male = rng.random(count) < 0.5
    marks = np.stack([rng.random(count) < p for p in (0.4, 0.5, 0.6, 0.5)], axis=1)
    marks[:, 1] = male
    marks[:, 2] = rng.random(count) < np.where(male, 0.3, 0.8)
    lines = [str(count), " ".join(names)]
    lines += [f"{i + 1:06d}.jpg " + " ".join("1" if m else "-1" for m in row) for i, row in enumerate(marks)]
    folder.mkdir()
    (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    (folder / "list_eval_partition.txt").write_text("".join(f"{i + 1:06d}.jpg 2\n" for i in range(count)))
    vectors = rng.normal(size=(count, 8)).astype(np.float32)
    vectors[:, 0] += np.where(male, -1.5, 1.5)
    np.save(folder / "vectors.npy", vectors)
    return folder


def test_reproduce_celeba_takes_the_pictures_of_an_attribute_as_collection(tmp_path: Path) -> None:
    folder = fake_celeba(tmp_path / "celeba")
    options = ("--repetitions", 2, "--labels", 100, "--size", 20, "--workers", 1, "--out", tmp_path / "out")
    result = run("celeba", "--data", folder, "--vectors", folder / "vectors.npy", *options)
    assert "likelihood, all 100 labels" in result.stdout
    document = json.loads((tmp_path / "out/results.json").read_text())
    table = document["tables"]["collections"]
    by = {row[1]: dict(zip(table["columns"], row, strict=True)) for row in table["rows"]}
    assert set(by) == {"Eyeglasses", "Smiling", "Wearing Hat"}
    assert by["Smiling"]["true d"] > 0.2 > by["Eyeglasses"]["true d"]
    assert by["Smiling"]["error, likelihood, all 100 labels"] < 0.1
    assert "SS-ST" not in json.dumps(document["tables"])
    assert (tmp_path / "out/figures/attributes.svg").is_file()


def test_celeba_and_twitteraae_have_the_papers_defaults() -> None:
    assert (celeba.DEFAULTS.repetitions, celeba.DEFAULTS.labels, celeba.DEFAULTS.alpha) == (25, 500, 1.0)
    tweets = twitteraae.DEFAULTS
    assert (tweets.repetitions, tweets.labels, tweets.alpha, tweets.collection) == (25, 200, 0.1, 1000)
    faces = ppb.DEFAULTS
    assert (faces.repetitions, faces.labels, faces.size, faces.alpha, faces.k) == (100, 200, 50, 1.0, 5)
    assert faces.shares == tuple(f / 10 for f in range(11))


def dialects(count: int = 400) -> LabelledData:
    rng = np.random.default_rng(2)
    names = np.repeat(["AAE", "WHE"], [count // 4, count - count // 4])
    vectors = rng.normal(size=(count, 8))
    vectors[:, 0] += np.where(names == "AAE", 1.5, -1.5)
    return LabelledData("tweets", vectors, {"dialect": names}, tuple(map(str, range(count))), "ngrams/1")


def test_twitteraae_varies_the_size_at_the_sets_own_disparity_and_a_stand_in_says_so() -> None:
    settings = replace(twitteraae.DEFAULTS, repetitions=2, labels=40, size=10, collection=80, sizes=(10, 20))
    found = twitteraae.reproduce(dialects(), settings, stand_in=True)
    assert "stand-in, not TwitterAAE" in found.markdown()
    sizes = next(t for t in found.tables if t.name == "sizes")
    assert sizes.column("size") == [10, 20]
    assert sizes.column("true d") == pytest.approx([-0.826] * 2, abs=0.02)
    whole = twitteraae.reproduce(dialects(), replace(settings, repetitions=1))
    assert "stand-in" not in whole.markdown()


def test_reproduce_twitteraae_takes_word_vectors_when_a_model_is_given(
    tmp_path: Path, monkeypatch: Any
) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    words = [f"word{letter}" for letter in "abcdefghij"]
    dialect = np.repeat([0, 1], 150)
    texts = [
        " ".join([*rng.choice(words[:7] if d else words[3:], size=6), f"name{i}", f"http://t.co/{i}"])
        for i, d in enumerate(dialect)
    ]
    aa = np.where(dialect == 0, 0.9, 0.05)
    parquet.write_table(pa.table({"text": texts, "aa": aa, "white": 0.95 - aa}), "tweets.parquet")
    lines = [f"{w} " + " ".join(f"{x:.4f}" for x in rng.normal(size=6)) for w in words]
    Path("words.txt").write_text(f"{len(words)} 6\n" + "\n".join(lines) + "\n")
    options = ("--repetitions", 1, "--labels", 40, "--size", 10, "--collection-size", 60, "--workers", 1)
    run("twitteraae", "--data", "tweets.parquet", "--model", tmp_path / "words.txt", "--no-cache", *options)
    document = json.loads(Path("results/twitteraae/results.json").read_text())
    assert document["settings"]["encoder"].startswith("word2vec/1 stopwords=on")
    told = "--repetitions 1 --labels 40 --size 10 --collection-size 60 --model words.txt"
    assert document["command"] == f"divscore reproduce twitteraae --data PATH {told}"
    refused = run("twitteraae", "--data", "tweets.parquet", "--vectors", "x.npy", code=2)
    assert "--vectors is for 'celeba'" in refused.stderr


# The real data


@pytest.fixture(scope="module")
def real() -> Results:
    if not PPB.exists():
        pytest.skip(f"the authors' PPB-2017 features are not at {PPB}")
    from divscore.paper.ppb_data import load_ppb

    settings = replace(ppb.DEFAULTS, repetitions=2, shares=(0.0, 0.5, 1.0), sizes=(20,))
    return ppb.reproduce(load_ppb(PPB), settings)


def test_the_papers_portraits_give_the_papers_gamma_and_the_authors_bound(real: Results) -> None:
    tables = {t.name: t for t in real.tables}
    gamma = {(row[0], row[1]): row[2] for row in tables["gamma"].rows}
    assert gamma["gender", "γ, all items, pairs with itself kept"] == pytest.approx(0.3544, abs=5e-5)
    assert gamma["skin tone", "γ, all items, pairs with itself kept"] == pytest.approx(0.0842, abs=5e-5)
    assert gamma["gender", "γ, all items"] == pytest.approx(0.3531, abs=5e-5)
    bound = {(row[0], row[1]): row[4:6] for row in tables["theorem"].rows}
    assert bound["skin tone", "as the authors' notebooks have it"] == pytest.approx((2.562, 61.1), abs=0.05)
    verdicts = dict(zip(tables["claims"].column("the paper says"), tables["claims"].column(""), strict=True))
    assert verdicts["γ is 0.35 (gender)"] == verdicts["γ is 0.08 (skin tone)"] == "agrees"
    assert verdicts["γ^(T) of adaptive control sets is 0.34 (skin tone)"] == "differs"


def test_on_the_papers_portraits_likelihood_is_far_ahead_of_the_papers_proposal(real: Results) -> None:
    cost = next(t for t in real.tables if t.name == "equal_cost")
    ratios = {(row[0], row[3]): row[6] for row in cost.rows}
    assert float(ratios["gender", "DivScore-Adaptive"] or 0) > 4
    assert float(ratios["skin tone", "DivScore-Adaptive"] or 0) > 3
    page = real.markdown()
    assert "DivScore, all 200 as drawn" in page
    assert "because a group of 500 is not always left" in page


def test_reproduce_twitteraae_on_the_stand_in(tmp_path: Path) -> None:
    if not TWEETS.exists():
        pytest.skip(f"the tweets are not at {TWEETS}")
    options = ("--repetitions", 1, "--each", 400, "--collection-size", 200, "--workers", 1, "--out", tmp_path)
    run("twitteraae", "--data", TWEETS, *options)
    document = json.loads((tmp_path / "results.json").read_text())
    assert document["settings"]["stand_in"] is True
    assert document["settings"]["encoder"].startswith("ngrams")
    errors = {row[1]: row[4] for row in document["tables"]["accuracy"]["rows"]}
    assert errors["likelihood, all 200 labels"] < 0.2


def test_fewer_examples_for_the_same_error() -> None:
    def at(method: str, size: int, error: float) -> Point:
        return Point("size", "tone", size, method, 5, 0, 0.0, 0.0, 0.0, 0.0, error, error, None)

    ahead = [at("adaptive", 10, 0.2), at("adaptive", 20, 0.1), at("adaptive", 30, 0.3)]
    behind = [at("random-balanced", 10, 0.5), at("random-balanced", 20, 0.3), at("random-balanced", 30, 0.11)]
    claim = smaller_sets(ahead + behind, "tone", "here")
    assert claim.agrees
    assert "0.110, the lowest error that both reach: 20 examples against 30" in claim.measured
    swapped = [
        replace(p, method="adaptive" if p.method != "adaptive" else "random-balanced") for p in ahead + behind
    ]
    assert not smaller_sets(swapped, "tone", "here").agrees
