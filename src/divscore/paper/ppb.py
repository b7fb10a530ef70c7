"""PPB-2017, the Pilot Parliaments Benchmark: 1,270 portraits of members of six parliaments.

Reads it, and defines the paper's experiments on it (Sections 4 and 6 and the appendix). J. Buolamwini and T. Gebru,
"Gender Shades", 2018. It is distributed as a folder ``imgs`` of pictures named ``0967_5_f_SA.jpg`` (number, Fitzpatrick
skin type, gender, country) and a file ``PPB-2017-metadata.csv`` with the columns ``image_id, filename, gender,
fitzpatrick skin type category, bi.fitz, country`` and lines that end in a bare carriage return.
"""

from __future__ import annotations

import csv
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from divscore.control.theory import Reference, Separability, gamma_control, separability, theorem
from divscore.errors import FileError
from divscore.files import PathLike
from divscore.jobs.encode import Encoding
from divscore.paper import figures
from divscore.paper.draws import Attribute, Settings, Split, check_splits, random_split
from divscore.paper.experiment import Experiment, Repetition
from divscore.paper.labelleddata import LabelledData, ListedItems, Progress, encode, not_there, text_columns
from divscore.paper.methods import adaptive, all_methods, balanced, main_methods, size_methods
from divscore.paper.pickles import read_object_npy
from divscore.paper.records import Batch
from divscore.paper.results import ResultTable
from divscore.paper.sections import TEXTS, Findings, Report, size_table, smaller_sets, trust_table
from divscore.sources import open_table
from divscore.sources.items import ItemBatch, is_picture
from divscore.sources.manifest import ENCODER_KEY
from divscore.sources.table import as_float
from divscore.text import quoted

SET = "PPB-2017"
ORIGIN = "PPB-2017 (Pilot Parliaments Benchmark) from gendershades.org, on request (terms: research use)"
EXPECTED = "portraits named like 0967_5_f_SA.jpg, PPB-2017-metadata.csv, ppbFeatures.npy or file of vectors"
FOLDERS = ("", "imgs", "images")
WIDEST = 12  # columns of a table that describes pictures; one with more has vectors
NAME = re.compile(r"\d+_(?P<skin_type>[1-6])_(?P<gender>[fm])_(?P<country>[a-z]{2})\.\w+", re.IGNORECASE)
GENDERS = {"f": "female", "female": "female", "m": "male", "male": "male"}
SKIN_TYPES = {name: number for number, roman in enumerate(("i", "ii", "iii", "iv", "v", "vi"), 1)
              for name in (roman, str(number), f"{number}.0")}  # fmt: skip
# Codes in file names, names in the metadata.
COUNTRIES = {
    "FL": "Finland", "IL": "Iceland", "RW": "Rwanda", "SA": "South Africa", "SE": "Senegal", "SW": "Sweden",
}  # fmt: skip
# Names of the columns needed, in lower case and without signs; the first that is there counts.
COLUMNS = {
    "id": ("filename", "file", "imagename", "image", "name", "id", "imageid"),
    "gender": ("gender", "sex"),
    "skin_type": (
        "skintype", "fitzpatrickskintypecategory", "fitzpatrickskintype", "fitzpatrick", "fitz", "numeric",
    ),
    "country": ("country",),
}  # fmt: skip
Portraits = tuple[tuple[str, ...], dict[str, Any]]  # ids, and columns of the labels


