"""Last stage of a report: one self-contained HTML page, Markdown, or the few lines that a notebook shows."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from divscore import __version__
from divscore.audit.document import SCHEMA, document
from divscore.audit.result import Audit, headline
from divscore.errors import FileError, InputError
from divscore.files import PathLike, check_writable, templates, write_file
from divscore.report.caveats import notices, noun_of, sentences
from divscore.report.listing import ALL, listing
from divscore.report.picture import Picture, picture
from divscore.report.summary import Context, overview, summarise
from divscore.text import count, escape_markdown, percent

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

LARGEST = 64_000  # characters of JSON that a page has in full
SHORT = "divscore.audit-short/1"  # has less than divscore.audit/1 requires, so it needs another name
KEPT = ("name", "count", "shares", "disparity", "interval", "divscore", "trust")
SUFFIXES = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown"}


def render(audits: Sequence[Audit], *, limit: float | None = None, form: str = "html") -> str:
    """A report on audits made with one control set: one self-contained page, or Markdown.

    Parameters
    ----------
    audits : sequence of Audit
        Of one control set, by one estimator.
    limit : float, optional
        The largest disparity that is acceptable, from 0 to 1; the report says which collections are within it.
    form : "html" or "markdown"
        What to make.
    """
    forms = {"html": render_html, "markdown": render_markdown}
    if form not in forms:
        raise InputError(f"unknown form '{form}'; choose one of {', '.join(forms)}")
    if limit is not None and not 0 <= limit <= 1:
        raise InputError(f"limit {limit} must be from 0 to 1, for example 0.2")
    return forms[form](audits, Context(limit=limit))


def check_target(path: PathLike) -> None:
    """Refuse a path that no report can be written to, before anything is computed."""
    suffix = Path(path).suffix
    if suffix.lower() not in SUFFIXES:
        got = f"the suffix '{suffix}'" if suffix else "no suffix"
        raise FileError(f"report {os.fspath(path)} has {got}; expected a file that ends in .html or .md")
    check_writable(path, "report")


def write_report(path: PathLike, audits: Sequence[Audit], context: Context) -> None:
    """Write a report in the form that the suffix names, replacing an earlier file in one step."""
    check_target(path)
    html = SUFFIXES[Path(path).suffix.lower()] == "html"
    write_file(path, render_html(audits, context) if html else render_markdown(audits, context))


# HTML


def render_html(audits: Sequence[Audit], context: Context | None = None) -> str:
    """The page."""
    context = context or Context()
    summary = summarise(audits, context)
    return render_page(
        "report.html.j2",
        ("report.css",),
        "report.js",
        title=summary.page_title,
        s=summary,
        wide=_draw(summary.picture, "plot"),
        narrow=_draw(summary.picture, "plot", narrow=True),
        data=_embedded(audits, context),
    )


def render_page(name: str, styles: Sequence[str], script: str = "", **values: Any) -> str:
    """Fill a template of a self-contained page; its Content-Security-Policy allows its own style and script only."""
    from markupsafe import Markup

    texts = "".join(map(_read, styles)), _read(script) if script else ""
    digests = [hashlib.sha256(text.encode()).digest() for text in texts]
    allowed = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    return _template(
        name,
        style=Markup(texts[0]),
        script=Markup(texts[1]),
        style_hash=Markup(allowed[0]),
        script_hash=Markup(allowed[1] if script else "'none'"),
        version=__version__,
        **values,
    )


def fragment(audits: Sequence[Audit]) -> str:
    """The result in a notebook cell; of many collections, both ends of the table."""
    from markupsafe import Markup

    first = audits[0]
    drawn = picture(audits)
    # Two results on one page must not share ids.
    key = hashlib.sha256(repr([(a.name, a.shares, a.interval) for a in audits]).encode()).hexdigest()[:8]
    return _template(
        "fragment.html.j2",
        headline=headline(audits),
        trust=", ".join(dict.fromkeys(a.trust for a in audits)),
        estimator=first.estimator,
        items=count(sum(a.count for a in audits), noun_of(audits)),
        zoom=drawn.zoom if drawn else "",
        listing=listing(overview(audits).shown if len(audits) > ALL else audits),
        warnings=[(notice.sentence, notice.about(len(audits))) for notice in notices(audits)],
        plot=_draw(drawn, f"divscore-{key}"),
        style=Markup(_read("fragment.css")),
    )


def _draw(picture: Picture | None, key: str, *, narrow: bool = False) -> Markup:
    """The plot as SVG; `key` makes its ids unique.

    The page draws its own SVG: it takes the page's colours, so light, dark and print need no second drawing, and its
    text stays text. Wide, names are on the left of the lines and numbers on the right; narrow, both are above them.
    """
    from markupsafe import Markup

    if picture is None:
        return Markup("")
    head, edge = 24, 18  # above the rows; room for round ends next to the axis
    width, height, drop = (320, 46, 32) if narrow else (880, 32, 16)  # drop: from a row's top to its line
    # The font is unknown: 8.5 units a letter are enough for most, and longer names are cut.
    longest = round(8.5 * max(len(row.label) for row in picture.marks)) + 10
    tail = (18 if narrow else 84) if any(row.verdict for row in picture.marks) else 0  # a column of verdicts
    left, right = (0, 0) if narrow else (min(236, max(60, longest)), 130 + tail)
    start, stop = left + edge, width - right - edge

    def x(value: float) -> float:
        inside = min(max(value, picture.low), picture.high)
        return round(start + (inside - picture.low) / (picture.high - picture.low) * (stop - start), 1)

    reach = 11 if narrow else 16  # of vertical lines; in the narrow plot they do not cross the words above
    drawn = _template(
        "plot.svg.j2",
        p=picture,
        kind="narrow" if narrow else "wide",
        id=f"{key}-{'narrow' if narrow else 'wide'}",
        x=x,
        upright=lambda value, y: f"M{x(value)} {y - reach}V{y + reach}",
        percent=percent,
        head=head,
        foot=head + height * len(picture.rows),
        width=width,
        height=height,
        drop=drop,
        start=start,
        stop=stop,
        tail=tail,
        room=width - tail - 130 if narrow else left - 6,
        base=16 if narrow else drop + 5,
    )
    return Markup(drawn)


def _embedded(audits: Sequence[Audit], context: Context) -> dict[str, Any]:
    """The JSON in the page and in its download link.

    A small document is there in full, twice; of a large one the page has the main numbers, and the download,
    compressed, has everything.
    """
    note, whole = sentences()["note"], document(audits, missing=context.missing, limit=context.limit)
    inside = text = _compact(whole)
    kind, name, data, remark = "json", "audit.json", text.encode(), note["whole"].format(SCHEMA)
    if len(text) > LARGEST:
        kind, name, remark = "gzip", "audit.json.gz", note["short"].format(SHORT, SCHEMA)
        data = gzip.compress(data, 9, mtime=0)
        entries = [{key: _rounded(entry[key]) for key in KEPT} for entry in whole["collections"]]
        inside = _compact({**whole, "schema": SHORT, "collections": entries})
    return {
        "json": _inside_script(inside),
        "link": f"data:application/{kind};base64,{base64.b64encode(data).decode()}",
        "file": name,
        "remark": " ".join(filter(None, [remark, _without_replicates(audits)])),
    }


def script_data(value: Any) -> Markup:
    """A value as JSON inside a script element."""
    return _inside_script(_compact(value))


def _inside_script(text: str) -> Markup:
    """JSON in which no name can end the script element."""
    from markupsafe import Markup

    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)


def _without_replicates(audits: Sequence[Audit]) -> str:
    return "" if all(audit.refits is None for audit in audits) else sentences()["note"]["replicates"]


def _compact(whole: dict[str, Any]) -> str:
    """JSON without spaces; lone surrogates, which no file can hold, become escapes."""
    text = json.dumps(whole, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return {key: _rounded(item) for key, item in value.items()} if isinstance(value, dict) else value


# Markdown


def render_markdown(audits: Sequence[Audit], context: Context | None = None) -> str:
    """The report as Markdown for a repository or a merge request, in the order of the page."""
    context = context or Context()
    text = json.dumps(
        document(audits, missing=context.missing, limit=context.limit), indent=1, allow_nan=False
    )
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    note = sentences()["note"]
    data = f"{fence}json\n{text}\n{fence}\n\n{_without_replicates(audits)}".rstrip()
    return _template(
        "report.md.j2",
        s=summarise(audits, context),
        raw=Raw,
        data=Raw(data if len(text) <= LARGEST else note["markdown"]),
    )


class Raw(str):
    """Markdown of our own, which is not escaped."""


# Templates


def _template(name: str, **values: Any) -> str:
    return _environment(name.endswith(".md.j2")).get_template(name).render(**values).lstrip()


@lru_cache(maxsize=2)
def _environment(markdown: bool) -> Environment:
    """Templates in which every value is escaped."""

    def escape(text: object) -> str:
        return text if isinstance(text, Raw) else escape_markdown(str(text))

    return templates("divscore.report", autoescape=not markdown, finalize=escape if markdown else None)


@lru_cache(maxsize=8)
def _read(name: str) -> str:
    return (files("divscore.report") / "templates" / name).read_text(encoding="utf-8")
