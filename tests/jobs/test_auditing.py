"""One way from a path or an object to audits: the command line, Python and audit_source give the same results."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny
from commands import invoke

import divscore
from divscore import Audit, Audits, ControlSet, Sketch
from divscore.errors import DivscoreError, FileError, InputError, MismatchError, MissingExtraError
from divscore.jobs.auditing import audit_source
from divscore.sketch.sketchfile import write_sketches

D = 8


@pytest.fixture(scope="module")
def control() -> ControlSet:
    return ControlSet(letters(1, 40, 40), ["a"] * 40 + ["b"] * 40, attribute="letter")


def letters(seed: int, a: int, b: int) -> np.ndarray:
    """Vectors of so many items of each group, one group after the other."""
    noise = np.random.default_rng(seed).normal(size=(a + b, D))
    return (noise + np.repeat([1.0, -1.0], [a, b])[:, None]).astype(np.float32)


@pytest.fixture
def feed() -> pa.Table:
    rows = letters(2, 300, 100)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), D)
    return pa.table({"feed": np.array(["north", "south"])[np.arange(400) % 2].tolist(), "embedding": lists})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIVSCORE_CACHE", str(tmp_path / "cache"))
    return tmp_path


def printed(*arguments: str) -> dict[str, Any]:
    """The document that `divscore audit` prints."""
    done = invoke("audit", *arguments, "--json", "-")
    assert done.exit_code == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def write_control(path: str, control: ControlSet) -> None:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(control.vectors.ravel()), D)
    groups = [control.groups[label] for label in control.labels]
    pq.write_table(pa.table({"letter": groups, "embedding": lists, "id": list(control.ids)}), path)


def assert_everywhere(source: Any, control: Any, *words: str, **options: Any) -> Audits:
    """Audit through audit_source, the command line and Python; the result."""
    audits = audit_source(source, control, **options)
    document = audits.to_dict(replicates=True)
    assert printed(str(source), "--control", str(control), *words) == json.loads(json.dumps(document))
    again = divscore.audit(source, control, **options)
    entries = again.to_dict()["collections"] if isinstance(again, Audits) else [again.to_dict()]
    assert entries == audits.to_dict()["collections"]
    return audits


def test_a_folder_of_images(place: Path) -> None:
    tiny.image_model(place / "tiny.onnx")
    tiny.folder(place / "labelled", {"red": 25, "blue": 25}, 2)
    tiny.folder(place / "photos", {"red": 40, "blue": 20}, 3)
    options = {"attribute": "colour", "encoder": "onnx", "model": "tiny.onnx"}
    words = ("--attribute", "colour", "--encoder", "onnx", "--model", "tiny.onnx")
    (whole,) = assert_everywhere("photos", "labelled", *words, **options)
    assert (whole.name, whole.count, whole.noun) == ("photos", 60, "pictures")
    folders = assert_everywhere("photos", "labelled", *words, "--by", "folder", by="folder", **options)
    assert folders.names == ["blue", "red"]
    assert folders["red"].disparity < -0.8


def test_a_list_of_texts(place: Path) -> None:
    rng = np.random.default_rng(0)
    words = {
        "sea": ["tide", "wave", "salt", "reef", "coral"],
        "hill": ["ridge", "peak", "snow", "cliff", "rock"],
    }

    def drawn(group: str) -> str:
        return " ".join(rng.choice(words[group], 4))

    rows = [f"{drawn(group)},{group}" for group in words for _ in range(30)]
    Path("labelled.csv").write_text("\n".join(["text,group", *rows]) + "\n")
    Path("posts.txt").write_text("\n".join(drawn("sea" if at % 4 else "hill") for at in range(80)) + "\n\n")
    (only,) = assert_everywhere("posts.txt", "labelled.csv", "--workers", "2", workers=2)
    assert (only.noun, only.count) == ("texts", 80)


def test_a_table_by_a_column(place: Path, feed: pa.Table, control: ControlSet) -> None:
    pq.write_table(feed, "feed.parquet")
    write_control("labelled.parquet", control)
    asked = {"groups": ["b", "a"], "confidence": 0.9, "seed": 3}
    words = ("--groups", "b,a", "--confidence", "0.9", "--seed", "3")
    audits = assert_everywhere("feed.parquet", "labelled.parquet", "--by", "feed", *words, by="feed", **asked)
    assert audits.names == ["north", "south"]
    assert audits.control.groups == ("b", "a")
    # The same table in memory, in every form.
    for frame in frames(feed):
        in_memory = divscore.audit(frame, "labelled.parquet", by="feed", **asked)
        assert in_memory.to_dict() == audits.to_dict()
    rows = np.concatenate(
        [batch["embedding"].flatten().to_numpy().reshape(-1, D) for batch in feed.to_batches()]
    )
    whole = divscore.audit(rows, "labelled.parquet", **asked)
    assert whole.to_dict() == divscore.audit(feed, "labelled.parquet", **asked).to_dict()


def frames(table: pa.Table) -> list[Any]:
    pandas = pytest.importorskip("pandas")
    found = [table, pandas.DataFrame({name: list(table[name].to_pylist()) for name in table.column_names})]
    try:
        import polars
    except ImportError:
        return found
    return [*found, polars.from_arrow(table)]


def test_a_frame_of_numbers_is_a_matrix(control: ControlSet) -> None:
    pandas = pytest.importorskip("pandas")
    rows = letters(4, 90, 30)
    plain = divscore.audit(rows, control)
    frame = pandas.DataFrame(rows, columns=[f"x{at}" for at in range(D)])
    assert divscore.audit(frame, control).interval == plain.interval
    by = divscore.audit(frame.assign(place="here"), control, by="place")
    assert (by.names, by[0].interval) == (["here"], plain.interval)


def test_sketches(place: Path, feed: pa.Table, control: ControlSet) -> None:
    write_control("labelled.parquet", control)
    read = ControlSet.read("labelled.parquet")
    rows = letters(2, 300, 100)
    sketch = Sketch(read)
    sketch.add(rows)
    write_sketches("rows.sketch", {"": sketch})
    (only,) = assert_everywhere("rows.sketch", "labelled.parquet")
    assert only.name == "rows"
    assert divscore.audit(sketch, read, name="rows").to_dict() == only.to_dict()
    assert divscore.audit(rows, read).interval == only.interval
    write_sketches("two.sketch", {"x": sketch, "y": sketch})
    two = divscore.audit("two.sketch", read)
    assert isinstance(two, Audits)
    assert two.names == ["x", "y"]


def test_several_collections(place: Path, control: ControlSet) -> None:
    np.save("even.npy", letters(5, 100, 100))
    np.save("mostly.npy", letters(6, 180, 20))
    audits = divscore.audit(["even.npy", Path("mostly.npy")], control)
    assert isinstance(audits, Audits)
    assert (audits.names, audits.worst.name) == (["even", "mostly"], "mostly")
    assert divscore.audit("even.npy", control, name="mine").name == "mine"
    assert isinstance(divscore.audit(["even.npy"], control), Audits)


def test_a_labelled_sample(place: Path, control: ControlSet) -> None:
    np.save("even.npy", letters(5, 200, 200))
    write_control("labelled.parquet", control)
    write_control(
        "sample.parquet", ControlSet(letters(7, 20, 20), ["a"] * 20 + ["b"] * 20, attribute="letter")
    )
    options = {"estimator": "iid", "sample": "sample.parquet"}
    words = ("--estimator", "iid", "--labelled-sample", "sample.parquet")
    (only,) = assert_everywhere("even.npy", "labelled.parquet", *words, **options)
    assert 0.0 in only.interval
    with pytest.raises(InputError, match="belongs to one collection"):
        divscore.audit(["even.npy", "even.npy"], control, **options)


# What a caller is told


def test_progress_and_messages_go_to_the_caller(place: Path, control: ControlSet) -> None:
    rows = letters(5, 60, 60)
    rows[3] = 0
    np.save("holes.npy", rows)
    said: list[str] = []
    shown: list[tuple[str, int | None, int]] = []

    class Bar:
        def __init__(self, what: str, total: int | None) -> None:
            self.what, self.total, self.done = what, total, 0

        def __enter__(self) -> Callable[[int], None]:
            return self.advance

        def advance(self, number: int) -> None:
            self.done += number

        def __exit__(self, *error: object) -> None:
            shown.append((self.what, self.total, self.done))

    audit_source("holes.npy", control, verbose=True, progress=Bar, warn=said.append)
    assert shown == [("holes", 120, 120)]
    assert said == ["holes.npy, row 3: the vector has only zeros"]


def test_python_warns_and_speaks_of_arguments(place: Path, control: ControlSet) -> None:
    Path("posts.csv").write_text("text,feed\nhello,a\n,b\n")
    with pytest.raises(MismatchError, match="name it with encoder=, or use labelled examples") as error:
        divscore.audit("posts.csv", control)
    assert "--" not in str(error.value)
    with pytest.raises(FileError, match="give column= one of 'text', 'feed'"):
        divscore.audit("posts.csv", control, column="title")
    rows = [f"{'sea' if at % 2 else 'hill'} {at},{'a' if at % 2 else 'b'}" for at in range(30)]
    Path("labelled.csv").write_text("\n".join(["text,group", *rows]) + "\n")
    with pytest.warns(
        UserWarning, match=r"1 of 2 items encoded; 1 had nothing to encode \(verbose=True lists them\)"
    ) as caught:
        result = divscore.audit("posts.csv", "labelled.csv")
    assert {each.filename for each in caught} == {__file__}  # the caller's line, not one of divscore
    assert result.skipped["empty"] == 1
    with pytest.raises(FileError, match=r"is empty; .*strict=True"):
        divscore.audit("posts.csv", "labelled.csv", strict=True)


def test_vectors_have_no_columns(control: ControlSet) -> None:
    with pytest.raises(InputError, match="by= needs a table"):
        divscore.audit(letters(1, 9, 9), control, by="feed")


def test_plain_arrays_do_not_load_jobs() -> None:
    code = (
        "import sys, numpy as np, divscore\n"
        "rows = np.random.default_rng(0).normal(size=(60, 4)) + np.repeat([[1.0], [-1.0]], 30, axis=0)\n"
        "control = divscore.ControlSet(rows, ['a'] * 30 + ['b'] * 30, attribute='x')\n"
        "divscore.audit(rows, control)\n"
        "print([name for name in sys.modules if name.startswith(('divscore.jobs', 'divscore.sources', 'pyarrow'))])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


# Audits


def test_audits_are_a_frozen_sequence(feed: pa.Table, control: ControlSet) -> None:
    audits = divscore.audit(feed, control, by="feed")
    assert isinstance(audits, Sequence)
    assert len(audits) == 2
    assert [each.name for each in audits] == ["north", "south"]
    assert audits[1] is audits["south"]
    assert audits[:1].names == ["north"]
    assert isinstance(audits[0], Audit)
    with pytest.raises(KeyError):
        audits["east"]
    with pytest.raises(AttributeError):
        audits.audits = ()  # type: ignore[misc]
    document = audits.to_dict()
    assert document["schema"] == "divscore.audit/1"
    assert "replicates" not in document["collections"][0]
    assert "<svg" in audits._repr_html_()
    assert audits.to_html().startswith("<!DOCTYPE html>")


def test_audits_as_a_frame_and_a_plot(
    feed: pa.Table, control: ControlSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    audits = divscore.audit(feed, control, by="feed")
    pytest.importorskip("pandas")
    frame = audits.to_frame()
    assert list(frame.index) == ["north", "south"]
    assert frame.loc["north", "disparity"] == audits["north"].disparity
    assert frame.loc["south", ["low", "high"]].tolist() == [
        audits["south"].interval.low,
        audits["south"].interval.high,
    ]
    assert frame["share a"].between(0, 1).all()
    import matplotlib

    matplotlib.use("agg")
    assert len(audits.plot().get_yticklabels()) == 2
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match="pip install pandas"):
        audits.to_frame()


def test_errors_of_the_library_are_of_one_tree(place: Path, control: ControlSet) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for wrong in ("absent.npy", "absent/*.npy"):
            with pytest.raises(DivscoreError, match="absent"):
                divscore.audit(wrong, control)


def test_a_damaged_sketch_in_a_folder_is_an_error(place: Path, control: ControlSet) -> None:
    sketch = Sketch(control)
    sketch.add(letters(3, 30, 20))
    Path("week").mkdir()
    for day in ("monday", "tuesday"):
        sketch.save(f"week/{day}.sketch")
    whole = Path("week/tuesday.sketch").read_bytes()
    Path("week/tuesday.sketch").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileError, match=r"tuesday\.sketch .*damaged"):
        audit_source("week", control)
    with pytest.raises(FileError, match="does not exist"):
        sketch.save("absent/monday.sketch")


def test_a_control_set_in_memory_obeys_the_options(feed: pa.Table, control: ControlSet) -> None:
    first, second = (divscore.audit(feed, control, groups=order) for order in (("a", "b"), ("b", "a")))
    assert first.disparity == -second.disparity > 0
    with pytest.raises(MismatchError, match="letter"):
        divscore.audit(feed, control, attribute="colour")
    with pytest.raises(InputError, match="1 items have no usable vector"):
        divscore.audit(np.vstack([letters(2, 20, 20), np.zeros(D)]), control, strict=True)


def test_nothing_to_audit(control: ControlSet) -> None:
    with pytest.raises(InputError, match="list is empty"):
        divscore.audit([], control)
    none = Audits(())
    assert "0 collections" in none._repr_html_()
    for ask in (none.to_dict, none.to_html, lambda: none.worst):
        with pytest.raises(InputError, match="no audits"):
            ask()
