"""Partitions: small picklable descriptions of a piece of data that any thread or machine can read."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.errors import ColumnNotFoundError, DataError, PenstockError
from penstock.data.files import filesystem, is_remote


class Partition:
    """One piece of a data set. `read` gives its rows; `num_rows` is None where only reading can tell."""

    # Plain annotations: a value here would become a default in the dataclasses below.
    path: str | None
    num_rows: int | None
    num_bytes: int

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        raise TypeError(f"{type(self).__name__} cannot be read")

    @property
    def estimated_rows(self) -> int:
        """The number of rows, or a good guess where only reading can tell: for progress bars."""
        return self.num_rows or 0

    def count(self) -> int:
        """The number of rows, by reading when it is not known."""
        return self.num_rows if self.num_rows is not None else self.read().height


@dataclass(frozen=True)
class FramePartition(Partition):
    """Rows of a frame in memory."""

    frame: pl.DataFrame

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
        return self.frame if columns is None else _select(self.frame, columns, "the frame")


@dataclass(frozen=True)
class ParquetPartition(Partition):
    """Some adjacent row groups of one parquet file."""

    path: str
    row_groups: tuple[int, ...]
    first_row: int
    num_rows: int
    num_bytes: int = 0
    dtypes: dict[str, pl.DataType] | None = field(default=None, compare=False)  # what the data set expects
    storage_options: dict[str, Any] | None = field(default=None, compare=False)
    constants: dict[str, Any] = field(default_factory=dict, compare=False)  # values that hive folders name

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        try:
            frame = self._decode([c for c in columns if c not in self.constants] if columns is not None else None)
        except PenstockError:
            raise
        except (FileNotFoundError, PermissionError) as error:
            raise DataError(f"{self.path} cannot be opened any more: {error}") from error
        except pl.exceptions.ColumnNotFoundError:
            known = pq.read_schema(self.path).names
            missing = next((c for c in columns or () if c not in known), "?")
            raise ColumnNotFoundError(missing, known, self.path) from None
        except (pl.exceptions.PolarsError, pa.ArrowException, OSError) as error:
            raise self._damaged(error) from error
        except pl.exceptions.PanicException as error:  # what polars does on some damaged pages
            raise self._damaged(error) from error
        if frame.height != self.num_rows:
            raise DataError(
                f"{self.path}: row groups {list(self.row_groups)} held {self.num_rows} rows when the data set was "
                f"opened and {frame.height} now; the file was changed, open the data set again"
            )
        if self.constants:
            constant = [pl.lit(v).alias(n) for n, v in self.constants.items() if columns is None or n in columns]
            frame = frame.with_columns(constant).select(columns or pl.all())
        return cast_frame(frame, self.dtypes, self.path)

    def _damaged(self, error: BaseException) -> DataError:
        groups = ", ".join(map(str, self.row_groups))
        return DataError(f"{self.path}: row group {groups} is damaged or truncated ({error}); write the file again")

    def _decode(self, columns: list[str] | None) -> pl.DataFrame:
        if is_remote(self.path):
            with filesystem(self.path, self.storage_options).open(self.path, "rb") as file:
                table = pq.ParquetFile(file).read_row_groups(list(self.row_groups), columns=columns)
            if columns is not None and len(table.column_names) != len(columns):
                missing = next(c for c in columns if c not in table.column_names)
                raise ColumnNotFoundError(missing, table.column_names, self.path)
            return pl.DataFrame(pl.from_arrow(table))
        scan = pl.scan_parquet(self.path, glob=False, hive_partitioning=False, low_memory=True)
        if columns == []:  # only the number of rows is wanted
            return pl.DataFrame(height=self.num_rows)
        if columns is not None:
            scan = scan.select(columns)
        return scan.slice(self.first_row, self.num_rows).collect()


@dataclass(frozen=True)
class IpcPartition(Partition):
    """Some adjacent record batches of one Arrow IPC file, memory-mapped where the file is local."""

    path: str
    batches: tuple[int, ...]
    num_rows: int
    num_bytes: int = 0
    dtypes: dict[str, pl.DataType] | None = field(default=None, compare=False)
    storage_options: dict[str, Any] | None = field(default=None, compare=False)

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        try:
            with open_ipc(self.path, self.storage_options) as source, pa.ipc.open_file(source) as reader:
                batches = [reader.get_batch(i) for i in self.batches]
                table = pa.Table.from_batches(batches, schema=reader.schema)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.path}: Arrow IPC is damaged or truncated ({error})") from error
        if columns is not None:
            for name in columns:
                if name not in table.column_names:
                    raise ColumnNotFoundError(name, table.column_names, self.path)
            table = table.select(list(columns))
        return cast_frame(pl.DataFrame(pl.from_arrow(table)), self.dtypes, self.path)


@dataclass(frozen=True)
class AvroPartition(Partition):
    """One Avro file: its blocks have no index, so it is read as a whole."""

    path: str
    num_rows: int | None = None
    num_bytes: int = 0
    dtypes: dict[str, pl.DataType] | None = field(default=None, compare=False)
    storage_options: dict[str, Any] | None = field(default=None, compare=False)

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        try:
            if is_remote(self.path):
                with filesystem(self.path, self.storage_options).open(self.path, "rb") as file:
                    frame = pl.read_avro(io.BytesIO(file.read()))
            else:
                frame = pl.read_avro(self.path)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise DataError(f"{self.path}: Avro is damaged or truncated ({error}); write the file again") from error
        frame = frame if columns is None else _select(frame, columns, self.path)
        return cast_frame(frame, self.dtypes, self.path)


class WrappedPartition(Partition):
    """A partition on top of another: where it lies and how large it is are those of the one below."""

    source: Partition
    keeps_rows: bool  # whether row i is made from row i below

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
        frame = self.function(self.source.read(self.inputs))
        return frame if columns is None else _select(frame, columns, self.path or "the transformed data")


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

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        frames = [source.read(columns) for source in self.sources]
        return pl.concat(frames).slice(self.offset, self.num_rows)


def open_ipc(path: str, storage_options: dict[str, Any] | None = None) -> Any:
    """A file object that pyarrow reads Arrow IPC from."""
    if is_remote(path):
        return filesystem(path, storage_options).open(path, "rb")
    return pa.memory_map(path)


def cast_frame(frame: pl.DataFrame, dtypes: dict[str, pl.DataType] | None, path: str) -> pl.DataFrame:
    """The frame in the data set's dtypes; lossless casts only, anything else names file and column."""
    if dtypes is None or all(frame.schema[n] == dtypes.get(n, frame.schema[n]) for n in frame.columns):
        return frame
    columns = []
    for series in frame:
        wanted = dtypes.get(series.name, series.dtype)
        try:
            columns.append(series if series.dtype == wanted else series.cast(wanted, strict=True))
        except pl.exceptions.PolarsError as error:
            raise DataError(
                f"{path}: column {series.name!r} is {series.dtype} and cannot be read as {wanted} ({error}); "
                f"pass dtypes={{{series.name!r}: …}} or mend the file"
            ) from None
    return pl.DataFrame(columns)


def _select(frame: pl.DataFrame, columns: Sequence[str], where: str) -> pl.DataFrame:
    try:
        return frame.select(columns)
    except pl.exceptions.ColumnNotFoundError:
        missing = next(c for c in columns if c not in frame.columns)
        raise ColumnNotFoundError(missing, frame.columns, where) from None
