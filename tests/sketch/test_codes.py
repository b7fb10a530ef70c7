from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_sketch import control_of, items

from divscore.control.similarity import unit_rows
from divscore.errors import FileError, InputError
from divscore.sketch.codes import COPIES, CodeRows, CodeStore
from divscore.sketch.scorer import scorer_for

ROWS, SCORES, SIDE = 3, 2, 4
SEEDS = st.integers(0, 2**32 - 1)
laws = settings(max_examples=60, deadline=None)

Plain = Counter[tuple[int, ...]]  # level and codes of an item, and how many such there are


def draw(seed: int, n: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Items of so few kinds that many are copies."""
    rng = np.random.default_rng(seed)
    level = rng.geometric(0.5, size=n).astype(np.uint8) - np.uint8(1)
    return level, rng.integers(0, 2, size=(n, ROWS * SCORES), dtype=np.uint8) * np.uint8(SIDE - 1)


def plain(level: NDArray[np.uint8], codes: NDArray[np.uint8]) -> Plain:
    return Counter(tuple(row) for row in np.column_stack([level, codes]).tolist())


def assert_holds(rows: CodeRows, expected: Plain) -> None:
    """Compare with a plain count of items, and the cells with a plain count of those."""
    expected = Counter({item: n for item, n in expected.items() if n and item[0] >= rows.floor})
    level, codes, times = rows.settled()
    found: Plain = Counter()
    for item, n in zip(np.column_stack([level, codes]).tolist(), times.tolist(), strict=True):
        found[tuple(item)] += n
    assert found == expected
    assert rows.items == sum(expected.values())
    cells: Counter[int] = Counter()
    for (at, *steps), n in expected.items():
        for row in range(ROWS):
            cell = steps[row * SCORES] * SIDE + steps[row * SCORES + 1]
            cells[(at * ROWS + row) * SIDE**SCORES + cell] += n
    assert dict(zip(rows.keys.tolist(), rows.counts.tolist(), strict=True)) == cells
    dense = rows.dense()
    for row in range(ROWS):
        here, counts = rows.table(row)
        np.testing.assert_array_equal(dense[row][here], counts)
        assert dense[row].sum() == counts.sum() == rows.items


@given(SEEDS, st.lists(st.sampled_from(["add", "remove", "merge", "subtract", "floor", "copy", "pickle"])))
@laws
def test_code_rows_are_a_plain_count_of_items(seed: int, steps: list[str]) -> None:
    rows, expected = CodeRows(ROWS, SCORES, SIDE), Counter[tuple[int, ...]]()
    floor = 0
    for at, step in enumerate(steps):
        level, codes = draw(seed + at, 40)
        other = CodeRows(ROWS, SCORES, SIDE)
        other.add(level, codes)
        if step in ("add", "merge"):
            rows.add(level, codes) if step == "add" else rows.merge(other)
            expected += plain(level, codes)
        elif step in ("remove", "subtract"):
            left = expected.copy()
            left.subtract(plain(level, codes))
            if all(n >= 0 for item, n in left.items() if item[0] >= floor):
                rows.remove(level, codes) if step == "remove" else rows.merge(other, -1)
                expected = left
            else:
                with pytest.raises(InputError, match="never added"):
                    rows.remove(level, codes) if step == "remove" else rows.merge(other, -1)
        elif step == "floor":
            floor = min(floor + 1, 3)
            rows.raise_floor(floor)
        else:
            rows = rows.copy() if step == "copy" else pickle.loads(pickle.dumps(rows))
        assert rows.floor == floor
        assert_holds(rows, expected)


def test_copies_are_brought_together() -> None:
    rows = CodeRows(ROWS, SCORES, SIDE)
    level, codes = draw(0, 50_000)
    for part in np.array_split(np.arange(50_000), 90):
        rows.add(level[part], codes[part])
    assert len(rows.settled()[0]) <= COPIES
    assert_holds(rows, plain(level, codes))
    rows.remove(level, codes)
    assert not len(rows.settled()[0])


def test_a_copy_does_not_follow() -> None:
    rows = CodeRows(ROWS, SCORES, SIDE)
    level, codes = draw(0, 100)
    rows.add(level, codes)
    clone = rows.copy()
    clone.remove(level[:50], codes[:50])
    clone.raise_floor(2)
    assert_holds(rows, plain(level, codes))
    assert_holds(clone, plain(level[50:], codes[50:]))


@pytest.mark.parametrize("groups", [2, 3, 4])
@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_codes_are_those_of_double_precision(groups: int, shift: float) -> None:
    replicates = scorer_for(control_of(groups)).replicates
    rows = items(5, 20_000, groups) + shift  # a shift makes single precision lose some digits
    scores = unit_rows(rows) @ replicates.weights[:-1] + replicates.weights[-1]
    half = replicates.grid.half
    steps = scores * (half / replicates.grid.reach).ravel()
    expected = np.clip(np.rint(steps), -half, half) + half
    # Within rounding of an edge either side is right.
    clear = np.abs(np.abs(steps - np.rint(steps)) - 0.5) > 1e-9
    found = replicates.codes(rows)
    np.testing.assert_array_equal(found[clear], expected[clear])
    np.testing.assert_array_equal(replicates.codes(rows[::-1])[::-1], found)
    np.testing.assert_array_equal(replicates.codes(rows[777:778]), found[777:778])
    for scale in (2.0**-600, 2.0**600):
        np.testing.assert_array_equal(replicates.codes(rows[:500] * scale), found[:500])
    single = rows.astype(np.float32)
    np.testing.assert_array_equal(replicates.codes(single), replicates.codes(single.astype(float)))


def test_steps_near_an_edge_are_found_in_double_precision() -> None:
    # Vectors placed on the edge itself but for a millionth of a step, where single precision cannot tell.
    replicates = scorer_for(control_of(2)).replicates
    rng = np.random.default_rng(0)
    normal, constant = replicates.steps[0, :-1], replicates.steps[0, -1]
    length = np.linalg.norm(normal)
    rows, expected = [], []
    for edge in range(-20, 20):
        for side in (-1e-6, 1e-6):
            along = (edge + 0.5 + side - constant) / length
            across = rng.normal(size=len(normal))
            across -= (across @ normal) / length**2 * normal
            across *= np.sqrt(1 - along**2) / np.linalg.norm(across)
            rows.append(along * normal / length + across)
            expected.append(edge + (side > 0) + replicates.grid.half)
    np.testing.assert_array_equal(replicates.codes(np.array(rows))[:, 0], expected)


@given(SEEDS, st.lists(st.sampled_from(["put", "release", "sweep"]), max_size=12), st.booleans())
@laws
def test_a_store_is_a_plain_table_of_rows(seed: int, steps: list[str], spilt: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("divscore.sketch.codes.SLAB", 1000)
        patch.setattr("divscore.sketch.codes.IN_MEMORY", 2000 if spilt else 1 << 20)
        store, rng = CodeStore(7), np.random.default_rng(seed)
        expected: list[tuple[Any, ...]] = []
        for step in steps:
            if step == "put":
                n = int(rng.integers(0, 400))
                owner, level = rng.integers(5, size=n), rng.integers(4, size=n, dtype=np.uint8)
                codes, times = rng.integers(256, size=(n, 7), dtype=np.uint8), rng.integers(1, 9, size=n)
                store.put(owner, (level, codes, times))
                expected += zip(
                    owner.tolist(), level.tolist(), map(bytes, codes), times.tolist(), strict=True
                )
            elif step == "release":
                gone = int(rng.integers(5))
                slots, edges = store.by_owner(5)
                store.release(slots[edges[gone] : edges[gone + 1]])
                expected = [row for row in expected if row[0] != gone]
            else:
                floors = rng.integers(4, size=5)
                store.release(store.below(floors))
                expected = [row for row in expected if row[1] >= floors[row[0]]]
            slots, edges = store.by_owner(5)
            level, codes, times = store.take(slots)
            found = zip(
                store.owner[slots].tolist(), level.tolist(), map(bytes, codes), times.tolist(), strict=True
            )
            assert sorted(found) == sorted(expected)
            assert store.used == len(slots) == edges[-1]


def test_no_room_for_a_store_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("divscore.sketch.codes.IN_MEMORY", 0)
    monkeypatch.setattr("divscore.sketch.codes._reserve", full)
    with pytest.raises(FileError, match=r"No space left on device.*set TMPDIR"):
        CodeStore(7).put(
            np.zeros(1), (np.zeros(1, np.uint8), np.zeros((1, 7), np.uint8), np.ones(1, np.int64))
        )
