"""Is this installation sound?"""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.app import Json, app, console, print_json


@app.command()
def doctor(
    self_test: Annotated[
        bool, typer.Option(help="Try it all for a few seconds: logs, features, batches, training, predictions.")
    ] = True,
    compile: Annotated[
        bool, typer.Option("--compile", help="Only compile kernels, ahead of the first job: for images and installers.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what is installed and what is missing, and try whether it works; exits with 1 where something is broken."""
    if compile:
        from penstock.jobs.compiling import compile_ahead

        seconds = round(compile_ahead(), 1)
        print_json({"compiled_seconds": seconds}) if json else console().print(
            f"kernels are compiled and kept ({seconds} s)", highlight=False
        )
        return
    from penstock.jobs.doctor import examine
    from penstock.jobs.first_run import FIRST_RUN, is_first_run
    from penstock.report.findings import show_findings

    if self_test and is_first_run():
        typer.echo(FIRST_RUN, err=True)
    found = examine(self_test)
    print_json(found) if json else show_findings(found, console())
    if not found["ok"]:
        raise typer.Exit(1)
