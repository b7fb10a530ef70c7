"""Passes over files: partitions in, sketches out, wherever the work is done."""

from divscore.passes.collection import Failure, Sketched, sketch_source

__all__ = ["Failure", "Sketched", "sketch_source"]
