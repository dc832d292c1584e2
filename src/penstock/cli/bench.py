"""Benchmarks on the command line: a thin call of the runner in a clone's `benchmarks/`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.app import Progress, app
from penstock.core.errors import DataError


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
    runner = Path(folder) / "run.py"
    if not runner.is_file():
        raise DataError(
            f"{runner} is not there: the benchmark scripts come with the source code; run this in a clone, or name its "
            "benchmarks folder with --folder"
        )
    flags = {"full": full or None, "json": json or None, "write": write, "progress": progress}
    given = [f"--{name}" if on else f"--no-{name}" for name, on in flags.items() if on is not None]
    command = [sys.executable, str(runner), *(scripts or ()), "--folder", folder, "--docs", docs, *given]
    if status := subprocess.run(command, check=False).returncode:
        raise typer.Exit(status)
