"""The whole product in one command."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.app import app, console


@app.command()
def demo(
    rows: Annotated[int, typer.Option(min=1, help="How many rows of click logs.")] = 300_000,
    output: Annotated[
        str | None, typer.Option(help="Keep everything in this folder.", show_default="a temporary one")
    ] = None,
) -> None:
    """Make click logs, turn them into features, train a DLRM, and predict on raw rows."""
    from penstock.report.demo import run_demo

    run_demo(console(), rows, output)
