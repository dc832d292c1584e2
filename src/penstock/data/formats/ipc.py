"""Arrow IPC (Feather)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl
import pyarrow as pa

from penstock.core.errors import ColumnNotFoundError, DataError, PenstockError
from penstock.core.runtime.forks import require_polars
from penstock.core.schema import Schema
from penstock.data.files import filesystem, is_remote
from penstock.data.formats.base import Format, OpenOptions, agree, polars_schema, settled
from penstock.data.formats.text_bytes import file_size
from penstock.data.partition import Partition, cast_frame

_UNREADABLE = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)
_ROWS_PER_BYTE = 1 << 16  # more than any column has that is not all nulls


class Ipc(Format):
    """Arrow IPC files, in partitions of adjacent record batches."""

    name = "ipc"
    suffixes = (".arrow", ".ipc", ".feather")
    mark = b"ARROW1"

    def open(self, files: list[str], options: OpenOptions) -> tuple[list[Partition], Schema]:
        expected: dict[str, pl.DataType] | None = None
        parts: list[IpcPartition] = []
        for path in files:
            try:
                with open_ipc(path, options.storage_options) as source, pa.ipc.open_file(source) as reader:
                    expected = agree(expected, polars_schema(reader.schema, path), path, files[0], options.dtypes)
                    narrowest = _narrowest(reader.schema)
                rows = _rows_of_batches(path, narrowest, options.storage_options)
            except PenstockError:
                raise
            except (*_UNREADABLE, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
                raise DataError(f"{path} is not a whole Arrow IPC file ({error})") from error
            parts += _batch_runs(path, rows, options)
        assert expected is not None
        dtypes, schema = settled(expected, files[0])
        return [replace(p, dtypes=dtypes) for p in parts], schema


def _narrowest(schema: pa.Schema) -> int:
    """The column that says how many rows there are with the fewest bytes; columns of nulls alone have none."""

    def width(kind: pa.DataType) -> int:
        if pa.types.is_null(kind):
            return 1 << 20
        return int(kind.bit_width) if pa.types.is_primitive(kind) else 1 << 10

    widths = [width(field.type) for field in schema]
    return widths.index(min(widths)) if widths else 0


def _rows_of_batches(path: str, column: int, storage_options: dict[str, Any] | None) -> list[int]:
    """The rows of each record batch, of which no more than one column is read."""
    options, counts = pa.ipc.IpcReadOptions(included_fields=[column]), []
    with open_ipc(path, storage_options) as source, pa.ipc.open_file(source, options=options) as reader:
        for index in range(reader.num_record_batches):
            batch = reader.get_batch(index)
            batch.validate()
            counts.append(int(batch.num_rows))
    most = _ROWS_PER_BYTE * file_size(path, storage_options)
    if min(counts, default=0) < 0 or sum(counts) > most:
        raise DataError(f"{path} is not a whole Arrow IPC file (it claims {sum(counts)} rows)")
    return counts


def _batch_runs(path: str, counts: list[int], options: OpenOptions) -> list[IpcPartition]:
    """Adjacent record batches together as long as they stay within `part_size`."""
    parts: list[IpcPartition] = []
    run: list[int] = []
    rows = size = 0
    bytes_per_row = file_size(path, options.storage_options) / max(1, sum(counts))
    for index, n in enumerate(counts):
        nbytes = round(n * bytes_per_row)
        if run and size + nbytes > options.part_size:
            parts.append(IpcPartition(path, tuple(run), rows, size, storage_options=options.storage_options))
            run, rows, size = [], 0, 0
        run.append(index)
        rows, size = rows + n, size + nbytes
    if rows:
        parts.append(IpcPartition(path, tuple(run), rows, size, storage_options=options.storage_options))
    return parts


@dataclass(frozen=True)
class IpcPartition(Partition):
    """Some adjacent record batches of one Arrow IPC file."""

    path: str
    batches: tuple[int, ...]
    num_rows: int
    num_bytes: int = 0
    dtypes: dict[str, pl.DataType] | None = field(default=None, compare=False)
    storage_options: dict[str, Any] | None = field(default=None, compare=False)

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        require_polars(f"reading {self.path}")
        columns = list(self.dtypes) if columns is None and self.dtypes else columns
        try:
            with open_ipc(self.path, self.storage_options) as source:
                with pa.ipc.open_file(source) as reader:
                    fields = _fields(reader.schema, columns, self.path)
                with pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=fields)) as reader:
                    batches = [reader.get_batch(i) for i in self.batches]
                    table = pa.Table.from_batches(batches, schema=batches[0].schema)
            table.validate(full=True)  # offsets, codes and text that others would follow anywhere
        except PenstockError:
            raise
        except _UNREADABLE as error:
            raise self._damaged(error) from error
        if table.num_rows != self.num_rows:
            raise DataError(f"{self.path} was changed after the data set was opened; open the data set again")
        try:
            frame = pl.DataFrame(pl.from_arrow(table if columns is None else table.select(list(columns))))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise self._damaged(error) from error
        return cast_frame(frame, self.dtypes, self.path)

    def _damaged(self, error: BaseException) -> DataError:
        return DataError(f"{self.path}: Arrow IPC is damaged or truncated ({error}); write the file again")


def _fields(schema: pa.Schema, columns: Sequence[str] | None, path: str) -> list[int]:
    """The numbers of the columns to be read; none for all."""
    for name in columns or ():
        if name not in schema.names:
            raise ColumnNotFoundError(name, schema.names, path)
    return sorted({schema.names.index(name) for name in columns or ()})


def open_ipc(path: str, storage_options: dict[str, Any] | None = None) -> Any:
    """A file object that pyarrow reads Arrow IPC from.

    Not mapped into memory: a file that is truncated while it is mapped ends the process, and one that is rewritten
    changes frames that were read long ago.
    """
    if is_remote(path):
        return filesystem(path, storage_options).open(path, "rb")
    return pa.OSFile(path)
