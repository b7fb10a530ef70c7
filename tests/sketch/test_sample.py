"""Bottom-k samples depend on the items alone: not on order, split or merging."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from divscore.errors import InputError
from divscore.sketch.sample import TOP, RowHash, Sample

WIDTH, OWNERS, K = 6, 20, 16
SEEDS = st.integers(0, 2**32 - 1)
laws = settings(max_examples=30, deadline=None)

Drawn = tuple[NDArray[np.intp], NDArray[np.uint64], NDArray[np.uint8], NDArray[np.float32]]


def draw(seed: int, n: int, copies: int = 0, collisions: bool = False) -> Drawn:
    """Items of some owners, some of them copies; with collisions, different items share their hashes."""
    rng = np.random.default_rng(seed)
    owner = rng.integers(OWNERS, size=n)
    hashes = rng.integers(0, 40 if collisions else 2**63, size=n, dtype=np.uint64) * np.uint64(2)
    rows = rng.integers(3 if collisions else 256, size=(n, WIDTH), dtype=np.uint8)
    again = np.concatenate([np.arange(n), rng.integers(n, size=copies if n else 0)])
    return owner[again], hashes[again], rows[again], np.ones(len(again), dtype=np.float32)


def filled(items: Drawn, order: NDArray[np.intp], batch: int = 50, room: int | None = None) -> Sample:
    sample = Sample(WIDTH, OWNERS, k=K, least=4, room=room)
    for start in range(0, len(order), batch):
        sample.add(*(column[order[start : start + batch]] for column in items))
    return sample


def state(sample: Sample) -> tuple[object, ...]:
    items = sample.items()
    columns = tuple(items[name].tobytes() for name in ("owner", "hash", "copies", "step"))
    return sample.k, sample.limit.tobytes(), sample.rows().tobytes(), *columns


@given(SEEDS, st.integers(0, 600), st.integers(0, 200), st.booleans(), st.sampled_from([None, 150]))
@laws
def test_order_and_split_do_not_matter(
    seed: int, n: int, copies: int, collisions: bool, room: int | None
) -> None:
    items = draw(seed, n, copies, collisions)
    rng = np.random.default_rng(seed)
    order = np.arange(len(items[1]))
    whole = filled(items, order, len(order) + 1, room)
    assert state(filled(items, rng.permutation(order), 37, room)) == state(whole)
    joined = Sample(WIDTH, OWNERS, k=K, least=4, room=room)
    for part in np.array_split(rng.permutation(order), 4):
        other = filled(items, part, 90, room)
        joined.merge(pickle.loads(pickle.dumps(other)) if seed % 2 else other, np.arange(OWNERS))
    assert state(joined) == state(whole)
    assert state(whole.take(np.arange(OWNERS))) == state(whole)


@given(SEEDS, st.integers(1, 400), st.integers(0, 200), st.booleans())
@laws
def test_a_sample_has_every_item_below_its_limit(seed: int, n: int, copies: int, collisions: bool) -> None:
    owner, hashes, rows, _ = items = draw(seed, n, copies, collisions)
    sample = filled(items, np.arange(len(hashes)))
    for each in range(OWNERS):
        part = sample.of(each)
        mine = Counter(
            (int(h), row.tobytes())
            for o, h, row in zip(owner, hashes, rows, strict=True)
            if o == each and int(h) < part.limit
        )
        there = zip(part.hash.tolist(), map(bytes, part.rows), part.copies.tolist(), strict=True)
        assert {(h, row): n for h, row, n in there} == mine
        different = {
            (int(h), row.tobytes()) for o, h, row in zip(owner, hashes, rows, strict=True) if o == each
        }
        assert part.complete == (len(different) <= K)
        assert len(part) <= K
        if not collisions:
            assert len(part) == min(len(different), K)


@given(SEEDS, st.integers(0, 300), st.integers(0, 300), st.booleans())
@laws
def test_removing_leaves_the_sample_of_the_rest(seed: int, n: int, gone: int, collisions: bool) -> None:
    items = draw(seed, n + gone, 40, collisions)
    total = len(items[1])
    sample = filled(items, np.arange(total))
    sample.items()
    expected = filled(items, np.arange(gone, total))
    expected.lower(sample.limit, np.arange(OWNERS))
    part = tuple(column[:gone] for column in items)
    below = part[1] < sample.limit[part[0]]
    sample.add(*(column[below] for column in part), sign=-1)
    assert state(sample) == state(expected)


def test_what_was_never_added_cannot_be_removed() -> None:
    items = draw(0, 50)
    for wrong in (draw(1, 5), tuple(np.repeat(column[:1], 2, axis=0) for column in items)):
        with pytest.raises(InputError, match="never added"):
            filled(items, np.arange(50)).add(*wrong, sign=-1)


def test_two_vectors_with_one_hash_do_not_depend_on_order() -> None:
    hashes = np.array([7, 7, 7], dtype=np.uint64)
    rows = np.array([[2] * WIDTH, [1] * WIDTH, [2] * WIDTH], dtype=np.uint8)
    step = np.array([1.0, 1.0, 0.5], dtype=np.float32)
    found = []
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        sample = Sample(WIDTH)
        for at in order:
            sample.add(np.zeros(1), hashes[at : at + 1], rows[at : at + 1], step[at : at + 1])
        found.append(state(sample))
        assert sample.of(0).copies.tolist() == [1, 2]
        assert sample.of(0).rows[:, 0].tolist() == [1, 2]
    assert len(set(found)) == 1


def test_a_sample_knows_what_it_represents() -> None:
    n = 20_000
    _, hashes, rows, step = draw(0, n)
    sample = Sample(WIDTH)
    sample.add(np.zeros(n), hashes, rows, step)
    part = sample.of(0)
    assert len(part) == 512
    assert not part.complete
    # The sampled part of n items is 512 ± √512, five standard errors.
    assert part.represented == pytest.approx(n, rel=5 / np.sqrt(512))
    assert part.effective == 512
    few = Sample(WIDTH)
    few.add(np.zeros(3), hashes[:3], rows[:3], step[:3], np.array([98, 1, 1]))
    assert few.of(0).limit == int(TOP)
    assert few.of(0).effective == pytest.approx(1.04, abs=0.01)


KINDS = ("dense", "rounded", "sparse", "binary", "constant columns", "one dimension")


def examples(kind: str, n: int, seed: int = 0) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 1 if kind == "one dimension" else 61)).astype(np.float32)
    if kind == "rounded":
        rows = np.rint(rows * 20).astype(np.float32)
    elif kind == "sparse":
        rows[rng.random(rows.shape) < 0.7] = 0.0
    elif kind == "binary":
        rows = np.sign(rows)
    elif kind == "constant columns":
        rows[:, ::2] = 1.0
    return rows


@pytest.mark.parametrize("kind", KINDS)
def test_different_vectors_have_different_hashes(kind: str) -> None:
    rows = np.unique(examples(kind, 20_000, 1), axis=0)
    row_hash = RowHash.of(examples(kind, 200))
    hashes = row_hash.mixed(rows[:, row_hash.words])
    assert len(np.unique(hashes)) >= len(rows) - 2
    # Uniform: the smallest of n hashes are a random sample.
    assert np.mean(hashes < 2**63) == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(len(rows)))
    if kind == "dense":
        assert len(row_hash.factors) == 4


def test_a_hash_depends_on_the_row_alone() -> None:
    rows = examples("sparse", 500)
    row_hash = RowHash.of(rows[:200])
    hashes = row_hash.mixed(rows[:, row_hash.words])
    for at in (0, 3, 499):
        assert row_hash.mixed(rows[at : at + 1, row_hash.words])[0] == hashes[at]
    negative = np.where(rows == 0, np.float32(-0.0), rows)
    np.testing.assert_array_equal(row_hash.mixed(negative[:, row_hash.words]), hashes)
    assert RowHash.of(np.ones((5, 3))).factors.size == 3
