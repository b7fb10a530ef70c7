"""Experiments: draws, methods, answers, sections, results; one runner for all data sets.

An experiment names its attributes, what one repetition does and what its pages show. `reproduce` runs it.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from divscore.audit.audit import audit
from divscore.jobs.engine import Engine
from divscore.paper.draws import Attribute, Collection, Labelled, Settings, Split, collect, compose
from divscore.paper.labelleddata import LabelledData, Progress, Rows
from divscore.paper.methods import Method, all_methods, size_methods
from divscore.paper.records import Answer, Batch, SelfCheck
from divscore.paper.results import Results
from divscore.paper.sections import Findings, Report, make_results

T = TypeVar("T")
FEWEST = 20  # items that make a named collection


@dataclass(frozen=True)
class Experiment:
    """What is done on one data set; texts.toml has its title, claims and sections.

    `work` runs one repetition on one attribute, with randomness from the settings' seed and these two numbers only.
    `prepare` checks the data before the work and may reduce them to the columns needed.
    """

    name: str
    defaults: Settings
    attributes: tuple[Attribute, ...]
    work: Callable[..., Batch]
    report: Callable[[Findings], Report]
    methods: Callable[[Settings], tuple[Method, ...]] = all_methods
    prepare: Callable[[LabelledData, Settings], LabelledData] = lambda data, settings: data
    main: tuple[str, ...] = ()
    sweep: str = "f"


def reproduce(
    experiment: Experiment,
    data: LabelledData,
    settings: Settings,
    *,
    workers: int = 1,
    progress: Progress = None,
) -> Results:
    """Run everything and collect the results."""
    settings.check(len(data))
    data = experiment.prepare(data, settings)
    start = time.perf_counter()
    tasks = [(r, part) for r in range(settings.repetitions) for part in range(len(experiment.attributes))]
    work = functools.partial(experiment.work, settings=settings)
    batch = Batch.joined(repeat(work, data, tasks, workers=workers, progress=progress))
    run = {"seconds": round(time.perf_counter() - start, 1), "workers": workers}
    names = tuple(a.name for a in experiment.attributes)
    methods = experiment.methods(settings)
    findings = Findings(data, settings, methods, names, experiment.main or names, batch, experiment.sweep)
    return make_results(experiment.name, findings, experiment.report(findings), run)


class Repetition:
    """One split for one attribute; asks the methods about collections of the rest and keeps the answers.

    One generator decides which items are drawn, another which of them a method may see labelled: how many a method
    asks for then never changes a collection. Both depend on the settings' seed and these numbers only.
    """

    def __init__(
        self,
        data: LabelledData,
        attribute: Attribute,
        settings: Settings,
        methods: Sequence[Method],
        split: Callable[[np.random.Generator], Split],
        *numbers: int,
    ) -> None:
        self.data, self.attribute, self.settings, self.methods = data, attribute, settings, methods
        self.rng = np.random.default_rng([settings.seed, *numbers])
        self.sampling = np.random.default_rng([settings.seed, *numbers, 1])
        first, self.rest = split(self.rng)
        self.labelled = Labelled.draw(data, attribute, first, self.rng, numbers[0])
        self.batch = Batch()

    def compositions(self) -> None:
        """Ask about collections with f = 0 … 1 of the first group, each drawn from all of the rest."""
        drawn = [self._drawn(share) for share in self.settings.shares]
        self.batch.answers.extend(ask(self.methods, self.labelled, drawn, "f"))

    def sizes(self, share: float) -> None:
        """Ask about one collection with control sets of growing size, each normalised by itself."""
        collection = self._drawn(share)
        for size in self.settings.sizes:
            if size <= self.labelled.largest:
                methods, at = size_methods(size, self.settings.alpha), replace(collection, at=size)
                self.batch.answers.extend(ask(methods, self.labelled, [at], "size"))

    def named(self, sweep: str, rows: Mapping[str, Rows], methods: Sequence[Method]) -> None:
        """Ask about collections that are not random draws, and audit them: does an audit trust its own answer?"""
        collections = [
            collect(self.data, self.attribute, some, name, self.sampling)
            for name, some in rows.items()
            if len(some) >= FEWEST
        ]
        self.batch.answers.extend(ask(methods, self.labelled, collections, sweep))
        for each in collections:
            result = audit(each.vectors, self.labelled.pool, seed=self.labelled.seed, show_untrusted=True)
            relevance, warning = result.diagnostics.relevance, next(iter(result.warnings), "")
            check = SelfCheck(self.attribute.name, str(each.at), result.trust, relevance, warning)
            self.batch.checks.append(check)

    def _drawn(self, share: float) -> Collection:
        labels, size = self.attribute.labels(self.data), self.settings.collection
        rows = compose(labels, self.rest, (share, 1 - share), size, self.rng)
        return collect(self.data, self.attribute, rows, share, self.sampling)


def ask(
    methods: Sequence[Method], labelled: Labelled, collections: Sequence[Collection], sweep: str
) -> list[Answer]:
    """Prepare every method once and ask it about every collection, against the clock."""
    import scipy.stats  # noqa: F401 - what `iid` imports when called is not part of its time

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
