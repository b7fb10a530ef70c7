from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divscore.control.controlfile import is_control, load_control, save_control
from divscore.control.controlset import ControlSet
from divscore.control.similarity import COSINE, Similarity
from divscore.errors import FileError, MismatchError

FILES = {"control.parquet", "card.md", "croissant.json"}


def dot(left: Any, right: Any) -> Any:
    return np.maximum(left @ right.T, 0.0)


def example(**options: Any) -> ControlSet:
    vectors = np.random.default_rng(1).standard_normal((10, 3)).astype(np.float32)
    control = ControlSet(vectors, ["b", "a"] * 5, attribute="letter", **options)
    return control.with_representatives([0, 1, 2, 3], "adaptive")


def assert_same(left: ControlSet, right: ControlSet) -> None:
    assert left.vectors.dtype == right.vectors.dtype
    assert left.vectors.tobytes() == right.vectors.tobytes()
    for name in ("attribute", "groups", "ids", "encoder", "hand_picked", "method", "similarity", "digest"):
        assert getattr(left, name) == getattr(right, name), name
    np.testing.assert_array_equal(left.labels, right.labels)
    np.testing.assert_array_equal(left.representative, right.representative)


NAMES = st.one_of(
    st.sampled_from(["a/b", "ü×", "x\ny", "it's", 'say "hi"', "🙂", "a | b", "`x`", "\\", "../up", "a × b"]),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
).map(str.strip)
GROUP_NAMES = NAMES.filter(lambda name: name not in {"", "0", "1"})


@st.composite
def controls(draw: st.DrawFn) -> ControlSet:
    groups = draw(st.lists(GROUP_NAMES, min_size=2, max_size=4, unique=True))
    labels = draw(st.permutations([*groups, *groups, *groups]))
    seed = draw(st.integers(0, 2**32 - 1))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    vectors = (
        np.random.default_rng(seed).standard_normal((len(labels), draw(st.integers(1, 5)))).astype(dtype)
    )
    control = ControlSet(
        vectors if draw(st.booleans()) else np.asfortranarray(vectors),
        labels,
        attribute=draw(NAMES.filter(bool)),
        order=draw(st.permutations(groups)),
        ids=draw(st.none() | st.lists(NAMES, min_size=len(labels), max_size=len(labels), unique=True)),
        encoder=draw(st.none() | NAMES),
        hand_picked=draw(st.booleans()),
    )
    rows = [row for group in range(len(groups)) for row in control.rows(group)[: draw(st.integers(2, 3))]]
    return control.with_representatives(rows, draw(NAMES.filter(bool)))


@given(controls())
def test_saving_and_loading_changes_nothing(control: ControlSet) -> None:
    with tempfile.TemporaryDirectory() as folder:
        save_control(control, Path(folder) / "c")
        assert_same(load_control(Path(folder) / "c"), control)
        assert_same(load_control(Path(folder) / "c" / "control.parquet"), control)
        json.loads((Path(folder) / "c" / "croissant.json").read_text(encoding="utf-8"))


def test_the_table_can_be_read_by_others(tmp_path: Path) -> None:
    control = example()
    save_control(control, tmp_path / "deep" / "c")
    table = pq.read_table(tmp_path / "deep" / "c" / "control.parquet")
    assert table.schema.names == ["id", "group", "representative", "embedding"]
    assert not any(field.nullable for field in table.schema)
    assert table.schema.field("embedding").type.list_size == 3
    about = json.loads(table.schema.metadata[b"divscore.control/1"])
    assert about["attribute"] == "letter"
    assert about["order"] == ["a", "b"]
    assert about["digest"] == control.digest


def test_card_and_croissant_describe_the_table(tmp_path: Path) -> None:
    control = example(encoder="faces_v1")
    save_control(control, tmp_path / "c")
    card = (tmp_path / "c" / "card.md").read_text()
    for words in (
        "Control set for letter",
        "| a | 5 | 2 |",
        "adaptive",
        "faces\\_v1",
        control.digest,
        "stereotypes",
    ):
        assert words in card
    croissant = json.loads((tmp_path / "c" / "croissant.json").read_text())
    (file,) = croissant["distribution"]
    assert file["sha256"] == hashlib.sha256((tmp_path / "c" / "control.parquet").read_bytes()).hexdigest()
    fields = [field["source"]["extract"]["column"] for field in croissant["recordSet"][0]["field"]]
    assert fields == ["id", "group", "representative", "embedding"]


def test_names_cannot_break_the_card(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).standard_normal((4, 2))
    control = ControlSet(vectors, ["a\n# b|", "<i>"] * 2, attribute="x\ny")
    save_control(control, tmp_path / "c")
    card = (tmp_path / "c" / "card.md").read_text()
    assert "# Control set for x y\n" in card
    assert "| a \\# b\\| | 2 | 2 |" in card
    assert "| &lt;i&gt; | 2 | 2 |" in card


def test_an_earlier_control_set_is_replaced_and_nothing_else_lost(tmp_path: Path) -> None:
    save_control(example(), tmp_path / "c")
    (tmp_path / "c" / "notes.txt").write_text("mine")
    second = example(encoder="other")
    save_control(second, tmp_path / "c")
    assert load_control(tmp_path / "c").encoder == "other"
    assert {entry.name for entry in (tmp_path / "c").iterdir()} == {*FILES, "notes.txt"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["c"]


def test_an_empty_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    save_control(example(), tmp_path / "c")
    assert {entry.name for entry in (tmp_path / "c").iterdir()} == FILES


def test_other_folders_and_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_text("x")
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileError, match="photos is a folder with other files"):
        save_control(example(), tmp_path / "photos")
    with pytest.raises(FileError, match="file is a file; a control set is saved as a folder"):
        save_control(example(), tmp_path / "file")
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == ["a.jpg", "file", "photos"]


