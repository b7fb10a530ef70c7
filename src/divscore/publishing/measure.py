"""How well a control set measures: its error and coverage on collections whose composition is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from divscore.control.controlset import ControlSet
from divscore.errors import InputError
from divscore.paper.comparison import Setup, compare, usable_labels

__all__ = ["REPETITIONS", "Measured", "NotMeasured", "measure", "measured_from"]

REPETITIONS = 20
# Representatives that `compare` chooses in the same way; only then does its figure speak of these.
SAME_CHOICE = {"adaptive, α = 1": "adaptive", "adaptive, α = 0.1": "adaptive-0.1", "dpp": "dpp"}


COUNTS = {"examples", "labels", "repetitions", "answers", "smallest", "largest", "cannot_tell"}
MAY_BE_NONE = {"error_se", "coverage_se", "divscore_error"}
MOST = 2**63


@dataclass(frozen=True)
class NotMeasured:
    """Why there are no figures."""

    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"not_measured": self.reason}

    @property
    def sentences(self) -> str:
        """What to tell a reader."""
        return f"Error and coverage were not measured: {self.reason}."


@dataclass(frozen=True)
class Measured:
    """Mean absolute error of the disparity, and how often the 95% interval held the truth.

    Of `examples` labelled ones, `labels` were used as the control set and the others drawn into collections of
    every composition, `repetitions` times. `divscore_error` is that of the paper's score, cut to [−1, 1].
    """

    examples: int
    labels: int
    repetitions: int
    answers: int
    smallest: int
    largest: int
    error: float
    error_se: float | None
    coverage: float
    coverage_se: float | None
    width: float
    cannot_tell: int
    seed: int
    divscore_error: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "protocol": "artificial prevalence on splits of the examples",
            "estimator": "likelihood",
            **{k: round(v, 6) if isinstance(v, float) else v for k, v in asdict(self).items()},
        }

    @property
    def sentences(self) -> str:
        """What to tell a reader."""
        items = str(self.largest) if self.smallest == self.largest else f"{self.smallest} to {self.largest}"
        text = (
            f"Measured on the examples themselves: {self.labels} of the {self.examples} were used as the control set, "
            f"the others drawn into {self.answers} collections of {items} items of every composition "
            f"({self.repetitions} splits). The estimated disparity was off by {self.error:.3f}"
            f"{_plus_minus(self.error_se)} on average; the 95% interval, {self.width:.2f} wide on average, held the "
            f"truth in {self.coverage:.0%}{_plus_minus(self.coverage_se, percent=True)} of cases."
        )
        if self.cannot_tell:
            text += f" In {self.cannot_tell} of {self.answers} cases the answer was 'cannot tell'."
        if self.divscore_error is not None:
            text += (
                " The paper's DivScore, with representatives chosen in the same way, was off by "
                f"{self.divscore_error:.3f}."
            )
        return (
            f"{text} Audits use all {self.examples}, so they should do no worse on collections of the same kind; the "
            "figures say nothing of collections of another kind."
        )


def measure(
    control: ControlSet,
    *,
    repetitions: int = REPETITIONS,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Measured | NotMeasured:
    """Measure on repeated splits of the labelled examples, as `compare` does."""
    try:
        labels = max(usable_labels(control, None))
        chosen = int(control.representative.sum())
        same = SAME_CHOICE.get(control.method, "")
        only = ("likelihood", same) if same else ("likelihood",)
        setup = Setup((labels,), repetitions=repetitions, size=max(4, chosen), seed=seed, only=only)
        found = compare(control, setup, progress=progress)
    except InputError as error:
        return NotMeasured(str(error))
    by_method = {row.method: row.summary for row in found.rows}
    ours, paper = by_method["likelihood"], by_method.get(same)
    smallest, largest = found.items
    if ours.coverage is None or ours.width is None:
        return NotMeasured("the estimator gave no interval")
    return Measured(
        examples=len(control),
        labels=labels,
        repetitions=repetitions,
        answers=ours.answers,
        smallest=smallest,
        largest=largest,
        error=ours.mae,
        error_se=ours.mae_se,
        coverage=ours.coverage,
        coverage_se=ours.coverage_se,
        width=ours.width,
        cannot_tell=ours.cannot_tell,
        seed=seed,
        divscore_error=None if paper is None else paper.clipped,
    )


def measured_from(values: object) -> Measured | NotMeasured:
    """Read what `to_dict` wrote; an error says what is wrong with it, since anybody may have edited it."""
    if not isinstance(values, dict):
        raise InputError("figures that cannot be read: expected an object")
    if "not_measured" in values:
        reason = values["not_measured"]
        if not isinstance(reason, str):
            raise InputError("figures that cannot be read: 'not_measured' holds no text")
        return NotMeasured(reason)
    found = {name: value for name, value in values.items() if name not in {"protocol", "estimator"}}
    wrong = [name for name, value in found.items() if not _fits(name, value)]
    if wrong:
        raise InputError(f"figures that cannot be read: '{wrong[0]}'")
    try:
        return Measured(**found)
    except TypeError as error:
        raise InputError(f"figures that cannot be read: {error}") from error


def _fits(name: str, value: object) -> bool:
    """Whether a figure is one that `measure` could have given."""
    if value is None:
        return name in MAY_BE_NONE
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if name == "seed":
        return isinstance(value, int) and abs(value) < MOST
    if name in COUNTS:
        return isinstance(value, int) and 0 <= value < MOST
    return 0 <= value <= (1 if name == "coverage" else 2)


def _plus_minus(error: float | None, *, percent: bool = False) -> str:
    if error is None:
        return ""
    return f" (± {100 * error:.1f} points)" if percent else f" (± {error:.3f})"
