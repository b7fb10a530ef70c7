"""Write a report to a file, and say beforehand whether that can be done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from divscore.audit.result import Audit
from divscore.errors import FileError
from divscore.report.context import Context
from divscore.wholefile import check_place, write_whole

__all__ = ["check_target", "write_report"]

HTML = {".html", ".htm"}
MARKDOWN = {".md", ".markdown"}


def check_target(path: str | os.PathLike[str]) -> None:
    """Refuse what no report can be written to, before anything is computed."""
    target = Path(path)
    if target.suffix.lower() not in HTML | MARKDOWN:
        got = f"the suffix '{target.suffix}'" if target.suffix else "no suffix"
        raise FileError(f"report {target} has {got}; expected a file that ends in .html or .md")
    check_place(target, "report")


def write_report(path: str | os.PathLike[str], audits: Sequence[Audit], context: Context) -> None:
    """Render what the suffix names, and put it in place of any earlier file in one step."""
    check_target(path)
    if Path(path).suffix.lower() in HTML:
        from divscore.report.html import render
    else:
        from divscore.report.markdown import render
    write_whole(path, render(audits, context))
