"""Forged sketch files: their checksums are right and their content is not. And files of which there are very many."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import draw_groups
from test_sketch import assert_same_state, control_of, items, overlap, sketch_of

from divscore.control.controlset import ControlSet
from divscore.errors import FileError, InputError
from divscore.files import CheckedReader, CheckedWriter
from divscore.sketch.missing import Missing, MissingPart
from divscore.sketch.sketch import Sketch
from divscore.sketch.sketchfile import (
    EACH,
    LONG,
    MAGIC,
    merge_sketches,
    open_sketches,
    read_sketches,
    subtract_sketches,
    write_sketches,
)

Content = dict[str, Any]


def taken_apart(path: Path) -> tuple[dict[str, Any], Content]:
    with CheckedReader(path, MAGIC) as file:
        header = json.loads(file.header)
        shapes = header["shapes"]
        width = header["rows"] * (header["groups"] - 1)
        found: Content = {"codes": file.rows(shapes["item_levels"][0], width)[0 : shapes["item_levels"][0]]}
        found |= {key: file.array(kind, shapes[key]) for key, kind in {**EACH, **LONG}.items()}
    return header, {key: array.copy() for key, array in found.items()}


def put_together(path: Path, header: dict[str, Any], content: Content) -> None:
    with CheckedWriter(path, MAGIC, "the sketch") as file:
        for array in content.values():
            file.write(array)
        file.finish(json.dumps(header).encode())


def heading(**change: Any) -> Callable[[dict[str, Any], Content], None]:
    return lambda header, content: header.update(change)


def number(key: str, value: Any, at: Any = 0) -> Callable[[dict[str, Any], Content], None]:
    def forge(header: dict[str, Any], content: Content) -> None:
        content[key].reshape(-1)[at] = value

    return forge


def shaped(key: str, shape: Any) -> Callable[[dict[str, Any], Content], None]:
    return lambda header, content: header["shapes"].update({key: shape})


def dimension(header: dict[str, Any], content: Content) -> None:
    """Vectors of one number less."""
    content["totals"] = content["totals"][:, 1:]
    header["shapes"]["totals"] = list(content["totals"].shape)


def one_key(header: dict[str, Any], content: Content) -> None:
    content["cell_keys"][1] = content["cell_keys"][0]


def moved_size(header: dict[str, Any], content: Content) -> None:
    """Collections of −1 and one too many cells, whose sum is right."""
    content["sizes"][:, 0] += [-content["sizes"][0, 0] - 1, content["sizes"][0, 0] + 1]


def moved_count(header: dict[str, Any], content: Content) -> None:
    """An item more in one cell; its sum does not agree with the levels any more."""
    content["cell_counts"][0] += 1


def other_level(header: dict[str, Any], content: Content) -> None:
    content["item_levels"][0] = (content["item_levels"][0] + 1) % 25


def more_bytes(header: dict[str, Any], content: Content) -> None:
    content["more"] = np.zeros(8, dtype=np.uint8)


FORGED = {
    "rows": heading(rows=200_000_000),
    "rows of zero": heading(rows=0),
    "seed below zero": heading(seed=-1),
    "seed of text": heading(seed="1; rm"),
    "seed of a fraction": heading(seed=1.5),
    "seed that is true": heading(seed=True),
    "seed without end": heading(seed=10**400),
    "side": heading(side=3),
    "cells": heading(cells=1),
    "groups": heading(groups=3),
    "no groups": heading(groups=0),
    "very many groups": heading(groups=10**6),
    "no attribute": heading(attribute=None),
    "names": heading(collections=["x", "x"]),
    "a name that is none": heading(collections=["x", 7]),
    "names that are a text": heading(collections="xy"),
    "shape below zero": shaped("cell_keys", [-1]),
    "shape of a fraction": shaped("cell_keys", [1.5]),
    "shape that is huge": shaped("item_levels", [1 << 60]),
    "shape of one rank": shaped("totals", [2]),
    "levels of another width": shaped("levels", [2, 24]),
    "missing that is a text": heading(missing="nothing"),
    "missing without a reason": heading(missing={"listed": [{"part": "x"}]}),
    "missing rows below zero": heading(missing={"listed": [{"part": "x", "reason": "", "rows": -3}]}),
    "missing without number": heading(missing={"more": "many"}),
    "a code beyond the grid": number("codes", 255),
    "levels below zero": number("levels", -5),
    "levels far too large": number("levels", 1 << 62),
    "levels that hide each other": number("levels", [-(1 << 40), 1 << 40], [0, 1]),
    "a key far off": number("cell_keys", 10**15, -1),
    "a key below zero": number("cell_keys", -(10**15)),
    "a key twice": one_key,
    "totals that are no numbers": number("totals", np.nan),
    "totals without end": number("totals", np.inf, 3),
    "totals larger than all items": number("totals", 1e6),
    "counts below zero": number("cell_counts", -1),
    "counts that do not add up": moved_count,
    "copies": number("item_times", 1 << 62),
    "copies below zero": number("item_times", -1),
    "another level": other_level,
    "a level that is none": number("item_levels", 200),
    "floors below zero": number("floors", -1),
    "floors above all": number("floors", 25, 1),
    "a floor of cells": number("floors", 1),
    "skipped below zero": number("skipped", -7),
    "skipped far too many": number("skipped", (1 << 63) - 1),
    "sizes below zero": moved_size,
    "sizes that overflow": number("sizes", (1 << 63) - 1),
    "bytes that nobody asked for": more_bytes,
}


def two_collections(path: Path, groups: int = 2) -> ControlSet:
    control = control_of(groups)
    rows = items(0, 900, groups)
    write_sketches(path, {"x": sketch_of(control, rows[:700]), "y": sketch_of(control, rows[700:])})
    return control


@pytest.mark.parametrize("forge", FORGED.values(), ids=list(FORGED))
def test_a_forged_file_is_refused(forge: Callable[[dict[str, Any], Content], None], tmp_path: Path) -> None:
    path = tmp_path / "one.sketch"
    control = two_collections(path)
    header, content = taken_apart(path)
    put_together(tmp_path / "same.sketch", header, content)
    assert (tmp_path / "same.sketch").read_bytes() == path.read_bytes()
    forge(header, content)
    put_together(path, header, content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for use in (
        lambda: read_sketches(path, control),
        lambda: merge_sketches([path, path], tmp_path / "out.sketch"),
        lambda: subtract_sketches(tmp_path / "same.sketch", [path], tmp_path / "out.sketch"),
    ):
        with pytest.raises(
            FileError, match=r"one\.sketch is not a sketch, or is damaged \(.+\); make it anew"
        ):
            use()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KB
    assert not (tmp_path / "out.sketch").exists()


@pytest.mark.parametrize("forge", [moved_count, one_key, other_level, number("floors", 0)])
def test_a_forged_file_of_three_groups_is_refused(
    forge: Callable[[dict[str, Any], Content], None], tmp_path: Path
) -> None:
    path = tmp_path / "one.sketch"
    control = control_of(3)
    sketch = sketch_of(control, items(0, 3000, 3))
    sketch.cells.raise_floor(2)
    sketch.save(path)
    assert Sketch.load(path, control).cells.floor == 2
    header, content = taken_apart(path)
    forge(header, content)
    put_together(path, header, content)
    with pytest.raises(FileError, match="is damaged"):
        read_sketches(path, control)


def test_vectors_of_another_dimension_are_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "one.sketch", tmp_path / "other.sketch"
    control = two_collections(path)
    header, content = taken_apart(path)
    dimension(header, content)
    put_together(other, header, content)
    with pytest.raises(FileError, match=r"other\.sketch is not a sketch.*those of its control set"):
        read_sketches(other, control)
    with pytest.raises(
        FileError, match="the same control set, but have vectors or groups of different numbers"
    ):
        merge_sketches([path, other], tmp_path / "out.sketch")
    with pytest.raises(FileError, match="of different numbers"):
        subtract_sketches(path, [other], tmp_path / "out.sketch")


def test_similarities_of_another_number_are_refused(tmp_path: Path) -> None:
    vectors, names = draw_groups(0, [8, 8])
    control = ControlSet(vectors, names, attribute="letter", similarity=overlap)
    path = tmp_path / "one.sketch"
    sketch_of(control, items(1, 40)).save(path)
    header, content = taken_apart(path)
    content["similarities"] = content["similarities"][:, 1:]
    header["shapes"]["similarities"] = list(content["similarities"].shape)
    put_together(path, header, content)
    with pytest.raises(FileError, match="those of its control set"):
        read_sketches(path, control)


def test_more_files_are_merged_than_can_be_open(tmp_path: Path) -> None:
    control = control_of(2)
    rows = items(0, 300)
    for at in range(150):
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
    assert done.stdout == "{'all': 300}\n", done.stderr
    assert_same_state(Sketch.load(out, control), sketch_of(control, rows))


def test_what_the_system_says_is_not_called_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control = two_collections(tmp_path / "one.sketch")
    with pytest.raises(FileError, match=r"cannot read .*: Is a directory") as caught:
        read_sketches(tmp_path, control)
    assert "damaged" not in str(caught.value)


def test_a_file_that_is_replaced_while_its_sketches_are_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rows = tmp_path / "one.sketch", items(0, 100)
    control = control_of(2)
    sketch_of(control, rows).save(path)
    small = Sketch.load(path, control)
    monkeypatch.setattr("divscore.sketch.sketchfile.IN_MEMORY", 0)
    large = Sketch.load(path, control)
    sketch_of(control, rows[:50]).save(path)
    assert small.replicate_cells.items == 100
    with pytest.raises(FileError, match="was replaced or changed while it was in use; read it anew"):
        large.replicate_cells.settled()


def test_what_was_missing_is_kept_and_joined(tmp_path: Path) -> None:
    control, rows = control_of(2), items(0, 90)
    days = [tmp_path / f"{at}.sketch" for at in range(3)]
    lost = [MissingPart("a.npy", "it is damaged", 1200), MissingPart("b.npy, rows 0 to 9", "gone")]
    for at, path in enumerate(days):
        write_sketches(path, {"": sketch_of(control, rows[30 * at : 30 * at + 30])}, lost[at : at + 1])
    assert open_sketches(days[2], control).gaps == Missing()
    merge_sketches(days, tmp_path / "all.sketch")
    gaps = open_sketches(tmp_path / "all.sketch", control).gaps
    assert gaps.listed == tuple(lost)
    assert gaps.warning == (
        "2 parts of the source could not be read and are missing (at least 1,200 rows): "
        "a.npy, b.npy, rows 0 to 9",
    )
    subtract_sketches(tmp_path / "all.sketch", [days[1]], tmp_path / "rest.sketch")
    assert open_sketches(tmp_path / "rest.sketch", control).gaps == gaps


def test_very_much_that_is_missing_stays_small(tmp_path: Path) -> None:
    many = [MissingPart(f"{'long ' * 100}{at}.npy", "why " * 1000, at) for at in range(1000)]
    gaps = Missing.of(many)
    assert len(json.dumps(gaps.to_dict())) < 100_000
    assert "1,000 parts of the source" in gaps.warning[0]
    assert f"(at least {sum(range(1000)):,} rows)" in gaps.warning[0]
    assert Missing.from_dict(gaps.to_dict()) == gaps
    joined = gaps + gaps
    assert (len(joined.listed), joined.more, joined.more_rows) == (
        100,
        1900,
        2 * sum(range(1000)) - sum(range(100)),
    )


def test_an_address_to_write_to_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a URL; the sketch can only be written to a local"):
        sketch_of(control_of(2), items(0, 30)).save("s3://bucket/one.sketch")
