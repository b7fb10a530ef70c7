from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from conftest import draw_groups
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_sketch import (
    GROUPS,
    SEEDS,
    assert_same_audit,
    assert_same_state,
    audited_laws,
    control_of,
    items,
    overlap,
    sketch_of,
    spoilt,
)

from divscore.audit.audit import audit
from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray, unit_rows
from divscore.errors import InputError, MismatchError
from divscore.jobs.sketching import tabulate_blocks
from divscore.sketch.many import Sketches, SketchTable
from divscore.sketch.sketch import JOINT_ITEMS, REPLICATE_ITEMS

NAMES = [f"c{at}" for at in range(5000)]


def table_of(
    control: ControlSet, rows: FloatArray, owner: NDArray[np.intp], batches: int = 1, seed: int = 0
) -> Sketches:
    parts = zip(np.array_split(rows, batches), np.array_split(owner, batches), strict=True)
    return tabulate_blocks(((each, (NAMES, whose)) for each, whose in parts), control, seed=seed)


@given(SEEDS, GROUPS, st.integers(1, 40), st.integers(1, 5), st.integers(1, 3))
@audited_laws
def test_a_table_holds_what_a_sketch_for_each_would(
    seed: int, groups: int, owners: int, batches: int, parts: int
) -> None:
    control, rng = control_of(groups), np.random.default_rng(seed)
    rows = spoilt(seed, 3000, groups)
    owner = np.minimum(rng.geometric(0.15, size=len(rows)), owners) - 1  # large and small ones
    shares = [
        table_of(control, each, whose, batches).table
        for each, whose in zip(np.array_split(rows, parts), np.array_split(owner, parts), strict=True)
    ]
    table = Sketches(control)
    for share in shares:
        table.merge(pickle.loads(pickle.dumps(share)))
    found = table.sketches()
    assert set(found) == {NAMES[at] for at in owner}
    for at in np.unique(owner):
        assert_same_state(found[NAMES[at]], sketch_of(control, rows[owner == at]))


@pytest.mark.parametrize("groups", [2, 3])
def test_collections_in_a_table_may_be_large(groups: int) -> None:
    control, rows = control_of(groups), items(1, 90_000, groups)
    owner = (np.arange(len(rows)) % 10 == 0).astype(np.intp)
    found = table_of(control, rows, owner, batches=7).sketches()
    for at in (0, 1):
        alone = sketch_of(control, rows[owner == at])
        assert_same_state(found[NAMES[at]], alone, tolerance=1e-9 * alone.count)
        assert found[NAMES[at]].replicate_cells.items <= REPLICATE_ITEMS
    assert found["c0"].cells.floor == (1 if groups > 2 else 0)
    assert_same_audit(audit(found["c0"], control), audit(rows[owner == 0], control))


@pytest.mark.parametrize("groups", [2, 3])
def test_copies_take_no_room_in_a_table(groups: int) -> None:
    control, few = control_of(groups), items(4, 30, groups)
    rows = np.repeat(few, 3000, axis=0)
    owner = np.arange(len(rows)) % 3
    table = table_of(control, rows, owner, batches=9)
    assert table.table._store.used < 20_000
    found = table.sketches()
    for at in range(3):
        assert_same_state(found[NAMES[at]], sketch_of(control, rows[owner == at]), tolerance=1e-9 * len(rows))
        assert len(found[NAMES[at]].replicate_cells.settled()[0]) <= 1024
    assert len(rows) / 3 < JOINT_ITEMS


def test_a_general_similarity_in_a_table() -> None:
    vectors, names = draw_groups(0, [8, 8])
    control = ControlSet(vectors, names, attribute="letter", similarity=overlap)
    rows, owner = spoilt(1, 300), np.random.default_rng(0).integers(6, size=300)
    found = table_of(control, rows, owner, batches=3).sketches()
    for at in range(6):
        assert_same_state(found[NAMES[at]], sketch_of(control, rows[owner == at]))


def test_sketches_of_a_table_go_their_own_way() -> None:
    control, rows = control_of(2), items(0, 400)
    owner = np.arange(400) % 4
    found = table_of(control, rows, owner).sketches()
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


@given(SEEDS, st.integers(2, 4))
@audited_laws
def test_collections_may_turn_up_one_after_the_other(seed: int, workers: int) -> None:
    """Blocks on the way have their places in the table before those that came first are counted in."""
    control, rng = control_of(2), np.random.default_rng(seed)
    sizes = rng.integers(1, 30, 8).cumsum()
    blocks = [(spoilt(seed + at, 200, 2), rng.integers(0, size, 200)) for at, size in enumerate(sizes)]
    tables = [
        tabulate_blocks([(rows, (NAMES, owner)) for rows, owner in blocks], control, workers=each)
        for each in (1, workers)
    ]
    one, several = (table.sketches() for table in tables)
    assert list(one) == list(several)
    rows, owner = (np.concatenate(each) for each in zip(*blocks, strict=True))
    for name, sketch in one.items():
        assert_same_state(several[name], sketch, tolerance=0)
        assert_same_state(sketch, sketch_of(control, rows[owner == NAMES.index(name)]))


