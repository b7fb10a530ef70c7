"""Audits with labels of the collection itself: drawn items are found again, by name and by content."""

from __future__ import annotations

import csv
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny
from tables import write_table

import divscore
from divscore import ControlSet, audit, draw_sample
from divscore.audit.audits import Audits
from divscore.control.labelledsample import LabelledSample, labelled_control
from divscore.errors import FileError, InputError, MismatchError
from divscore.jobs import labels
from divscore.jobs.auditing import audit_source
from divscore.jobs.drawfile import Draw
from divscore.jobs.encode import Encoding
from divscore.sources.items import ItemBatch

D = 8
TONES = ("calm", "loud")


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


def tone(number: int) -> str:
    return TONES[number % 10 < 3]


def post(number: int) -> str:
    words = {"calm": "quiet slow gentle soft", "loud": "SHOUT NOW GO WIN"}[tone(number)]
    return f"{words} {number}"


@pytest.fixture
def posts(place: Path) -> Draw:
    """Sixty of 400 texts, labelled and saved; 30% of all are loud."""
    write_posts(range(400))
    drawn = draw_sample("posts.csv", 60, attribute="tone", groups=TONES)
    drawn = drawn.labelled([tone(int(name)) for name in drawn.ids])
    drawn.save("labelled.csv")
    return drawn


def write_posts(numbers: Any, names: Callable[[int], str] = lambda number: f"{number:03}") -> None:
    lines = [f"{names(number)},{post(number)},{'ab'[number % 2]}" for number in numbers]
    Path("posts.csv").write_text("\n".join(["id,text,feed", *lines]) + "\n")


