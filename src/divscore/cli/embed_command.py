"""`divscore embed` and `divscore encoders`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from divscore.cli.console import progress_bar, say, warn
from divscore.cli.options import cluster_option, encoding_options, workers_option
from divscore.encoders.registry import DEFAULTS, ENCODERS
from divscore.errors import InputError
from divscore.files import refuse_url
from divscore.jobs.auditing import SKIPPED, warn_of_dividing
from divscore.jobs.cluster import ClusterEngine
from divscore.jobs.embed import EmbedResult, Journal, check_file, place_of, refuse_other_file
from divscore.jobs.embed import embed as run_embed
from divscore.jobs.encode import Encoding
from divscore.jobs.engine import Engine
from divscore.jobs.opening import open_items
from divscore.jobs.parts import PartsFolder, PartsResult, check_parts, embed_parts
from divscore.jobs.projection import Projection
from divscore.report.table import columns
from divscore.sketch.missing import Missing
from divscore.sources.items import Items

__all__ = ["embed", "encoders"]


@click.command()
@click.argument("source", metavar="SOURCE")
@click.option(
    "-o", "--out", required=True, metavar="OUT", help="OUT.arrow, a file; or a folder of parts, a file each."
)
@click.option("--column", metavar="NAME", help="Column of texts or image paths, where it is not clear.")
@workers_option
@cluster_option
@click.option(
    "--overwrite", is_flag=True, help="Replace what OUT holds of another source or by another encoder."
)
@click.option("--strict", is_flag=True, help="Stop at the first item that would be skipped.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
@encoding_options
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
    a table are kept. Stop it at any moment, even by force: the same command goes on where it was. The finished file
    appears at once and whole; items without a vector are listed in OUT.arrow.skipped.csv. Where OUT is a folder, the
    source is cut into parts, each with a file of its own; on a cluster that is the only way, and every worker must
    read SOURCE and write OUT under the same paths. The folder is then a collection for 'audit'. Where OUT holds
    vectors of another source or by another encoder, it is left as it is unless --overwrite is given.

    \b
    Examples:
      divscore embed photos/ -o photos.arrow
      divscore embed posts.csv --column text -o posts.arrow
      divscore embed photos/ -o photos.arrow --encoder vgg16 --model vgg16.safetensors --pca 300
      divscore embed posts/ --column text -o vectors/ --cluster tcp://10.0.0.5:8786
    """
    refuse_url(out, "vectors")
    single = bool(Path(out).suffix) and not out.endswith("/") and not Path(out).is_dir()
    if single and cluster:
        raise InputError(f"on a cluster every part is a file of its own; give a folder in place of {out}")
    items = open_items(source, column=column, extra=None, form=form, strict=strict)
    if single:
        check_file(Path(out), items)
    else:
        check_parts(items, out)
    fitted = _fit(encoding, items, Path(out), single)
    if single and not overwrite:
        refuse_other_file(Path(out), items, encoding)
    elif not overwrite:
        check_parts(items, out, encoding)
    if fitted is not None:
        _save(fitted, Path(out))
    if not single and items.parts:
        warn_of_dividing(items.path, items.locations, warn)
    try:
        with progress_bar(items.name, items.rows) as advance:
            done: EmbedResult
            if single:
                done = run_embed(items, out, encoding, strict=strict, overwrite=overwrite, progress=advance)
            else:
                with _engine(encoding, items, workers, cluster) as engine:
                    done = embed_parts(
                        items,
                        out,
                        encoding,
                        engine,
                        strict=strict,
                        overwrite=overwrite,
                        progress=advance,
                        on_failure=lambda reason: warn(f"left out: {reason}"),
                    )
    except KeyboardInterrupt:
        where = f"{out}.part" if single else out
        warn(f"stopped; what is finished is kept in {where}, and the same command goes on from there")
        raise click.exceptions.Exit(130) from None
    if as_json:
        facts = {
            key: getattr(done, key)
            for key in ("items", "vectors", "resumed", "several", "skipped", "listing", "parts")
            if hasattr(done, key)
        }
        facts["missing"] = [asdict(each) for each in done.missing]
        say(json.dumps({"path": done.path, "encoder": encoding.identity(items.kind), **facts}, indent=2))
    _tell(done)


def _engine(encoding: Encoding, items: Items, workers: int, cluster: str | None) -> Engine:
    if cluster:
        return ClusterEngine(cluster)
    return Engine(workers, processes=encoding.spec(items.kind).info.processes)


def _fit(encoding: Encoding, items: Items, out: Path, single: bool) -> Projection | None:
    """With --pca N: take up the projection of the same job, or else fit one, which is then to be saved."""
    if encoding.pca is None:
        return None
    saved = _projection_of(out)
    if saved.is_file() and _begun(items, out, single):
        earlier = Projection.load(saved)
        if earlier.size == encoding.pca and earlier.encoder == encoding.encoder(items.kind).identity:
            encoding.projection = earlier
            return None
    encoding.fit(items)
    return encoding.projection


def _begun(items: Items, out: Path, single: bool) -> bool:
    """Whether a job for this source is to go on, or was finished, here."""
    if not single:
        return PartsFolder(out).begun_for(place_of(items))
    header = Journal.header_of(out.with_name(f"{out.name}.part"))
    return header is not None and header.get("source") == place_of(items)


def _save(projection: Projection, out: Path) -> None:
    """Keep the projection beside the vectors, also for when the job goes on later."""
    saved = _projection_of(out)
    projection.save(saved)
    warn(f"wrote {saved}: give it to --pca wherever vectors must be comparable with these")


def _projection_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.pca.npz")


def _tell(done: EmbedResult) -> None:
    if done.replaced and isinstance(done, PartsResult):
        warn(
            f"{done.path} held vectors of another source or by another encoder; these are in their place now"
        )
    elif done.replaced:
        warn("an unfinished job for other items or with another encoder was under this name; it was not used")
    again = f" ({done.resumed:,} of the items were finished before)" if done.resumed else ""
    warn(f"wrote {done.path}: {done.vectors:,} vectors of {done.items:,} items{again}")
    lost = [f"{number:,} {SKIPPED[kind]}" for kind, number in done.skipped.items() if number]
    if lost:
        warn(f"{', '.join(lost)}: listed in {done.listing or f'{done.path}/part-*.skipped.csv'}")
    for warning in Missing.of(done.missing).warning:
        warn(f"{done.path}: {warning}")
    if done.several:
        warn(f"{done.several:,} images show more than one face")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def encoders(as_json: bool) -> None:
    """List the encoders: what each is for, what it needs, and whether it is ready.

    \b
    Example:
      divscore encoders
    """
    facts = [_facts(name) for name in ENCODERS]
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


def _facts(name: str) -> dict[str, Any]:
    about = ENCODERS[name]
    ready = (
        f"pip install 'divscore[{about.extra}]'"
        if about.missing
        else "give --model"
        if about.model
        else "yes"
    )
    return {
        "name": name,
        "takes": ", ".join(f"{kind}s" for kind in about.kinds),
        "default": name in DEFAULTS.values(),
        "ready": ready,
        "missing": about.missing,
        "extra": about.extra or None,
        "size": about.size,
        "model": about.model or None,
        "summary": about.summary,
        "options": dict(about.options),
    }
