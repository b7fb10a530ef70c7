"""Models by their name on the Hugging Face hub, such as `timm/vgg16.tv_in1k` or `owner/name:file`.

The hub is asked only if the user names such a model. What was fetched stays in huggingface_hub's own cache and is
used from there without asking again, so that a model does not change between two runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from divscore.errors import FileError, InputError, MissingExtraError

__all__ = ["HubModel", "folder_of", "locate"]

NAME = re.compile(
    r"(?P<repo>[a-z0-9][\w.-]*/[a-z0-9][\w.-]*)(:(?P<file>\w[\w./-]*))?", re.ASCII | re.IGNORECASE
)
SUFFIXES = {".safetensors", ".h5", ".hdf5", ".keras", ".onnx", ".bin", ".pt", ".pth", ".npz", ".json"}


class _UnreachableError(Exception):
    """The file is not in the cache, and the hub did not give it."""


@dataclass(frozen=True)
class HubModel:
    """A repository on the hub, a file in it if one was named, and the commit that is meant (None: the newest)."""

    repo: str
    file: str | None = None
    commit: str | None = None

    def fetch(self, names: Iterable[str]) -> Path:
        """The file that was named with the model, or else the first of `names` that the repository has."""
        wanted = [self.file] if self.file else list(names)
        failure: _UnreachableError | None = None
        absent = []  # as far as the cache knows, which may be out of date
        for name in wanted:
            cached = self._cached(name)
            if cached is False:
                absent.append(name)
                continue
            try:
                if path := cached or (None if failure else self._download(name)):
                    return path
            except _UnreachableError as error:
                failure = error
        try:
            for name in absent if failure is None else ():
                if path := self._download(name):
                    return path
        except _UnreachableError as error:
            failure = error
        raise self._refusal(wanted, failure) from failure

    def add(self, names: Iterable[str]) -> None:
        """Fetch what the repository has of these files; what can do without them goes on if the hub is away."""
        for name in names:
            if self._cached(name) is None:
                try:
                    self._download(name)
                except _UnreachableError:
                    return

    def at(self, fetched: Path) -> HubModel:
        """The same repository at the commit of a fetched file, so that all files are of one state."""
        return replace(self, file=None, commit=folder_of(fetched).name)

    def _refusal(self, wanted: list[str], failure: _UnreachableError | None) -> InputError:
        if failure is None:
            return InputError(
                f"the hub's {self.repo} has no {' and no '.join(wanted)}; name the file to take: "
                f"--model {self.repo}:FILE (its files are at {_page(self.repo)}/tree/main)"
            )
        return InputError(
            f"--model {self.repo} is no file here, and {wanted[0]} could not be fetched from the model hub "
            f"({failure}); without a connection, download it from {_page(self.repo)} on another machine and give "
            "--model PATH"
        )

    def _cached(self, name: str) -> Path | Literal[False] | None:
        """A file that was fetched before, False if the hub said before that there is none, None if unknown."""
        hub, _ = _client()
        try:
            found = hub.try_to_load_from_cache(self.repo, name, revision=self.commit)
        except ValueError as error:
            raise InputError(
                f"--model {self.repo} is no file here, nor can it be a name on the model hub ({_first_line(error)})"
            ) from error
        if isinstance(found, str):
            return Path(found)
        return None if found is None else False

    def _download(self, name: str) -> Path | None:
        hub, errors = _client()
        try:
            return Path(hub.hf_hub_download(self.repo, name, revision=self.commit))
        except errors.GatedRepoError as error:
            raise InputError(
                f"the hub gives {self.repo} only to those who were granted access; ask for it at "
                f"{_page(self.repo)} and log in (hf auth login), or download {name} there and give --model PATH"
            ) from error
        except errors.RepositoryNotFoundError as error:
            raise InputError(
                f"--model {self.repo} is no file here, and the hub has no public model of that name; check the "
                "spelling, give --model PATH, or log in if the model is private (hf auth login)"
            ) from error
        except errors.LocalEntryNotFoundError as error:
            raise _UnreachableError(_first_line(error.__cause__ or error)) from error
        except errors.EntryNotFoundError:
            return None
        except Exception as error:  # whatever the network, the disk or a proxy may raise
            raise _UnreachableError(_first_line(error)) from error


def locate(model: str) -> Path | HubModel:
    """A file or folder that exists, or else a name on the hub."""
    path = Path(os.path.expanduser(model))
    if path.exists():
        return path
    form = NAME.fullmatch(model)
    if form and (form["file"] or not (path.parent.is_dir() or path.suffix.lower() in SUFFIXES)):
        return HubModel(form["repo"], form["file"])
    raise FileError(
        f"--model {model}: there is no such file or folder; expected a path, or a name on the model hub such as "
        "owner/name or owner/name:FILE"
    )


def folder_of(fetched: Path) -> Path:
    """The local folder that mirrors the repository of a fetched file; it is named after the commit."""
    return next(folder for folder in fetched.parents if folder.parent.name == "snapshots")


def _page(repo: str) -> str:
    return f"https://huggingface.co/{repo}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _client() -> tuple[Any, Any]:
    try:
        import huggingface_hub
        from huggingface_hub import utils
    except ImportError as error:
        raise MissingExtraError(
            "models by their name on the hub need huggingface_hub; install it with: pip install 'divscore[onnx]'"
        ) from error
    return huggingface_hub, utils
