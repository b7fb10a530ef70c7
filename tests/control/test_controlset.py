from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import draw_groups

from divscore.audit.audit import audit
from divscore.control.controlfile import save_control
from divscore.control.controlset import MAX_GROUPS, ControlSet
from divscore.control.similarity import FloatArray, Similarity
from divscore.errors import ControlError, DivscoreError, InputError, MismatchError, VectorError
from divscore.sketch.sketch import Sketch

D = 8


def pool(**options: Any) -> ControlSet:
    vectors, names = draw_groups(0, [12, 12])
    return ControlSet(vectors, names, attribute="letter", **options)


def with_row(row: int, value: Any) -> FloatArray:
    vectors = draw_groups(0, [12, 12])[0]
    vectors[row] = value
    return vectors


def test_what_the_user_got_wrong_is_a_value_error() -> None:
    for error in (VectorError, ControlError, MismatchError):
        assert issubclass(error, InputError)
    assert issubclass(InputError, ValueError)
    assert issubclass(InputError, DivscoreError)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_labelled_examples_that_are_not_finite(value: float) -> None:
    with pytest.raises(
        ControlError, match=r"labelled example '5' \(row 5\) has NaN or infinite numbers; fix it"
    ):
        ControlSet(with_row(5, value), ["a", "b"] * 12, attribute="letter")


def test_labelled_examples_that_are_zero_are_named() -> None:
    vectors = with_row(5, 0.0)
    vectors[7] = 0.0
    names = [f"file{i}.jpg" for i in range(24)]
    with pytest.raises(ControlError, match=r"'file5.jpg' \(row 5\) has only zeros \(2 such examples\)"):
        ControlSet(vectors, ["a", "b"] * 12, attribute="letter", ids=names)


def test_no_labelled_examples() -> None:
    with pytest.raises(ControlError, match="the control set is empty; it needs labelled examples"):
        ControlSet(np.empty((0, D)), [], attribute="letter")


def test_one_group_only() -> None:
    with pytest.raises(
        ControlError, match="all 6 labelled examples belong to group 'a'; at least two groups"
    ):
        ControlSet(np.ones((6, D)), ["a"] * 6, attribute="letter")


def test_one_example_in_a_group() -> None:
    with pytest.raises(
        ControlError, match="group 'b' has 1 labelled example; every group needs at least two"
    ):
        ControlSet(np.ones((4, D)), ["a", "a", "a", "b"], attribute="letter")
    chosen = pool()
    with pytest.raises(
        ControlError, match="group 'b' would have 1 representative; each group needs at least two"
    ):
        chosen.with_representatives([*chosen.rows(0), chosen.rows(1)[0]])
    with pytest.raises(ControlError, match="group 'a' would have 0 representatives"):
        chosen.with_representatives(chosen.rows(1))


def test_unknown_groups() -> None:
    with pytest.raises(InputError, match="unknown group 'z'; this control set has 'a', 'b'"):
        pool().group_of("z")
    with pytest.raises(ControlError, match="order has 'a', 'z', but the groups are 'a', 'b'"):
        pool(order=("a", "z"))
    with pytest.raises(ControlError, match="order has 'a', but"):
        pool(order=("a",))
    with pytest.raises(ControlError, match="order has 'a', 'a', 'b', but"):
        pool().with_order(("a", "a", "b"))


def test_duplicate_ids() -> None:
    with pytest.raises(ControlError, match=r"several labelled examples have the id 'x\.jpg'"):
        pool(ids=["x.jpg", "y.jpg", "x.jpg", *map(str, range(21))])


def test_counts_that_do_not_agree() -> None:
    with pytest.raises(
        ControlError, match="6 vectors, 5 group names and 5 ids; expected one each per example"
    ):
        ControlSet(np.ones((6, D)), ["a", "a", "b", "b", "b"], attribute="letter")
    with pytest.raises(ControlError, match="24 vectors, 24 group names and 3 ids"):
        pool(ids=["x", "y", "z"])


def test_names_are_stripped_and_not_blank() -> None:
    vectors, names = draw_groups(0, [5, 5])
    assert ControlSet(vectors, [f" {n}\n" for n in names], attribute=" letter ").groups == ("a", "b")
    for blank in ("", "  ", "\n"):
        with pytest.raises(InputError, match="the group needs a name"):
            ControlSet(vectors, [blank if n == "a" else n for n in names], attribute="letter")
        with pytest.raises(InputError, match="the attribute needs a name"):
            ControlSet(vectors, names, attribute=blank)


