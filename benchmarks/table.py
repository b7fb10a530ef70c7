"""Write the stored results into README.md, between its markers; no number there is typed by hand."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from record import HERE, checks_table, markdown

ADAPTIVE = "DivScore, adaptive 50 of 200"
FRONT = ("<!-- results -->", "<!-- /results -->")
ORDER = (
    "ppb",
    "changes",
    "faces",
    "tweets",
    "texts",
    "labels",
    "diagnostics",
    "shift",
    "speed",
    "refits",
    "groups",
    "files",
    "sentences",
    "sampling",
    "pipeline",
    "scale",
    "cli",
    "web",
    "extension",
    "clients",
    "house",
)
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


def filled(text: str, content: str, begin: str = BEGIN, end: str = END) -> str:
    """Replace what stands between the markers."""
    if text.count(begin) != 1 or text.count(end) != 1:
        raise SystemExit(f"README.md needs the lines {begin} and {end}, once each")
    head, rest = text.split(begin)
    return f"{head}{begin}\n\n{content}\n\n{end}{rest.split(end)[1]}"


def front_page(folder: Path) -> str:
    """The few numbers that the project's own README shows."""
    documents = {
        name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        for name in ORDER
        if (folder / f"{name}.json").exists()
    }
    parts = []
    if "ppb" in documents:
        rows = documents["ppb"]["tables"][0]["rows"]
        best = {(r[0], r[1]): r[3] for r in documents["ppb"]["tables"][1]["rows"]}
        settings = documents["ppb"]["settings"]
        parts.append(
            "Mean absolute error of the disparity on the paper's own data and protocol (PPB-2017, collections of about "
            f"480 portraits, 0 to 100 % of the group, {settings['splits']} splits), with the 95 % interval of "
            "`likelihood`:"
        )
        parts.append(markdown(*_accuracy(rows, best)))
        parts.append(
            "The method was developed on these portraits, so they are not held-out data; benchmarks/README.md says "
            'what was chosen on them. "QuaPy\'s best" is the best of 16 variants in each row.'
        )
    rows = [
        row for name in ("faces", "texts") if name in documents for row in _from_items(name, documents[name])
    ]
    if rows:
        parts.append(
            "The same measures from image files (encoder `faces`) and from texts (encoder `text`: dialect of tweets, "
            "sex by first name; collections of 500):"
        )
        parts.append(markdown(["items", "labels", "attribute", "likelihood", "coverage", "width"], rows))
    if "faces" in documents:
        tables = {table["title"]: table["rows"] for table in documents["faces"]["tables"]}
        found = {(row[0], row[1]): row for row in tables["Portraits in which a face is found"]}
        times = {
            (row[0], row[1]): row for row in tables["Processor time a picture, from the file to the vector"]
        }
        missed = {tone: found["skin tone", tone] for tone in ("lighter", "darker")}
        counts = " and ".join(f"{row[3]} of {row[2]} {tone}-skinned" for tone, row in missed.items())
        parts.append(
            f"`faces` misses {counts} people, and takes {times['portraits', 'faces'][3]:.1f} ms a "
            f"portrait on one thread; dlib alone misses {missed['darker'][4]} darker-skinned people and takes "
            f"{times['portraits', 'dlib, as before'][3]:.0f} ms. Skipped items are not random, so divscore reports how "
            "far they could change the result."
        )
    if "speed" in documents:
        passes = {row[0]: row for row in documents["speed"]["tables"][0]["rows"]}
        one, sketch, whole = (passes[n] for n in ("ones @ X", "sketch", "audit, new control set"))
        parts.append(
            f"A million 300-dimensional vectors in memory: {sketch[1]:.2f} s on one thread for the sketch "
            f"({sketch[3]:.1f} times the bare memory pass `ones @ X`, {one[1]:.2f} s) and {whole[1]:.2f} s for a whole "
            "audit with its interval and all checks."
        )
    return "\n\n".join(parts)


