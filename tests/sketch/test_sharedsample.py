"""Thousands of collections with one sample for all their intervals."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from conftest import draw_groups
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_engines import fingerprints
from test_sketch import SEEDS, assert_same_cells, audited_laws, sketch_of

from divscore import ControlSet
from divscore.audit.audit import audit
from divscore.audit.change import IDENTICAL, compare_documents
from divscore.audit.document import as_text, document, parse_document
from divscore.cli import main
from divscore.control.similarity import Similarity, unit_rows
from divscore.errors import InputError, MismatchError
from divscore.estimators.checks import score_fit
from divscore.jobs import auditing as audits
from divscore.jobs import sketching as samples
from divscore.jobs.auditing import audit_many
from divscore.jobs.engine import Engine
from divscore.jobs.sketching import sketch_source, tabulate_blocks
from divscore.sketch.many import Sketches
from divscore.sketch.scan import TOGETHER, sums_of_many
from divscore.sketch.sketch import REPLICATE_ITEMS, SHARED_ITEMS, Sketch
from divscore.sources import arrow as tables
from divscore.sources import open_table

D = 12


@pytest.fixture(scope="module")
def control() -> ControlSet:
    vectors, groups = draw_groups(3, [60, 60], d=D, gap=2.0)
    return ControlSet(vectors, groups, attribute="letter")


def people(rng: np.random.Generator, sizes: list[int], shares: list[float]) -> tuple[Any, NDArray[np.intp]]:
    """Rows of collections of such sizes, with such shares of the first group, mixed."""
    rows = [
        draw_groups(int(rng.integers(2**31)), [round(n * p), n - round(n * p)], d=D, gap=2.0)[0]
        for n, p in zip(sizes, shares, strict=True)
    ]
    owner = np.repeat(np.arange(len(sizes)), sizes)
    order = rng.permutation(len(owner))
    return np.concatenate(rows)[order].astype(np.float32), owner[order]


def shared_table(control: ControlSet, rows: Any, owner: NDArray[np.intp], batches: int = 1) -> Sketches:
    names = [f"c{at}" for at in range(int(owner.max(initial=0)) + 1)]
    parts = zip(np.array_split(rows, batches), np.array_split(owner, batches), strict=True)
    return tabulate_blocks(((each, (names, whose)) for each, whose in parts), control, shared=True)


@given(SEEDS, st.integers(1, 3000), st.integers(1, 400), st.sampled_from([np.float32, np.float64]))
@audited_laws
def test_sums_of_rows_where_they_are(seed: int, rows: int, owners: int, dtype: type) -> None:
    rng = np.random.default_rng(seed)
    owner = np.minimum(rng.geometric(rng.uniform(0.003, 0.5), size=rows), owners) - 1
    block, weights = rng.normal(size=(rows, 5)).astype(dtype), rng.random(rows).astype(dtype)
    expected = np.zeros((owners, 5))
    np.add.at(expected, owner, weights[:, None].astype(float) * block)
    total = sums_of_many(block, weights, owner, owners)
    assert total.shape == expected.shape
    near = 1e-12 if dtype is np.float64 else 2e-7 * TOGETHER
    np.testing.assert_allclose(total, expected, rtol=near, atol=near)


def test_everything_but_the_sample_is_the_same(control: ControlSet) -> None:
    rng = np.random.default_rng(0)
    rows, owner = people(rng, [50, 7, 900, 300], [0.5, 0.3, 0.1, 1.0])
    rows[3], rows[10, 2] = 0.0, np.nan
    found = shared_table(control, rows, owner, batches=3).sketches()
    for at in range(4):
        mine, alone = found[f"c{at}"], sketch_of(control, rows[owner == at])
        assert mine.shared
        assert (mine.count, mine.skipped) == (alone.count, alone.skipped)
        assert_same_cells(mine.cells, alone.cells)
        np.testing.assert_allclose(mine.total, alone.total, rtol=0, atol=1e-9)
        told, expected = audit(mine, control), audit(alone, control)
        assert told.shares == expected.shares
        assert told.interval.method == "bayesian bootstrap, shared sample"
        assert expected.interval.method == "bayesian bootstrap"


def test_stand_ins_have_the_scores_and_the_means_of_the_collection(control: ControlSet) -> None:
    rng = np.random.default_rng(1)
    rows, owner = people(rng, [200, 40, 2000], [0.2, 0.9, 0.5])
    found = shared_table(control, rows, owner).sketches()
    replicates = found["c0"].scorer.replicates
    half = replicates.grid.half
    for at in range(3):
        level, codes, times = found[f"c{at}"].replicate_cells.settled()
        assert len(codes) == min(int((owner == at).sum()), REPLICATE_ITEMS)
        assert (times == 1).all()
        assert (level == 0).all()
        units = unit_rows(rows[owner == at].astype(float))
        steps = units @ replicates.steps[:, :-1].T + replicates.steps[:, -1]
        inside = (np.abs(steps) < half - 2).all(axis=0) & ((codes > 2) & (codes < 2 * half - 2)).all(axis=0)
        assert inside.sum() > 50
        means = codes.astype(float).mean(axis=0) - half
        # Codes are whole steps, of which there are 129: rounding moves a single one by half a step at most.
        np.testing.assert_allclose(means[inside], steps.mean(axis=0)[inside], atol=0.25)
        if len(codes) == len(steps):
            np.testing.assert_allclose(np.sort(codes[:, 0] - float(half)), np.sort(steps[:, 0]), atol=0.7)


def test_the_sample_is_bounded_and_the_same_however_the_rows_come(control: ControlSet) -> None:
    rng = np.random.default_rng(2)
    rows, owner = people(rng, [300] * 20, list(np.linspace(0, 1, 20)))
    rows = rows.astype(float)
    whole = shared_table(control, rows, owner)
    assert whole.table.sample is not None
    assert SHARED_ITEMS / 4 < whole.table.sample.items <= SHARED_ITEMS
    parts = Sketches(control, shared=True)
    for each, whose in zip(np.array_split(rows, 5), np.array_split(owner, 5), strict=True):
        parts.merge(pickle.loads(pickle.dumps(shared_table(control, each, whose, batches=2).table)))
    left, right = whole.sketches(), parts.sketches()
    assert set(left) == set(right)
    for name in left:
        assert_same_cells(left[name].replicate_cells, right[name].replicate_cells)


def test_tables_with_and_without_a_shared_sample_do_not_merge(control: ControlSet) -> None:
    rows, owner = people(np.random.default_rng(0), [20, 20], [0.5, 0.5])
    own = tabulate_blocks([(rows, (["c0", "c1"], owner))], control)
    with pytest.raises(MismatchError):
        own.merge(shared_table(control, rows, owner).table)


def test_such_sketches_can_only_be_audited(control: ControlSet, tmp_path: Path) -> None:
    rows, owner = people(np.random.default_rng(0), [20, 20], [0.5, 0.5])
    sketch = shared_table(control, rows, owner).sketches()["c0"]
    other = sketch_of(control, rows)
    for attempt in (
        lambda: sketch.add(rows),
        lambda: sketch.remove(rows[owner == 0]),
        lambda: sketch.merge(other),
        lambda: other.merge(sketch),
        lambda: other.subtract(sketch),
        lambda: sketch.save(tmp_path / "x.sketch"),
    ):
        with pytest.raises(InputError, match=r"share one sample.*samples='own'"):
            attempt()
    assert sketch.count == 20
    assert other.count == 40
    assert not list(tmp_path.iterdir())


def test_copies_of_few_items_cannot_be_told_with_a_shared_sample_either(control: ControlSet) -> None:
    rng = np.random.default_rng(5)
    few = [np.repeat(people(rng, [12], [0.5])[0], 100, axis=0) for _ in range(40)]
    rows, owner = np.concatenate(few), np.repeat(np.arange(40), 1200)
    own = tabulate_blocks([(rows, ([f"c{at}" for at in range(40)], owner))], control).sketches()
    for name, sketch in shared_table(control, rows, owner).sketches().items():
        assert (sketch.few_distinct, sketch.thinned) == (own[name].few_distinct, own[name].thinned)
        mine, alone = audit(sketch, control), audit(own[name], control)
        assert (mine.interval.method == "cannot tell") == (alone.interval.method == "cannot tell")
        assert [w for w in mine.warnings if "copies" in w] == [w for w in alone.warnings if "copies" in w]
    assert sum(sketch.few_distinct for sketch in own.values()) > 30


def intervals(control: ControlSet, rng: np.random.Generator) -> Iterator[tuple[float, Any, Any]]:
    """Truth, and audits with a shared and with an own sample, of many collections."""
    sizes = [int(n) for n in rng.integers(30, 400, size=40)]
    shares = [float(p) for p in rng.choice([0.0, 0.1, 0.3, 0.5, 0.8, 1.0], size=40)]
    rows, owner = people(rng, sizes, shares)
    for at, (name, sketch) in enumerate(sorted(shared_table(control, rows, owner).sketches().items())):
        at = int(name[1:])
        truth = 2 * round(sizes[at] * shares[at]) / sizes[at] - 1
        yield truth, audit(sketch, control), audit(rows[owner == at], control)


@pytest.mark.slow
def test_intervals_are_those_of_own_samples_and_cover_the_truth() -> None:
    covered, ratios = [], []
    for seed in range(12):
        vectors, groups = draw_groups(100 + seed, [30, 30], d=D, gap=2.0)
        control = ControlSet(vectors, groups, attribute="letter")
        for truth, shared, own in intervals(control, np.random.default_rng(seed)):
            assert shared.disparity == own.disparity
            covered.append(shared.interval.low - 1e-9 <= truth <= shared.interval.high + 1e-9)
            ratios.append(shared.interval.width / own.interval.width)
    assert np.mean(covered) > 0.93
    assert 0.97 < np.mean(ratios) < 1.03
    assert np.quantile(ratios, 0.05) > 0.85
    assert np.quantile(ratios, 0.95) < 1.15


def test_score_fit_hardly_changes_with_shared_simulations(control: ControlSet) -> None:
    rng = np.random.default_rng(4)
    sizes = [int(n) for n in rng.integers(60, 400, size=60)]
    rows, owner = people(rng, sizes, list(rng.random(60)))
    found = shared_table(control, rows, owner).sketches()
    apart = []
    for name, sketch in found.items():
        alone = score_fit(sketch_of(control, rows[owner == int(name[1:])]))
        mine = score_fit(sketch)
        assert mine.statistic == pytest.approx(alone.statistic)
        apart.append(abs(mine.p_value - alone.p_value))
    # 199 simulations leave a standard error of up to 0.05 in the difference of two p-values.
    assert np.mean(apart) < 0.05


# ------------------------------------------------------------------------------------------------ whole passes


@pytest.fixture
def feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two Parquet files with 300 collections of about ten items, in several partitions."""
    rng = np.random.default_rng(6)
    rows, owner = people(rng, [10] * 300, list(rng.random(300)))
    monkeypatch.setattr(tables, "PIECE_ROWS", 400)
    monkeypatch.setattr(samples, "FEWEST_ROWS", 3000)
    names = np.array([f"user {at}" for at in range(300)])[owner]
    for at in (0, 1):
        half = slice(1500 * at, 1500 * (at + 1))
        table = pa.table({"embedding": list(rows[half]), "user": names[half]})
        pq.write_table(table, tmp_path / f"{at}.parquet", row_group_size=200)
    return tmp_path


