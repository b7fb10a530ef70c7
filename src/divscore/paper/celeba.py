"""CelebA: the pictures with each facial attribute are a collection; how many are of women? (Section 6.2)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from divscore.errors import InputError
from divscore.paper.celeba_data import attribute_collections
from divscore.paper.draws import Attribute, Labelled, Material, Settings, Split, collected
from divscore.paper.figures import collection_figure
from divscore.paper.labelleddata import LabelledData
from divscore.paper.methods import Method, same_labels, with_ours
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
    stored_section,
    time_table,
    trust_table,
)
from divscore.paper.sweep import ask, batches, check_collections

__all__ = ["DEFAULTS", "GENDER", "methods", "reproduce", "tasks"]

DEFAULTS = Settings(repetitions=25, labels=500)
GENDER = Attribute("gender", "gender", ("female", "male"))
FIGURE, APPENDIX = ("random-balanced", "adaptive", "likelihood"), ("random-proportional", "iid", "rectified")
# The paper calls SS-ST infeasible here, and does not label as much as |U| in every collection.
NOT_ASKED = ("ss-st", "ss-st-all", "proportional-many", "iid-many")
FEWEST = 20


def tasks(settings: Settings) -> int:
    """How many steps the run takes."""
    return settings.repetitions


def methods(settings: Settings) -> tuple[Method, ...]:
    """What is compared here."""
    return tuple(m for m in (*with_ours(settings), *same_labels(settings)) if m.key not in NOT_ASKED)


def reproduce(
    data: LabelledData,
    settings: Settings = DEFAULTS,
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Results:
    """Run everything and put the results together."""
    settings.check(len(data))
    names = tuple(attribute_collections(data))
    if not names:
        raise InputError(f"{data.name}: no attribute has pictures enough, one in ten of them of women")
    columns = {name: data.column(name) for name in (GENDER.column, *names)}
    material = Material(data.vectors, columns)
    doing = functools.partial(work, settings=settings, names=names)
    plan = [(repetition,) for repetition in range(settings.repetitions)]
    batch, run = batches(doing, material, plan, workers=workers, progress=progress)
    return _results(data, settings, batch, run, len(names))


def work(material: Material, repetition: int, settings: Settings, names: Sequence[str]) -> Batch:
    """One split: the same control sets for the collections of all attributes."""
    seed = settings.seed
    rng, sampling = np.random.default_rng([seed, repetition]), np.random.default_rng([seed, repetition, 1])
    split = Split.at_random(len(material), settings.labels, rng)
    labelled = Labelled.draw(material, GENDER, split.labelled, settings.size, rng, repetition)
    parts = [(name, split.rest[material.columns[name][split.rest] == "yes"]) for name in names]
    collections = [
        collected(material, GENDER, rows, name.replace("_", " "), sampling)
        for name, rows in parts
        if len(rows) >= FEWEST
    ]
    answers = ask(methods(settings), labelled, collections, "attribute")
    return Batch(answers, [], check_collections(labelled, collections))


def _results(
    data: LabelledData, settings: Settings, batch: Batch, run: dict[str, Any], collections: int
) -> Results:
    asked, names = methods(settings), [GENDER.name]
    found, at = summaries(batch.answers), points(batch.answers)
    cost = equal_cost(batch.answers, asked, names)
    claims = claims_table("claims", _claims(found, at))
    figures = {
        name: collection_figure(at, [m for m in asked if m.key in keys], names)
        for name, keys in (("attributes", FIGURE), ("appendix", APPENDIX))
    }
    bars = (
        f"Mean ± standard deviation of {settings.repetitions} repetitions; black: the truth; arrows: beyond"
    )
    sections = (
        Section("In short", in_short(found, names, cost, claims, settings), tables=(cost,)),
        Section("What was done", tuple(_protocol(data, settings, batch, collections))),
        Section("What agrees with the paper, and what does not", tables=(claims,)),
        Section(
            "Collections by facial attribute",
            figures=(("attributes", bars), ("appendix", f"Methods that label items of every collection. {bars}")),
            tables=(
                accuracy_table(found, asked, names),
                time_table(found, asked, names),
                trust_table(at, batch.checks, [m for m in asked if m.key in FIGURE], names, "collection"),
            ),
        ),
        stored_section(batch.answers, at, asked),
    )  # fmt: skip
    return Results(
        "celeba",
        "CelebA: the paper's experiments, and our estimators beside them",
        settings.command("celeba", DEFAULTS),
        settings.to_dict() | {"data": data.name, "items": len(data), "encoder": data.encoder},
        sections,
        figures,
        run,
        short_table(found, asked, names),
    )


def _protocol(data: LabelledData, settings: Settings, batch: Batch, collections: int) -> list[str]:
    sizes = [a.items for a in batch.answers]
    return [
        f"{len(data):,} pictures ({made_of(data)}), {settings.repetitions} repetitions, seed {settings.seed}. Each "
        f"labels {settings.labels} random pictures and takes them out; the others with an attribute are a collection, "
        f"{collections} of them, of {min(sizes):,} to {max(sizes):,} pictures. Control sets have {settings.size} "
        f"examples; α = {settings.alpha:g}. These collections are no random draws.",
        how_counted(batch.answers),
    ]


def _claims(found: Found, at: Sequence[Point]) -> list[Claim]:
    by = {(p.method, p.at): p.mae for p in at}
    names = [name for method, name in by if method == "adaptive"]
    ahead = sum(by["adaptive", name] < by["random-balanced", name] for name in names)
    adaptive, random = (found[GENDER.name, key] for key in ("adaptive", "random-balanced"))
    iid = found[GENDER.name, "iid"]
    drawn = [p.mae for p in at if p.method == "random-proportional"]
    return [
        Claim(
            "For almost all attributes DivScore-Adaptive errs less than DivScore-Random-Balanced",
            "6.2",
            f"for {ahead} of {len(names)}; on average {adaptive.mae:.3f} against {random.mae:.3f}",
            ahead >= 0.9 * len(names),
        ),
        Claim(
            "IID-Measure has a low error",
            "appendix",
            f"{iid.mae:.3f} on average",
            iid.mae <= adaptive.mae,
        ),
        Claim(
            "DivScore-Random-Proportional has a low error for some attributes and a high one for others",
            "appendix",
            f"from {min(drawn):.3f} to {max(drawn):.3f}" if drawn else "nowhere defined",
            bool(drawn) and min(drawn) <= CLOSE and max(drawn) >= 3 * CLOSE,
        ),
    ]
