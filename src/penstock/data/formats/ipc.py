"""Arrow IPC (Feather)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl
import pyarrow as pa

from penstock.core.errors import ColumnNotFoundError, DataError
from penstock.core.runtime.forks import require_polars
from penstock.core.schema import Schema
from penstock.data.files import filesystem, is_remote
from penstock.data.formats.base import Format, OpenOptions, agree, polars_schema
from penstock.data.partition import Partition, cast_frame


class Ipc(Format):
    """Arrow IPC files, in partitions of adjacent record batches."""

    name = "ipc"
    suffixes = (".arrow", ".ipc", ".feather")

    def open(self, files: list[str], options: OpenOptions) -> tuple[list[Partition], Schema]:
        expected: dict[str, pl.DataType] | None = None
        parts: list[IpcPartition] = []
        for path in files:
            try:
                with open_ipc(path, options.storage_options) as source, pa.ipc.open_file(source) as reader:
                    expected = agree(expected, polars_schema(reader.schema), path, files[0], options.dtypes)
                    batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
                    sizes = [(b.num_rows, b.nbytes) for b in batches]
            except (pa.ArrowException, OSError) as error:
                raise DataError(f"{path} is not a whole Arrow IPC file ({error})") from error
            parts += _batch_runs(path, sizes, options)
        assert expected is not None
        return [replace(p, dtypes=expected) for p in parts], Schema.from_polars(expected)


def _batch_runs(path: str, sizes: list[tuple[int, int]], options: OpenOptions) -> list[IpcPartition]:
    """Adjacent record batches together as long as they stay within `part_size`."""
    parts: list[IpcPartition] = []
    run: list[int] = []
    rows = size = 0
    for index, (n, nbytes) in enumerate(sizes):
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
    """Some adjacent record batches of one Arrow IPC file, memory-mapped where the file is local."""

    path: str
    batches: tuple[int, ...]
    num_rows: int
    num_bytes: int = 0
    dtypes: dict[str, pl.DataType] | None = field(default=None, compare=False)
    storage_options: dict[str, Any] | None = field(default=None, compare=False)

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        require_polars(f"reading {self.path}")
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


def open_ipc(path: str, storage_options: dict[str, Any] | None = None) -> Any:
    """A file object that pyarrow reads Arrow IPC from."""
    if is_remote(path):
        return filesystem(path, storage_options).open(path, "rb")
    return pa.memory_map(path)
