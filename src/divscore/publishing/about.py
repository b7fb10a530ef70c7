"""About: the facts of a control set that only people know, and the file in which they write them down."""

from __future__ import annotations

import json
import os
import re
import reprlib
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from divscore.control.controlset import ControlSet
from divscore.errors import FileError, InputError
from divscore.text import printable

__all__ = ["ABOUT", "NOT_STATED", "QUESTIONS", "About", "read_about", "write_about"]

ABOUT = "about.toml"
NOT_STATED = "not stated"

# What the file asks, in its order. A person who was not there should understand every answer.
QUESTIONS = {
    "title": "A name for the control set.",
    "publisher": "Who publishes it.",
    "contact": "Where questions and objections go: an address that somebody will read.",
    "license": 'The terms of use: an identifier such as "cc-by-4.0", or a web address.',
    "definition": "What the attribute means here, and where the line between the groups was drawn.",
    "basis": '"self-declared" by the people concerned, "perceived" by somebody else, or another basis: say which.',
    "labelled_by": "Who labelled the examples: how many, what they know of the groups, who they are.",
    "labelled_how": "How they labelled: instructions, answers each, what became of disagreement and doubt.",
    "source": "Where the examples come from, and how they were chosen.",
    "items": "Where the pictures or texts themselves can be looked at, or why they cannot.",
    "left_out": "Groups and people that are not in it, and why.",
    "consent": "Whether the people concerned agreed to this use, or why nobody needed to be asked.",
    "biases": "In what the examples are one-sided, as far as is known.",
    "uses": "What it is meant for: kinds of collections, questions.",
    "unsuitable": "What it must not be used for.",
    "maintenance": "Who keeps it up, how often, and how objections are decided.",
    "citation": "How to cite it.",
    "language": 'Of texts, as codes: "en", or "en, fr".',
}
MAY_BE_EMPTY = {"title", "publisher", "biases", "citation", "language"}
HEADER = """\
# What only people know about a control set. It is published with it, word for word.
# An answer that stays empty is published as "not stated". Long answers: \"\"\"between three quotes\"\"\".
"""


@dataclass(frozen=True)
class About:
    """Answers to `QUESTIONS`; an empty one is not stated."""

    title: str = ""
    publisher: str = ""
    contact: str = ""
    license: str = ""
    definition: str = ""
    basis: str = ""
    labelled_by: str = ""
    labelled_how: str = ""
    source: str = ""
    items: str = ""
    left_out: str = ""
    consent: str = ""
    biases: str = ""
    uses: str = ""
    unsuitable: str = ""
    maintenance: str = ""
    citation: str = ""
    language: str = ""

    def __post_init__(self) -> None:
        wrong = [code for code in self.languages if not re.fullmatch(r"[a-z]{2,3}(-[A-Za-z0-9]+)*", code)]
        if wrong:
            raise InputError(f'language = \'{wrong[0]}\': expected codes such as "en" or "en, fr"')

    @property
    def languages(self) -> Sequence[str]:
        """Codes of languages."""
        return [code.strip() for code in self.language.split(",") if code.strip()]

    @property
    def missing(self) -> list[str]:
        """Questions without an answer that a reader would miss."""
        return [name for name, answer in asdict(self).items() if not answer and name not in MAY_BE_EMPTY]

    def changed(self, other: About) -> list[str]:
        """Questions that another answers differently."""
        return [f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)]


def read_about(path: str | os.PathLike[str]) -> About:
    """Read a file of answers (TOML)."""
    file = Path(path)
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise FileError(
            f"{file} does not exist; 'divscore control publish C --template {file}' writes one to fill in"
        ) from error
    except (ValueError, RecursionError) as error:
        raise FileError(
            f'{file} is not in TOML ({error}); lines look like  license = "cc-by-4.0"  and long answers stand '
            'between """three quotes"""'
        ) from error
    unknown = [name for name in found if name not in QUESTIONS]
    if unknown:
        raise FileError(f"{file} answers '{unknown[0]}', which is not asked; expected {', '.join(QUESTIONS)}")
    for name, value in found.items():
        if not isinstance(value, str):
            raise FileError(f'{file}: {name} = {reprlib.repr(value)}; expected text between quotes, "…"')
    answers = {name: "\n".join(_lines(value)).strip() for name, value in found.items()}
    try:
        return About(**answers)
    except InputError as error:
        raise FileError(f"{file}: {error}") from error


def write_about(about: About, control: ControlSet) -> str:
    """Write answers, or questions, as a file for `read_about`."""
    groups = ", ".join(printable(name) for name in control.groups)
    lines = [HEADER, f"# Attribute: {printable(control.attribute)}. Groups: {groups}.", ""]
    for name, question in QUESTIONS.items():
        lines += [f"# {question}", f"{name} = {_quoted(getattr(about, name))}", ""]
    return "\n".join(lines)


def _lines(text: str) -> list[str]:
    return [printable(line.replace("\t", " ")).rstrip() for line in text.splitlines()]


def _quoted(text: str) -> str:
    text = "\n".join(_lines(text))
    if "\n" not in text:
        return json.dumps(text, ensure_ascii=False)
    inside = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"""\n{inside}\n"""'
