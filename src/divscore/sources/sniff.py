"""What standard input holds, told from its first lines."""

from __future__ import annotations

import csv

__all__ = ["FORMS", "form_of"]

# What --format takes → the suffix it stands for.
FORMS = {
    "csv": ".csv",
    "tsv": ".tsv",
    "jsonl": ".jsonl",
    "lines": ".txt",
    "parquet": ".parquet",
    "arrow": ".arrow",
}
LINES = 50
LONGEST_HEADING = 40
# A single column under one of these headings is a table; under anything else the first line is an item.
HEADINGS = frozenset({"text", "tweet", "post", "sentence", "name", "names", "image", "path", "file", "title"})


def form_of(head: bytes) -> str:
    """Suffix of the format that these first bytes seem to be: JSON lines, CSV, TSV or lines of text.

    >>> form_of(b'{"text": "a"}'), form_of(b"id,text" + bytes([10]) + b"1,Anna"), form_of(b"Hello, world")
    ('.jsonl', '.csv', '.txt')
    """
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().decode("utf-8", "replace")
    if text.startswith("{"):
        return ".jsonl"
    lines = text.splitlines()[:LINES]
    for suffix, delimiter in ((".tsv", "\t"), (".csv", ",")):
        if _is_table(lines, delimiter):
            return suffix
    return ".csv" if lines and lines[0].strip().lower() in HEADINGS else ".txt"


def _is_table(lines: list[str], delimiter: str) -> bool:
    """Whether the first line reads like a header and the next ones have as many cells."""
    try:
        rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return False
    if len(rows) < 2 or len(rows[0]) < 2:
        return False
    header = [cell.strip() for cell in rows[0]]
    named = all(header) and len(set(header)) == len(header) and max(map(len, header)) <= LONGEST_HEADING
    fitting = sum(len(row) == len(header) for row in rows[1:])
    return named and 2 * fitting >= len(rows) - 1
