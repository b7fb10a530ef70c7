"""`divscore reproduce`: the paper's experiments on its data sets."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from divscore.cli import options as opt
from divscore.cli.console import open_output, progress_bar, say, warn
from divscore.errors import InputError
from divscore.jobs.encode import Encoding
from divscore.paper.experiment import reproduce as run_experiment
from divscore.paper.results import FIGURES, PAGES, write_results

EACH = 20_000  # tweets of each dialect, of 1.2 million: twenty times the size of a collection
ITEMS = {"ppb": "portraits", "celeba": "pictures", "twitteraae": "tweets"}
# Options that do not change the results, or that stand elsewhere in the command.
NOT_REPEATED = {"data", "out", "workers", "cache", "no_cache"}


@click.command()
@click.argument("experiment", type=click.Choice(["ppb", "celeba", "twitteraae"]))
@opt.path("--data", "PATH", "Your copy of the data set, or vectors made from it.", required=True)
@opt.path("--out", "DIR", "Where to write.  [default: results/EXPERIMENT]")
@opt.number("--repetitions", 1, "Number of random splits.", show_default="100 for ppb, else 25")
@opt.seed
@opt.number("--labels", 10, "Labelled examples, |U|.", show_default="500 for celeba, else 200")
@opt.number("--size", 4, "Size of a control set, |T|.  [default: 50]")
@click.option(
    "--alpha",
    type=click.FloatRange(0),
    show_default="0.1 for twitteraae, else 1",
    help="Weight of redundancy in adaptive control sets.",
)
@opt.number("--k", 1, "Items that self-training labels in each round.  [default: 5]")
@opt.number(
    "--collection-size collection",
    20,
    "Items of a drawn collection, |S|, or as many as the groups allow.",
    show_default="1000 for twitteraae, else 500",
)
@opt.path("--vectors", "FILE", "celeba: vectors of its images, made with 'divscore embed'.")
@opt.number("--each", 1, f"twitteraae: tweets of each dialect to read.  [default: {EACH}]")
@opt.workers
@opt.encoding_options
def reproduce(
    experiment: str,
    data: str,
    encoding: Encoding,
    out: str | None,
    vectors: str | None,
    each: int | None,
    workers: int,
    form: str,
    **options: Any,
) -> None:
    """Regenerate the paper's figures and claims from its data, with our estimators on the same draws.

    Writes RESULTS.md, results.json, tables (CSV) and figures (SVG, PNG).

    \b
    ppb         PPB-2017: folder of portraits, its metadata, ppbFeatures.npy or a table of vectors
    celeba      CelebA: its folder, with list_attr_celeba.txt and list_eval_partition.txt
    twitteraae  TwitterAAE: twitteraae_all, its folder or archive; or a table with the columns text, aa and white.
                The default encoder is ngrams, as in our published results; --model FILE uses word vectors, as the
                paper does

    \b
    Examples:
      divscore reproduce ppb --data ppb2017.parquet
      divscore reproduce ppb --data PPB-2017/ --encoder faces --repetitions 10
    """
    for name, value, only in (("--vectors", vectors, "celeba"), ("--each", each, "twitteraae")):
        if value is not None and experiment != only:
            raise InputError(f"{name} is for '{only}', not for '{experiment}'; leave it out")
    module = import_module(f"divscore.paper.{experiment}")
    chosen = {name: value for name, value in options.items() if value is not None}
    settings = replace(module.EXPERIMENT.defaults, **chosen)
    loading: dict[str, Any] = {"vectors": vectors} if experiment == "celeba" else {}
    if experiment == "twitteraae":
        is_table = Path(data).suffix.lower() in module.TABLES
        loading = {"each": each if is_table else each or EACH, "seed": settings.seed}
        if encoding.name is None:  # word vectors as in the paper, if there are any
            encoding.name = module.ENCODER if encoding.model is None else "word2vec"
    with open_output(out or os.path.join("results", experiment), PAGES, FIGURES) as place:
        with progress_bar(ITEMS[experiment], None) as advance:
            items = getattr(module, f"load_{experiment}")(data, encoding, **loading, progress=advance)
        if items.unreadable:
            warn(f"{data}: {items.unreadable:,} lines do not have the format of the release and were skipped")
        steps = settings.repetitions * len(module.EXPERIMENT.attributes)
        with progress_bar("repetitions", steps) as advance:
            results = run_experiment(module.EXPERIMENT, items, settings, workers=workers, progress=advance)
        results = replace(results, command=_command(experiment))
        written = write_results(results, place)
    assert results.short is not None
    say(results.short.markdown())
    warn(f"wrote {len(written)} files to {place}; read {place / 'RESULTS.md'}")


def _command(experiment: str) -> str:
    """The command as it was typed, with the names of files instead of their paths."""
    context = click.get_current_context()
    words = [f"divscore reproduce {experiment} --data PATH"]
    for option in context.command.params:
        name = option.name or ""
        typed = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if not isinstance(option, click.Option) or not typed or name in NOT_REPEATED:
            continue
        values = context.params[name]
        for value in values if option.multiple else [values]:
            text = Path(value).name if name in {"model", "vectors", "pca"} else str(value)
            words.append(f"{option.opts[-1]} {text}")
    return " ".join(words)
