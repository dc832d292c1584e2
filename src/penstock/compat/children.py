"""Processes that multiprocessing starts afresh (`spawn`, `forkserver`) do what their parent did first.

Such a child unpickles a dict of preparations before it runs the user's code; an object in it whose unpickling is the
call does the work. Forked children need nothing: they inherit everything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from multiprocessing import spawn
from typing import Any

_original = spawn.get_preparation_data
_KEY = "penstock"


class _Call:
    def __init__(self, function: Callable, arguments: dict[str, Any]) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple:
        return functools.partial(self.function, **self.arguments), ()


def follow(function: Callable, arguments: dict[str, Any]) -> None:
    """Call `function(**arguments)` first thing in every child that is started from now on."""

    @functools.wraps(_original)
    def get_preparation_data(name: str) -> dict[str, Any]:
        return {_KEY: _Call(function, arguments), **_original(name)}

    spawn.get_preparation_data = get_preparation_data


def forget() -> None:
    """Let children start as usual."""
    spawn.get_preparation_data = _original
