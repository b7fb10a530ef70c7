"""Passes over files: partitions in, sketches out, wherever the work is done."""

from divscore.passes.audits import audit_many
from divscore.passes.collection import Sketched, sketch_source

__all__ = ["Sketched", "audit_many", "sketch_source"]
