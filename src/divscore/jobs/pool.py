"""Labelled examples: a saved control set, or vectors, texts or images with the names of their groups."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from divscore.control.controlfile import is_control, load_control
from divscore.control.controlset import CROSS, MAX_GROUPS, ControlSet, name_groups
from divscore.errors import ControlError, FileError, InputError, MismatchError
from divscore.jobs.drawfile import GROUP, Draw, is_draw, read_draw
from divscore.jobs.encode import Encoding
from divscore.jobs.projection import Projection
from divscore.sources import Items, Table, open_pictures
from divscore.sources import open as open_collection
from divscore.sources.manifest import ENCODER_KEY
from divscore.sources.places import Location, is_folder
from divscore.text import joined, printable, public, quoted

PROJECTION = "projection.npz"  # in the folder of a control set
LABELS = "labels.csv"
# A name and a total (or None) in, a context manager out; it gives a function that is called with finished items.
Progress = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
Warn = Callable[[str], None]


@contextmanager
def no_progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show nothing."""
    yield lambda number: None


def no_warning(text: str) -> None:
    """Say nothing."""


def read_control(
    thing: Any,
    encoding: Encoding,
    *,
    attribute: str | None = None,
    column: str | None = None,
    order: Sequence[str] | None = None,
    form: str = "",
    likely_column: str | None = None,
    rename: Mapping[Any, str] | None = None,
    every: bool = True,
    fit_with: Sequence[Items | Table] = (),
    verbose: bool = False,
    progress: Progress = no_progress,
    warn: Warn = no_warning,
) -> ControlSet:
    """Read labelled examples: a saved control set, or vectors, texts or images with the names of their groups.

    `encoding` then follows the examples: what it encodes next is comparable with them. Texts and images that cannot be
    encoded are skipped and counted by group in ``ControlSet.skipped``; vectors must all be usable.
    ``ControlSet.origins`` says where texts and image files can be seen again.

    Parameters
    ----------
    thing, attribute, column, order, form, rename, verbose :
        As in `ControlSet.read`; `thing` may also be a ControlSet. Several columns of group names are joined by ``×`` or
        ``*``. By default it is the column named ``group``, or else the only text column with 2–12 different values.
    likely_column : str, optional
        Used as the `column` if it exists.
    every : bool
        Whether each label of `rename` must occur; a labelled sample may have others.
    fit_with : sequence of sources
        Further items on which a projection (``pca``) is fitted.
    """
    if is_ready(thing):
        path = "" if isinstance(thing, ControlSet) else os.fspath(thing)
        control: ControlSet = load_control(path) if path else thing
        if attribute is not None and re.sub(r"\s*[×*]\s*", CROSS, attribute) != control.attribute:
            what = f"{path} is a control set" if path else "the control set is"
            raise MismatchError(
                f"{what} for '{printable(control.attribute)}', not for '{attribute}'; leave out --attribute"
            )
        if rename:
            what = f"the control set {path}".rstrip()
            raise MismatchError(
                f"the groups of {what} have names: {quoted(control.groups)}; leave out --rename"
            )
        saved = Path(path, PROJECTION) if path else None
        encoding.expect(control.encoder, Projection.load(saved) if saved and saved.is_file() else None)
        return control if order is None else control.with_order(order)
    draw = read_draw(thing, warn) if is_draw(thing) else None
    if draw is None:
        source = open_labelled(thing, encoding, attribute, column, form, likely_column)
    else:
        attribute = attribute or draw.attribute or GROUP
        table, order = _examples(os.fspath(thing), draw, attribute, order, warn)
        source = open_labelled(table, encoding, attribute)
        source.path = os.fspath(thing)
    if source.missing:
        raise FileError(f"{source.missing[0].reason}; labelled examples would be missing")
    folders = source.table is None
    names = [attribute or GROUP] if source.table is None else _attributes(source.table, attribute, source)
    if source.table is not None:
        _check_groups(source.table, names)
    identity = next((name for name in source.columns if name.lower() == "id" and name not in names), None)
    encoding.fit(source, *fit_with)
    if source.kind == "vectors":
        source = source.select(
            extra=(*names, *([identity] if identity else [])), strict=True, unusable="never"
        )
    else:
        source = source if folders else source.select(names)
    vectors_of = encoding.encode(source, single=True)
    with progress("labelled examples", source.rows) as advance:
        vectors_of.watch(advance)
        blocks = list(vectors_of)
    for text in vectors_of.not_read():
        warn(text)
    if not blocks:
        problems = "; ".join(vectors_of.problems[:3])
        raise ControlError(f"{source.path}: none of the labelled examples could be encoded; {problems}")
    encoder = vectors_of.metadata.get(ENCODER_KEY)
    ids: Sequence[str] | None = [name for block in blocks for name in block.ids] or None
    if source.kind == "vectors" and identity:
        ids = [text for block in blocks for text in block.values[identity]]
    vectors = np.concatenate([block.vectors for block in blocks])
    origins = [origin_of(each, source.kind) for block in blocks for each in block.origins]
    # Skipped examples have labels too, and get the same names.
    counts = vectors_of.skipped_values()
    skipped = [values for values in counts if all(value.strip() for value in values)]
    labels: dict[str, list[Any]] = {}
    for at, name in enumerate(names):
        if source.table is None:
            labels[name] = _sub_folders(source.path, ids or (), source.name)
            labels[name] += [values[0].split("/", 1)[0] for values in skipped]
        else:
            known = [text for block in blocks for text in block.values[name]]
            labels[name] = _groups(source.table, name, known + [values[at] for values in skipped])
    groups = name_groups(labels, rename, warn, every=every)
    single = order if len(names) == 1 else None
    settings: dict[str, Any] = {"order": single, "ids": ids, "origins": origins or None, "encoder": encoder}
    sets = [ControlSet(vectors, groups[name][: len(vectors)], attribute=name, **settings) for name in names]
    control = reduce(ControlSet.cross, sets)
    if order is not None and len(sets) > 1:
        control = control.with_order(order)
    control.skipped = {}
    for at, values in enumerate(skipped, start=len(vectors)):
        group = CROSS.join(groups[name][at] for name in names)
        control.skipped[group] = control.skipped.get(group, 0) + counts[values]
    encoding.expect(encoder)
    spellings: dict[str, list[str]] = {}
    for name in control.groups:
        spellings.setdefault("".join(name.split()).casefold(), []).append(f"'{printable(name)}'")
    for same in spellings.values():
        if len(same) > 1:
            warn(
                f"{source.path}: groups {joined(same)} differ only in spelling; are they one group? Then spell them "
                "the same"
            )
    if control.skipped:
        encoded = ", ".join(
            f"{control.counts[name]} of {control.counts[name] + control.skipped.get(name, 0)} '{printable(name)}'"
            for name in control.groups
        )
        hint = "" if verbose else " (--verbose lists them)"
        warn(f"{source.path}: encoded {encoded}; the others were skipped{hint}")
        for problem in vectors_of.problems if verbose else ():
            warn(problem)
    return control


