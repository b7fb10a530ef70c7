"""TwitterAAE: collections of every composition, and the size of the control set (Section 6.3 and the appendix)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from divscore.paper.draws import Attribute, Labelled, Material, Settings, Split, collected, composed
from divscore.paper.figures import FARTHEST_ERROR, error_figure, size_figure, sweep_figure
from divscore.paper.labelleddata import LabelledData
from divscore.paper.methods import same_labels, with_ours
from divscore.paper.records import Batch, Point, points, summaries
from divscore.paper.results import Claim, Results, Section, claims_table
from divscore.paper.sections import (
    CLOSE,
    Found,
    accuracy_table,
    equal_cost,
    how_counted,
    in_short,
    made_of,
    short_table,
    size_table,
    smaller_sets,
    stored_section,
    time_table,
)
from divscore.paper.sweep import ask, batches, composition_sweep, size_methods, size_sweep

__all__ = ["DEFAULTS", "DIALECT", "STAND_IN", "reproduce", "tasks"]

DEFAULTS = Settings(repetitions=25, alpha=0.1, collection=1000)
DIALECT = Attribute("dialect", "dialect", ("AAE", "WHE"))
OVERALL = -0.826  # the disparity of the whole set, at which the size of the control set is varied
LIMIT = 1.5
STAND_IN = (
    "**This is a stand-in, not TwitterAAE.** The tweets are of another corpus, with posteriors by TwitterAAE's model: "
    "those likeliest AAE and those likeliest WHE, not the paper's posteriors of 0.99 and more. The protocol is the "
    "paper's; its numbers are not to be compared with the paper's figures."
)


def tasks(settings: Settings) -> int:
    """How many steps the run takes."""
    return settings.repetitions


def reproduce(
    data: LabelledData,
    settings: Settings = DEFAULTS,
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
    stand_in: bool = False,
) -> Results:
    """Run everything and put the results together; a `stand_in` says so."""
    settings.check(len(data))
    material = Material(data.vectors, {DIALECT.column: data.column(DIALECT.column)})
    DIALECT.labels(material)
    doing = functools.partial(work, settings=settings)
    plan = [(repetition,) for repetition in range(settings.repetitions)]
    batch, run = batches(doing, material, plan, workers=workers, progress=progress)
    return _results(data, settings, batch, run, stand_in)


def work(material: Material, repetition: int, settings: Settings) -> Batch:
    """One split: both sweeps.

    The labelled part is half AAE: of a random 200 of the whole set some 17 would be, too few for 25 of each group.
    """
    labels, seed = DIALECT.labels(material), settings.seed
    rng, sampling = np.random.default_rng([seed, repetition]), np.random.default_rng([seed, repetition, 1])
    split = Split.balanced(labels, settings.labels, rng)
    labelled = Labelled.draw(material, DIALECT, split.labelled, settings.size, rng, repetition)
    collections = composition_sweep(material, DIALECT, split.rest, settings, rng, sampling)
    batch = Batch(ask((*with_ours(settings), *same_labels(settings)), labelled, collections, "f"))
    share = (1 + OVERALL) / 2
    rows = composed(labels, split.rest, (share, 1 - share), settings.collection, rng)
    batch.answers.extend(size_sweep(labelled, collected(material, DIALECT, rows, "", sampling), settings))
    return batch


def _results(
    data: LabelledData, settings: Settings, batch: Batch, run: dict[str, Any], stand_in: bool
) -> Results:
    methods, shown = (*with_ours(settings), *same_labels(settings)), with_ours(settings)
    names = [DIALECT.name]
    swept = [a for a in batch.answers if a.sweep == "f"]
    found, at = summaries(swept), points(batch.answers)
    by_share, by_size = ([p for p in at if p.sweep == sweep] for sweep in ("f", "size"))
    sizes = size_methods(settings.size, settings.alpha)
    cost = equal_cost(swept, methods, names)
    x_labels = {DIALECT.name: "fraction f of AAE tweets in the collection"}
    figures = {
        "sweep": sweep_figure(by_share, shown, x_labels, limit=LIMIT),
        "errors": error_figure(by_share, shown, x_labels, limit=FARTHEST_ERROR),
        "sizes": size_figure(by_size, sizes, names),
    }
    claims = claims_table("claims", _claims(found, by_share, by_size))
    bars = f"Mean ± standard error of {settings.repetitions} repetitions"
    said = (STAND_IN,) if stand_in else ()
    sections = (
        Section("In short", (*said, *in_short(found, names, cost, claims, settings)), tables=(cost,)),
        Section("What was done", tuple(_protocol(data, settings, batch))),
        Section("What agrees with the paper, and what does not", tables=(claims,)),
        Section(
            "Collections of every composition",
            figures=(
                ("sweep", f"{bars}, cut at ±{LIMIT}"),
                ("errors", f"What a single audit is off by, on average, cut at {FARTHEST_ERROR}"),
            ),
            tables=(accuracy_table(found, methods, names), time_table(found, methods, names)),
        ),
        Section(
            f"The size of the control set, disparity {OVERALL:g}".replace("-", "−"),
            ("Every score is normalised with the control set that gave it. \"Cannot tell\" counts as 0.",),
            (("sizes", f"{bars}, and mean absolute error, cut {FARTHEST_ERROR} from the truth"),),
            (size_table(by_size, sizes),),
        ),
        stored_section(batch.answers, at, methods),
    )  # fmt: skip
    title = "TwitterAAE's protocol on a stand-in" if stand_in else "TwitterAAE"
    return Results(
        "twitteraae",
        f"{title}: the paper's experiments, and our estimators beside them",
        settings.command("twitteraae", DEFAULTS),
        settings.to_dict()
        | {"data": data.name, "stand_in": stand_in, "items": len(data), "encoder": data.encoder},
        sections,
        figures,
        run,
        short_table(found, methods, names),
    )


def _protocol(data: LabelledData, settings: Settings, batch: Batch) -> list[str]:
    sizes = [a.items for a in batch.answers if a.sweep == "f"]
    counts = ", ".join(f"{(data.column(DIALECT.column) == g).sum():,} {g}" for g in DIALECT.groups)
    return [
        f"{len(data):,} tweets ({counts}; cleaned of addresses, mentions and the "
        f"like; {made_of(data)}), {settings.repetitions} repetitions, seed {settings.seed}. "
        f"Each labels {settings.labels}, half of each dialect, because a random part of the whole set would have too "
        f"few AAE tweets for the paper's control sets, and draws collections of {_span(sizes)} of the "
        f"others, without replacement. Control sets have {settings.size} examples; α = {settings.alpha:g} and k = "
        f"{settings.k} (SS-ST).",
        how_counted([a for a in batch.answers if a.sweep == "f"]),
    ]


def _span(sizes: Sequence[int]) -> str:
    low, high = min(sizes), max(sizes)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _claims(found: Found, by_share: Sequence[Point], by_size: Sequence[Point]) -> list[Claim]:
    claims = []
    for method, title in (("random-balanced", "DivScore-Random-Balanced"), ("adaptive", "DivScore-Adaptive")):
        means = [p.mean for p in sorted(by_share, key=lambda p: float(p.at)) if p.method == method]
        rising = bool(np.all(np.diff(means) > 0))
        claims.append(
            Claim(
                f"{title} increases with the fraction of AAE tweets",
                "6.3",
                f"from {means[0]:.2f} to {means[-1]:.2f}{'' if rising else ', not everywhere'}",
                rising,
            )
        )
        worst = found[DIALECT.name, method].worst_bias
        claims.append(
            Claim(
                f"{title} approximates, on average, the disparity of all collections",
                "6.3",
                f"its mean is off by {worst:.2f} at most",
                worst <= CLOSE,
            )
        )
    by = {(p.method, p.at): p.mae for p in by_share}
    at = [a for method, a in by if method == "adaptive" and ("random-balanced", a) in by]
    ahead = sum(by["adaptive", a] < by["random-balanced", a] for a in at)
    return [
        *claims,
        Claim(
            "DivScore-Adaptive errs less than DivScore-Random-Balanced for most collections",
            "6.3",
            f"for {ahead} of {len(at)}",
            2 * ahead > len(at),
        ),
        smaller_sets(by_size, DIALECT.name, f"disparity {OVERALL}"),
    ]
