"""Dataset: rows in files or in memory, in partitions that stream, with a schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import polars as pl

from penstock.core.conversion import described_frame
from penstock.core.errors import ParameterError
from penstock.core.params import NONE, Int, OneOf, check
from penstock.core.schema import Schema
from penstock.data import exchange, manifest, merging, splitting, tasks
from penstock.data.described import merged, schema_beside
from penstock.data.files import is_remote, parse_bytes
from penstock.data.finding import find, infer_format
from penstock.data.formats import OpenOptions, format_named
from penstock.data.formats.hive import hive_dtypes
from penstock.data.formats.parquet import ParquetPartition
from penstock.data.formats.text_layout import TextLayout
from penstock.data.formats.text_partition import TextPartition
from penstock.data.frames import open_frame
from penstock.data.partition import (
    FramePartition,
    MappedPartition,
    Partition,
    SelectedPartition,
    WrappedPartition,
    end_to_end,
)
from penstock.data.remote_manifest import check_remote_files
from penstock.data.side_by_side import ParquetSettings, write_side_by_side
from penstock.data.sources import DataLike, Frame, Source, are_paths, paths_of
from penstock.data.writer import WriteReport
from penstock.engine import Engine, resolve
from penstock.engine.base import EngineLike

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

DEFAULT_PART_SIZE = "64MB"


class Dataset:
    """Rows from files (parquet, CSV/TSV, Arrow IPC, Avro; paths, globs, folders, lists, fsspec URLs) or from memory.

    Nothing is read before it is needed; `partitions` are row groups or byte ranges of about `part_size`.

    Args:
        source: paths or URLs, or a polars, pandas or Arrow frame, or a dict of arrays.
        format: `"parquet"`, `"csv"`, `"tsv"`, `"ipc"` or `"avro"`; told from the file names when left out.
        schema: roles, tags and cardinalities; read from beside the data when left out.
        part_size: bytes a partition aims at (`64_000_000`, `"64MB"`).
        dtypes: `{column: dtype}` for text, or to settle files that disagree; a value that the dtype does not hold is
            refused, with its row. `"hex32"` reads hexadecimal ids.
        names: column names of text files without a header.
        separator, header, quote, encoding: of text files; told from their first lines when left out (`layout` says what
            was assumed). `quote=""` takes quotes as they stand.
        missing: words of text files that stand for no value, for all columns or `{column: words}`; by default `NA`,
            `null` and the like in columns of numbers.
        on_error: what a malformed text line does: `"raise"`, `"skip"` or `"null"`.
        storage_options: passed to fsspec.

    >>> data = Dataset({"user": [1, 2, 3], "click": [0, 1, 0]})
    >>> data.num_rows, data.schema.names
    (3, ['user', 'click'])
    """

    def __init__(
        self,
        source: Source,
        *,
        format: str | None = None,
        schema: Schema | None = None,
        part_size: int | str = DEFAULT_PART_SIZE,
        dtypes: Mapping[str, Any] | None = None,
        names: Sequence[str] | None = None,
        separator: str | None = None,
        header: bool | None = None,
        quote: str | None = None,
        encoding: str | None = None,
        missing: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        on_error: str = "raise",
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        size = parse_bytes(part_size)
        beside: Schema | None = None
        if are_paths(source):
            source = paths_of(source)
            manifest.settle_folder(source)
            version = manifest.version(source)
            files = find(source, storage_options)
            manifest.check_files(source, files)
            check_remote_files(source, files, storage_options)
            beside = schema_beside(source, files, storage_options)
            dtypes = {**hive_dtypes(files[0], beside), **(dtypes or {})}
            options = OpenOptions(
                size, dtypes, names, separator, header, on_error, storage_options, quote, encoding, missing
            )
            parts, found = format_named(format or infer_format(files, storage_options)).open(files, options)
            manifest.check_version(source, version)
        else:
            parts, found = open_frame(cast(Frame, source), size, dtypes)
        self._set(parts, merged(found, schema or beside, strict=schema is not None))

    def _set(self, parts: Sequence[Partition], schema: Schema) -> None:
        self._schema = schema
        self._parts = list(parts) or [FramePartition(pl.DataFrame(schema=schema.polars_schema))]

    @classmethod
    def from_partitions(cls, parts: Sequence[Partition], schema: Schema) -> Dataset:
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

    # Looking at it.

    @property
    def schema(self) -> Schema:
        return self._schema

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

    # Lazy changes.

    def with_schema(self, schema: Schema) -> Dataset:
        """The same rows under another description (roles, tags, cardinalities) of the same columns.

        Args:
            schema: of the same names and dtypes.

        Returns:
            The data set under that schema.

        Raises:
            SchemaError: it describes other columns.
        """
        return Dataset.from_partitions(self._parts, merged(self._schema, schema, strict=True))

    def with_roles(self, **roles: Sequence[str]) -> Dataset:
        """`data.with_roles(label=["click"], categorical=["user"])`.

        Args:
            roles: names of columns by role.

        Returns:
            The data set with these roles; others stay.
        """
        return self.with_schema(self._schema.with_roles(**roles))

    def select(self, columns: Sequence[str]) -> Dataset:
        """Only some columns.

        Args:
            columns: names, in the order wanted.

        Returns:
            The data set with these columns.

        Raises:
            ColumnNotFoundError: there is no such column.
        """
        schema = self._schema.select(columns)
        return Dataset.from_partitions([SelectedPartition(p, tuple(schema.names)) for p in self._parts], schema)

    def map(
        self,
        function: Callable[[pl.DataFrame], pl.DataFrame],
        schema: Schema,
        inputs: Sequence[str] | None = None,
        keeps_rows: bool = True,
    ) -> Dataset:
        """Run `function` on each partition when it is read; `schema` describes the result.

        Args:
            function: takes and gives a polars frame.
            schema: of what it gives.
            inputs: columns it needs; all by default.
            keeps_rows: whether it gives as many rows as it takes.

        Returns:
            The data set as it will be read.
        """
        wanted = tuple(inputs if inputs is not None else self._schema.names)
        parts = [MappedPartition(p, function, wanted, keeps_rows) for p in self._parts]
        return Dataset.from_partitions(parts, schema)

    def filter(self, predicate: pl.Expr) -> Dataset:
        """Only the rows for which a polars expression holds.

        Args:
            predicate: a polars expression that is true or false.

        Returns:
            The data set with the rows for which it is true.
        """
        return self.map(partial(tasks.filter, predicate=predicate), self._schema, keeps_rows=False)

    def repartition(self, num_partitions: int | None = None, *, part_size: int | str | None = None) -> Dataset:
        """The same rows in the same order, in another number of partitions of equal length.

        Args:
            num_partitions: how many there shall be.
            part_size: or how many bytes each (`"64MB"`).

        Returns:
            The data set in these partitions.

        Raises:
            ParameterError: not exactly one of the two is given.
        """
        if (num_partitions is None) == (part_size is None):
            raise ParameterError("repartition takes either num_partitions or part_size")
        if num_partitions is None:
            num_bytes = sum(p.num_bytes for p in self._parts)
            num_partitions = max(1, -(-num_bytes // parse_bytes(part_size)))  # type: ignore[arg-type]
        check("num_partitions", num_partitions, Int(min=1))
        parts = splitting.even_partitions(self._parts, self._row_counts(), num_partitions, self._schema)
        return Dataset.from_partitions(parts, self._schema)

    def split(
        self,
        fractions: Sequence[float],
        *,
        seed: int = 0,
        by: str | Sequence[str] | None = None,
        time: str | None = None,
        stratify: str | None = None,
    ) -> list[Dataset]:
        """Disjoint data sets that together hold every row.

        At random with exact proportions, every choice of rows equally likely (inside each value of `stratify`, when
        given, to the row; null and NaN are one value); or `by` the hash of some columns, so that all rows of a user
        stay together; or by `time`: the earliest rows first, rows of one time together, rows without one with the
        earliest.

        Args:
            fractions: the share of each part; their sum counts as all.
            seed: of the draw.
            by: columns whose rows stay together.
            time: a column to cut by.
            stratify: a column inside whose values proportions are kept.

        Returns:
            One data set for each fraction.

        Raises:
            ParameterError: the fractions make no sense, or several ways to split are asked for.
            SchemaError: a key column holds lists.

        >>> train, valid = Dataset({"x": list(range(10))}).split([0.8, 0.2])
        >>> train.num_rows, valid.num_rows
        (8, 2)
        """
        check("seed", seed, Int())
        found = splitting.split_partitions(self, fractions, seed, by, time, stratify)
        return [Dataset.from_partitions(parts, self._schema) for parts in found]

    def sample(
        self, fraction: float | None = None, *, num_rows: int | None = None, seed: int = 0, stratify: str | None = None
    ) -> Dataset:
        """A random subset without replacement, of exactly the size asked for.

        Args:
            fraction: the share of rows, or
            num_rows: their number.
            seed: of the draw.
            stratify: a column inside whose values proportions are kept.

        Returns:
            The data set with the rows drawn.

        Raises:
            ParameterError: not exactly one of fraction and num_rows is given, or there are fewer rows.
        """
        check("seed", seed, Int())
        parts = splitting.sampled_partitions(self, fraction, num_rows, seed, stratify)
        return Dataset.from_partitions(parts, self._schema)

    # Changes that move rows between partitions.

    def shuffle_by_keys(
        self, keys: Sequence[str], num_partitions: int | None = None, engine: EngineLike = None
    ) -> Dataset:
        """Equal keys into equal partitions (out of core; the order inside a key stays).

        Args:
            keys: columns whose equal values shall meet.
            num_partitions: how many come out; as many as now by default.
            engine: where the work runs (see `penstock.engine`).

        Returns:
            The data set after the exchange.

        Raises:
            SchemaError: a key column holds lists.
        """
        splitting.check_keys(self._schema, keys)
        check("num_partitions", num_partitions, Int(min=1) | NONE)
        assign = partial(exchange.by_key, keys=tuple(keys), num_buckets=num_partitions or self.num_partitions)
        return self._exchanged(assign, num_partitions or self.num_partitions, engine)

    def _exchanged(self, assign: exchange.Assign, num_buckets: int, engine: EngineLike) -> Dataset:
        names = self._schema.names
        parts = [MappedPartition(p, described_frame, tuple(names)) for p in self._parts]
        buckets = exchange.exchange(parts, assign, num_buckets, resolve(engine), names)
        return Dataset.from_partitions(buckets, self._schema)

    def shuffle(self, seed: int = 0, num_partitions: int | None = None, engine: EngineLike = None) -> Dataset:
        """A uniform random permutation of all rows, out of core.

        Args:
            seed: of the permutation.
            num_partitions: how many come out; as many as now by default.
            engine: where the work runs (see `penstock.engine`).

        Returns:
            The data set after the exchange.
        """
        check("seed", seed, Int(min=0))
        check("num_partitions", num_partitions, Int(min=1) | NONE)
        buckets = num_partitions or self.num_partitions
        assign = partial(exchange.by_random, seed=seed, num_buckets=buckets)
        moved = self._exchanged(assign, buckets, engine)
        parts = [MappedPartition(p, partial(tasks.permute, seed=seed, index=i)) for i, p in enumerate(moved.partitions)]
        return Dataset.from_partitions(parts, self._schema)

    def merge(
        self,
        other: DataLike,
        on: str | Sequence[str],
        how: str = "inner",
        suffix: str = "_right",
        engine: EngineLike = None,
    ) -> Dataset:
        """Join with another data set or frame by key columns; both may exceed memory.

        Args:
            other: a data set, or what one is made of.
            on: key columns, of the same name and dtype on both sides.
            how: `"inner"`, `"left"`, `"full"`, `"semi"` or `"anti"`.
            suffix: what a name of the right side gets that the left has too.
            engine: where the work runs (see `penstock.engine`).

        Returns:
            The joined rows.

        Raises:
            ParameterError: there is no key, or one twice.
            ColumnNotFoundError: the right side lacks a key.
            SchemaError: a key has another dtype there, or a column would have the name of another.
        """
        check("how", how, OneOf(merging.JOINS))
        right = as_dataset(other)
        keys = [on] if isinstance(on, str) else list(on)
        return Dataset.from_partitions(*merging.merged_partitions(self, right, keys, how, suffix, engine))

    # Writing.

    def to_parquet(
        self,
        path: str | Path,
        *,
        shuffle: str | bool | None = None,
        seed: int = 0,
        row_group_size: int = 250_000,
        num_files: int | None = None,
        partition_by: str | Sequence[str] | None = None,
        compression: str = "none",
        overwrite: bool = False,
        engine: EngineLike = None,
        progress: bool | None = None,
        storage_options: dict[str, Any] | None = None,
    ) -> WriteReport:
        """Write parquet files and the schema to a folder, which appears whole or not at all.

        `shuffle`: None keeps the order; `"partition"` (or True) permutes rows inside each partition; `"full"` writes
        a uniform permutation of all rows. `partition_by` makes hive folders.

        Args:
            path: a folder, or the URL of one.
            shuffle: how rows are permuted.
            seed: of the permutation.
            row_group_size: rows of a row group.
            num_files: how many files; one a partition by default.
            partition_by: columns that make hive folders.
            compression: a codec (`"none"`, `"snappy"`, `"zstd"`, …).
            overwrite: replace what is there.
            engine: where the work runs (see `penstock.engine`).
            progress: draw a bar; None draws it on a terminal.
            storage_options: passed to fsspec.

        Returns:
            What was written: rows, files, malformed lines.

        Raises:
            OutputExistsError: the folder is there and overwrite was not asked for.
        """
        options = ParquetSettings(
            shuffle, seed, row_group_size, num_files, partition_by, compression, overwrite, storage_options
        )
        return write_side_by_side([(self, path)], options, engine, progress)[0]


def as_dataset(source: DataLike, **options: Any) -> Dataset:
    """What stands for data as a Dataset: one as it is, anything else opened.

    Args:
        source: a Dataset, or what one is made of: paths, a frame, a dict of arrays.
        options: of `Dataset`, for what is not one yet.

    Returns:
        The data set.

    Raises:
        ParameterError: it is nothing that data can be read from.

    >>> as_dataset({"x": [1, 2]}).num_rows
    2
    """
    return source if isinstance(source, Dataset) else Dataset(source, **options)
