"""Rows in partitions, with the schema that describes them: what they are, and reading them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self

import polars as pl

from penstock.core.params import Int, check
from penstock.core.schema import Schema
from penstock.data import manifest, tasks
from penstock.data.files import is_remote
from penstock.data.formats.parquet import ParquetPartition
from penstock.data.formats.text_layout import TextLayout
from penstock.data.formats.text_partition import TextPartition
from penstock.data.partition import FramePartition, Partition, WrappedPartition, end_to_end
from penstock.engine import Engine, resolve
from penstock.engine.base import EngineLike

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class PartitionedRows:
    """Rows in partitions, to look at and to read: the first part of `Dataset`."""

    _schema: Schema
    _parts: list[Partition]

    def _set(self, parts: Sequence[Partition], schema: Schema) -> None:
        self._schema = schema
        self._parts = list(parts) or [FramePartition(pl.DataFrame(schema=schema.polars_schema), known_as=schema.place)]

    @classmethod
    def from_partitions(cls, parts: Sequence[Partition], schema: Schema) -> Self:
        """A data set from partitions and the schema of what they read.

        Args:
            parts: what is read, in order.
            schema: of what they read.

        Returns:
            The data set; nothing is read.
        """
        dataset = cls.__new__(cls)
        dataset._set(parts, schema)
        return dataset

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def place(self) -> str:
        """Where the rows lie, for errors: the first file, or "the data" where there is none."""
        return self._parts[0].path or self._schema.place

    @property
    def partitions(self) -> list[Partition]:
        return list(self._parts)

    @property
    def num_partitions(self) -> int:
        return len(self._parts)

    @property
    def num_rows(self) -> int:
        """Rows in all; text and filtered data are counted by reading, once."""
        return sum(self._row_counts())

    def _row_counts(self, engine: Engine | None = None) -> list[int]:
        if not hasattr(self, "_counts"):
            known = [p.num_rows for p in self._parts]
            if None in known:
                known = list((engine or resolve()).map(tasks.count, self._parts))
            self._counts: list[int] = [int(n) for n in known if n is not None]
        return self._counts

    def verify(self, engine: EngineLike = None) -> int:
        """Read every page of the local parquet files and check its checksum: the whole of what opening leaves out.

        Args:
            engine: where the files are read (see `penstock.engine`).

        Returns:
            How many files were checked.

        Raises:
            DataError: a page is damaged; the file and the row group are named.
        """
        paths = {p.path for p in self._parts if isinstance(p, ParquetPartition) and not is_remote(p.path)}
        return sum(1 for _ in resolve(engine).map(manifest.verify_file, sorted(paths)))

    @property
    def layout(self) -> TextLayout | None:
        """How the text files were read, and what of that was assumed; None for other formats and changed rows."""
        first = self._parts[0]
        while isinstance(first, WrappedPartition) and first.is_as_read:
            first = first.source
        return first.layout if isinstance(first, TextPartition) else None

    def iter_frames(self, columns: Sequence[str] | None = None) -> Iterator[pl.DataFrame]:
        """The partitions one by one, as polars frames.

        Args:
            columns: names; all by default.

        Returns:
            One frame a partition.
        """
        for part in self._parts:
            yield part.read(columns or self._schema.names)

    def to_polars(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Everything in memory.

        Args:
            columns: names; all by default.

        Returns:
            One frame with all rows, in order.
        """
        wanted = list(columns or self._schema.names)
        frames = resolve().map(partial(tasks.read, columns=wanted), self._parts)
        return end_to_end(frames)

    def to_pandas(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Everything in memory, for pandas.

        Args:
            columns: names; all by default.

        Returns:
            One pandas frame with all rows; needs `penstock[pandas]`.
        """
        return self.to_polars(columns).to_pandas()

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Everything in memory, for Arrow.

        Args:
            columns: names; all by default.

        Returns:
            One Arrow table with all rows.
        """
        return self.to_polars(columns).to_arrow(compat_level=pl.CompatLevel.oldest())

    def head(self, num_rows: int = 5) -> pl.DataFrame:
        """The first rows.

        Args:
            num_rows: how many.

        Returns:
            A frame with at most so many rows.
        """
        check("num_rows", num_rows, Int(min=0))
        frames, missing = [], num_rows
        for frame in self.iter_frames():
            frames.append(frame.head(missing))
            missing -= frames[-1].height
            if missing <= 0:
                break
        return end_to_end(frames)

    def __repr__(self) -> str:
        return f"Dataset({self.num_partitions} partitions, {len(self._schema)} columns)"
