"""What all commands share: how errors become one line, the common options, the console."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from typer.core import TyperGroup

from penstock.cli.words import in_options
from penstock.core.errors import PenstockError
from penstock.core.printable import printable

# What typer prints by itself. Newer versions carry their own click, so it is found through a class they export.
_UsageError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
INTERRUPTED = 130
TERMINATED = 143


# How --help lists the commands: what a newcomer tries first, then the way of the data.
ORDER = (
    "demo", "doctor", "synth", "inspect", "init", "etl", "train", "evaluate", "predict", "explain", "compare", "serve",
    "sign", "run", "migrate", "bench",
)  # fmt: skip


class CommandGroup(TyperGroup):
    """One place where errors become one readable line and an exit code."""

    def list_commands(self, ctx: Any) -> list[str]:
        names = super().list_commands(ctx)
        return [n for n in ORDER if n in names] + [n for n in names if n not in ORDER]

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
            say(f"error: {in_options(str(error)) or type(error).__name__}")
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            if debug:
                traceback.print_exc()
            say("stopped; nothing was written")
            raise typer.Exit(INTERRUPTED) from None
        except (typer.Exit, typer.Abort, _UsageError):
            raise
        except Exception as error:
            if debug:
                traceback.print_exc()
            say(f"error: {type(error).__name__}: {error} (unexpected; penstock --debug … prints where)")
            raise typer.Exit(1) from None


class _readable_warnings(warnings.catch_warnings):
    """Warnings as one line each on standard error, every text once."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("always", UserWarning)  # whatever -W says: here they are part of the answer
        seen: set[str] = set()

        def show(message: Warning | str, category: Any, *_: Any, **__: Any) -> None:
            if str(message) not in seen and issubclass(category, UserWarning):
                seen.add(str(message))
                say(f"warning: {in_options(str(message))}")

        warnings.showwarning = show


def say(text: str) -> None:
    print(printable(" ".join(text.split("\n"))), file=sys.stderr)


app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    help="Click logs to a trained recommender at full pressure.",
    epilog="Exit codes: 0 done, 1 an error (one line says which; --debug prints the traceback), 2 wrong usage, "
    "130 stopped by Ctrl-C, 143 stopped by SIGTERM.",
)

Progress = Annotated[
    bool | None, typer.Option("--progress/--no-progress", help="Draw progress bars.", show_default="on a terminal")
]


def _preset_names() -> list[str]:
    """For completion, which must not wait for the package that reads them."""
    return sorted(path.stem for path in Path(__file__).parents[1].glob("etl/presets/*.yaml"))


Preset = Annotated[
    str | None,
    typer.Option(
        help="A recipe that comes with Penstock: avazu, criteo, movielens.",
        show_default="none",
        autocompletion=_preset_names,
    ),
]
Recipe = Annotated[str | None, typer.Option(help="A recipe as a YAML file.", show_default="none")]
Trust = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODULE",
        help="A module whose functions a saved workflow or model may name; may be repeated.",
        show_default="none",
    ),
]
Verify = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="Take only what this key's file has signed (penstock sign).", show_default="none"),
]


@contextmanager
def loading(trust: Sequence[str] | None, verify: str | None) -> Iterator[None]:
    """What is loaded in the block is taken as --trust and --verify say, whichever command it is."""
    from penstock.core.signing import verifying
    from penstock.etl import trusting

    with verifying(verify), trusting(*(trust or ())):
        yield


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")]


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


def recipe_of(recipe: str | None, preset: str | None, hashed: bool = False) -> dict[str, Any] | None:
    if recipe is not None and preset is not None:
        raise typer.BadParameter("give either --recipe or --preset, not both")
    if preset is not None:
        from penstock.etl import presets

        return presets.load(preset, hashed)
    if recipe is not None:
        from penstock.etl.recipe import read_recipe

        if (here := str(Path.cwd())) not in sys.path:
            sys.path.append(here)  # a recipe is its author's own code, which may lie beside it
        return read_recipe(recipe)
    return None


def print_json(data: Any) -> None:
    from json import dumps

    print(dumps(data, indent=1, ensure_ascii=False, allow_nan=False))


def console() -> Console:
    # A pipe has no width: nothing must be cut off there.
    return _PlainConsole() if sys.stdout.isatty() else _PlainConsole(width=160, soft_wrap=False)


class _PlainConsole(Console):
    """Names and values come from the data: what in them a terminal would obey is spelled out."""

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))