def test_a_failed_save_leaves_nothing_behind(tmp_path: Path) -> None:
    save_control(example(), tmp_path / "c")
    before = (tmp_path / "c" / "control.parquet").read_bytes()
    names = [*map(str, range(9)), "\udcff"]
    with pytest.raises(FileError, match="is not valid text"):
        save_control(example(ids=names), tmp_path / "c")
    assert (tmp_path / "c" / "control.parquet").read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["c"]


def rewrite(folder: Path, column: str, values: Any) -> None:
    table = pq.read_table(folder / "control.parquet")
    at = table.schema.names.index(column)
    pq.write_table(table.set_column(at, table.schema.field(at), values), folder / "control.parquet")


def test_origins_are_saved_and_not_part_of_the_fingerprint(tmp_path: Path) -> None:
    origins = ("/photos/a.jpg", None, "a text", "", *["x"] * 6)
    control = example(origins=origins)
    save_control(control, tmp_path / "with")
    save_control(example(), tmp_path / "without")
    assert load_control(tmp_path / "with").origins == origins
    assert load_control(tmp_path / "without").origins is None  # as in files of earlier versions
    assert "origin" not in pq.read_schema(tmp_path / "without" / "control.parquet").names
    assert load_control(tmp_path / "with").digest == load_control(tmp_path / "without").digest


def test_changes_by_hand_are_noticed(tmp_path: Path) -> None:
    save_control(example(), tmp_path / "c")
    rewrite(tmp_path / "c", "group", pa.array(["a", "b"] * 5))
    with pytest.raises(
        FileError, match=r"was changed after it was saved: its fingerprint is .*control select'"
    ):
        load_control(tmp_path / "c")
    changed = load_control(tmp_path / "c", verify=False)
    assert changed.labels.tolist() == [0, 1] * 5
    save_control(changed, tmp_path / "c")
    assert_same(load_control(tmp_path / "c"), changed)


def test_changes_that_break_the_set_are_told_as_such(tmp_path: Path) -> None:
    save_control(example(), tmp_path / "c")
    rewrite(tmp_path / "c", "group", pa.array(["z", "b"] * 5))
    with pytest.raises(
        FileError, match=r"was changed after it was saved and no longer works: the order has 'a', 'b'"
    ):
        load_control(tmp_path / "c")


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b"{}",
        {"digest": 5},
        {"similarity": []},
        {"order": "ab"},
        {"order": [["a"], "b"]},
        {"encoder": ["x"]},
        {"method": None},
        {"hand_picked": "no"},
        {"left_out": {"a": "many"}},
        {"left_out": {"a": [1]}},
        {"left_out": 3},
        {"attribute": {}},
    ],
)
@pytest.mark.parametrize("verify", [True, False])
def test_entries_of_strangers_end_in_words(
    entry: bytes | dict[str, Any], verify: bool, tmp_path: Path
) -> None:
    file = tmp_path / "c" / "control.parquet"
    save_control(example(), file.parent)
    table = pq.read_table(file)
    about = json.loads(table.schema.metadata[b"divscore.control/1"])
    text = entry if isinstance(entry, bytes) else json.dumps({**about, **entry}).encode()
    pq.write_table(table.replace_schema_metadata({b"divscore.control/1": text}), file)
    with pytest.raises(FileError, match=r"damaged|was changed after it was saved"):
        load_control(file, verify=verify)


@pytest.mark.parametrize("column", ["id", "group", "representative", "embedding"])
def test_tables_of_strangers_end_in_words(column: str, tmp_path: Path) -> None:
    file = tmp_path / "c" / "control.parquet"
    save_control(example(), file.parent)
    table = pq.read_table(file)
    place = table.column_names.index(column)
    for other in (pa.array([[1]] * 10), pa.nulls(10), pa.array([1.5] * 10), None):
        changed = table.remove_column(place)
        if other is not None:
            changed = changed.add_column(place, column, other)
        pq.write_table(changed, file)
        with pytest.raises(FileError):
            load_control(file)


def test_what_is_no_control_set(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 oops")
    save_control(example(), tmp_path / "c")
    whole = (tmp_path / "c" / "control.parquet").read_bytes()
    (tmp_path / "c" / "control.parquet").write_bytes(whole[:200])
    for name, words in [
        ("missing", "not a control set: .*missing does not exist"),
        ("empty", "not a control set: .*control.parquet does not exist"),
        ("a.parquet", "the entry divscore.control/1 is missing"),
        ("b.parquet", "damaged or not a Parquet"),
        ("c", "damaged or not a Parquet"),
    ]:
        assert not is_control(tmp_path / name)
        with pytest.raises(FileError, match=words):
            load_control(tmp_path / name)


def test_another_similarity_must_be_given_again(tmp_path: Path) -> None:
    control = example(similarity=dot)
    save_control(control, tmp_path / "c")
    with pytest.raises(FileError, match="made with the similarity 'dot', which a file cannot contain"):
        load_control(tmp_path / "c")
    assert_same(load_control(tmp_path / "c", similarity=dot), control)
    assert load_control(tmp_path / "c", similarity=lambda a, b: dot(a, b)).digest == control.digest
    with pytest.raises(MismatchError, match="made with the similarity 'dot', not"):
        load_control(tmp_path / "c", similarity=Similarity("rbf", dot))


def test_a_cosine_set_takes_no_other_similarity(tmp_path: Path) -> None:
    save_control(example(), tmp_path / "c")
    assert load_control(tmp_path / "c", similarity=COSINE).similarity is COSINE
    with pytest.raises(MismatchError, match="made with the similarity 'cosine'"):
        load_control(tmp_path / "c", similarity=dot)
