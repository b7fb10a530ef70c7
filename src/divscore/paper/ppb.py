"""PPB-2017: what is drawn and asked in one repetition (the paper's Sections 4 and 6 and its appendix)."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from divscore.paper.draws import (
    Attribute,
    Collection,
    Labelled,
    Material,
    Rows,
    Split,
    check_splits,
    collected,
    composed,
)
from divscore.paper.labelleddata import LabelledData
from divscore.paper.methods import same_labels, with_ours
from divscore.paper.ppbresults import BY_COUNTRY, MAIN, ppb_results
from divscore.paper.records import Batch
from divscore.paper.repeat import batches
from divscore.paper.results import Results
from divscore.paper.settings import Settings
from divscore.paper.sweep import ask, check_collections, composition_sweep, measure_gamma, size_sweep

__all__ = ["ATTRIBUTES", "DEFAULTS", "reproduce", "tasks"]

DEFAULTS = Settings()
ATTRIBUTES = (
    Attribute("gender", "gender", ("female", "male")),
    Attribute("skin tone", "skin_tone", ("darker", "lighter")),
    Attribute("dark-skinned women", "group", ("dark-skinned women", "others")),
)
COUNTRIES = {
    "FL": "Finland",
    "IL": "Iceland",
    "RW": "Rwanda",
    "SA": "South Africa",
    "SE": "Senegal",
    "SW": "Sweden",
}
FEWEST = 20  # portraits of a country that make a collection


def tasks(settings: Settings) -> int:
    """How many steps the run takes."""
    return settings.repetitions * len(ATTRIBUTES)


def reproduce(
    data: LabelledData,
    settings: Settings = DEFAULTS,
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Results:
    """Run everything and put the results together."""
    settings.check(len(data))
    material = Material(data.vectors, data.columns)
    splits = (_split(material, settings, repetition) for repetition in range(settings.repetitions))
    # A group is known by two at least, and the smallest control set of the size sweep takes half of each.
    smallest = max(2, min(settings.sizes) // 2)
    check_splits(splits, material, {a: smallest if a.name in MAIN else 2 for a in ATTRIBUTES})
    plan = [
        (repetition, part) for repetition in range(settings.repetitions) for part in range(len(ATTRIBUTES))
    ]
    doing = functools.partial(work, settings=settings)
    batch, run = batches(doing, material, plan, workers=workers, progress=progress)
    return ppb_results(data, material, ATTRIBUTES, settings, batch, run)


def work(material: Material, repetition: int, part: int, settings: Settings) -> Batch:
    """One attribute on one split: every sweep, with randomness from the seed and these two numbers alone."""
    attribute, seed = ATTRIBUTES[part], settings.seed
    split = _split(material, settings, repetition)
    rng = np.random.default_rng([seed, repetition, part])
    sampling = np.random.default_rng([seed, repetition, part, 1])
    labelled = Labelled.draw(material, attribute, split.labelled, settings.size, rng, repetition)
    collections = composition_sweep(material, attribute, split.rest, settings, rng, sampling)
    methods = (*with_ours(settings), *same_labels(settings))
    batch = Batch(ask(methods, labelled, collections, "f"))
    if attribute.name in MAIN:
        batch.measures.extend(measure_gamma(labelled, (material, attribute, split.rest), settings))
        even = composed(attribute.labels(material), split.rest, (0.5, 0.5), settings.collection, rng)
        balanced = collected(material, attribute, even, "", sampling)
        batch.answers.extend(size_sweep(labelled, balanced, settings))
        countries = _countries(material, attribute, split.rest, sampling)
        some = [method for method in methods if method.key in BY_COUNTRY]
        batch.answers.extend(ask(some, labelled, countries, "country"))
        batch.checks.extend(check_collections(labelled, countries))
    return batch


def _split(material: Material, settings: Settings, repetition: int) -> Split:
    rng = np.random.default_rng([settings.seed, repetition])
    return Split.at_random(len(material), settings.labels, rng)


def _countries(
    material: Material, attribute: Attribute, rows: Rows, sampling: np.random.Generator
) -> list[Collection]:
    """The portraits of every country that are not labelled: no random draw of anything."""
    country = material.columns["country"]
    parts = [(str(code), rows[country[rows] == code]) for code in np.unique(country)]
    return [
        collected(material, attribute, part, COUNTRIES.get(code, code), sampling)
        for code, part in parts
        if len(part) >= FEWEST
    ]
