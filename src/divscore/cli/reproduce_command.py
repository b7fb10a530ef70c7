"""`divscore reproduce`: the paper's experiments on its data sets."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from divscore.cli.console import open_output, progress_bar, say, warn
from divscore.cli.options import encoding_options, seed_option, workers_option
from divscore.errors import InputError
from divscore.jobs.encode import Encoding
from divscore.paper.results import FIGURES, PAGES, Results, write_results

__all__ = ["reproduce"]

EACH = 20_000  # tweets of each dialect, of 1.2 million: twenty times the size of a collection
# Options that do not change the results, or that stand elsewhere in the command.
UNTOLD = {"data", "out", "workers", "cache", "no_cache"}


@click.command()
@click.argument("experiment", type=click.Choice(["ppb", "celeba", "twitteraae"]))
@click.option(
    "--data", required=True, metavar="PATH", help="Your copy of the data set, or vectors made from it."
)
@click.option("--out", metavar="DIR", help="Where to write.  [default: results/EXPERIMENT]")
@click.option(
    "--repetitions",
    type=click.IntRange(1),
    show_default="100 for ppb, else 25",
    help="Number of random splits.",
)
@seed_option
@click.option(
    "--labels",
    type=click.IntRange(10),
    show_default="500 for celeba, else 200",
    help="Labelled examples, |U|.",
)
@click.option("--size", type=click.IntRange(4), help="Size of a control set, |T|.  [default: 50]")
@click.option(
    "--alpha",
    type=click.FloatRange(0),
    show_default="0.1 for twitteraae, else 1",
    help="Weight of redundancy in adaptive control sets.",
)
@click.option(
    "--k", type=click.IntRange(1), help="Items that self-training labels in each round.  [default: 5]"
)
@click.option(
    "--collection-size",
    "collection",
    type=click.IntRange(20),
    show_default="1000 for twitteraae, else 500",
    help="Items of a drawn collection, |S|, or as many as the groups allow.",
)
@click.option("--vectors", metavar="FILE", help="celeba: vectors of its images, made with 'divscore embed'.")
@click.option(
    "--each", type=click.IntRange(1), help=f"twitteraae: tweets of each dialect to read.  [default: {EACH}]"
)
@workers_option
@encoding_options
def reproduce(
    experiment: str,
    data: str,
    encoding: Encoding,
    out: str | None,
    vectors: str | None,
    each: int | None,
    workers: int,
    form: str,
    **asked: Any,
) -> None:
    """Regenerate the paper's figures and claims from its data, with our estimators on the same draws.

    Writes RESULTS.md, results.json, tables (CSV) and figures (SVG, PNG).

    \b
    ppb         PPB-2017: folder of portraits, its metadata, ppbFeatures.npy or a table of vectors
    celeba      CelebA: its folder, with list_attr_celeba.txt and list_eval_partition.txt
    twitteraae  TwitterAAE: twitteraae_all, its folder or archive; or a table with the columns text, aa and white.
                --model FILE uses word vectors, as the paper does, instead of ngrams

    \b
    Examples:
      divscore reproduce ppb --data ppb2017.parquet
      divscore reproduce ppb --data PPB-2017/ --encoder faces --repetitions 10
    """
    for name, value, only in (("--vectors", vectors, "celeba"), ("--each", each, "twitteraae")):
        if value is not None and experiment != only:
            raise InputError(f"{name} is for '{only}', not for '{experiment}'; leave it out")
    chosen = {name: value for name, value in asked.items() if value is not None}
    folder = out or os.path.join("results", experiment)
    with open_output(folder, PAGES, FIGURES) as place:
        if experiment == "ppb":
            results = _ppb(data, encoding, chosen, workers)
        elif experiment == "celeba":
            results = _celeba(data, encoding, chosen, workers, vectors)
        else:
            results = _twitteraae(data, encoding, chosen, workers, each)
        results = replace(results, command=_command(experiment))
        written = write_results(results, place)
    assert results.short is not None
    say(results.short.markdown())
    warn(f"wrote {len(written)} files to {place}; read {place / 'RESULTS.md'}")


def _ppb(path: str, encoding: Encoding, asked: dict[str, Any], workers: int) -> Results:
    from divscore.paper import ppb
    from divscore.paper.ppb_data import load_ppb

    settings = replace(ppb.DEFAULTS, **asked)
    with progress_bar("portraits", None) as advance:
        data = load_ppb(path, encoding, advance)
    with progress_bar("repetitions × attributes", ppb.tasks(settings)) as advance:
        return ppb.reproduce(data, settings, workers=workers, progress=advance)


def _celeba(
    path: str, encoding: Encoding, asked: dict[str, Any], workers: int, vectors: str | None
) -> Results:
    from divscore.paper import celeba
    from divscore.paper.celeba_data import open_celeba

    settings = replace(celeba.DEFAULTS, **asked)
    opened = open_celeba(path)
    rows = opened.rows("test")
    with progress_bar("pictures", len(rows)) as advance:
        data = opened.load(rows, vectors, encoding, advance)
    with progress_bar("repetitions", celeba.tasks(settings)) as advance:
        return celeba.reproduce(data, settings, workers=workers, progress=advance)


def _twitteraae(
    path: str, encoding: Encoding, asked: dict[str, Any], workers: int, each: int | None
) -> Results:
    from divscore.paper import twitteraae
    from divscore.paper.twitteraae_data import TABLES, load_twitteraae

    settings = replace(twitteraae.DEFAULTS, **asked)
    stand_in = Path(path).suffix.lower() in TABLES
    number = each if stand_in else each or EACH
    if encoding.name is None and encoding.model is not None:
        encoding.name = "word2vec"  # as in the paper
    with progress_bar("tweets", None) as advance:
        data = load_twitteraae(path, encoding, each=number, seed=settings.seed, progress=advance)
    if data.unreadable:
        warn(f"{path}: {data.unreadable:,} lines do not have the format of the release and were skipped")
    with progress_bar("repetitions", twitteraae.tasks(settings)) as advance:
        return twitteraae.reproduce(data, settings, workers=workers, progress=advance, stand_in=stand_in)


def _command(experiment: str) -> str:
    """The command as it was typed, with the names of files instead of their paths."""
    context = click.get_current_context()
    words = [f"divscore reproduce {experiment} --data PATH"]
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if not isinstance(option, click.Option) or source is not click.core.ParameterSource.COMMANDLINE:
            continue
        if option.name in UNTOLD:
            continue
        values = context.params[option.name or ""]
        for value in values if option.multiple else [values]:
            text = Path(value).name if option.name in {"model", "vectors", "pca"} else str(value)
            words.append(f"{option.opts[-1]} {text}")
    return " ".join(words)
