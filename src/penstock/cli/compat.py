"""Old code on the command line: run it unmodified, rewrite it, start PERSIA's two programs."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.app import app


class Age(StrEnum):
    old = "0.5"
    later = "1.0"
    latest = "latest"


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    program: Annotated[str, typer.Argument(metavar="SCRIPT.py|NOTEBOOK.ipynb", help="What to run, unmodified.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]…", help="Its own arguments.")] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Without CUDA, run on the CPU what asks for CUDA.")] = False,
    nvtabular: Annotated[
        Age | None, typer.Option(help="Whose conventions NVTabular has.", show_default="told from its imports")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also where the real package is installed.")] = False,
    output: Annotated[
        str | None, typer.Option(help="Where the executed notebook goes.", show_default="NAME.executed.ipynb")
    ] = None,
) -> None:
    """Run code written for NVTabular, Merlin or PERSIA: its imports resolve to Penstock."""
    age = str(nvtabular) if nvtabular else None
    if Path(program).suffix == ".ipynb":
        if late := [a for a in arguments or [] if a.split("=")[0] in ("--cpu", "--force", "--nvtabular", "--output")]:
            raise typer.BadParameter(f"options stand before the notebook: penstock run {late[0]} … {program}")
        from penstock.compat.run_notebook import run_notebook

        outcome = run_notebook(program, arguments, output, show=_show, force=force, nvtabular=age, cpu=cpu)
        print(outcome, file=sys.stderr if outcome.failed else sys.stdout)
        raise typer.Exit(128 + outcome.signal if outcome.signal else int(outcome.failed is not None))
    if output is not None:
        raise typer.BadParameter("only a notebook is written", param_hint="--output")
    from penstock.compat.run_script import run_in_child

    raise typer.Exit(run_in_child(program, arguments or [], force=force, nvtabular=age, cpu=cpu))


def _show(text: str) -> None:
    print(text, flush=True)


@app.command()
def migrate(
    script: Annotated[str, typer.Argument(metavar="SCRIPT.py", help="A script for NVTabular, Merlin or PERSIA.")],
    write: Annotated[
        bool, typer.Option("--write", help="Change the script instead of printing the difference.")
    ] = False,
) -> None:
    """Rewrite an old script natively where that is mechanical, and list the rest."""
    from penstock.compat.migrate import migrate as migrated

    found = migrated(script)
    if write:
        found.write()
    else:
        print(found.diff(), end="")
    print(found.summary(written=write), file=sys.stderr)


@app.command(
    "persia-launcher",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def persia_launcher(context: typer.Context) -> None:
    """Start data loaders and trainers written for PERSIA, together or one by one; -h lists the commands."""
    from penstock.compat.persia.launcher import cli

    raise typer.Exit(cli(context.args))
