"""Files of text that are written whole or not at all."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from divscore.errors import FileError

__all__ = ["check_place", "write_whole"]


def check_place(path: str | os.PathLike[str], what: str) -> None:
    """Refuse what no file can be written to; called before anything is computed, which may take hours."""
    target = Path(path)
    if target.is_dir():
        raise FileError(f"{what} {target} is a folder; name a file")
    if not target.parent.is_dir():
        raise FileError(f"{what} {target}: there is no folder {target.parent}; make it first")
    if not _is_special(target) and not os.access(target.parent, os.W_OK | os.X_OK):
        raise FileError(f"{what} {target}: the folder {target.parent} cannot be written to; name another")


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Put a file in place of any earlier one in one step; a pipe or device is written to as it is."""
    target = Path(os.path.realpath(path))  # a link stays one
    temporary = target.with_name(f".{target.name[:100]}.{uuid.uuid4().hex[:8]}.part")
    try:
        if _is_special(Path(path)):
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text)
            return
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()
