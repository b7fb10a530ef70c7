"""Write the stored results into README.md, between its markers; no number there is typed by hand."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from record import HERE, checks_table, markdown

ORDER = ("ppb", "diagnostics", "speed", "files")
BEGIN = "<!-- results: written by table.py -->"
END = "<!-- end of results -->"


def section(document: dict[str, Any]) -> str:
    """One benchmark's targets, tables, settings and environment."""
    name = document["benchmark"]
    passed = sum(check["pass"] for check in document["checks"])
    parts = [f"### {name}.py: {passed} of {len(document['checks'])} targets met"]
    parts.append(markdown(*checks_table(document["checks"])))
    for table in document["tables"]:
        if table["shown"]:
            parts += [f"**{table['title']}**", markdown(table["columns"], table["rows"])]
    parts += [f"Note: {note}." for note in document["notes"]]
    parts.append(f"Settings: {_listed(document['settings'])}. Ran with {_where(document['environment'])}.")
    return "\n\n".join(parts)


def results(folder: Path) -> str:
    """All sections, in order; a benchmark that was not run says so."""
    parts = []
    for name in ORDER:
        path = folder / f"{name}.json"
        if path.exists():
            parts.append(section(json.loads(path.read_text(encoding="utf-8"))))
        else:
            parts.append(f"### {name}.py\n\nNo stored result yet: run `python benchmarks/{name}.py`.")
    return "\n\n".join(parts)


def filled(text: str, content: str) -> str:
    """Replace what stands between the markers."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f"README.md needs the lines {BEGIN} and {END}, once each")
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n\n{content}\n\n{END}{rest.split(END)[1]}"


def _listed(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_plain(value)}" for name, value in settings.items())


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return "/".join(str(v) for v in value)
    if isinstance(value, dict):
        return "; ".join(f"{k} {_plain(v)}" for k, v in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _where(environment: dict[str, Any]) -> str:
    versions = [f"{name} {version}" for name, version in environment["packages"].items() if version]
    threads = f"{environment['blas']} ({environment['blas_threads']} thread)"
    machine = f"{environment['cores']} cores of {environment['processor']}"
    return ", ".join([f"Python {environment['python']}", *versions, threads, machine])


def main() -> None:
    options = argparse.ArgumentParser(prog="benchmarks/table.py", description=__doc__)
    options.add_argument("--results", type=Path, default=HERE / "results", help="folder of the stored JSON")
    options.add_argument("--readme", type=Path, default=HERE / "README.md", help="file with the markers")
    options.add_argument("--check", action="store_true", help="only say whether the file is up to date")
    found = options.parse_args()
    text = found.readme.read_text(encoding="utf-8")
    wanted = filled(text, results(found.results))
    if found.check:
        if wanted != text:
            raise SystemExit(f"{found.readme.name} does not show the stored results: run benchmarks/table.py")
        return
    found.readme.write_text(wanted, encoding="utf-8")
    print(f"wrote {found.readme.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
