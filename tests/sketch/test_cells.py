from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from divscore.sketch.codes import FEW_COPIES, CellCounts, tally

# Close together, so that they are counted in a table, and far apart, so that they are sorted.
KEYS = st.lists(st.integers(0, 40), max_size=60) | st.lists(st.integers(0, 1 << 40), max_size=60)


def told(found: tuple[np.ndarray, np.ndarray]) -> dict[int, int]:
    keys, counts = found
    assert (np.diff(keys) > 0).all()
    return dict(zip(keys.tolist(), counts.tolist(), strict=True))


@given(KEYS)
def test_keys_are_counted(keys: list[int]) -> None:
    assert told(tally(np.array(keys, dtype=np.int64))) == Counter(keys)


@given(KEYS, st.sampled_from([1, FEW_COPIES, 1000]), st.booleans(), st.integers(0, 9))
def test_counts_are_summed(keys: list[int], most: int, negative: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(-most if negative else 1, most + 1, len(keys))
    expected: Counter[int] = Counter()
    for key, count in zip(keys, counts.tolist(), strict=True):
        expected[key] += count
    assert told(tally(np.array(keys, dtype=np.int64), counts)) == expected


@given(st.lists(KEYS, max_size=5), st.integers(0, 4))
def test_what_was_added_can_be_taken_away(parts: list[list[int]], gone: int) -> None:
    cells = CellCounts(1 << 40)
    for part in parts:
        cells.add(np.array(part, dtype=np.int64), np.ones(len(part), dtype=np.int64))
    left = [part for at, part in enumerate(parts) if at != gone]
    if gone < len(parts):
        cells.update(*tally(np.array(parts[gone], dtype=np.int64)), sign=-1)
    assert told((cells.keys, cells.counts)) == Counter(key for part in left for key in part)
