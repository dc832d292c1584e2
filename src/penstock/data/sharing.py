"""Rows that several data sets are made of, read once where these are read side by side."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from penstock.core.errors import ColumnNotFoundError
from penstock.core.runtime.forks import require_polars
from penstock.data.partition import Partition, WrappedPartition, select

_open = threading.local()


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
    before = getattr(_open, "frames", None)
    _open.frames = {}
    try:
        yield
    finally:
        _open.frames = before


@dataclass(frozen=True)
class SharedPartition(WrappedPartition):
    """A partition that several data sets are made of, such as the splits of one."""

    source: Partition
    keeps_rows: bool = True
    is_as_read = True

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        frames = getattr(_open, "frames", None)
        if frames is None:
            return self.source.read(columns)
        key = id(self), None if columns is None else tuple(columns)
        if key not in frames:
            frames[key] = self.source.read(columns)
        frame: pl.DataFrame = frames[key]
        return frame


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
