"""About: the facts of a control set that only people know, and the file in which they write them down."""

from __future__ import annotations

import hashlib
import json
import os
import re
import reprlib
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from divscore.control.controlset import ControlSet
from divscore.errors import FileError, InputError
from divscore.text import printable

__all__ = [
    "ABOUT",
    "CHOICES",
    "NOT_STATED",
    "NUMBER",
    "QUESTIONS",
    "SUMS",
    "About",
    "counterparts",
    "fingerprints",
    "former_names",
    "overall",
    "public_ids",
    "read_about",
    "read_sums",
    "sums_text",
    "whole_texts",
    "write_about",
]


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


# What examples are called in public: no folders of somebody's machine, and the same name in every edition.

CHOICES = ("names", "numbers", "keep")
NUMBER = re.compile(r"example-([0-9]{1,9})")
SENTENCE = 6  # words; names of files and of people have fewer


def public_ids(control: ControlSet, choice: str, earlier: ControlSet | None = None) -> list[str]:
    """Rename the examples.

    Parameters
    ----------
    control : ControlSet
        With the ids of its owner.
    choice : "names", "numbers" or "keep"
        Without the folders before the last slash; "example-0001", "example-0002", …; or as they are.
    earlier : ControlSet, optional
        The edition before, whose numbers stay with their examples.
    """
    if choice == "keep":
        return list(control.ids)
    if choice == "numbers":
        return _numbers(control, earlier)
    return _names(control)


def fingerprints(control: ControlSet) -> list[str]:
    """One of each example's vector; equal ones are told apart by their number."""
    seen: Counter[bytes] = Counter()
    found = []
    for row in control.vectors.astype("<f8"):
        data = row.tobytes()
        found.append(f"{data.hex()}:{seen[data]}")
        seen[data] += 1
    return found


def counterparts(new: ControlSet, old: ControlSet) -> list[tuple[int, int]]:
    """Rows of the examples that are in both editions.

    Vectors of one encoder tell examples apart whatever they are called; of two encoders they tell nothing, and the
    names must.
    """
    comparable = old.encoder == new.encoder and old.dimension == new.dimension
    mine, theirs = (fingerprints(each) if comparable else each.ids for each in (new, old))
    rows = {key: row for row, key in enumerate(theirs)}
    return [(row, rows[key]) for row, key in enumerate(mine) if key in rows]


def former_names(old: ControlSet, choice: str) -> list[str]:
    """What an edition with this `choice` of ids may call the examples of the one before; empty where nothing."""
    if choice == "keep":
        return list(old.ids)
    if choice == "numbers":
        return [name if NUMBER.fullmatch(name) else "" for name in old.ids]
    return [_last(name) for name in old.ids]


def whole_texts(control: ControlSet) -> int:
    """How many examples are called by what looks like a whole text."""
    return sum(len(name.split()) >= SENTENCE for name in control.ids)


def _last(name: str) -> str:
    return name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


def _names(control: ControlSet) -> list[str]:
    names = [_last(name) for name in control.ids]
    # The same name in several folders: their group tells them apart, which is public anyway.
    twice = Counter(names)
    groups = [control.groups[label] for label in control.labels]
    names = [f"{g}/{n}" if twice[n] > 1 else n for n, g in zip(names, groups, strict=True)]
    still = Counter(names)
    taken, found = set(names), []
    for row, name in enumerate(names):
        if still[name] > 1 or not name:
            name = _free(f"example-{row + 1:04}", taken)
        found.append(name)
    return found


def _numbers(control: ControlSet, earlier: ControlSet | None) -> list[str]:
    known: dict[str, str] = {}
    if earlier is not None:
        known = dict(zip(fingerprints(earlier), earlier.ids, strict=True))
    kept = [known.get(mark, "") for mark in fingerprints(control)]
    kept = [name if NUMBER.fullmatch(name) else "" for name in kept]
    used = [int(found[1]) for name in known.values() if (found := NUMBER.fullmatch(name))]
    following = iter(range(max(used, default=0) + 1, max(used, default=0) + len(kept) + 1))
    return [name or f"example-{next(following):04}" for name in kept]


def _free(name: str, taken: set[str]) -> str:
    number, wanted = 1, name
    while wanted in taken:
        number += 1
        wanted = f"{name}-{number}"
    taken.add(wanted)
    return wanted


# Digests that make edits visible: one a file, and one of them all.

SUMS = "SHA256SUMS"  # in the form that `sha256sum --check` reads
LINE = re.compile(r"([0-9a-f]{64})  ([^/\\\x00-\x1f]+)")


def overall(digests: Mapping[str, str], besides: Iterable[str]) -> str:
    """SHA-256 of the lines of `SUMS` without the files `besides`, which state it and so cannot be part of it."""
    left = {name: digest for name, digest in digests.items() if name not in set(besides)}
    return hashlib.sha256(sums_text(left).encode()).hexdigest()


def sums_text(digests: Mapping[str, str]) -> str:
    """The content of `SUMS`."""
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))


def read_sums(folder: Path) -> dict[str, str] | None:
    """Digests by name of file; None where the list is missing or not one."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    found = [LINE.fullmatch(line) for line in lines]
    if not found or not all(found):
        return None
    return {match[2]: match[1] for match in found if match}
