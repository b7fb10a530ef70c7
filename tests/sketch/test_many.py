from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import draw_groups
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sketches import (
    GROUPS,
    SEEDS,
    D,
    assert_same_audit,
    assert_same_state,
    audited_laws,
    control_of,
    items,
    on_threads,
    overlap,
    sketch_of,
    spoilt,
)

from divscore.audit.audit import audit
from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray, unit_rows
from divscore.errors import MismatchError
from divscore.sketch import sketch as sketch_module
from divscore.sketch.many import Sketches, sketch_blocks
from divscore.sketch.sample import ITEMS, LEAST_ITEMS
from divscore.sketch.scorer import scorer_for
from divscore.sketch.sketch import Origin, Sketch

NAMES = [f"c{at}" for at in range(5000)]


def table_of(
    control: ControlSet,
    rows: FloatArray,
    owner: NDArray[np.intp],
    batches: int = 1,
    seed: int = 0,
    workers: int = 1,
) -> Sketches:
    parts = zip(np.array_split(rows, batches), np.array_split(owner, batches), strict=True)
    stream = ((each, (NAMES, whose)) for each, whose in parts)
    return sketch_blocks(stream, control, scorer_for(control, seed), mapper=on_threads(workers))


def sketches_of(control: ControlSet, table: Sketches) -> dict[str, Sketch]:
    return table.sketches(control, scorer_for(control))


@given(SEEDS, GROUPS, st.integers(1, 40), st.integers(1, 5), st.integers(1, 3))
@audited_laws
def test_a_table_holds_what_a_sketch_for_each_would(
    seed: int, groups: int, owners: int, batches: int, parts: int
) -> None:
    control, rng = control_of(groups), np.random.default_rng(seed)
    rows = spoilt(seed, 3000, groups)
    owner = np.minimum(rng.geometric(0.15, size=len(rows)), owners) - 1  # large and small ones
    shares = [
        table_of(control, each, whose, batches)
        for each, whose in zip(np.array_split(rows, parts), np.array_split(owner, parts), strict=True)
    ]
    table = Sketches(Origin.of(control, 0))
    for share in shares:
        table.merge(pickle.loads(pickle.dumps(share)))
    found = sketches_of(control, table)
    assert set(found) == {NAMES[at] for at in owner}
    for at in np.unique(owner):
        assert_same_state(found[NAMES[at]], sketch_of(control, rows[owner == at]))


@pytest.mark.parametrize("groups", [2, 3])
def test_collections_in_a_table_may_be_large(groups: int) -> None:
    control, rows = control_of(groups), items(1, 90_000, groups)
    owner = (np.arange(len(rows)) % 10 == 0).astype(np.intp)
    found = sketches_of(control, table_of(control, rows, owner, batches=7))
    for at in (0, 1):
        alone = sketch_of(control, rows[owner == at])
        assert_same_state(found[NAMES[at]], alone, tolerance=1e-9 * alone.count)
        assert len(found[NAMES[at]].sample) == ITEMS
    assert_same_audit(audit(found["c0"], control), audit(rows[owner == 0], control))


@pytest.mark.parametrize("groups", [2, 3])
def test_copies_take_no_room_in_a_table(groups: int) -> None:
    control, few = control_of(groups), items(4, 30, groups)
    rows = np.repeat(few, 3000, axis=0)
    owner = np.arange(len(rows)) % 3
    table = table_of(control, rows, owner, batches=9)
    assert len(table.table.sample) == 90
    found = sketches_of(control, table)
    for at in range(3):
        assert_same_state(found[NAMES[at]], sketch_of(control, rows[owner == at]), tolerance=1e-9 * len(rows))


def test_a_general_similarity_in_a_table() -> None:
    vectors, names = draw_groups(0, [8, 8])
    control = ControlSet(vectors, names, attribute="letter", similarity=overlap)
    rows, owner = spoilt(1, 300), np.random.default_rng(0).integers(6, size=300)
    found = sketches_of(control, table_of(control, rows, owner, batches=3))
    for at in range(6):
        assert_same_state(found[NAMES[at]], sketch_of(control, rows[owner == at]))


def test_sketches_of_a_table_go_their_own_way() -> None:
    control, rows = control_of(2), items(0, 400)
    owner = np.arange(400) % 4
    found = sketches_of(control, table_of(control, rows, owner))
    kept = {name: sketch.copy() for name, sketch in found.items()}
    found["c0"].add(items(1, 900))
    found["c1"].remove(rows[owner == 1])
    found["c2"].merge(found["c3"])
    found["c2"].skip("empty", 2)
    assert_same_state(found["c3"], kept["c3"], tolerance=0)
    assert found["c1"].count == 0
    found["c2"].subtract(found["c3"])
    found["c2"].skip("empty", -2)
    assert_same_state(found["c2"], kept["c2"])
    assert_same_state(found["c0"], sketch_of(control, rows[owner == 0], items(1, 900)))


@pytest.mark.slow
@given(SEEDS, st.integers(2, 4))
@audited_laws
def test_collections_may_turn_up_one_after_the_other(seed: int, workers: int) -> None:
    """Blocks on the way have their places in the table before those that came first are counted in."""
    control, rng = control_of(2), np.random.default_rng(seed)
    sizes = rng.integers(1, 30, 8).cumsum()
    blocks = [(spoilt(seed + at, 200, 2), rng.integers(0, size, 200)) for at, size in enumerate(sizes)]
    stream = [(rows, (NAMES, owner)) for rows, owner in blocks]
    one, several = (
        sketches_of(control, sketch_blocks(stream, control, scorer_for(control), mapper=on_threads(each)))
        for each in (1, workers)
    )
    assert list(one) == list(several)
    rows, owner = (np.concatenate(each) for each in zip(*blocks, strict=True))
    for name, sketch in one.items():
        assert_same_state(several[name], sketch, tolerance=0)
        assert_same_state(sketch, sketch_of(control, rows[owner == NAMES.index(name)]))


