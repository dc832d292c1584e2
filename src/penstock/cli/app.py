"""What all commands share: how errors become one line, the common options, the console."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from penstock.core.errors import PenstockError

INTERRUPTED = 130
TERMINATED = 143


class Group(TyperGroup):
    """One place where errors become one readable line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        debug = ctx.params.get("debug", False)
        try:
            with _readable_warnings():
                return super().invoke(ctx)
        except (PenstockError, OSError, MemoryError) as error:
            if isinstance(error, BrokenPipeError):  # the reader of a pipe has gone, as `| head` does
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit(0) from None
            if debug:
                traceback.print_exc()
            _say(f"error: {error or type(error).__name__}")
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            if debug:
                traceback.print_exc()
            _say("stopped; nothing was written")
            raise typer.Exit(INTERRUPTED) from None


class _readable_warnings(warnings.catch_warnings):
    """Warnings as one line each on standard error, every text once."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("always", UserWarning)  # whatever -W says: here they are part of the answer
        seen: set[str] = set()

        def show(message: Warning | str, category: Any, *_: Any, **__: Any) -> None:
            if str(message) not in seen and issubclass(category, UserWarning):
                seen.add(str(message))
                _say(f"warning: {message}")

        warnings.showwarning = show


def _say(text: str) -> None:
    print(" ".join(text.split("\n")), file=sys.stderr)


app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    help="Click logs to a trained recommender at full pressure.",
)

Progress = Annotated[
    bool | None, typer.Option("--progress/--no-progress", help="Draw progress bars.", show_default="on a terminal")
]
Preset = Annotated[str | None, typer.Option(help="A recipe that comes with Penstock: criteo.", show_default="none")]
Recipe = Annotated[str | None, typer.Option(help="A recipe as a YAML file.", show_default="none")]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"penstock {version('penstock')}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option(help="Print the traceback of an error.", envvar="PENSTOCK_DEBUG")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Click logs to a trained recommender at full pressure."""


def recipe_of(recipe: str | None, preset: str | None) -> dict[str, Any] | None:
    if recipe is not None and preset is not None:
        raise typer.BadParameter("give either --recipe or --preset, not both")
    if preset is not None:
        from penstock.etl import presets

        return presets.load(preset)
    if recipe is not None:
        from penstock.etl.recipe import read_yaml

        return read_yaml(Path(recipe))
    return None


def console() -> Console:
    # A pipe has no width: nothing must be cut off there.
    return Console() if sys.stdout.isatty() else Console(width=160, soft_wrap=False)
