"""Sentences that all experiments share: what came out, and how it was counted."""

from __future__ import annotations

from collections.abc import Sequence

from divscore.paper.labelleddata import LabelledData
from divscore.paper.records import Answer
from divscore.paper.sections import WANTED, Found
from divscore.paper.settings import Settings
from divscore.paper.tables import Table

__all__ = ["equal_cost_text", "how_counted", "in_short", "made_of", "strictest"]

PROPOSAL = "DivScore-Adaptive"  # what the paper makes of |U| labels


def in_short(
    found: Found, attributes: Sequence[str], cost: Table, claims: Table, settings: Settings
) -> tuple[str, ...]:
    """The outcome in a few sentences."""
    m, n = settings.size, settings.labels

    def errors(method: str) -> str:
        several = len(attributes) > 1
        return " and ".join(f"{found[a, method].mae:.3f}{f' ({a})' * several}" for a in attributes)

    agreed = sum(row[3] == "agrees" for row in claims.rows)
    return (
        f"With all {n} labels `likelihood` errs by {errors('likelihood')}, with {m} of them by "
        f"{errors('likelihood-few')}. DivScore-Adaptive, {m} chosen of the {n}, errs by {errors('adaptive')}; "
        f"DivScore-Random-Balanced, {m} labels, by {errors('random-balanced')}; labelling {m} items of every "
        f"collection itself (IID-Measure) by {errors('iid')}. These are mean absolute errors of the disparity.",
        f"Against every use of the same {n} labels that the paper describes:",
        "\n".join(equal_cost_text(cost)),
        strictest(cost),
        f"The paper and these results agree in {agreed} of {len(claims.rows)} claims; the table of claims names them.",
    )


def equal_cost_text(table: Table) -> list[str]:
    """Say in words against what the wanted factor is reached, and against what it is not; nothing is left out."""
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows if row[-1] is not None]
    said = []
    for title in dict.fromkeys(str(row["method"]) for row in rows):
        mine = [row for row in rows if row["method"] == title]
        factors = ", ".join(f"{row['ratio']:.1f} × ({row['attribute']})" for row in mine)
        short = [str(row["attribute"]) for row in mine if not row["≥ 4 ×"]]
        verdict = f"**the factor {WANTED:.0f} is not reached** on {', '.join(short)}" if short else "reached"
        note = " (the paper's proposal)" if title == PROPOSAL else ""
        if mine[0]["labelled"] != "once":
            note = f" ({mine[0]['labels']} new labels in every collection)"
        said.append(f"- {title}{note}: errs {factors} as much as `likelihood`; {verdict}.")
    return said


def strictest(table: Table) -> str:
    """The best of the paper's methods with the same labels, given once, attribute by attribute."""
    rows = [row for row in table.rows if row[-1] is not None and row[2] == "once"]
    best = [
        min((r for r in rows if r[0] == a), key=lambda r: float(r[6] or 0))
        for a in dict.fromkeys(r[0] for r in rows)
    ]
    told = "; ".join(f"{row[0]}: {row[3]}, {row[6]:.1f} ×" for row in best)
    reached = all(row[-1] for row in best)
    return (
        f"Taking for each attribute whichever of these, labelled once, errs least ({told}), the factor {WANTED:.0f} is "
        f"{'reached' if reached else '**not reached**'}."
    )


def how_counted(answers: Sequence[Answer]) -> str:
    """What the columns of the tables count, in words."""
    drawn = [a for a in answers if a.method == "random-proportional"]
    undefined = sum(not a.defined for a in drawn)
    return (
        "Methods that label items of the collection itself need new labels for every collection; the others are "
        "labelled once. DivScore-Random-Proportional is not defined where a control set drawn from the collection "
        f"has fewer than two of a group ({undefined} of {len(drawn)} draws); these are left out, which favours it. "
        '"Cannot tell" counts as a disparity of 0 in errors, and, with limits from −1 to 1, as covered. IID-Measure\'s '
        "interval (Clopper–Pearson) does not use that the collection is finite. "
        'DivScore is not cut to [−1, 1]; "clipped" is the error '
        "if it were. Spread is the standard deviation of the estimate for one composition; standard errors are over "
        "repetitions."
    )


def made_of(data: LabelledData) -> str:
    """What the vectors are, and how many items have none."""
    lost = max((len(column) for column in data.left_out.values()), default=0)
    told = [f"vectors: {data.encoder or 'as the file has them'}"]
    if lost:
        told.append(f"{lost:,} more items without")
    if data.unreadable:
        told.append(f"{data.unreadable:,} lines of the file were not of its format")
    return "; ".join(told)
