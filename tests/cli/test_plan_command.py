"""`divscore plan`."""

from __future__ import annotations

import json

from commands import run


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
