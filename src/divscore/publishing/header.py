"""The YAML lines above a dataset card, as the Hugging Face hub reads them."""

from __future__ import annotations

import json
import re

from divscore.control.controlcard import TABLE
from divscore.publishing.publication import Publication
from divscore.text import printable

__all__ = ["header", "license_address"]

# Terms that the hub knows by name, with their SPDX identifiers.
LICENSES = {
    "apache-2.0": "Apache-2.0",
    "cc0-1.0": "CC0-1.0",
    "cc-by-2.0": "CC-BY-2.0",
    "cc-by-3.0": "CC-BY-3.0",
    "cc-by-4.0": "CC-BY-4.0",
    "cc-by-sa-3.0": "CC-BY-SA-3.0",
    "cc-by-sa-4.0": "CC-BY-SA-4.0",
    "cc-by-nc-4.0": "CC-BY-NC-4.0",
    "cc-by-nc-nd-4.0": "CC-BY-NC-ND-4.0",
    "cc-by-nc-sa-4.0": "CC-BY-NC-SA-4.0",
    "cc-by-nd-4.0": "CC-BY-ND-4.0",
    "cdla-permissive-1.0": "CDLA-Permissive-1.0",
    "cdla-permissive-2.0": "CDLA-Permissive-2.0",
    "cdla-sharing-1.0": "CDLA-Sharing-1.0",
    "mit": "MIT",
    "odbl": "ODbL-1.0",
    "odc-by": "ODC-By-1.0",
    "pddl": "PDDL-1.0",
}
SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
)
TAGS = ("divscore", "control-set", "audit", "diversity")


def header(publication: Publication) -> str:
    """The header, between its two lines of dashes."""
    about, count = publication.about, len(publication.control)
    size = next((name for limit, name in SIZES if count < limit), "1M<n<10M")
    lines = [f"pretty_name: {_quoted(publication.title)}", *_license(about.license)]
    if about.languages:
        lines += ["language:", *(f"- {_quoted(code)}" for code in about.languages)]
    lines += ["tags:", *(f"- {tag}" for tag in TAGS), "size_categories:", f"- {size}"]
    lines += [
        "configs:",
        "- config_name: default",
        "  data_files:",
        "  - split: control",
        f"    path: {TABLE}",
    ]
    return "\n".join(["---", *lines, "---", ""])


def license_address(license: str) -> str:
    """Where the terms can be read, if they are known ones; or else what was stated."""
    name = LICENSES.get(license.lower())
    return f"https://spdx.org/licenses/{name}.html" if name else license


def _license(text: str) -> list[str]:
    if not text:
        return ["license: unknown"]
    if text.lower() in LICENSES:
        return [f"license: {text.lower()}"]
    if re.fullmatch(r"https?://\S+", text):
        return ["license: other", "license_name: see-link", f"license_link: {_quoted(text)}"]
    name = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")[:40]
    return ["license: other", f"license_name: {_quoted(name or 'other')}"]


def _quoted(text: str) -> str:
    """A string that means itself in YAML, which takes JSON's."""
    return json.dumps(printable(" ".join(text.split())), ensure_ascii=False)
