"""About: what only people know about a control set, and the file in which they write it down."""

from __future__ import annotations

import json
import re
import reprlib
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from divscore.control.controlset import ControlSet
from divscore.errors import FileError, InputError
from divscore.files import PathLike
from divscore.text import printable

ABOUT = "about.toml"
HEADER = """\
# Facts about a control set. They are published with it, unchanged.
# An empty answer is published as "not stated". Long answers: \"\"\"between three quotes\"\"\".
"""


def _ask(question: str, *, optional: bool = False) -> Any:
    return field(default="", metadata={"question": question, "optional": optional})


@dataclass(frozen=True)
class About:
    """Answers that a reader who was not there can understand; an empty one is not stated."""

    title: str = _ask("The name of the control set.", optional=True)
    publisher: str = _ask("Who publishes it.", optional=True)
    contact: str = _ask("Where to send questions and objections: an address that somebody reads.")
    license: str = _ask('The terms of use: an identifier such as "cc-by-4.0", or a web address.')
    definition: str = _ask("What the attribute means here, and where the line between the groups is.")
    basis: str = _ask(
        '"self-declared" by the people themselves, "perceived" by somebody else, or another basis.'
    )
    labelled_by: str = _ask(
        "Who labelled the examples: how many people, who they are, what they know of the groups."
    )
    labelled_how: str = _ask(
        "How they labelled: instructions, answers per example, how disagreement was resolved."
    )
    source: str = _ask("Where the examples come from, and how they were chosen.")
    items: str = _ask("Where to see the images or texts themselves, or why they are not public.")
    left_out: str = _ask("Groups and people that are not in the set, and why.")
    consent: str = _ask("Whether the people agreed to this use, or why consent was not needed.")
    biases: str = _ask("Known biases of the examples.", optional=True)
    uses: str = _ask("What it is for: kinds of collections, questions.")
    unsuitable: str = _ask("What it must not be used for.")
    maintenance: str = _ask("Who maintains it, how often, and how objections are decided.")
    citation: str = _ask("How to cite it.", optional=True)
    language: str = _ask('Languages of texts, as codes: "en", or "en, fr".', optional=True)

    def __post_init__(self) -> None:
        for code in self.languages:
            if not re.fullmatch(r"[a-z]{2,3}(-[A-Za-z0-9]+)*", code):
                raise InputError(f'language = \'{code}\': expected codes such as "en" or "en, fr"')

    @property
    def languages(self) -> Sequence[str]:
        """Codes of languages."""
        return [code.strip() for code in self.language.split(",") if code.strip()]

    @property
    def missing(self) -> list[str]:
        """Questions without an answer that readers need."""
        return [f.name for f in fields(self) if not getattr(self, f.name) and not f.metadata["optional"]]

    def changed(self, other: About) -> list[str]:
        """Questions with another answer."""
        return [f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)]


QUESTIONS: dict[str, str] = {f.name: f.metadata["question"] for f in fields(About)}


def read_about(path: PathLike) -> About:
    """Read a file of answers (TOML)."""
    file = Path(path)
    try:
        answers = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise FileError(
            f"{file} does not exist; 'divscore control publish C --template {file}' writes one to fill in"
        ) from error
    except (ValueError, RecursionError) as error:
        raise FileError(
            f'{file} is not valid TOML ({error}); lines look like  license = "cc-by-4.0"  and long answers go '
            'between """three quotes"""'
        ) from error
    for name, value in answers.items():
        if name not in QUESTIONS:
            raise FileError(f"{file} has the unknown entry '{name}'; expected {', '.join(QUESTIONS)}")
        if not isinstance(value, str):
            raise FileError(f'{file}: {name} = {reprlib.repr(value)}; expected text in quotes, "…"')
    try:
        return About(**{name: "\n".join(_lines(value)).strip() for name, value in answers.items()})
    except InputError as error:
        raise FileError(f"{file}: {error}") from error


def write_about(about: About, control: ControlSet) -> str:
    """Answers, or only the questions, as a file for `read_about`."""
    groups = ", ".join(printable(name) for name in control.groups)
    lines = [HEADER, f"# Attribute: {printable(control.attribute)}. Groups: {groups}.", ""]
    for name, question in QUESTIONS.items():
        text = "\n".join(_lines(getattr(about, name)))
        quoted = json.dumps(text, ensure_ascii=False)
        if "\n" in text:
            inside = text.replace("\\", "\\\\").replace('"', '\\"')
            quoted = f'"""\n{inside}\n"""'
        lines += [f"# {question}", f"{name} = {quoted}", ""]
    return "\n".join(lines)


def _lines(text: str) -> list[str]:
    return [printable(line.replace("\t", " ")).rstrip() for line in text.splitlines()]
