"""LabelledSample: items drawn from the collection under audit and labelled by a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import MAX_GROUPS, ControlSet, checked_vectors, name_groups
from divscore.control.similarity import FloatArray, as_matrix, unit_rows, usable_rows
from divscore.errors import ControlError, InputError, MismatchError, VectorError
from divscore.text import printable, quoted

UNSURE = ("", "unsure", "?", "unknown")  # never the name of a group
# What people write where they cannot tell, unless a group has this name.
UNKNOWN = (*UNSURE, "n/a", "na", "none", "don't know", "dont know", "not sure", "unclear", "-", "skip")


@dataclass(frozen=True)
class LabelledSample:
    """Items drawn from a collection, most of them labelled, and how they were drawn.

    A label is a position in `groups`, or −1 for an item that was left blank or that nobody could label. `strata` is the
    stratum of each item where pairs of similar items were drawn, None for a simple random sample. `batches` says how
    often items were drawn and labelled; `drawn_from` how many items the collection had then; `missing` how many drawn
    items are not here: their rows were deleted, or they are no longer in the collection or have changed.
    """

    vectors: NDArray[Any]
    labels: NDArray[np.intp]
    groups: tuple[str, ...]
    attribute: str = "group"
    strata: NDArray[np.intp] | None = None
    batches: int = 1
    drawn_from: int | None = None
    encoder: str | None = None
    missing: int = 0

    @classmethod
    def of(
        cls,
        vectors: Any,
        groups: Iterable[Any],
        *,
        control: ControlSet | None = None,
        order: Sequence[str] | None = None,
        attribute: str | None = None,
        rename: Mapping[Any, str] | None = None,
        **design: Any,
    ) -> LabelledSample:
        """Check vectors and labels; an item without a group has None, an empty text, "unsure" or a word like it.

        The groups are those of a control set, or `order`, or the names that occur. Case and outer spaces do not matter.

        >>> sample = LabelledSample.of(np.eye(4), ["a", "B ", "b", "unsure"])
        >>> sample.groups, sample.labels.tolist()
        (('B', 'a'), [1, 0, 0, -1])
        """
        what = "the labelled sample's vectors"
        matrix = as_matrix(vectors, what) if control is None else checked_vectors(vectors, control, what)
        if isinstance(groups, str) or not isinstance(groups, Iterable):
            raise InputError(f"the groups of the labelled sample are {groups!r}; expected one for each item")
        known = control.groups if control is not None else tuple(order or ())
        given = [None if is_unknown(label, (*known, *(rename or ()))) else label for label in groups]
        if len(matrix) != len(given):
            raise InputError(f"{len(matrix)} vectors and {len(given)} labels in the labelled sample")
        if not len(given):
            raise InputError("the labelled sample is empty; label random items of the collection")
        rows = [at for at, label in enumerate(given) if label is not None]
        if not rows:
            raise InputError("no item of the labelled sample has a group; label them first")
        labels = name_groups({"group": [given[at] for at in rows]}, rename, lambda text: None, every=False)
        names = labels["group"]
        first: dict[str, str] = {}  # one spelling of each name
        for name in known or names:
            first.setdefault(plain(name), name.strip())
        spelled = [first.get(plain(name)) for name in names]
        if None in spelled:
            unknown = sorted({name for name, found in zip(names, spelled, strict=True) if found is None})
            hint = f"{printable(unknown[0])}=…"
            raise ControlError(
                f"the labelled sample has the group{'s' if len(unknown) > 1 else ''} {quoted(unknown)}, but the groups "
                f"are {quoted(known)}; correct the labels, or say which group is meant: --rename "
                + (f"'{hint}'" if " " in hint else hint)
            )
        ordered = known or tuple(sorted(first.values()))
        if len(ordered) < 2:
            raise ControlError(
                f"all {len(rows)} labelled items belong to group '{printable(ordered[0])}'; name the other groups as "
                f"well: --groups '{printable(ordered[0])},…'"
            )
        if len(ordered) > MAX_GROUPS:
            raise ControlError(
                f"{len(ordered)} groups; divscore handles at most {MAX_GROUPS}: {quoted(ordered)}"
            )
        bad = np.flatnonzero(~usable_rows(matrix))
        if bad.size:
            raise VectorError(f"row {bad[0]} of the labelled sample is zero or not finite; remove it")
        position = np.full(len(given), -1, dtype=np.intp)
        position[rows] = [ordered.index(str(name)) for name in spelled]
        attribute = attribute or (control.attribute if control is not None else "group")
        return cls(matrix, position, ordered, attribute, **design)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which of the items have a group."""
        return self.labels >= 0

    @cached_property
    def units(self) -> FloatArray:
        """The items scaled to length one."""
        return unit_rows(self.vectors)

    @property
    def counts(self) -> NDArray[np.intp]:
        """Labelled items in each group."""
        return np.bincount(self.labels[self.labelled], minlength=len(self.groups))

    def known(self) -> LabelledSample:
        """The labelled items alone. Where one of a pair is missing, they count as drawn at random."""
        if self.labelled.all():
            return self
        return replace(
            self, vectors=self.vectors[self.labelled], labels=self.labels[self.labelled], strata=None
        )

    def completed(self, group: int) -> LabelledSample:
        """The sample as if every item without a label belonged to one group."""
        return replace(self, labels=np.where(self.labelled, self.labels, group))


