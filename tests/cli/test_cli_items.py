from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny
from click.testing import CliRunner, Result

from divscore.cli import main
from divscore.encoders.registry import ENCODERS
from divscore.jobs.cache import default_cache
from divscore.paper.names import first_names


def run(*arguments: object, **options: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments], **options)  # type: ignore[arg-type]


def fine(*arguments: object, **options: object) -> Result:
    done = run(*arguments, **options)
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pool of 200 labelled names, a list of 400 others (100 of women), and the same as a table of two feeds."""
    root = tmp_path_factory.mktemp("names")
    rng = np.random.default_rng(0)
    every, sexes = first_names()
    women = rng.permutation([n for n, s in zip(every, sexes, strict=True) if s == "female"])
    men = rng.permutation([n for n, s in zip(every, sexes, strict=True) if s == "male"])
    with open(root / "pool.csv", "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["name", "sex"])
        writer.writerows([[name, "female"] for name in women[:100]] + [[name, "male"] for name in men[:100]])
    listed = rng.permutation(np.concatenate([women[100:200], men[100:400]])).tolist()
    (root / "list.txt").write_text("\n".join(listed) + "\n", encoding="utf-8")
    with open(root / "feeds.csv", "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "text", "likes", "feed"])
        writer.writerows([[at, name, at % 9, "ab"[at % 2]] for at, name in enumerate(listed)])
        writer.writerow([400, "", 0, "a"])
    return root


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pictures")
    tiny.image_model(root / "tiny.onnx")
    tiny.folder(root / "labelled", {"red": 40, "blue": 40}, 2)
    tiny.folder(root / "photos", {"red": 60, "blue": 40}, 3)
    (root / "photos" / "red" / "bad.png").write_bytes(b"no picture")
    (root / "photos" / "red" / "phone.HEIC").write_bytes(b"not read")
    return root


def test_a_list_of_names_is_audited(names: Path) -> None:
    done = fine(
        "audit", names / "list.txt", "--control", names / "pool.csv", "--attribute", "sex", "--json", "-"
    )
    found = json.loads(done.stdout)
    assert found["encoder"].startswith("ngrams/1")
    entry = found["collections"][0]
    assert (entry["name"], entry["count"]) == ("list", 400)
    assert entry["interval"][0] <= -0.5 <= entry["interval"][1]


def test_standard_input_gives_the_same(names: Path) -> None:
    common = ("--control", names / "pool.csv", "--attribute", "sex", "--json", "-")
    text = (names / "list.txt").read_text(encoding="utf-8")
    piped = json.loads(fine("audit", "-", *common, input=text).stdout)["collections"][0]
    read = json.loads(fine("audit", names / "list.txt", *common).stdout)["collections"][0]
    assert piped["name"] == "stdin"
    assert piped["interval"] == read["interval"]


def test_a_table_by_feed_counts_what_each_lost(names: Path) -> None:
    done = fine(
        "audit",
        names / "feeds.csv",
        "--control",
        names / "pool.csv",
        "--attribute",
        "sex",
        "--by",
        "feed",
        "--json",
        "-",
    )
    entries = {entry["name"]: entry for entry in json.loads(done.stdout)["collections"]}
    assert {name: entry["count"] for name, entry in entries.items()} == {"a": 200, "b": 200}
    assert entries["a"]["skipped"]["empty"] == 1
    assert "empty" not in entries["b"]["skipped"]
    assert "400 of 401 items encoded; 1 had nothing to encode" in done.stderr
    told = run(
        "audit", names / "feeds.csv", "--control", names / "pool.csv", "--attribute", "sex", "--verbose"
    ).stderr
    assert "feeds.csv, 400: is empty" in told
    strict = run(
        "audit", names / "feeds.csv", "--control", names / "pool.csv", "--attribute", "sex", "--strict"
    )
    assert strict.exit_code == 2
    assert "feeds.csv, 400: is empty; fix or remove it" in strict.stderr


def test_embedding_first_gives_the_same_audit(names: Path, tmp_path: Path) -> None:
    done = fine("embed", names / "feeds.csv", "-o", tmp_path / "feeds.arrow", "--json")
    facts = json.loads(done.stdout)
    assert (facts["items"], facts["vectors"], facts["skipped"]["empty"]) == (401, 400, 1)
    assert "wrote" in done.stderr
    assert (
        (tmp_path / "feeds.arrow.skipped.csv").read_text().splitlines()[1].startswith("400,empty,is empty,")
    )
    common = ("--control", names / "pool.csv", "--attribute", "sex", "--json", "-")
    for by in ((), ("--by", "feed")):
        direct = json.loads(fine("audit", names / "feeds.csv", *common, *by).stdout)
        stored = json.loads(fine("audit", tmp_path / "feeds.arrow", *common, *by).stdout)
        for one, other in zip(direct["collections"], stored["collections"], strict=True):
            assert one["interval"] == other["interval"]
            assert one["divscore"] == other["divscore"]
            assert one["skipped"] == other["skipped"]
            assert one["diagnostics"]["skipped_shift"] == other["diagnostics"]["skipped_shift"]
        assert direct["collections"][0]["skipped"]["empty"] == 1


def test_a_gate_says_which_collections_it_stops(names: Path) -> None:
    common = (
        "audit",
        names / "feeds.csv",
        "--control",
        names / "pool.csv",
        "--attribute",
        "sex",
        "--by",
        "feed",
    )
    done = run(*common, "--max-disparity", "0.01")
    assert done.exit_code in {1, 3}
    assert "a: beyond the limit of ±0.01" in done.stderr or "a: not certainly within the limit" in done.stderr
    assert "limit of" not in run(*common, "--max-disparity", "1").stderr


def test_the_same_warning_of_several_collections_is_said_once(names: Path, tmp_path: Path) -> None:
    listed = (names / "list.txt").read_text(encoding="utf-8").split("\n")[:30]
    rows = "\n".join(f"{name},{'abc'[at % 3]}" for at, name in enumerate(listed))
    (tmp_path / "few.csv").write_text(f"name,feed\n{rows}\n", encoding="utf-8")
    done = fine(
        "audit", tmp_path / "few.csv", "--control", names / "pool.csv", "--attribute", "sex", "--by", "feed"
    )
    assert "a, b, c: cannot tell: 10 items are too few" in done.stderr
    assert done.stderr.count("too few") == 1
    assert "(" in done.stdout.splitlines()[1]  # numbers that do not count stand in brackets


def test_a_small_pool_gives_as_many_representatives_as_it_can(names: Path, tmp_path: Path) -> None:
    lines = (names / "pool.csv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "small.csv").write_text("\n".join([lines[0], *lines[1:13], *lines[101:121]]) + "\n")
    asked = ("control", "select", tmp_path / "small.csv", "--attribute", "sex", "-o", tmp_path / "C")
    assert "24 representatives of 32" in fine(*asked).stderr
    refused = run(*asked, "--size", "50")
    assert refused.exit_code == 2
    assert "use a smaller size" in refused.stderr


def test_the_pools_column_may_be_named_as_the_collections(names: Path, tmp_path: Path) -> None:
    lines = (names / "pool.csv").read_text(encoding="utf-8").splitlines()
    cells = [line.split(",") for line in lines[1:]]
    rows = "\n".join(f"{name},{at % 90},{at % 7},town,{sex}" for at, (name, sex) in enumerate(cells))
    (tmp_path / "pool.csv").write_text(f"label,age,size,city,sex\n{rows}\n", encoding="utf-8")
    (tmp_path / "list.csv").write_text("label\n" + (names / "list.txt").read_text(encoding="utf-8"))
    common = ("--control", tmp_path / "pool.csv", "--attribute", "sex", "--json", "-")
    done = fine("audit", tmp_path / "list.csv", "--column", "label", *common)
    assert json.loads(done.stdout)["encoder"].startswith("ngrams/1")


def test_a_control_set_remembers_its_encoder(names: Path, tmp_path: Path) -> None:
    fine(
        "control",
        "select",
        names / "pool.csv",
        "--attribute",
        "sex",
        "-o",
        tmp_path / "C",
        "-E",
        "dimension=256",
    )
    found = json.loads(fine("audit", names / "list.txt", "--control", tmp_path / "C", "--json", "-").stdout)
    assert "256" in found["encoder"]
    other = run("audit", names / "list.txt", "--control", tmp_path / "C", "-E", "dimension=128")
    assert other.exit_code == 2
    assert (
        "was encoded by 'ngrams/1 dimension=128', the control set by 'ngrams/1 dimension=256'" in other.stderr
    )


def test_other_commands_take_items(names: Path, tmp_path: Path) -> None:
    fine(
        "sketch",
        names / "list.txt",
        "--control",
        names / "pool.csv",
        "--attribute",
        "sex",
        "-o",
        tmp_path / "s",
    )
    from_sketch = fine(
        "audit", tmp_path / "s", "--control", names / "pool.csv", "--attribute", "sex", "--json", "-"
    )
    direct = fine(
        "audit", names / "list.txt", "--control", names / "pool.csv", "--attribute", "sex", "--json", "-"
    )
    one, other = (json.loads(done.stdout)["collections"][0] for done in (from_sketch, direct))
    assert one["interval"] == other["interval"]
    assert (
        "labelled examples for a 95% interval"
        in fine("plan", names / "pool.csv", "--attribute", "sex", "--labels", "300").stdout
    )


def test_a_labelled_sample_of_texts(names: Path, tmp_path: Path) -> None:
    every = dict(zip(*first_names(), strict=True))
    sample = (names / "list.txt").read_text(encoding="utf-8").split("\n")[:60]
    rows = "\n".join(f"{name},{every[name]}" for name in sample)
    (tmp_path / "sample.csv").write_text(f"name,sex\n{rows}\n", encoding="utf-8")
    common = ("--control", names / "pool.csv", "--attribute", "sex", "--json", "-")
    done = fine(
        "audit",
        names / "list.txt",
        *common,
        "--estimator",
        "rectified",
        "--labelled-sample",
        tmp_path / "sample.csv",
    )
    low, high = json.loads(done.stdout)["collections"][0]["interval"]
    assert low <= -0.5 <= high


def test_folders_of_pictures_by_folder_with_a_cache(pictures: Path, tmp_path: Path) -> None:
    common = ("--encoder", "onnx", "--model", pictures / "tiny.onnx", "--cache", tmp_path / "cache")
    asked = (
        "audit",
        pictures / "photos",
        "--control",
        pictures / "labelled",
        "--attribute",
        "colour",
        *common,
    )
    done = fine(*asked, "--by", "folder", "--json", "-")
    entries = {entry["name"]: entry for entry in json.loads(done.stdout)["collections"]}
    assert entries["red"]["skipped"]["unreadable"] == 1
    assert entries["blue"]["skipped"]["unreadable"] == 0
    assert entries["red"]["disparity"] < -0.8
    assert entries["blue"]["disparity"] > 0.8
    assert len(list((tmp_path / "cache").glob("onnx-*.sqlite"))) == 1
    assert "these files were not read, as their formats are not supported: 1 .heic" in done.stderr
    again = json.loads(fine(*asked, "--by", "folder", "--json", "-").stdout)
    assert again["collections"] == json.loads(done.stdout)["collections"]


def test_projection_travels_with_the_control_set(pictures: Path, tmp_path: Path) -> None:
    common = ("--encoder", "onnx", "--model", pictures / "tiny.onnx", "--no-cache")
    fine(
        "control", "select", pictures / "labelled", "--attribute", "colour", "-o", tmp_path / "C", "--size", "20",
        "--pca", "4", *common,
    )  # fmt: skip
    assert (tmp_path / "C" / "projection.npz").is_file()
    audited = fine("audit", pictures / "photos", "--control", tmp_path / "C", "--json", "-", *common[2:])
    assert " pca=4:" in json.loads(audited.stdout)["encoder"]
    embedded = ("embed", pictures / "photos", "-o", tmp_path / "p.arrow", *common)
    fine(*embedded, "--pca", tmp_path / "C" / "projection.npz")
    stored = fine("audit", tmp_path / "p.arrow", "--control", tmp_path / "C", "--json", "-")
    one, other = (json.loads(done.stdout)["collections"][0]["interval"] for done in (audited, stored))
    assert one == other
    done = fine(*embedded[:3], tmp_path / "q.arrow", *common, "--pca", "3")
    assert "q.arrow.pca.npz" in done.stderr
    wrong = run("audit", tmp_path / "q.arrow", "--control", tmp_path / "C")
    assert wrong.exit_code == 2
    assert "use the same encoder for both" in wrong.stderr
    both = fine(
        "audit", pictures / "photos", "--control", pictures / "labelled", "--pca", "5", "--json", "-", *common
    )
    assert " pca=5:" in json.loads(both.stdout)["encoder"]


def test_encoders_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = fine("encoders").stdout
    facts = {fact["name"]: fact for fact in json.loads(fine("encoders", "--json").stdout)}
    assert list(facts) == list(ENCODERS)
    assert all(name in shown for name in ENCODERS)
    assert facts["ngrams"]["ready"] == "yes"
    assert facts["vgg16"]["ready"] == "give --model"
    monkeypatch.setattr("divscore.encoders.registry.find_spec", lambda name: None)
    facts = {fact["name"]: fact for fact in json.loads(fine("encoders", "--json").stdout)}
    assert facts["faces"]["ready"] == "pip install 'divscore[faces]'"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--encoder", "ngrams"), "the encoder 'ngrams' takes texts, not images"),
        (("--encoder", "onnx"), "the encoder 'onnx' needs --model"),
        (("--encoder", "onnx", "--model", "no/such.onnx"), "no/such.onnx"),
        (("-E", "colour"), "--encoder-option takes NAME=VALUE, got 'colour'"),
        (("--by", "country"), "has no column 'country'"),
        (("--pca", "none.npz"), "none.npz does not exist"),
    ],
)
def test_mistakes_are_one_clean_line(pictures: Path, arguments: tuple[str, ...], said: str) -> None:
    done = run("audit", pictures / "photos", "--control", pictures / "labelled", "--no-cache", *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") <= 3
    assert "Traceback" not in done.stderr


def test_pictures_named_one_by_one_are_no_collections(pictures: Path) -> None:
    some = sorted((pictures / "photos" / "red").glob("0*.png"))[:3]
    done = run("audit", *some, "--control", pictures / "labelled")
    assert done.exit_code == 2
    assert "3 images were named one by one" in done.stderr


def test_the_cache_is_in_the_users_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DIVSCORE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert default_cache() == tmp_path / "divscore"
    monkeypatch.setenv("DIVSCORE_CACHE", str(tmp_path / "mine"))
    assert default_cache() == tmp_path / "mine"


def test_an_interrupted_job_says_how_to_go_on(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("divscore.cli.embed_command.run_embed", stop)
    done = run(
        "embed",
        pictures / "photos",
        "-o",
        tmp_path / "x.arrow",
        "--encoder",
        "onnx",
        "--model",
        pictures / "tiny.onnx",
    )
    assert done.exit_code == 130
    assert "the same command resumes" in done.stderr


def test_progress_in_a_log_is_a_line_now_and_then(names: Path, tmp_path: Path) -> None:
    code = (
        "import divscore.cli.console as c; c.LINE_SECONDS = 0.0\n"
        "from divscore.cli import main\n"
        f"main(['embed', {str(names / 'list.txt')!r}, '-o', {str(tmp_path / 'x.arrow')!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
        check=True,
    )
    assert "list: 400, " in done.stderr
    assert done.stdout == ""


def test_standard_input_serves_every_command(names: Path, tmp_path: Path) -> None:
    text = (names / "feeds.csv").read_text(encoding="utf-8")
    facts = json.loads(fine("embed", "-", "-o", tmp_path / "x.arrow", "--json", input=text).stdout)
    assert facts["vectors"] == 400
    pool = (names / "pool.csv").read_text(encoding="utf-8")
    done = fine(
        "audit", names / "list.txt", "--control", "-", "--attribute", "sex", "--json", "-", input=pool
    )
    assert json.loads(done.stdout)["control"]["labelled"] == 200


def test_a_broken_pipe_does_not_open_the_gate(names: Path) -> None:
    command = (
        f"{sys.executable} -m divscore audit {names / 'list.txt'} --control {names / 'pool.csv'} --attribute sex "
        "--max-disparity 0.01 2>/dev/null"
    )
    plain = subprocess.run(command, shell=True, stdout=subprocess.DEVNULL, check=False).returncode
    piped = subprocess.run(
        ["bash", "-c", f"{command} | true; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True
    )
    assert plain in {1, 3}
    assert int(piped.stdout.split()[-1]) == plain


def test_figures_beside_texts_are_not_taken_for_vectors(names: Path, tmp_path: Path) -> None:
    every, sexes = first_names()
    rows = [
        f"my name is {n} you know,{i},{i * 2},{s}" for i, (n, s) in enumerate(zip(every, sexes, strict=True))
    ]
    (tmp_path / "pool.csv").write_text(
        "bio,likes,shares,sex\n" + "\n".join(rows[:300]) + "\n", encoding="utf-8"
    )
    (tmp_path / "posts.csv").write_text(
        "bio,likes,shares,sex\n" + "\n".join(rows[300:700]) + "\n", encoding="utf-8"
    )
    done = fine(
        "audit",
        tmp_path / "posts.csv",
        "--control",
        tmp_path / "pool.csv",
        "--attribute",
        "sex",
        "--json",
        "-",
    )
    assert json.loads(done.stdout)["encoder"].startswith("ngrams/1")


def test_vectors_of_an_unknown_encoder_are_not_compared_with_texts(names: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "pool.npz", embedding=rng.normal(size=(40, 512)), group=np.array(["a", "b"] * 20))
    done = run("audit", names / "list.txt", "--control", tmp_path / "pool.npz")
    assert done.exit_code == 2
    assert "does not say which encoder made its vectors" in done.stderr
    np.save(tmp_path / "v.npy", rng.normal(size=(40, 512)))
    told = run("audit", tmp_path / "v.npy", "--control", names / "pool.csv", "--attribute", "sex")
    assert "does not say which encoder made it; assuming the control set's, ngrams/1" in told.stderr


def test_a_model_that_is_not_used_is_refused(names: Path) -> None:
    done = run(
        "audit",
        names / "list.txt",
        "--control",
        names / "pool.csv",
        "--attribute",
        "sex",
        "--model",
        "words.bin",
    )
    assert done.exit_code == 2
    assert "the encoder 'ngrams' has no model" in done.stderr


def test_half_a_character_in_a_column(names: Path, tmp_path: Path) -> None:
    listed = (names / "list.txt").read_text(encoding="utf-8").split("\n")[:40]
    rows = "\n".join(json.dumps({"text": name, "feed": chr(0xDC00) + "x"}) for name in listed)
    (tmp_path / "a.jsonl").write_text(rows + "\n", encoding="utf-8")
    common = ("--control", names / "pool.csv", "--attribute", "sex", "--by", "feed")
    fine("audit", tmp_path / "a.jsonl", *common, "--json", tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["collections"][0]["name"] == "?x"


def test_a_stale_projection_goes(pictures: Path, tmp_path: Path) -> None:
    asked = (
        "control",
        "select",
        pictures / "labelled",
        "-o",
        tmp_path / "C",
        "--size",
        "20",
        "--encoder",
        "onnx",
    )
    common = ("--model", pictures / "tiny.onnx", "--no-cache")
    fine(*asked, *common, "--pca", "4")
    fine(*asked, *common)
    assert not (tmp_path / "C" / "projection.npz").exists()
    fine("audit", pictures / "photos", "--control", tmp_path / "C", *common)


def test_an_empty_picture_among_others_of_a_pattern(pictures: Path, tmp_path: Path) -> None:
    for path in sorted((pictures / "photos" / "red").glob("00*.png")):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "none.png").touch()
    common = ("--encoder", "onnx", "--model", pictures / "tiny.onnx", "--no-cache", "--json", "-")
    done = fine("audit", f"{tmp_path}/*.png", "--control", pictures / "labelled", *common)
    assert json.loads(done.stdout)["collections"][0]["skipped"]["unreadable"] == 1
