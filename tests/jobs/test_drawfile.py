"""The table of a draw: written, labelled in a spreadsheet, and read again."""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from divscore import ControlSet, draw_sample
from divscore.errors import FileError, InputError
from divscore.jobs.drawfile import Draw, DrawnItem, guarded, read_draw, unguarded

Rows = list[dict[str, str]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIVSCORE_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def posts(place: Path) -> Draw:
    """Twelve of 40 texts, all labelled."""
    lines = [f'{at:03},"Text {at}, with a comma"' for at in range(40)]
    Path("posts.csv").write_text("\n".join(["id,text", *lines]) + "\n")
    drawn = draw_sample("posts.csv", 12, groups=["female", "male"], attribute="sex")
    return drawn.labelled(["female", "male"] * 6)


def read(path: str | Path) -> tuple[Draw, list[str]]:
    said: list[str] = []
    drawn = read_draw(path, said.append)
    assert drawn is not None
    return drawn, said


def written(path: str) -> Rows:
    with open(path, encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def edited(draw: Draw, edit: Callable[[Rows], object], delimiter: str = ",", encoding: str = "utf-8") -> str:
    """Save a draw, change its rows as a person would, and save them again."""
    draw.save("drawn.csv", force=True)
    rows = written("drawn.csv")
    rows = list(edit(rows) or rows)  # type: ignore[call-overload]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, rows[0].keys(), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    Path("edited.csv").write_bytes(text.getvalue().encode(encoding))
    return "edited.csv"


def same(one: Draw, other: Draw) -> bool:
    """Whether two draws have the same items, labels and design."""

    def compared(draw: Draw) -> list[DrawnItem]:
        return [replace(item, content=None) for item in draw.items]

    facts = [(draw.kind, draw.attribute, draw.groups, compared(draw)) for draw in (one, other)]
    return facts[0] == facts[1]


# Written and read


@pytest.mark.parametrize("name", ["drawn.csv", "drawn.parquet"])
def test_a_draw_is_read_as_it_was_written(posts: Draw, name: str) -> None:
    posts.save(name)
    again = Draw.read(name)
    assert same(again, posts)
    assert [item.content for item in again.items] == [item.content for item in posts.items]
    assert again.key == posts.key
    assert again.labels == 12


def test_the_columns_are_those_that_are_documented(posts: Draw) -> None:
    posts.save("drawn.csv")
    header = Path("drawn.csv").read_text().splitlines()[0]
    design = "row,stratum,batch,drawn,probability,collection_size,attribute,groups,item_digest,control_digest"
    assert header == f"id,text,group,{design}"
    row = written("drawn.csv")[0]
    assert (row["groups"], row["attribute"], row["collection_size"]) == ("female | male", "sex", "40")
    assert row["item_digest"].startswith("blake2b-")
    assert (row["stratum"], row["control_digest"], row["probability"]) == ("", "", "0.3")
    assert (row["row"], row["drawn"]) == (str(posts.rows[0]), "12")


def test_vectors_are_kept_in_parquet(place: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    drawn = draw_sample(rows, 10).labelled(["a", "b"] * 5)
    drawn.save("drawn.parquet")
    again = Draw.read("drawn.parquet")
    assert all(np.array_equal(rows[int(item.id)], item.vector) for item in again.items)
    control = _silent(lambda: ControlSet.read("drawn.parquet"))
    assert len(control) == 10
    drawn.save("drawn.csv")
    assert "embedding" not in Path("drawn.csv").read_text()
    assert pq.read_table("drawn.parquet").column("stratum").null_count == 10


def test_paths_start_at_the_table_where_that_is_possible(place: Path) -> None:
    tiny.folder(place / "data" / "photos", {"red": 20}, 3, sub_folders=False)
    drawn = draw_sample("data/photos", 5)
    (place / "out").mkdir()
    drawn.save("out/drawn.csv")
    cells = [row["path"] for row in written("out/drawn.csv")]
    assert cells == [f"../data/photos/{item.id}" for item in drawn.items]
    os.rename("out", "other")
    for item in Draw.read("other/drawn.csv").items:
        assert os.path.samefile(str(item.content), place / "data" / "photos" / item.id)
    assert all(
        os.path.isabs(row[1]) for row in drawn.cells()[1]
    )  # a page does not know where its table will be


def test_non_ascii_text_is_marked_for_spreadsheets(place: Path) -> None:
    Path("names.txt").write_text("José\nZoë\nمنى\nAnn\n")
    drawn = draw_sample("names.txt", 4)
    drawn.save("drawn.csv")
    assert Path("drawn.csv").read_bytes().startswith(codecs.BOM_UTF8)
    assert sorted(str(item.content) for item in Draw.read("drawn.csv").items) == sorted(
        ["José", "Zoë", "منى", "Ann"]
    )


@given(st.text())
def test_no_cell_is_a_formula(text: str) -> None:
    cell = guarded(text)
    assert not cell.startswith(("=", "@", "\t", "\r"))
    assert not (cell[:1] in "+-" and cell[1:2].isalpha())
    if text == text.encode("utf-8", "replace").decode():
        assert unguarded(cell) == text or text.startswith("'")


def test_formulas_in_texts_are_not_run(place: Path) -> None:
    texts = ['=HYPERLINK("http://x")', "+1 for this", "-5", "@someone", "'=quoted", "plain"]
    Path("posts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    drawn = draw_sample("posts.jsonl", 6)
    drawn.save("drawn.csv")
    cells = [row["text"] for row in written("drawn.csv")]
    assert sorted(cells) == sorted(
        ['\'=HYPERLINK("http://x")', "'+1 for this", "-5", "'@someone", "'=quoted", "plain"]
    )


# Edited in a spreadsheet


@pytest.mark.parametrize(
    ("delimiter", "encoding"),
    [(";", "utf-8"), (";", "utf-8-sig"), (",", "utf-16"), ("\t", "utf-16"), (",", "utf-8-sig")],
)
def test_separators_and_encodings(posts: Draw, delimiter: str, encoding: str) -> None:
    assert same(read(edited(posts, lambda rows: None, delimiter, encoding))[0], posts)


def test_order_extra_columns_and_spaces(posts: Draw) -> None:
    def edit(rows: Rows) -> Rows:
        changed = [{"note": "mine", **{key: row[key] for key in reversed(row)}} for row in rows]
        return [
            {f" {key.title()} " if key == "group" else key: value for key, value in row.items()}
            for row in changed
        ]

    assert same(read(edited(posts, edit))[0], posts)


def test_numbers_that_became_others(posts: Draw) -> None:
    def edit(rows: Rows) -> None:
        for row in rows:
            row |= {"batch": "1,0", "collection_size": "4.0E+01", "drawn": "12.0", "probability": "0,3"}

    assert same(read(edited(posts, edit))[0], posts)

    def dates(rows: Rows) -> None:
        rows[2]["stratum"] = "03-Jan"

    with pytest.raises(
        FileError, match=r"edited.csv, line 4: '03-Jan' in column 'stratum', expected a whole number"
    ):
        read(edited(posts, dates))


def test_blank_rows_are_no_items(posts: Draw) -> None:
    def edit(rows: Rows) -> Rows:
        return [*rows, dict.fromkeys(rows[0], ""), dict.fromkeys(rows[0], " ")]

    assert same(read(edited(posts, edit))[0], posts)


@pytest.mark.parametrize("column", ["group", "id", "row", "stratum", "batch", "drawn", "item_digest"])
def test_a_renamed_column_is_named(posts: Draw, column: str) -> None:
    def edit(rows: Rows) -> Rows:
        return [
            {("was " + key if key == column else key): value for key, value in row.items()} for row in rows
        ]

    with pytest.raises(
        FileError, match=f"edited.csv has no column '{column}', which 'divscore sample' wrote"
    ):
        read(edited(posts, edit))


def test_repeated_rows(posts: Draw) -> None:
    drawn, said = read(edited(posts, lambda rows: [*rows, rows[3], rows[3] | {"group": ""}]))
    assert same(drawn, posts)
    assert said == [
        f"edited.csv: 2 rows repeated ('{posts.ids[3]}', '{posts.ids[3]}'); each item counts once"
    ]
    other = {"female": "male", "male": "female"}[posts.items[3].group]
    with pytest.raises(
        FileError, match=f"the item '{posts.ids[3]}' is there twice, as '{posts.items[3].group}' and as"
    ):
        read(edited(posts, lambda rows: [*rows, rows[3] | {"group": other}]))


def test_copies_are_different_items(place: Path) -> None:
    """Without ids of their own, or with equal ones, only the row tells reposts from a row that somebody repeated."""
    Path("posts.csv").write_text("id,text\n" + "p,the same post\n" * 8 + "q,another\n" * 4)
    drawn = draw_sample("posts.csv", 10)
    drawn = drawn.labelled(["a" if item.id == "p" else "b" for item in drawn.items])
    again, said = read(edited(drawn, lambda rows: None))
    assert (same(again, drawn), said) == (True, [])
    _, said = read(edited(drawn, lambda rows: [*rows, rows[0]]))
    assert said == [f"edited.csv: 1 row repeated ('{drawn.ids[0]}'); each item counts once"]
    with pytest.raises(FileError, match=f"the item '{drawn.ids[0]}' is there twice, as '.' and as 'c'"):
        read(edited(drawn, lambda rows: [*rows, rows[0] | {"group": "c"}]))
    again.save("drawn.csv")
    assert len(_silent(lambda: ControlSet.read("drawn.csv"))) == 10
    rest = draw_sample("posts.csv", 2, add_to=drawn)  # the two copies that are left
    assert sorted(rest.rows) == list(range(12))


def test_deleted_rows_are_counted(posts: Draw) -> None:
    assert posts.missing == {None: 0}
    both = draw_sample("posts.csv", 10, add_to=posts)
    drawn, said = read(edited(both, lambda rows: [*rows[3:12], *rows[13:]]))
    assert (len(drawn), drawn.missing, said) == (18, {None: 4}, [])


def test_a_draw_for_each_collection_needs_the_column(place: Path) -> None:
    for sizes in ((40, 20), (30, 30)):
        feeds = ["a"] * sizes[0] + ["b"] * sizes[1]
        lines = [f"{at},Text {at},{feed}\n" for at, feed in enumerate(feeds)]
        Path("posts.csv").write_text("".join(["id,text,feed\n", *lines]))
        drawn = draw_sample("posts.csv", 10, by="feed")
        assert drawn.missing == {"a": 0, "b": 0}

        def without(rows: Rows) -> Rows:
            return [{name: cell for name, cell in row.items() if name != "collection"} for row in rows]

        with pytest.raises(FileError, match=r"batch 1 has .* is the column 'collection' missing"):
            read(edited(drawn, without))
        with pytest.raises(FileError, match=r"batch 1 has .* was 'collection' or another column changed"):
            read(edited(drawn, lambda rows: [row | {"collection": "a"} for row in rows]))


@pytest.mark.parametrize("every", [1, 2])
def test_blank_strata(place: Path, every: int) -> None:
    rows = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)
    groups = ["a" if row[0] > 0 else "b" for row in rows]
    drawn = draw_sample(rows, 12, ControlSet(rows, groups)).labelled(["a", "b"] * 6)
    assert read(edited(drawn, lambda rows: None))[1] == []

    def blank(rows: Rows) -> None:
        for row in rows[::every]:
            row["stratum"] = ""

    again, said = read(edited(drawn, blank))
    assert not any(item.stratum for item in again.items)
    assert said == [
        f"edited.csv: {12 // every} of 12 rows have no 'stratum', so all items count as drawn at random and the "
        "interval may be wider; put the numbers back if you can"
    ]


@pytest.mark.parametrize(
    ("column", "what"), [("drawn", "deleted"), ("collection_size", "added since the draw")]
)
def test_blank_numbers(posts: Draw, column: str, what: str) -> None:
    drawn, said = read(edited(posts, lambda rows: [row | {column: ""} for row in rows]))
    assert [f"column '{column}' is blank" in text and what in text for text in said] == [True]
    assert (len(drawn), sum(drawn.missing.values())) == (12, 0)
    _, said = read(edited(posts, lambda rows: [rows[0] | {column: ""}, *rows[1:]]))
    assert said == []


def test_other_words_for_unsure(posts: Draw) -> None:
    words = ["n/a", "NA", "None", "don't know", "Don’t know", "dont know", "not sure", "unclear", "-", "skip"]
    drawn, _ = read(edited(posts.labelled([*words, "female", "male"]), lambda rows: None))
    assert drawn.labels == 2
    assert replace(posts.labelled(["none"] * 12), groups=("none", "some")).labels == 12


def test_broken_rows_are_named(posts: Draw) -> None:
    posts.save("drawn.csv")
    lines = Path("drawn.csv").read_text().splitlines()
    lines[5] += ",more,cells"
    Path("drawn.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(FileError, match=r"drawn.csv, line 6: has 15 cells"):
        read("drawn.csv")


def test_other_files_are_no_draws(place: Path) -> None:
    Path("labelled.csv").write_text("text,group\na,x\nb,y\n")
    assert read_draw("labelled.csv", print) is None
    with pytest.raises(FileError, match="so it was not written by 'divscore sample'"):
        Draw.read("labelled.csv")
    with pytest.raises(FileError, match="press 'Save table'"):
        Draw.read("to-label.html")


# Labels are somebody's work


def test_labels_are_not_overwritten(posts: Draw) -> None:
    posts.save("drawn.csv")
    blank = posts.labelled([None] * 12)
    with pytest.raises(FileError, match=r"drawn.csv has 12 labels that would be lost; .* or force=True"):
        blank.save("drawn.csv")
    posts.save("drawn.csv")  # the same labels
    draw_sample("posts.csv", 6, add_to="drawn.csv").save("drawn.csv")  # and more
    assert Draw.read("drawn.csv").labels == 12
    blank.save("drawn.csv", force=True)
    assert Draw.read("drawn.csv").labels == 0
    blank.save("drawn.csv")
    with pytest.raises(FileError, match="exists and was not written by 'divscore sample'"):
        posts.save("posts.csv")
    with pytest.raises(FileError, match=r"ends in .csv, .parquet or .html"):
        posts.save("drawn.txt")


def test_a_page_with_other_items_is_not_overwritten(posts: Draw) -> None:
    posts.save("to-label.html")
    posts.labelled([None] * 12).save("to-label.html")
    with pytest.raises(FileError, match="shows other items, which may be labelled in your browser"):
        draw_sample("posts.csv", 12, seed=1).save("to-label.html")
    Path("other.html").write_text("<p>mine</p>")
    with pytest.raises(FileError, match="is not a page of 'divscore sample'"):
        posts.save("other.html")


def test_labelling_in_python(posts: Draw) -> None:
    blank = posts.labelled([None] * 12)
    assert (blank.labels, repr(blank)) == (0, "<Draw: 12 items, 0 labelled>")
    some = blank.labelled({posts.ids[0]: "female", posts.ids[1]: "unsure"})
    assert [item.group for item in some.items[:3]] == ["female", "unsure", ""]
    assert some.labels == 1
    with pytest.raises(InputError, match="11 groups for 12 drawn items"):
        blank.labelled(["female"] * 11)
    with pytest.raises(InputError, match="'nobody' is not the id of a drawn item"):
        blank.labelled({"nobody": "female"})


def _silent(call: Callable[[], ControlSet]) -> ControlSet:
    with pytest.warns(UserWarning, match="items of one collection"):
        return call()