def scale_page(folder: Path) -> str:
    """What to store, and what a billion rows cost."""
    path = folder / "scale.json"
    if not path.exists():
        return "No stored result yet: run `python benchmarks/scale.py`."
    document = json.loads(path.read_text(encoding="utf-8"))
    tables = {table["title"]: table for table in document["tables"]}
    formats = tables["Formats"]
    cluster = next(table for title, table in tables.items() if " files" in title)
    title = next(title for title in tables if " files" in title)
    parts = [
        f"Vectors of {document['settings']['dimension']} numbers, one core, processor time, files in the page cache:",
        markdown(formats["columns"], formats["rows"]),
        f"{title}, read bare, sketched by one process and by a cluster on the same machine:",
        markdown(cluster["columns"], cluster["rows"]),
    ]
    return "\n\n".join(parts)


WANTED_WORDS = ("good", "caution")


def limits_page(folder: Path) -> str:
    """What each word of trust promises, and what labels of the collection give instead."""
    path = folder / "shift.json"
    if not path.exists():
        return "No stored result yet: run `python benchmarks/shift.py`."
    document = json.loads(path.read_text(encoding="utf-8"))
    tables = {table["title"]: table for table in document["tables"]}
    words = next(table for title, table in tables.items() if title.startswith("What each word"))
    methods = next(table for title, table in tables.items() if title.startswith("All methods"))
    worst = next(table for title, table in tables.items() if title.startswith("The eight kinds"))
    columns = ["difference", "trust", "of audits", "coverage", "width", "error", "error > 0.1", "and missed"]
    columns += ["error > 0.2", "and missed"]
    rows = [
        [row[0], row[2], row[3], row[5], row[6], row[4], *row[7:]]
        for row in words["rows"]
        if row[1] == "after" and row[2] in WANTED_WORDS and row[3]
    ]
    before = {(row[0], row[2]): row for row in words["rows"] if row[1] == "before" and row[2] in WANTED_WORDS}
    old = ", ".join(
        f"{before[name, 'caution'][5]:.2f} for {name}"
        for name in ("portraits", "tweets", "names", "simulated")
        if (name, "caution") in before and before[name, "caution"][5] is not None
    )
    shown = [row for row in methods["rows"] if row[0] in ("none", "portraits", "tweets", "names")]
    return "\n\n".join(
        [
            "Audits by kind of difference and trust; the others are `poor` and have no numbers. *coverage* is how "
            "often the 95 % interval contains the truth, *missed* that it does not:",
            markdown(columns, rows),
            f"Without reweighting and allowance, the coverage of `caution` was {old}. *aligned* is a simulated shift "
            "along the very direction that separates the groups, as for the youths above: it is found, and then "
            "allowed for, only if the scores no longer look like a mixture.",
            "The kinds of real collections that `caution` covers worst. *off* is how far the scores of a group really "
            "are from those of its labelled examples, in standard deviations, towards the first group if positive; "
            "only who knows the truth can see it. *allowed* is what the interval allows for:",
            markdown(worst["columns"], worst["rows"]),
            f"All audits, whatever their trust, and what {document['settings']['labels of the collection']} labels of "
            "the collection itself give instead:",
            markdown(methods["columns"], shown),
        ]
    )


