"""A control set on disk: a folder with the examples, a card for people and a Croissant description for machines."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from divscore.control.controlset import ControlSet
from divscore.control.similarity import COSINE, PairwiseFunction, Similarity
from divscore.errors import DivscoreError, FileError, MismatchError
from divscore.files import atomic_folder, read_json, sha256
from divscore.text import printable

__all__ = ["TABLE", "card", "croissant", "is_control", "load_control", "plain", "save_control", "write_table"]

TABLE, CARD, CROISSANT = "control.parquet", "card.md", "croissant.json"
KEY = b"divscore.control/1"  # of the header, in the metadata of the Parquet schema
LISTED_IDS = 200

WARNINGS = """\
## Before you use it

- **Somebody fixed the groups.** Whoever labelled the examples sorted them into a few named groups. No result
  describes people and things that fit none of the groups, or several.
- **Examples can carry stereotypes.** If all examples of a group look or sound alike in ways unrelated to the
  attribute, an audit measures the stereotype. Prefer examples that differ in everything but the attribute.
- **Look at the examples and replace them by hand** if they are wrong, one-sided or hurtful. A method chose
  them; nobody approved them.
- **Publish this folder with the results**, so that anybody can check the examples behind a number.
- Results describe a collection as a whole. Do not use the examples to assign a group to an individual.
"""

# The JSON-LD context that the Croissant 1.0 specification prescribes.
CROISSANT_WORDS = (
    "citeAs column equivalentProperty extract field fileObject fileProperty fileSet format includes "
    "isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace "
    "samplingRate separator source subField transform"
)
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{word: f"cr:{word}" for word in CROISSANT_WORDS.split()},
}


@dataclass(frozen=True)
class _Header:
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
    header = _Header(
        attribute=control.attribute,
        order=control.groups,
        similarity=control.similarity.name,
        encoder=control.encoder,
        method=control.method,
        hand_picked=control.hand_picked,
        digest=control.digest,
        left_out=control.skipped,
    )
    fields = [pa.field(name, column.type, nullable=False) for name, column in columns.items()]
    schema = pa.schema(fields, metadata={KEY: json.dumps(asdict(header)).encode()})
    pq.write_table(pa.table(list(columns.values()), schema=schema), file, use_dictionary=["group"])


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
        The folder, or the ``control.parquet`` in it.
    verify : bool
        Refuse a file that was changed after it was saved.
    similarity : callable on two blocks, optional
        Required if the control set was made with another similarity than the cosine.
    """
    table = _read_table(Path(path))
    where = f"{os.fspath(path)}, entry {KEY.decode()}"
    header = read_json(_Header, table.schema.metadata[KEY], where, hint="the file is damaged: get it again")
    chosen = _similarity(header.similarity, similarity, path)
    try:
        embedding = table["embedding"].combine_chunks()
        control = ControlSet(
            embedding.flatten().to_numpy().reshape(-1, embedding.type.list_size),
            table["group"].to_pylist(),
            attribute=header.attribute,
            order=header.order,
            ids=table["id"].to_pylist(),
            similarity=chosen,
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
            f"{header.digest[:12]}…; get it again, or load it with verify=False and save it again"
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
        return KEY in (pq.read_schema(file).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def _table_of(path: Path) -> Path:
    return path / TABLE if path.is_dir() else path


def _read_table(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = _table_of(path)
    if not file.is_file():
        raise FileError(
            f"{path} is not a control set: {file} does not exist; make one with 'divscore control select'"
        )
    try:
        table = pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{file} is damaged or not a Parquet file ({error}); get it again") from error
    if KEY not in (table.schema.metadata or {}):
        raise FileError(
            f"{file} is not a saved control set (the entry {KEY.decode()} is missing); make one from a labelled table "
            "with 'divscore control select'"
        )
    return table


def _similarity(saved: str, function: Similarity | PairwiseFunction | None, path: object) -> Similarity:
    if function is None:
        if saved != COSINE.name:
            raise FileError(
                f"{path} was made with the similarity '{saved}', which a file cannot contain; pass the function: "
                "load_control(path, similarity=…)"
            )
        return COSINE
    # Under the name in the file, so that the fingerprint stays the same.
    chosen = function if isinstance(function, Similarity) else Similarity(saved, function)
    if chosen.name != saved or (saved == COSINE.name and not chosen.collapses):
        raise MismatchError(f"{path} was made with the similarity '{saved}', not with the one passed here")
    return chosen


def card(control: ControlSet) -> str:
    """Describe a control set in Markdown."""
    rows = {name: control.rows(g, representatives=True) for g, name in enumerate(control.groups)}
    counts = "\n".join(f"| {plain(name)} | {n} | {len(rows[name])} |" for name, n in control.counts.items())
    pool = "by hand" if control.hand_picked else "by whoever collected them (not marked as picked by hand)"
    skipped = ", ".join(f"{number} of {plain(name)}" for name, number in control.skipped.items()) or "none"
    examples = f"See the column `representative` of `{TABLE}`."
    if control.representative.sum() <= LISTED_IDS:
        examples = "\n".join(
            f"- {plain(name)}: {', '.join(plain(control.ids[row]) for row in mine)}"
            for name, mine in rows.items()
        )
    return f"""\
# Control set for {plain(control.attribute)}

{len(control)} labelled examples, {int(control.representative.sum())} of them representatives. An audit
compares a collection with them to estimate the share of each group.

| group | labelled | representatives |
|---|---|---|
{counts}

- **How the representatives were chosen:** {plain(control.method)}
- **How the labelled examples were chosen:** {pool}
- **Encoder of the vectors:** {plain(control.encoder or "not recorded")} ({control.dimension} dimensions)
- **Skipped, because they could not be encoded:** {skipped}
- **Similarity:** {plain(control.similarity.name)}
- **Fingerprint:** `{control.digest}`

{WARNINGS}
## Representatives

{examples}
"""


def plain(text: str) -> str:
    r"""One line of Markdown without mark-up, links or mentions, whatever the name contains.

    >>> print(plain("a_b <i>"))
    a\_b \<i\>
    """
    line = printable(" ".join(text.split()))
    escaped = "".join(f"\\{c}" if c in "\\`*_{}[]<>#|~&@" else c for c in line)
    return escaped.replace("://", "\\://").replace("www.", "www\\.")


def croissant(control: ControlSet, table: Path) -> dict[str, Any]:
    """Describe a control set and its Parquet file as a Croissant 1.0 data set."""
    columns = [
        ("id", "sc:Text", "Name of the example."),
        ("group", "sc:Text", f"Its group of {control.attribute}."),
        ("representative", "sc:Boolean", "Whether DivScore compares with it."),
        ("embedding", "sc:Float", "Its feature vector."),
    ]
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"examples/{name}",
            "name": name,
            "description": description,
            "dataType": kind,
            "source": {"fileObject": {"@id": TABLE}, "extract": {"column": name}},
            **({"repeated": True} if name == "embedding" else {}),
        }
        for name, kind, description in columns
    ]
    file = {
        "@type": "cr:FileObject",
        "@id": TABLE,
        "name": TABLE,
        "contentUrl": TABLE,
        "encodingFormat": "application/x-parquet",
        "sha256": sha256(table),
    }
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": f"Control set for {control.attribute}",
        "description": f"{len(control)} labelled examples of {', '.join(control.groups)}, for audits.",
        "distribution": [file],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "examples", "name": "examples", "field": fields}],
    }
