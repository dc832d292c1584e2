"""The service as an ASGI application: predictions, health, metrics, schema and the OpenAPI page.

FastAPI carries the pages. Predictions and health skip its routing, which takes longer than parsing a row.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np

from penstock.core.errors import PenstockError
from penstock.core.extras import require
from penstock.core.hosts import AllowedHosts
from penstock.serve.batching import Batcher, QueueFullError
from penstock.serve.checking import RowChecker, RowError
from penstock.serve.following import Follower
from penstock.serve.http.bodies import Bodies
from penstock.serve.http.limits import Limits
from penstock.serve.http.page import front_page
from penstock.serve.http.parsing import BodySize, Steps, is_short, parse_rows, parse_short
from penstock.serve.http.requests import (
    KNOWN,
    Message,
    Receive,
    RefusedError,
    Scope,
    Send,
    has_hung_up,
    refuse,
    respond,
)
from penstock.serve.http.turns import Turns
from penstock.serve.predictor import Predictor
from penstock.serve.waiting import ClientGoneError, Rows

require("fastapi", "serve")

from fastapi import FastAPI, Request, Response  # noqa: E402
from fastapi.responses import HTMLResponse, JSONResponse  # noqa: E402
from starlette.exceptions import HTTPException  # noqa: E402

from penstock.serve.http.metrics import Metrics  # noqa: E402

log = logging.getLogger("penstock.serve")
_VERSION = version("penstock")
_LISTS_BESIDE = 16  # lists and objects that a row may have beside those of its columns
_CHECKED_AT_ONCE = 8  # rows
_WRITTEN_AT_ONCE = 128  # probabilities
_FAILED = "the service failed on this request; its log says why"


class Service:
    """Answers HTTP requests with a predictor's probabilities; an ASGI application for any server.

    Args:
        predictor: opened with `feed=` to follow one. The service uses it alone and closes it at the end.
        limits: of requests and batches.
        poll_seconds: how often the feed is looked at.
        hosts: the names it may be asked under; None where whoever runs it sees to that.
    """

    def __init__(
        self,
        predictor: Predictor,
        limits: Limits | None = None,
        poll_seconds: float = 1.0,
        hosts: AllowedHosts | None = None,
    ) -> None:
        self.predictor, self.limits, self.hosts = predictor, limits or Limits(), hosts
        schema = predictor.workflow.input_schema if predictor.workflow is not None else predictor.model.schema
        self.checker = RowChecker(schema, as_features=predictor.workflow is None)
        self.batcher = Batcher(
            predictor.predict, max_batch=self.limits.max_batch, max_wait=self.limits.max_wait_ms / 1000,
            max_queue=self.limits.max_queue, observe=lambda rows: self.metrics.predicted(rows),
        )  # fmt: skip
        self._size = BodySize(
            self.limits.max_rows, self.limits.row_bytes, sum(column.is_list for column in schema) + _LISTS_BESIDE
        )
        self.bodies, self.turns = Bodies(self.limits, self._size), Turns()
        self.metrics = Metrics(predictor, self.batcher, self.bodies)
        self.follower = None
        if predictor.follows_feed:
            self.follower = Follower(predictor, poll_seconds, lambda packets: self.metrics.followed(packets))
        self.since, self.ready = time.time(), False
        self.pages = _pages(self)
        self._warm_up()

    def _warm_up(self) -> None:
        """Load and compile what predictions need, alone and together, before the first request waits for it."""
        row = self.checker([self.example])
        with contextlib.suppress(PenstockError):  # an example need not suit every workflow
            for count in (1, 8, self.limits.max_rows):
                self.predictor.predict(row * count)
        self.predictor.unknown.counts[:] = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if self.hosts is not None and (refusal := _wrong_host(scope, self.hosts)) is not None:
                await self.turns.take()
                await refuse(scope, receive, send, refusal)
                self.metrics.refused(refusal.status)
            elif scope["path"] == "/predict" and scope["method"] == "POST":
                await self.predict(scope, receive, send)
            elif scope["path"] == "/healthz" and scope["method"] == "GET":
                await self.turns.take()
                found = self.health()
                await respond(send, _health_status(found), json.dumps(found).encode())
            else:
                await self._page(scope, receive, send)
        else:
            await self.pages(scope, receive, send)

    # Predictions.

    async def predict(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`{"rows": […]}` in, `{"probabilities": […], …}` out."""
        since = time.perf_counter()
        with contextlib.ExitStack() as precedence:
            try:
                rows, scores = await self._rows(scope, receive, precedence), np.empty(0)
                if rows:
                    scores = await self.batcher.submit(rows, lambda: has_hung_up(receive), scope.get(KNOWN, True))
                answer = await self._answer(scores)
            except ClientGoneError:
                return
            except Exception as error:
                precedence.close()
                refusal = _refusal(error)
                await self.turns.take()
                self.metrics.answered(refusal.status, time.perf_counter() - since)
                await refuse(scope, receive, send, refusal)
                return
            await respond(send, 200, answer)
        self.metrics.answered(200, time.perf_counter() - since)

    async def _rows(self, scope: Scope, receive: Receive, precedence: contextlib.ExitStack) -> Rows:
        """The rows of a request, checked: few at once, many in turn with other requests."""
        # Batches wait for a request that is being read; who has not been answered yet may never send the rest of it.
        arriving = self.batcher.arriving() if scope.get(KNOWN, True) else contextlib.nullcontext()
        async with self.bodies.reading(scope, receive, arriving) as body:
            if is_short(body):
                precedence.enter_context(self.turns.short(scope.get(KNOWN, True)))
                if (rows := parse_short(body, self._size)) is not None:
                    return self.checker(rows)
                precedence.close()
            return await self.turns.run(self._parsed(body))

    def _parsed(self, body: bytes) -> Steps[Rows]:
        rows = yield from parse_rows(body, self._size)
        checked: Rows = []
        for begin in range(0, len(rows), _CHECKED_AT_ONCE):
            try:
                checked += self.checker(rows[begin : begin + _CHECKED_AT_ONCE])
            except RowError as error:
                raise error.behind(begin) from None
            yield
        return checked

    async def _answer(self, scores: np.ndarray) -> bytes:
        """Every float32 in full: read back, it has the same bits. Many are written in turn with other requests."""
        packet = self.predictor.packet if self.follower is not None else "null"
        few = len(scores) <= _WRITTEN_AT_ONCE
        listed = json.dumps(scores.tolist()) if few else await self.turns.run(_listed(scores))
        return f'{{"probabilities": {listed}, "model": "{self.predictor.fingerprint}", "packet": {packet}}}'.encode()

    # What the pages show.

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Any other page; one that fails is counted, and said as the other errors are."""
        since, begun = time.perf_counter(), False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.turns.take()
            await self.pages(scope, receive, noted)
        except Exception:
            log.exception("%r failed", scope["path"])
            self.metrics.answered(500, time.perf_counter() - since)
            if not begun:
                await refuse(scope, receive, send, RefusedError(500, _FAILED))

    def health(self) -> dict[str, Any]:
        """Whether it is live and ready, which model it serves, and where in the feed it is."""
        feed = None
        if self.follower is not None:
            feed = {
                "packet": self.predictor.packet,
                "step": self.predictor.step,
                "applied_at": self.follower.applied_at,
                "error": self.follower.error,
            }
        return {
            "live": True,
            "ready": self.ready,
            "model": {
                "directory": str(self.predictor.directory),
                "class": type(self.predictor.model).__name__,
                "fingerprint": self.predictor.fingerprint,
            },
            "feed": feed,
            "queued_rows": self.batcher.queued_rows,
            "uptime_seconds": round(time.time() - self.since, 3),
            "penstock": _VERSION,
        }

    def schema(self) -> dict[str, Any]:
        """The columns that a row must have."""
        return {
            "model": self.predictor.fingerprint,
            "columns": [
                {"name": column.name, "dtype": column.dtype, "is_list": column.is_list, "accepts": words}
                for column, words in zip(self.checker.schema, self.checker.accepted, strict=True)
            ],
            "example": {"rows": [self.example]},
        }

    @cached_property
    def example(self) -> dict[str, Any]:
        """A row that came with the model, or one that is made up where none did or it does not pass."""
        real = self.predictor.saved.card.example
        if real is not None:
            with contextlib.suppress(RowError):
                self.checker([real])
                return {name: real[name] for name in self.checker.schema.names}
        return self.checker.example()

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """From start to the last answer."""
        self.batcher.start()
        if self.follower is not None:
            self.follower.start()
        self.ready = True
        try:
            yield
        finally:
            self.ready = False
            await self.batcher.stop()
            if self.follower is not None:
                self.follower.stop()
            self.predictor.close()


def _listed(scores: np.ndarray) -> Steps[str]:
    parts = []
    for begin in range(0, len(scores), _WRITTEN_AT_ONCE):
        parts.append(json.dumps(scores[begin : begin + _WRITTEN_AT_ONCE].tolist())[1:-1])
        yield
    return f"[{', '.join(parts)}]"


def _refusal(error: Exception) -> RefusedError:
    """What the client is told of an error."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, RowError):
        return RefusedError(400, str(error), error.row, error.field)
    if isinstance(error, QueueFullError):
        return RefusedError(503, str(error))
    if not isinstance(error, PenstockError):
        log.error("a request failed", exc_info=error)
    return RefusedError(500, _FAILED)


