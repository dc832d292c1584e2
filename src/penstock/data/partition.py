"""Partitions: small picklable descriptions of a piece of data that any thread or machine can read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as selectors

from penstock.core.conversion import convert
from penstock.core.described import described_frame
from penstock.core.dtypes import canonical, split_list
from penstock.core.errors import ColumnNotFoundError, ConversionError
from penstock.core.runtime.forks import require_polars
from penstock.data.files import is_remote


class Partition:
    """One piece of a data set. `read` gives its rows; `num_rows` is None where only reading can tell."""

    # Plain annotations: a value here would become a default in the dataclasses below.
    path: str | None
    num_rows: int | None
    num_bytes: int

    def __getstate__(self) -> dict[str, Any]:
        """Where it lies in a form that does not depend on the present folder: whoever reads it may have another."""
        state = dict(vars(self))
        if isinstance(path := state.get("path"), str) and not is_remote(path):
            state["path"] = str(Path(path).absolute())
        return state

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        raise TypeError(f"{type(self).__name__} cannot be read")

    @property
    def estimated_rows(self) -> int:
        """The number of rows, or a good guess where only reading can tell: for progress bars."""
        return self.num_rows or 0

    @property
    def row_bytes(self) -> int:
        """About the bytes of one row in memory with every column stored, whichever of them are asked for."""
        return max(1, round(self.num_bytes / max(1, self.estimated_rows)))

    def count(self) -> int:
        """The number of rows, by reading when it is not known."""
        return self.num_rows if self.num_rows is not None else self.read().height


@dataclass(frozen=True)
class FramePartition(Partition):
    """Rows of a frame in memory.

    `known_as` is what errors call it: the files, where it stands for some that have no rows.
    """

    frame: pl.DataFrame
    known_as: str = field(default="the frame", compare=False, kw_only=True)

    @property
    def path(self) -> None:  # type: ignore[override]
        return None

    @property
    def num_rows(self) -> int:  # type: ignore[override]
        return self.frame.height

    @property
    def num_bytes(self) -> int:  # type: ignore[override]
        return int(self.frame.estimated_size())

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        return self.frame if columns is None else select(self.frame, columns, self.known_as)

    @property
    def row_bytes(self) -> int:
        return max(super().row_bytes, decoded_bytes(self.frame.schema))


class WrappedPartition(Partition):
    """A partition on top of another: where it lies and how large it is are those of the one below."""

    source: Partition
    keeps_rows: bool  # whether row i is made from row i below
    is_as_read = False  # whether rows and columns are those below, as the file has them

    @property
    def path(self) -> str | None:  # type: ignore[override]
        return self.source.path

    @property
    def num_rows(self) -> int | None:  # type: ignore[override]
        return self.source.num_rows if self.keeps_rows else None

    @property
    def num_bytes(self) -> int:  # type: ignore[override]
        return self.source.num_bytes

    @property
    def estimated_rows(self) -> int:
        return self.source.estimated_rows

    @property
    def row_bytes(self) -> int:
        return self.source.row_bytes

    def count(self) -> int:
        return self.source.count() if self.keeps_rows else self.read().height


@dataclass(frozen=True)
class MappedPartition(WrappedPartition):
    """A partition with a function on top, run when it is read: how data sets stay lazy.

    `inputs` are the columns the function needs (None: all); `keeps_rows` says that it maps row to row.
    """

    source: Partition
    function: Callable[[pl.DataFrame], pl.DataFrame]
    inputs: tuple[str, ...] | None = None
    keeps_rows: bool = True

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        require_polars("a transform or filter of rows")
        from penstock.data.naming import naming  # which knows partitions

        rows = self.source.read(self.inputs)
        with naming(self.source):
            frame = self.function(rows)
        return frame if columns is None else select(frame, columns, self.path or "the transformed data")


@dataclass(frozen=True)
class SelectedPartition(WrappedPartition):
    """Some columns of a partition."""

    source: Partition
    columns: tuple[str, ...]
    keeps_rows: bool = True

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        for name in columns or ():
            if name not in self.columns:
                raise ColumnNotFoundError(name, self.columns, "the columns selected")
        return self.source.read(self.columns if columns is None else columns)


def unselected(part: Partition) -> Partition:
    """The partition below a choice of columns, for whoever names the columns when reading."""
    while isinstance(part, SelectedPartition):
        part = part.source
    return part


@dataclass(frozen=True)
class SlicedPartition(Partition):
    """Rows `[offset, offset + num_rows)` of several partitions put end to end."""

    sources: tuple[Partition, ...]
    offset: int
    num_rows: int

    @property
    def path(self) -> str | None:  # type: ignore[override]
        return self.sources[0].path if self.sources else None

    @property
    def num_bytes(self) -> int:  # type: ignore[override]
        size, rows = sum(s.num_bytes for s in self.sources), [s.num_rows for s in self.sources]
        known = [n for n in rows if n is not None]
        return int(size * self.num_rows / max(1, sum(known))) if len(known) == len(rows) else size

    @property
    def row_bytes(self) -> int:
        return max((source.row_bytes for source in self.sources), default=1)

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        frames = [source.read(columns) for source in self.sources]
        return end_to_end(frames).slice(self.offset, self.num_rows)


def end_to_end(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """The rows of frames one after another."""
    first, *others = frames
    if not others:
        return first
    require_polars("putting partitions end to end")
    if any(frame.schema != first.schema for frame in others):  # an empty one may have the dtypes of the schema
        return pl.concat([described_frame(frame) for frame in (first, *others)])
    return pl.concat([first, *others])


def cast_frame(
    frame: pl.DataFrame, dtypes: Mapping[str, pl.DataType] | None, path: str, first_row: int = 0
) -> pl.DataFrame:
    """The frame in the data set's dtypes, every value as it was; anything else names file, column, row and value."""
    if dtypes is None or all(dtype == dtypes.get(name, dtype) for name, dtype in frame.schema.items()):
        return frame
    columns = []
    for series in frame:
        wanted = dtypes.get(series.name, series.dtype)
        try:
            if series.dtype != wanted:
                series = convert(series, canonical(split_list(wanted)[0]), column=series.name, where=path)
        except ConversionError as error:
            row = None if error.row is None else error.row + first_row
            raise ConversionError(error.value, error.dtype, error.reason, error.column, row, path) from None
        columns.append(series)
    return pl.DataFrame(columns)


