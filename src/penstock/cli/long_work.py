"""Commands that work for seconds or more: what goes on beside them, and that they end at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typer.core import TyperCommand


@dataclass
class Program:
    """The `penstock` command as a process of its own: `ctx.obj` there, and not where another program calls it."""

    is_long: bool = False


class LongCommand(TyperCommand):
    """A command beside which kernels are compiled where none have been (see `penstock.jobs.compiling`)."""

    def invoke(self, ctx: Any) -> Any:
        if not isinstance(ctx.obj, Program):
            return super().invoke(ctx)
        from penstock.jobs.compiling import compiled_beside

        ctx.obj.is_long = True
        with compiled_beside():
            return super().invoke(ctx)