def _health_status(found: dict[str, Any]) -> int:
    return 200 if found["ready"] else 503


def _wrong_host(scope: Scope, hosts: AllowedHosts) -> RefusedError | None:
    """What a request is told whose Host header does not name this service."""
    given = [value for name, value in scope["headers"] if name == b"host"]
    if len(given) > 1 or (not given and scope.get("http_version") != "1.0"):
        return RefusedError(400, "a request must have one Host header", closes=True)
    if not given or hosts.allow(given[0].decode("latin-1")):
        return None
    shown = given[0][:80].decode("latin-1")
    message = f"this service does not answer to the host {shown!r}; start it with --allow-host NAME for further names"
    return RefusedError(421, message, closes=True)


def _pages(service: Service) -> FastAPI:
    app = FastAPI(
        title="Penstock", version=_VERSION, lifespan=service.lifespan, redoc_url=None,
        description="Probabilities for raw rows, from a saved model.",
    )  # fmt: skip

    class Delegated(Response):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await service.predict(scope, receive, send)

    @app.post("/predict", openapi_extra=_described(service), response_class=JSONResponse)
    async def predict() -> Response:
        """The probability of each row, in the order of the rows."""
        return Delegated()  # reached where the service is mounted under another path

    @app.get("/healthz")
    async def healthz() -> JSONResponse:
        """Live and ready (200), or not ready (503)."""
        found = service.health()
        return JSONResponse(found, _health_status(found))  # as below: where the service is mounted under another path

    @app.get("/schema")
    async def schema() -> dict[str, Any]:
        """The columns that a row must have, and an example."""
        return service.schema()

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(service.metrics.text(), media_type=service.metrics.content_type)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def front(request: Request) -> str:
        return front_page(service.health(), service.schema(), str(request.base_url), service.predictor.saved.card)

    @app.exception_handler(HTTPException)
    async def wrong_page(request: Request, error: HTTPException) -> JSONResponse:
        message = f"{request.method} {request.url.path}: {str(error.detail).lower()}; there are {', '.join(_PATHS)}"
        return JSONResponse(RefusedError(error.status_code, message).body(), error.status_code, error.headers)

    return app


