"""serve(): bind a port on loopback, print the address, answer until Ctrl-C."""

from __future__ import annotations

import logging
import os
import signal
import socket
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from divscore.errors import InputError
from divscore.web.app import create_app
from divscore.web.guard import digest, token
from divscore.web.watching import Watcher, watch_sources
from divscore.web.workspace import Workspace

LOOPBACK, PORT, MORE_PORTS = "127.0.0.1", 8642, 50
FOLDER = "divscore-project"
OPENING = "open-divscore.html"  # in the project folder while the server runs
TOKEN, SHORTEST_TOKEN = "DIVSCORE_TOKEN", 32  # of programs, as the environment has it
LAST_SECONDS = 3  # that open connections have to finish


def bound_socket(port: int | None) -> socket.socket:
    """A listening socket on loopback: at this port, or at the first free one from the usual port on."""
    for number in [port] if port is not None else range(PORT, PORT + MORE_PORTS):
        # With the protocol named, asyncio switches off Nagle's algorithm, which would delay small answers by 40 ms.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, number))
            listener.listen(128)
            return listener
        except OSError as error:
            listener.close()
            if port is not None:
                raise InputError(
                    f"port {port} cannot be used ({error.strerror}); choose another, or leave out --port"
                ) from error
    raise InputError(f"no port from {PORT} to {PORT + MORE_PORTS - 1} is free; choose one with --port")


def worth_a_line(record: logging.LogRecord) -> bool:
    """Whether the terminal should show a message: who asks for a WebSocket gets the answer of any other request."""
    return not any(part in record.getMessage() for part in ("WebSocket", "upgrade request"))


def check_public_url(url: str | None) -> None:
    """Refuse an address that no browser would send as the origin of the page."""
    if url is None:
        return
    parts = urlsplit(url)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.path not in ("", "/")
        or parts.query
    ):
        raise InputError(f"--public-url {url}: expected an address such as https://audits.example.org")


def opening_file(folder: Path, address: str) -> Path:
    """A page that leads to the address, and that nobody else can read.

    Everybody on this machine can read the command line of a browser, so the address with its token must not be there.
    """
    file = folder / OPENING
    file.unlink(missing_ok=True)
    place = escape(address)
    text = f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>divscore</title>
<meta http-equiv="refresh" content="0; url={place}"><p><a href="{place}">Open divscore</a></p>
"""
    with open(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as stream:
        stream.write(text)
    return file


class Server(uvicorn.Server):
    """Ends on Ctrl-C or SIGTERM without raising the signal again: that is how a person stops it, not an error."""

    stopping: Callable[[], None] = staticmethod(lambda: None)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let both signals end the server, a second one at once."""

        def stop(number: int, frame: Any) -> None:
            self.stopping()
            self.handle_exit(number, frame)

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(
    folder: str | os.PathLike[str] = FOLDER,
    *,
    sources: Sequence[str] = (),
    controls: Sequence[str] = (),
    watch: Sequence[str] = (),
    port: int | None = None,
    public_url: str | None = None,
    headless: bool = False,
    browser: bool = True,
    start: dict[str, Any] | None = None,
    encoder: str | None = None,
    model: str | None = None,
    cache: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Serve a project folder until it is stopped.

    `say` gets the address with a token that works once; with `headless` also a token for programs, which is new at
    every start unless the environment has one.
    """
    check_public_url(public_url)
    own = os.environ.get(TOKEN, "") if headless else ""
    if own and len(own) < SHORTEST_TOKEN:
        raise InputError(
            f"{TOKEN} has {len(own)} characters; use {SHORTEST_TOKEN} or more that nobody can guess"
        )
    listener = bound_socket(port)
    with listener:
        number = int(listener.getsockname()[1])
        encoding: dict[str, Any] = {"encoder": encoder, "model": model, "cache": cache}
        space = Workspace(folder, [*sources, *watch], controls, **encoding)
        try:
            watched = space.sources[len(sources) : len(sources) + len(watch)]
            watch_sources(space, watch, watched)
            Watcher(space).start()
            space.start = {"source": space.sources[0], **start} if start is not None else {}
            app = create_app(space, port=number, public_url=public_url)
            address = (public_url or f"http://{LOOPBACK}:{number}").rstrip("/")
            say(f"{address}/?token={space.keys.link()}")
            if headless:
                secret = own or token()
                space.keys.clients.add(digest(secret))
                say(f"Authorization: Bearer {f'${TOKEN}' if own else secret}")
            elif browser:
                opening = opening_file(space.folder, f"{address}/?token={space.keys.link()}")
                webbrowser.open(opening.absolute().as_uri())
            config = uvicorn.Config(
                app,
                log_level=logging.WARNING,
                access_log=False,  # addresses have tokens
                lifespan="off",
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=LAST_SECONDS,
            )
            logging.getLogger("uvicorn.error").addFilter(worth_a_line)
            server = Server(config)
            server.stopping = space.tasks.closed.set
            server.run(sockets=[listener])
        finally:
            (space.folder / OPENING).unlink(missing_ok=True)
            space.close()
