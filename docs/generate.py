"""Write the generated parts of the documentation: run `python docs/generate.py` after a change, or `make docs`.

All of `cli.md` is the output of `--help`. In `api.md` and `json.md` only the text between a pair of marks
(`<!-- api: NAME -->` … `<!-- end -->`) is generated.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import json
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from divscore.cli import main

DOCS = Path(__file__).parent
WIDTH = 90
MARKED = re.compile(r"(<!-- (api|keys): ([^>]+?) -->\n).*?(<!-- end -->)", re.S)
INTRODUCTION = """\
# Command line

<!-- Written by docs/generate.py from the output of --help; do not edit. -->

Every command with all its options, as `--help` prints them. Data goes to standard output, messages go to standard \
error. Exit codes: 0 success, 1 a limit is exceeded, 2 error, 3 inconclusive.
"""


def pages() -> dict[Path, str]:
    """Every page with generated parts, up to date."""
    written = {DOCS / "cli.md": cli_page()}
    for name in ("api.md", "json.md"):
        path = DOCS / name
        written[path] = MARKED.sub(_filled, path.read_text(encoding="utf-8"))
    return written


def cli_page() -> str:
    """The help of all commands."""
    parts = [INTRODUCTION]
    for words in commands():
        shown = _help(words)
        level = "##" if len(words) < 2 else "###"
        parts.append(f"{level} {' '.join(['divscore', *words])}\n\n```\n{shown}\n```\n")
    return "\n".join(parts)


def commands() -> Iterator[list[str]]:
    """The words of every command and sub-command; the first is empty, for `divscore` itself."""
    context = click.Context(main)
    yield []
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        yield [name]
        for below in sorted(command.commands) if isinstance(command, click.Group) else ():
            yield [name, below]


def _help(words: list[str]) -> str:
    result = CliRunner().invoke(
        main, [*words, "--help"], prog_name="divscore", terminal_width=80, max_content_width=80
    )
    if result.exit_code:
        raise RuntimeError(f"divscore {' '.join(words)} --help failed: {result.output}")
    return "\n".join(line.rstrip() for line in result.output.strip().splitlines())


def _filled(match: re.Match[str]) -> str:
    start, kind, words, end = match.groups()
    if kind == "keys":
        return f"{start}{keys(*words.split())}{end}"
    signatures = "\n".join(signature(name) for name in words.split())
    return f"{start}```py\n{signatures}\n```\n{end}"


def signature(name: str) -> str:
    """The signature of `module.name` or `module.Class.method`; for a dataclass, its fields."""
    found, title = resolve(name), name.rpartition(".")[2]
    if isinstance(found, type) and issubclass(found, Exception):
        return f"class {title}({', '.join(base.__name__ for base in found.__bases__)})"
    if dataclasses.is_dataclass(found):
        return "\n".join([f"class {title}:", *(f"    {f.name}: {f.type}" for f in dataclasses.fields(found))])
    if isinstance(found, (property, cached_property)):
        getter = found.fget if isinstance(found, property) else found.func
        assert getter is not None
        return f"{title}: {inspect.signature(getter).return_annotation}"
    return _call(f"class {title}" if isinstance(found, type) else title, found)


def resolve(name: str) -> Any:
    """The object of a dotted name; `divscore.audit` is the function, not the package of the same name."""
    words = name.split(".")
    found: Any = importlib.import_module(words[0])
    cut = 1
    while cut < len(words) - 1 and _is_module(".".join(words[: cut + 1])):
        cut += 1
        found = importlib.import_module(".".join(words[:cut]))
    for part in words[cut:]:
        found = inspect.getattr_static(found, part)
    return found.__func__ if isinstance(found, (classmethod, staticmethod)) else found


def _is_module(name: str) -> bool:
    parent = importlib.import_module(name.rpartition(".")[0])
    return hasattr(parent, "__path__") and importlib.util.find_spec(name) is not None


def _call(title: str, found: Callable[..., Any]) -> str:
    asked = inspect.signature(found)
    space = vars(inspect.getmodule(found))
    parts: list[str] = []
    for parameter in asked.parameters.values():
        if parameter.name in {"self", "cls"}:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        parts.append(_parameter(parameter, space))
    returned = asked.return_annotation
    tail = "" if title.startswith("class ") or returned is asked.empty else f" -> {_plain(returned)}"
    line = f"{title}({', '.join(parts)}){tail}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{title}(", *(f"    {part}," for part in parts), f"){tail}"])


def _parameter(parameter: inspect.Parameter, space: dict[str, Any]) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_plain(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return text
    return f"{text} = {_default(parameter.default, space)}"


def _default(value: Any, space: dict[str, Any]) -> str:
    """A constant by its name, so that the page does not depend on its repr."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value is None or isinstance(value, (int, float)):
        return repr(value)
    return next((name for name, known in space.items() if known is value), repr(value))


def _plain(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def keys(file: str, place: str = "") -> str:
    """A table of the keys of an object in a JSON Schema; `place` is a name under `$defs`, or empty for the whole."""
    whole = json.loads((DOCS / "schema" / file).read_text(encoding="utf-8"))
    described = whole["$defs"][place] if place else whole
    lines = ["| key | type | meaning |", "|---|---|---|"]
    for key, value in described["properties"].items():
        optional = "" if key in described.get("required", ()) else " *(optional)*"
        lines.append(f"| `{key}` | {_type(value, whole)} | {value['description']}{optional} |")
    return "\n".join(["", *lines, "", ""])


def _type(value: dict[str, Any], whole: dict[str, Any]) -> str:
    """The type of a value, in words."""
    if "const" in value:
        return f"`{json.dumps(value['const'], ensure_ascii=False)}`"
    if "enum" in value:
        return ", ".join(f"`{json.dumps(each, ensure_ascii=False)}`" for each in value["enum"])
    if "anyOf" in value:
        return " or ".join(_type(each, whole) for each in value["anyOf"])
    if "$ref" in value:
        place = value["$ref"].rpartition("/")[2]
        return _type(whole["$defs"][place], whole) if place in {"limits", "share"} else f"[{place}](#{place})"
    kinds = value["type"] if isinstance(value["type"], list) else [value["type"]]
    return " or ".join(_kind(kind, value, whole) for kind in kinds)


def _kind(kind: str, value: dict[str, Any], whole: dict[str, Any]) -> str:
    if kind == "array":
        if value.get("minItems") == value.get("maxItems") == 2:
            return "two texts" if value["items"].get("type") == "string" else "two numbers"
        return f"list of {_type(value['items'], whole)}"
    if kind == "object":
        inner = value.get("additionalProperties")
        return f"object, {_type(inner, whole)} for each name" if inner else "object"
    return {"string": "text", "integer": "whole number", "null": "null"}.get(kind, kind)


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