_PATHS = ("POST /predict", "GET /healthz", "GET /metrics", "GET /schema", "GET /docs")


def _described(service: Service) -> dict[str, Any]:
    """Request and answers of /predict, as OpenAPI writes them."""
    checker = service.checker
    fields = {n: {"description": words} for n, words in zip(checker.schema.names, checker.accepted, strict=True)}
    row = {"type": "object", "properties": fields, "required": list(fields)}
    rows = {"type": "array", "items": row, "maxItems": service.limits.max_rows}
    body = {"type": "object", "properties": {"rows": rows}, "required": ["rows"]}
    answer = {
        "probabilities": {"type": "array", "items": {"type": "number"}},
        "model": {"type": "string", "description": "The saved model's fingerprint."},
        "packet": {"type": "integer", "nullable": True, "description": "The last packet of the feed applied."},
    }
    place = {"type": "integer", "nullable": True}
    error = {"message": {"type": "string"}, "row": place, "field": {"type": "string", "nullable": True}}
    wrong = {"type": "object", "properties": {"error": {"type": "object", "properties": error}}}

    def content(schema: dict[str, Any], description: str) -> dict[str, Any]:
        return {"description": description, "content": {"application/json": {"schema": schema}}}

    example = {"application/json": {"schema": body, "example": {"rows": [service.example]}}}
    refusals = {
        "400": "Malformed JSON, or a row that cannot be read: row and field say which.",
        "413": "Too many rows or bytes.",
        "415": "The content type is not JSON.",
        "503": "Too many rows are waiting; come again after Retry-After seconds.",
    }
    return {
        "requestBody": {"required": True, "content": example},
        "responses": {
            "200": content({"type": "object", "properties": answer}, "Probabilities."),
            **{status: content(wrong, text) for status, text in refusals.items()},
        },
    }
