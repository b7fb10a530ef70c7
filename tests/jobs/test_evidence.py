from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
import tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from divscore import __version__
from divscore.audit.audit import audit
from divscore.audit.document import document
from divscore.errors import FileError
from divscore.jobs.evidence import verify_evidence, write_evidence

PIXELS = [tiny.png(Image.new("RGB", (4, 4), (at, 0, 0))) for at in range(3)]


@pytest.fixture(scope="module")
def parts(control: Any, collection: Any) -> tuple[dict[str, Any], str]:
    """A record of 400 items, three of them pictures, and their audit."""
    contents = PIXELS + [f"item {at}".encode() for at in range(397)]
    record = {
        "url": "https://example.org/?q=x",
        "began": "2026-01-01T10:00:00.000000+00:00",
        "saved": "2026-01-01T10:00:09.000000+00:00",
        "version": __version__,
        "control_digest": control.digest,
        "mode": "image",
        "viewport": [1280, 900],
        "language": "en",
        "query": "x",
        "run": "Berlin",
        "study": "CEO",
        "skipped": {"too large": 1},
        "items": [
            {"rank": at, "sha256": hashlib.sha256(data).hexdigest(), "skip": ""}
            for at, data in enumerate(contents, start=1)
        ],
    }
    return record, json.dumps(document([audit(collection, control)]))


@pytest.fixture(scope="module")
def evidence(parts: tuple[dict[str, Any], str]) -> bytes:
    record, text = parts
    pictures = list(enumerate(PIXELS, start=1))
    return write_evidence(record, text, "<p>report</p>", screenshot=PIXELS[0], pictures=pictures)


def check(folder: Path, data: bytes, **options: Any) -> Any:
    file = folder / "evidence.zip"
    file.write_bytes(data)
    return verify_evidence(file, **options)


def test_evidence_is_verified(evidence: bytes, control: Any, tmp_path: Path) -> None:
    found = check(tmp_path, evidence, control=control.digest)
    assert (found.items, found.used, found.pictures, found.screenshot) == (400, 400, 3, True)
    assert found.sha256 == hashlib.sha256(evidence).hexdigest()
    assert found.run == "CEO, Berlin"
    assert found.headline
    with pytest.raises(FileError, match="another control set"):
        check(tmp_path, evidence, control="0" * 64)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=300)
@given(data=st.data())
def test_no_byte_can_be_changed(evidence: bytes, tmp_path: Path, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["change", "insert", "remove"]))
    # The headers of the zip are at the end; every second example changes them.
    late = data.draw(st.booleans())
    at = data.draw(st.integers(len(evidence) - 900 if late else 0, len(evidence) - 1))
    byte = data.draw(st.integers(1, 255))
    changed = {
        "change": evidence[:at] + bytes([evidence[at] ^ byte]) + evidence[at + 1 :],
        "insert": evidence[:at] + bytes([byte]) + evidence[at:],
        "remove": evidence[:at] + evidence[at + 1 :],
    }[kind]
    with pytest.raises(FileError):
        check(tmp_path, changed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"control_digest": "0" * 64}, "different control sets"),
        ({"version": "0.0.0"}, "different versions"),
        ({"items": []}, "0 items that were used"),
        ({"url": ""}, "url"),
        ({"viewport": "wide"}, "viewport"),
    ],
)
def test_parts_that_contradict_each_other_are_refused(
    parts: tuple[dict[str, Any], str], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    record, text = parts
    with pytest.raises(FileError, match=message):
        check(tmp_path, write_evidence(record | change, text, ""))


def test_other_pictures_other_orders_and_other_zips_are_refused(
    parts: tuple[dict[str, Any], str], tmp_path: Path
) -> None:
    record, text = parts
    with pytest.raises(FileError, match="none of the items"):
        check(tmp_path, write_evidence(record, text, "", pictures=[(1, b"another picture")]))
    with pytest.raises(FileError, match="order of the page"):
        check(tmp_path, write_evidence(record | {"items": record["items"][::-1]}, text, ""))
    with pytest.raises(FileError, match="no picture"):
        check(tmp_path, write_evidence(record, text, "", screenshot=b"GIF89a"))
    with pytest.raises(FileError, match="schema"):
        check(tmp_path, write_evidence(record, json.dumps(json.loads(text) | {"schema": "other/1"}), ""))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../evil", bytes(10_000_000))
    with pytest.raises(FileError, match="not as divscore writes it"):
        check(tmp_path, stream.getvalue())
    # Many entries that are one and the same part of the file.
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("evidence.json", bytes(100_000))
    data = stream.getvalue()
    start = data.rindex(b"PK\1\2")
    entry, end = data[start:-22], bytearray(data[-22:])
    end[8:12], end[12:16] = struct.pack("<2H", 50, 50), struct.pack("<L", 50 * len(entry))
    with pytest.raises(FileError, match="not as divscore writes it"):
        check(tmp_path, data[:start] + 50 * entry + bytes(end))
    with open(tmp_path / "huge.zip", "wb") as hole:
        hole.truncate(3 << 30)
    with pytest.raises(FileError, match="larger than 512 MB"):
        verify_evidence(tmp_path / "huge.zip")
    with pytest.raises(FileError, match="no such file"):
        verify_evidence(tmp_path / "nothing.zip")
    with pytest.raises(FileError, match="not a readable zip"):
        check(tmp_path, b"no zip")
