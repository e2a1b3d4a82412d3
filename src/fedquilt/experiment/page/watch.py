"""Serves the page of a report on this machine alone, and keeps it up to date during runs."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedquilt.base.errors import FedquiltError, RunError
from fedquilt.experiment.page.document import content, inline_json, page
from fedquilt.experiment.page.part import Part
from fedquilt.experiment.page.source import Reader, stamps

ADDRESS = "127.0.0.1"
NAMES = (ADDRESS, "localhost")
"""Names under which the server answers: another one in a request is another site's page that reaches for it."""

Gatherer = Callable[[Sequence[Path], Reader], list[Part]]


class Watch:
    """A server of one page; `serve` runs until it is interrupted or `close` is called from another thread."""

    def __init__(self, paths: Sequence[Path], gather: Gatherer, port: int = 0) -> None:
        """Listen on a port of this machine, any free one if it is 0; `gather` reads what is shown."""
        self._paths, self._gather = list(paths), gather
        self._reader = Reader()
        self._lock = threading.Lock()
        self._shown: tuple[object, list[Part]] | None = None
        handler = type("_BoundHandler", (_Handler,), {"watch": self})
        try:
            self._server = ThreadingHTTPServer((ADDRESS, port), handler)
        except OSError as error:
            raise RunError(
                f"port {port}: cannot be listened on: {error.strerror}; choose another with --port"
            ) from None
        self._server.daemon_threads = True

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self.port}/"

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    def serve(self) -> None:
        """Answer requests until interrupted."""
        try:
            self._server.serve_forever(poll_interval=0.2)
        finally:
            self._server.server_close()

    def close(self) -> None:
        """End `serve`, which runs in another thread."""
        self._server.shutdown()

    def parts(self) -> list[Part]:
        """Read what there is now; what cannot be shown is said on the page, which tries again."""
        with self._lock:
            now = stamps(self._paths)
            if self._shown is None or self._shown[0] != now:
                self._shown = now, self._read()
            return self._shown[1]

    def _read(self) -> list[Part]:
        try:
            return self._gather(self._paths, self._reader)
        except FedquiltError as error:
            return [Part("Nothing to show yet", str(error))]


class _Handler(BaseHTTPRequestHandler):
    """Answers for the page and for what is new of it, and nothing else."""

    watch: Watch
    server_version = "fedquilt"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer a request."""
        name, _, port = (self.headers.get("Host") or "").rpartition(":")
        if name not in NAMES or port != str(self.watch.port):
            self._answer(HTTPStatus.FORBIDDEN, b"This page is served to this machine alone.\n", "text/plain")
        elif self.path == "/":
            self._answer(HTTPStatus.OK, page(self.watch.parts(), "Runs", live=True).encode(), "text/html")
        elif self.path == "/content":
            body, figures = content(self.watch.parts(), "Runs")
            text = inline_json({"body": body, "figures": figures}).encode()
            tag = f'"{hashlib.sha256(text).hexdigest()[:32]}"'
            if self.headers.get("If-None-Match") == tag:
                self._answer(HTTPStatus.NOT_MODIFIED, b"", "application/json", tag)
            else:
                self._answer(HTTPStatus.OK, text, "application/json", tag)
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"There is no such page.\n", "text/plain")

    def _answer(self, status: HTTPStatus, text: bytes, kind: str, tag: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Frame-Options", "DENY")
        if tag is not None:
            self.send_header("ETag", tag)
        self.end_headers()
        try:
            self.wfile.write(text)
        except (BrokenPipeError, ConnectionResetError):  # the reader has gone
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that it overrides
        """Say nothing of single requests: the terminal is for what matters."""
