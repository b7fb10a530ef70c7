"""Which items are drawn: at random or in pairs, each with the same chance, whoever reads which part."""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny
from chance import uniform_p
from hypothesis import given
from hypothesis import strategies as st
from tables import write_table

from divscore import ControlSet, Sketch, draw_sample
from divscore.errors import FileError, InputError, MismatchError
from divscore.jobs.drawfile import Draw
from divscore.jobs.encode import Encoding
from divscore.jobs.sampling import Lowest, sample_source
from divscore.sketch.scan import score_rows
from divscore.sketch.scorer import scorer_for

D = 8


def letters(seed: int, a: int, b: int) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=(a + b, D))
    return (noise + np.repeat([1.0, -1.0], [a, b])[:, None]).astype(np.float32)


@pytest.fixture(scope="module")
def control() -> ControlSet:
    return ControlSet(letters(1, 40, 40), ["a"] * 40 + ["b"] * 40, attribute="letter")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIVSCORE_CACHE", str(tmp_path / "cache"))
    return tmp_path


def said(*arguments: Any, **options: Any) -> tuple[Draw, list[str]]:
    """A draw, and what is said about it."""
    messages: list[str] = []
    return sample_source(*arguments, warn=messages.append, **options), messages


# At random


def test_a_random_sample_depends_on_the_seed_alone(place: Path) -> None:
    rows = letters(0, 300, 200)
    np.save("rows.npy", rows)
    first = draw_sample("rows.npy", 60)
    assert len(first) == len(set(first.ids)) == 60
    assert first.ids == tuple(map(str, first.rows))
    assert not any(item.stratum for item in first.items)
    assert {(item.batch, item.size, item.probability) for item in first.items} == {(1, 500, 60 / 500)}
    for other in (draw_sample(rows, 60), draw_sample("rows.npy", 60, workers=3)):
        assert other.ids == first.ids
        assert [item.digest for item in other.items] == [item.digest for item in first.items]
    assert draw_sample("rows.npy", 60, seed=1).ids != first.ids
    assert list(first.rows) != sorted(first.rows)  # shuffled


def test_every_item_has_the_same_chance_at_random() -> None:
    rows = letters(0, 25, 15)
    drawn = Counter(row for seed in range(1500) for row in draw_sample(rows, 8, seed=seed).rows.tolist())
    assert uniform_p([drawn[row] for row in range(40)], 8 / 40) > 1e-4


def test_the_same_rows_from_one_file_and_from_many(place: Path) -> None:
    """Ids are positions in the whole, also where rows of a file have no vector."""
    rows = letters(0, 90, 60)
    Path("parts").mkdir()
    for at in range(3):
        vectors: list[Any] = rows[50 * at : 50 * at + 50].tolist()
        vectors[3] = None
        table = pa.table({"embedding": pa.array(vectors, pa.list_(pa.float32()))})
        pq.write_table(table, f"parts/{at}.parquet")
    drawn, messages = said("parts", 100)
    assert len(drawn) == 100
    for item in drawn.items:
        assert item.vector is not None
        assert np.array_equal(item.vector, rows[int(item.id)])
        assert item.row % 50 != 3
    # Rows without a vector may be drawn, and are replaced by others.
    assert all(re.search(r"\d items? cannot be read and were not drawn", text) for text in messages)


