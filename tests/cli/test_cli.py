"""The command line as a stranger uses it: real files, real processes for what depends on them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from divscore.cli import main
from divscore.control.controlfile import save_control

D = 12


def vectors(rng, a, b):
    return (rng.normal(size=(a + b, D)) + 0.8 * np.repeat([1.0, -1.0], [a, b])[:, None]).astype(np.float32)


def write_table(path, rows, **columns):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    parquet.write_table(pa.table({**columns, "embedding": lists}), path)


@pytest.fixture
def files(tmp_path, monkeypatch):
    rng = np.random.default_rng(5)
    monkeypatch.chdir(tmp_path)
    write_table("labelled.parquet", vectors(rng, 60, 60), letter=["a"] * 60 + ["b"] * 60)
    mixed = vectors(rng, 450, 150)
    np.save("mostly_a.npy", mixed)
    np.save("even.npy", vectors(rng, 300, 300))
    place = np.array(["north", "south", "east"])[np.arange(600) % 3]
    write_table("places.parquet", mixed, place=place.tolist())
    return tmp_path


def run(*args, code=0):
    result = CliRunner().invoke(main, [str(a) for a in args])
    assert result.exit_code == code, result.output
    return result


def test_audit_prints_the_headline_and_a_table(files):
    result = run("audit", "mostly_a.npy", "--control", "labelled.parquet", "--attribute", "letter")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Between ")
    assert lines[2].split()[:3] == ["collection", "items", "a"]
    assert lines[3].split()[0] == "mostly_a"
    assert lines[3].split()[-1] == "good"


def test_json_is_the_contract(files):
    result = run("audit", "mostly_a.npy", "even.npy", "--control", "labelled.parquet", "--json", "-")
    found = json.loads(result.stdout)
    assert found["schema"] == "divscore.audit/1"
    assert found["groups"] == ["a", "b"]
    assert found["control"]["counts"] == {"a": 60, "b": 60}
    assert {"labelled", "representatives", "gamma", "gamma_control"} <= set(found["control"])
    first, second = found["collections"]
    assert (first["name"], first["count"]) == ("mostly_a", 600)
    assert set(first) >= {
        "name",
        "count",
        "skipped",
        "shares",
        "disparity",
        "interval",
        "divscore",
        "trust",
        "diagnostics",
        "warnings",
    }
    assert first["interval"][0] <= 0.5 <= first["interval"][1]
    assert second["interval"][0] <= 0.0 <= second["interval"][1]
    assert set(first["skipped"]) == {"zero", "nonfinite", "unreadable"}


def test_json_file_appears_beside_the_table(files):
    result = run("audit", "even.npy", "--control", "labelled.parquet", "--json", "out.json")
    assert "disparity" in result.stdout
    assert json.loads(Path("out.json").read_text())["collections"][0]["name"] == "even"
    assert [p.name for p in Path().glob("*.part")] == []


def test_by_equals_auditing_each_value_alone(files):
    together = json.loads(
        run("audit", "places.parquet", "--control", "labelled.parquet", "--by", "place", "--json", "-").stdout
    )
    rows = np.load("mostly_a.npy")
    for entry in together["collections"]:
        mine = rows[np.array(["north", "south", "east"])[np.arange(600) % 3] == entry["name"]]
        np.save("one.npy", mine)
        alone = json.loads(run("audit", "one.npy", "--control", "labelled.parquet", "--json", "-").stdout)
        for key in ("count", "disparity", "interval", "divscore"):
            assert entry[key] == pytest.approx(alone["collections"][0][key], abs=1e-9)


@pytest.mark.parametrize("suffix", ["npy", "npz", "parquet", "arrow", "csv", "jsonl"])
def test_every_format_gives_the_same_answer(files, suffix):
    rows = np.load("mostly_a.npy")
    path = f"same.{suffix}"
    if suffix == "npy":
        np.save(path, rows)
    elif suffix == "npz":
        np.savez(path, vectors=rows)
    elif suffix == "parquet":
        write_table(path, rows)
    elif suffix == "arrow":
        lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), D)
        table = pa.table({"embedding": lists})
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    elif suffix == "csv":
        header = ",".join(f"x{i}" for i in range(D))
        np.savetxt(path, rows, delimiter=",", header=header, comments="", fmt="%.9g")
    else:
        Path(path).write_text("".join(json.dumps({"v": row.tolist()}) + "\n" for row in rows))
    reference = json.loads(
        run("audit", "mostly_a.npy", "--control", "labelled.parquet", "--json", "-").stdout
    )
    found = json.loads(run("audit", path, "--control", "labelled.parquet", "--json", "-").stdout)
    for key in ("count", "disparity", "interval", "divscore"):
        assert found["collections"][0][key] == pytest.approx(reference["collections"][0][key], abs=1e-6)


@pytest.mark.parametrize(
    ("name", "limit", "code"),
    [
        ("mostly_a.npy", "0.9", 0),
        ("mostly_a.npy", "0.1", 1),
        ("mostly_a.npy", "0.5", 3),
        ("even.npy", "0.4", 0),
    ],
)
def test_exit_codes(files, name, limit, code):
    run("audit", name, "--control", "labelled.parquet", "--max-disparity", limit, code=code)


def test_cannot_tell_is_inconclusive(files):
    rng = np.random.default_rng(0)
    write_table("noise.parquet", rng.normal(size=(80, D)).astype(np.float32), letter=["a", "b"] * 40)
    result = run("audit", "even.npy", "--control", "noise.parquet", "--max-disparity", "0.2", code=3)
    assert result.stdout.startswith("Cannot tell")
    assert "cannot tell" in result.stderr
    found = json.loads(run("audit", "even.npy", "--control", "noise.parquet", "--json", "-").stdout)
    assert found["collections"][0]["disparity"] is None
    assert found["collections"][0]["interval"] == [-1.0, 1.0]


def test_order_of_groups_fixes_the_sign(files):
    a = json.loads(
        run("audit", "mostly_a.npy", "--control", "labelled.parquet", "--groups", "a,b", "--json", "-").stdout
    )
    b = json.loads(
        run("audit", "mostly_a.npy", "--control", "labelled.parquet", "--groups", "b,a", "--json", "-").stdout
    )
    assert a["collections"][0]["disparity"] == -b["collections"][0]["disparity"]
    assert a["collections"][0]["interval"] == [-x for x in b["collections"][0]["interval"][::-1]]


def test_control_select_show_check(files):
    run("control", "select", "labelled.parquet", "--attribute", "letter", "-o", "C", "--size", "20")
    assert sorted(p.name for p in Path("C").iterdir()) == ["card.md", "control.parquet", "croissant.json"]
    assert "20 representatives" in run("control", "show", "C").stdout
    facts = json.loads(run("control", "show", "C", "--json").stdout)
    assert facts["groups"]["a"]["representatives"] == 10
    checked = CliRunner().invoke(main, ["control", "check", "C"])
    assert checked.exit_code == (1 if "! " in checked.stdout else 0)
    assert "verified" in checked.stdout
    found = json.loads(run("audit", "even.npy", "--control", "C", "--json", "-").stdout)
    assert found["control"]["representatives"] == 20


@pytest.mark.parametrize("method", ["adaptive", "random", "proportional", "dpp"])
def test_every_way_to_choose(files, method):
    run("control", "select", "labelled.parquet", "-o", method, "--method", method, "--size", "20")
    assert json.loads(run("control", "show", method, "--json").stdout)["representatives"] == 20


def test_alpha_auto(files):
    run("control", "select", "labelled.parquet", "-o", "C", "--size", "20", "--alpha", "auto")
    assert "α" in run("control", "show", "C").stdout


def test_check_refuses_an_edited_control_set(files):
    run("control", "select", "labelled.parquet", "-o", "C", "--size", "20")
    table = parquet.read_table("C/control.parquet")
    groups = table["group"].to_pylist()
    groups[0] = "b"
    at = table.column_names.index("group")
    parquet.write_table(table.set_column(at, table.schema.field("group"), [groups]), "C/control.parquet")
    assert "divscore:" in run("control", "check", "C", code=2).stderr


def test_sketch_merge_audit_equals_the_whole(files):
    rows = np.load("mostly_a.npy")
    np.save("monday.npy", rows[:250])
    np.save("tuesday.npy", rows[250:])
    for day in ("monday", "tuesday"):
        run("sketch", f"{day}.npy", "--control", "labelled.parquet", "-o", f"{day}.sketch")
    run("merge", "monday.sketch", "tuesday.sketch", "-o", "week.sketch")
    merged = json.loads(run("audit", "week.sketch", "--control", "labelled.parquet", "--json", "-").stdout)
    whole = json.loads(run("audit", "mostly_a.npy", "--control", "labelled.parquet", "--json", "-").stdout)
    assert merged["collections"][0]["name"] == "week"
    for key in ("count", "disparity", "interval", "divscore"):
        assert merged["collections"][0][key] == pytest.approx(whole["collections"][0][key], abs=1e-9)


def test_sketch_of_another_control_set_is_refused(files):
    rng = np.random.default_rng(9)
    write_table("other.parquet", vectors(rng, 30, 30), letter=["a"] * 30 + ["b"] * 30)
    run("sketch", "even.npy", "--control", "labelled.parquet", "-o", "even.sketch")
    assert "another control set" in run("audit", "even.sketch", "--control", "other.parquet", code=2).stderr


def test_plan_both_ways(files):
    result = json.loads(
        run("plan", "labelled.parquet", "--attribute", "letter", "--labels", "200", "--json").stdout
    )
    assert 0.02 < result["width"] < 1
    back = json.loads(
        run("plan", "labelled.parquet", "--attribute", "letter", "--width", result["width"], "--json").stdout
    )
    assert back["labels"] == 200
    assert "either --width" in run("plan", "labelled.parquet", code=2).stderr


def test_rectified_and_iid_need_the_sample(files):
    assert "labelled random sample" in run(
        "audit", "even.npy", "--control", "labelled.parquet", "--estimator", "rectified", code=2
    ).stderr.replace("\n", " ")
    rows = np.load("even.npy")
    pick = np.r_[0:25, 300:325]
    write_table("sample.parquet", rows[pick], letter=["a"] * 25 + ["b"] * 25)
    for estimator in ("rectified", "iid"):
        args = ("audit", "even.npy", "--control", "labelled.parquet", "--estimator", estimator)
        found = json.loads(run(*args, "--labelled-sample", "sample.parquet", "--json", "-").stdout)
        low, high = found["collections"][0]["interval"]
        assert low < 0 < high
        assert found["estimator"] == estimator


def test_paper_estimators(files):
    for estimator in ("divscore", "self-training"):
        args = ("audit", "mostly_a.npy", "--control", "labelled.parquet", "--estimator", estimator)
        entry = json.loads(run(*args, "--json", "-").stdout)["collections"][0]
        assert 0.2 < entry["disparity"] < 0.9


def test_intersections_and_marginals(files):
    rng = np.random.default_rng(2)
    corners = {("a", "x"): [1, 1], ("a", "y"): [1, -1], ("b", "x"): [-1, 1], ("b", "y"): [-1, -1]}

    def drawn(counts):
        rows, names = [], []
        for (name, corner), n in zip(corners.items(), counts, strict=True):
            shift = np.repeat(corner, D // 2)
            rows.append(rng.normal(size=(n, D)) + 0.9 * shift)
            names += [name] * n
        return np.concatenate(rows).astype(np.float32), names

    rows, names = drawn([40] * 4)
    write_table("joint.parquet", rows, first=[n[0] for n in names], second=[n[1] for n in names])
    rows, _ = drawn([400, 100, 300, 200])
    np.save("joint.npy", rows)
    result = run(
        "audit", "joint.npy", "--control", "joint.parquet", "--attribute", "first*second", "--json", "-"
    )
    entry = json.loads(result.stdout)["collections"][0]
    assert entry["most"] == "a × x"
    assert entry["shares"]["a × x"] == pytest.approx(0.4, abs=0.08)
    marginals = {m["attribute"]: m for m in entry["marginals"]}
    assert marginals["second"]["shares"]["x"] == pytest.approx(0.7, abs=0.08)
    assert sum(marginals["first"]["shares"].values()) == pytest.approx(1)


def test_skipped_rows_are_counted_listed_and_fatal_when_strict(files):
    rows = np.load("even.npy")
    rows[3] = 0
    rows[7, 2] = np.nan
    np.save("holes.npy", rows)
    args = ("audit", "holes.npy", "--control", "labelled.parquet")
    entry = json.loads(run(*args, "--json", "-").stdout)["collections"][0]
    assert entry["skipped"] == {"zero": 1, "nonfinite": 1, "unreadable": 0}
    assert entry["count"] == 598
    listed = run(*args, "--verbose").stderr
    assert "row 3" in listed
    assert "row 7" in listed
    assert "row 3" in run(*args, "--strict", code=2).stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["audit", "absent.npy", "--control", "labelled.parquet"], "absent.npy"),
        (["audit", "even.npy", "--control", "absent.parquet"], "absent.parquet"),
        (["audit", "even.npy", "--control", "labelled.parquet", "--attribute", "colour"], "colour"),
        (["audit", "even.npy", "--control", "labelled.parquet", "--groups", "a,c"], "'c'"),
        (["audit", "even.npy", "--control", "labelled.parquet", "--confidence", "2"], "confidence"),
        (["audit", "places.parquet", "--control", "labelled.parquet", "--by", "planet"], "planet"),
        (["control", "select", "labelled.parquet", "-o", "C", "--size", "500"], "500"),
        (["control", "select", "labelled.parquet", "-o", "C", "--alpha", "much"], "much"),
        (["merge", "even.npy", "-o", "x.sketch"], "not a sketch"),
    ],
)
def test_errors_are_one_clean_line(files, args, message):
    result = run(*args, code=2)
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.startswith("divscore: ")
    assert result.stderr.count("\n") == 1


def test_wrong_dimension(files):
    np.save("flat.npy", np.ones((30, D + 1), dtype=np.float32))
    assert "same encoder" in run("audit", "flat.npy", "--control", "labelled.parquet", code=2).stderr


def test_odd_names_stay_on_one_line(files):
    rows = np.load("even.npy")
    names = ["<script>\n\x1b[31m", "ünï 🙂", 'a "b", c'] * 200
    write_table("odd.parquet", rows, who=names)
    result = run("audit", "odd.parquet", "--control", "labelled.parquet", "--by", "who")
    assert len(result.stdout.splitlines()) == 4
    assert "\x1b" not in result.stdout
    found = json.loads(
        run("audit", "odd.parquet", "--control", "labelled.parquet", "--by", "who", "--json", "-").stdout
    )
    assert [c["name"] for c in found["collections"]] == names[:3]


def test_workers_do_not_change_the_answer(files):
    args = ("audit", "mostly_a.npy", "--control", "labelled.parquet", "--json", "-")
    assert run(*args, "--workers", "1").stdout == run(*args, "--workers", "3").stdout


def test_standard_input_and_exit_code_of_a_real_process(files):
    rows = np.load("mostly_a.npy")
    text = "".join(json.dumps({"v": row.tolist()}) + "\n" for row in rows)
    command = [
        sys.executable,
        "-m",
        "divscore",
        "audit",
        "-",
        "--control",
        "labelled.parquet",
        "--max-disparity",
        "0.1",
    ]
    result = subprocess.run(command, input=text, capture_output=True, text=True, env=os.environ, check=False)
    assert result.returncode == 1, result.stderr
    assert "Between" in result.stdout


def test_every_command_has_help_with_an_example():
    for command in (["audit"], ["plan"], ["sketch"], ["merge"], ["control", "select"]):
        result = run(*command, "--help")
        assert "Example" in result.stdout, command
        assert "divscore " in result.stdout


def test_demo_tells_the_truth(tmp_path):
    result = run("demo", "--out", tmp_path / "demo")
    assert result.stdout.count("In truth") == 3
    assert "list C" in result.stdout
    again = run(
        "audit",
        tmp_path / "demo/names.parquet",
        "--control",
        tmp_path / "demo/control",
        "--by",
        "list",
        "--json",
        "-",
    )
    entries = json.loads(again.stdout)["collections"]
    for entry, truth in zip(entries, (-0.6, -0.2, 0.6), strict=True):
        assert entry["interval"][0] <= truth <= entry["interval"][1]
    saved = json.loads((tmp_path / "demo/audit.json").read_text())
    assert [c["interval"] for c in saved["collections"]] == [
        pytest.approx(entry["interval"], abs=1e-9) for entry in entries
    ]


def test_a_collection_of_one_item_each_says_nothing_of_the_item(files):
    rows = np.load("even.npy")[:6]
    write_table("six.parquet", rows, who=list("uvwxyz"))
    result = run("audit", "six.parquet", "--control", "labelled.parquet", "--by", "who")
    for line in result.stdout.splitlines()[1:]:
        assert line.split()[2] == "?"
        assert line.split()[-1] == "poor"


def test_odd_group_names_stay_on_one_line(files):
    rng = np.random.default_rng(3)
    names = ["fe|male\n<b>\x1b[31m"] * 40 + ["other"] * 40
    write_table("odd.parquet", vectors(rng, 40, 40), letter=names)
    result = run("audit", "even.npy", "--control", "odd.parquet", "--attribute", "letter")
    assert len(result.stdout.splitlines()) == 4
    assert "\x1b" not in result.stdout
    assert "\x1b" not in run("control", "show", "odd.parquet").stdout


def test_self_training_accounts_for_unreadable_rows(files):
    lines = [json.dumps({"v": row.tolist()}) for row in np.load("even.npy")]
    lines[5] = json.dumps({"v": None})
    Path("holes.jsonl").write_text("\n".join(lines) + "\n")
    args = ("audit", "holes.jsonl", "--control", "labelled.parquet", "--estimator", "self-training")
    entry = json.loads(run(*args, "--json", "-").stdout)["collections"][0]
    assert entry["skipped"]["unreadable"] == 1
    assert "none" in run(*args).stdout


def test_by_on_a_sketch_is_refused(files):
    run("sketch", "even.npy", "--control", "labelled.parquet", "-o", "even.sketch")
    args = ("audit", "even.sketch", "--control", "labelled.parquet", "--by", "place")
    assert "no columns" in run(*args, code=2).stderr


@pytest.mark.slow
def test_ten_million_rows(files):
    rng = np.random.default_rng(8)
    pool = np.concatenate([rng.normal(1.5, 1, (60, 2)), rng.normal(-1.5, 1, (60, 2))]).astype(np.float32)
    write_table("flat.parquet", pool, letter=["a"] * 60 + ["b"] * 60)
    big = np.lib.format.open_memmap("big.npy", mode="w+", dtype=np.float32, shape=(10_000_000, 2))
    for start in range(0, len(big), 1_000_000):
        sign = np.where(np.arange(1_000_000) % 4 < 3, 1.5, -1.5)[:, None]
        big[start : start + 1_000_000] = rng.normal(size=(1_000_000, 2)) + sign
    big.flush()
    entry = json.loads(run("audit", "big.npy", "--control", "flat.parquet", "--json", "-").stdout)[
        "collections"
    ][0]
    assert entry["count"] == 10_000_000
    assert entry["interval"][0] <= 0.5 <= entry["interval"][1]


def test_a_misspelt_command_is_answered_with_the_likely_one():
    told = CliRunner().invoke(main, ["adit"])
    assert told.exit_code == 2
    assert "No such command 'adit'. Did you mean 'audit'?" in told.stderr
    assert "Did you mean" not in CliRunner().invoke(main, ["xyzzy"]).stderr


def test_representatives_can_be_listed(tmp_path, make_control):
    control = make_control(3, (12, 12))
    save_control(control, tmp_path / "C")
    told = CliRunner().invoke(main, ["control", "show", str(tmp_path / "C"), "--examples"]).stdout
    for at, name in enumerate(control.groups):
        ids = ", ".join(control.ids[row] for row in control.rows(at, representatives=True))
        assert f"{name}, representatives: {ids}" in told
    assert (
        "representatives: " not in CliRunner().invoke(main, ["control", "show", str(tmp_path / "C")]).stdout
    )


def test_files_of_the_same_name_are_told_apart(files):
    for folder in ("january", "march"):
        Path(folder).mkdir()
        Path(folder, "even.npy").write_bytes(Path("even.npy").read_bytes())
    both = ("january/even.npy", "march/even.npy")
    found = json.loads(run("audit", *both, "--control", "labelled.parquet", "--json", "-").stdout)
    assert [entry["name"] for entry in found["collections"]] == list(both)
    places = Path("places.parquet")
    Path("march/places.parquet").write_bytes(places.read_bytes())
    by = ("--control", "labelled.parquet", "--by", "place", "--json", "-")
    found = json.loads(run("audit", "places.parquet", "march/places.parquet", *by).stdout)
    names = [entry["name"] for entry in found["collections"]]
    assert len(set(names)) == 6
    assert "march/places.parquet: north" in names


def test_a_control_set_is_not_audited_by_itself(files):
    told = run("audit", "labelled.parquet", "--control", "labelled.parquet", code=2).stderr
    assert "is the control set itself" in told
    assert "divscore compare" in told


def test_a_divscore_that_is_noise_stands_in_brackets(files):
    rng = np.random.default_rng(1)
    # Groups that a direction tells apart, but whose members are as unlike each other as anybody.
    centre = np.zeros(64)
    centre[0] = 0.05
    rows = np.concatenate(
        [rng.normal(size=(150, 64)) * 0.1 + centre, rng.normal(size=(150, 64)) * 0.1 - centre]
    )
    names = ["a"] * 150 + ["b"] * 150
    order = rng.permutation(300)
    half = order[:200]
    np.save("rest.npy", rows[order[200:]])
    table = pa.table({"embedding": list(rows[half]), "group": [names[at] for at in half]})
    parquet.write_table(table, "weak.parquet")
    options = ("--control", "weak.parquet", "--attribute", "group")
    sure = run("audit", "rest.npy", *options).stdout
    document = json.loads(run("audit", "rest.npy", *options, "--json", "-").stdout)
    (noisy,) = document["control"]["noisy_groups"]
    assert document["collections"][0]["trust"] == "good"
    assert f"the representatives of {noisy} are hardly more similar" in sure
    assert f"({document['collections'][0]['divscore']:+.2f})" in sure
    assert (
        "noise: DivScore cannot use it"
        in run("control", "show", "weak.parquet", "--attribute", "group").stdout
    )
