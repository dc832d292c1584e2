"""Rows that several data sets are made of, read once where these are read side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import polars as pl

from penstock.core.errors import ColumnNotFoundError
from penstock.core.runtime.forks import require_polars
from penstock.data.partition import Partition, WrappedPartition, select

_open = threading.local()
Made = TypeVar("Made")


class Choice(Protocol):
    """Keeps some of a frame's rows, after a look at some of its columns."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame: ...


@contextmanager
def shared_reads() -> Iterator[None]:
    """Whatever `SharedPartition`s this thread reads in here it reads once, and holds until the end.

    >>> from penstock.data.partition import FramePartition
    >>> part = SharedPartition(FramePartition(pl.DataFrame({"x": [1, 2]})))
    >>> with shared_reads():
    ...     part.read(["x"]) is part.read(["x"])
    True
    """
    before = getattr(_open, "made", None)
    _open.made = {}
    try:
        yield
    finally:
        _open.made = before


def once(key: Hashable, make: Callable[[], Made]) -> Made:
    """What `make` gives; inside `shared_reads` it is made once for a key, and held until the end.

    >>> with shared_reads():
    ...     [once("rows", object) is once("rows", object), once("rows", object) is once("columns", object)]
    [True, False]
    """
    made = getattr(_open, "made", None)
    if made is None:
        return make()
    if key not in made:
        made[key] = make()
    found: Made = made[key]
    return found


@dataclass(frozen=True)
class SharedPartition(WrappedPartition):
    """A partition that several data sets are made of, such as the splits of one."""

    source: Partition
    keeps_rows: bool = True
    is_as_read = True

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        key = id(self), None if columns is None else tuple(columns)
        return once(key, lambda: self.source.read(columns))


@dataclass(frozen=True, eq=False)
class ChosenPartition(WrappedPartition):
    """Some rows of a partition, chosen when they are read; columns that nobody asks for are not read."""

    source: Partition
    function: Choice
    names: tuple[str, ...]
    keeps_rows: bool = False

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        require_polars("a choice of rows")
        wanted = list(self.names if columns is None else columns)
        for name in wanted:
            if name not in self.names:
                raise ColumnNotFoundError(name, self.names, self.path or "the rows chosen")
        # Without any column there are no rows to count.
        read = list(dict.fromkeys([*wanted, *self.function.columns])) or list(self.names[:1])
        frame = self.function(self.source.read(read))
        return frame if read == wanted else select(frame, wanted, self.path or "the rows chosen")
