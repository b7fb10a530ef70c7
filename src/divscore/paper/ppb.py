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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from divscore.control.theory import Reference, Separability, gamma_control, separability, theorem
from divscore.errors import FileError
from divscore.jobs.encode import Encoding
from divscore.paper import figures
from divscore.paper.draws import (
    Attribute,
    Collection,
    Labelled,
    Settings,
    Split,
    check_splits,
    collect,
    compose,
    random_split,
)
from divscore.paper.experiment import (
    Experiment,
    Report,
    ask,
    audit_collections,
    composition_sweep,
    size_sweep,
)
from divscore.paper.labelleddata import (
    LabelledData,
    ListedItems,
    Progress,
    Provenance,
    Rows,
    encode,
    text_columns,
)
from divscore.paper.methods import adaptive, all_methods, balanced, main_methods, size_methods
from divscore.paper.pickles import read_object_npy
from divscore.paper.records import Batch
from divscore.paper.results import ResultTable
from divscore.paper.sections import TEXTS, Findings, size_table, smaller_sets, trust_table
from divscore.sources import open_table
from divscore.sources.items import is_picture
from divscore.sources.manifest import ENCODER_KEY
from divscore.sources.table import as_float
from divscore.text import quoted

SET = "PPB-2017"
ORIGIN = Provenance("PPB-2017 (Pilot Parliaments Benchmark)", "gendershades.org, on request", "research use")
EXPECTED = "portraits named like 0967_5_f_SA.jpg, PPB-2017-metadata.csv, ppbFeatures.npy or file of vectors"
FOLDERS = ("", "imgs", "images")
WIDEST = 12  # columns of a table that describes pictures; one with more has vectors
NAME = re.compile(r"\d+_([1-6])_([fm])_([a-z]{2})\.\w+", re.IGNORECASE)
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


class Portrait(NamedTuple):
    """A picture's file name, and the person's gender, Fitzpatrick skin type (1–6) and country code."""

    id: str
    gender: str
    skin_type: int
    country: str

    @classmethod
    def from_name(cls, name: str) -> Portrait | None:
        """Read a name such as ``0967_5_f_SA.jpg``: number, skin type, gender, country.

        >>> Portrait.from_name("imgs/0967_5_f_SA.jpg")
        Portrait(id='0967_5_f_SA.jpg', gender='female', skin_type=5, country='SA')
        """
        base = PurePosixPath(name.replace("\\", "/")).name
        parts = NAME.fullmatch(base)
        if parts is None:
            return None
        skin, gender, country = parts.groups()
        return cls(base, GENDERS[gender.lower()], int(skin), country.upper())

    @classmethod
    def from_cells(cls, cells: Mapping[str, str], where: str) -> Portrait:
        """Read the cells of a table's row; messages call the row `where`."""
        gender, skin = (cells[what].strip().lower() for what in ("gender", "skin_type"))
        if gender not in GENDERS:
            raise FileError(f"{where}: gender '{cells['gender']}'; expected Female or Male")
        if skin not in SKIN_TYPES:
            raise FileError(
                f"{where}: skin type '{cells['skin_type']}'; expected Fitzpatrick's 1 to 6, or I to VI"
            )
        country = cells["country"].strip()
        codes = {name.lower(): code for code, name in COUNTRIES.items()}
        name = PurePosixPath(cells["id"].strip()).name
        return cls(name, GENDERS[gender], SKIN_TYPES[skin], codes.get(country.lower(), country))


