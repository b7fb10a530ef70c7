"""How many successes chance leaves plausible, for tests that repeat an estimate with seeded draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray
from divscore.sketch.sketch import Sketch


def fewest(n: int, level: float) -> int:
    """Fewest successes in n trials that a true rate of `level` leaves plausible (one in a thousand)."""
    return int(stats.binom.ppf(0.001, n, level))


def most(n: int, level: float) -> int:
    """Most successes in n trials that a true rate of `level` leaves plausible (one in a thousand)."""
    return int(stats.binom.ppf(0.999, n, level))


def uniform_p(counts: Sequence[int], probability: float) -> float:
    """p-value that each item was drawn with this probability, from how often each was drawn without replacement."""
    expected = np.mean(counts)
    distance = sum((count - expected) ** 2 for count in counts) / (expected * (1 - probability))
    return float(stats.chi2.sf(distance * (len(counts) - 1) / len(counts), len(counts) - 1))


def sketch_of(rows: FloatArray, control: ControlSet) -> Sketch:
    sketch = Sketch(control)
    sketch.add(rows)
    return sketch
