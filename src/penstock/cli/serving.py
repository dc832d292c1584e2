"""A saved model behind HTTP."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock.cli.app import Trust, Verify, app, loading


@app.command()
def serve(
    model: Annotated[str, typer.Argument(metavar="MODEL_DIR", help="What `penstock train` or `save_model` wrote.")],
    host: Annotated[str, typer.Option(help="The address to listen on; 127.0.0.1 is this machine only.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 8000,
    max_batch: Annotated[int, typer.Option(min=1, help="Rows predicted in one call.")] = 128,
    max_wait_ms: Annotated[
        float,
        typer.Option(min=0, max=1000, help="How long a batch may wait for more requests; an idle service never waits."),
    ] = 2.0,
    max_rows: Annotated[int, typer.Option(min=1, help="Rows in one request; more are answered 413.")] = 1000,
    max_body: Annotated[str, typer.Option(help="Bytes of one request; more are answered 413.")] = "4MB",
    max_queue: Annotated[int, typer.Option(min=1, help="Rows that may wait; beyond them, 503.")] = 4096,
    max_connections: Annotated[int, typer.Option(min=1, help="Connections that may be open.")] = 1000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A further name that requests may ask for; repeat it, or * for any.",
            show_default="this machine's",
        ),
    ] = None,
    feed: Annotated[
        str | None, typer.Option(metavar="DIR", help="Follow what training publishes here.", show_default="none")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="MODEL_DIR is the folder that `penstock train --feed` publishes to.")
    ] = False,
    poll_seconds: Annotated[float, typer.Option(min=0.01, help="How often to look for packets of the feed.")] = 1.0,
    device: Annotated[str, typer.Option(help="Where the model runs: cpu, cuda, cuda:1.")] = "cpu",
    trust: Trust = None,
    verify: Verify = None,
    log_requests: Annotated[bool, typer.Option("--log-requests", help="Print a line for each request.")] = False,
) -> None:
    """Answer HTTP requests with predictions, until Ctrl-C or SIGTERM."""
    from penstock.core.errors import ParameterError
    from penstock.serve.http import HttpServer, Limits

    if follow and feed is not None:
        raise ParameterError("--follow takes packets from MODEL_DIR, --feed from another folder; leave one of them out")
    feed = model if follow else feed
    limits = Limits(max_batch, max_wait_ms, max_rows, max_body, max_queue, max_connections=max_connections)
    with loading(trust, verify):
        server = HttpServer(
            model, host=host, port=port, limits=limits, feed=feed, poll_seconds=poll_seconds, device=device,
            log_requests=log_requests, allowed_hosts=allow_host or (), verify=verify,
        )  # fmt: skip
    predictor = server.service.predictor
    print(
        f"serving {type(predictor.model).__name__} {predictor.fingerprint} on {server.url} (Ctrl-C stops)", flush=True
    )
    server.run()
    print("stopped; every request under way was answered", file=sys.stderr)