def test_missing_labels_are_no_group() -> None:
    vectors, names = draw_groups(0, [5, 5])
    for missing in (None, float("nan")):
        with pytest.raises(ControlError, match="group"):
            ControlSet(vectors, [missing if n == "a" else n for n in names], attribute="letter")


@pytest.mark.parametrize(
    "labels",
    [
        [0, 1],
        [1, 2],
        [True, False],
        [0.0, 1.0],
        list(np.array([0, 1])),
        list(np.array([False, True])),
        ["0", "1"],
    ],
)
def test_numbers_are_no_names(labels: list[Any]) -> None:
    for given in (labels * 2, np.array(labels * 2)):
        with pytest.raises(
            ControlError, match=r'groups must be names, got .*; .* with rename=\{\w+: "…", '
        ) as raised:
            ControlSet(np.ones((4, D)), given, attribute="letter")
        assert "--" not in str(raised.value)
        names = ["first" if label == labels[0] else "second" for label in labels * 2]
        renamed = ControlSet(np.ones((4, D)), given, rename={labels[0]: "first", labels[1]: "second"})
        assert [renamed.groups[at] for at in renamed.labels] == names


def test_one_way_to_write_a_label_is_enough() -> None:
    """A file may have 0.0 or "0" where its reader thinks of 0."""
    expected = [0, 1, 0, 1]
    for labels in ([0.0, 1.0], ["0", "1"], [False, True]):
        for rename in ({0: "a", 1: "b"}, {"0": "a", "1": "b"}, {False: "a", True: "b"}):
            assert ControlSet(np.ones((4, D)), labels * 2, rename=rename).labels.tolist() == expected


def test_what_cannot_be_renamed() -> None:
    with pytest.raises(InputError, match="no labelled example has the label '2'; the labels are 0, 1"):
        ControlSet(np.ones((4, D)), [0, 1, 0, 1], rename={0: "a", 1: "b", 2: "c"})
    with pytest.raises(ControlError, match=r'got 1; .*rename=\{1: "…"\}'):
        ControlSet(np.ones((4, D)), [0, 1, 0, 1], rename={0: "a"})
    for name in ("", None, 5, "1"):
        with pytest.raises(InputError, match="the label 0 needs a name"):
            ControlSet(np.ones((4, D)), [0, 1, 0, 1], rename={0: name, 1: "b"})  # type: ignore[dict-item]
    with pytest.raises(ControlError, match="no group"):
        ControlSet(np.ones((4, D)), [0, 1, 0, np.nan], rename={0: "a", 1: "b"})


def test_labels_with_one_name_become_one_group() -> None:
    labels = ["f", "female", "m", "m"]
    with pytest.warns(UserWarning, match="the labels 'f' and 'female' are one group, 'female'") as caught:
        control = ControlSet(np.ones((4, D)), labels, rename={"f": "female"})
    assert control.counts == {"female": 2, "m": 2}
    assert caught[0].filename == __file__


def test_the_attribute_has_a_default() -> None:
    assert ControlSet(np.ones((4, D)), ["a", "b"] * 2).attribute == "group"


def test_a_control_set_remembers_where_its_examples_are() -> None:
    origins = ["/a.jpg", None, "a text, see https://host/?key=1", "s3://me:secret@host/a.jpg?signature=1f"]
    control = ControlSet(np.eye(4), ["a", "b"] * 2, origins=origins)
    kept = (*origins[:3], "s3://…host/a.jpg?…")
    changed = (
        control.with_order(["b", "a"]),
        control.with_ids("wxyz"),
        control.with_representatives(range(4)),
        pickle.loads(pickle.dumps(control)),
    )
    assert all(each.origins == kept for each in (control, *changed))
    forgetful = control.with_origins(None)
    assert forgetful.origins is None
    assert forgetful.digest == control.digest
    with pytest.raises(ControlError, match="1 origins for 4 examples"):
        control.with_origins(["one"])
    eight = ControlSet(np.eye(8), ["a", "b"] * 4, origins=map(str, range(8)))
    halves = ControlSet(np.eye(8), ["x", "x", "y", "y"] * 2, attribute="other")
    assert eight.cross(halves).origins == tuple("01234567")
    assert halves.origins is None


