"""Pack the browser extension: `make extension`. The zip has one form only, and its content is checked first.

Checked: nothing but known kinds of files, every file is used, every file that another one names exists, no address of
another machine, no code from strings, texts complete in every language, permissions no more than the documented ones.
With `--checks` also `tsc --checkJs` and `web-ext lint`, which npm installs next to this file (development only).
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
EXTENSION = ROOT / "extension"
KINDS = {".js", ".json", ".html", ".css", ".png", ".svg"}
PERMISSIONS = {"activeTab", "contextMenus", "scripting", "storage"}
HOSTS = {"http://127.0.0.1/*"}
FORBIDDEN = {
    r"\beval\s*\(|\bnew Function\b|\bsetTimeout\(\s*[\"'`]": "code from strings",
    r"\.innerHTML\b|\.outerHTML\b|insertAdjacentHTML|document\.write": "HTML from strings",
    r"\bimport\s*\(\s*[^\"'\s]": "code that is loaded by a computed name",
}
OWN_ADDRESSES = re.compile(r"https?://(127\.0\.0\.1\b|www\.w3\.org/2000/svg|\*/\*)")


def problems(folder: Path) -> list[str]:
    """What is wrong with the extension in a folder."""
    files = {
        path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()
    }
    manifest = json.loads(files["manifest.json"].read_text("utf-8"))
    found = [f"{name}: files of this kind are not packed" for name in files if Path(name).suffix not in KINDS]
    texts = {name: path.read_text("utf-8") for name, path in files.items() if path.suffix != ".png"}

    if set(manifest["permissions"]) != PERMISSIONS or set(manifest["host_permissions"]) != HOSTS:
        found.append("manifest.json: other permissions than the documented ones")
    if "content_scripts" in manifest or not manifest.get("key"):
        found.append("manifest.json: content scripts run after a click only, and the key keeps the id")

    everything = "\n".join(texts.values())
    for name in files:
        known = name == "manifest.json" or name.startswith("_locales/") or name == "icons/icon.svg"
        if not known and not re.search(
            rf"(?<![\w-]){re.escape(name)}\b", everything.replace(f"./{name}", name)
        ):
            found.append(f"{name}: nothing uses this file")
    for name, text in texts.items():
        for link in re.findall(
            r"(?:src|href)=\"([^\"#]+)\"|from \"\./([^\"]+)\"|^import \"\./([^\"]+)\"", text, re.M
        ):
            target = next(part for part in link if part)
            if target not in files:
                found.append(f"{name}: there is no {target}")
        if name.endswith((".js", ".html", ".css")):
            for pattern, what in FORBIDDEN.items():
                if re.search(pattern, text):
                    found.append(f"{name}: {what}")
        for address in re.findall(r"https?://[^\s\"'`)>]+", text):
            if not OWN_ADDRESSES.match(address):
                found.append(f"{name}: the address {address}")

    languages = {name: json.loads(text) for name, text in texts.items() if name.startswith("_locales/")}
    for name, messages in languages.items():
        for other, theirs in languages.items():
            found += [f"{name}: no text '{key}', which {other} has" for key in theirs if key not in messages]
        for key, entry in messages.items():
            places = _places(entry["message"])
            if any(_places(theirs.get(key, entry)["message"]) != places for theirs in languages.values()):
                found.append(f"{name}: '{key}' has other places to fill than in another language")
    english = languages["_locales/en/messages.json"]
    asked = set(re.findall(r"data-text=\"(\w+)\"|\btext\(\"(\w+)\"|__MSG_(\w+)__", everything))
    found += [f"no text '{key}'" for keys in asked for key in keys if key and key not in english]
    return found


def _places(message: str) -> set[str]:
    return set(re.findall(r"\$\d", message))


def pack(folder: Path, target: Path) -> None:
    """Write the zip: the same bytes for the same files, wherever and whenever."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), (1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr, entry.create_system = (
                zipfile.ZIP_DEFLATED,
                0o644 << 16,
                3,
            )
            archive.writestr(entry, path.read_bytes())


def checked_by_npm(target: Path) -> int:
    """Check types, and what is in the zip; both need npm."""
    npm = shutil.which("npm")
    if npm is None:
        print("npm is not installed: types and lint are not checked", file=sys.stderr)
        return 1
    if not (HERE / "node_modules").exists():
        subprocess.run([npm, "install", "--no-package-lock", "--silent"], cwd=HERE, check=True)
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(target) as archive:
            archive.extractall(folder)
        commands = [[npm, "run", "--silent", "types"], [npm, "run", "--silent", "lint", "--", folder]]
        return max(subprocess.run(command, cwd=HERE, check=False).returncode for command in commands)


def main() -> int:
    """Check and pack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist" / "divscore-extension.zip")
    parser.add_argument("--checks", action="store_true", help="also run tsc and web-ext lint")
    options = parser.parse_args()
    found = problems(EXTENSION)
    for each in found:
        print(each, file=sys.stderr)
    if found:
        return 1
    pack(EXTENSION, options.output)
    print(options.output)
    return checked_by_npm(options.output) if options.checks else 0


if __name__ == "__main__":
    sys.exit(main())
