"""A published control set, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import draw_groups

from divscore.cli import main
from divscore.control.controlset import ControlSet
from divscore.publishing.about import About
from divscore.publishing.edition import publish
from divscore.publishing.objections import EMPTY, OBJECTIONS
from divscore.publishing.publication import Measured

ABOUT = About(
    title="Letters",
    publisher="The letter desk",
    contact="letters@example.org",
    license="cc-by-4.0",
    definition="Which letter it is.\n\nAs printed.",
    basis="perceived",
    labelled_by="two readers",
    labelled_how="each read every item; see https://example.org/how_to.",
    source="a printed page",
    items="https://example.org/letters",
    left_out="all other letters",
    consent="letters need not be asked",
    biases="one typeface",
    uses="pages of text",
    unsuitable="people",
    maintenance="once a year",
    citation="Letters, 2026",
    language="en, fr",
)
FIGURES = Measured(
    examples=60, labels=30, repetitions=20, answers=220, smallest=30, largest=30, error=0.1, error_se=0.01,
    coverage=0.95, coverage_se=None, width=0.4, cannot_tell=3, seed=0, divscore_error=0.2,
)  # fmt: skip


def make(counts: tuple[int, ...] = (30, 30), **options: Any) -> ControlSet:
    vectors, names = draw_groups(3, counts)
    control = ControlSet(vectors.astype(np.float32), names, attribute="letter", encoder="test/1", **options)
    rows = [row for group in range(len(counts)) for row in control.rows(group)[:10]]
    return control.with_representatives(rows, "adaptive, α = 1")


def some(control: ControlSet, rows: list[int]) -> ControlSet:
    """The control set with only these rows."""
    groups = [control.groups[control.labels[row]] for row in rows]
    ids = [control.ids[row] for row in rows]
    return ControlSet(control.vectors[rows], groups, attribute="letter", ids=ids, encoder=control.encoder)


def run(*args: object, code: int = 0) -> Any:
    result = CliRunner().invoke(main, [str(a) for a in args])
    assert result.exit_code == code, result.output
    return result


def described(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "croissant.json").read_text())
    return found


def front_matter(folder: Path) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    text = (folder / "README.md").read_text(encoding="utf-8")
    _, header, _ = text.split("---\n", 2)
    found: dict[str, Any] = yaml.safe_load(header)
    return found


def object_to(folder: Path, *lines: str) -> None:
    (folder / OBJECTIONS).write_text(EMPTY + "".join(f"{line}\n" for line in lines), encoding="utf-8")


def published_set(parent: Path) -> Path:
    """Publish it with all answers."""
    publish(make(), parent / "set", about=ABOUT)
    return parent / "set"
