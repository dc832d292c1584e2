"""Progress bars for long work: drawn on a terminal, silent elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, Task, TaskID
    from rich.text import Text


class Bar:
    """What the work calls while it runs; does nothing by itself.

    >>> Bar().advance(10)
    """

    def advance(self, amount: float = 1) -> None:
        """`amount` more of the total is done."""

    def describe(self, text: str) -> None:
        """Say which stage is running."""


class _RichBar(Bar):
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task = progress, task

    def advance(self, amount: float = 1) -> None:
        self._progress.advance(self._task, amount)

    def describe(self, text: str) -> None:
        self._progress.update(self._task, description=text)


@contextmanager
def bar(description: str, total: float | None = None, unit: str = "rows", show: bool | None = None) -> Iterator[Bar]:
    """A bar with count, rate and time left on standard error; `show=None` draws it only on a terminal.

    >>> with bar("fit", total=3, show=False) as progress:
    ...     progress.advance(3)
    """
    if show is None:
        show = sys.stderr.isatty()
    if not show:
        yield Bar()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.table import Column
    from rich.text import Text

    console = Console(stderr=True)
    is_wide = console.width >= 100

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            rate = task.finished_speed or task.speed
            count = f"{_short(task.completed)} {unit}"
            return Text(f"{count}, {_short(rate)} {unit}/s" if rate and is_wide else count)

    words = TextColumn("{task.description}", table_column=Column(no_wrap=True))
    columns = (words, BarColumn(40 if is_wide else 16), Rate(Column(no_wrap=True)), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=False) as progress:
        yield _RichBar(progress, progress.add_task(description, total=total))


def _short(number: float) -> str:
    for limit, suffix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= limit:
            return f"{number / limit:.1f}{suffix}"
    return f"{number:.0f}"
