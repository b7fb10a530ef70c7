"""Page: a report of any number of audits, as text, from Python."""

from __future__ import annotations

from collections.abc import Sequence

from divscore.audit.result import Audit
from divscore.errors import InputError
from divscore.report.context import Context

__all__ = ["render"]

FORMS = ("html", "markdown")


def render(audits: Sequence[Audit], *, limit: float | None = None, form: str = "html") -> str:
    """A report for people on audits made with one control set: one self-contained page, or Markdown.

    Parameters
    ----------
    audits : sequence of Audit
        Of one control set, by one estimator.
    limit : float, optional
        The largest disparity that is wanted, from 0 to 1; the report says which collections are surely within it.
    form : "html" or "markdown"
        What to make.
    """
    if form not in FORMS:
        raise InputError(f"unknown form '{form}'; choose one of {', '.join(FORMS)}")
    if limit is not None and not 0 <= limit <= 1:
        raise InputError(f"limit {limit} must be from 0 to 1, for example 0.2")
    if form == "html":
        from divscore.report.html import render as rendered
    else:
        from divscore.report.markdown import render as rendered
    return rendered(audits, Context(limit=limit))