def test_merging_leaves_the_other_as_it_is() -> None:
    control, rows, owner = control_of(2), items(0, 400), np.arange(400) % 4
    first, second = table_of(control, rows, owner), table_of(control, items(1, 400), owner)
    assert second.nbytes > 0  # nothing waits to be sorted
    kept = pickle.dumps(second)
    first.merge(second)
    assert pickle.dumps(second) == kept


def test_tables_of_other_seeds_or_control_sets_do_not_merge() -> None:
    control, rows = control_of(2), items(0, 40)
    owner = np.arange(40) % 4
    table = table_of(control, rows, owner)
    with pytest.raises(MismatchError, match="another control set or seed"):
        table.merge(table_of(control, rows, owner, seed=1))
    with pytest.raises(MismatchError, match="another control set or seed"):
        Sketches(Origin.of(control, 0)).merge(table_of(control_of(3), rows, owner))


@given(SEEDS, st.integers(1, 4), st.sampled_from([2, 3]))
@audited_laws
def test_samples_are_lowered_to_the_budget_whatever_the_order(seed: int, parts: int, groups: int) -> None:
    control, rng = control_of(groups), np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketch_module, "BUDGET", 3_000 * (D + 24))
        rows, owner = items(seed, 9_000, groups), rng.integers(15, size=9_000)
        whole = table_of(control, rows, owner, batches=3)
        mixed = rng.permutation(9_000)
        shuffled = table_of(control, rows[mixed], owner[mixed], batches=7, workers=2)
        joined = Sketches(Origin.of(control, 0))
        for some in np.array_split(mixed[::-1], parts):
            joined.merge(pickle.loads(pickle.dumps(table_of(control, rows[some], owner[some]))))
        assert whole.table.sample.k == 162  # 512, 384, 288, 216, 162: the first of which 15 fit
        assert len(whole.table.sample) == 15 * 162
        for other in (shuffled, joined):
            assert other.table.sample.k == 162
            left, right = sketches_of(control, whole), sketches_of(control, other)
            for name in left:
                assert_same_state(left[name], right[name])


def test_small_samples_are_reported() -> None:
    control, rows, owner = control_of(2), items(1, 9_000), np.arange(9_000) % 30
    usual = sketches_of(control, table_of(control, rows, owner))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketch_module, "BUDGET", 1_000 * (D + 24))
        table = table_of(control, rows, owner)
    assert table.table.sample.k == LEAST_ITEMS  # never less, even above the budget
    small = sketches_of(control, table)
    for name in list(usual)[:5]:
        expected, result = audit(usual[name], control), audit(small[name], control)
        assert result.shares == expected.shares
        assert result.disparity == expected.disparity
        assert expected.interval.method == "bayesian bootstrap"
        assert result.interval.method == "bayesian bootstrap, small sample"
        assert result.interval.width == pytest.approx(expected.interval.width, rel=0.4)
    few = sketches_of(control, table_of(control, rows[:600], owner[:600]))
    assert audit(few["c0"], control).interval.method == "bayesian bootstrap"


def test_a_name_that_occurs_twice_is_one_collection() -> None:
    control, rows = control_of(2), items(0, 60)
    table = sketch_blocks([(rows, (["x", "y", "x"], np.arange(60) % 3))], control, scorer_for(control))
    found = sketches_of(control, table)
    assert_same_state(found["x"], sketch_of(control, rows[np.arange(60) % 3 != 1]))
    assert_same_state(found["y"], sketch_of(control, rows[1::3]))


def test_sums_of_many_collections_in_single_precision() -> None:
    vectors, names = draw_groups(0, [20, 20], d=50)
    control = ControlSet(vectors, names, attribute="letter")
    rows = items(1, 70_000, d=50).astype(np.float32)
    owner = np.minimum(np.random.default_rng(0).geometric(0.002, size=len(rows)), 3000) - 1
    found = sketches_of(control, table_of(control, rows, owner))
    assert len(found) > 2000
    for name, sketch in found.items():
        units = unit_rows(rows[owner == int(name[1:])])
        # At most 64 items of a collection are summed in single precision.
        np.testing.assert_allclose(sketch.mean, units.mean(axis=0), rtol=0, atol=1e-7)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
def test_a_process_stays_small_with_ten_thousand_collections() -> None:
    code = """
import numpy as np
from divscore import ControlSet
from divscore.sketch import sketch
from divscore.sketch.many import sketch_blocks
from divscore.sketch.scorer import scorer_for
sketch.BUDGET = 40 << 20
rng = np.random.default_rng(0)
control = ControlSet(rng.normal(size=(60, 64)) + np.repeat([[0.3], [-0.3]], 30, axis=0), ["a", "b"] * 30, attribute="x")
names = [f"c{i}" for i in range(10_000)]
def blocks(n):
    for _ in range(n):
        yield rng.standard_normal((50_000, 64), dtype=np.float32), (names, rng.integers(10_000, size=50_000))
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
sketch_blocks(((rows, None) for rows, _ in blocks(2)), control, scorer_for(control))
before = peak()
found = sketch_blocks(blocks(30), control, scorer_for(control)).sketches(control, scorer_for(control))
print(before, peak(), len(found))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    before, after, count = map(float, done.stdout.split())
    assert count == 10_000
    # 64 items of 64 + 24 bytes a collection are 56 MB, sums 5 MB, and 1.5 million score cells of 16 bytes 24 MB.
    assert after - before < 260
