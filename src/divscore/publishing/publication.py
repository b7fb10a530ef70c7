"""Publication: all facts about a control set that are published, before they are put into words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import msgspec

from divscore.audit.trust import Coverage, control_facts, coverage, uncovered_by_chance
from divscore.control.controlset import ControlSet
from divscore.control.theory import gamma_control
from divscore.errors import InputError
from divscore.estimators.checks import clusters, separation
from divscore.paper.comparison import Setup, compare, usable_labels
from divscore.publishing.about import About
from divscore.sketch.scorer import scorer_for
from divscore.text import joined, printable

REPETITIONS = 20
# Methods of choosing representatives for which `compare` can measure DivScore's error.
COMPARED = {"adaptive, α = 1": "adaptive", "adaptive, α = 0.1": "adaptive-0.1", "dpp": "dpp"}
FEW_LABELS = 10
FAR_MORE = 0.1  # of a group, far from every representative, beyond what random representatives give

Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Number = Annotated[float, msgspec.Meta(ge=0, le=2)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


@dataclass(frozen=True)
class NotMeasured:
    """Why there are no figures."""

    not_measured: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @property
    def sentences(self) -> str:
        """The text for a reader."""
        return f"Error and coverage were not measured: {self.not_measured}."


@dataclass(frozen=True)
class Measured:
    """Mean absolute error of the disparity, and how often the 95% interval contained the true value.

    Of the labelled `examples`, `labels` were used as the control set and the others drawn into collections of
    every composition, `repetitions` times. `divscore_error` is the error of the paper's score, clipped to [−1, 1].
    """

    examples: Count
    labels: Count
    repetitions: Count
    answers: Count
    smallest: Count
    largest: Count
    error: Number
    error_se: Number | None
    coverage: Share
    coverage_se: Number | None
    width: Number
    cannot_tell: Count
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    divscore_error: Number | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "protocol": "artificial prevalence on splits of the examples",
            "estimator": "likelihood",
            **{k: round(v, 6) if isinstance(v, float) else v for k, v in asdict(self).items()},
        }

    @property
    def sentences(self) -> str:
        """The text for a reader."""
        items = str(self.largest) if self.smallest == self.largest else f"{self.smallest} to {self.largest}"
        error_se = "" if self.error_se is None else f" (± {self.error_se:.3f})"
        coverage_se = "" if self.coverage_se is None else f" (± {100 * self.coverage_se:.1f} points)"
        text = (
            f"Measured on the examples themselves: {self.labels} of the {self.examples} were used as the control set, "
            f"the others were drawn into {self.answers} collections of {items} items of every composition "
            f"({self.repetitions} splits). The estimated disparity was off by {self.error:.3f}{error_se} on average. "
            f"The 95% interval was {self.width:.2f} wide on average and contained the true value in "
            f"{self.coverage:.0%}{coverage_se} of cases."
        )
        if self.cannot_tell:
            text += f" {self.cannot_tell} of {self.answers} results were inconclusive."
        if self.divscore_error is not None:
            text += (
                " The paper's DivScore, with representatives chosen in the same way, was off by "
                f"{self.divscore_error:.3f}."
            )
        return (
            f"{text} Audits use all {self.examples} examples, so they should do no worse on collections of the same "
            "kind; the figures say nothing about other kinds of collections."
        )


def measure(
    control: ControlSet,
    *,
    repetitions: int = REPETITIONS,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Measured | NotMeasured:
    """Measure error and coverage on repeated splits of the labelled examples, as `compare` does."""
    method = COMPARED.get(control.method, "")
    try:
        labels = max(usable_labels(control, None))
        size = max(4, int(control.representative.sum()))
        only = ("likelihood", method) if method else ("likelihood",)
        setup = Setup((labels,), repetitions=repetitions, size=size, seed=seed, only=only)
        comparison = compare(control, setup, progress=progress)
    except InputError as error:
        return NotMeasured(str(error))
    summaries = {row.method.key: row.summary for row in comparison.rows}
    ours, paper = summaries["likelihood"], summaries.get(method)
    if ours.coverage is None or ours.width is None:
        return NotMeasured("the estimator returned no interval")
    smallest, largest = comparison.items
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


def measured_from(values: dict[str, Any]) -> Measured | NotMeasured:
    """Read the result of `to_dict`, which anybody may have edited."""
    try:
        kind: Any = NotMeasured if "not_measured" in values else Measured
        return msgspec.convert(values, kind)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        raise InputError(f"the figures cannot be read: {error}") from error


@dataclass(frozen=True)
class Soundness:
    """γ and γ^(T) of the paper, how well the groups can be distinguished, and problems to fix before use.

    `gamma_control` is measured on the representatives themselves, `gamma_rest` on the other examples.
    """

    gamma: float
    gamma_control: float
    gamma_rest: float | None
    auc: float
    parts: tuple[Coverage, ...]
    problems: tuple[str, ...]


def soundness(control: ControlSet) -> Soundness:
    """Check a control set."""
    scorer = scorer_for(control)
    facts, apart, sets = control_facts(control), scorer.once(separation), scorer.once(clusters)
    problems = []
    if len(sets) < 2:
        problems.append(
            f"the groups cannot be distinguished (p = {apart.p_value:.2g}); every audit will be inconclusive"
        )
    for merged in (each for each in sets if 1 < len(each) < len(control.groups)):
        names = joined([f"'{printable(control.groups[at])}'" for at in sorted(scorer.order[list(merged)])])
        problems.append(f"{names} cannot be distinguished; every audit will give their sum only")
    problems += [
        f"only {n} labelled examples of '{printable(name)}'; at least {FEW_LABELS} are needed"
        for name, n in control.counts.items()
        if n < FEW_LABELS
    ]
    usual, parts = uncovered_by_chance(control), coverage(control)
    problems += [
        f"{part.uncovered:.0%} of '{printable(part.group)}' are far from every representative; with random "
        f"representatives it is {usual[part.group]:.0%}: look at these examples, and add representatives by hand "
        "or choose with a larger --alpha"
        for part in parts
        if part.uncovered > usual[part.group] + FAR_MORE
    ]
    # γ^(T) on the examples that are not representatives, if every group has some.
    rest = set(control.labels[~control.representative].tolist())
    gamma_rest = gamma_control(control) if len(rest) == len(control.groups) else None
    gamma = facts.separability.gamma
    return Soundness(gamma, facts.reference.gamma, gamma_rest, apart.auc, parts, tuple(problems))


def has_faces(control: ControlSet) -> bool:
    """Whether people can be recognised by the vectors."""
    return (control.encoder or "").startswith("faces/")


def vectors_warning(control: ControlSet) -> str:
    """What the vectors of a control set reveal about its items."""
    if has_faces(control):
        return (
            "The vectors are face descriptors: anybody with another photo of one of these people can recognise "
            "them. In many countries such numbers are personal data with special protection."
        )
    return "A vector reveals something about its item: anyone who has the item can recognise its vector."


@dataclass(frozen=True)
class Publication:
    """One edition of a control set: its examples, what people know about it and what was measured on it."""

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
    def vectors_warning(self) -> str:
        """What the vectors reveal about the items."""
        return vectors_warning(self.control)

    @property
    def not_encoded(self) -> str:
        """Labelled examples that are missing because they could not be encoded; empty if none is known."""
        counts = ", ".join(f"{number} of {name}" for name, number in self.control.skipped.items())
        return f"Labelled, but not in the set because they could not be encoded: {counts}." if counts else ""

    @property
    def cautions(self) -> list[str]:
        """Reasons not to use it as it is."""
        cautions = [f"{problem[0].upper()}{problem[1:]}." for problem in self.sound.problems]
        if self.control.hand_picked:
            cautions.append(
                "The examples were picked by hand, not drawn at random; results will carry a warning."
            )
        return [*cautions, self.not_encoded] if self.not_encoded else cautions


def group_numbers(control: ControlSet) -> dict[str, dict[str, int]]:
    """Numbers of examples and of representatives in each group."""
    return {
        name: {"labelled": n, "representatives": len(control.rows(at, representatives=True))}
        for at, (name, n) in enumerate(control.counts.items())
    }
