"""Write everything under docs/results/: PPB-2017, and TwitterAAE's protocol on a stand-in.

    python benchmarks/published.py --data FOLDER

The word vectors are trained here, on the texts of all the tweets and without any label (skip-gram, 100 numbers a word),
in the place of those that the paper took ready-made; this needs gensim (pip install gensim). PNG figures and the
single answers are not kept: the SVG figures, the tables and results.json hold what the pages say.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import portraits
from record import HERE, KEPT_TIMES, keep_times

from divscore.paper.results import PAGES as WRITTEN
from divscore.paper.results import ResultTable

RESULTS = HERE.parent / "docs" / "results"
PORTRAITS, TWEETS = portraits.DATA.name, "tweets_dialect.parquet"
NUMBERS, EPOCHS = 100, 5


@dataclass(frozen=True)
class Page:
    """One folder of results: which experiment on which file, and what the index says of it."""

    folder: str
    experiment: str
    data: str
    says: str
    word_vectors: bool = False


PAGES = (
    Page("ppb", "ppb", PORTRAITS, "PPB-2017 with the authors' features; every figure and claim, complete"),
    Page(
        "tweets-ngrams",
        "twitteraae",
        TWEETS,
        "the protocol of TwitterAAE on **substitute data**: tweets of another corpus, with posteriors from "
        "TwitterAAE's model, encoded with `ngrams`",
    ),
    Page(
        "tweets-word2vec",
        "twitteraae",
        TWEETS,
        "the same substitute data, encoded as in the paper with the mean of word vectors; the word vectors were "
        "trained on the texts of the same corpus, without its labels",
        word_vectors=True,
    ),
)


def main() -> None:
    options = argparse.ArgumentParser(prog="benchmarks/published.py", description=__doc__.partition("\n")[0])
    options.add_argument(
        "--data", type=Path, default=portraits.DATA.parent, help=f"has {PORTRAITS}, {TWEETS}"
    )
    options.add_argument("--only", nargs="+", choices=[p.folder for p in PAGES], help="which pages")
    options.add_argument("--repetitions", type=int, help="fewer than the paper, to try it out")
    options.add_argument("--out", type=Path, default=RESULTS)
    keep_times(options)
    found = options.parse_args()
    for page in PAGES:
        if not found.only or page.folder in found.only:
            print(f"\n== {page.folder}", file=sys.stderr, flush=True)
            out = found.out / page.folder
            stored = json.loads((out / WRITTEN[1]).read_text(encoding="utf-8")) if found.keep_times else None
            _make(page, found.data / page.data, out, found.repetitions)
            if stored:
                _put_back(out, stored)
    if not found.only:
        (found.out / "README.md").write_text(_index(), encoding="utf-8")


def _make(page: Page, data: Path, out: Path, repetitions: int | None) -> None:
    command = [sys.executable, "-m", "divscore", "reproduce", page.experiment, "--data", str(data)]
    command += ["--out", str(out)]
    if repetitions is not None:
        command += ["--repetitions", str(repetitions)]
    with tempfile.TemporaryDirectory() as folder:
        if page.word_vectors:
            model = Path(folder) / "tweets.vec"
            _train(data, model)
            command += ["--model", str(model)]
        subprocess.run(command, check=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    for left_out in (out / "answers.csv", *(out / "figures").glob("*.png")):
        left_out.unlink()


def _put_back(out: Path, stored: dict[str, Any]) -> None:
    """Replace the times by those of an earlier run."""
    text, document = ((out / name).read_text(encoding="utf-8") for name in WRITTEN)
    fresh = json.loads(document)
    ours, theirs = (_times(each) for each in (fresh, stored))
    about = f"{ours.about} {KEPT_TIMES[0].upper()}{KEPT_TIMES[1:]}."
    fresh["tables"]["time"] |= {"rows": theirs.rows, "about": about}
    fresh["run"] = stored["run"]
    text = text.replace(ours.markdown(), theirs.markdown()).replace(ours.about, about)
    document = json.dumps(fresh, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    for name, content in zip((*WRITTEN, "time.csv"), (text, document, theirs.csv()), strict=True):
        (out / name).write_text(content, encoding="utf-8")


def _times(document: dict[str, Any]) -> ResultTable:
    table = document["tables"]["time"]
    return ResultTable("time", table["title"], table["columns"], table["rows"], about=table["about"])


def _train(data: Path, model: Path) -> None:
    """Word vectors from texts alone; one thread and fixed hashes, so that they are the same every time."""
    import pyarrow.parquet as pq
    from gensim.models import Word2Vec

    from divscore.encoders.word2vec import clean, words

    texts = pq.read_table(data, columns=["text"])["text"].to_pylist()
    sentences = [words(clean(text).lower()) for text in texts if text]
    trained = Word2Vec(
        sentences,
        vector_size=NUMBERS,
        window=5,
        min_count=3,
        sg=1,
        epochs=EPOCHS,
        seed=1,
        workers=1,
        hashfxn=lambda word: zlib.crc32(word.encode()),
    )
    trained.wv.save_word2vec_format(str(model))


def _index() -> str:
    lines = [f"- [{page.folder}]({page.folder}/RESULTS.md): {page.says}." for page in PAGES]
    return "\n".join(
        [
            "# Results",
            "",
            "The experiments of the paper, with our estimators on the same draws. No number is typed by hand: "
            "`python benchmarks/published.py --data FOLDER` re-creates everything.",
            "",
            *lines,
            "",
            "CelebA cannot be redistributed: `divscore reproduce celeba --data FOLDER` runs on your copy.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
