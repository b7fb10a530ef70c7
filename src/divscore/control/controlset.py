"""ControlSet: labelled examples of every group, some of them representatives."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from divscore.control.similarity import (
    COSINE,
    FloatArray,
    PairwiseFunction,
    Similarity,
    as_matrix,
    unit_rows,
    usable_rows,
)
from divscore.errors import ControlError, InputError, MismatchError, VectorError, in_python, warn_in_python
from divscore.text import joined, listed, public, quoted

T = TypeVar("T")
CROSS = " × "
MAX_GROUPS = 12


class Memo:
    """An object that keeps what others compute from it, as long as it lives."""

    def once(self, compute: Callable[[Self], T]) -> T:
        """Return what a function computes from this object alone; it is called once."""
        kept: dict[Any, Any] = self.__dict__.setdefault("_kept", {})
        if compute not in kept:
            kept[compute] = compute(self)
        result: T = kept[compute]
        return result


class ControlSet(Memo):
    """Labelled examples of every group, some of them marked as representatives.

    `DivScore` (Algorithm 1) uses the representatives; the default estimator calibrates itself on the whole
    pool, because representatives that were chosen as typical are not a random sample.

    Parameters
    ----------
    vectors : array of shape (n, d)
        One feature vector an example.
    groups : sequence of n labels
        The group of each example: names. Numbers and truth values need `rename`.
    attribute : str
        The attribute that the groups are values of: "gender", "dialect", …
    order : sequence of names, optional
        Fixes the sign for two groups: disparity = share(first) − share(second). Sorted names by default.
    ids : sequence of n strings, optional
        Names of the examples; their row numbers by default.
    rename : mapping of label to name, optional
        Other names for some or all labels, such as ``{0: "female", 1: "male"}``. Labels with one name become one group.
    origins : sequence of n strings or None, optional
        Where each example can be seen again: the absolute path or the URL of a picture, or the text itself; None where
        it is unknown. Passwords and signatures of URLs are not kept. Results do not depend on it.
    similarity : "cosine" or callable on two blocks of vectors
        Eq. 2 by default.
    encoder : str, optional
        The encoder that made the vectors; a collection from another encoder is refused.
    hand_picked : bool
        Whether the whole pool was chosen by hand instead of at random. Results then have a warning.
    skipped : mapping of group to number, optional
        Labelled examples that could not be encoded, for example because they show no face.
    incomplete : bool
        Whether a group of `order` may have no or one example, as in a random sample of a collection.

    >>> import numpy as np
    >>> pool = ControlSet(np.eye(4), ["b", "a", "a", "b"], attribute="letter")
    >>> pool.groups, pool.counts
    (('a', 'b'), {'a': 2, 'b': 2})
    >>> ControlSet(np.eye(4), [1, 0, 0, 1], rename={0: "a", 1: "b"}).counts
    {'a': 2, 'b': 2}
    """

    def __init__(
        self,
        vectors: Any,
        groups: Iterable[Any],
        *,
        attribute: str = "group",
        order: Sequence[str] | None = None,
        ids: Iterable[str] | None = None,
        rename: Mapping[Any, str] | None = None,
        origins: Iterable[str | None] | None = None,
        similarity: Similarity | PairwiseFunction | str = COSINE,
        encoder: str | None = None,
        hand_picked: bool = False,
        skipped: Mapping[str, int] | None = None,
        incomplete: bool = False,
    ) -> None:
        matrix = as_matrix(vectors, "the control set's vectors").copy()
        # Digest, unit vectors and everything that `once` keeps were computed from these numbers.
        matrix.setflags(write=False)
        self.vectors: NDArray[Any] = matrix
        self.attribute = str(attribute).strip()
        if not self.attribute:
            raise InputError("the attribute needs a name")
        with in_python():
            named = name_groups({self.attribute: list(groups)}, rename, warn_in_python)
        names = named[self.attribute]
        present = sorted(set(names))
        if not present:
            raise ControlError("the control set is empty; it needs labelled examples of at least two groups")
        if len(present) == 1 and not incomplete:
            raise ControlError(
                f"all {len(names)} labelled examples belong to group '{present[0]}'; at least two groups are needed"
            )
        if len(present) > MAX_GROUPS:
            raise ControlError(
                f"{len(present)} groups; divscore handles at most {MAX_GROUPS}: {quoted(present)}"
            )
        self.groups = tuple(present if order is None else (str(name).strip() for name in order))
        if sorted(self.groups) != present and not (incomplete and set(self.groups) >= set(present)):
            raise ControlError(f"the order has {quoted(self.groups)}, but the groups are {quoted(present)}")
        self.ids: tuple[str, ...] = tuple(map(str, range(len(names)) if ids is None else ids))
        if len(set(self.ids)) < len(self.ids):
            first = {name: at for at, name in reversed(list(enumerate(self.ids)))}
            twice = next(name for at, name in enumerate(self.ids) if first[name] != at)
            raise ControlError(f"several labelled examples have the id '{twice}'; ids must be unique")
        known = [
            each and _without_key(each) for each in ([None] * len(names) if origins is None else origins)
        ]
        if len(known) != len(names):
            raise ControlError(
                f"{len(known)} origins for {len(names)} examples; expected one, or None, for each"
            )
        self.origins: tuple[str | None, ...] | None = tuple(known) if any(known) else None
        self.similarity = Similarity.of(similarity)
        self.encoder = encoder
        self.hand_picked = hand_picked
        self.incomplete = incomplete
        self.skipped: dict[str, int] = {name: int(n) for name, n in (skipped or {}).items() if n}
        self.method = "all"
        if not len(matrix) == len(names) == len(self.ids):
            raise ControlError(
                f"{len(matrix)} vectors, {len(names)} group names and {len(self.ids)} ids; expected one each per "
                "example"
            )
        bad = np.flatnonzero(~usable_rows(matrix))
        if bad.size:
            kind = "only zeros" if np.isfinite(matrix[bad[0]]).all() else "NaN or infinite numbers"
            more = f" ({bad.size} such examples)" if bad.size > 1 else ""
            raise ControlError(
                f"labelled example '{self.ids[bad[0]]}' (row {bad[0]}) has {kind}{more}; fix it or remove it"
            )
        self.labels: NDArray[np.intp] = np.array([self.groups.index(n) for n in names], dtype=np.intp)
        self.representative: NDArray[np.bool_] = np.ones(len(names), dtype=bool)
        for name, n in self.counts.items():
            if n < 2 and not incomplete:
                raise ControlError(f"group '{name}' has {n} labelled example; every group needs at least two")

    @classmethod
    def read(
        cls,
        source: Any,
        *,
        attribute: str | None = None,
        order: Sequence[str] | None = None,
        column: str | None = None,
        form: str = "",
        rename: Mapping[Any, str] | None = None,
        verbose: bool = False,
        encoder: str | None = None,
        **options: Any,
    ) -> ControlSet:
        """Read labelled examples: whatever ``divscore audit --control`` takes, or a table in memory.

        Parameters
        ----------
        source : path or table
            A saved control set; a table (a file, pandas, polars, Arrow) of vectors, texts or image paths with a column
            of group names; a folder with one sub-folder of images for each group, or with a ``labels.csv``.
        attribute : str, optional
            Column of group names; "gender×tone" for intersections. By default the only column that can be meant.
        order : sequence of names, optional
            Fixes the sign for two groups: disparity = share(first) − share(second).
        column, form : str
            Column of texts, image paths or vectors, if there are several; the suffix a file is read as.
        rename : mapping of label to name, optional
            Names for labels such as 0 and 1; see `ControlSet`.
        verbose : bool
            Name the texts and images that could not be encoded in warnings.
        encoder, **options :
            What turns texts and images into vectors, with its `model`, `options`, `pca`, `cache` and `workers`.
        """
        from divscore.jobs.encode import Encoding
        from divscore.jobs.pool import read_control

        with in_python(), Encoding(encoder, **{"cache": True, **options}) as encoding:
            return read_control(
                source,
                encoding,
                attribute=attribute,
                column=column,
                order=order,
                form=form,
                rename=rename,
                verbose=verbose,
                warn=warn_in_python,
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {name}" for name, n in self.counts.items())
        marked = int(self.representative.sum())
        return (
            f"<ControlSet {self.attribute}: {counts}; {marked} representatives, {self.dimension} dimensions>"
        )

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        return int(self.vectors.shape[1])

    @property
    def counts(self) -> dict[str, int]:
        """Labelled examples in each group."""
        return {name: int((self.labels == i).sum()) for i, name in enumerate(self.groups)}

    @property
    def fitted(self) -> NDArray[np.intp]:
        """Positions of the groups that a fit can know: those with at least two examples. Normally all."""
        return np.flatnonzero(np.bincount(self.labels, minlength=len(self.groups)) >= 2)

    @cached_property
    def units(self) -> FloatArray:
        """The examples scaled to length one."""
        return unit_rows(self.vectors)

    @cached_property
    def digest(self) -> str:
        """A fingerprint of everything that results depend on."""
        text = repr((self.attribute, self.groups, self.similarity.name, self.encoder, self.vectors.shape))
        state = hashlib.sha256(text.encode())
        # In double precision: the same numbers have the same fingerprint, whatever type they are stored as.
        for array in (self.vectors.astype(np.float64), self.labels.astype(np.int64), self.representative):
            state.update(np.ascontiguousarray(array).tobytes())
        return state.hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the fingerprint, which takes long to compute, but not what else was computed."""
        return {
            **{name: value for name, value in self.__dict__.items() if name not in ("units", "_kept")},
            "digest": self.digest,
        }

    def group_of(self, name: str) -> int:
        """Position of a group in `groups`."""
        if name not in self.groups:
            raise InputError(f"unknown group '{name}'; this control set has {quoted(self.groups)}")
        return self.groups.index(name)

    def rows(self, group: int, *, representatives: bool = False) -> NDArray[np.intp]:
        """Row numbers of one group's examples."""
        mask = self.labels == group
        return np.flatnonzero(mask & self.representative if representatives else mask)

    def with_representatives(self, rows: Iterable[int], method: str = "chosen") -> ControlSet:
        """Mark other examples as representatives; the pool stays the same."""
        mask = np.zeros(len(self), dtype=bool)
        mask[np.fromiter(rows, dtype=np.intp)] = True
        for group, name in enumerate(self.groups):
            marked = int((mask & (self.labels == group)).sum())
            if marked < 2:
                raise ControlError(
                    f"group '{name}' would have {marked} representative{'s' * (marked != 1)}; "
                    "each group needs at least two"
                )
        control = self._changed()
        control.representative, control.method = mask, method or self.method
        return control

    def with_order(self, order: Sequence[str]) -> ControlSet:
        """Put the groups in another order, which changes the sign of a two-group disparity."""
        return self._changed(order=order)

    def with_ids(self, ids: Iterable[str]) -> ControlSet:
        """Rename the examples; results and fingerprint do not depend on the names."""
        return self._changed(ids=ids)

    def with_origins(self, origins: Iterable[str | None] | None) -> ControlSet:
        """Say where the examples can be seen; None forgets it."""
        return self._changed(origins=origins)

    def cross(self, other: ControlSet) -> ControlSet:
        """Intersect two attributes labelled on the same vectors: groups named ``female × darker``."""
        if len(self) != len(other) or not np.array_equal(self.vectors, other.vectors):
            raise MismatchError("only control sets with the same vectors can be crossed")
        names = [
            f"{self.groups[a]}{CROSS}{other.groups[b]}"
            for a, b in zip(self.labels, other.labels, strict=True)
        ]
        crossed = self._changed(
            groups=names,
            attribute=f"{self.attribute}{CROSS}{other.attribute}",
            order=[n for a in self.groups for b in other.groups if (n := f"{a}{CROSS}{b}") in set(names)],
            hand_picked=self.hand_picked or other.hand_picked,
            skipped=None,
        )
        crossed.representative, crossed.method = np.ones(len(names), dtype=bool), "all"
        return crossed

    def _changed(self, **other: Any) -> ControlSet:
        """The same vectors and representatives with some other arguments of the constructor."""
        kept = (
            "attribute",
            "ids",
            "origins",
            "similarity",
            "encoder",
            "hand_picked",
            "skipped",
            "incomplete",
        )
        same = {name: getattr(self, name) for name in kept}
        groups = [self.groups[label] for label in self.labels]
        control = ControlSet(self.vectors, **{"groups": groups, "order": self.groups, **same, **other})
        control.representative, control.method, control.units = self.representative, self.method, self.units
        return control


