"""Vectors from files: one block after the other, nothing loaded whole."""

from divscore.sources.block import Block, VectorSource
from divscore.sources.open import open_many, open_vectors
from divscore.sources.pool import read_pool

__all__ = ["Block", "VectorSource", "open_many", "open_vectors", "read_pool"]