def _examples(
    path: str, draw: Draw, attribute: str, order: Sequence[str] | None, warn: Warn
) -> tuple[Any, Sequence[str] | None]:
    """The labelled items of a draw as a table of examples, and the order of the groups."""
    if not draw.labels:
        raise FileError(f"{path}: no row has a label; fill in the column '{GROUP}'")
    try:
        table = draw.examples(attribute)
    except InputError as error:
        raise FileError(f"{path} cannot be used as labelled examples: {error}") from error
    blank = sum(not item.group for item in draw.items)
    rest = {"blank": blank, "unsure": len(draw) - draw.labels - blank}
    left = " and ".join(f"{number} {kind}" for kind, number in rest.items() if number)
    if left:
        warn(f"{path}: {draw.labels} labelled examples; rows without a group were left out ({left})")
    warn(
        f"{path}: these examples are items of one collection, so use them for collections from the same kind of "
        "source. In an audit of that collection itself, they are its --labelled-sample"
    )
    if order is None and set(draw.groups) == set(table.column(attribute).to_pylist()):
        order = draw.groups
    return table, order


def is_ready(thing: Any) -> bool:
    """Whether it is a control set already, in memory or saved: its groups have names, and its items vectors."""
    return isinstance(thing, ControlSet) or (isinstance(thing, str | os.PathLike) and is_control(thing))


def has_groups(thing: Any, encoding: Encoding, attribute: str | None, column: str | None) -> bool:
    """Whether it has labelled examples: it is a control set, or someone said or it is clear where the groups are."""
    if attribute is not None or is_ready(thing):
        return True
    try:
        source = open_labelled(thing, encoding, column=column)
        return source.table is None or bool(_attributes(source.table, None, source))
    except (ControlError, FileError):
        return False


