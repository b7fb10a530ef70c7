"""What `embed` notes of the files and parts that it had to do without, in a manifest or in a file of vectors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from divscore.audit.missing import LONGEST, MOST_ROWS, Missing
from divscore.text import brief

__all__ = ["note_left_out", "read_left_out"]


def note_left_out(missing: Iterable[Missing]) -> list[dict[str, Any]]:
    """What is missing from vectors, for whoever reads them later.

    >>> note_left_out([Missing("posts/1.csv", "damaged"), Missing("posts/2.csv", "damaged", 40)])
    [{'of': 'posts/1.csv', 'reason': 'damaged'}, {'of': 'posts/2.csv', 'reason': 'damaged', 'rows': 40}]
    """
    return [
        {"of": each.part, "reason": each.reason, **({} if each.rows is None else {"rows": each.rows})}
        for each in missing
    ]


def read_left_out(listed: Any, vectors: str) -> tuple[Missing, ...] | None:
    """Parts of the source that are noted as missing from `vectors`; None where `embed` did not write the list.

    Their texts become as short and plain as a message has to be.

    >>> read_left_out([{"of": "posts/1.csv", "reason": "damaged"}], "posts.arrow")
    (Missing(part='posts/1.csv', reason='posts.arrow was embedded without it: damaged', rows=None),)
    """
    found = []
    for each in listed if isinstance(listed, list) else [None]:
        told = each if isinstance(each, dict) else {}
        part, reason, rows = told.get("of"), told.get("reason"), told.get("rows")
        if not isinstance(part, str) or not isinstance(reason, str):
            return None
        if rows is not None and (type(rows) is not int or not 0 <= rows < MOST_ROWS):
            return None
        why = brief(reason[:LONGEST], LONGEST)
        found.append(
            Missing(brief(part[:LONGEST], LONGEST), f"{vectors} was embedded without it: {why}", rows)
        )
    return tuple(found)
