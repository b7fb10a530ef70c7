"""`divscore plan`."""

from __future__ import annotations

import csv
import json

import pytest
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


def ways(*arguments):
    found = json.loads(run("plan", *arguments, "--json").stdout)
    return found, {way["way"]: (way["labels"], way["width"]) for way in found["ways"]}


def test_labels_of_a_collection_with_and_without_a_control_set(files):
    found, labels = ways("mostly_a.npy", "--control", "labelled.parquet", "--width", 0.15)
    assert (found["items"], found["basis"], found["attribute"]) == (600, "the control set", "letter")
    assert (
        labels["with the control set"][0] <= labels["without a control set"][0] < labels["simple sample"][0]
    )
    assert all(width <= 0.15 for _, width in labels.values())
    text = run("plan", "mostly_a.npy", "--control", "labelled.parquet", "--labels", 60).stdout
    assert "From the control set, for 600 items." in text


def test_after_a_pilot_the_plan_comes_from_the_pilot(files):
    run("sample", "mostly_a.npy", "--size", 40, "--groups", "a,b", "-o", "pilot.csv")
    with open("pilot.csv", newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        row["group"] = "a" if int(row["id"]) < 450 else "b"
    with open("pilot.csv", "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    found, labels = ways("mostly_a.npy", "--labelled-sample", "pilot.csv", "--labels", 40)
    assert found["basis"] == "40 labels"
    assert set(labels) == {"without a control set", "simple sample"}
    audited = json.loads(run("audit", "mostly_a.npy", "--labelled-sample", "pilot.csv", "--json", "-").stdout)
    low, high = audited["collections"][0]["interval"]
    assert labels["without a control set"][1] == pytest.approx(high - low, rel=0.5)


def test_nothing_known_is_the_worst_case(files):
    text = run("plan", "even.npy", "--width", 0.15).stdout
    assert "The worst case of two equal groups, for 600 items." in text
    assert "label 30 items first" in text
