"""Thousands of collections in one pass: the same sketches and audits, whoever does the work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import invoke
from conftest import draw_groups
from numpy.typing import NDArray
from plainshell import numbers

from divscore import ControlSet, Sketch
from divscore.audit.audit import audit
from divscore.audit.change import IDENTICAL, compare_documents
from divscore.audit.document import document, parse_document
from divscore.control.similarity import Similarity
from divscore.errors import InputError, MismatchError
from divscore.jobs import auditing, sketching
from divscore.jobs.auditing import audit_many
from divscore.jobs.engine import Engine
from divscore.jobs.sketching import sketch_source
from divscore.sketch import scan as scan_module
from divscore.sketch import sketch as sketch_module
from divscore.sketch.many import sketch_blocks
from divscore.sketch.scorer import scorer_for
from divscore.sources import arrow, open_table
from divscore.text import as_json

D = 12


@pytest.fixture(scope="module")
def control() -> ControlSet:
    vectors, groups = draw_groups(3, [60, 60], d=D, gap=2.0)
    return ControlSet(vectors, groups, attribute="letter")


def people(seed: int, sizes: list[int], shares: list[float]) -> tuple[Any, NDArray[np.intp]]:
    """Rows of collections of such sizes, with such shares of the first group, mixed."""
    rng = np.random.default_rng(seed)
    rows = [
        draw_groups(int(rng.integers(2**31)), [round(n * p), n - round(n * p)], d=D, gap=2.0)[0]
        for n, p in zip(sizes, shares, strict=True)
    ]
    order = rng.permutation(sum(sizes))
    return np.concatenate(rows)[order].astype(np.float32), np.repeat(np.arange(len(sizes)), sizes)[order]


def sketches_of(control: ControlSet, rows: Any, owner: NDArray[np.intp], seed: int = 0) -> dict[str, Sketch]:
    names, scorer = [f"c{at}" for at in range(int(owner.max()) + 1)], scorer_for(control, seed)
    return sketch_blocks([(rows, (names, owner))], control, scorer).sketches(control, scorer)


@pytest.fixture
def feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two Parquet files with 300 collections of about ten items, in several partitions."""
    rows, owner = people(6, [10] * 300, list(np.random.default_rng(6).random(300)))
    monkeypatch.setattr(arrow, "PIECE_ROWS", 400)
    names = np.array([f"user {at}" for at in range(300)])[owner]
    for at in (0, 1):
        half = slice(1500 * at, 1500 * (at + 1))
        table = pa.table({"embedding": list(rows[half]), "user": names[half]})
        pq.write_table(table, tmp_path / f"{at}.parquet", row_group_size=200)
    return tmp_path


def write_control(path: Path, control: ControlSet) -> None:
    np.savez(path, embedding=control.vectors, letter=np.array(control.groups)[control.labels])