def open_labelled(
    thing: Any,
    encoding: Encoding,
    attribute: str | None = None,
    column: str | None = None,
    form: str = "",
    likely_column: str | None = None,
) -> Items | Table:
    """Open the labelled examples themselves: items to encode, or vectors."""
    if isinstance(thing, (str, os.PathLike)) and os.fspath(thing) != "-" and is_folder(thing):
        inside = f"{os.fspath(thing).rstrip('/')}/{LABELS}"
        if not Location(inside, inside).exists():
            pictures = open_pictures(thing)
            if pictures.unlisted:
                raise ControlError(f"{pictures.unlisted[0]}; a group would be missing: fix it")
            for run in pictures:
                _sub_folders(pictures.path, run.ids, pictures.name)
            return pictures
        thing = inside
    names = _factors(attribute) if attribute else [GROUP]
    options: dict[str, Any] = {"exclude": names, "form": form, "forced": encoding.forced, "labelled": True}
    try:
        source = open_collection(thing, column=column or likely_column, **options)
    except FileError:
        if column or not likely_column:
            raise
        source = open_collection(thing, **options)  # the examples name their column differently
    if source.table is None:
        raise ControlError(
            f"{source.path} lists images without groups; pass the folder with one sub-folder for each group, or "
            f"a table such as {LABELS} with the columns file and group"
        )
    return source


def _factors(attribute: str) -> list[str]:
    """The columns of an attribute: "gender×tone" has two."""
    return [name.strip() for name in re.split("[×*]", attribute)]


def _attributes(table: Table, attribute: str | None, source: Items | Table) -> list[str]:
    """The columns of group names: those of the attribute, or the only column that can be meant."""
    if not table.columns:
        raise FileError(
            f"{table.path} has no columns, so none with the names of groups; expected labelled examples as .npz, "
            "Parquet, Arrow, CSV or JSON lines"
        )
    if attribute is not None:
        names = [attribute] if attribute in table.columns else _factors(attribute)
        unknown = [name for name in names if name not in table.columns]
        if unknown:
            raise FileError(
                f"{table.label} has no column {quoted(unknown[:1])} of group names; give --attribute one of "
                f"{quoted(table.columns)}"
            )
        return names
    if GROUP in table.columns:
        return [GROUP]
    texts = tuple(
        n for n, kind in table.columns.items() if kind == "text" and n.lower() != "id" and n != source.column
    )
    seen: dict[str, set[str]] = {name: set() for name in texts}
    for block in table.select(extra=texts, vectors=False, pictures=None) if texts else ():
        for name, values in block.values.items():
            seen[name].update(value.strip() for value in values)
    fitting = [name for name, values in seen.items() if 2 <= len(values - {""}) <= MAX_GROUPS]
    if len(fitting) == 1:
        return fitting
    columns = (
        ", ".join(f"'{name}' ({len(values)} values)" for name, values in seen.items()) or "no text columns"
    )
    raise FileError(
        f"{table.label}: it is unclear which column has the group names; expected one named '{GROUP}', or a single "
        f"text column with 2 to {MAX_GROUPS} different values, got {columns}. Name it with --attribute"
    )


def _check_groups(table: Table, names: Sequence[str]) -> None:
    """Refuse examples without a group, before anything is encoded."""
    for part in table.parts:
        own = part.select(vectors=False, column=None, pictures=None, extra=tuple(names))
        first = 0
        for block in own:
            for name in names:
                empty = next((at for at, text in enumerate(block.values[name]) if not text.strip()), None)
                if empty is not None:
                    place = own.places([block.numbers[empty] if block.numbers else first + empty])[0]
                    raise FileError(
                        f"{part.label}, {place}: no group in column '{name}'; every labelled example needs one: fill "
                        f"it in or remove the {place.split()[0]}"
                    )
            first += len(block.vectors)


def _groups(table: Table, name: str, values: list[str]) -> list[Any]:
    """The group of every example; numbers stay numbers, which ControlSet refuses with good advice."""
    kind = table.columns[name]
    if kind == "bool":
        return [value.lower() == "true" for value in values]
    return [float(value) for value in values] if kind == "number" else values


def origin_of(content: str | None, kind: str) -> str | None:
    """Where an example can be seen again: its text, or the place of its image."""
    if content is None:
        return None
    try:
        content.encode()
    except UnicodeEncodeError:  # a file name that no table can have
        return None
    if kind == "text":
        return content
    return public(content) if "://" in content else os.path.abspath(content)


def _sub_folders(path: str, ids: Sequence[str], root: str) -> list[str]:
    """The group of an image is the sub-folder it is in."""
    for name in ids:
        if "/" not in name:
            raise ControlError(
                f"{path}: {name} is next to the sub-folders; labelled images need one sub-folder for each group, such "
                f"as {root}/female and {root}/male, or a {LABELS} with the columns file and group"
            )
    return [name.split("/", 1)[0] for name in ids]
