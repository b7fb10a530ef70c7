"""A control set on disk: a folder with the examples, a card for people and a description for machines."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from divscore.control.controlset import ControlSet
from divscore.control.similarity import COSINE, PairwiseFunction, Similarity
from divscore.errors import DivscoreError, FileError, MismatchError
from divscore.files import atomic_folder, sha256
from divscore.text import printable

__all__ = [
    "TABLE",
    "card",
    "croissant",
    "is_control",
    "load_control",
    "plain",
    "save_control",
    "write_table",
]


# What a saved control set says of itself: a card for people, a Croissant description for machines.

TABLE = "control.parquet"
LISTED_IDS = 200

WARNINGS = """\
## Before you use it

- **The groups were fixed beforehand.** The examples were sorted into a few named groups by whoever labelled
  them. People and things that fit none of the groups, or several, are not described by any result.
- **Examples can carry stereotypes.** A set of examples that all look or sound alike in ways that have nothing
  to do with the attribute makes an audit measure the stereotype instead. Prefer examples that differ in
  everything but the attribute.
- **Look at the examples yourself and change them by hand** where they are wrong, one-sided or hurtful; a
  method chose them, nobody vouched for them.
- **Publish this folder with the results.** Whoever doubts a figure should be able to see the examples
  behind it.
- Results hold for a collection as a whole. Do not use the examples to assign a group to an individual.
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


def card(control: ControlSet) -> str:
    """Describe a control set in Markdown."""
    counts = "\n".join(
        f"| {plain(name)} | {n} | {len(control.rows(group, representatives=True))} |"
        for group, (name, n) in enumerate(control.counts.items())
    )
    pool = "by hand" if control.hand_picked else "by whoever collected them (not marked as picked by hand)"
    return f"""\
# Control set for {plain(control.attribute)}

{len(control)} labelled examples, {int(control.representative.sum())} of them representatives. An audit
compares a collection with them to estimate how large a share of it each group has.

| group | labelled | representatives |
|---|---|---|
{counts}

- **How the representatives were chosen:** {plain(control.method)}
- **How the labelled examples were chosen:** {pool}
- **What made the vectors:** {plain(control.encoder or "not recorded")} ({control.dimension} dimensions)
- **Left out, because they could not be encoded:** {_left_out(control)}
- **Similarity:** {plain(control.similarity.name)}
- **Fingerprint:** `{control.digest}`

{WARNINGS}
## Representatives

{_representatives(control)}
"""


def _left_out(control: ControlSet) -> str:
    return ", ".join(f"{number} of {plain(name)}" for name, number in control.left_out.items()) or "none"


def _representatives(control: ControlSet) -> str:
    if control.representative.sum() > LISTED_IDS:
        return f"See the column `representative` of `{TABLE}`."
    lines = []
    for group, name in enumerate(control.groups):
        ids = ", ".join(plain(control.ids[row]) for row in control.rows(group, representatives=True))
        lines.append(f"- {plain(name)}: {ids}")
    return "\n".join(lines)


def plain(text: str) -> str:
    r"""One line of Markdown without mark-up, links or mentions, whatever the name holds.

    >>> print(plain("a_b <i>"))
    a\_b \<i\>
    """
    line = printable(" ".join(text.split()))
    escaped = "".join(f"\\{c}" if c in "\\`*_{}[]<>#|~&@" else c for c in line)
    return escaped.replace("://", "\\://").replace("www.", "www\\.")


def croissant(control: ControlSet, table: Path) -> dict[str, Any]:
    """Describe a control set and its Parquet file as a Croissant 1.0 data set."""

    def field(name: str, kind: str, says: str, **more: Any) -> dict[str, Any]:
        source = {"fileObject": {"@id": TABLE}, "extract": {"column": name}}
        return {
            "@type": "cr:Field",
            "@id": f"examples/{name}",
            "name": name,
            "description": says,
            "dataType": kind,
            "source": source,
            **more,
        }

    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": f"Control set for {control.attribute}",
        "description": f"{len(control)} labelled examples of {', '.join(control.groups)}, for audits.",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": TABLE,
                "name": TABLE,
                "contentUrl": TABLE,
                "encodingFormat": "application/x-parquet",
                "sha256": sha256(table),
            }
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "examples",
                "name": "examples",
                "field": [
                    field("id", "sc:Text", "What the example is called."),
                    field("group", "sc:Text", f"Its group of {control.attribute}."),
                    field("representative", "sc:Boolean", "Whether DivScore compares with it."),
                    field("embedding", "sc:Float", "Its feature vector.", repeated=True),
                ],
            }
        ],
    }


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
    with atomic_folder(target, {TABLE, CARD, CROISSANT}) as fresh:
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
