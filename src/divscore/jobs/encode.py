"""Encoding: what a command was told about encoders, cache and workers, and the pipelines made of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.encoding import Encoder
from divscore.encoders.registry import DEFAULTS, ENCODERS, EncoderSpec, Kind
from divscore.errors import FileError, InputError, MismatchError
from divscore.jobs.engine import Engine
from divscore.jobs.outcome import Outcome
from divscore.jobs.pipeline import Pipeline, chunks
from divscore.jobs.projection import Projection
from divscore.jobs.work import Task, cache_of, loaded
from divscore.sources.items import Items, ItemSource

__all__ = ["SEVERAL", "Encoding"]

FITTED_ON = 4096
SEVERAL = ("faces", "all")
INLINE = 24  # pictures for which starting processes would not pay


class Encoding:
    """Encoders, cache and workers of one run; a context manager that lets the workers go at its end.

    Parameters
    ----------
    name : str, optional
        Encoder; by default the control set's, or else the default for the kind of items.
    model : str, optional
        File, folder or name of the encoder's weights.
    options : mapping of str to str
        The encoder's own settings.
    pca : int or path, optional
        Shorten vectors: to so many numbers, fitted on a sample, or as a saved projection does.
    cache : path, optional
        Folder for vectors of items encoded before; None keeps none.
    workers : int
        How many at work.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        model: str | os.PathLike[str] | None = None,
        options: dict[str, str] | None = None,
        pca: int | str | os.PathLike[str] | None = None,
        cache: str | os.PathLike[str] | None = None,
        workers: int = 1,
    ) -> None:
        if name is not None and name not in ENCODERS:
            raise InputError(f"unknown encoder '{name}'; there are {', '.join(ENCODERS)}")
        self.name = name
        self.model = None if model is None else os.fspath(model)
        self.options = tuple(sorted((options or {}).items()))
        self.pca = pca if isinstance(pca, int) else None
        self.projection = None if pca is None or isinstance(pca, int) else Projection.load(pca)
        self.shortens = pca is not None
        self.cache = None if cache is None else os.fspath(cache)
        self.workers = workers
        self.engine: Engine | None = None  # where others do the work
        self.threads: int | None = (
            None  # of the encoder itself; by default one beside other workers, else all
        )
        self.followed: str | None = None  # the control set's encoder, where the user did not name one
        self._pipelines: dict[EncoderSpec, Pipeline] = {}

    def __enter__(self) -> Encoding:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(at_once=kind is not None)

    def hand_to(self, engine: Engine) -> None:
        """From now on, encode with the workers of this engine."""
        self.close()
        self.engine, self.workers = engine, engine.workers

    def close(self, at_once: bool = False) -> None:
        """Let the workers go; processes in the middle of their work, if it is no longer wanted."""
        for pipeline in self._pipelines.values():
            pipeline.close(at_once)
        self._pipelines.clear()

    def troubles(self) -> list[str]:
        """What went wrong with caches, which does not stop the work."""
        caches = [cache_of(pipeline.task) for pipeline in self._pipelines.values()]
        return [f"the cache {c.path} is not used any more ({c.trouble})" for c in caches if c and c.trouble]

    @property
    def forced(self) -> bool:
        """Whether the user asked for an encoder by name."""
        return self.name is not None

    def expect(self, identity: str | None, projection: Projection | None = None) -> None:
        """Follow a control set: its encoder, unless the user named one, and its projection."""
        if identity is None:
            return
        name = identity.partition("/")[0]
        if self.name is None and name in ENCODERS:
            self.name, self.followed = name, identity.partition(" pca=")[0]
        if projection is not None and self.projection is None:
            if self.pca is not None and self.pca != projection.size:
                raise MismatchError(
                    f"the control set has vectors of {projection.size} numbers, --pca asks for {self.pca}; "
                    "leave --pca out"
                )
            self.projection = projection

    def spec(self, kind: Kind, single: bool = False) -> EncoderSpec:
        """The encoder for items of a kind; `single` for one vector an item, as a labelled example has."""
        options = tuple(each for each in self.options if not (single and each == SEVERAL))
        return EncoderSpec(self.name or DEFAULTS[kind], kind, self.model, options)

    def encoder(self, kind: Kind) -> Encoder:
        """Load the encoder for items of a kind."""
        encoder = loaded(self._task(kind))
        if self.followed and encoder.identity != self.followed and not self.options:
            # The control set's settings may not be the usual ones; its identity spells them out.
            self.options = _settings(str(self.name), self.followed)
            try:
                encoder = loaded(self._task(kind))
            except InputError:
                self.options = ()  # spelled in a way that is no option: the mismatch is told where it matters
        return encoder

    def identity(self, kind: Kind) -> str:
        """What vectors of this run are called."""
        identity = self.encoder(kind).identity
        if self.projection is not None:
            self.projection.check(identity)
            return self.projection.identity
        return identity

    def run(self, source: ItemSource, single: bool = False) -> Iterator[tuple[Items, Outcome]]:
        """Encode the items of a source, in their order; vectors are as the encoder gave them."""
        pipeline = self.pipeline(source, single)
        yield from self.run_pieces(pipeline, chunks(source, pipeline.chunk))

    def run_pieces(self, pipeline: Pipeline, pieces: Iterator[Items]) -> Iterator[tuple[Items, Outcome]]:
        """Encode pieces that were cut before, and remember them."""
        cache = cache_of(pipeline.task)
        if cache is None:
            yield from pipeline.run(pieces)
            return
        with closing(cache):
            yield from pipeline.run(pieces, lambda outcome: cache.add(outcome.fresh_entries()))

    def pipeline(self, source: ItemSource, single: bool = False) -> Pipeline:
        """The pipeline for items like these, with its workers; a few items are encoded in this thread."""
        spec = self.spec(source.kind, single)
        if spec not in self._pipelines:
            task = self._task(source.kind, single)
            cache = cache_of(task)
            if cache is not None:
                cache.prepare()
            self._pipelines[spec] = Pipeline(task, self.workers, self.engine)
        few = source.rows is not None and source.rows <= INLINE
        return Pipeline(self._pipelines[spec].task) if few else self._pipelines[spec]

    def finished(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Shorten vectors where a projection is in force."""
        return vectors if self.projection is None else self.projection.apply(vectors)

    def fit(self, *sources: ItemSource, seed: int = 0) -> None:
        """Fit the projection that --pca asks for on a random sample of all items."""
        if self.pca is None or self.projection is not None:
            return
        rng = np.random.default_rng(seed)
        parts = [self._sample(source, rng) for source in sources]
        identity = self.encoder(sources[0].kind).identity
        vectors = np.concatenate(parts)
        usable = np.isfinite(vectors).all(axis=1) & vectors.any(axis=1)
        self.projection = Projection.fit(vectors[usable], self.pca, identity)

    def _sample(self, source: ItemSource, rng: np.random.Generator) -> NDArray[np.float32]:
        count = sum(len(items) for items in source)
        if not count:
            raise FileError(f"{source.path} holds no items")
        chosen = set(rng.choice(count, min(count, FITTED_ON), replace=False).tolist())
        pipeline = self.pipeline(source)
        kept = list(self.run_pieces(pipeline, chunks(_some(source, chosen), pipeline.chunk)))
        none = np.empty((0, self.encoder(source.kind).dimension), dtype=np.float32)
        return np.concatenate([none, *(outcome.vectors for _, outcome in kept)])

    def _task(self, kind: Kind, single: bool = False) -> Task:
        spec = self.spec(kind, single)
        about = spec.about
        threads = self.threads if self.threads is not None else 1 if self.workers > 1 else 0
        return replace(Task(spec), threads=threads, cache=self.cache if about.costly else None)


def _some(source: ItemSource, chosen: set[int]) -> Iterator[Items]:
    position = 0
    for items in source:
        keep = [at for at in range(len(items)) if position + at in chosen]
        if keep:
            yield Items([items.contents[at] for at in keep], [items.ids[at] for at in keep])
        position += len(items)


def _settings(name: str, identity: str) -> tuple[tuple[str, str], ...]:
    """Options that an identity spells out, so that a control set's encoder need not be described again."""
    from importlib import import_module

    allowed: Any = getattr(import_module(ENCODERS[name].module), "OPTIONS", {})
    words = (word.partition("=") for word in identity.split()[1:])
    square = {key: value.split("x")[0] if key == "size" else value for key, mark, value in words if mark}
    return tuple(sorted((key, value) for key, value in square.items() if key in allowed))
