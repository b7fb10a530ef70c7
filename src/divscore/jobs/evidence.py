"""Evidence of a page audit: one zip with what was seen, when, in which order, and the audit; `divscore verify`.

The zip has one form only: no compression, no times, files in one order, and their digests in SHA256SUMS. Whoever
changes a byte, even in a header of the zip, gets a file that differs from what its content would be written as.
That shows that a file is whole and agrees with itself. It does not show who made it: note the digest of the zip
somewhere else for that.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from divscore.audit.document import AuditDocument, parse_document
from divscore.errors import FileError
from divscore.files import PathLike, read_json, unreadable
from divscore.text import printable

SCHEMA = "divscore.evidence/1"
RECORD, AUDIT, REPORT, SUMS = "evidence.json", "audit.json", "report.html", "SHA256SUMS"
SCREENSHOTS = {"screenshot.png": b"\x89PNG\r\n\x1a\n", "screenshot.jpg": b"\xff\xd8\xff"}
PICTURE = re.compile(r"items/(\d{4,7})-([0-9a-f]{64})")
MOST_BYTES = 512 << 20
MOST_FILES = 20_000
CHANGED = "it was changed, or cut short, after it was saved"

Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]


class SeenItem(Struct, frozen=True, kw_only=True):
    """One item: its place on the page, the digest of its bytes, and why it was skipped, if it was."""

    rank: Annotated[int, Meta(ge=1)]
    sha256: Digest
    skip: str = ""


class Record(Struct, frozen=True, kw_only=True):
    """What `evidence.json` has to say."""

    schema: Literal["divscore.evidence/1"]
    url: Annotated[str, Meta(min_length=1)]
    began: str
    saved: str
    version: str
    control_digest: str
    mode: Literal["image", "text"]
    viewport: Annotated[list[int], Meta(max_length=2)]
    language: str
    query: str
    items: list[SeenItem]
    skipped: dict[str, int]
    run: str = ""
    study: str = ""


@dataclass(frozen=True)
class Verified:
    """What evidence says, once it was checked."""

    sha256: str
    url: str
    saved: str
    run: str
    version: str
    control: str
    items: int
    used: int
    pictures: int
    screenshot: bool
    headline: str


def write_evidence(
    record: Mapping[str, Any],
    audit: str,
    report: str,
    *,
    screenshot: bytes = b"",
    pictures: Sequence[tuple[int, bytes]] = (),
) -> bytes:
    """Make the zip; `pictures` have the rank of each item, and its bytes."""
    text = json.dumps({"schema": SCHEMA, **record}, indent=2, ensure_ascii=True)
    files = {RECORD: text.encode(), AUDIT: audit.encode(), REPORT: report.encode()}
    if screenshot:
        files["screenshot.png" if screenshot.startswith(b"\x89PNG") else "screenshot.jpg"] = screenshot
    for rank, data in pictures:
        files[f"items/{rank:04}-{hashlib.sha256(data).hexdigest()}"] = data
    return _pack(files | {SUMS: _sums(files)})


def _sums(files: Mapping[str, bytes]) -> bytes:
    """Digests as `sha256sum --check` reads them."""
    return "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items()).encode()


def _pack(files: Mapping[str, bytes]) -> bytes:
    """The only zip of these files in this order."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system, entry.external_attr = 3, 0o600 << 16
            archive.writestr(entry, data)
    return stream.getvalue()


