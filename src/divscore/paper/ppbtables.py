"""Tables of PPB-2017: γ and γ^(T), and Theorem 3.3 against what is seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from divscore.control.controlset import ControlSet
from divscore.control.theory import Separability, separability, theorem
from divscore.paper.draws import Attribute, Material
from divscore.paper.records import Measure
from divscore.paper.sections import Found
from divscore.paper.settings import Settings
from divscore.paper.summary import Point
from divscore.paper.tables import Table

__all__ = ["PAPER_GAMMA", "bound_curves", "gamma_table", "separabilities", "theorem_table"]

# What the paper reports (Sections 4.2 and 6.1), and γ to four digits as its authors' notebooks print it.
PAPER_GAMMA = {
    "gender": {"γ": 0.35, "γ with self-pairs": 0.3544, "random": 0.35, "adaptive": 0.96},
    "skin tone": {"γ": 0.08, "γ with self-pairs": 0.0842, "random": 0.08, "adaptive": 0.34},
}
NOTEBOOK_SIZE, NOTEBOOK_ITEMS = 100, 500  # |T| and |S| of the bound that the authors' notebooks print
QUANTILE = 0.9  # the theorem's own probability, nearly


def separabilities(material: Material, attributes: Sequence[Attribute]) -> dict[str, Separability]:
    """γ of the whole data set, for every attribute."""
    return {
        a.name: separability(
            ControlSet(
                material.vectors, material.columns[a.column].tolist(), attribute=a.name, order=a.groups
            )
        )
        for a in attributes
    }


def gamma_table(whole: dict[str, Separability], measures: Sequence[Measure]) -> Table:
    """γ and γ^(T) as measured, beside what the paper reports."""
    rows: list[tuple[object, ...]] = []
    for attribute, found in whole.items():
        paper = PAPER_GAMMA.get(attribute, {})
        rows.append((attribute, "γ, all items", found.gamma, None, paper.get("γ")))
        what = "γ, all items, pairs with itself kept"
        rows.append((attribute, what, found.gamma_with_self, None, paper.get("γ with self-pairs")))
        for name in dict.fromkeys(m.name for m in measures):
            values = [m.value for m in measures if m.attribute == attribute and m.name == name]
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
            kind = name.split(",")[0]
            rows.append((attribute, f"γ^(T), {name}", float(np.mean(values)), spread, paper.get(kind)))
    columns = ("attribute", "what", "measured", "standard deviation", "paper")
    return Table.of(
        "gamma", "How similar the same group is, less how similar different ones are", columns, rows
    )


def theorem_table(whole: dict[str, Separability], gamma: Table, settings: Settings, found: Found) -> Table:
    """The bound for |T| and |S| of the sweep, and for those of the authors' notebooks, beside errors."""
    rows: list[tuple[object, ...]] = []
    for attribute, same in whole.items():
        for method, what in (("random-balanced", "random"), ("adaptive", "adaptive")):
            seen = found[attribute, method]
            chosen = (
                _measured(gamma, attribute, "γ^(T), adaptive, held out") if method == "adaptive" else None
            )
            bound = theorem(settings.size, settings.collection, same.mu_same, same.mu_diff, chosen)
            errors = (seen.mae, seen.quantile, seen.largest)
            sizes = (settings.size, settings.collection)
            rows.append(
                (attribute, f"{what} control set", *sizes, bound.delta, bound.additive_error, *errors)
            )
        bound = theorem(NOTEBOOK_SIZE, NOTEBOOK_ITEMS, same.mu_same_with_self, same.mu_diff)
        sizes = (NOTEBOOK_SIZE, NOTEBOOK_ITEMS)
        given = (bound.delta, bound.additive_error)
        rows.append((attribute, "as the authors' notebooks have it", *sizes, *given, None, None, None))
    columns = (
        "attribute", "setting", "|T|", "|S|", "δ", "bound on the error", "mean error seen",
        "0.9 quantile seen", "largest seen",
    )  # fmt: skip
    return Table.of("theorem", "Theorem 3.3", columns, rows)


def bound_curves(
    whole: dict[str, Separability], points: Sequence[Point], settings: Settings
) -> dict[str, dict[str, tuple[list[float], list[float]]]]:
    """The bound and the 0.9 quantile of the errors, by size of the control set."""
    curves: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for attribute, same in whole.items():
        here = [p for p in points if p.attribute == attribute]
        sizes = sorted({float(p.at) for p in here})
        bound = [
            theorem(int(size), settings.collection, same.mu_same, same.mu_diff).additive_error
            for size in sizes
        ]
        lines = {"Theorem 3.3": (sizes, bound)}
        for method, name in (
            ("random-balanced", "DivScore-Random-Balanced, 0.9 quantile of the error"),
            ("likelihood-few", "likelihood with the same labels, 0.9 quantile of the error"),
        ):
            some = [p for p in here if p.method == method and p.answers >= p.left_out]
            lines[name] = ([float(p.at) for p in some], [p.quantile for p in some])
        curves[attribute] = lines
    return curves


def _measured(gamma: Table, attribute: str, what: str) -> float:
    return next(float(str(row[2])) for row in gamma.rows if row[0] == attribute and row[1] == what)
