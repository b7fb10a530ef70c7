"""`divscore sample`, and `divscore audit` with its labels."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from commands import on_terminal, run
from tables import names, write_list, write_rows

from divscore.jobs.drawfile import Draw


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list of 600 names, 200 of them of women, and labelled names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIVSCORE_CACHE", str(tmp_path / "cache"))
    write_list(tmp_path / "list.csv", (200, 400))
    women, men = names()
    rows = [(name, "female") for name in women[:100]] + [(name, "male") for name in men[:100]]
    write_rows(tmp_path / "examples.csv", ("name", "sex"), *rows)
    return tmp_path


def fill_in(path: str, column: str = "group") -> int:
    """Label every row as a person would who knows the names."""
    women = set(names()[0])
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row[column] = "female" if row["text"] in women else "male"
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return sum(row[column] == "female" for row in rows)


def next_command(stderr: str) -> list[str]:
    """The command that is suggested, as words."""
    return shlex.split(stderr.strip().splitlines()[-1])


def test_sample_label_audit(place: Path) -> None:
    done = run("sample", "list.csv", "--groups", "female,male", "--attribute", "sex", "-o", "to-label.csv")
    assert done.stdout == ""
    assert "wrote to-label.csv: 60 texts drawn at random" in done.stderr
    assert "fill in the column 'group' (female, male); write 'unsure' where you cannot decide" in done.stderr
    command = next_command(done.stderr)
    assert command == ["divscore", "audit", "list.csv", "--labelled-sample", "to-label.csv"]
    nothing = run(*command[1:], code=2)
    assert nothing.stderr == "divscore: to-label.csv: no row has a label; fill in the column 'group'\n"
    women = fill_in("to-label.csv")
    document = json.loads(run(*command[1:], "--json", "-").stdout)
    entry = document["collections"][0]
    assert (document["estimator"], document["attribute"], document["groups"]) == (
        "crossfit",
        "sex",
        ["female", "male"],
    )
    assert entry["labels"]["counts"] == {"female": women, "male": 60 - women}
    low, high = entry["interval"]
    assert low <= -1 / 3 <= high


def test_with_a_control_set(place: Path) -> None:
    options = ["--control", "examples.csv", "--attribute", "sex", "--column", "name"]
    done = run("sample", "list.csv", *options, "--size", "40", "--seed", "3", "-o", "to-label.csv")
    assert "wrote to-label.csv: 40 texts drawn in pairs" in done.stderr
    command = next_command(done.stderr)
    assert command == ["divscore", "audit", "list.csv", *options, "--labelled-sample", "to-label.csv"]
    fill_in("to-label.csv")
    document = json.loads(run(*command[1:], "--json", "-").stdout)
    assert document["estimator"] == "rectified"
    assert document["collections"][0]["labels"]["drawn"] == "pairs"
    low, high = document["collections"][0]["interval"]
    assert low <= -1 / 3 <= high
    kept = run("audit", "list.csv", "--labelled-sample", "to-label.csv", "--estimator", "iid", "--json", "-")
    assert json.loads(kept.stdout)["estimator"] == "iid"


def test_the_labels_can_be_kept_as_a_control_set(place: Path) -> None:
    run("sample", "list.csv", "--attribute", "sex", "-o", "to-label.csv")
    women = fill_in("to-label.csv")
    done = run("control", "select", "to-label.csv", "--size", "10", "-o", "C")
    assert "these examples are items of one collection" in done.stderr
    shown = run("control", "show", "C").stdout
    assert shown.startswith("sex: 60 labelled examples, 10 representatives")
    assert any(line.split()[:2] == ["female", str(women)] for line in shown.splitlines())


def test_a_report_of_labels_alone(place: Path) -> None:
    run("sample", "list.csv", "--attribute", "sex", "-o", "to-label.csv")
    fill_in("to-label.csv")
    run("audit", "list.csv", "--labelled-sample", "to-label.csv", "--report", "report.html")
    assert "to-label.csv" in Path("report.html").read_text()
    done = run(
        "audit",
        "list.csv",
        "--labelled-sample",
        "to-label.csv",
        "--report",
        "r.html",
        "--show-examples",
        code=2,
    )
    assert "--show-examples shows examples of the control set; add --control" in done.stderr


def test_labels_are_not_lost(place: Path) -> None:
    run("sample", "list.csv", "-o", "to-label.csv")
    run("sample", "list.csv", "--seed", "1", "-o", "to-label.csv")  # nobody has labelled it yet
    fill_in("to-label.csv")
    done = run("sample", "list.csv", "-o", "to-label.csv", code=2)
    assert (
        done.stderr
        == "divscore: to-label.csv has 60 labels that would be lost; choose another name, or --force\n"
    )
    more = run("sample", "list.csv", "--size", "20", "--add-to", "to-label.csv", "-o", "to-label.csv")
    assert "80 texts drawn at random (60 labelled before)" in more.stderr
    assert (len(Draw.read("to-label.csv")), Draw.read("to-label.csv").labels) == (80, 60)
    run("sample", "list.csv", "-o", "to-label.csv", "--force")
    assert Draw.read("to-label.csv").labels == 0
    for other in ("list.csv", "examples.csv"):
        done = run("sample", "list.csv", "--control", "examples.csv", "-o", other, code=2)
        assert f"{other} would overwrite {other}" in done.stderr


def test_pages_for_browsers(place: Path) -> None:
    done = run("sample", "list.csv", "--groups", "female,male", "-o", "to-label.html")
    assert "open to-label.html in a browser, label the items, and press 'Save table'" in done.stderr
    assert next_command(done.stderr)[-2:] == ["--labelled-sample", "to-label.csv"]
    done = run("sample", "list.csv", "-o", "list.html")
    assert next_command(done.stderr)[-1] == "list-labels.csv"  # list.csv is the collection
    done = run("audit", "list.csv", "--labelled-sample", "to-label.html", code=2)
    assert "press 'Save table', and pass the .csv file that it saves" in done.stderr
    np.save("rows.npy", np.random.default_rng(0).normal(size=(80, 4)))
    done = run("sample", "rows.npy", "-o", "rows.html", code=2)
    assert "vectors cannot be shown on a page" in done.stderr
    assert not Path("rows.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list.csv", "-o", "to-label.txt"], "ends in .csv, .parquet or .html"),
        (["list.csv", "-o", "nowhere/to-label.csv"], "the folder nowhere does not exist"),
        (["list.csv", "--groups", "female", "-o", "a.csv"], "1 group; expected 2 to 12 names"),
        (
            ["list.csv", "--control", "examples.csv", "--size", "31", "-o", "a.csv"],
            "use an even size, such as 32",
        ),
        (
            ["list.csv", "--add-to", "examples.csv", "-o", "a.csv"],
            "examples.csv was not written by 'divscore sample'",
        ),
        (["absent.csv", "-o", "a.csv"], "absent.csv does not exist"),
        (["list.csv", "--by", "feed", "-o", "a.csv"], "no column 'feed'"),
    ],
)
def test_wrong_arguments(place: Path, arguments: list[str], message: str) -> None:
    assert message in run("sample", *arguments, code=2).stderr


def test_what_cannot_be_used_as_labels(place: Path) -> None:
    run("sample", "list.csv", "-o", "to-label.html")
    for command in (["control", "select"], ["audit", "list.csv", "--labelled-sample"]):
        out = ["-o", "chosen"] if command[0] == "control" else []
        assert "press 'Save table'" in run(*command, "to-label.html", *out, code=2).stderr
    said = run("audit", "list.csv", "--labelled-sample", ".", code=2).stderr
    assert ". is a folder; expected the table of labelled items, such as a .csv file" in said


def test_a_plan_is_for_one_collection(place: Path) -> None:
    lines = Path("list.csv").read_text().splitlines()
    feeds = ["feed", *("ab"[at % 2] for at in range(600))]
    Path("feeds.csv").write_text("".join(f"{line},{feed}\n" for line, feed in zip(lines, feeds, strict=True)))
    run("sample", "feeds.csv", "--by", "feed", "-o", "to-label.csv")
    fill_in("to-label.csv")
    said = run("plan", "feeds.csv", "--labelled-sample", "to-label.csv", "--width", "0.2", code=2).stderr
    assert "was drawn for each of several collections, and a plan is made for one" in said
    assert "--by" not in said
    assert not Path("a.csv").exists()


def test_an_audit_needs_examples_or_labels(place: Path) -> None:
    done = run("audit", "list.csv", code=2)
    assert "--control" in done.stderr
    assert "'divscore sample'" in done.stderr


def test_progress_on_a_terminal(place: Path) -> None:
    np.save("rows.npy", np.random.default_rng(0).normal(size=(5000, 4)))
    shown = on_terminal(["-m", "divscore", "sample", "rows.npy", "-o", "a.csv"], "stderr")
    assert "wrote a.csv: 60 items drawn at random" in shown
