"""Vectors and items from files: one block after the other, nothing loaded whole."""

from divscore.sources.labelled import read_pool
from divscore.sources.open import open_many, open_vectors
from divscore.sources.table import Block, VectorSource

__all__ = ["Block", "VectorSource", "open_many", "open_vectors", "read_pool"]
