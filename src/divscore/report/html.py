"""HTML: a report as one page that needs no network and no script, and the few lines a notebook shows."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from divscore.audit.result import Audit
from divscore.errors import InputError
from divscore.report.changes import ALL, overview
from divscore.report.context import Context
from divscore.report.picture import NARROW, WIDE, disparities, draw, shares, sliver
from divscore.report.prose import count
from divscore.report.summary import headline, summarise
from divscore.report.table import listing
from divscore.text import printable

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["fragment", "render", "render_page"]


MOST = 20  # warnings in a notebook's cell
BARS = 60  # collections whose shares are drawn inside the table


def render(audits: Sequence[Audit], context: Context | None = None) -> str:
    """The page: audits of one control set, and what the context adds."""
    from markupsafe import Markup

    summary = summarise(audits, context or Context())
    style, script = _read("report.css"), _read("report.js")
    drawn = [
        (picture, draw(picture, WIDE, f"plot{at}"), draw(picture, NARROW, f"plot{at}"))
        for at, picture in enumerate(summary.pictures)
    ]
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            s=summary,
            drawn=drawn,
            sliver=sliver if len(audits) <= BARS else None,
            json=Markup(summary.embedded.inside),
            style=Markup(style),
            script=Markup(script),
            style_hash=_hash(style),
            script_hash=_hash(script),
            version=_version(),
        )
        .lstrip()
    )


def fragment(audits: Sequence[Audit]) -> str:
    """The result in a notebook's cell; of many collections those with the largest and smallest disparities."""
    from markupsafe import Markup

    audit = audits[0]
    by_group = len(audits) == 1 and len(audit.shares) > 2 and audit.has_shares
    picture = shares(audit) if by_group else disparities(audits, None)
    # Two results side by side must not share ids.
    told = repr([(each.name, each.shares, each.interval) for each in audits])
    key = hashlib.sha256(told.encode()).hexdigest()[:8]
    style = _read("fragment.css")
    return (
        _environment()
        .get_template("fragment.html.j2")
        .render(
            headline=headline(audits),
            trust=", ".join(dict.fromkeys(each.trust for each in audits)),
            estimator=audit.estimator,
            items=count(sum(each.count for each in audits), audit.noun),
            hollow=picture.hollow,
            listing=listing(overview(audits).shown if len(audits) > ALL else audits),
            warnings=[printable(each) for each in dict.fromkeys(w for each in audits for w in each.warnings)][
                :MOST
            ],
            plot=draw(picture, WIDE, f"divscore-{key}"),
            style=Markup(style),
        )
    )


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@lru_cache(maxsize=8)
def _read(name: str) -> str:
    return (files("divscore.report") / "templates" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """How a Content-Security-Policy names an inline style or script that it allows."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _version() -> str:
    from divscore import __version__

    return __version__


# Page: a report of any number of audits, as text, from Python.

FORMS = ("html", "markdown")


def render_page(audits: Sequence[Audit], *, limit: float | None = None, form: str = "html") -> str:
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
        return render(audits, Context(limit=limit))
    from divscore.report.markdown import render as render_markdown

    return render_markdown(audits, Context(limit=limit))
