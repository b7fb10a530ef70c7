"""A control set on disk: a folder with the examples, a card for people and a description for machines."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from divscore.control.controlcard import TABLE, card, croissant
from divscore.control.controlset import ControlSet
from divscore.control.similarity import COSINE, PairwiseFunction, Similarity
from divscore.errors import DivscoreError, FileError, MismatchError

__all__ = ["is_control", "load_control", "save_control", "whole_folder", "write_table"]

METADATA_KEY = b"divscore.control/1"
CARD, CROISSANT = "card.md", "croissant.json"
# What stands beside the table, and in what kinds of values.
ENTRIES: dict[str, tuple[type, ...]] = {
    "attribute": (str,),
    "order": (list,),
    "similarity": (str,),
    "encoder": (str, NoneType),
    "method": (str,),
    "hand_picked": (bool,),
    "left_out": (dict, NoneType),
    "digest": (str,),
}


def save_control(control: ControlSet, folder: str | os.PathLike[str]) -> None:
    """Write `control` into `folder`, whole or not at all; an earlier control set there is replaced."""
    target = Path(folder)
    _check_target(target)
    with whole_folder(target, {TABLE, CARD, CROISSANT}) as fresh:
        write_table(control, fresh / TABLE)
        (fresh / CARD).write_text(card(control), encoding="utf-8")
        text = json.dumps(croissant(control, fresh / TABLE), indent=2, ensure_ascii=False)
        (fresh / CROISSANT).write_text(f"{text}\n", encoding="utf-8")


def load_control(
    path: str | os.PathLike[str],
    *,
    verify: bool = True,
    similarity: Similarity | PairwiseFunction | None = None,
) -> ControlSet:
    """Read a control set that `save_control` wrote, from its folder or its Parquet file.

    Parameters
    ----------
    path : path
        The folder, or the ``control.parquet`` inside it.
    verify : bool
        Refuse a file that was changed after it was saved.
    similarity : callable on two blocks, optional
        Must be given when the control set was made with another similarity than the cosine.
    """
    table = _read_table(Path(path))
    about = _about(table, path)
    chosen = _similarity(about["similarity"], similarity, path)
    try:
        control = _control(table, about, chosen)
    except (DivscoreError, KeyError, ValueError, TypeError, AttributeError) as error:
        if isinstance(error, DivscoreError) and not verify:
            raise
        raise FileError(
            f"{os.fspath(path)} was changed after it was saved and no longer works: {error}"
        ) from error
    if verify and control.digest != about["digest"]:
        raise FileError(
            f"{os.fspath(path)} was changed after it was saved: its fingerprint is {control.digest[:12]}…, "
            f"expected {about['digest'][:12]}…; fetch it again, or load it with verify=False and save it anew"
        )
    return control


def is_control(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is the folder or the Parquet file of a saved control set."""
    file = _table_of(Path(path))
    if file.suffix != ".parquet" or not file.is_file():
        return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return METADATA_KEY in (pq.read_schema(file).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def _table_of(path: Path) -> Path:
    return path / TABLE if path.is_dir() else path


def _check_target(target: Path) -> None:
    if target.exists() and not target.is_dir():
        raise FileError(f"{target} is a file; a control set is saved as a folder: give another name")
    if target.is_dir() and any(target.iterdir()) and not is_control(target):
        raise FileError(
            f"{target} is a folder with other things in it; give a new folder for the control set"
        )


@contextmanager
def whole_folder(target: Path, replaced: set[str]) -> Iterator[Path]:
    """Give a fresh folder to write into, which takes the place of `target` once everything is written.

    What lies in `target` already stays, but for the entries `replaced`.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.parent / f".{target.name}.{uuid.uuid4().hex}"
    fresh.mkdir()
    try:
        yield fresh
        _put_in_place(fresh, target, replaced)
    except UnicodeEncodeError as error:
        raise FileError(
            f"{target}: {error.object!r} cannot be written as text; rename the example, group or attribute"
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _put_in_place(fresh: Path, target: Path, replaced: set[str]) -> None:
    """Let the folder `fresh` take the place of `target`, whose entries other than those `replaced` it takes over."""
    if not target.exists():
        fresh.rename(target)
        return
    old = target.parent / f"{fresh.name}.old"
    target.rename(old)
    try:
        fresh.rename(target)
    except OSError:
        old.rename(target)
        raise
    # What somebody put beside the control set, such as notes or images, stays.
    for entry in old.iterdir():
        if entry.name not in replaced:
            entry.rename(target / entry.name)
    shutil.rmtree(old)


def write_table(control: ControlSet, file: Path) -> None:
    """Write the examples with all that `load_control` needs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = pa.array(np.ascontiguousarray(control.vectors).ravel())
    kind = pa.list_(pa.field("item", numbers.type, nullable=False), control.dimension)
    about = {
        "attribute": control.attribute,
        "order": list(control.groups),
        "similarity": control.similarity.name,
        "encoder": control.encoder,
        "method": control.method,
        "hand_picked": control.hand_picked,
        "left_out": control.left_out,
        "digest": control.digest,
    }
    fields = [
        pa.field("id", pa.string(), nullable=False),
        pa.field("group", pa.string(), nullable=False),
        pa.field("representative", pa.bool_(), nullable=False),
        pa.field("embedding", kind, nullable=False),
    ]
    columns = [
        pa.array(control.ids, pa.string()),
        pa.array([control.groups[label] for label in control.labels], pa.string()),
        pa.array(control.representative),
        pa.FixedSizeListArray.from_arrays(numbers, type=kind),
    ]
    schema = pa.schema(fields, metadata={METADATA_KEY: json.dumps(about).encode()})
    pq.write_table(pa.table(columns, schema=schema), file, use_dictionary=["group"])


def _read_table(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = _table_of(path)
    if not file.is_file():
        raise FileError(
            f"{path} is no control set: {file} does not exist; make one with 'divscore control select'"
        )
    try:
        table = pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise FileError(
            f"{file} is truncated, damaged or no Parquet file ({error}); fetch it again"
        ) from error
    if METADATA_KEY not in (table.schema.metadata or {}):
        raise FileError(
            f"{file} is no saved control set (it lacks the entry {METADATA_KEY.decode()}); "
            "make one from a labelled table with 'divscore control select'"
        )
    return table


def _about(table: Any, path: object) -> dict[str, Any]:
    """What the file says of its table; a stranger may have written it."""
    try:
        found = json.loads(table.schema.metadata[METADATA_KEY])
    except (ValueError, RecursionError) as error:
        raise FileError(
            f"{path} is damaged: its entry {METADATA_KEY.decode()} is no JSON ({error})"
        ) from error
    if not isinstance(found, dict):
        raise FileError(f"{path} is damaged: its entry {METADATA_KEY.decode()} says nothing; fetch it again")
    wrong = [key for key, kinds in ENTRIES.items() if not isinstance(found.get(key), kinds)]
    lists = [*(found.get("order") or ()), *(found.get("left_out") or {}).values()] if not wrong else []
    if wrong or not all(type(value) in (str, int) for value in lists):
        told = ", ".join(wrong) or "order, left_out"
        raise FileError(
            f"{path} is damaged: its entry {METADATA_KEY.decode()} lacks or garbles {told}; fetch it again"
        )
    return found


def _similarity(saved: str, given: Similarity | PairwiseFunction | None, path: object) -> Similarity:
    if given is None:
        if saved != COSINE.name:
            raise FileError(
                f"{path} was made with the similarity '{saved}', which a file cannot hold; "
                "pass that function: load_control(path, similarity=…)"
            )
        return COSINE
    # The file's name for it, so that the fingerprint stays what it was.
    chosen = given if isinstance(given, Similarity) else Similarity(saved, given)
    if chosen.name != saved or (saved == COSINE.name and not chosen.collapses):
        raise MismatchError(
            f"{path} was made with the similarity '{saved}', but another one was given; use '{saved}'"
        )
    return chosen


def _control(table: Any, about: dict[str, Any], similarity: Similarity) -> ControlSet:
    embedding = table["embedding"].combine_chunks()
    dimension = embedding.type.list_size
    control = ControlSet(
        embedding.flatten().to_numpy().reshape(-1, dimension),
        table["group"].to_pylist(),
        attribute=about["attribute"],
        order=about["order"],
        ids=table["id"].to_pylist(),
        similarity=similarity,
        encoder=about["encoder"],
        hand_picked=about["hand_picked"],
        left_out=about.get("left_out"),
    )
    rows = np.flatnonzero(table["representative"].to_numpy())
    return control.with_representatives(rows.tolist(), about["method"])
