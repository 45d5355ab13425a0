"""Serve the explorer page on this machine, for browsers that reject files from disk."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from warpfrag.errors import ServerError, quote
from warpfrag.viz.explorer.page_builder import build_page

HOST = "127.0.0.1"  # local only: the page is for the user of this machine
NAMES = (HOST, "localhost")
HTTP_PORT = 80  # the port that an address does not name


class PageHandler(BaseHTTPRequestHandler):
    """Answers with the page, and with nothing else."""

    server: PageServer
    timeout = 20  # seconds that a connection may be idle; a browser opens some it does not need
    headers_sent: ClassVar[Mapping[str, str]] = {
        "Content-Type": "text/html; charset=utf-8",
        "Cache-Control": "no-store",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }

    def do_GET(self) -> None:
        """Send the page, at / only, and only to a browser that asked this machine by name.

        A foreign site can point its own name at 127.0.0.1; its requests carry that name and are rejected.
        """
        if self.headers.get("Host", "").lower() not in self.server.hosts:
            self.send_error(HTTPStatus.FORBIDDEN, f"ask for {self.server.address}")
        elif self.path != "/":
            self.send_error(HTTPStatus.NOT_FOUND, "there is one page, at /")
        else:
            self.send_response(HTTPStatus.OK)
            for name, value in self.headers_sent.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(self.server.page)))
            self.end_headers()
            self.wfile.write(self.server.page)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name is the base class's)
        """Log nothing: the terminal belongs to the user."""


class PageServer(ThreadingHTTPServer):
    """One page on 127.0.0.1."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        """Bind a port, any free one for 0; ServerError if it is taken."""
        if isinstance(port, bool) or not isinstance(port, int):
            raise ServerError(f"a port is an integer, got {quote(port)}")
        self.page = build_page().encode()
        try:
            super().__init__((HOST, port), PageHandler)
        except (OSError, OverflowError) as error:
            raise ServerError(f"cannot serve on port {port} of {HOST} ({error}); 0 takes a free one") from None

    @property
    def hosts(self) -> list[str]:
        """The accepted values of the header Host: names of this machine, with the port unless it is 80."""
        return [name if self.server_port == HTTP_PORT else f"{name}:{self.server_port}" for name in NAMES]

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://{self.hosts[0]}/"

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 (socketserver's signature)
        """Ignore a browser that closed the connection; print any other error in one line."""
        error = sys.exception()
        if sys.stderr is not None and not isinstance(error, OSError):
            sys.stderr.write(f"warpfrag: a request failed: {type(error).__name__}: {quote(str(error))}\n")
