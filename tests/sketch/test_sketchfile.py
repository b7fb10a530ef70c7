from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import draw_groups
from hypothesis import given
from hypothesis import strategies as st
from test_sketch import (
    GROUPS,
    SEEDS,
    D,
    assert_same_state,
    audited_laws,
    control_of,
    items,
    merged,
    overlap,
    pieces,
    sketch_of,
    spoilt,
)

from divscore.audit.audit import audit
from divscore.control.controlset import ControlSet
from divscore.errors import FileError, InputError, MismatchError
from divscore.files import CheckedWriter
from divscore.sketch.many import Sketches
from divscore.sketch.scan import scan
from divscore.sketch.sketch import Sketch
from divscore.sketch.sketchfile import (
    FORMAT,
    MAGIC,
    is_sketch,
    merge_sketches,
    read_sketches,
    subtract_sketches,
    write_sketches,
)


@pytest.mark.parametrize("groups", [2, 3, 4])
def test_a_saved_sketch_is_read_back_exactly(groups: int, tmp_path: Path) -> None:
    control = control_of(groups)
    sketch = sketch_of(control, spoilt(1, 5000, groups), seed=3)
    sketch.skip("unreadable", 2)
    sketch.save(tmp_path / "one.sketch")
    assert is_sketch(tmp_path / "one.sketch")
    again = Sketch.load(tmp_path / "one.sketch", control)
    assert again.seed == 3
    assert_same_state(again, sketch, tolerance=0)
    assert audit(again, control).to_dict() == audit(sketch, control).to_dict()
    assert again.replicate_cells.floor > 0
    for one in (again, sketch):
        one.add(spoilt(2, 100, groups))
    assert_same_state(again, sketch, tolerance=0)
    assert [p.name for p in tmp_path.iterdir()] == ["one.sketch"]


def test_a_sketch_of_a_general_similarity_is_read_back(tmp_path: Path) -> None:
    vectors, names = draw_groups(0, [8, 8])
    control = ControlSet(vectors, names, attribute="letter", similarity=overlap)
    sketch = sketch_of(control, items(1, 40))
    sketch.save(tmp_path / "one.sketch")
    assert_same_state(Sketch.load(tmp_path / "one.sketch", control), sketch, tolerance=0)


def test_several_collections_in_one_file(tmp_path: Path) -> None:
    control, path = control_of(2), tmp_path / "many.sketch"
    sketches = {
        name: sketch_of(control, items(i, 40)) for i, name in enumerate(["x/y", "ü", '🙂, "q"\n', ""])
    }
    write_sketches(path, sketches)
    again = read_sketches(path, control)
    assert list(again) == list(sketches)
    for name, sketch in sketches.items():
        assert_same_state(again[name], sketch, tolerance=0)
    with pytest.raises(InputError, match="holds 4 collections"):
        Sketch.load(path, control)


def test_files_are_merged_without_the_control_set(tmp_path: Path) -> None:
    control, rows = control_of(2), spoilt(0, 300)
    paths = [tmp_path / f"{at}.sketch" for at in range(3)]
    for path, part in zip(paths, pieces(rows, 1, 3), strict=True):
        sketch_of(control, part).save(path)
    assert merge_sketches(paths, tmp_path / "all.sketch") == {"all": sketch_of(control, rows).count}
    assert_same_state(Sketch.load(tmp_path / "all.sketch", control), sketch_of(control, rows))
    named = [tmp_path / "left.sketch", tmp_path / "right.sketch"]
    write_sketches(named[0], {"x": sketch_of(control, rows[:100]), "y": sketch_of(control, rows[100:150])})
    write_sketches(named[1], {"y": sketch_of(control, rows[150:])})
    merge_sketches(named, tmp_path / "both.sketch")
    both = read_sketches(tmp_path / "both.sketch", control)
    assert list(both) == ["x", "y"]
    assert_same_state(both["x"], sketch_of(control, rows[:100]))
    assert_same_state(both["y"], sketch_of(control, rows[100:]))
    sketch_of(control, rows, seed=1).save(tmp_path / "seeded.sketch")
    with pytest.raises(MismatchError, match="different control sets or seeds"):
        merge_sketches([*named, tmp_path / "seeded.sketch"], tmp_path / "none.sketch")
    assert not (tmp_path / "none.sketch").exists()


def test_a_sketch_of_another_control_set_is_refused(tmp_path: Path) -> None:
    sketch_of(control_of(2), items(0, 40)).save(tmp_path / "one.sketch")
    with pytest.raises(MismatchError, match=r"one\.sketch was made with another control set"):
        Sketch.load(tmp_path / "one.sketch", control_of(3))
    chosen = control_of(2).with_representatives(range(20))
    with pytest.raises(MismatchError, match="another control set"):
        Sketch.load(tmp_path / "one.sketch", chosen)


