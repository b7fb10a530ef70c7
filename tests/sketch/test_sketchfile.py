from __future__ import annotations

import hashlib
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import draw_groups
from hypothesis import given
from hypothesis import strategies as st
from sketches import (
    GROUPS,
    SEEDS,
    D,
    assert_same_state,
    audited_laws,
    control_of,
    items,
    lowered,
    merged,
    overlap,
    pieces,
    sketch_of,
    spoilt,
)

from divscore.audit.audit import audit
from divscore.control.controlset import ControlSet
from divscore.errors import FileError, InputError, MismatchError
from divscore.sketch import sketchfile
from divscore.sketch.many import sketch_blocks
from divscore.sketch.missing import Missing, MissingPart
from divscore.sketch.sample import TOP
from divscore.sketch.scorer import scorer_for
from divscore.sketch.sketch import Sketch
from divscore.sketch.sketchfile import (
    KEY,
    Columns,
    is_sketch,
    merge_sketches,
    open_sketches,
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
    assert not again.sample.complete
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
    with pytest.raises(InputError, match="has 4 collections"):
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
    for content in (b"", b"hello", b"PK\x03\x04", b"PAR1", b"PAR1" + b"\0" * 20 + b"PAR1"):
        path.write_bytes(content)
        with pytest.raises(FileError, match="not a sketch, or is damaged"):
            Sketch.load(path, control)
        assert is_sketch(path)  # by its name: it must not be skipped in a folder of sketches
        assert not is_sketch(path.rename(tmp_path / "one"))
    pq.write_table(pa.table({"embedding": [[1.0, 2.0]]}), path)
    with pytest.raises(FileError, match="it has no header of a sketch"):
        Sketch.load(path, control)
    with pytest.raises(FileError, match="Is a directory") as caught:
        Sketch.load(tmp_path, control)
    assert "damaged" not in str(caught.value)
    with pytest.raises(InputError, match="no sketch to write"):
        write_sketches(path, {})
    sketch = sketch_of(control, items(0, 30))
    with pytest.raises(FileError, match=r"folder .* does not exist"):
        sketch.save(tmp_path / "missing" / "one.sketch")
    with pytest.raises(FileError, match="nothing can be written to a web page"):
        sketch.save("https://host/one.sketch")
    with pytest.raises(InputError, match=r"one\.parquet.*name it one\.sketch"):
        sketch.save(tmp_path / "one.parquet")


def test_other_formats_are_refused_by_name(tmp_path: Path) -> None:
    path, control = tmp_path / "one.sketch", control_of(2)
    small_file(path)
    forge(path, lambda header, _: header.update(format="divscore.sketch/9", more="fields"))
    assert is_sketch(path)
    with pytest.raises(FileError, match=r"'divscore\.sketch/9'; this version reads divscore\.sketch/3"):
        Sketch.load(path, control)


def forge(path: Path, change: Callable[[dict[str, Any], Columns], object]) -> None:
    """Change a file and give it a right checksum: what is then noticed is that its content cannot be."""
    file = pq.ParquetFile(path)
    header = json.loads(file.metadata.metadata[KEY])
    content = file.read()
    columns = {key: sketchfile._numpy(content.column(key)) for key in content.column_names}
    columns = {key: (values.copy(), sizes.copy()) for key, (values, sizes) in columns.items()}
    change(header, columns)
    header["checksum"] = ""
    state = hashlib.blake2b(json.dumps(header, sort_keys=True).encode())
    sketchfile._update(state, columns)
    header["checksum"] = state.hexdigest()
    table = pa.table({key: sketchfile._arrow(*column) for key, column in columns.items()})
    with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({KEY: json.dumps(header).encode()})


def small_file(path: Path) -> Sketch:
    """A sketch of four items: few enough to damage every byte of its file."""
    sketch = sketch_of(control_of(2), items(0, 4))
    sketch.save(path)
    return sketch


def assert_harmless(path: Path, content: bytes, expected: Sketch) -> bool:
    """A damaged file is refused, or the damage is in bytes that say nothing about the sketch."""
    path.write_bytes(content)
    refused = None
    try:
        again = Sketch.load(path, control_of(2))
    except (FileError, MismatchError) as error:
        refused = str(error)
    if refused is not None:
        assert refused.startswith(str(path))
        assert any(word in refused for word in ("damaged", "has format", "another control set"))
        return False
    assert_same_state(again, expected, tolerance=0)
    assert again.seed == expected.seed
    return True


@pytest.mark.slow
def test_a_change_of_any_byte_is_noticed(tmp_path: Path) -> None:
    path, rng = tmp_path / "one.sketch", np.random.default_rng(0)
    expected = small_file(path)
    content = path.read_bytes()
    harmless = 0
    for at, flip in enumerate(rng.integers(1, 256, size=len(content)).tolist()):
        damaged = content[:at] + bytes([content[at] ^ flip]) + content[at + 1 :]
        harmless += assert_harmless(path, damaged, expected)
    # Names of writers, offsets that nobody reads and the like in the footer of a Parquet file.
    assert harmless < 0.25 * len(content)


@given(SEEDS, st.integers(1, 8))
@audited_laws
def test_flipped_bits_of_a_larger_file_are_noticed(
    tmp_path_factory: pytest.TempPathFactory, seed: int, flips: int
) -> None:
    path, rng = tmp_path_factory.mktemp("bits") / "one.sketch", np.random.default_rng(seed)
    expected = sketch_of(control_of(2), items(seed, 900))
    expected.save(path)
    content = bytearray(path.read_bytes())
    for at in rng.integers(len(content), size=flips).tolist():
        content[at] ^= 1 << int(rng.integers(8))
    assert_harmless(path, bytes(content), expected)


def test_a_file_cut_anywhere_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "one.sketch"
    expected = small_file(path)
    content = path.read_bytes()
    for length in range(0, len(content), 3):
        assert not assert_harmless(path, content[:length], expected)
    for more in (b"\0", content[-1:]):
        assert not assert_harmless(path, content + more, expected)
    assert not assert_harmless(path, content[:40] + content[41:], expected)
    path.write_bytes(content)
    assert Sketch.load(path, control_of(2)).count == 4


def heading(**change: Any) -> Callable[[dict[str, Any], Columns], object]:
    return lambda header, columns: header.update(change)


def origin(**change: Any) -> Callable[[dict[str, Any], Columns], object]:
    return lambda header, columns: header["origin"].update(change)


def number(key: str, value: Any, at: Any = 0) -> Callable[[dict[str, Any], Columns], object]:
    return lambda header, columns: columns[key][0].__setitem__(at, value)


def one_more(key: str) -> Callable[[dict[str, Any], Columns], object]:
    return lambda header, columns: columns[key][0].__setitem__(
        0, columns[key][0][0] + columns[key][0].dtype.type(1)
    )


def without(key: str) -> Callable[[dict[str, Any], Columns], object]:
    return lambda header, columns: columns.pop(key)


def moved_size(header: dict[str, Any], columns: Columns) -> None:
    """An item of one collection becomes one of the other."""
    for key in ("sample_hash", "sample_copies", "sample_step"):
        columns[key][1][:] += [-1, 1]
    columns["sample_rows"][1][:] += [-D, D]


def shorter(header: dict[str, Any], columns: Columns) -> None:
    values, sizes = columns["total"]
    columns["total"] = values.reshape(len(sizes), -1)[:, 1:].ravel(), sizes - 1


FORGED = {
    "seed below zero": origin(seed=-1),
    "seed of text": origin(seed="1; rm"),
    "seed of a fraction": origin(seed=1.5),
    "seed that is true": origin(seed=True),
    "seed without end": origin(seed=10**400),
    "other groups": origin(groups=3),
    "no groups": origin(groups=0),
    "very many groups": origin(groups=10**6),
    "no attribute": origin(attribute=None),
    "other dimension": origin(dimension=D + 1),
    "very many dimensions": origin(dimension=10**12),
    "very many similarities": origin(similarities=10**12),
    "items below zero": heading(items=-1),
    "fewer items than there are": heading(items=100),
    "other skips": heading(skips=["zero"]),
    "skips that are a text": heading(skips="zero"),
    "no origin": heading(origin=None),
    "missing that is a text": heading(missing="nothing"),
    "missing without a reason": heading(missing={"listed": [{"part": "x"}]}),
    "missing rows below zero": heading(missing={"listed": [{"part": "x", "reason": "", "rows": -3}]}),
    "missing without number": heading(missing={"more": "many"}),
    "a name twice": number("name", ord("y")),
    "a name that is no text": number("name", 255),
    "no names": without("name"),
    "no totals": without("total"),
    "no sample": without("sample_rows"),
    "no limits": without("sample_limit"),
    "counts below zero": number("count", -5),
    "counts far too large": number("count", 1 << 62),
    "a cell far off": number("cells", 10**15, -1),
    "a cell below zero": number("cells", -(10**15)),
    "a cell twice": lambda header, columns: columns["cells"][0].__setitem__(1, columns["cells"][0][0]),
    "totals that are no numbers": number("total", np.nan),
    "totals without end": number("total", np.inf, 3),
    "totals larger than all items": number("total", 1e6),
    "totals of another length": shorter,
    "cells without items": number("cell_counts", 0),
    "cells that do not add up": one_more("cell_counts"),
    "copies far too many": number("sample_copies", 1 << 62),
    "copies below zero": number("sample_copies", -1),
    "a hash out of order": number("sample_hash", TOP - np.uint64(1)),
    "a limit below its items": number("sample_limit", 0),
    "a limit above all": number("sample_limit", TOP),
    "a step without end": number("sample_step", np.inf),
    "a step of zero": number("sample_step", 0.0),
    "skipped below zero": number("skipped", -7),
    "skipped far too many": number("skipped", (1 << 63) - 1),
    "items of another collection": moved_size,
}


def two_collections(path: Path, groups: int = 2) -> ControlSet:
    control = control_of(groups)
    rows = items(0, 900, groups)
    write_sketches(path, {"x": sketch_of(control, rows[:700]), "y": sketch_of(control, rows[700:])})
    return control


@pytest.mark.parametrize("change", FORGED.values(), ids=list(FORGED))
def test_a_forged_file_is_refused(
    change: Callable[[dict[str, Any], Columns], object], tmp_path: Path
) -> None:
    path, same = tmp_path / "one.sketch", tmp_path / "same.sketch"
    control = two_collections(path)
    two_collections(same)
    forge(same, lambda header, columns: None)
    assert read_sketches(same, control)["x"].count == 700
    forge(path, change)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for use in (
        lambda: read_sketches(path, control),
        lambda: merge_sketches([path, path], tmp_path / "out.sketch"),
        lambda: subtract_sketches(same, [path], tmp_path / "out.sketch"),
    ):
        with pytest.raises(
            FileError, match=r"one\.sketch (is not a sketch, or )?is damaged|one\.sketch.*is damaged"
        ):
            use()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KB
    assert not (tmp_path / "out.sketch").exists()


@pytest.mark.parametrize(
    "change",
    [
        one_more("joint_copies"),
        number("joint_rows", 255, 1),
        number("joint_limit", 0),
        heading(joint_items=5),
    ],
)
def test_a_forged_file_of_three_groups_is_refused(
    change: Callable[[dict[str, Any], Columns], object], tmp_path: Path
) -> None:
    path = tmp_path / "one.sketch"
    control = two_collections(path, 3)
    forge(path, change)
    with pytest.raises(FileError, match="is damaged"):
        read_sketches(path, control)


def test_nothing_is_left_of_a_file_that_cannot_be_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "one.sketch"
    small_file(path)
    before = path.read_bytes()

    def fail(*_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(sketchfile, "_update", fail)
    with pytest.raises(RuntimeError):
        small_file(path)
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
    assert_same_state(rest, lowered(tuesday, both))
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
        InputError, match=r"monday cannot be subtracted from .*week: some of its items were never added"
    ):
        subtract_sketches(week, [monday], other)
    skipped = sketch_of(control, rows[:20])
    skipped.skip("unreadable")
    skipped.save(monday)
    with pytest.raises(InputError, match="cannot be subtracted"):
        subtract_sketches(week, [monday], other)
    sketch_of(control, rows[:20]).save(monday)
    with pytest.raises(InputError, match="cannot be subtracted"):
        subtract_sketches(week, [monday, monday], other)
    sketch_of(control, rows[:20], seed=1).save(monday)
    with pytest.raises(MismatchError, match="different control sets or seeds"):
        subtract_sketches(week, [monday], other)
    write_sketches(monday, {"x": sketch_of(control, rows[:20]), "y": sketch_of(control, rows[20:30])})
    with pytest.raises(InputError, match=r"has the collection 'x', .*week has not"):
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
    names = [f"c{i}" for i in range(3000)]
    scorer = scorer_for(control)
    sketches = sketch_blocks([(rows, (names, owner))], control, scorer).sketches(control, scorer)
    path = tmp_path / "many"
    write_sketches(path, sketches)
    if how:
        how([path], path)
    again = read_sketches(path, control)
    assert list(again) == list(sketches)
    for name in ("c0", "c1023", "c1024", "c2999"):
        assert_same_state(again[name], sketches[name], tolerance=0)
    # Sums and counts of a collection, vectors, hash, copies, step and cells of an item, and little else.
    assert path.stat().st_size < 3000 * (D * 8 + 200) + len(rows) * (D + 8 + 8 + 4 + 16 + 20) + 20_000


def test_vectors_of_another_dimension_are_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "one.sketch", tmp_path / "other.sketch"
    control = two_collections(path)
    vectors, names = draw_groups(2, [12, 15], d=D + 1)
    wider = ControlSet(vectors, names, attribute="letter")
    write_sketches(other, {"x": sketch_of(wider, items(0, 50, d=D + 1))})
    forge(other, lambda header, _: header["origin"].update(control=control.digest))
    with pytest.raises(FileError, match=r"other\.sketch is not a sketch.*those of its control set"):
        read_sketches(other, control)
    with pytest.raises(
        FileError, match="the same control set, but have different numbers of groups or dimensions"
    ):
        merge_sketches([path, other], tmp_path / "out.sketch")
    with pytest.raises(FileError, match="different numbers of groups"):
        subtract_sketches(path, [other], tmp_path / "out.sketch")


@pytest.mark.slow
def test_more_files_are_merged_than_can_be_open(tmp_path: Path) -> None:
    control = control_of(2)
    rows = items(0, 160)
    for at in range(80):
        sketch_of(control, rows[2 * at : 2 * at + 2]).save(tmp_path / f"{at:03}.sketch")
    program = (
        "import resource, sys; from pathlib import Path\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "from divscore.sketch.sketchfile import merge_sketches\n"
        "print(merge_sketches(sorted(Path(sys.argv[1]).glob('*.sketch')), sys.argv[2]))\n"
    )
    out = tmp_path / "out" / "all.sketch"
    out.parent.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), str(out)], capture_output=True, text=True
    )
    assert done.stdout == "{'all': 160}\n", done.stderr
    assert_same_state(Sketch.load(out, control), sketch_of(control, rows))


def test_what_was_missing_is_kept_and_joined(tmp_path: Path) -> None:
    control, rows = control_of(2), items(0, 90)
    days = [tmp_path / f"{at}.sketch" for at in range(3)]
    lost = [MissingPart("a.npy", "it is damaged", 1200), MissingPart("b.npy, rows 0 to 9", "gone")]
    for at, path in enumerate(days):
        write_sketches(path, {"": sketch_of(control, rows[30 * at : 30 * at + 30])}, lost[at : at + 1])
    assert open_sketches(days[2], control).missing == Missing()
    merge_sketches(days, tmp_path / "all.sketch")
    gaps = open_sketches(tmp_path / "all.sketch", control).missing
    assert gaps.listed == tuple(lost)
    assert gaps.warning == (
        "2 parts of the source could not be read and are missing (at least 1,200 rows): "
        "a.npy, b.npy, rows 0 to 9",
    )
    subtract_sketches(tmp_path / "all.sketch", [days[1]], tmp_path / "rest.sketch")
    assert open_sketches(tmp_path / "rest.sketch", control).missing == gaps
