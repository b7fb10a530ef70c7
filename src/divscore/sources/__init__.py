"""Vectors and items from files: one block after the other, nothing loaded whole."""

from divscore.sources.labelled import read_pool
from divscore.sources.open import open_many, open_vectors
from divscore.sources.table import Block, Table

__all__ = ["Block", "Table", "open_many", "open_vectors", "read_pool"]