def texts_page(folder: Path) -> str:
    """Errors and speeds of the encoders of texts."""
    path = folder / "texts.json"
    if not path.exists():
        return "No stored result yet: run `python benchmarks/texts.py`."
    document = json.loads(path.read_text(encoding="utf-8"))
    tables = {table["title"].partition(" ")[0]: table["rows"] for table in document["tables"]}
    by: dict[tuple[str, int], list[Any]] = {}
    for name, labels, encoder, error, _, _, coverage, *_ in tables["Mean"]:
        row = by.setdefault((name, labels), [name, labels, None, None, None, None])
        row[{"ngrams": 2, "tokens": 3, "text": 4}[encoder]] = error
        if encoder == "text":
            row[5] = coverage
    speeds = {row[0]: row[2] for row in tables["Tweets"]}
    trust = [row for row in tables["Trust"] if row[0] != "tweets" and row[1] == "text"]
    poor, audits = sum(row[4] for row in trust), sum(sum(row[2:]) for row in trust)
    starts = {row[0]: row[2] for row in tables["From"]}
    return "\n\n".join(
        [
            "Mean absolute error of the disparity, and coverage of the 95 % interval with `text`. Collections of up to "
            f'500 texts, 0 to 100 % of the group, {document["settings"]["splits"]} splits; "cannot tell" counts as a '
            "disparity of 0:",
            markdown(["texts", "labels", "ngrams", "tokens", "text", "coverage, text"], list(by.values())),
            "*Tweets* are of two dialects, *names* of women and men, *film reviews* positive and negative sentences, "
            "and *family names* from Italy and Spain. "
            f"One core encodes {speeds['ngrams']:,} tweets a second with `ngrams`, {speeds['text']:,} with `text`; a "
            f"new process has its first vector after {starts['ngrams']:.2f} s and {starts['text']:.2f} s.",
            f"With a control set of tweets, {poor} of {audits} audits of the other texts are `poor`, and "
            f"{sum(row[2] for row in trust)} are `good`: labelled examples must come from the same kind of source.",
        ]
    )


def _from_items(name: str, document: dict[str, Any]) -> list[list[Any]]:
    """Lines of the default estimator, from images or texts."""
    table = next(t for t in document["tables"] if t["title"].startswith("Mean absolute error"))
    columns = table["columns"]
    lines = [dict(zip(columns, row, strict=True)) for row in table["rows"]]
    attributes = {"tweets": "dialect", "names": "sex"}
    return [
        [
            line.get("texts", "portraits"),
            line["labels"],
            line.get("attribute") or attributes[line["texts"]],
            line["error"],
            line["coverage"],
            line["width"],
        ]
        for line in sorted(lines, key=lambda line: -int(line["labels"]))
        if line.get("method") == "likelihood"
        or (line.get("encoder") == "text" and line["texts"] in attributes and line["labels"] != 100)
    ]


def _accuracy(rows: list[list[Any]], best: dict[tuple[str, int], float]) -> tuple[list[str], list[list[Any]]]:
    """Errors by labels and attribute; an adaptive set of 50 is chosen from 200 labelled, so it stands there."""
    columns = [
        "labels",
        "attribute",
        "likelihood",
        "DivScore, same labels",
        "DivScore, adaptive",
        "QuaPy's best",
    ]
    error = {(row[0], row[1], row[2]): row for row in rows}
    found = []
    for attribute, labels in best:
        likelihood = error[attribute, labels, "likelihood"]
        same = error.get((attribute, labels, "DivScore, the same 50"))
        chosen = error[attribute, 50, ADAPTIVE] if labels == 200 else None
        divscore = [row[3] if row else None for row in (same, chosen)]
        found.append(
            [
                labels,
                attribute,
                likelihood[3],
                *divscore,
                best[attribute, labels],
                likelihood[6],
                likelihood[8],
            ]
        )
    return [*columns, "coverage", "width"], found


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
    options.add_argument("--check", action="store_true", help="only say whether the files are up to date")
    found = options.parse_args()
    pages = {
        HERE / "README.md": lambda text: filled(text, results(found.results)),
        HERE.parent / "README.md": lambda text: filled(text, front_page(found.results), *FRONT),
        HERE.parent / "docs" / "scale.md": lambda text: filled(text, scale_page(found.results), *FRONT),
        HERE.parent / "docs" / "texts.md": lambda text: filled(text, texts_page(found.results), *FRONT),
        HERE.parent / "docs" / "limits.md": lambda text: filled(text, limits_page(found.results), *FRONT),
    }
    for page, fill in pages.items():
        text = page.read_text(encoding="utf-8")
        wanted = fill(text)
        if found.check:
            if wanted != text:
                raise SystemExit(f"{page.parent.name}/{page.name} is out of date: run benchmarks/table.py")
        else:
            page.write_text(wanted, encoding="utf-8")
            print(f"wrote {page.parent.name}/{page.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