def load_ppb(
    path: str | os.PathLike[str], encoding: Encoding | None = None, *, progress: Progress = None
) -> LabelledData:
    """Read PPB-2017 in any of its forms.

    `path` is a folder of portraits with the benchmark's file names; the folder as distributed or its metadata CSV, with
    columns found by name; the authors' ``ppbFeatures.npy``; or a table of vectors with the metadata's columns or with
    the file names as ids. Pictures are encoded, by default by the encoder ``faces`` with the user's cache. Columns:
    gender (female, male), skin_type (1–6), skin_tone (darker for 4–6, else lighter), country (FL IL RW SA SE SW), and
    group (dark-skinned women, others).
    """
    place = Path(path)
    if place.suffix.lower() == ".npy" and place.is_file():
        return _features(place)
    if place.is_dir():
        sheets: Iterable[Path] = sorted(place.glob("*metadata*.csv"))
    elif place.is_file():
        sheets = [place] if place.suffix.lower() == ".csv" else []
    else:
        raise ORIGIN.missing(place, EXPECTED)
    for portraits in map(_metadata, sheets):
        if portraits is not None:
            folder = _pictures_of(portraits, place if place.is_dir() else place.parent)
            return _encode(folder, portraits, encoding, progress)
    if place.is_file():
        return _table(place)
    for folder in (place / inside for inside in FOLDERS):
        names = sorted(file.name for file in folder.glob("*") if is_picture(file.name))
        if names:
            return _encode(folder, _by_name(names, folder), encoding, progress)
    raise ORIGIN.missing(place, EXPECTED)


def _columns(portraits: Sequence[Portrait]) -> dict[str, NDArray[np.str_]]:
    """Columns of the labels; the paper's s > 3 is darker, and `group` its intersection."""
    darker = [p.skin_type > 3 for p in portraits]
    both = [dark and p.gender == "female" for dark, p in zip(darker, portraits, strict=True)]
    return text_columns(
        {
            "gender": [p.gender for p in portraits],
            "skin_type": [str(p.skin_type) for p in portraits],
            "skin_tone": ["darker" if dark else "lighter" for dark in darker],
            "country": [p.country for p in portraits],
            "group": ["dark-skinned women" if member else "others" for member in both],
        }
    )


def _encode(
    folder: Path, portraits: Sequence[Portrait], encoding: Encoding | None, progress: Progress
) -> LabelledData:
    ids = [portrait.id for portrait in portraits]
    files = [str(folder / name) for name in ids]
    return encode(ListedItems(str(folder), SET, "image", files, ids, _columns(portraits)), encoding, progress)


def _by_name(names: Sequence[str], where: object) -> list[Portrait]:
    """Labels from file names, which must all be the benchmark's."""
    portraits = [Portrait.from_name(name) for name in names]
    strange = [name for name, portrait in zip(names, portraits, strict=True) if portrait is None]
    if strange:
        raise FileError(
            f"{where}: {len(strange)} of {len(names)} items are not named like those of {SET}, the first is "
            f"'{strange[0]}'; expected names like 0967_5_f_SA.jpg, or PPB-2017-metadata.csv next to the pictures"
        )
    return [portrait for portrait in portraits if portrait is not None]


def _pictures_of(portraits: Sequence[Portrait], place: Path) -> Path:
    for inside in FOLDERS:
        if any((place / inside / portrait.id).is_file() for portrait in portraits):
            return place / inside
    raise ORIGIN.missing(place, f"pictures that its metadata lists, such as imgs/{portraits[0].id}")


def _find_columns(names: Sequence[str], label: str, needed: Iterable[str] = COLUMNS) -> dict[str, str]:
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


def _metadata(sheet: Path) -> list[Portrait] | None:
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
    columns = _find_columns(header, str(sheet))
    portraits = []
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise FileError(f"{sheet}, row {number}: {len(row)} cells, but the header has {len(header)}")
        cells = {what: row[header.index(name)] for what, name in columns.items()}
        portraits.append(Portrait.from_cells(cells, f"{sheet}, row {number}"))
    if not is_picture(portraits[0].id):
        raise FileError(
            f"{sheet}: column '{columns['id']}' has '{portraits[0].id}'; expected the name of a picture"
        )
    return portraits


