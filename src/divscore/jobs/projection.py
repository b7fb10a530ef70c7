"""Projection: principal components, fitted once and shared by control set and collections."""

from __future__ import annotations

import hashlib
import os
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.blas import one_thread
from divscore.errors import FileError, InputError, MismatchError
from divscore.files import PathLike, atomic_file

FORMAT = "divscore.projection/1"


@dataclass(frozen=True)
class Projection:
    """x ↦ (x − mean) · components: the paper reduces VGG-16's 4,096 numbers to 300 this way.

    `encoder` is the identity of what made the vectors it was fitted on.
    """

    mean: NDArray[np.float64]  # (d,)
    components: NDArray[np.float64]  # (d, size), columns of length one
    encoder: str

    @property
    def size(self) -> int:
        """Numbers that are left of a vector."""
        return int(self.components.shape[1])

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the numbers."""
        state = hashlib.sha256(f"{FORMAT} {self.encoder} {self.components.shape}".encode())
        for array in (self.mean, self.components):
            state.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
        return state.hexdigest()

    @property
    def identity(self) -> str:
        """What vectors that went through it are called."""
        return f"{self.encoder} pca={self.size}:{self.digest[:16]}"

    @classmethod
    @one_thread
    def fit(cls, vectors: NDArray[Any], size: int, encoder: str) -> Projection:
        """Find the `size` directions along which vectors (n, d) vary most."""
        count, dimension = vectors.shape
        if size >= dimension:
            raise InputError(
                f"--pca {size} would not shorten vectors of {dimension} numbers; give a smaller number"
            )
        if count <= size:
            raise InputError(
                f"--pca {size} needs more than {size} items to be fitted on, there are {count}; give a smaller number"
            )
        rows = np.asarray(vectors, dtype=np.float64)
        mean = rows.mean(axis=0)
        rows = rows - mean
        # The smaller of the two square matrices has the same spectrum.
        if count < dimension:
            values, left = np.linalg.eigh(rows @ rows.T)
            axes = rows.T @ left[:, ::-1][:, :size]
        else:
            values, right = np.linalg.eigh(rows.T @ rows)
            axes = right[:, ::-1][:, :size]
        if values[::-1][size - 1] <= values[-1] * 1e-12:
            rank = int((values > values[-1] * 1e-12).sum())
            raise InputError(f"--pca {size}: the items vary in {rank} directions only; give at most {rank}")
        axes = axes / np.linalg.norm(axes, axis=0)
        # The sign of an axis is arbitrary; fixing it gives the same vectors on every machine.
        largest = axes[np.abs(axes).argmax(axis=0), np.arange(size)]
        return cls(mean, axes * np.sign(largest), encoder)

    @one_thread
    def apply(self, vectors: NDArray[Any]) -> NDArray[np.float32]:
        """Shorten vectors."""
        return ((vectors - self.mean) @ self.components).astype(np.float32)

    def check(self, encoder: str) -> None:
        """Refuse vectors of another encoder."""
        if encoder != self.encoder:
            raise MismatchError(
                f"the projection was fitted on vectors of '{self.encoder}', not of '{encoder}'; use the same "
                "encoder, or fit it again with --pca N"
            )

    def save(self, path: PathLike) -> None:
        """Write as .npz."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(target) as temporary, open(temporary, "wb") as stream:
            texts: dict[str, Any] = {"format": FORMAT, "encoder": self.encoder}
            np.savez(stream, **texts, mean=self.mean, components=self.components)

    @classmethod
    def load(cls, path: PathLike) -> Projection:
        """Read what `save` wrote."""
        try:
            with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
                if str(file["format"]) != FORMAT:
                    raise ValueError(f"format {file['format']}")
                mean, components = file["mean"], file["components"]
                if components.ndim != 2 or mean.shape != components.shape[:1]:
                    raise ValueError("shapes that do not fit")
                return cls(mean, components, str(file["encoder"]))
        except FileNotFoundError as error:
            raise FileError(
                f"{os.fspath(path)} does not exist; expected a projection saved by --pca"
            ) from error
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise FileError(
                f"{os.fspath(path)} is not a projection saved by --pca ({error}); give the file that 'embed --pca N' "
                "or 'control select --pca N' wrote"
            ) from error
