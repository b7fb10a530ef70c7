"""Write a report to a file, whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path

from divscore.errors import FileError
from divscore.report.context import Context
from divscore.result import Audit

__all__ = ["check_target", "write_report"]

HTML = {".html", ".htm"}
MARKDOWN = {".md", ".markdown"}


def check_target(path: str | os.PathLike[str]) -> None:
    """Refuse what no report can be written to, before anything is computed."""
    target = Path(path)
    if target.suffix.lower() not in HTML | MARKDOWN:
        got = f"the suffix '{target.suffix}'" if target.suffix else "no suffix"
        raise FileError(f"report {target} has {got}; expected a file that ends in .html or .md")
    if target.is_dir():
        raise FileError(f"report {target} is a folder; name a file that ends in .html or .md")
    if not target.parent.is_dir():
        raise FileError(f"report {target}: there is no folder {target.parent}; make it first")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise FileError(f"report {target}: the folder {target.parent} cannot be written to; name another")


def write_report(path: str | os.PathLike[str], audits: Sequence[Audit], context: Context) -> None:
    """Render what the suffix names, and put it in place of any earlier file in one step."""
    check_target(path)
    target = Path(path)
    if target.suffix.lower() in HTML:
        from divscore.report.html import render
    else:
        from divscore.report.markdown import render
    text = render(audits, context)
    temporary = target.with_name(f".{target.name[:100]}.{uuid.uuid4().hex[:8]}.part")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)
    except OSError as error:
        raise FileError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