def _table(place: Path) -> LabelledData:
    """Vectors in a table: labels from its columns, or else from the file names in its ids."""
    opened = open_table(place)
    columns = _find_columns([n for n, kind in opened.columns.items() if kind != "vector"], str(place), ["id"])
    source = opened.select(extra=tuple(columns.values()), strict=True)
    blocks = list(source)
    cells = {
        what: [text for block in blocks for text in block.values[name]] for what, name in columns.items()
    }
    if len(columns) == len(COLUMNS):
        rows = (dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True))
        portraits = [Portrait.from_cells(row, f"{place}, row {at}") for at, row in enumerate(rows)]
    else:
        portraits = _by_name(cells["id"], place)
    vectors = np.concatenate([block.vectors for block in blocks])
    return _labelled(portraits, vectors, source.metadata.get(ENCODER_KEY))


def _features(place: Path) -> LabelledData:
    """The authors' file: a pickled dict of file name to vector; pairs of both are accepted too."""
    content: Any = read_object_npy(place)
    if content.dtype != object:
        raise FileError(
            f"{place} has numbers of shape {content.shape} without file names; expected {SET}'s names and their vectors"
        )
    content = content.item() if content.ndim == 0 else list(content)
    entries = content.items() if isinstance(content, dict) else content
    pairs = [tuple(entry) if np.iterable(entry) else () for entry in entries]
    if not pairs or any(len(pair) != 2 or not isinstance(pair[0], str) for pair in pairs):
        raise FileError(
            f"{place} has a {type(content).__name__} of {len(pairs)} entries; expected a dict of file name "
            "(0967_5_f_SA.jpg) to vector, or pairs of both"
        )
    rows = [vector for _, vector in pairs]
    stacked = np.array(rows) if len({np.shape(row) for row in rows}) == 1 else np.empty(0)
    if stacked.ndim != 2 or stacked.dtype.kind not in "fiu":
        raise FileError(f"{place}: the vectors are not lists of equally many numbers; download it again")
    return _labelled(_by_name([name for name, _ in pairs], place), as_float(stacked), None)


def _labelled(portraits: Sequence[Portrait], vectors: NDArray[Any], encoder: str | None) -> LabelledData:
    return LabelledData(SET, vectors, _columns(portraits), tuple(p.id for p in portraits), encoder)


# The experiment.

ATTRIBUTES = (
    Attribute("gender", "gender", ("female", "male")),
    Attribute("skin tone", "skin_tone", ("darker", "lighter")),
    Attribute("dark-skinned women", "group", ("dark-skinned women", "others")),
)
MAIN = ("gender", "skin tone")  # the attributes of Figure 1
BY_COUNTRY = ("random-balanced", "adaptive", "likelihood", "rectified")
FEWEST = 20  # portraits of a country that make a collection
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


def work(data: LabelledData, repetition: int, part: int, settings: Settings) -> Batch:
    """One attribute on one split: every sweep."""
    attribute, seed = ATTRIBUTES[part], settings.seed
    first, rest = _split(data, settings, repetition)
    rng = np.random.default_rng([seed, repetition, part])
    sampling = np.random.default_rng([seed, repetition, part, 1])
    labelled = Labelled.draw(data, attribute, first, rng, repetition)
    collections = composition_sweep(data, attribute, rest, settings, rng, sampling)
    methods = all_methods(settings)
    batch = Batch(ask(methods, labelled, collections, "f"))
    if attribute.name in MAIN:
        batch.measures.extend(_measure_gamma(labelled, data, attribute, rest, settings))
        even = compose(attribute.labels(data), rest, (0.5, 0.5), settings.collection, rng)
        batch.answers.extend(size_sweep(labelled, collect(data, attribute, even, "", sampling), settings))
        countries = list(_countries(data, attribute, rest, sampling))
        by_country = [method for method in methods if method.key in BY_COUNTRY]
        batch.answers.extend(ask(by_country, labelled, countries, "country"))
        batch.checks.extend(audit_collections(labelled, countries))
    return batch


