"""Experiments: draws, methods, answers, sections, results; one runner for all data sets.

An experiment names its attributes, what one repetition does and what its pages show. `reproduce` runs it.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from divscore.audit.audit import audit
from divscore.jobs.engine import Engine
from divscore.paper.draws import Attribute, Collection, Labelled, Settings, collect, compose
from divscore.paper.labelleddata import LabelledData, Progress, Rows
from divscore.paper.methods import Method, all_methods, size_methods
from divscore.paper.records import Answer, Batch, SelfCheck
from divscore.paper.results import Results, ResultTable, Section
from divscore.paper.sections import (
    TEXTS,
    Findings,
    accuracy_tables,
    check_claims,
    equal_cost,
    how_counted,
    in_short,
    made_of,
    short_table,
    stored_section,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")
Report = tuple[dict[str, ResultTable], "dict[str, Figure]", dict[str, Any]]


@dataclass(frozen=True)
class Experiment:
    """What is done on one data set; texts.toml has its title, claims and sections.

    `work` runs one repetition on one attribute, with randomness from the settings' seed and these two numbers only.
    `prepare` checks the data before the work and may reduce them to the columns needed. `check` gives claims with the
    values to check them by; `report` the tables and figures of the sections, and values of their texts.
    """

    name: str
    defaults: Settings
    attributes: tuple[Attribute, ...]
    work: Callable[..., Batch]
    check: Callable[[Findings], Iterable[tuple[Any, Mapping[str, Any]]]]
    report: Callable[[Findings], Report]
    methods: Callable[[Settings], tuple[Method, ...]] = all_methods
    prepare: Callable[[LabelledData, Settings], LabelledData] = lambda data, settings: data
    main: tuple[str, ...] = ()
    sweep: str = "f"

    def steps(self, settings: Settings) -> int:
        """Number of steps of a run."""
        return settings.repetitions * len(self.attributes)


def reproduce(
    experiment: Experiment,
    data: LabelledData,
    settings: Settings | None = None,
    *,
    workers: int = 1,
    progress: Progress = None,
) -> Results:
    """Run everything and collect the results."""
    settings = settings or experiment.defaults
    settings.check(len(data))
    for attribute in experiment.attributes:
        attribute.labels(data)  # reports a strange group before hours of work
    data = experiment.prepare(data, settings)
    start = time.perf_counter()
    tasks = [(r, part) for r in range(settings.repetitions) for part in range(len(experiment.attributes))]
    work = functools.partial(experiment.work, settings=settings)
    batch = Batch.joined(repeat(work, data, tasks, workers=workers, progress=progress))
    run = {"seconds": round(time.perf_counter() - start, 1), "workers": workers}
    names = tuple(a.name for a in experiment.attributes)
    methods = experiment.methods(settings)
    findings = Findings(data, settings, methods, names, experiment.main or names, batch, experiment.sweep)
    claims = check_claims(experiment.check(findings))
    cost = equal_cost(findings.answers, methods, names)
    tables, figures, values = experiment.report(findings)
    tables |= {table.name: table for table in accuracy_tables(findings)}
    sizes = sorted({a.items for a in findings.answers})
    groups = [(data.columns[a.column], group) for a in experiment.attributes for group in a.groups]
    values |= {
        "items": len(data),
        "made_of": made_of(data),
        "settings": settings,
        "sizes": f"{sizes[0]:,} to {sizes[-1]:,}" if len(sizes) > 1 else f"{sizes[0]:,}",
        "collections": len({a.at for a in findings.answers}),
        "counts": ", ".join(f"{(column == group).sum():,} {group}" for column, group in groups),
    }
    about = TEXTS[experiment.name]
    protocol, *notes = (text.format(**values) for text in about["done"])
    stand_in = [TEXTS["stand_in"].format(name=data.name)] if data.stand_in else []
    sections = [
        Section(
            section["title"],
            tuple(filled for text in section.get("text", ()) if (filled := text.format(**values))),
            tuple((stem, caption.format(**values)) for stem, caption in section.get("figures", ())),
            tuple(tables[name] for name in section["tables"]),
        )
        for section in about["sections"]
    ]
    return Results(
        experiment.name,
        f"{about['title']}{' (stand-in)' if data.stand_in else ''}: the paper's experiments, with our estimators",
        f"divscore reproduce {experiment.name} --data PATH",
        settings.to_dict()
        | {"data": data.name, "stand_in": data.stand_in, "items": len(data), "encoder": data.encoder},
        (
            Section("In short", (*stand_in, *in_short(findings, cost, claims)), tables=(cost,)),
            Section("What was done", (protocol, how_counted(findings), *notes)),
            Section("What agrees with the paper, and what does not", tables=(claims,)),
            *sections,
            stored_section(findings),
        ),
        figures,
        run,
        short_table(findings),
    )


def ask(
    methods: Sequence[Method], labelled: Labelled, collections: Sequence[Collection], sweep: str
) -> list[Answer]:
    """Prepare every method once and ask it about every collection, against the clock."""
    answers = []
    prepared: dict[str, float] = {}
    for method in methods:
        start = time.perf_counter()
        run = method.prepare(labelled)
        prepared[method.key] = time.perf_counter() - start + prepared.get(method.after, 0.0)
        for collection in collections:
            start = time.perf_counter()
            reply = run(collection)
            times = prepared[method.key], time.perf_counter() - start
            question = sweep, labelled.pool.attribute, collection.at, labelled.seed, method.key
            answers.append(Answer(*question, len(collection), collection.truth, *reply, *times))
    return answers


def composition_sweep(
    data: LabelledData,
    attribute: Attribute,
    rows: Rows,
    settings: Settings,
    rng: np.random.Generator,
    sampling: np.random.Generator,
) -> list[Collection]:
    """Draw collections with f = 0 … 1 of the first group, each from all of `rows`.

    `sampling` decides which items a method may see labelled, separately from which items are drawn.
    """
    labels = attribute.labels(data)
    return [
        collect(data, attribute, compose(labels, rows, (f, 1 - f), settings.collection, rng), f, sampling)
        for f in settings.shares
    ]


def size_sweep(labelled: Labelled, collection: Collection, settings: Settings) -> list[Answer]:
    """Ask about one collection with control sets of growing size, each normalised by itself."""
    answers = []
    for size in settings.sizes:
        if size <= labelled.largest:
            methods = size_methods(size, settings.alpha)
            answers += ask(methods, labelled, [replace(collection, at=size)], "size")
    return answers


def audit_collections(labelled: Labelled, collections: Sequence[Collection]) -> list[SelfCheck]:
    """An audit's trust in its own answers, with all labels."""
    attribute, checks = labelled.pool.attribute, []
    for collection in collections:
        result = audit(collection.vectors, labelled.pool, seed=labelled.seed)
        relevance, warning = result.diagnostics.relevance, next(iter(result.warnings), "")
        checks.append(SelfCheck(attribute, str(collection.at), result.trust, relevance, warning))
    return checks


def repeat(
    work: Callable[..., T],
    data: LabelledData,
    tasks: Sequence[tuple[int, ...]],
    *,
    workers: int = 1,
    progress: Progress = None,
) -> list[T]:
    """Return ``work(data, *task)`` for every task, in order; the number of workers makes no difference.

    Worker processes map the same vectors from a temporary file.
    """
    results = []
    with ExitStack() as stack:
        file = None
        if workers > 1:
            file = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="divscore-"))) / "vectors.npy"
            np.save(file, data.vectors)
            data = replace(data, vectors=np.empty((len(data), 0)))
        engine = stack.enter_context(Engine(min(workers, len(tasks)), processes=True))
        for _, result in engine.map(functools.partial(_call, work, data, file), tasks):
            results.append(result)
            if progress is not None:
                progress(1)
    return results


def _call(work: Callable[..., T], data: LabelledData, file: Path | None, task: tuple[int, ...]) -> T:
    if file is not None:
        data = replace(data, vectors=np.load(file, mmap_mode="r", allow_pickle=False))
    return work(data, *task)