@pytest.mark.parametrize("groups", [2, 3])
def test_every_engine_gives_the_same_bits(feed: Path, groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process partitions are merged as they were scanned, from another process as tables."""
    vectors, names = draw_groups(3, [40] * groups, d=D, gap=2.0)
    control = ControlSet(vectors, names, attribute="letter")

    def state(**options: Any) -> dict[str, list[bytes]]:
        source = open_table(str(feed / "*.parquet"), extra=["user"])
        done = sketch_source(source, control, by="user", **options)
        assert done.partitions == 8
        return {name: numbers(sketch) for name, sketch in done.sketches.items()}

    alone = state()
    assert len(alone) == 300
    assert state(workers=2) == alone
    with Engine(2, processes=True) as engine:
        assert state(engine=engine) == alone
    monkeypatch.setattr(scan_module, "SINGLE", 1_000)  # sums in single precision
    single = state()
    assert single != alone
    assert state(workers=2) == single
    monkeypatch.setattr(sketching, "MOST_PART_ROWS", 0)
    assert state() == single


def test_audits_are_the_same_whoever_makes_them(control: ControlSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "BATCH", 4)
    rows, owner = people(7, [15, 3, 60, 40, 8, 700, 20, 1, 31], [0.4] * 9)
    sketches = sketches_of(control, rows, owner, seed=3)
    expected = [
        audit(sketch, control, name=name).to_dict(replicates=True) for name, sketch in sketches.items()
    ]
    with Engine(1) as engine:
        again = audit_many(sketches, control, engine=engine)
        assert [each.to_dict(replicates=True) for each in again] == expected
        assert list(audit_many({}, control, engine=engine)) == []
    with Engine(2, processes=True) as engine:
        results = list(audit_many(sketches, control, engine=engine))
        assert [each.to_dict(replicates=True) for each in results] == expected
        assert all(each.control is control and each.seed == 3 for each in results)
        wide = audit_many(sketches, control, engine=engine, estimator="divscore", confidence=0.8)
        assert {(each.estimator, each.confidence) for each in wide} == {("divscore", 0.8)}


def test_the_command_audits_thousands_in_processes(
    feed: Path, control: ControlSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_control(tmp_path / "c.npz", control)
    monkeypatch.setattr(auditing, "WORTH_PROCESSES", 200)
    calls: list[bool] = []

    def watched(*arguments: Any, engine: Engine, **options: Any) -> Any:
        calls.append(engine.inline)
        return audit_many(*arguments, engine=engine, **options)

    monkeypatch.setattr(auditing, "audit_many", watched)
    documents = []
    for workers in ("1", "2"):
        options = ("--attribute", "letter", "--by", "user", "--workers", workers, "--json", "-")
        done = invoke("audit", str(feed / "*.parquet"), "--control", str(tmp_path / "c.npz"), *options)
        assert done.exit_code == 0, done.stderr
        documents.append(json.loads(done.stdout))
    assert len(calls) == 2
    assert not calls[1]
    assert documents[0] == documents[1]
    assert len(documents[0]["collections"]) == 300


def test_sketches_that_do_not_belong_together_are_refused(control: ControlSet) -> None:
    rows, owner = people(7, [15, 30], [0.4, 0.5])
    own, other = (sketches_of(control, rows, owner, seed) for seed in (0, 1))
    vectors, groups = draw_groups(4, [60, 60], d=D, gap=2.0)
    foreign = ControlSet(vectors, groups, attribute="letter")
    with Engine(1) as engine:
        with pytest.raises(MismatchError, match="c0 was made with another control set"):
            list(audit_many(own, foreign, engine=engine))
        with pytest.raises(MismatchError, match="b has a different seed than the first"):
            list(audit_many({"a": own["c0"], "b": other["c1"]}, control, engine=engine))


def test_a_similarity_that_cannot_be_sent_is_refused(control: ControlSet) -> None:
    similarity = Similarity("mine", lambda left, right: np.exp(left @ right.T / 100))
    groups = np.array(control.groups)[control.labels]
    chosen = ControlSet(control.vectors, groups, attribute="letter", similarity=similarity)
    sketches = sketches_of(chosen, *people(7, [15, 30], [0.4, 0.5]))
    with Engine(2, processes=True) as engine, pytest.raises(InputError, match="cannot be sent"):
        list(audit_many(sketches, chosen, engine=engine))
    with Engine(1) as engine:
        assert len(list(audit_many(sketches, chosen, engine=engine))) == 2


def documented(control: ControlSet, sketches: dict[str, Sketch]) -> Any:
    audits = [audit(sketch, control, name=name) for name, sketch in sketches.items()]
    return parse_document(as_json(document(audits, replicates=True)))


def test_unchanged_collections_are_recognised_though_others_changed(control: ControlSet) -> None:
    rows, owner = people(8, [300] * 12, list(np.random.default_rng(8).random(12)))
    more, _ = people(9, [900], [0.9])
    before = documented(control, sketches_of(control, rows, owner))
    with pytest.MonkeyPatch.context() as patch:  # the new collection makes all samples smaller
        patch.setattr(sketch_module, "BUDGET", 1_000 * (D + 24))
        later = np.concatenate([more, rows]), np.concatenate([np.full(len(more), 12), owner])
        after = documented(control, sketches_of(control, *later))
    same = compare_documents(before, after)
    assert len(same.changes) == 12
    assert {change.interval.method for change in same.changes} == {IDENTICAL}
    assert same.new == ("c12",)
    assert any("based on small samples" in note for note in same.notes)
    # One item in place of another is a change, whatever the counts.
    swapped = rows.copy()
    swapped[np.flatnonzero(owner == 7)[0]] *= -1
    moved = compare_documents(before, documented(control, sketches_of(control, swapped, owner)))
    assert [c.name for c in moved.changes if c.interval.method != IDENTICAL] == ["c7"]
    assert not any("small samples" in note for note in moved.notes)


def test_collections_without_a_usable_vector_are_an_error(control: ControlSet, tmp_path: Path) -> None:
    write_control(tmp_path / "c.npz", control)
    table = pa.table({"embedding": list(np.full((20, D), np.nan, np.float32)), "user": ["x", "y"] * 10})
    pq.write_table(table, tmp_path / "none.parquet")
    options = ("--control", str(tmp_path / "c.npz"), "--attribute", "letter", "--by", "user")
    done = invoke("audit", str(tmp_path / "none.parquet"), *options)
    assert done.exit_code == 2
    assert "usable vector" in done.stderr
