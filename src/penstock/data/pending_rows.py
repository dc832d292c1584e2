"""Rows that wait until they fill a row group, in the form in which they are written: as tables, or as places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.dtypes import same_dtype
from penstock.data.parquet_file import NumbersFile
from penstock.data.places import Places, cut_pieces, pieces_of

_OLDEST = pl.CompatLevel.oldest()


class PendingTables:
    """Rows for files that pyarrow writes.

    Args:
        schema: of the files.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.tables: list[pa.Table] = []

    @property
    def num_rows(self) -> int:
        """Rows that wait."""
        return sum(table.num_rows for table in self.tables)

    def add(self, frame: pl.DataFrame) -> None:
        """Let a frame's rows wait behind the others."""
        self.tables.append(_cast(frame, self.schema))

    def write(self, writer: pq.ParquetWriter, num_rows: int, row_group_size: int) -> None:
        """Write the first rows; the others go on waiting."""
        if self.tables:
            joined = pa.concat_tables(self.tables)
            writer.write_table(joined.slice(0, num_rows), row_group_size=row_group_size)
            self.tables = [joined.slice(num_rows)] if num_rows < joined.num_rows else []


class PendingPieces:
    """Rows for files that kernels write: no pyarrow objects, which are made under the interpreter's lock.

    Args:
        schema: of the files.
        dtypes: the same, as polars has them.
        itemsizes: of the columns.
    """

    def __init__(self, schema: pa.Schema, dtypes: Sequence[pl.DataType], itemsizes: np.ndarray) -> None:
        self.schema, self.dtypes, self.itemsizes = schema, dtypes, itemsizes
        self.pieces: list[Places] = []

    @property
    def num_rows(self) -> int:
        """Rows that wait."""
        return sum(piece.num_rows for piece in self.pieces)

    def add(self, frame: pl.DataFrame) -> None:
        """Let a frame's rows wait behind the others."""
        if not all(map(same_dtype, frame.dtypes, self.dtypes)):
            frame = pl.DataFrame(pl.from_arrow(_cast(frame, self.schema), rechunk=False))
        self.pieces += pieces_of(frame)

    def write(self, writer: NumbersFile, num_rows: int, row_group_size: int) -> None:
        """Write the first rows; the others go on waiting."""
        total = self.num_rows
        writer.write_pieces(cut_pieces(self.pieces, self.itemsizes, 0, num_rows), row_group_size)
        self.pieces = cut_pieces(self.pieces, self.itemsizes, num_rows, total - num_rows)


def _cast(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    table = frame.to_arrow(compat_level=_OLDEST)
    return table if table.schema.equals(schema) else table.cast(schema)
