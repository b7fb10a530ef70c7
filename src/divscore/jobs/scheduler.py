"""How a cluster's scheduler is found: by its address, or by the file that it writes."""

from __future__ import annotations

import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from divscore.errors import InputError, MissingExtraError

__all__ = ["connect"]

CONNECT_SECONDS = 10.0
EXPECTED = (
    "expected the address that 'dask scheduler' prints, such as tcp://10.0.0.5:8786, or the file that its "
    "--scheduler-file names"
)


def connect(address: str) -> Any:
    """A client of the cluster, or an error that says what an address should be."""
    try:
        import distributed
    except ImportError as error:
        raise MissingExtraError("--cluster needs Dask: pip install 'divscore[dask]'") from error
    client: Any = distributed.Client  # which says nothing of its types
    try:
        where = _read_address(address) if os.path.isfile(address) else _with_port(address)
        _check_scheduler(where)
        return client(where, timeout=CONNECT_SECONDS, set_as_default=False, name="divscore")
    except InputError:
        raise
    except Exception as error:  # Dask has no errors of its own for what may be wrong with an address
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"no cluster answers at {address or 'an empty address'} ({said}); {EXPECTED}"
        ) from error


def _with_port(address: str) -> str:
    """An address; what cannot be one is the name of a file that is not there."""
    if address and "://" not in address and (address.endswith(".json") or ":" not in address):
        wrong = "is a folder" if os.path.isdir(address) else "does not exist"
        raise InputError(f"{address} {wrong}, and an address would have a port; {EXPECTED}")
    return address


def _read_address(path: str) -> str:
    """The address in a scheduler's file."""
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
    except ValueError:
        found = None
    address = found.get("address") if isinstance(found, dict) else None
    if not isinstance(address, str):
        raise InputError(
            f"{path} names no scheduler; expected the file that 'dask scheduler --scheduler-file' writes"
        )
    return address


def _check_scheduler(address: str) -> None:
    """Ask who answers there: Dask's client would wait for ever for the greeting of another program."""
    # In a thread of its own, as this one may have a loop that runs, as in a notebook.
    with ThreadPoolExecutor(1) as aside:
        answer = aside.submit(asyncio.run, _identity(address)).result()
    if answer != "Scheduler":
        raise InputError(
            f"at {address} answers a {answer}, not a scheduler; give the address that 'dask scheduler' prints"
        )


async def _identity(address: str) -> str:
    import distributed

    dask: Any = distributed  # which says nothing of its types

    async def ask() -> str:
        settings = dask.Security().get_connection_args("client")
        async with dask.rpc(address, timeout=CONNECT_SECONDS, connection_args=settings) as there:
            return str((await there.identity())["type"])

    try:
        return await asyncio.wait_for(ask(), CONNECT_SECONDS)
    except TimeoutError as error:
        raise TimeoutError("nobody answers, or somebody else than Dask does") from error