def verify_evidence(path: PathLike, *, control: str | None = None) -> Verified:
    """Check evidence in every detail, or raise `FileError`; `control` is the digest that its control set must have."""
    where = printable(str(path))
    try:
        with open(path, "rb") as stream:
            huge = os.fstat(stream.fileno()).st_size > MOST_BYTES
            data = b"" if huge else stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise unreadable(where, error) from error
    if huge or len(data) > MOST_BYTES:
        raise FileError(f"{where} is larger than {MOST_BYTES >> 20} MB; this is not evidence of divscore")
    files = _unpacked(data, where)
    _check_digests(files, where)
    if _pack(files) != data:
        raise FileError(f"{where}: the zip is not as divscore writes it; {CHANGED}")
    record = read_json(Record, files[RECORD], f"{where}: {RECORD}")
    audit = parse_document(files[AUDIT], f"{where}: {AUDIT}")
    pictures = _check_agreement(record, audit, files, where)
    if control is not None and control != record.control_digest:
        raise FileError(
            f"{where}: another control set was used (digest {printable(record.control_digest[:16])}…, not "
            f"{control[:16]}…)"
        )
    first = json.loads(files[AUDIT])["collections"][0]
    return Verified(
        sha256=hashlib.sha256(data).hexdigest(),
        url=record.url,
        saved=record.saved,
        run=", ".join(part for part in (record.study, record.run) if part),
        version=record.version,
        control=record.control_digest,
        items=len(record.items),
        used=audit.collections[0].count,
        pictures=pictures,
        screenshot=any(name in files for name in SCREENSHOTS),
        headline=str(first.get("headline", "")),
    )


def _unpacked(data: bytes, where: str) -> dict[str, bytes]:
    """The files of a zip, all of known names; nothing is written anywhere."""
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            # Without compression all contents together are smaller than the zip itself.
            plain = all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
            size = sum(max(entry.file_size, entry.compress_size) for entry in entries)
            if not plain or len(entries) > MOST_FILES or size > len(data):
                raise FileError(f"{where}: the zip is not as divscore writes it; {CHANGED}")
            for entry in entries:
                files[entry.filename] = archive.read(entry)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, OSError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{where} is not a readable zip ({printable(str(error))}); {CHANGED}") from error
    known = {RECORD, AUDIT, REPORT, SUMS, *SCREENSHOTS}
    odd = [name for name in files if name not in known and not PICTURE.fullmatch(name)]
    absent = [name for name in (RECORD, AUDIT, REPORT, SUMS) if name not in files]
    if odd or absent:
        what = f"has '{printable(odd[0])}'" if odd else f"has no {absent[0]}"
        raise FileError(f"{where} {what}; this is not evidence of divscore, or it was changed")
    return files


def _check_digests(files: Mapping[str, bytes], where: str) -> None:
    lines = files[SUMS].decode("utf-8", "replace").splitlines()
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    others = {name: data for name, data in files.items() if name != SUMS}
    for name, content in others.items():
        if listed.get(name) != hashlib.sha256(content).hexdigest():
            raise FileError(f"{where}: {name} does not have its digest; {CHANGED}")
    if files[SUMS] != _sums(others):
        raise FileError(f"{where}: {SUMS} does not list the files of the zip; {CHANGED}")


def _check_agreement(record: Record, audit: AuditDocument, files: Mapping[str, bytes], where: str) -> int:
    """Refuse parts that contradict each other; return how many pictures there are."""
    if audit.control != record.control_digest:
        raise FileError(f"{where}: {RECORD} and {AUDIT} name different control sets")
    if audit.version != record.version:
        raise FileError(f"{where}: {RECORD} and {AUDIT} name different versions of divscore")
    ranks = [item.rank for item in record.items]
    if ranks != sorted(ranks):
        raise FileError(f"{where}: the items of {RECORD} are not in the order of the page")
    used = sum(not item.skip for item in record.items)
    if len(audit.collections) != 1 or audit.collections[0].count != used:
        raise FileError(f"{where}: {RECORD} has {used} items that were used, {AUDIT} has another number")
    seen = {item.sha256 for item in record.items}
    pictures = 0
    for name, data in files.items():
        if match := PICTURE.fullmatch(name):
            pictures += 1
            if match[2] not in seen or hashlib.sha256(data).hexdigest() != match[2]:
                raise FileError(f"{where}: {name} is none of the items of {RECORD}")
        if name in SCREENSHOTS and not data.startswith(SCREENSHOTS[name]):
            raise FileError(f"{where}: {name} is no picture")
    return pictures
