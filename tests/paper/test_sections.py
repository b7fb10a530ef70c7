"""Claims and sentences, from numbers by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from experiments import answer, results

from divscore.paper.draws import Settings
from divscore.paper.methods import all_methods
from divscore.paper.records import points
from divscore.paper.sections import TEXTS, check_claims, equal_cost, equal_cost_text, smaller_sets, strictest


@pytest.mark.parametrize(("error", "reached"), [(0.3, False), (0.5, True)])
def test_whether_the_factor_of_four_is_reached(error: float, reached: bool) -> None:
    methods = [m for m in all_methods(Settings()) if m.key in ("all", "likelihood")]
    table = equal_cost([answer(0.1, method="likelihood"), answer(error, method="all")], methods, ["x"])
    assert table.column("≥ 4 ×") == [reached]
    (sentence,) = equal_cost_text(table)
    assert ("not reached" in sentence) is not reached
    assert ("not reached" in strictest(table)) is not reached
    assert f"{error / 0.1:.1f} ×" in sentence


@pytest.mark.parametrize(("value", "verdict"), [(0.2, "agrees"), (0.4, "differs"), (None, "agrees")])
def test_a_claim_compares_a_statistic_with_a_threshold(value: float | None, verdict: str) -> None:
    claim = {
        "says": "Low ({name})",
        "where": "4.1",
        "measured": "{by[m].mae:.2f}",
        "otherwise": ", too much",
        "check": ["by[m].mae", "≤", 0.3],
    }
    values = {"name": "x", "by": {"m": SimpleNamespace(mae=value)}}
    ((says, where, measured, said),) = check_claims([([claim], values)]).rows
    assert (says, where, said) == ("Low (x)", "4.1", verdict)
    assert measured == f"{value or 0:.2f}" + ", too much" * (verdict == "differs")


@pytest.mark.parametrize("swapped", [False, True])
def test_fewer_examples_for_the_same_error(swapped: bool) -> None:
    errors = {"adaptive": (0.2, 0.1, 0.3), "random-balanced": (0.5, 0.3, 0.11)}
    names = list(errors)[:: -1 if swapped else 1]
    found = points(
        answer(error, at=size, sweep="size", attribute="tone", method=name)
        for name, row in zip(names, errors.values(), strict=True)
        for size, error in zip((10, 20, 30), row, strict=True)
    )
    ((says, _, measured, verdict),) = check_claims([smaller_sets(found, "tone", "here")]).rows
    assert str(says).endswith("(here)")
    assert verdict == ("differs" if swapped else "agrees")
    assert "0.110, the lowest that both reach: " in str(measured)
    assert str(measured).endswith("30 examples against 20" if swapped else "20 examples against 30")


PUBLISHED = sorted((Path(__file__).parents[2] / "docs/results").glob("*/RESULTS.md"))


@pytest.mark.parametrize("page", [None, *PUBLISHED], ids=lambda page: page.parent.name if page else "new")
def test_a_sentence_above_every_table_says_what_its_numbers_are(page: Path | None) -> None:
    text = page.read_text(encoding="utf-8") if page else results().markdown()
    blocks = [block for block in text.split("\n\n") if block]
    above = {at: blocks[at - 1] for at, block in enumerate(blocks) if block.startswith("|")}
    assert len(above) >= 5
    for sentence in above.values():
        assert sentence.endswith("."), sentence
        assert not sentence.startswith(("#", "**", "!", "*", "|")), sentence
        assert "repetitions" in sentence or "milliseconds" in sentence
        assert any(word in sentence for word in ("maller is better", "arger γ"))
        assert "{" not in sentence
    definitions = {
        "DivScore": "DivScore is ", "likelihood": "`likelihood` is ", "coverage": "*coverage* is ",
        "caution": "`caution` means ", "γ": "γ is ",
    }  # fmt: skip
    for word, definition in definitions.items():
        first = next((at for at in above if word in blocks[at]), None)
        assert first is None or definition in above[first], word


@pytest.mark.parametrize("name", ["ppb", "celeba", "twitteraae"])
def test_every_table_of_an_experiment_has_its_sentence(name: str) -> None:
    shown = {table for section in TEXTS[name]["sections"] for table in section["tables"]}
    assert shown <= {*TEXTS["tables"], *TEXTS[name].get("tables", {})}


def test_the_page_opens_with_three_results() -> None:
    opening = results().markdown().split("## In short\n\n")[1].split("\n\n")[0]
    assert [line[:2] for line in opening.splitlines()] == ["1.", "2.", "3."]
    accuracy = {(row["attribute"], row["method"]): row for row in results().tables["accuracy"].records}
    row = accuracy["gender", "likelihood, all 80 labels"]
    assert f"{row['error']:.3f} (gender)" in opening
    assert f"{100 * row['coverage']:.0f} % (gender)" in opening
    assert "for collections of a single country" in opening