def change(edit: Callable[[dict[str, str]], dict[str, str] | None]) -> None:
    """Change every row of the labelled table."""
    with open("labelled.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    rows = [edit(row) or row for row in rows]
    with open("labelled.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def audited(collection: Any = "posts.csv", control: Any = None, **options: Any) -> tuple[Audits, list[str]]:
    said: list[str] = []
    options = {"sample": "labelled.csv", **options}
    return audit_source(collection, control, warn=said.append, **options), said


def warned(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What a call returns, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    return result, [str(each.message) for each in caught]


# It works


def test_a_labelled_draw_needs_nothing_else(posts: Draw) -> None:
    (result,), said = audited()
    assert (result.estimator, result.count, result.noun, result.control.attribute) == (
        "crossfit",
        400,
        "texts",
        "tone",
    )
    assert list(result.shares) == list(TONES)
    assert 0.4 in result.interval
    assert result.interval.width < 0.3
    assert result.labels is not None
    assert (result.labels.labelled, result.labels.drawn) == (60, "random")
    assert said == []
    again = audit("posts.csv", sample="labelled.csv")
    assert again.to_dict() == result.to_dict()
    assert audit("posts.csv", sample=posts).to_dict() == result.to_dict()


def test_vectors_in_memory_and_in_files(place: Path, control: ControlSet) -> None:
    rows = letters(0, 300, 200)
    np.save("rows.npy", rows)
    for examples, estimator in ((None, "crossfit"), (control, "rectified")):
        drawn = draw_sample(rows, 40, examples)
        labelled = drawn.labelled(["a" if row < 300 else "b" for row in drawn.rows])
        result = audit(rows, examples, sample=labelled)
        assert result.estimator == estimator
        assert 0.2 in result.interval
        labelled.save("labelled.csv", force=True)
        again = audit("rows.npy", examples, sample="labelled.csv", workers=2)
        assert again.interval == result.interval
        assert result.labels is not None
        assert result.labels.drawn == ("random" if examples is None else "pairs")


def test_only_drawn_items_are_encoded_before_the_pass(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.image_model(place / "tiny.onnx")
    tiny.folder(place / "photos", {"red": 60, "blue": 40}, 3)
    options = {"encoder": "onnx", "model": "tiny.onnx"}
    drawn = draw_sample("photos", 20)
    drawn.labelled([name.split("/")[0] for name in drawn.ids]).save("labelled.csv")
    sizes: list[int] = []
    run = Encoding.run

    def counted(self: Encoding, batches: Any, kind: Any, **settings: Any) -> Iterator[Any]:
        def seen() -> Iterator[ItemBatch]:
            for batch in batches:
                sizes.append(len(batch))
                yield batch

        return run(self, seen(), kind, **settings)

    monkeypatch.setattr(Encoding, "run", counted)
    (result,), _ = audited("photos", **options)
    assert sizes == [20, 100]
    assert 0.2 in audit("photos", sample="labelled.csv", groups=["red", "blue"], **options).interval
    assert list(result.shares) == ["blue", "red"]


def test_half_of_the_labels(posts: Draw) -> None:
    seen = iter(range(60))
    change(lambda row: row | {"group": ("unsure" if next(seen) % 4 else "?")} if int(row["id"]) % 2 else None)
    (result,), _ = audited()
    assert result.labels is not None
    assert result.labels.without_label == sum(int(name) % 2 for name in posts.ids)
    assert any(
        "have no label. The interval allows for all of them being in one group" in w for w in result.warnings
    )
    (whole,), _ = audited(sample=posts)
    assert result.interval.width > whole.interval.width + 0.3
    change(lambda row: row | {"group": ""})
    with pytest.raises(FileError, match=r"labelled.csv: no row has a label; fill in the column 'group'"):
        audited()


def test_names_of_groups(posts: Draw) -> None:
    (whole,), _ = audited()
    change(lambda row: row | {"group": f" {row['group'].upper()} "})
    assert audited()[0][0].interval == whole.interval
    change(lambda row: row | {"group": row["group"].strip().lower().replace("loud", "noisy")})
    with pytest.raises(
        InputError, match=r"has the group 'noisy', but the groups are 'calm', 'loud'; .*--rename"
    ):
        audited()
    assert audited(rename={"noisy": "loud"})[0][0].interval == whole.interval
    examples = [f"{post(number)},{tone(number)}" for number in range(500, 560)]
    Path("examples.csv").write_text("\n".join(["text,group", *examples]) + "\n")
    both = audited(control="examples.csv", rename={"noisy": "loud"})[0][0]
    assert (both.estimator, list(both.shares)) == ("rectified", list(TONES))
    change(lambda row: row | {"groups": ""})
    renamed = audited()[0][0]
    assert list(renamed.shares) == ["calm", "noisy"]
    assert renamed.interval == whole.interval
    assert list(audited(groups=["noisy", "calm"])[0][0].shares) == ["noisy", "calm"]


# The collection is not what it was


def test_items_that_are_gone_or_changed_are_named(posts: Draw) -> None:
    gone, changed = sorted(map(int, posts.ids[:2])), int(posts.ids[2])
    write_posts([number for number in range(400) if number not in gone])
    text = Path("posts.csv").read_text().replace(f"{post(changed)},", f"{post(changed)} again,")
    Path("posts.csv").write_text(text)
    (result,), said = audited()
    names = ", ".join(f"'{name}'" for name in posts.ids[:2])
    assert said == [
        f"labelled.csv: 2 of 60 items no longer in posts.csv, so not used: {names}",
        f"labelled.csv: 1 of 60 items changed in posts.csv, so not used: '{posts.ids[2]}'",
    ]
    assert result.labels is not None
    assert result.labels.labelled == 57
    assert any("had 400 items when the sample was drawn, and has 398 now" in text for text in result.warnings)


def test_items_that_are_not_here_are_counted(posts: Draw, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were deleted, items that are gone, and those that changed."""
    samples: list[LabelledSample] = []
    find = labels.Labels.samples

    def noted(*arguments: Any, **options: Any) -> dict[str, LabelledSample]:
        samples.extend(find(*arguments, **options).values())
        return {"posts": samples[-1]}

    monkeypatch.setattr(labels.Labels, "samples", noted)
    audited()
    lines = Path("labelled.csv").read_text().splitlines(keepends=True)
    Path("labelled.csv").write_text("".join(lines[:-5]))
    _, said = audited()
    assert said == [
        "labelled.csv: 5 drawn items of 60 have no row. Put the rows back, and leave 'group' blank where nobody can "
        "tell: without them the labels may not be typical of the collection"
    ]
    gone, changed = int(posts.ids[0]), int(posts.ids[1])
    write_posts([number for number in range(400) if number != gone])
    text = Path("posts.csv").read_text().replace(f"{post(changed)},", f"{post(changed)} again,")
    Path("posts.csv").write_text(text)
    audited()
    assert [(len(sample), sample.missing) for sample in samples] == [(60, 0), (55, 5), (53, 7)]


def test_copies_are_found_in_their_own_rows(place: Path) -> None:
    Path("posts.csv").write_text("id,text\n" + "".join(f"p,post {at // 8}\n" for at in range(80)))
    drawn = draw_sample("posts.csv", 40)
    drawn.labelled(["a" if row < 32 else "b" for row in drawn.rows]).save("labelled.csv")
    (result,), said = audited()
    assert said == []
    assert result.labels is not None
    assert result.labels.labelled == 40
    assert 0.2 in result.interval


def test_what_is_no_labelled_sample() -> None:
    rows = letters(0, 30, 20)
    for sample in (5, ["a", "b"], {"a": 1}):
        with pytest.raises(InputError, match="expected a path, what draw_sample returns, or vectors"):
            audit(rows, sample=sample)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the groups of the labelled sample are 3"):
        audit(rows, sample=(rows, 3))  # type: ignore[arg-type]


def test_blank_digests(posts: Draw) -> None:
    change(lambda row: row | {"item_digest": ""})
    _, said = audited()
    assert said == [
        "labelled.csv: 60 rows without 'item_digest': whether these items have changed is unknown"
    ]


@pytest.mark.parametrize("typo", ["callm", "clam"])
def test_a_group_that_may_be_a_typo(posts: Draw, typo: str) -> None:
    change(lambda row: row | {"groups": ""} | ({"group": typo} if row["id"] == posts.ids[0] else {}))
    calm = sum(item.group == "calm" for item in posts.items[1:])
    _, said = audited()
    assert said == [
        f"labelled.csv: one label is '{typo}', {calm} are 'calm'. If it is a typo, correct it; else name the groups "
        "with --groups"
    ]
    with pytest.raises(InputError, match=f"which group is meant: --rename {typo}=…"):
        audited(groups=TONES)


def test_ids_that_a_spreadsheet_changed_are_found_by_content(posts: Draw) -> None:
    (whole,), _ = audited()
    change(lambda row: row | {"id": row["id"].lstrip("0") or "0"})
    short = sum(name.startswith("0") for name in posts.ids)
    (result,), said = audited()
    assert said == [
        f"labelled.csv: {short} items found by content, as the ids differ; a spreadsheet may have changed them"
    ]
    assert result.interval == whole.interval


def test_rows_that_moved_are_found_by_content(place: Path) -> None:
    rows = letters(0, 300, 200)
    drawn = draw_sample(rows, 40)
    labelled = drawn.labelled(["a" if row < 300 else "b" for row in drawn.rows])
    more = np.concatenate([letters(5, 1, 0), rows])
    result = audit(rows, sample=labelled)
    with pytest.warns(UserWarning, match="40 items found by content"):
        moved = audit(more, sample=labelled)
    assert abs(moved.disparity - result.disparity) < 0.02


def test_pictures_may_be_renamed(place: Path) -> None:
    tiny.image_model(place / "tiny.onnx")
    tiny.folder(place / "photos", {"red": 30, "blue": 20}, 3)
    options = {"encoder": "onnx", "model": "tiny.onnx"}
    drawn = draw_sample("photos", 20)
    drawn.labelled([name.split("/")[0] for name in drawn.ids]).save("labelled.csv")
    shutil.move("photos", "pictures")
    os.rename(f"pictures/{drawn.ids[0]}", "pictures/another.png")
    (_,), said = audited("pictures", **options)
    assert said == [
        "labelled.csv: 1 item found by content, as the ids differ; a spreadsheet may have changed them"
    ]
    Path("pictures/another.png").write_bytes(b"no picture now")
    os.rename("pictures/another.png", f"pictures/{drawn.ids[0]}")
    (result,), said = audited("pictures", **options)
    assert f"labelled.csv: 1 of 20 items changed in pictures, so not used: '{drawn.ids[0]}'" in said
    assert result.labels is not None
    assert result.labels.labelled == 19


def test_items_that_cannot_be_encoded_are_counted(place: Path) -> None:
    tiny.image_model(place / "tiny.onnx")
    tiny.folder(place / "photos", {"red": 20, "blue": 20}, 3, sub_folders=False)
    for number in range(3):
        (place / "photos" / f"bad{number}.png").write_bytes(b"no picture")
    drawn = draw_sample("photos", 43)
    drawn.labelled(["red" if at % 2 else "blue" for at in range(43)]).save("labelled.csv")
    (result,), said = audited("photos", encoder="onnx", model="tiny.onnx")
    assert result.labels is not None
    assert result.labels.labelled == 40
    names = ", ".join(f"'{name}'" for name in drawn.ids if name.startswith("bad"))
    assert f"3 labelled items cannot be encoded and are not used: {names}" in said


def test_a_sample_of_another_collection(posts: Draw, control: ControlSet) -> None:
    write_posts(range(1000, 1400))
    with pytest.raises(
        MismatchError,
        match=r"only 0 of the 60 items of labelled.csv are in posts.csv: was it drawn from another",
    ):
        audited()
    np.save("rows.npy", letters(0, 50, 50))
    with pytest.raises(MismatchError, match="was it drawn from another collection"):
        audited("rows.npy")


def test_pictures_were_labelled_and_their_vectors_are_audited(place: Path) -> None:
    tiny.folder(place / "photos", {"red": 60, "blue": 40}, 3)
    drawn = draw_sample("photos", 30)
    drawn.labelled([name.split("/")[0] for name in drawn.ids]).save("labelled.csv")
    names = [f"{group}/{at:04}.png" for group, size in (("red", 60), ("blue", 40)) for at in range(size)]
    write_table("vectors.parquet", letters(0, 60, 40), id=names)
    (result,), said = audited("vectors.parquet")
    assert said == [
        "labelled.csv: the items were found by their ids alone; vectors.parquet has their vectors only"
    ]
    assert -0.2 in result.interval


def test_another_control_set(place: Path, control: ControlSet) -> None:
    rows = letters(0, 300, 200)
    other = ControlSet(letters(8, 30, 30), ["a"] * 30 + ["b"] * 30, attribute="letter")
    drawn = draw_sample(rows, 40, control)
    labelled = drawn.labelled(["a" if row < 300 else "b" for row in drawn.rows])
    with pytest.warns(
        UserWarning, match="its pairs were made with another control set. The interval is still correct"
    ):
        result = audit(rows, other, sample=labelled)
    assert result.labels is not None
    assert (result.labels.drawn, 0.2 in result.interval) == ("pairs", True)
    assert audit(rows, sample=labelled).labels.drawn == "pairs"  # type: ignore[union-attr]
    random = draw_sample(rows, 40)
    audit(rows, other, sample=random.labelled(["a" if row < 300 else "b" for row in random.rows]))


def test_a_pair_that_lost_an_item(place: Path, control: ControlSet) -> None:
    rows = letters(0, 300, 200)
    drawn = draw_sample(rows, 40, control)
    labelled = drawn.labelled(["a" if row < 300 else "b" for row in drawn.rows])
    rest = np.delete(rows, drawn.rows[:1], axis=0)
    result, said = warned(lambda: audit(rest, control, sample=labelled))
    assert any("1 of 40 items changed in the array" in text for text in said)  # another row has its number
    assert result.labels is not None
    assert (result.labels.labelled, result.labels.drawn) == (39, "pairs")


def test_examples_that_were_drawn_count_once(place: Path) -> None:
    """A control set of items of the collection itself: a label must not predict its own item."""
    rows = letters(0, 300, 200)
    first = draw_sample(rows, 60)
    first = first.labelled(["a" if row < 300 else "b" for row in first.rows])
    own = ControlSet(rows[first.rows], [item.group for item in first.items], attribute="group")
    result = audit(rows, own, sample=first)
    assert result.interval == audit(rows, sample=first).interval
    sample = LabelledSample.of(rows[first.rows[:30]], [item.group for item in first.items[:30]])
    both = labelled_control([sample], own.with_representatives(range(10, 50)))
    assert len(both) == len({row.tobytes() for row in both.vectors}) == 60
    assert sorted(row.tobytes() for row in both.vectors[both.representative]) == sorted(
        row.tobytes() for row in rows[first.rows[10:50]]
    )


# Several collections


def test_each_collection_is_corrected_by_its_own_labels(posts: Draw) -> None:
    drawn = draw_sample("posts.csv", 40, by="feed", attribute="tone", groups=TONES)
    drawn.labelled([tone(int(name)) for name in drawn.ids]).save("labelled.csv", force=True)
    results, said = audited(by="feed")
    assert (results.names, said) == (["a", "b"], [])
    truth = {name: np.mean([tone(n) == "loud" for n in range(400) if "ab"[n % 2] == name]) for name in "ab"}
    for result in results:
        low, high = result.share_intervals["loud"].low, result.share_intervals["loud"].high
        assert low <= truth[result.name] <= high
        assert result.labels is not None
        assert result.labels.labelled == 40
    assert results[0].control.digest == results[1].control.digest
    with pytest.raises(
        MismatchError, match="drawn for each of several collections; audit them with the same --by"
    ):
        audited()


def test_a_random_sample_of_all_serves_each_collection(posts: Draw) -> None:
    results, _ = audited(by="feed")
    assert results.names == ["a", "b"]
    assert sum(result.labels.labelled for result in results if result.labels) == 60
    assert not any("when the sample was drawn" in text for result in results for text in result.warnings)


def test_collections_without_labels(posts: Draw, control: ControlSet) -> None:
    drawn = draw_sample("posts.csv", 30, by="feed", attribute="tone", groups=TONES)
    labels = [tone(int(item.id)) if item.collection == "a" else "" for item in drawn.items]
    drawn.labelled(labels).save("labelled.csv", force=True)
    results, said = audited(by="feed")
    assert results.names == ["a"]
    assert said == ["b: skipped, as no item is labelled"]
    with pytest.raises(InputError, match="no item of b is labelled"):
        audited(by="feed", strict=True)
    examples = [f"{post(number)},{tone(number)}" for number in range(500, 560)]
    Path("examples.csv").write_text("\n".join(["text,group", *examples]) + "\n")
    with pytest.raises(InputError, match="no item of b is labelled; draw and label some"):
        audited(by="feed", control="examples.csv")


def test_pairs_of_the_whole_do_not_serve_parts(place: Path, control: ControlSet) -> None:
    rows = letters(0, 200, 100)
    write_table("feed.parquet", rows, feed=["x", "y", "z"] * 100)
    drawn = draw_sample("feed.parquet", 20, control)
    labelled = drawn.labelled(["a" if row < 200 else "b" for row in drawn.rows])
    with pytest.raises(
        MismatchError, match="drawn in pairs from the whole collection; draw it with by= feed"
    ):
        audit("feed.parquet", control, by="feed", sample=labelled)


# Other labelled samples


def test_files_without_a_design_are_random_samples(place: Path, control: ControlSet) -> None:
    rows = letters(0, 300, 200)
    np.save("rows.npy", rows)
    pick = np.random.default_rng(0).permutation(500)[:40]
    groups = ["a" if row < 300 else "b" for row in pick]
    write_table("plain.parquet", rows[pick], group=groups, id=[str(row) for row in pick])
    result = audit("rows.npy", sample="plain.parquet")
    assert (result.estimator, 0.2 in result.interval) == ("crossfit", True)
    assert audit("rows.npy", control, sample="plain.parquet").estimator == "rectified"
    table = pq.read_table("plain.parquet")
    pq.write_table(pa_concat([table, table.slice(0, 2)]), "plain.parquet")
    with pytest.warns(UserWarning, match=r"plain.parquet: 2 rows repeated \(.*\); each item counts once"):
        again = audit("rows.npy", sample="plain.parquet")
    assert again.interval == result.interval
    write_table("wrong.parquet", rows[pick[[0, 0]]], group=["a", "b"], id=["x", "x"])
    with pytest.raises(FileError, match="the item 'x' is there twice, as 'a' and as 'b'"):
        audit("rows.npy", sample="wrong.parquet")
    write_table("blank.parquet", rows[pick[:2]], group=["", ""])
    with pytest.raises(FileError, match="no row has a label; fill in the column 'group'"):
        audit("rows.npy", sample="blank.parquet")
    write_table("none.parquet", rows[pick[:2]], kind=["a", "b"])
    with pytest.raises(FileError, match="has no column 'group' with the groups of the labelled items"):
        audit("rows.npy", sample="none.parquet")
    write_table("feed.parquet", rows, feed=["x", "y"] * 250)
    with pytest.raises(InputError, match="does not say which collection an item is from"):
        audit("feed.parquet", by="feed", sample="plain.parquet")


def pa_concat(tables: list[Any]) -> Any:
    import pyarrow as pa

    return pa.concat_tables(tables)


def test_what_a_draw_cannot_be_used_with(place: Path, control: ControlSet) -> None:
    rows = letters(0, 60, 40)
    drawn = draw_sample(rows, 20).labelled(["a", "b"] * 10)
    sketch = divscore.Sketch(control)
    sketch.add(rows)
    with pytest.raises(InputError, match="a sketch has no items to label"):
        audit(sketch, control, sample=drawn)
    with pytest.raises(InputError, match="can be read only once"):
        audit((part for part in [rows]), sample=drawn)
    with pytest.raises(InputError, match="needs labelled examples"):
        audit(rows)


# As labelled examples for other collections


def test_a_labelled_draw_becomes_a_control_set(posts: Draw) -> None:
    seen = iter(range(60))
    change(lambda row: row | {"group": {0: "", 1: "Unsure"}.get(next(seen), row["group"].upper())})
    control, said = warned(lambda: ControlSet.read("labelled.csv"))
    assert (
        said[0]
        == "labelled.csv: 58 labelled examples; rows without a group were left out (1 blank and 1 unsure)"
    )
    assert "use them for collections from the same kind of source" in said[1]
    assert (control.attribute, control.groups, len(control)) == ("tone", TONES, 58)
    assert control.encoder
    assert control.origins is not None
    other, _ = warned(lambda: ControlSet.read("labelled.csv", attribute="volume", order=["loud", "calm"]))
    assert (other.attribute, other.groups) == ("volume", ("loud", "calm"))
    change(lambda row: row | {"group": ""})
    with pytest.raises(FileError, match="no row has a label"):
        ControlSet.read("labelled.csv")


def test_pictures_of_a_draw_are_found_from_its_table(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.image_model(place / "tiny.onnx")
    tiny.folder(place / "photos", {"red": 30, "blue": 20}, 3)
    drawn = draw_sample("photos", 20)
    drawn.labelled([name.split("/")[0] for name in drawn.ids]).save("labelled.csv")
    (place / "elsewhere").mkdir()
    monkeypatch.chdir(place / "elsewhere")
    with pytest.warns(UserWarning, match="items of one collection"):
        control = ControlSet.read("../labelled.csv", encoder="onnx", model="../tiny.onnx")
    assert len(control) == 20
    assert set(control.groups) == {"red", "blue"}


def test_vectors_need_a_table_that_has_them(place: Path) -> None:
    rows = letters(0, 60, 40)
    drawn = draw_sample(rows, 20).labelled(["a", "b"] * 10)
    drawn.save("labelled.csv")
    with pytest.raises(
        FileError, match=r"labelled.csv cannot be used as labelled examples: it has no texts, paths or"
    ):
        ControlSet.read("labelled.csv")
