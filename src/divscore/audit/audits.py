"""Audits: the results for several collections that were audited with one control set."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

from divscore.audit.document import document
from divscore.audit.result import Audit, headline
from divscore.audit.target import Gate
from divscore.control.controlset import ControlSet
from divscore.errors import InputError, MissingExtraError
from divscore.sketch.missing import Missing
from divscore.text import as_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


@dataclass(frozen=True)
class Audits(Sequence[Audit]):
    """Audits of several collections, in order; index them by position or by the collection's name.

    `missing` is everything that could not be read, including parts of collections that have no audit.

    >>> Audits(())
    Audits of 0 collections
    """

    audits: tuple[Audit, ...]
    missing: Missing = field(default_factory=Missing)

    def __len__(self) -> int:
        return len(self.audits)

    def __iter__(self) -> Iterator[Audit]:
        return iter(self.audits)

    @overload
    def __getitem__(self, key: int | str) -> Audit: ...
    @overload
    def __getitem__(self, key: slice) -> Audits: ...
    def __getitem__(self, key: int | str | slice) -> Audit | Audits:
        if isinstance(key, slice):
            return Audits(self.audits[key], self.missing)
        if not isinstance(key, str):
            return self.audits[operator.index(key)]
        for each in self.audits:
            if each.name == key:
                return each
        raise KeyError(key)

    def __repr__(self) -> str:
        return f"Audits of {len(self):,} collection{'s' if len(self) != 1 else ''}"

    @property
    def names(self) -> list[str]:
        """Names of the collections."""
        return [audit.name for audit in self.audits]

    @property
    def control(self) -> ControlSet:
        """The control set of all of them."""
        return self._some()[0].control

    @property
    def worst(self) -> Audit:
        """The collection whose interval is farthest from an even split, or from the target."""
        return max(
            self._some(), key=lambda each: max(each.distance_interval.low, -each.distance_interval.high)
        )

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        return headline(self._some())

    def gate(self, limit: float) -> Gate:
        """Compare every collection with the largest acceptable disparity, or distance from the target."""
        return Gate.of(self._some(), limit, self.missing.count)

    def to_dict(self, *, replicates: bool = False, limit: float | None = None) -> dict[str, Any]:
        """Return the JSON document `divscore.audit/1`.

        With `replicates`, `divscore diff` gives narrower intervals; with a `limit`, it has the verdicts of a gate.
        """
        return document(self._some(), replicates=replicates, missing=self.missing, limit=limit)

    def to_json(self, *, replicates: bool = False, limit: float | None = None) -> str:
        """Return `to_dict` as JSON text."""
        return as_json(self.to_dict(replicates=replicates, limit=limit))

    def to_frame(self) -> DataFrame:
        """One row for each collection, indexed by name; needs pandas."""
        try:
            import pandas
        except ImportError as error:
            raise MissingExtraError("to_frame() needs pandas: pip install pandas") from error
        rows = [
            {
                "count": audit.count,
                **{f"share {name}": share for name, share in audit.shares.items()},
                "disparity": audit.disparity,
                **({} if audit.target is None else {"distance": audit.distance}),
                "low": audit.interval.low,
                "high": audit.interval.high,
                "divscore": audit.divscore,
                "trust": audit.trust,
                "skipped": sum(audit.skipped.values()),
                "missing_parts": audit.missing.count,
            }
            for audit in self.audits
        ]
        return pandas.DataFrame(rows, index=pandas.Index(self.names, name="collection"))

    def to_html(self) -> str:
        """A report for people as one self-contained page."""
        from divscore.report.page import render_html
        from divscore.report.summary import Context

        return render_html(self._some(), Context(missing=self.missing))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the shares of all collections with their intervals on matplotlib axes, new ones by default."""
        from divscore.report.picture import forest

        return forest(self._some(), ax)

    def _repr_html_(self) -> str:
        from divscore.report.page import fragment

        return fragment(self.audits) if self.audits else repr(self)

    def _some(self) -> tuple[Audit, ...]:
        if not self.audits:
            raise InputError("there are no audits: no collection was audited")
        return self.audits
