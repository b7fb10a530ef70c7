"""Publication: everything that is said about a control set in public, before it is put into words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from divscore.audit.trust import Coverage, control_facts, coverage, uncovered_by_chance
from divscore.control.controlset import ControlSet
from divscore.control.theory import gamma_control
from divscore.errors import InputError
from divscore.estimators.checks import SEPARABLE_P, separation
from divscore.paper.comparison import Setup, compare, usable_labels
from divscore.publishing.about import About
from divscore.sketch.scorer import scorer_for
from divscore.text import printable

__all__ = [
    "REPETITIONS",
    "Measured",
    "NotMeasured",
    "Publication",
    "Soundness",
    "group_numbers",
    "measure",
    "measured_from",
    "soundness",
    "today",
]


# How well a control set measures: its error and coverage on collections whose composition is known.

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


# What is sound about a control set and what should be mended before use.

FEW_LABELS = 10
FAR_MORE = 0.1  # left out beyond what chance leaves out


@dataclass(frozen=True)
class Soundness:
    """γ and γ^(T) of the paper, how well the groups can be told apart, and what is wrong.

    `gamma_control` is measured on the representatives themselves, `gamma_rest` on the other examples.
    """

    gamma: float
    gamma_control: float
    gamma_rest: float | None
    auc: float
    separability_p: float
    parts: tuple[Coverage, ...]
    problems: tuple[str, ...]


def soundness(control: ControlSet) -> Soundness:
    """Measure."""
    facts, apart = control_facts(control), separation(scorer_for(control))
    problems = []
    if apart.p_value > SEPARABLE_P:
        problems.append(
            f"the groups cannot be told apart (p = {apart.p_value:.2g}); every audit will say 'cannot tell'"
        )
    problems += [
        f"only {n} labelled examples of '{printable(name)}'; at least {FEW_LABELS} are wanted"
        for name, n in control.counts.items()
        if n < FEW_LABELS
    ]
    usual, parts = uncovered_by_chance(control), coverage(control)
    problems += [
        f"{part.uncovered:.0%} of '{printable(part.group)}' lies far from every representative, where random "
        f"ones leave out {usual[part.group]:.0%}: look at those examples, and add representatives by hand "
        "or choose with a larger --alpha"
        for part in parts
        if part.uncovered > usual[part.group] + FAR_MORE
    ]
    return Soundness(
        facts.separability.gamma,
        facts.reference.gamma,
        _gamma_rest(control),
        apart.auc,
        apart.p_value,
        parts,
        tuple(problems),
    )


def _gamma_rest(control: ControlSet) -> float | None:
    """γ^(T) on the examples that are not representatives, where every group has some."""
    rest = control.labels[~control.representative]
    if len(set(rest.tolist())) < len(control.groups):
        return None
    return gamma_control(control)


@dataclass(frozen=True)
class Publication:
    """One edition of a control set: what it holds, what people know of it and what was measured on it."""

    control: ControlSet
    about: About
    sound: Soundness
    measured: Measured | NotMeasured
    edition: int = 1
    day: str = ""
    first_day: str = ""

    @property
    def title(self) -> str:
        """Its name."""
        return self.about.title or f"Control set for {self.control.attribute}"

    @property
    def summary(self) -> str:
        """What it is, in one sentence."""
        counts = ", ".join(f"{n} {name}" for name, n in self.control.counts.items())
        return f"{len(self.control)} labelled examples of {self.control.attribute} ({counts}), for audits."

    @property
    def groups(self) -> dict[str, dict[str, int]]:
        """Numbers of examples and of representatives in each group."""
        return group_numbers(self.control)

    @property
    def vectors_warning(self) -> str:
        """What the vectors give away of the items."""
        if (self.control.encoder or "").startswith("faces/"):
            return (
                "The vectors are face descriptors: whoever has another photograph of one of these people can recognise "
                "them by it. In many countries such numbers are personal data under special protection."
            )
        return "A vector tells something of its item: whoever has the item can recognise it, and may guess at others."

    @property
    def lost(self) -> str:
        """Labelled examples that are not in it, because they could not be encoded; empty if none is known."""
        left = self.control.skipped
        told = ", ".join(f"{left[name]} of {name}" for name in left)
        return f"Labelled, but not in the set because they could not be encoded: {told}." if told else ""

    @property
    def cautions(self) -> list[str]:
        """What speaks against using it as it is."""
        found = [f"{problem[0].upper()}{problem[1:]}." for problem in self.sound.problems]
        if self.control.hand_picked:
            found.append(
                "The examples were picked by hand, not drawn at random; results will carry a warning."
            )
        if self.lost:
            found.append(self.lost)
        return found


def group_numbers(control: ControlSet) -> dict[str, dict[str, int]]:
    """Numbers of examples and of representatives in each group."""
    return {
        name: {"labelled": n, "representatives": len(control.rows(at, representatives=True))}
        for at, (name, n) in enumerate(control.counts.items())
    }


def today() -> str:
    """The date in UTC."""
    return datetime.now(UTC).date().isoformat()