def test_pictures_are_drawn_without_encoding(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.folder(place / "photos", {"red": 30, "blue": 20}, 3)
    (place / "photos" / "red" / "film.mp4").write_bytes(b"a film")
    monkeypatch.setattr(Encoding, "run", None)
    drawn, _ = said("photos", 20)
    assert drawn.kind == "image"
    assert {item.size for item in drawn.items} == {50}
    assert all(os.path.samefile(str(item.content), place / "photos" / item.id) for item in drawn.items)
    whole, messages = said("photos", 60)
    assert len(whole) == 50
    assert messages == ["50 items: all 50 that can be read are drawn"]


def test_pictures_that_cannot_be_read_are_not_drawn(place: Path) -> None:
    tiny.folder(place / "photos", {"red": 30}, 3, sub_folders=False)
    for name in ("dead", "gone"):
        (place / "photos" / f"{name}.png").symlink_to("nowhere.png")
    drawn, messages = said("photos", 40)
    assert len(drawn) == 30
    assert "photos: 2 items cannot be read and were not drawn" in messages


def test_texts_and_columns(place: Path) -> None:
    Path("posts.csv").write_text(
        "id,text,feed\n" + "".join(f"p{n},post number {n},{'ab'[n % 2]}\n" for n in range(80))
    )
    drawn = draw_sample("posts.csv", 10, by="feed", groups=["x", "y"], attribute="tone")
    assert (drawn.kind, drawn.attribute, drawn.groups) == ("text", "tone", ("x", "y"))
    assert Counter(item.collection for item in drawn.items) == {"a": 10, "b": 10}
    assert {item.size for item in drawn.items} == {40}
    for item in drawn.items:
        assert item.content == f"post number {item.id[1:]}"
        assert item.collection == "ab"[item.row % 2]


def test_a_table_of_vectors_may_have_what_people_see(place: Path) -> None:
    rows = letters(0, 30, 20)
    write_table(
        "names.parquet", rows, id=[f"n{at}" for at in range(50)], name=[f"Name {at}" for at in range(50)]
    )
    drawn = draw_sample("names.parquet", 10)
    assert drawn.kind == "text"
    assert [item.content for item in drawn.items] == [f"Name {row}" for row in drawn.rows]
    assert drawn.ids == tuple(f"n{row}" for row in drawn.rows)
    tiny.folder(place / "photos", {"red": 50}, 3, sub_folders=False)
    files = sorted(os.listdir("photos"))
    write_table("photos/vectors.parquet", rows, file=files)
    drawn = draw_sample("photos/vectors.parquet", 10)
    assert drawn.kind == "image"
    assert [item.content for item in drawn.items] == [
        str(place / "photos" / files[row]) for row in drawn.rows
    ]
    os.rename("photos/vectors.parquet", "vectors.parquet")  # where the paths lead nowhere
    assert draw_sample("vectors.parquet", 10).kind == "vectors"


# In pairs


def test_pairs_are_neighbours_in_score_and_cover_all(control: ControlSet) -> None:
    rows = letters(0, 600, 400)
    drawn = draw_sample(rows, 60, control)
    scores = score_rows(rows, scorer_for(control))[:, 0]
    rank = np.argsort(np.argsort(scores))
    strata: dict[int, list[int]] = {}
    for item in drawn.items:
        strata.setdefault(item.stratum, []).append(int(rank[item.row]))
    assert sorted(strata) == list(range(1, 31))
    assert sorted(len(pair) for pair in strata.values()) == [2] * 30
    # 990 candidates in 30 strata of 33: a pair is never farther apart, and every part has one.
    assert all(abs(one - other) < 45 for one, other in strata.values())
    assert sorted(int(np.mean(pair)) // 100 for pair in strata.values()) == sorted([*range(10)] * 3)
    middle = [np.mean(strata[number]) for number in range(1, 31)]
    assert abs(np.corrcoef(middle, range(30))[0, 1]) < 0.6  # the number of a stratum does not tell the score
    assert (drawn.attribute, drawn.groups) == ("letter", ("a", "b"))
    assert {item.control for item in drawn.items} == {f"sha256-{control.digest}"}


def test_every_item_has_the_same_chance_in_pairs(control: ControlSet) -> None:
    rows = letters(0, 23, 14)
    rows[5] = rows[6] = rows[7]  # copies have the same score
    drawn = Counter(
        row for seed in range(800) for row in draw_sample(rows, 8, control, seed=seed).rows.tolist()
    )
    assert uniform_p([drawn[row] for row in range(37)], 8 / 37) > 1e-4


def test_pairs_do_not_depend_on_workers_or_files(place: Path, control: ControlSet) -> None:
    rows = letters(0, 200_000, 100_000)
    np.save("rows.npy", rows)
    write_table("rows.parquet", rows)
    one = draw_sample("rows.npy", 20, control)
    assert draw_sample("rows.npy", 20, control, workers=3).ids == one.ids
    assert draw_sample(rows, 20, control, workers=2).ids == one.ids
    two = draw_sample("rows.parquet", 20, control, workers=2)
    assert two.ids == draw_sample("rows.parquet", 20, control).ids
    for item in (*one.items, *two.items):
        assert item.vector is not None
        assert np.array_equal(item.vector, rows[item.row])


def test_labels_of_pairs_vary_less(control: ControlSet) -> None:
    """The point of pairs: the share in the sample is that of the collection."""
    rows, truth = letters(0, 120, 280), 0.3
    shares = {
        kind: [np.mean(draw_sample(rows, 40, own, seed=seed).rows < 120) for seed in range(60)]
        for kind, own in (("random", None), ("pairs", control))
    }
    assert np.std(shares["pairs"]) < 0.6 * np.std(shares["random"])
    assert abs(np.mean(shares["pairs"]) - truth) < 0.02


def test_several_groups(draw: Any, make_control: Any) -> None:
    vectors, names = draw(0, [300, 200, 100])
    drawn = draw_sample(vectors, 60, make_control(1, [30, 30, 30]))
    assert Counter(item.stratum for item in drawn.items) == dict.fromkeys(range(1, 31), 2)
    counts = Counter(names[drawn.rows].tolist())
    assert 24 <= counts["a"] <= 36
    assert 4 <= counts["c"] <= 16


def test_each_collection_has_its_own_pairs(place: Path, control: ControlSet) -> None:
    rows = letters(0, 200, 100)
    order = np.random.default_rng(0).permutation(300)
    feeds = np.repeat(["north", "south", "tiny"], [190, 100, 10])
    write_table("feed.parquet", rows[order], feed=feeds.tolist())
    drawn, messages = said("feed.parquet", 20, control, by="feed")
    assert Counter(item.collection for item in drawn.items) == {"north": 20, "south": 20, "tiny": 10}
    for name in ("north", "south"):
        strata = Counter(item.stratum for item in drawn.items if item.collection == name)
        assert strata == dict.fromkeys(range(1, 11), 2)
    assert {item.stratum for item in drawn.items if item.collection == "tiny"} == {0}  # all of them
    assert messages == ["tiny: 10 items: all 10 that can be read are drawn"]
    assert all(feeds[item.row] == item.collection for item in drawn.items)


def test_items_without_a_vector_are_not_drawn_in_pairs(place: Path, control: ControlSet) -> None:
    rows = letters(0, 30, 20)
    rows[4], rows[7, 2] = 0, np.nan
    drawn, messages = said(rows, 48, control)
    assert sorted(drawn.rows) == [row for row in range(50) if row not in (4, 7)]
    assert messages == ["the array: 2 items without a usable vector cannot be drawn"]
    tiny.image_model(place / "tiny.onnx")
    tiny.folder(place / "labelled", {"red": 20, "blue": 20}, 2)
    tiny.folder(place / "photos", {"red": 20, "blue": 10}, 3)
    (place / "photos" / "red" / "bad.png").write_bytes(b"no picture")
    drawn, messages = said("photos", 30, "labelled", encoder="onnx", model="tiny.onnx")
    assert len(drawn) == 30
    assert "photos: 30 of 31 items encoded; 1 could not be read (--verbose lists them)" in messages


def test_few_usable_rows_among_many(control: ControlSet) -> None:
    """A pass looks only at rows that can matter if all are usable; if hardly any is, it looks again."""
    rows = np.zeros((200_000, D), dtype=np.float32)
    places = np.random.default_rng(0).choice(200_000, 150, replace=False)
    rows[places] = letters(0, 100, 50)
    drawn, _ = said(rows, 60, control)
    assert len(drawn) == 60
    assert {item.size for item in drawn.items} == {150}
    assert set(drawn.rows) <= set(places)
    every, messages = said(rows, 160, control)
    assert sorted(every.rows) == sorted(places)
    assert "150 items: all 150 that can be read are drawn" in messages


# What is refused


def test_a_control_set_keeps_its_attribute_and_names(place: Path, control: ControlSet) -> None:
    with pytest.raises(
        MismatchError, match="the control set is for 'letter', not for 'tone'; leave out attribute="
    ):
        draw_sample(letters(0, 50, 50), 20, control, attribute="tone")
    with pytest.raises(
        MismatchError, match="the groups of the control set have names: 'a', 'b'; leave out rename="
    ):
        draw_sample(letters(0, 50, 50), 20, control, rename={"a": "A"})


def test_what_cannot_be_drawn_from(place: Path, control: ControlSet) -> None:
    rows = letters(0, 30, 20)
    with pytest.raises(InputError, match="drawn in pairs: use an even size, such as 10"):
        draw_sample(rows, 9, control)
    with pytest.raises(InputError, match="size 0"):
        draw_sample(rows, 0)
    with pytest.raises(InputError, match="size '40': expected a whole number"):
        draw_sample(rows, "40")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a sketch has no items to label"):
        draw_sample(Sketch(control), 10)
    with pytest.raises(InputError, match="can be read only once"):
        draw_sample((part for part in [rows]), 10)
    with pytest.raises(InputError, match="one vector; leave out faces= all"):
        draw_sample(rows, 10, options={"faces": "all"}, encoder="faces")
    with pytest.raises(FileError, match="no item with a usable vector"):
        draw_sample(np.zeros((20, D)), 10, control)
    for names in (
        ["a"],
        ["a", "A "],
        ["a", "unsure"],
        ["a", "b|c"],
        ["0", "1"],
        [str(n) + "x" for n in range(13)],
    ):
        with pytest.raises(InputError):
            draw_sample(rows, 10, groups=names)


# More items


def test_adding_items(place: Path) -> None:
    rows = letters(0, 60, 40)
    np.save("rows.npy", rows)
    first = draw_sample("rows.npy", 20).labelled(["a"] * 20)
    first.save("first.csv")
    both = draw_sample("rows.npy", 30, add_to="first.csv")
    assert both.ids[:20] == first.ids
    assert both.labels == 20
    assert len(set(both.ids)) == 50
    assert Counter(item.batch for item in both.items) == {1: 20, 2: 30}
    with pytest.warns(UserWarning, match="100 items, 80 of them not drawn before: all 80") as caught:
        rest = draw_sample(rows, 90, add_to=first)
    assert [each.filename for each in caught] == [__file__]
    assert sorted(map(int, rest.ids)) == list(range(100))
    more = draw_sample("rows.npy", 10, add_to=both)
    assert {item.batch for item in more.items} == {1, 2, 3}


def test_added_items_are_random_too() -> None:
    rows = letters(0, 25, 15)
    counts: Counter[int] = Counter()
    for seed in range(1000):
        first = draw_sample(rows, 5, seed=seed)
        counts.update(draw_sample(rows, 5, seed=seed, add_to=first).rows[5:].tolist())
        assert not set(first.rows) & set(draw_sample(rows, 5, seed=seed, add_to=first).rows[5:])
    assert uniform_p([counts[row] for row in range(40)], 5 / 40) > 1e-4


def test_pairs_are_added_to_pairs(place: Path, control: ControlSet) -> None:
    rows = letters(0, 60, 40)
    first = draw_sample(rows, 20, control)
    both = draw_sample(rows, 10, control, add_to=first)
    strata = Counter(item.stratum for item in both.items)
    assert strata == dict.fromkeys(range(1, 16), 2)
    assert {item.stratum for item in both.items if item.batch == 2} == set(range(11, 16))
    assert len(set(both.ids)) == 30
    with pytest.raises(MismatchError, match="in pairs: add control="):
        draw_sample(rows, 10, add_to=first)
    with pytest.raises(MismatchError, match="at random: leave out control="):
        draw_sample(rows, 10, control, add_to=draw_sample(rows, 10))
    with pytest.raises(MismatchError, match="were they drawn from another collection"):
        draw_sample(letters(9, 60, 40), 10, control, add_to=first)
    np.savetxt("other.csv", rows, delimiter=",", header=",".join("abcdefgh"), comments="")
    with pytest.raises(FileError, match="not written by 'divscore sample'"):
        draw_sample(rows, 10, add_to="other.csv")


# The rows with the smallest keys


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 10_000)),
        min_size=1,
        max_size=200,
        unique_by=lambda x: x[1],
    ),
    st.integers(1, 5),
    st.integers(1, 12),
)
def test_any_split_keeps_the_same_rows(rows: list[tuple[int, int]], parts: int, most: int) -> None:
    owner, key = (
        np.array(column, dtype=kind)
        for column, kind in zip(zip(*rows, strict=True), (np.intp, np.uint64), strict=True)
    )

    def lowest() -> Lowest:
        made = Lowest(most, most, 0)
        made.grow(4)
        return made

    whole = lowest()
    for part in np.array_split(np.arange(len(rows)), parts):
        other = lowest()
        chosen = part[other.below(owner[part], key[part])]
        other.add(owner=owner[chosen], key=key[chosen])
        whole.merge(other, np.arange(4))
    whole.trim()
    kept = set(zip(whole.columns["owner"].tolist(), whole.columns["key"].tolist(), strict=True))
    wanted = {
        (number, each) for number in range(4) for each in sorted(k for o, k in rows if o == number)[:most]
    }
    assert kept == wanted


def test_many_collections_share_the_memory() -> None:
    lowest = Lowest(2, 100, 400)
    for owner in range(50):
        lowest.grow(owner + 1)
        lowest.add(owner=np.full(60, owner), key=np.arange(60, dtype=np.uint64) + np.uint64(owner))
    lowest.trim()
    assert Counter(lowest.columns["owner"].tolist()) == dict.fromkeys(range(50), 8)


def test_python_warns_in_its_own_words() -> None:
    with pytest.warns(UserWarning, match="all 20 that can be read are drawn"):
        draw_sample(letters(0, 10, 10), 30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_sample(letters(0, 10, 10), 20)
