"""A run's page while the run goes on: served on loopback by a thread, brought up to date without a reload."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import parse_qs, urlsplit

from penstock.core.errors import PenstockError
from penstock.core.hosts import host_of, is_loopback
from penstock.core.pages.markup import Markup
from penstock.core.params import STR, Int, check_all
from penstock.core.runtime.threads import start_thread
from penstock.report.html import render, render_parts
from penstock.report.run_metrics import CONTENT_TYPE, metrics_text

_FRESH = 0.5  # seconds for which a rendering is good while the run goes on
_READER_IS_THERE = 5.0  # seconds since a page last asked
_PATIENCE = 3.0  # seconds that the end of a run waits for such a page to hear of it
_STATE = re.compile(r"-?[0-9]{1,18}").fullmatch
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


class PortTakenError(PenstockError, OSError):
    """Another program listens on the port."""


class GrowingReport(Protocol):
    """A report of something that still goes on, such as `penstock.jobs.RunRecorder` keeps."""

    @property
    def path(self) -> Path:
        """Where the page will be in the end."""
        ...

    @property
    def version(self) -> int:
        """Another number whenever something was added."""
        ...

    def report(self) -> dict[str, Any]:
        """Everything so far, as plain data."""
        ...


class LiveView:
    """Serves what a recorder has so far, as long as the block lasts; the file that is written at the end is the same.

    Args:
        recorder: of the run.
        port: 0 for any that is free.
        host: loopback by default, so that nobody else on the network sees it.

    >>> import urllib.request
    >>> class Growing:
    ...     path, version = Path("report.html"), 1
    ...     def report(self):
    ...         return {"version": 1, "title": "A run", "state": "running"}
    >>> with LiveView(Growing()) as view:
    ...     page = urllib.request.urlopen(view.url).read().decode()
    >>> "<h1>A run</h1>" in page
    True
    """

    def __init__(self, recorder: GrowingReport, port: int = 0, host: str = "127.0.0.1") -> None:
        check_all({"port": port, "host": host}, {"port": Int(0, 65535), "host": STR}, "LiveView")
        self.recorder, self.host, self.port = recorder, host, port
        self._lock = threading.Lock()
        self._number, self._rendered_at, self._seen = 0, float("-inf"), -1
        self._report: dict[str, Any] = {}
        self._parts: dict[str, tuple[int, Markup]] = {}  # the state in which each part last changed, and the part
        self._asked_at = float("-inf")
        self._end_told = threading.Event()
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        """Where the page is."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{self.port}/"

    def __enter__(self) -> Self:
        try:
            self._server = _Server(self)
        except OSError as error:
            self._server = None
            raise PortTakenError(
                f"port {self.port} on {self.host} cannot be used: {error.strerror or error}; "
                "choose another port, or 0 for any that is free"
            ) from error
        self.port = self._server.server_address[1]
        start_thread("live", self._server.serve_forever, 0.1)
        return self

    def __exit__(self, *_: object) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        if self.recorder.report()["state"] != "running" and time.monotonic() - self._asked_at < _READER_IS_THERE:
            self._end_told.wait(_PATIENCE)
        server.shutdown()
        server.server_close()

    # What the server's threads call.

    def page(self) -> str:
        """The whole page as things stand."""
        with self._lock:
            self._bring_up_to_date()
            return render(self._report, live=self._number)

    def changes(self, since: int) -> dict[str, Any]:
        """The parts that have changed since a state, and the number of the present one."""
        with self._lock:
            self._bring_up_to_date()
            self._asked_at = time.monotonic()
            changed = {name: part for name, (number, part) in self._parts.items() if number > since}
            return {
                "version": self._number,
                "state": self._report["state"],
                "title": f"{self._report['title']} · Penstock",
                "path": str(self.recorder.path),
                "sections": changed,
            }

    def told(self, state: str) -> None:
        """A page has been sent this state."""
        if state != "running":
            self._end_told.set()

    def _bring_up_to_date(self) -> None:
        running = self._report.get("state") == "running"
        fresh = time.monotonic() - self._rendered_at < _FRESH
        unchanged = self.recorder.version == self._seen and not running  # while it runs, the clock goes on
        if self._report and (unchanged or (running and fresh)):
            return
        seen, report = self.recorder.version, self.recorder.report()
        parts = render_parts(report)
        self._seen, self._report = seen, report
        changed = {n for n, part in parts.items() if n not in self._parts or self._parts[n][1] != part}
        self._number += bool(changed)
        for name in changed:
            self._parts[name] = (self._number, parts[name])
        self._rendered_at = time.monotonic()


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # a browser that hangs must not keep the run from ending
    block_on_close = False

    def __init__(self, view: LiveView) -> None:
        self.view = view
        self.loopback = is_loopback(view.host)
        self.address_family = socket.AF_INET6 if ":" in view.host else socket.AF_INET
        super().__init__((view.host, view.port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hangs up is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10.0
    server_version = "Penstock"
    _told = "running"  # the state that this connection has been sent

    def do_GET(self) -> None:
        try:
            answer = self._content()
        except Exception as error:
            answer = 500, "text/plain", f"the page could not be made: {type(error).__name__}: {error}"
        self._answer(*answer)

    def _content(self) -> tuple[int, str, str]:
        view = self.server.view
        try:
            asked = urlsplit(self.path)
        except ValueError:
            return 400, "text/plain", "the address cannot be read; the page is at /"
        if self.server.loopback and not is_loopback(host_of(self.headers.get("Host", ""))):
            # A page from elsewhere whose name was made to point here must not read the run.
            return 403, "text/plain", "this page is for the machine it runs on"
        if asked.path == "/":
            return 200, "text/html", view.page()
        if asked.path == "/changes":
            since = parse_qs(asked.query).get("since", ["-1"])[0]
            if _STATE(since) is None:
                return 400, "text/plain", "since must be the number of a state: a whole number of up to 18 digits"
            news = view.changes(int(since))
            self._told = news["state"]
            return 200, "application/json", json.dumps(news)
        if asked.path == "/report.json":
            return 200, "application/json", json.dumps(view.recorder.report(), allow_nan=False)
        if asked.path == "/metrics":
            return 200, CONTENT_TYPE, metrics_text(view.recorder.report())
        return 404, "text/plain", "there is nothing here; the page is at /"

    def _answer(self, status: int, kind: str, content: str) -> None:
        body = content.encode()
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.server.view.told(self._told)

    def log_message(self, format: str, *args: Any) -> None:
        """The terminal belongs to the run."""