def labelled_control(samples: Sequence[LabelledSample], control: ControlSet | None) -> ControlSet:
    """The examples that an audit with labels of the collections is fitted on: a control set's, and all labelled items.

    The representatives stay those of the control set. Without one, a group may have no or one example.
    """
    first = samples[0]
    order = first.groups if control is None else control.groups
    for sample in samples:
        if set(sample.groups) != set(order):
            raise MismatchError(
                f"the labelled samples have different groups: {quoted(order)} and {quoted(sample.groups)}"
            )
    vectors = [sample.vectors[sample.labelled] for sample in samples]
    names = [sample.groups[label] for sample in samples for label in sample.labels[sample.labelled]]
    settings: dict[str, Any] = {"order": order, "attribute": first.attribute, "encoder": first.encoder}
    if control is None:
        own = ControlSet(np.concatenate(vectors), names, **settings, incomplete=True)
        own.representative, own.method = np.zeros(len(names), dtype=bool), "labels of the collection"
        return own
    settings |= {"attribute": control.attribute, "encoder": control.encoder, "skipped": control.skipped}
    settings |= {"similarity": control.similarity, "hand_picked": control.hand_picked}
    # An example that is also a labelled item counts once: a fit without the item must not know it from elsewhere.
    examples = {row.tobytes(): at for at, row in enumerate(control.vectors.astype(np.float64))}
    inside = [examples.get(row.tobytes(), -1) for part in vectors for row in part.astype(np.float64)]
    rest = np.setdiff1d(np.arange(len(control)), inside)
    known = [control.groups[label] for label in control.labels[rest]]
    merged = ControlSet(np.concatenate([control.vectors[rest], *vectors]), known + names, **settings)
    chosen = [at >= 0 and bool(control.representative[at]) for at in inside]
    merged.representative = np.concatenate([control.representative[rest], np.array(chosen, dtype=bool)])
    merged.method = control.method
    return merged


def plain(name: str) -> str:
    """A name without regard to case, spaces and the kind of its apostrophes."""
    return " ".join(name.replace("’", "'").split()).casefold()


def is_unknown(label: object, groups: Iterable[Any] = ()) -> bool:
    """Whether a label says nothing: missing, blank, or a word such as "unsure" that is no name of a group.

    >>> is_unknown(" Don’t know"), is_unknown("none"), is_unknown("none", ["none", "some"])
    (True, True, False)
    """
    if not isinstance(label, str):
        return label is None or (isinstance(label, float) and label != label)
    name = plain(label)
    return name in UNKNOWN and (name in UNSURE or all(plain(str(group)) != name for group in groups))
