"""An S3 server on loopback (moto's), which counts what is fetched from it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Counting:
    """Passes requests on and adds up the bytes of objects that were sent."""

    address = ""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.requests = self.bytes = self.ranges = self.asked = 0
        self.refused: dict[str, int] = {}  # ends of addresses, and how often their objects are refused

    def reset(self) -> None:
        self.requests = self.bytes = self.ranges = self.asked = 0

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        self.asked += 1
        for end in self.refused:
            if (
                self.refused[end]
                and environ["PATH_INFO"].endswith(end)
                and environ["REQUEST_METHOD"] == "GET"
            ):
                self.refused[end] -= 1
                start("403 Forbidden", [("Content-Type", "application/xml")])
                return [b"<Error><Code>AccessDenied</Code><Message>not now</Message></Error>"]
        parts = list(self.app(environ, start))
        if environ["REQUEST_METHOD"] == "GET" and "list-type" not in environ.get("QUERY_STRING", ""):
            self.requests += 1
            self.ranges += "HTTP_RANGE" in environ
            self.bytes += sum(map(len, parts))
        return parts


@contextmanager
def started_server() -> Iterator[Counting]:
    """Start the server on a free port."""
    server_module = pytest.importorskip("moto.server", reason="moto is not installed")
    pytest.importorskip("s3fs", reason="the extra 's3' is not installed")
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = Counting(server_module.DomainDispatcherApplication(server_module.create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    app.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield app
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def pointed_to(server: Counting) -> Iterator[Counting]:
    """Let this process, and those it starts, take the server for S3."""
    import s3fs

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", server.address)
        patch.setenv("AWS_ACCESS_KEY_ID", "tests")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        s3fs.S3FileSystem.clear_instance_cache()
        try:
            yield server
        finally:
            s3fs.S3FileSystem.clear_instance_cache()