def test_too_many_groups() -> None:
    names = [f"g{i:02}" for i in range(MAX_GROUPS + 1)]
    with pytest.raises(ControlError, match="13 groups; divscore handles at most 12: 'g00', 'g01'"):
        ControlSet(np.ones((2 * len(names), D)), names * 2, attribute="letter")
    assert len(ControlSet(np.ones((2 * MAX_GROUPS, D)), names[:MAX_GROUPS] * 2, attribute="l").groups) == 12


def negative(A: FloatArray, B: FloatArray) -> FloatArray:
    return -np.ones((len(A), len(B)))


def undefined(A: FloatArray, B: FloatArray) -> FloatArray:
    return np.full((len(A), len(B)), np.nan)


def misshapen(A: FloatArray, B: FloatArray) -> FloatArray:
    return np.ones(len(A))


@pytest.mark.parametrize(
    ("similarity", "message"),
    [
        (negative, "similarity 'negative' returned -1, expected numbers ≥ 0"),
        (undefined, "similarity 'undefined' returned nan, expected numbers ≥ 0"),
        (misshapen, r"similarity 'misshapen' returned shape \(4096,\) for blocks of"),
    ],
)
def test_similarities_that_are_none(similarity: Any, message: str) -> None:
    control = pool(similarity=similarity)
    with pytest.raises(InputError, match=message.replace("4096", r"\d+")):
        audit(draw_groups(1, [20, 20])[0], control)
    with pytest.raises(InputError, match="returned"):
        Similarity.of(similarity).pairs(np.ones((3, 2)), np.ones((4, 2)))
    with pytest.raises(InputError, match="unknown similarity 'euclidean'; use 'cosine' or a callable"):
        pool(similarity="euclidean")


def text() -> np.ndarray:
    return np.array([["0.1", "0.2"], ["0.3", "0.4"]])


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[1.0, 2.0], [3.0]], "have different lengths; every item needs the same dimension"),
        ([[1.0, [2.0]], [3.0, 4.0]], "have different lengths"),
        (["a photo", "another"], r"must be real numbers, got type <U7"),
        (text(), "must be real numbers, got type <U3"),
        ([[1, None], [2, 3]], "must be numbers in a rectangular array, not Python objects"),
        ([[1 + 2j, 0]], "must be real numbers, got type complex128"),
        ([1.0, 2.0], r"must be a matrix of items × dimensions, got shape \(2,\)"),
        (np.ones((2, 2, 2)), r"must be a matrix of items × dimensions, got shape \(2, 2, 2\)"),
        (np.empty((3, 0)), r"have no dimensions: shape \(3, 0\)"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "must be real numbers"),
        (np.array(1.0), r"must be a matrix .* got shape \(\)"),
    ],
)
def test_vectors_that_are_none(vectors: Any, message: str) -> None:
    with pytest.raises(VectorError, match=f"the collection's vectors {message}"):
        Sketch(pool()).add(vectors)
    with pytest.raises(VectorError, match=f"the control set's vectors {message}"):
        ControlSet(vectors, ["a", "b"], attribute="letter")


def test_read_takes_files_folders_and_saved_sets(tmp_path: Path) -> None:
    vectors, names = draw_groups(0, [12, 12])
    table = pa.table({"letter": names, "embedding": list(vectors)})
    pq.write_table(table, tmp_path / "labelled.parquet")
    control = ControlSet.read(tmp_path / "labelled.parquet", attribute="letter", order=("b", "a"))
    assert (control.groups, control.attribute, len(control)) == (("b", "a"), "letter", 24)
    save_control(control, tmp_path / "saved")
    assert ControlSet.read(tmp_path / "saved").digest == control.digest
    (tmp_path / "texts.csv").write_text(
        "text,group\n" + "a river,water\na lake,water\na hill,land\na rock,land\n"
    )
    texts = ControlSet.read(tmp_path / "texts.csv", encoder="ngrams")
    assert texts.counts == {"land": 2, "water": 2}
    assert texts.encoder is not None


def test_only_the_same_vectors_cross() -> None:
    with pytest.raises(MismatchError, match="same vectors"):
        pool().cross(ControlSet(with_row(3, 1.0), ["a", "b"] * 12, attribute="letter"))


def test_the_control_set_keeps_its_own_copy() -> None:
    vectors, names = draw_groups(0, [20, 20])
    control = ControlSet(vectors, names, attribute="letter")
    digest = control.digest
    vectors[:] = 0
    assert control.vectors.any()
    assert ControlSet(control.vectors, names, attribute="letter").digest == digest
    with pytest.raises(ValueError, match="read-only"):
        control.vectors[0] = 0
