"""Whether the collections of a pass have a sample of their own for their intervals, or share one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from divscore.errors import DivscoreError, InputError
from divscore.jobs.partial import coded
from divscore.sketch.scorer import Scorer
from divscore.sketch.state import REPLICATE_ITEMS
from divscore.sources.partition import Partition
from divscore.sources.places import WHOLE

__all__ = ["SAMPLES", "share_one"]

SAMPLES = ("auto", "own", "shared")
FEWEST_ROWS = 200_000  # below, samples of their own cost two seconds at most
LOOKED_AT = 3  # parts of which the first may be unreadable


def share_one(samples: str, by: str | None, scorer: Scorer, partitions: Sequence[Partition]) -> bool:
    """Decide it from the files alone, before the work begins.

    "auto" shares where samples would spare nothing: in many rows, with fewer of a collection in the first block than
    its sample may have.
    """
    if samples not in SAMPLES:
        raise InputError(f"samples must be one of {', '.join(SAMPLES)}, not {samples!r}")
    if by is None or samples == "own":
        return False
    if scorer.groups > 2:
        if samples == "shared":
            raise InputError(f"collections can share a sample with two groups only, not {scorer.groups}")
        return False
    if samples == "shared":
        return True
    # Rows of text are not counted: to parse them takes far longer than samples do.
    if sum(each.rows or 0 for each in partitions if each.location.suffix not in WHOLE) < FEWEST_ROWS:
        return False
    for partition in partitions[:LOOKED_AT]:
        try:
            block = next(iter(partition.open()), None)
        except DivscoreError:
            continue  # it will be named when it is its turn
        finally:
            partition.location.release()
        if block is not None and len(block.vectors):
            present = len(np.unique(coded(block.values[by])[1]))
            return len(block.vectors) < REPLICATE_ITEMS * present
    return False