def _split(data: LabelledData, settings: Settings, repetition: int) -> Split:
    rng = np.random.default_rng([settings.seed, repetition])
    return random_split(len(data), settings.labels, rng)


def _countries(
    data: LabelledData, attribute: Attribute, rows: Rows, sampling: np.random.Generator
) -> Iterator[Collection]:
    """The unlabelled portraits of every country; these are not random draws."""
    country = data.columns["country"]
    for code in np.unique(country).tolist():
        part = rows[country[rows] == code]
        if len(part) >= FEWEST:
            yield collect(data, attribute, part, COUNTRIES.get(code, code), sampling)


def _measure_gamma(
    labelled: Labelled, data: LabelledData, attribute: Attribute, rows: Rows, settings: Settings
) -> Iterator[tuple[str, str, float]]:
    """γ^(T) of the random and of the adaptive control set: on the other partition, and on the set itself."""
    vectors, names = data.vectors[rows], data.columns[attribute.column][rows].tolist()
    size = settings.size
    sets = {"random": balanced(size), "adaptive": adaptive(size, settings.alpha)}
    for name, choose in sets.items():
        control = choose(labelled)
        yield attribute.name, f"{name}, held out", gamma_control(control, vectors, names)
        yield attribute.name, f"{name}, own", Reference.of(control).gamma


def _separabilities(data: LabelledData) -> dict[str, Separability]:
    """γ of the whole data set, for every main attribute."""
    every = np.arange(len(data))
    return {
        a.name: separability(data.control(every, a.column, a.groups)) for a in ATTRIBUTES if a.name in MAIN
    }


def _mean_gamma(findings: Findings, attribute: str, name: str) -> float:
    return float(np.mean([v for a, n, v in findings.batch.measures if (a, n) == (attribute, name)]))


def check(findings: Findings) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The paper's claims with the values that they are checked by."""
    gender, skin = (findings.accuracy[name] for name in MAIN)
    whole = _separabilities(findings.data)
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
    yield TEXTS["ppb"]["claims"], values
    for attribute, separable in whole.items():
        this, paper = findings.accuracy[attribute], PAPER_GAMMA[attribute]
        biases = [this[m].worst_bias for m in ("random-balanced", "random-proportional") if m in this]
        held_out, own = (
            _mean_gamma(findings, attribute, f"adaptive, {what}") for what in ("held out", "own")
        )
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
        yield TEXTS["ppb"]["each"], values
    for attribute in MAIN:
        yield smaller_sets(findings.at("size"), attribute, f"disparity 0, {attribute}")


def _gamma_table(findings: Findings, whole: Mapping[str, Separability]) -> ResultTable:
    """γ and γ^(T) as measured, next to what the paper reports."""
    rows: list[tuple[object, ...]] = []
    for attribute, separable in whole.items():
        paper = PAPER_GAMMA[attribute]
        itself = "γ, all items, pairs with itself kept"
        rows.append((attribute, "γ, all items", separable.gamma, None, paper["γ"]))
        rows.append((attribute, itself, separable.gamma_with_self, None, paper["γ with self-pairs"]))
        for name in dict.fromkeys(name for _, name, _ in findings.batch.measures):
            values = [v for a, n, v in findings.batch.measures if (a, n) == (attribute, name)]
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
            rows.append((attribute, f"γ^(T), {name}", np.mean(values), spread, paper[name.split(",")[0]]))
    columns = ("attribute", "what", "measured", "standard deviation", "paper")
    title = "Similarity within a group minus similarity between groups"
    return ResultTable.of("gamma", title, columns, rows)


