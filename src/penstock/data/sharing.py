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

_MOST = 0.75  # of the rows: from this share on all are worth making something of
_open = threading.local()
Made = TypeVar("Made")


class Choice(Protocol):
    """Keeps some of a frame's rows, after a look at some of its columns."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def share(self) -> float: ...  # of the rows that it keeps; 0 where that is not known

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame: ...


@contextmanager
def shared_reads(parts: Sequence[Partition] = ()) -> Iterator[None]:
    """Whatever `SharedPartition`s this thread reads in here it reads once, and holds until the end.

    Args:
        parts: those that will be read, where something made of them may be made once too (see `made_of_all`).

    >>> from penstock.data.partition import FramePartition
    >>> part = SharedPartition(FramePartition(pl.DataFrame({"x": [1, 2]})))
    >>> with shared_reads():
    ...     part.read(["x"]) is part.read(["x"])
    True
    """
    before = getattr(_open, "made", None), getattr(_open, "wanted", ())
    _open.made, _open.wanted = {}, _wanted_whole(parts)
    try:
        yield
    finally:
        _open.made, _open.wanted = before


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


def _wanted_whole(parts: Sequence[Partition]) -> set[int]:
    """The shared partitions of which several will be made that have most of the rows together, by their id."""
    shares: dict[int, list[float]] = {}
    for part in parts:
        below = part.source if isinstance(part, WrappedPartition) else part
        if isinstance(below, ChosenPartition):
            shares.setdefault(id(below.source), []).append(below.function.share)
    return {number for number, own in shares.items() if len(own) > 1 and sum(own) > _MOST}


def is_wanted_whole(part: Partition) -> bool:
    """Whether a part is chosen from rows of which most will be read, and its choice looks at no columns."""
    if not isinstance(part, ChosenPartition) or part.function.columns or not isinstance(part.source, SharedPartition):
        return False
    return id(part.source) in getattr(_open, "wanted", ())


def made_of_all(part: Partition, key: Hashable, make: Callable[[Partition], pl.DataFrame]) -> pl.DataFrame:
    """What a function that treats rows alike makes of a part's rows, chosen from what it makes of all rows, once.

    Args:
        part: that the function is for; `is_wanted_whole` is true of it.
        key: tells what is made from what else is made of the same rows.
        make: the function.
    """
    assert isinstance(part, ChosenPartition) and isinstance(part.source, SharedPartition)
    shared = part.source
    # Nobody else needs the raw rows any more.
    return part.function(once((id(shared), key), lambda: make(shared.source)))


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