def passed(folder: Path, control: ControlSet, **options: Any) -> dict[str, Sketch]:
    return sketch_source(
        open_table(str(folder / "*.parquet"), extra=["user"]), control, by="user", **options
    ).sketches


def test_a_pass_shares_where_that_saves_much(
    feed: Path, control: ControlSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(each.shared for each in passed(feed, control, samples="auto").values())
    assert not any(each.shared for each in passed(feed, control).values())
    assert not any(each.shared for each in passed(feed, control, samples="own").values())
    monkeypatch.setattr(samples, "FEWEST_ROWS", 3001)
    assert not any(each.shared for each in passed(feed, control, samples="auto").values())
    assert all(each.shared for each in passed(feed, control, samples="shared").values())
    with pytest.raises(InputError, match="samples must be one of auto, own, shared"):
        passed(feed, control, samples="some")


def test_few_large_collections_have_samples_of_their_own(
    feed: Path, control: ControlSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "REPLICATE_ITEMS", 1)
    assert not any(each.shared for each in passed(feed, control, samples="auto").values())


def test_a_bad_file_in_front_decides_nothing(feed: Path, control: ControlSet) -> None:
    whole = (feed / "1.parquet").read_bytes()
    table = pq.read_table(feed / "0.parquet")
    pq.write_table(table, feed / "1.parquet", row_group_size=200)
    damaged = bytearray((feed / "0.parquet").read_bytes())
    damaged[4:20_000] = bytes(19_996)
    (feed / "0.parquet").write_bytes(damaged)
    (feed / "2.parquet").write_bytes(whole)
    found = sketch_source(
        open_table(str(feed / "*.parquet"), extra=["user"]), control, by="user", samples="auto"
    )
    assert found.missing
    assert all("0.parquet" in each.part for each in found.missing)
    assert all(each.shared for each in found.sketches.values())


def test_more_than_two_groups_do_not_share(feed: Path) -> None:
    vectors, groups = draw_groups(3, [20, 20, 20], d=D)
    control = ControlSet(vectors, groups, attribute="letter")
    assert not any(each.shared for each in passed(feed, control, samples="auto").values())
    with pytest.raises(InputError, match="two groups only, not 3"):
        passed(feed, control, samples="shared")


def test_without_collections_there_is_nothing_to_share(feed: Path, control: ControlSet) -> None:
    found = sketch_source(open_table(str(feed / "*.parquet")), control, samples="shared").sketches
    assert not any(each.shared for each in found.values())


def test_every_engine_gives_the_same_bits(feed: Path, control: ControlSet) -> None:
    def told(**options: Any) -> Any:
        source = open_table(str(feed / "*.parquet"), extra=["user"])
        found = sketch_source(source, control, by="user", samples="shared", **options)
        assert found.partitions == 8
        return dict(list(fingerprints(found, control).items())[:40])

    alone = told()
    assert told(workers=2) == alone
    with Engine(2, processes=True) as engine:
        assert told(engine=engine) == alone


def test_the_command_says_what_intervals_rest_on(feed: Path, control: ControlSet, tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", embedding=control.vectors, letter=np.array(control.groups)[control.labels])

    def methods(*options: str) -> set[str]:
        done = CliRunner().invoke(
            main,
            [
                "audit",
                str(feed / "*.parquet"),
                "--control",
                str(tmp_path / "c.npz"),
                "--attribute",
                "letter",
                "--by",
                "user",
                "--workers",
                "1",
                "--json",
                "-",
                *options,
            ],
        )
        assert done.exit_code == 0, done.stderr
        return {each["interval_method"] for each in json.loads(done.stdout)["collections"]}

    assert methods() == methods("--samples", "shared") == {"bayesian bootstrap, shared sample"}
    assert methods("--samples", "own") == {"bayesian bootstrap"}


@pytest.mark.parametrize("shared", [False, True])
def test_audits_are_the_same_whoever_makes_them(
    control: ControlSet, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audits, "BATCH", 4)
    rows, owner = people(np.random.default_rng(7), [15, 3, 60, 40, 8, 700, 20, 1, 31], [0.4] * 9)
    whose = [f"c{at}" for at in range(9)], owner
    sketches = tabulate_blocks([(rows, whose)], control, shared=shared, seed=3).sketches()
    expected = [audit(sketch, control, name=name) for name, sketch in sketches.items()]

    def told(found: Any) -> list[Any]:
        return [each.to_dict(replicates=True) for each in found]

    with Engine(1) as engine:
        assert told(audit_many(sketches, control, engine=engine)) == told(expected)
        assert list(audit_many({}, control, engine=engine)) == []
    with Engine(2, processes=True) as engine:
        found = list(audit_many(sketches, control, engine=engine))
        assert told(found) == told(expected)
        assert all(each.control is control and each.seed == 3 for each in found)
        wide = audit_many(sketches, control, engine=engine, estimator="divscore", confidence=0.8)
        assert {(each.estimator, each.confidence) for each in wide} == {("divscore", 0.8)}


def test_the_command_audits_thousands_in_processes(
    feed: Path, control: ControlSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "c.npz", embedding=control.vectors, letter=np.array(control.groups)[control.labels])
    monkeypatch.setattr(audits, "WORTH_PROCESSES", 200)
    seen = []
    monkeypatch.setattr(audits, "audit_many", lambda *a, **k: seen.append(1) or audit_many(*a, **k))
    documents = []
    for workers in ("1", "2"):
        done = CliRunner().invoke(
            main,
            [
                *("audit", str(feed / "*.parquet"), "--control", str(tmp_path / "c.npz")),
                *("--attribute", "letter", "--by", "user", "--workers", workers, "--json", "-"),
            ],
        )
        assert done.exit_code == 0, done.stderr
        documents.append(json.loads(done.stdout))
    assert len(seen) == 2
    assert documents[0] == documents[1]
    assert len(documents[0]["collections"]) == 300


def test_audits_of_sketches_that_do_not_belong_together_are_refused(control: ControlSet) -> None:
    rows, owner = people(np.random.default_rng(7), [15, 30], [0.4, 0.5])
    whose = ["c0", "c1"], owner
    own, other = (tabulate_blocks([(rows, whose)], control, seed=seed).sketches() for seed in (0, 1))
    shared = shared_table(control, rows, owner).sketches()
    vectors, groups = draw_groups(4, [60, 60], d=D, gap=2.0)
    foreign = ControlSet(vectors, groups, attribute="letter")
    with Engine(1) as engine:
        with pytest.raises(MismatchError, match="c0 was made with another control set"):
            list(audit_many(own, foreign, engine=engine))
        for mixed in ({"a": own["c0"], "b": other["c1"]}, {"a": own["c0"], "b": shared["c1"]}):
            with pytest.raises(MismatchError, match="b has another seed or sample than the first"):
                list(audit_many(mixed, control, engine=engine))


def test_audits_with_a_similarity_that_cannot_be_sent_say_so(control: ControlSet) -> None:
    similarity = Similarity("mine", lambda left, right: np.exp(left @ right.T / 100))
    chosen = ControlSet(
        control.vectors, np.array(control.groups)[control.labels], attribute="letter", similarity=similarity
    )
    rows, owner = people(np.random.default_rng(7), [15, 30], [0.4, 0.5])
    sketches = tabulate_blocks([(rows, (["c0", "c1"], owner))], chosen).sketches()
    with Engine(2, processes=True) as engine, pytest.raises(InputError, match="cannot be sent"):
        list(audit_many(sketches, chosen, engine=engine))
    with Engine(1) as engine:
        assert len(list(audit_many(sketches, chosen, engine=engine))) == 2


def test_unchanged_collections_are_the_same_items_though_others_changed(control: ControlSet) -> None:
    rng = np.random.default_rng(8)
    rows, owner = people(rng, [40] * 60, list(rng.random(60)))
    more, _ = people(rng, [300], [0.9])
    after = np.concatenate([more, rows]), np.concatenate([np.full(300, 60), owner])
    documents = []
    for vectors, whose in ((rows, owner), after):
        found = shared_table(control, vectors, whose).sketches()
        told = [audit(sketch, control, name=name) for name, sketch in found.items()]
        documents.append(parse_document(as_text(document(told, replicates=True))))
    same = compare_documents(*documents)
    assert len(same.changes) == 60
    assert {change.interval.method for change in same.changes} == {IDENTICAL}
    assert same.new == ("c60",)
    assert same.notes == ()
    # One item in place of another is a change, whatever the counts.
    swapped = rows.copy()
    swapped[np.flatnonzero(owner == 7)[0]] = -swapped[np.flatnonzero(owner == 7)[0]]
    told = [audit(s, control, name=n) for n, s in shared_table(control, swapped, owner).sketches().items()]
    later = parse_document(as_text(document(told, replicates=True)))
    moved = [c.name for c in compare_documents(documents[0], later).changes if c.interval.method != IDENTICAL]
    assert moved == ["c7"]


def test_a_change_of_samples_is_told(control: ControlSet) -> None:
    rows, owner = people(np.random.default_rng(9), [40, 60], [0.3, 0.6])
    own = tabulate_blocks([(rows, (["c0", "c1"], owner))], control).sketches()
    both = [
        parse_document(
            as_text(document([audit(s, control, name=n) for n, s in some.items()], replicates=True))
        )
        for some in (own, shared_table(control, rows, owner).sketches())
    ]
    found = compare_documents(*both)
    assert {change.interval.method for change in found.changes} == {IDENTICAL}
    assert any("--samples own" in note for note in found.notes)


def test_a_shared_sample_of_nothing_is_an_error(feed: Path, control: ControlSet, tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", embedding=control.vectors, letter=np.array(control.groups)[control.labels])
    sketch_of(control, people(np.random.default_rng(0), [50], [0.5])[0]).save(tmp_path / "x.sketch")
    asked = ("--control", str(tmp_path / "c.npz"), "--attribute", "letter", "--samples", "shared")
    for path, why in (
        (feed / "*.parquet", "give --by COLUMN"),
        (tmp_path / "x.sketch", "sketches have samples"),
    ):
        done = CliRunner().invoke(main, ["audit", str(path), *asked])
        assert done.exit_code == 2
        assert why in done.stderr


@pytest.mark.parametrize("ways", [(), ("--samples", "shared")])
def test_collections_without_a_usable_vector_are_an_error(
    control: ControlSet, tmp_path: Path, ways: tuple[str, ...]
) -> None:
    np.savez(tmp_path / "c.npz", embedding=control.vectors, letter=np.array(control.groups)[control.labels])
    table = pa.table({"embedding": list(np.full((20, D), np.nan, np.float32)), "user": ["x", "y"] * 10})
    pq.write_table(table, tmp_path / "none.parquet")
    asked = ("--control", str(tmp_path / "c.npz"), "--attribute", "letter", "--by", "user", *ways)
    done = CliRunner().invoke(main, ["audit", str(tmp_path / "none.parquet"), *asked])
    assert done.exit_code == 2
    assert "none.parquet has no item with a usable vector" in done.stderr
