"""`divscore embed` and `divscore encoders`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import click

from divscore.cli import options as opt
from divscore.cli.console import progress_bar, say, warn
from divscore.encoders.registry import DEFAULTS, ENCODERS
from divscore.errors import install_command
from divscore.jobs.cluster import ClusterEngine
from divscore.jobs.embed import embed as run_embed
from divscore.jobs.embed import open_items
from divscore.jobs.encode import Encoding
from divscore.jobs.encodedsource import SEVERAL, SKIPPED, face_messages
from divscore.report.listing import columns
from divscore.sketch.missing import Missing
from divscore.sources.cuts import warn_of_dividing
from divscore.text import count, public


@click.command()
@click.argument("source", metavar="SOURCE", type=opt.PATH)
@opt.path(
    "-o --out",
    "OUT",
    "A file that ends in .arrow, or a folder of parts; here or in a store (s3://…).",
    required=True,
)
@opt.text("--column", "NAME", "Column of texts or image paths, if there are several.")
@opt.workers
@opt.cluster
@opt.flag("--overwrite", "Replace vectors of another source or encoder in OUT.")
@opt.strict
@opt.flag("--json as_json", "Print a summary as JSON.")
@opt.encoding_options
def embed(
    source: str,
    out: str,
    encoding: Encoding,
    column: str | None,
    workers: int,
    cluster: str | None,
    overwrite: bool,
    strict: bool,
    as_json: bool,
    form: str,
) -> None:
    """Turn items into vectors once, for any number of audits.

    SOURCE is a folder of images, a table of texts or image paths, a list of texts, a quoted pattern or '-'. Columns of
    a table are kept. You can stop it at any moment: the same command resumes, part by part. OUT.arrow appears when it
    is complete; skipped items are listed in OUT.arrow.skipped.csv. If OUT is a folder, every part stays a file of its
    own, and the folder is a collection for 'audit'. If OUT is in a store, the parts are in your cache folder until all
    are made, then OUT is uploaded. With --cluster, every worker must read SOURCE and write OUT under the same paths.
    Vectors of another source or encoder are replaced only with --overwrite.

    \b
    Examples:
      divscore embed photos/ -o photos.arrow
      divscore embed posts.csv --column text -o posts.arrow
      divscore embed photos/ -o s3://bucket/photos.arrow
      divscore embed photos/ -o photos.arrow --encoder vgg16 --model vgg16.safetensors --pca 300
      divscore embed posts/ --column text -o vectors/ --cluster tcp://10.0.0.5:8786
    """
    items = open_items(source, column=column, extra=None, form=form, strict=strict)
    if items.parts:
        warn_of_dividing(items.path, items.locations, warn)
    try:
        with (
            progress_bar(items.name, items.rows) as advance,
            ClusterEngine(cluster, notify=warn) if cluster else nullcontext() as engine,
        ):
            result = run_embed(
                items,
                out,
                encoding,
                engine=engine,
                strict=strict,
                overwrite=overwrite,
                progress=advance,
                on_missing=lambda reason: warn(f"missing: {reason}"),
            )
    except KeyboardInterrupt:
        warn("stopped; finished parts are kept, and the same command resumes")
        raise click.exceptions.Exit(130) from None
    if as_json:
        facts = {
            key: value
            for key, value in asdict(result).items()
            if key not in {"path", "replaced", "projection"} and (key, value) != ("parts", None)
        }
        say(
            json.dumps(
                {"path": public(result.path), "encoder": encoding.identity(items.kind), **facts}, indent=2
            )
        )
    if result.projection:
        warn(f"wrote {result.projection}: give it to --pca for vectors that you compare with these")
    if result.replaced:
        warn(f"{result.path}: replaced vectors of another source or encoder")
    before = f" ({result.resumed:,} of the items were finished before)" if result.resumed else ""
    vectors, many = count(result.vectors, "vectors"), count(result.items, "items")
    warn(f"wrote {result.path}: {vectors} of {many}{before}")
    skipped = [f"{number:,} {SKIPPED[kind]}" for kind, number in result.skipped.items() if number]
    if skipped:
        listing = result.listing or f"{result.path}/part-*.skipped.csv"
        warn(f"skipped items: {', '.join(skipped)}; listed in {listing}")
    for warning in Missing.of(result.missing).warning:
        warn(f"{result.path}: {warning}")
    for text in face_messages(result.several, result.small, every=SEVERAL in encoding.options):
        warn(text)


@click.command()
@opt.json_flag
def encoders(as_json: bool) -> None:
    """List the encoders: what each is for, what it needs, and whether it is ready.

    \b
    Example:
      divscore encoders
    """
    facts: list[dict[str, Any]] = []
    for name, about in ENCODERS.items():
        ready = "give --model" if about.model else "yes"
        if about.missing:
            ready = install_command(about.extra)
        facts.append(
            {
                "name": name,
                "takes": ", ".join(f"{kind}s" for kind in about.loaders),
                "default": name in DEFAULTS.values(),
                "ready": ready,
                "missing": about.missing,
                "extra": about.extra or None,
                "size": about.size,
                "model": about.model or None,
                "summary": about.summary,
                "options": dict(about.options),
                "contains": list(about.contains),
            }
        )
    if as_json:
        say(json.dumps(facts, indent=2))
        return
    rows = [["encoder", "takes", "ready", "size", "what it is"]]
    rows += [[f["name"], f["takes"], f["ready"], f["size"], f["summary"]] for f in facts]
    say(columns(rows, prose=True))
    say("")
    for fact in facts:
        if fact["model"]:
            say(f"{fact['name']}: --model is {fact['model']}")
        for option, help_text in fact["options"].items():
            say(f"{fact['name']}: -E {option}=…  {help_text}")
        for model in fact["contains"]:
            say(f"{fact['name']}: {model}")