def test_files_that_are_no_sketches(tmp_path: Path) -> None:
    path, control = tmp_path / "one.sketch", control_of(2)
    with pytest.raises(FileError, match="no such file"):
        Sketch.load(path, control)
    assert not is_sketch(path)
    for content in (b"", b"hello", b"PK\x03\x04"):
        path.write_bytes(content)
        with pytest.raises(FileError, match="not a sketch, or is damaged"):
            Sketch.load(path, control)
        assert not is_sketch(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.json", "{}")
    with pytest.raises(FileError, match="not a sketch, or is damaged"):
        Sketch.load(path, control)
    assert not is_sketch(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", '{"format": "divscore.sketch/1"}')
    assert is_sketch(path)  # so that what is said about it is the following
    with pytest.raises(FileError, match=r"divscore\.sketch/1.*earlier version.*Make the sketch anew"):
        Sketch.load(path, control)
    with CheckedWriter(path, MAGIC, "the sketch") as file:
        file.finish(b'{"format": "divscore.sketch/9"}')
    with pytest.raises(FileError, match=r"divscore\.sketch/9.*reads divscore\.sketch/2"):
        Sketch.load(path, control)
    with CheckedWriter(path, MAGIC, "the sketch") as file:
        file.finish(b"{}]")
    with pytest.raises(FileError, match="not a sketch, or is damaged"):
        Sketch.load(path, control)
    with pytest.raises(InputError, match="no sketch to write"):
        write_sketches(path, {})
    with pytest.raises(FileError, match="cannot write the sketch"):
        sketch_of(control, items(0, 30)).save(tmp_path / "missing" / "one.sketch")


def small_file(path: Path) -> Sketch:
    """A sketch of four items: few enough to damage every byte of its file."""
    sketch = sketch_of(control_of(2), items(0, 4))
    sketch.save(path)
    return sketch


def assert_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"one\.sketch is not a sketch, or is damaged") as caught:
        Sketch.load(path, control_of(2))
    assert "make it anew" in str(caught.value)


def test_a_change_of_any_byte_is_noticed(tmp_path: Path) -> None:
    path, rng = tmp_path / "one.sketch", np.random.default_rng(0)
    small_file(path)
    content = path.read_bytes()
    for at, flip in enumerate(rng.integers(1, 256, size=len(content)).tolist()):
        assert_refused(path, content[:at] + bytes([content[at] ^ flip]) + content[at + 1 :])


def test_a_file_cut_anywhere_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "one.sketch"
    small_file(path)
    content = path.read_bytes()
    for length in range(len(content)):
        assert_refused(path, content[:length])
    for more in (b"\0", content[-1:], content):
        assert_refused(path, content + more)
    assert_refused(path, content[:40] + content[41:])
    path.write_bytes(content)
    assert Sketch.load(path, control_of(2)).count == 4


@pytest.mark.parametrize(
    "change",
    [
        {"shapes": {}},
        {"collections": ["a", "b"]},
        {"collections": []},
        {"rows": 10**6},
        {"groups": "two"},
        {"replicates": 7},
        {"skips": ["zero"]},
    ],
)
def test_a_header_that_does_not_fit_its_file_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "one.sketch"
    small_file(path)
    content = path.read_bytes()
    length = int.from_bytes(content[-40:-32], "little")
    header = json.loads(content[-40 - length : -40])
    assert header["format"] == FORMAT
    with CheckedWriter(path, content[: -40 - length], "the sketch") as file:
        file.finish(json.dumps(header | change).encode())
    with pytest.raises(FileError, match=r"one\.sketch (is not a sketch, or is damaged|was made by another)"):
        Sketch.load(path, control_of(2))


def test_nothing_is_left_of_a_file_that_cannot_be_finished(tmp_path: Path) -> None:
    path = tmp_path / "one.sketch"
    small_file(path)
    before = path.read_bytes()

    def give_up_midway() -> None:
        with CheckedWriter(path, MAGIC, "the sketch") as file:
            file.write(np.arange(5))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        give_up_midway()
    assert [each.name for each in tmp_path.iterdir()] == ["one.sketch"]
    assert path.read_bytes() == before


@given(SEEDS, st.integers(0, 700), st.integers(0, 700), GROUPS)
@audited_laws
def test_what_was_merged_can_be_taken_out_again(
    tmp_path_factory: pytest.TempPathFactory, seed: int, n: int, m: int, groups: int
) -> None:
    folder, control = tmp_path_factory.mktemp("days"), control_of(groups)
    monday, tuesday = (sketch_of(control, spoilt(seed + i, k, groups)) for i, k in enumerate((n, m)))
    monday.skip("unreadable", 3)
    for name, sketch in (("monday", monday), ("tuesday", tuesday)):
        sketch.save(folder / name)
    merge_sketches([folder / "monday", folder / "tuesday"], folder / "both")
    assert subtract_sketches(folder / "both", [folder / "monday"], folder / "rest") == {"both": tuesday.count}
    both, rest = merged([monday, tuesday]), Sketch.load(folder / "rest", control)
    tuesday.cells.raise_floor(both.cells.floor)  # what was given up stays so
    tuesday.replicate_cells.raise_floor(both.replicate_cells.floor)
    assert_same_state(rest, tuesday)
    both.subtract(monday)
    assert_same_state(rest, both, tolerance=0)
    left = subtract_sketches(folder / "both", [folder / "monday", folder / "tuesday"], folder / "none")
    assert left == {"both": 0}
    assert not Sketch.load(folder / "none", control).total.any()


def test_what_is_not_in_a_file_cannot_be_taken_out(tmp_path: Path) -> None:
    control, rows = control_of(2), items(0, 200)
    week, monday, other = (tmp_path / name for name in ("week", "monday", "other"))
    sketch_of(control, rows).save(week)
    sketch_of(control, items(1, 20)).save(monday)
    with pytest.raises(
        InputError, match=r"monday cannot be taken out of .*week: not all of its items are in"
    ):
        subtract_sketches(week, [monday], other)
    skipped = sketch_of(control, rows[:20])
    skipped.skip("unreadable")
    skipped.save(monday)
    with pytest.raises(InputError, match="cannot be taken out"):
        subtract_sketches(week, [monday], other)
    sketch_of(control, rows[:20]).save(monday)
    with pytest.raises(InputError, match="cannot be taken out"):
        subtract_sketches(week, [monday, monday], other)
    sketch_of(control, rows[:20], seed=1).save(monday)
    with pytest.raises(MismatchError, match="different control sets or seeds"):
        subtract_sketches(week, [monday], other)
    write_sketches(monday, {"x": sketch_of(control, rows[:20]), "y": sketch_of(control, rows[20:30])})
    with pytest.raises(InputError, match=r"holds the collection 'x', which .*week does not"):
        subtract_sketches(week, [monday], other)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["monday", "week"]


def test_collections_are_taken_out_by_name(tmp_path: Path) -> None:
    control, rows = control_of(2), items(0, 200)
    parts = {"x": rows[:80], "y": rows[80:150], "z": rows[150:]}
    write_sketches(tmp_path / "all", {name: sketch_of(control, part) for name, part in parts.items()})
    write_sketches(
        tmp_path / "some", {"z": sketch_of(control, parts["z"][:20]), "x": sketch_of(control, parts["x"])}
    )
    left = subtract_sketches(tmp_path / "all", [tmp_path / "some"], tmp_path / "left")
    assert left == {"x": 0, "y": 70, "z": 30}
    found = read_sketches(tmp_path / "left", control)
    assert_same_state(found["x"], Sketch(control), tolerance=0)
    assert_same_state(found["y"], sketch_of(control, parts["y"]), tolerance=0)
    assert_same_state(found["z"], sketch_of(control, parts["z"][20:]))
    write_sketches(tmp_path / "wrong", {"x": sketch_of(control, rows[:3]), "y": sketch_of(control, rows[:3])})
    with pytest.raises(InputError, match=r"\(collection 'y'\)"):
        subtract_sketches(tmp_path / "all", [tmp_path / "wrong"], tmp_path / "none")


def test_a_file_may_be_merged_into_itself(tmp_path: Path) -> None:
    control, rows = control_of(2), items(0, 90)
    write_sketches(tmp_path / "week", {"x": sketch_of(control, rows[:40]), "y": sketch_of(control, rows[:9])})
    write_sketches(tmp_path / "day", {"x": sketch_of(control, rows[40:])})
    merge_sketches([tmp_path / "week", tmp_path / "day"], tmp_path / "week")
    assert_same_state(read_sketches(tmp_path / "week", control)["x"], sketch_of(control, rows))


@pytest.mark.parametrize("how", [merge_sketches, None])
def test_thousands_of_collections_in_a_file(how: Callable[..., Any] | None, tmp_path: Path) -> None:
    control, rows = control_of(2), items(3, 30_000)
    owner = np.random.default_rng(1).integers(3000, size=len(rows))
    table = Sketches(control)
    at = table.positions([f"c{i}" for i in range(3000)])
    table.fold(at, rows, owner, scan(rows, table.scorer, owner, 3000))
    sketches = table.sketches()
    path = tmp_path / "many"
    write_sketches(path, sketches)
    if how:
        how([path], path)
    again = read_sketches(path, control)
    assert list(again) == list(sketches)
    for name in ("c0", "c1023", "c1024", "c2999"):
        assert_same_state(again[name], sketches[name], tolerance=0)
    # Sums, levels, counts and the like, a byte a direction for each item, and little else.
    assert path.stat().st_size < 3000 * (D * 8 + 25 * 8 + 200) + len(rows) * (201 + 9 + 16) + 1000