def load_ppb(path: PathLike, encoding: Encoding | None = None, *, progress: Progress = None) -> LabelledData:
    """Read PPB-2017 in any of its forms.

    `path` is a folder of portraits with the benchmark's file names; the folder as distributed or its metadata CSV, with
    columns found by name; the authors' ``ppbFeatures.npy``; or a table of vectors with the metadata's columns or with
    the file names as ids. Pictures are encoded, by default by the encoder ``faces`` with the user's cache. Columns:
    gender (female, male), skin_type (1–6), skin_tone (darker for 4–6, else lighter), country (FL IL RW SA SE SW), and
    group (dark-skinned women, others).
    """
    place = Path(path)
    if not place.exists():
        raise not_there(place, EXPECTED, ORIGIN)
    if place.suffix.lower() == ".npy" and place.is_file():
        return _features(place)
    folder = place if place.is_dir() else place.parent
    sheets = sorted(place.glob("*metadata*.csv")) if place.is_dir() else [place]
    found = next(filter(None, (_metadata(sheet) for sheet in sheets if sheet.suffix.lower() == ".csv")), None)
    if found is None and place.is_file():
        return _table(place)
    for pictures in (folder / inside for inside in FOLDERS):
        if found is None:
            names = sorted(file.name for file in pictures.glob("*") if is_picture(file.name))
            ids, columns = _by_name(names, pictures)
        else:
            ids, columns = found
        files = [str(pictures / name) for name in ids]
        if any(map(os.path.isfile, files)):
            items = ListedItems(str(pictures), SET, "image", ItemBatch(files, ids, columns))
            return encode(items, encoding, progress)
    listed = f"pictures that its metadata lists, such as imgs/{found[0][0]}" if found else EXPECTED
    raise not_there(folder, listed, ORIGIN)


def _by_name(names: Sequence[str], where: Path) -> Portraits:
    """Labels from file names such as ``0967_5_f_SA.jpg``: number, skin type, gender, country."""
    matches = [NAME.fullmatch(PurePosixPath(name.replace("\\", "/")).name) for name in names]
    strange = [name for name, match in zip(names, matches, strict=True) if match is None]
    if strange:
        raise FileError(
            f"{where}: {len(strange)} of {len(names)} items are not named like those of {SET}, the first is "
            f"'{strange[0]}'; expected names like 0967_5_f_SA.jpg, or PPB-2017-metadata.csv next to the pictures"
        )
    return _labels(({"id": match[0], **match.groupdict()} for match in matches if match), where)


def _labels(rows: Iterable[Mapping[str, str]], where: Path, first: int = 0) -> Portraits:
    """Labels from cells by name of column; the paper's s > 3 is darker, and `group` its intersection."""
    codes = {text.lower(): code for code, name in COUNTRIES.items() for text in (code, name)}
    ids, columns = [], defaultdict[str, list[str]](list)
    for number, cells in enumerate(rows, start=first):
        gender, skin = (cells[what].strip().lower() for what in ("gender", "skin_type"))
        if gender not in GENDERS:
            raise FileError(f"{where}, row {number}: gender '{cells['gender']}'; expected Female or Male")
        if skin not in SKIN_TYPES:
            raise FileError(
                f"{where}, row {number}: skin type '{cells['skin_type']}'; expected Fitzpatrick's 1 to 6, or I to VI"
            )
        women, dark, country = GENDERS[gender] == "female", SKIN_TYPES[skin] > 3, cells["country"].strip()
        ids.append(PurePosixPath(cells["id"].strip()).name)
        columns["gender"].append(GENDERS[gender])
        columns["skin_type"].append(str(SKIN_TYPES[skin]))
        columns["skin_tone"].append("darker" if dark else "lighter")
        columns["country"].append(codes.get(country.lower(), country))
        columns["group"].append("dark-skinned women" if dark and women else "others")
    return tuple(ids), text_columns(columns)


def _find_columns(names: Sequence[str], label: Path, needed: Iterable[str] = COLUMNS) -> dict[str, str]:
    """Find the columns of a table by their names, in any case, with any signs, in any order."""
    plain = {"".join(c for c in name.lower() if c.isalnum()): name for name in reversed(names)}
    columns = {what: plain[key] for what, keys in COLUMNS.items() for key in reversed(keys) if key in plain}
    for what in needed:
        if what not in columns:
            raise FileError(
                f"{label} has the columns {quoted(names)} but none for the {what.replace('_', ' ')}; expected one "
                f"named like {' or '.join(COLUMNS[what][:2])}"
            )
    return columns


