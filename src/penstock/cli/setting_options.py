"""Options of the command line that fill in settings: one for each, derived from what the settings say of themselves."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

from penstock.jobs.setting import Setting
from penstock.jobs.settings import command_line_options


def with_setting_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for every setting in the place of its argument `settings`, a dict of those given.

    An option that is left out is not in the dict: a file, or the setting's default, says then.
    """
    options = command_line_options()
    own = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in own.parameters.values():
        parameters += [_parameter(*item) for item in options.items()] if parameter.name == "settings" else [parameter]

    @functools.wraps(command)
    def called(**given: Any) -> None:
        values = {name: given.pop(name) for name in options}
        settings = {name: _plain(value) for name, value in values.items() if value is not None and value != []}
        command(**given, settings=settings)

    called.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _parameter(name: str, setting: Setting) -> inspect.Parameter:
    kind: Any = setting.kind
    more: dict[str, Any] = {}
    if setting.choices and not setting.is_open:
        made: Callable[..., Any] = StrEnum  # mypy wants the members of an Enum spelled out
        kind = made(name, {choice: choice for choice in setting.choices})
    elif setting.choices:
        metavar = f"[{'|'.join(setting.choices)}|MODULE:CLASS]"
        more = {"metavar": metavar, "autocompletion": lambda: setting.choices, "callback": _named(setting)}
    flag = name.replace("_", "-")
    flags = [f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}", *setting.flags]
    option = typer.Option(*flags, help=setting.help, show_default=setting.default, rich_help_panel="Training", **more)
    place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, place, default=None, annotation=Annotated[kind | None, option])


def _named(setting: Setting) -> Callable[[Any], Any]:
    """Takes one of the choices (or several), or a reference to something of one's own."""

    def checked(value: str | list[str] | None) -> str | list[str] | None:
        for name in [value] if isinstance(value, str) else value or ():
            if name not in setting.choices and ":" not in name:
                raise typer.BadParameter(f"{name!r} is none of {', '.join(setting.choices)}, nor package.module:Class")
        return value

    return checked


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, StrEnum) else value
