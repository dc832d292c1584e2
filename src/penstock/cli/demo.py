"""The whole product in one command."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.app import Json, Progress, app, console, print_json
from penstock.cli.long_work import LongCommand


@app.command(cls=LongCommand)
def demo(
    rows: Annotated[int, typer.Option(min=100, help="How many rows of click logs.")] = 300_000,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Where everything goes; an earlier demo is replaced.")
    ] = "penstock-demo",
    json: Json = False,
    progress: Progress = None,
) -> None:
    """Make click logs, turn them into features, train a DLRM, predict on raw rows, and write a report of it all."""
    from penstock.jobs.demo import run_demo

    screen = None if json else console()
    found = run_demo(screen, rows, output, progress=progress)
    if screen is None:
        print_json(found)
    else:
        screen.print(f"report: {found['report']}", highlight=False, markup=False, soft_wrap=True)