def decoded_bytes(dtypes: Mapping[str, pl.DataType]) -> int:
    """Bytes of a row in memory: exact for numbers, eight values for each list, eight bytes for anything else."""
    total = 0
    for dtype in dtypes.values():
        inner, is_list = split_list(dtype)
        known = inner.is_numeric() and not inner.is_decimal()
        width = 1 if inner == pl.Boolean else np.dtype(str(inner).lower()).itemsize if known else 8
        total += 8 + 8 * width if is_list else width
    return total


def named(columns: Sequence[str]) -> Any:
    """Columns by their names as they are: polars takes names like `*` and `^a.*$` for patterns.

    >>> pl.DataFrame({"a": [1], "*": [2]}).select(named(["*"])).columns
    ['*']
    """
    return selectors.by_name(*columns) if columns else []


def in_order(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Some columns of a frame, without a query: that takes the interpreter's lock for longer than the choice does.

    >>> in_order(pl.DataFrame({"x": [1], "*": [2]}), ["*"]).columns
    ['*']
    """
    wanted = list(names)
    return frame if frame.columns == wanted else frame[:, wanted] if wanted else pl.DataFrame()


def select(frame: pl.DataFrame, columns: Sequence[str], where: str) -> pl.DataFrame:
    """Some columns of a frame; one that is not there is an error that names `where`."""
    known = set(frame.columns)
    for name in columns:
        if name not in known:
            raise ColumnNotFoundError(name, frame.columns, where)
    return in_order(frame, columns)