def _metadata(sheet: Path) -> Portraits | None:
    """Rows of a CSV that describes pictures; None if it has vectors."""
    try:
        # Python's text mode takes a bare carriage return, as in the distributed file, for the end of a line.
        with open(sheet, encoding="utf-8-sig") as stream:
            header = [name.strip() for name in next(csv.reader(stream), [])]
            if len(header) > WIDEST:
                return None
            rows = [row for row in csv.reader(stream) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{sheet} cannot be read as CSV ({error}); download or create it again") from error
    if not rows:
        raise FileError(f"{sheet} has no rows after its header; download it again")
    if any(cell.startswith("[") for cell in rows[0]):
        return None
    columns = _find_columns(header, sheet)
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise FileError(f"{sheet}, row {number}: {len(row)} cells, but the header has {len(header)}")
    cells = ({what: row[header.index(name)] for what, name in columns.items()} for row in rows)
    ids, labels = _labels(cells, sheet, first=2)
    if not is_picture(ids[0]):
        raise FileError(f"{sheet}: column '{columns['id']}' has '{ids[0]}'; expected the name of a picture")
    return ids, labels


def _table(place: Path) -> LabelledData:
    """Vectors in a table: labels from its columns, or else from the file names in its ids."""
    opened = open_table(place)
    columns = _find_columns([n for n, kind in opened.columns.items() if kind != "vector"], place, ["id"])
    source = opened.select(extra=tuple(columns.values()), strict=True)
    blocks = list(source)
    cells = {
        what: [text for block in blocks for text in block.values[name]] for what, name in columns.items()
    }
    if len(columns) == len(COLUMNS):
        rows = (dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True))
        ids, labels = _labels(rows, place)
    else:
        ids, labels = _by_name(cells["id"], place)
    vectors = np.concatenate([block.vectors for block in blocks])
    return LabelledData(SET, vectors, labels, ids, source.metadata.get(ENCODER_KEY))


def _features(place: Path) -> LabelledData:
    """The authors' file: a pickled dict of file name to vector; pairs of both are accepted too."""
    array = read_object_npy(place)
    content: Any = array.item() if array.ndim == 0 else list(array)
    entries = content.items() if isinstance(content, dict) else content if np.iterable(content) else ()
    pairs = [tuple(entry) if np.iterable(entry) else () for entry in entries]
    if not pairs or any(len(pair) != 2 or not isinstance(pair[0], str) for pair in pairs):
        raise FileError(
            f"{place} has a {type(content).__name__} of {len(pairs)} entries; expected a dict of file name "
            "(0967_5_f_SA.jpg) to vector, or pairs of both"
        )
    try:
        stacked = np.array([vector for _, vector in pairs])
    except ValueError:  # of different lengths
        stacked = np.empty(0)
    if stacked.ndim != 2 or stacked.dtype.kind not in "fiu":
        raise FileError(f"{place}: the vectors are not lists of equally many numbers; download it again")
    ids, labels = _by_name([name for name, _ in pairs], place)
    return LabelledData(SET, as_float(stacked), labels, ids)


# The experiment.

ATTRIBUTES = (
    Attribute("gender", "gender", ("female", "male")),
    Attribute("skin tone", "skin_tone", ("darker", "lighter")),
    Attribute("dark-skinned women", "group", ("dark-skinned women", "others")),
)
MAIN = ("gender", "skin tone")  # the attributes of Figure 1
BY_COUNTRY = ("random-balanced", "adaptive", "likelihood", "rectified")
# What the paper reports (Sections 4.2 and 6.1), and γ to four digits as its authors' notebooks print it.
PAPER_GAMMA = {
    "gender": {"γ": 0.35, "γ with self-pairs": 0.3544, "random": 0.35, "adaptive": 0.96},
    "skin tone": {"γ": 0.08, "γ with self-pairs": 0.0842, "random": 0.08, "adaptive": 0.34},
}
NOTEBOOK = (100, 500)  # |T| and |S| of the bound that the authors' notebooks print


