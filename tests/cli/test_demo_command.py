"""`divscore demo`."""

from __future__ import annotations

import json

import pytest
from commands import run


def test_demo_tells_the_truth(tmp_path):
    result = run("demo", "--out", tmp_path / "demo")
    assert result.stdout.count("True share") == 3
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
