"""A control set on disk: a folder with the examples, a card for people and a Croissant description for machines."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from divscore.control.controlset import ControlSet
from divscore.control.similarity import COSINE, PairwiseFunction, Similarity
from divscore.errors import DivscoreError, FileError, MismatchError
from divscore.files import PathLike, atomic_folder, read_json, sha256, templates
from divscore.text import escape_markdown

TABLE, CARD, CROISSANT = "control.parquet", "card.md", "croissant.json"
KEY = b"divscore.control/1"  # of the header, in the metadata of the Parquet schema
ORIGIN = "origin"  # an optional column, not part of the fingerprint
LISTED_IDS = 200  # representatives that the card lists


@dataclass(frozen=True)
class _ControlHeader:
    """What a ControlSet has in addition to the table."""

    attribute: str
    order: tuple[str, ...]
    similarity: str
    encoder: str | None
    method: str
    hand_picked: bool
    digest: str
    left_out: dict[str, int] | None = None  # ControlSet.skipped


def save_control(control: ControlSet, folder: str | os.PathLike[str]) -> None:
    """Write `control` into `folder`, completely or not at all; an earlier control set there is replaced."""
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise FileError(f"{target} is a file; a control set is saved as a folder: choose another name")
    if target.is_dir() and any(target.iterdir()) and not is_control(target):
        raise FileError(f"{target} is a folder with other files; choose a new folder for the control set")
    with atomic_folder(target, {TABLE, CARD, CROISSANT}) as temporary:
        write_table(control, temporary / TABLE)
        (temporary / CARD).write_text(card(control), encoding="utf-8")
        text = json.dumps(croissant(control, temporary / TABLE), indent=2, ensure_ascii=False)
        (temporary / CROISSANT).write_text(f"{text}\n", encoding="utf-8")


def write_table(control: ControlSet, file: Path) -> None:
    """Write the examples with everything that `load_control` needs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = pa.array(np.ascontiguousarray(control.vectors).ravel())
    kind = pa.list_(pa.field("item", numbers.type, nullable=False), control.dimension)
    columns = {
        "id": pa.array(control.ids, pa.string()),
        "group": pa.array([control.groups[label] for label in control.labels], pa.string()),
        "representative": pa.array(control.representative),
        "embedding": pa.FixedSizeListArray.from_arrays(numbers, type=kind),
    }
    if control.origins is not None:
        columns[ORIGIN] = pa.array(control.origins, pa.string())
    header = _ControlHeader(
        attribute=control.attribute,
        order=control.groups,
        similarity=control.similarity.name,
        encoder=control.encoder,
        method=control.method,
        hand_picked=control.hand_picked,
        digest=control.digest,
        left_out=control.skipped,
    )
    fields = [pa.field(name, column.type, nullable=name == ORIGIN) for name, column in columns.items()]
    schema = pa.schema(fields, metadata={KEY: json.dumps(asdict(header)).encode()})
    pq.write_table(pa.table(list(columns.values()), schema=schema), file, use_dictionary=["group"])


def load_control(
    path: str | os.PathLike[str],
    *,
    verify: bool = True,
    similarity: Similarity | PairwiseFunction | None = None,
) -> ControlSet:
    """Read a control set that `save_control` wrote, from its folder or from the ``control.parquet`` in it.

    `verify` refuses a file that was changed after it was saved. A control set that was made with another similarity
    than the cosine needs that `similarity` again.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = Path(path) / TABLE if os.path.isdir(path) else Path(path)
    if not file.is_file():
        raise FileError(
            f"{Path(path)} is not a control set: {file} does not exist; make one with 'divscore control select'"
        )
    try:
        with pq.ParquetFile(file) as parquet:  # read_table would import pandas, where there is one
            table = parquet.read()
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{file} is damaged or not a Parquet file ({error}); get it again") from error
    if KEY not in (table.schema.metadata or {}):
        raise FileError(
            f"{file} is not a saved control set (the entry {KEY.decode()} is missing); make one from a labelled table "
            "with 'divscore control select'"
        )
    where = f"{os.fspath(path)}, entry {KEY.decode()}"
    header = read_json(
        _ControlHeader, table.schema.metadata[KEY], where, hint="the file is damaged: get it again"
    )
    saved = header.similarity
    if similarity is None:
        if saved != COSINE.name:
            raise FileError(
                f"{path} was made with the similarity '{saved}', which a file cannot contain; only Python can pass the "
                "function again, to load_control"
            )
        similarity = COSINE
    elif not isinstance(similarity, Similarity):
        # Under the name in the file, so that the fingerprint stays the same.
        similarity = Similarity(saved, similarity)
    if similarity.name != saved or (saved == COSINE.name and not similarity.collapses):
        raise MismatchError(f"{path} was made with the similarity '{saved}', not with the one passed here")
    try:
        embedding = table["embedding"].combine_chunks()
        control = ControlSet(
            embedding.flatten().to_numpy().reshape(-1, embedding.type.list_size),
            table["group"].to_pylist(),
            attribute=header.attribute,
            order=header.order,
            ids=table["id"].to_pylist(),
            origins=table[ORIGIN].to_pylist() if ORIGIN in table.column_names else None,
            similarity=similarity,
            encoder=header.encoder,
            hand_picked=header.hand_picked,
            skipped=header.left_out,
        )
        rows = np.flatnonzero(table["representative"].to_numpy())
        control = control.with_representatives(rows.tolist(), header.method)
    except (DivscoreError, KeyError, ValueError, TypeError, AttributeError) as error:
        if isinstance(error, DivscoreError) and not verify:
            raise
        raise FileError(
            f"{os.fspath(path)} was changed after it was saved and no longer works: {error}"
        ) from error
    if verify and control.digest != header.digest:
        raise FileError(
            f"{os.fspath(path)} was changed after it was saved: its fingerprint is {control.digest[:12]}…, expected "
            f"{header.digest[:12]}…; get it again, or make it again with 'divscore control select'"
        )
    return control


def is_control(path: PathLike) -> bool:
    """Whether `path` is the folder or the Parquet file of a saved control set."""
    file = Path(path) / TABLE if os.path.isdir(path) else Path(path)
    if file.suffix != ".parquet" or not file.is_file():
        return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return KEY in (pq.read_schema(file).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def card(control: ControlSet) -> str:
    """Describe a control set in Markdown."""
    representatives = {
        name: [control.ids[row] for row in control.rows(group, representatives=True)]
        for group, name in enumerate(control.groups)
    }
    environment = templates("divscore.control", finalize=lambda value: escape_markdown(str(value)))
    template = environment.get_template("card.md.j2")
    return template.render(control=control, representatives=representatives, most=LISTED_IDS)


def croissant(control: ControlSet, table: Path) -> dict[str, Any]:
    """Describe a control set and its Parquet file as a Croissant 1.0 data set."""
    text = resources.files("divscore.control").joinpath("templates/croissant.json").read_text("utf-8")
    description: dict[str, Any] = json.loads(text)
    description["name"] = f"Control set for {control.attribute}"
    description["description"] = (
        f"{len(control)} labelled examples of {', '.join(control.groups)}, for audits."
    )
    description["distribution"][0]["sha256"] = sha256(table)
    description["recordSet"][0]["field"][1]["description"] = f"Its group of {control.attribute}."
    return description
