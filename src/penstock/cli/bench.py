"""Benchmarks on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.app import Progress, app, console


@app.command()
def bench(
    scripts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SCRIPT]...", help="Which ones, such as loader or etl.", show_default="all"),
    ] = None,
    full: Annotated[bool, typer.Option(help="At the sizes of the quoted figures, not in a few minutes.")] = False,
    folder: Annotated[str, typer.Option(help="Where the benchmark scripts are.")] = "benchmarks",
    docs: Annotated[str, typer.Option(help="The folder whose benchmarks.md and chart are written.")] = "docs",
    write: Annotated[
        bool | None, typer.Option(help="Write the page and the chart.", show_default="when all scripts run")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON line a claim instead of a table.")] = False,
    progress: Progress = None,
) -> None:
    """Measure every claim beside every peer that is installed: one table, one page, one chart."""
    from penstock.report import bench as work
    from penstock.report.machine import describe_machine

    found = work.run_suite(folder, scripts or (), full=full, progress=progress)
    if json:
        from json import dumps

        for claim in found["claims"]:
            print(dumps(claim))
    else:
        work.show(found, console())
    if write or (write is None and not scripts):
        for path in work.write(found, docs, describe_machine()):
            typer.echo(f"wrote {path}", err=True)
    if found["failed"]:
        raise typer.Exit(1)
