"""Commands that work for seconds or more, and what goes on beside them."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

PROGRAM = object()  # `ctx.obj` where this process is the command, and not a program that calls it


class LongCommand(TyperCommand):
    """A command beside which kernels are compiled where none have been (see `penstock.jobs.compiling`)."""

    def invoke(self, ctx: Any) -> Any:
        if ctx.obj is not PROGRAM:
            return super().invoke(ctx)
        from penstock.jobs.compiling import compiled_beside

        with compiled_beside():
            return super().invoke(ctx)
