"""`rulax watch`: serves the page of one run to this machine alone, read-only, until it is stopped.

There is one address, and no path of a request ever becomes one of the file system: nothing but the page can be read.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import webbrowser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from rulax.commands.settings import assemble, check_bounds, read_values
from rulax.commands.tables import print_places
from rulax.commands.watch.settings import WatchConfig
from rulax.commands.watch.setup import find_run
from rulax.commands.watch.show import LivePage
from rulax.errors import UserError

LOOPBACK = "127.0.0.1"
FIRST_PORT, PORTS = 8300, 20  # tried one after the other, unless the user asks for one
# Of a request's Host, without its port. A page of a stranger whose name was made to point here carries its own name.
OWN_NAMES = (LOOPBACK, "localhost")
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line: serves until Ctrl-C."""
    config = assemble(WatchConfig, read_values(WatchConfig, values))
    check_bounds(config)
    with Watch(find_run(config.run), config.port) as watching:
        # Around all of it: whoever has read the address may press Ctrl-C at once.
        try:
            print_places(("watching", watching.folder), ("the page", watching.url))
            print("Ctrl-C ends the page; the run goes on.", flush=True)
            if config.open and has_screen():
                webbrowser.open(watching.url)
            watching.thread.join()
        except KeyboardInterrupt:
            print("\nno longer watching", flush=True)
    return 0


class Watch:
    """A page that is being served: `.url` is its address, `.close()` ends it. A `with` closes it as well."""

    def __init__(self, folder: Path, port: int = 0):
        self.folder = folder
        self.server = serve(LivePage(folder), port)
        self.url = f"http://{LOOPBACK}:{self.server.server_address[1]}/"
        # As a daemon: whoever forgets to close it can still leave Python.
        self.thread = threading.Thread(target=self.server.serve_forever, name="rulax watch", daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Stop serving; a second time does nothing."""
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Watch({self.folder}, {self.url})"


class PageServer(ThreadingHTTPServer):
    """Serves one live page."""

    daemon_threads = True  # a browser that never finishes its request must not keep the process alive

    def __init__(self, page: LivePage, port: int):
        self.page = page
        super().__init__((LOOPBACK, port), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that left in the middle of an answer is no news."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD for the one address that there is; every other method is refused by the base class."""

    server: PageServer
    timeout = 30  # seconds that a request may take to arrive
    server_version, sys_version = "rulax", ""

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def answer(self, with_body: bool) -> None:
        """The page, that it is still the same, or that there is nothing here."""
        host, _, port = (self.headers.get("Host") or "").rpartition(":")
        if (host if port.isdigit() else "") not in OWN_NAMES:
            self.send_error(403, "Asked for under a foreign name")
        elif self.path != "/":
            self.send_error(404, "There is only one page")
        else:
            shown = self.server.page.now()
            same = self.headers.get("If-None-Match") == shown.tag
            body = b"" if same else shown.body
            self.send_response(304 if same else 200)
            for name, value in {**HEADERS, "ETag": shown.tag, "Age": str(shown.age), "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a line for every second would hide what the user should read."""


def serve(page: LivePage, port: int) -> PageServer:
    """A server on the port, or on the first free one where the user does not mind."""
    for each in [port] if port else range(FIRST_PORT, FIRST_PORT + PORTS):
        try:
            return PageServer(page, each)
        except OSError as error:
            if port:
                why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror or error}"
                raise UserError(f"port {port} {why}; choose another --port, or leave it out") from None
    raise UserError(f"no port from {FIRST_PORT} to {FIRST_PORT + PORTS - 1} is free; choose one with --port")


def has_screen() -> bool:
    """Whether a browser can open a window; without one, a text browser would take over the terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
