"""A saved model that listens on a port."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import socket
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self, cast

from penstock.core.errors import PenstockError
from penstock.core.extras import require
from penstock.core.hosts import AllowedHosts, is_loopback
from penstock.core.keys import KeyLike
from penstock.core.params import STR, Int, Real, check_all
from penstock.core.runtime.switching import quick_switches
from penstock.core.runtime.threads import new_thread
from penstock.serve.devices import named_device
from penstock.serve.http.limits import Limits
from penstock.serve.model import model_in
from penstock.serve.predictor import Predictor

require("uvicorn", "serve")

import uvicorn  # noqa: E402

from penstock.serve.http.app import Service  # noqa: E402
from penstock.serve.http.guard import Guard  # noqa: E402

GRACE_SECONDS = 30  # for requests under way when the service is told to stop
_SWITCH_SECONDS = 0.0001
_RECEIVE_BYTES = 1 << 17


class HttpServer:
    """A saved model served over HTTP, on this machine only unless `host` says otherwise.

    `run()` serves until Ctrl-C or SIGTERM and then answers what is under way; as a context manager it serves from a
    thread. `url` says where: port 0 takes a free port.

    Args:
        directory: what `save_model` wrote, or the folder of a whole training run.
        host, port: where to listen. There is neither encryption nor a password: beyond this machine, put a proxy in
            front.
        limits: of requests and batches.
        feed: a directory that a `FeedWriter` publishes to; followed in the background.
        poll_seconds: how often to look for packets.
        device: where the model runs: cpu, cuda, cuda:1.
        log_requests: log a line for each request.
        allowed_hosts: names that requests may ask for beside loopback ones and `host`: what a proxy passes on as the
            Host header; `"*"` takes any.
        verify: the file of a key; a model or a packet of the feed that it has not signed is refused.

    >>> import json, tempfile, urllib.request
    >>> import penstock as ps
    >>> from penstock import ops
    >>> from penstock.embedding import SGD, Store
    >>> from penstock.nn import MLP
    >>> from penstock.serve import save_model
    >>> from penstock.embedding import slots_from_schema
    >>> rows = ps.Dataset({"user": ["ann", "bob"], "click": [0, 1]}).with_roles(label=["click"])
    >>> workflow = ps.Workflow((["user"] >> ops.Categorify()) + ["click"]).fit(rows)
    >>> model, place = MLP(workflow.output_schema, 4, hidden=()), tempfile.mkdtemp()
    >>> save_model(place, workflow, model, Store(slots_from_schema(workflow.output_schema, 4), SGD()))
    >>> with HttpServer(place, port=0) as server:
    ...     body = json.dumps({"rows": [{"user": "ann"}, {"user": None}]}).encode()
    ...     request = urllib.request.Request(f"{server.url}/predict", body, {"Content-Type": "application/json"})
    ...     answer = json.load(urllib.request.urlopen(request))
    >>> len(answer["probabilities"])
    2
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        limits: Limits | None = None,
        feed: str | Path | None = None,
        poll_seconds: float = 1.0,
        device: str = "cpu",
        log_requests: bool = False,
        allowed_hosts: Sequence[str] = (),
        verify: KeyLike | None = None,
    ) -> None:
        given = {"host": host, "port": port, "poll_seconds": poll_seconds}
        check_all(given, {"host": STR, "port": Int(0, 65535), "poll_seconds": Real(min=0.01)}, "HttpServer")
        self._socket = _bound(host, port)  # first: a port that is taken is known before a large model is loaded
        try:
            predictor = Predictor(model_in(directory), feed=feed, device=named_device(device), verify=verify)
            self.service = Service(predictor, limits, poll_seconds, AllowedHosts(host, allowed_hosts))
        except BaseException:
            self._socket.close()
            raise
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._guard = Guard(self.service.limits, self.service.turns, self.service.metrics.refused)
        config = uvicorn.Config(
            self.service, http=cast("type[asyncio.Protocol]", self._guard.protocol),
            log_level="info" if log_requests else "warning", access_log=log_requests,
            timeout_graceful_shutdown=GRACE_SECONDS, lifespan="on", ws="none", server_header=False,
        )  # fmt: skip
        self._server = _Server(config)
        self._thread = new_thread("serve", self._serve)
        if not is_loopback(host):
            warnings.warn(
                f"listening on {host}, not only on this machine: whoever reaches port {self.port} can ask for "
                f"predictions, without a password and unencrypted; put a proxy in front, or use --host 127.0.0.1",
                UserWarning, stacklevel=2,
            )  # fmt: skip

    @property
    def url(self) -> str:
        """Where it can be asked from this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def run(self) -> None:
        """Serve until Ctrl-C or SIGTERM."""
        gc.collect()  # what loading left behind would stay as long as the service
        self._serve()

    def start(self) -> None:
        """Serve from a thread; returns when requests are answered."""
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            self._thread.join(0.01)
        if not self._server.started:
            raise PenstockError("the service did not start; its log says why")

    def stop(self) -> None:
        """Answer what is under way, then end the thread."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        else:
            self._socket.close()
            self.service.predictor.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _serve(self) -> None:
        # The event loop has Python's lock soon while another thread is busy with rows.
        with quick_switches(_SWITCH_SECONDS), _short_collections():
            self._server.run([self._socket])


class _Server(uvicorn.Server):
    """Ends by itself after a signal: a service that was told to stop and did has not failed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            yield
            self._captured_signals.clear()


@contextlib.contextmanager
def _short_collections() -> Iterator[None]:
    """Let the collector pass over all that is there now: it stops every thread, and going through a loaded torch takes
    it a quarter of a second, which a request of many small lists can ask for at any time."""
    if gc.get_freeze_count():  # whoever has done so before will also undo it
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _bound(host: str, port: int) -> socket.socket:
    """A socket bound to the address, or one line that says why not."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise PenstockError(f"cannot listen on {host!r}: {error.strerror or error}") from error
    bound = socket.socket(family, kind, protocol)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Of each connection: what the system takes in before it is asked for would be megabytes otherwise.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
    try:
        bound.bind(address)
        bound.listen()  # claims the port; who comes early waits until the model is loaded
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise PenstockError(
                f"port {port} of {host} is taken by another program; choose another with --port, or 0 for a free one"
            ) from error
        raise PenstockError(f"cannot listen on port {port} of {host}: {error.strerror}") from error
    return bound