def checked_vectors(
    vectors: Any, control: ControlSet, what: str = "the collection's vectors"
) -> NDArray[Any]:
    """Vectors as a matrix of the control set's dimension, or an error that says what is wrong."""
    matrix = as_matrix(vectors, what)
    if matrix.shape[1] != control.dimension:
        raise VectorError(
            f"{what} have {matrix.shape[1]} dimensions, the control set's {control.dimension}; both must come from the "
            "same encoder"
        )
    return matrix


def name_groups(
    columns: Mapping[str, Sequence[Any]],
    rename: Mapping[Any, str] | None,
    warn: Callable[[str], None],
    *,
    every: bool = True,
) -> dict[str, list[str]]:
    """The group of every example, by attribute: its label as a name, or the name that `rename` gives it.

    Numbers, truth values and the texts 0 and 1 are no names and must be renamed. With `every`, each label of `rename`
    must occur.
    """
    new: dict[str, str] = {}
    for key, name in (rename or {}).items():
        if not isinstance(name, str) or not name.strip() or _is_number(name):
            raise InputError(f"the label {_text(key)} needs a name, got {name!r}")
        new[_key(key)] = name.strip()
    texts = {attribute: [_text(value) for value in values] for attribute, values in columns.items()}
    labels = {attribute: dict.fromkeys(each) for attribute, each in texts.items()}
    places = {key: [a for a, found in labels.items() if key in map(_key, found)] for key in new}
    for key, where in places.items():
        if every and not where:
            present = sorted({text for found in labels.values() for text in found})
            raise InputError(f"no labelled example has the label '{key}'; the labels are {listed(present)}")
        if len(where) > 1:
            raise InputError(
                f"'{key}' is a label of {joined(where)}, so its new name is unclear; change the labels themselves"
            )
    named: dict[str, list[str]] = {}
    for attribute, values in columns.items():
        unnamed = {
            text: None
            for text, value in zip(texts[attribute], values, strict=True)
            if _is_number(value) and _key(text) not in new
        }
        if unnamed:
            few = sorted(unnamed, key=lambda text: (len(_key(text)), _key(text)))[:MAX_GROUPS]
            raise ControlError(
                f"groups must be names, got {listed(few, 6)}; give their names with --rename "
                f"{','.join(f'{text}=…' for text in few)}"
            )
        names = {text: new.get(_key(text), text) for text in labels[attribute]}
        for name in dict.fromkeys(name for text, name in names.items() if name != text):
            together = [f"'{text}'" for text, other in names.items() if other == name]
            if len(together) > 1:
                warn(f"the labels {joined(together)} are one group, '{name}'")
        named[attribute] = [names[text] for text in texts[attribute]]
    return named


def _text(value: object) -> str:
    """A label as people write it: 1 for 1.0, true for True."""
    if value is None or (isinstance(value, float) and value != value):
        raise ControlError(f"a labelled example has no group ({value}); label it or remove it")
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    text = f"{value:.15g}" if isinstance(value, (float, np.floating)) else str(value).strip()
    if not text:
        raise InputError("the group needs a name")
    return text


def _key(value: object) -> str:
    """What a label is looked up by: 1.0 and true are 1, as in Python."""
    text = re.sub(r"^(-?\d+)\.0+$", r"\1", _text(value))
    return {"true": "1", "false": "0"}.get(text.lower(), text)


def _is_number(value: object) -> bool:
    number = isinstance(value, (bool, int, float, np.number, np.bool_))
    return number or str(value).strip() in {"0", "1"}


def _without_key(origin: str) -> str:
    """An address without passwords and signatures; a text that merely contains one stays as it is."""
    return public(origin) if re.fullmatch(r"[A-Za-z][\w+.-]*://\S+", origin) else origin