def prepare(data: LabelledData, settings: Settings) -> LabelledData:
    """Draw all splits first: a run that failed at the last one would lose hours."""
    # Two of a group at least; the smallest control set of the size sweep takes half of each.
    smallest = max(2, min(settings.sizes) // 2)
    splits = (_split(data, settings, repetition) for repetition in range(settings.repetitions))
    check_splits(splits, data, {a: smallest if a.name in MAIN else 2 for a in ATTRIBUTES})
    return data


def _split(data: LabelledData, settings: Settings, repetition: int) -> Split:
    return random_split(len(data), settings.labels, np.random.default_rng([settings.seed, repetition]))


def work(data: LabelledData, repetition: int, part: int, settings: Settings) -> Batch:
    """One attribute on one split: every sweep."""
    attribute, methods = ATTRIBUTES[part], all_methods(settings)
    # All attributes share the split.
    split = _split(data, settings, repetition)
    here = Repetition(data, attribute, settings, methods, lambda rng: split, repetition, part)
    here.compositions()
    if attribute.name in MAIN:
        # γ^(T) of the random and of the adaptive control set: on the other partition, and on the set itself.
        vectors, names = data.vectors[here.rest], data.columns[attribute.column][here.rest].tolist()
        sets = {"random": balanced(settings.size), "adaptive": adaptive(settings.size, settings.alpha)}
        for name, choose in sets.items():
            control = choose(here.labelled)
            held_out, own = gamma_control(control, vectors, names), Reference.of(control).gamma
            here.batch.measures.append((attribute.name, f"{name}, held out", held_out))
            here.batch.measures.append((attribute.name, f"{name}, own", own))
        here.sizes(0.5)
        country = data.columns["country"]
        rows = {
            COUNTRIES.get(code, code): here.rest[country[here.rest] == code]
            for code in np.unique(country).tolist()
        }
        here.named("country", rows, [method for method in methods if method.key in BY_COUNTRY])
    return here.batch


def _mean_gamma(findings: Findings, attribute: str, name: str) -> float:
    return float(np.mean([v for a, n, v in findings.batch.measures if (a, n) == (attribute, name)]))


def _claims(findings: Findings, whole: Mapping[str, Separability]) -> list[tuple[Any, dict[str, Any]]]:
    """The paper's claims with the values that they are checked by."""
    gender, skin = (findings.accuracy[name] for name in MAIN)
    settings, same = findings.settings, whole["gender"]
    bound = theorem(settings.size, settings.collection, same.mu_same, same.mu_diff).additive_error
    notebook = theorem(*NOTEBOOK, whole["skin tone"].mu_same_with_self, whole["skin tone"].mu_diff)
    values = {
        "gender": gender,
        "skin": skin,
        "settings": settings,
        "twice": 2 * (gender["random-balanced"].spread or 0.0),
        "adaptive_bias": max(gender["adaptive"].worst_bias, skin["adaptive"].worst_bias),
        "bound": bound,
        "bound_off": abs(bound - 5),
        "enough": settings.size * (bound / 5) ** 2,
        "notebook": (notebook.delta, notebook.additive_error),
        "notebook_off": abs(notebook.additive_error - 61.1),
    }
    claims = [(TEXTS["ppb"]["claims"], values)]
    for attribute, separable in whole.items():
        this, paper = findings.accuracy[attribute], PAPER_GAMMA[attribute]
        biases = [this[m].worst_bias for m in ("random-balanced", "random-proportional") if m in this]
        held_out, own = (_mean_gamma(findings, attribute, f"adaptive, {w}") for w in ("held out", "own"))
        values = {
            "attribute": attribute,
            "this": this,
            "biases": " and ".join(f"{bias:.3f}" for bias in biases),
            "worst_bias": max(biases),
            "paper": paper,
            "with_self": separable.gamma_with_self,
            "without": separable.gamma,
            "gamma_off": abs(separable.gamma_with_self - paper["γ"]),
            "held_out": held_out,
            "own": own,
            "chosen_off": min(abs(held_out - paper["adaptive"]), abs(own - paper["adaptive"])),
        }
        claims.append((TEXTS["ppb"]["each"], values))
    return claims + [smaller_sets(findings.at("size"), name, f"disparity 0, {name}") for name in MAIN]


def _theory_tables(findings: Findings, whole: Mapping[str, Separability]) -> dict[str, ResultTable]:
    """γ and γ^(T) next to what the paper reports; Theorem 3.3's bound next to the errors.

    The bound is that for |T| and |S| of the sweep, and that for those of the authors' notebooks.
    """
    sizes = findings.settings.size, findings.settings.collection
    gammas: list[tuple[object, ...]] = []
    bounds: list[tuple[object, ...]] = []
    for attribute, same in whole.items():
        paper = PAPER_GAMMA[attribute]
        itself = "γ, all items, pairs with itself kept"
        gammas.append((attribute, "γ, all items", same.gamma, None, paper["γ"]))
        gammas.append((attribute, itself, same.gamma_with_self, None, paper["γ with self-pairs"]))
        for name in dict.fromkeys(name for _, name, _ in findings.batch.measures):
            values = [v for a, n, v in findings.batch.measures if (a, n) == (attribute, name)]
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
            gammas.append((attribute, f"γ^(T), {name}", np.mean(values), spread, paper[name.split(",")[0]]))
        chosen = _mean_gamma(findings, attribute, "adaptive, held out")
        for method, what, gamma in (("random-balanced", "random", None), ("adaptive", "adaptive", chosen)):
            bound, seen = (
                theorem(*sizes, same.mu_same, same.mu_diff, gamma),
                findings.accuracy[attribute][method],
            )
            setting = (attribute, f"{what} control set", *sizes, bound.delta, bound.additive_error)
            bounds.append((*setting, seen.mae, seen.quantile, seen.largest))
        bound = theorem(*NOTEBOOK, same.mu_same_with_self, same.mu_diff)
        setting = (attribute, "as in the authors' notebooks", *NOTEBOOK, bound.delta, bound.additive_error)
        bounds.append((*setting, None, None, None))
    gamma_columns = ("attribute", "what", "measured", "standard deviation", "paper")
    bound_columns = (
        "attribute", "setting", "|T|", "|S|", "δ", "bound on the error", "mean error seen",
        "0.9 quantile seen", "largest seen",
    )  # fmt: skip
    title = "Similarity within a group minus similarity between groups"
    return {
        "gamma": ResultTable.of("gamma", title, gamma_columns, gammas),
        "theorem": ResultTable.of("theorem", "Theorem 3.3", bound_columns, bounds),
    }


def report(findings: Findings) -> Report:
    """The claims, tables and figures of PPB-2017."""
    settings, data, every = findings.settings, findings.data, np.arange(len(findings.data))
    whole = {a.name: separability(a.control(data, every)) for a in ATTRIBUTES if a.name in MAIN}
    shown, sizes = main_methods(settings), size_methods(settings.size, settings.alpha)
    by_country, by_size = findings.select(BY_COUNTRY), findings.at("size")
    x_labels = {a.name: f"fraction f of “{a.groups[0]}” in the collection" for a in ATTRIBUTES}
    main = {name: x_labels[name] for name in MAIN}
    other = {name: text for name, text in x_labels.items() if name not in MAIN}
    bounds = {
        name: lambda n, same=same: theorem(n, settings.collection, same.mu_same, same.mu_diff).additive_error
        for name, same in whole.items()
    }
    drawn = {
        "figure1": figures.sweep_figure(findings.at("f"), shown, main, 1.5),
        "figure1_whole": figures.sweep_figure(findings.at("f"), shown, main),
        "errors": figures.error_figure(findings.at("f"), shown, x_labels),
        "intersection": figures.sweep_figure(findings.at("f"), shown, other, 1.5),
        "sizes": figures.size_figure(by_size, sizes, MAIN),
        "theorem": figures.bound_figure(by_size, bounds),
        "countries": figures.collection_figure(findings.at("country"), by_country, MAIN),
    }
    tables = {
        "sizes": size_table(findings, sizes),
        "collections": trust_table(findings, "country", by_country, "country"),
        **_theory_tables(findings, whole),
    }
    warnings = [c.warning for c in findings.batch.checks if c.warning and c.trust != "good"]
    warning = f"> {warnings[0]}" if warnings else ""
    covered = [
        p.coverage for p in findings.at("country") if p.method == "likelihood" and p.coverage is not None
    ]
    values = {
        "warned": len(warnings),
        "audits": len(findings.batch.checks),
        "warning": warning,
        "elsewhere": TEXTS["ppb"]["elsewhere"].format(100 * float(np.mean(covered))),
    }
    return Report(_claims(findings, whole), tables, drawn, values)


EXPERIMENT = Experiment("ppb", Settings(), ATTRIBUTES, work, report, prepare=prepare, main=MAIN)