def test_a_table_that_was_counted_in_stays_as_it_is() -> None:
    control, rows, owner = control_of(2), items(0, 400), np.arange(400) % 4
    first = table_of(control, rows, owner).table
    kept = pickle.dumps(first)
    joined = SketchTable(first.shape)
    for table in (first, table_of(control, items(1, 400), owner).table):
        joined.merge(table)
    assert pickle.dumps(first) == kept


def test_what_a_table_refuses() -> None:
    control, rows = control_of(2), items(0, 40)
    owner = np.arange(40) % 4
    table = table_of(control, rows, owner)
    with pytest.raises(MismatchError, match="different control sets or seeds"):
        table.merge(table_of(control, rows, owner, seed=1).table)
    with pytest.raises(MismatchError, match="different control sets or seeds"):
        Sketches(control).merge(table_of(control_of(3), rows, owner).table)
    table.sketches()
    with pytest.raises(InputError, match="handed out"):
        table.merge(table_of(control, rows, owner).table)


def test_a_name_that_occurs_twice_is_one_collection() -> None:
    control, rows = control_of(2), items(0, 60)
    found = tabulate_blocks([(rows, (["x", "y", "x"], np.arange(60) % 3))], control).sketches()
    assert_same_state(found["x"], sketch_of(control, rows[np.arange(60) % 3 != 1]))
    assert_same_state(found["y"], sketch_of(control, rows[1::3]))


def test_sums_of_many_collections_in_single_precision() -> None:
    vectors, names = draw_groups(0, [20, 20], d=50)
    control = ControlSet(vectors, names, attribute="letter")
    rows = items(1, 70_000, d=50).astype(np.float32)
    owner = np.minimum(np.random.default_rng(0).geometric(0.002, size=len(rows)), 3000) - 1
    found = table_of(control, rows, owner).sketches()
    assert len(found) > 2000
    for name, sketch in found.items():
        units = unit_rows(rows[owner == int(name[1:])])
        # A length is known to single precision; the errors of several items are independent.
        np.testing.assert_allclose(sketch.mean, units.mean(axis=0), rtol=0, atol=1e-7 / np.sqrt(len(units)))


def test_memory_of_thousands_of_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 4 << 20
    monkeypatch.setattr("divscore.sketch.codes.SLAB", 1 << 20)
    monkeypatch.setattr("divscore.sketch.codes.IN_MEMORY", limit)
    control, owners, each = control_of(2), 4000, 25
    rng = np.random.default_rng(0)
    _ = control_of(2), Sketches(control)

    def blocks():  # type: ignore[no-untyped-def]
        for at in range(10):
            yield (
                items(at, owners * each // 10).astype(np.float32),
                (NAMES, rng.integers(owners, size=owners * each // 10)),
            )

    tracemalloc.start()
    found = tabulate_blocks(blocks(), control).sketches()
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(sketch.count for sketch in found.values()) == owners * each
    # A collection: an object and its parts, sums (D), levels (25), cells (≤ 25 × 16 bytes) and slots.
    assert held < limit + owners * 5000
    assert peak < held + 30e6  # blocks of 10,000 rows, and their scores in the making
    plain = owners * each * 201 * 8  # what a key of eight bytes for each code would take
    assert held < plain / 5


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
def test_a_process_stays_small_with_ten_thousand_collections() -> None:
    code = """
import numpy as np
from divscore import ControlSet
from divscore.jobs.sketching import tabulate_blocks
rng = np.random.default_rng(0)
control = ControlSet(rng.normal(size=(60, 64)) + np.repeat([[0.3], [-0.3]], 30, axis=0), ["a", "b"] * 30, attribute="x")
names = [f"c{i}" for i in range(10_000)]
def blocks(n):
    for _ in range(n):
        yield rng.standard_normal((50_000, 64), dtype=np.float32), (names, rng.integers(10_000, size=50_000))
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
tabulate_blocks(((rows, None) for rows, _ in blocks(2)), control).sketches()
before = peak()
found = tabulate_blocks(blocks(30), control).sketches()
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
    # 1.5 million items have 302 MB of codes, of which 32 MB stay in memory (twice that at the end).
    assert after - before < 300