def _theorem_table(findings: Findings, whole: Mapping[str, Separability]) -> ResultTable:
    """The bound for |T| and |S| of the sweep, and for those of the authors' notebooks, next to the errors."""
    sizes = findings.settings.size, findings.settings.collection
    rows: list[tuple[object, ...]] = []
    for attribute, same in whole.items():
        for method, what in (("random-balanced", "random"), ("adaptive", "adaptive")):
            chosen = _mean_gamma(findings, attribute, "adaptive, held out") if what == "adaptive" else None
            bound = theorem(*sizes, same.mu_same, same.mu_diff, chosen)
            seen = findings.accuracy[attribute][method]
            errors = seen.mae, seen.quantile, seen.largest
            rows.append(
                (attribute, f"{what} control set", *sizes, bound.delta, bound.additive_error, *errors)
            )
        bound = theorem(*NOTEBOOK, same.mu_same_with_self, same.mu_diff)
        setting = (attribute, "as in the authors' notebooks", *NOTEBOOK)
        rows.append((*setting, bound.delta, bound.additive_error, None, None, None))
    columns = (
        "attribute", "setting", "|T|", "|S|", "δ", "bound on the error", "mean error seen",
        "0.9 quantile seen", "largest seen",
    )  # fmt: skip
    return ResultTable.of("theorem", "Theorem 3.3", columns, rows)


def _bound_curves(findings: Findings, whole: Mapping[str, Separability]) -> dict[str, dict[str, Any]]:
    """The bound and the 0.9 quantile of the errors, by size of the control set."""
    curves: dict[str, dict[str, Any]] = {}
    for attribute, same in whole.items():
        here = [p for p in findings.at("size") if p.attribute == attribute]
        sizes = sorted({float(p.at) for p in here})
        bounds = [theorem(int(n), findings.settings.collection, same.mu_same, same.mu_diff) for n in sizes]
        curves[attribute] = {"Theorem 3.3": (sizes, [bound.additive_error for bound in bounds])}
        for method, name in (
            ("random-balanced", "DivScore-Random-Balanced, 0.9 quantile of the error"),
            ("likelihood-few", "likelihood with the same labels, 0.9 quantile of the error"),
        ):
            mostly = [p for p in here if p.method == method and p.answers >= p.excluded]
            curves[attribute][name] = ([float(p.at) for p in mostly], [p.quantile for p in mostly])
    return curves


def report(findings: Findings) -> Report:
    """The tables and figures of PPB-2017."""
    settings, whole = findings.settings, _separabilities(findings.data)
    shown, sizes = main_methods(settings), size_methods(settings.size, settings.alpha)
    by_country = findings.select(BY_COUNTRY)
    x_labels = {a.name: f"fraction f of the group “{a.groups[0]}” in the collection" for a in ATTRIBUTES}
    main = {name: x_labels[name] for name in MAIN}
    other = {name: text for name, text in x_labels.items() if name not in MAIN}
    drawn = {
        "figure1": figures.sweep_figure(findings.at("f"), shown, main, 1.5),
        "figure1_whole": figures.sweep_figure(findings.at("f"), shown, main),
        "errors": figures.error_figure(findings.at("f"), shown, x_labels),
        "intersection": figures.sweep_figure(findings.at("f"), shown, other, 1.5),
        "sizes": figures.size_figure(findings.at("size"), sizes, MAIN),
        "theorem": figures.bound_figure(
            _bound_curves(findings, whole), ("random-balanced", "likelihood-few")
        ),
        "countries": figures.collection_figure(findings.at("country"), by_country, MAIN),
    }
    tables = {
        "sizes": size_table(findings, sizes),
        "gamma": _gamma_table(findings, whole),
        "theorem": _theorem_table(findings, whole),
        "collections": trust_table(findings, "country", by_country, "country"),
    }
    warnings = [c.warning for c in findings.batch.checks if c.warning and c.trust != "good"]
    warning = f"> {warnings[0]}" if warnings else ""
    return tables, drawn, {"warned": len(warnings), "audits": len(findings.batch.checks), "warning": warning}


EXPERIMENT = Experiment("ppb", Settings(), ATTRIBUTES, work, check, report, prepare=prepare, main=MAIN)
