"""Dataset: rows in files or in memory, in partitions that stream, with a schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

from penstock.core.described import described_frame
from penstock.core.params import NONE, Int, OneOf, check
from penstock.core.schema import Schema
from penstock.data import exchange, manifest, merging, splitting, tasks
from penstock.data.described import merged, schema_beside
from penstock.data.files import parse_bytes
from penstock.data.finding import find, infer_format
from penstock.data.formats import OpenOptions, format_named
from penstock.data.formats.hive import hive_dtypes
from penstock.data.frames import open_frame
from penstock.data.lazy_rows import LazyRows
from penstock.data.part_size import part_size_of_files
from penstock.data.partition import MappedPartition
from penstock.data.remote_manifest import check_remote_files
from penstock.data.side_by_side import ParquetSettings, write_side_by_side
from penstock.data.sources import DataLike, Frame, Source, are_paths, paths_of
from penstock.data.writer import WriteReport
from penstock.engine import resolve
from penstock.engine.base import EngineLike


class Dataset(LazyRows):
    """Rows from files (parquet, CSV/TSV, JSON lines, Arrow IPC, Avro) or from memory.

    Nothing is read before it is needed; `partitions` are row groups or byte ranges of about `part_size`.

    Args:
        source: a path, glob, folder, fsspec URL or a list of them; a polars, pandas or Arrow frame; or arrays by name.
        format: `"parquet"`, `"csv"`, `"tsv"`, `"jsonl"`, `"ipc"` or `"avro"`; told from the file names when left out.
        schema: roles, tags and cardinalities; read from beside the data when left out.
        part_size: bytes a partition aims at (`64_000_000`, `"64MB"`); by default two partitions a core, of 4 to 64 MB.
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
        part_size: int | str | None = None,
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
        size = None if part_size is None else parse_bytes(part_size)
        beside: Schema | None = None
        place = "the data"
        if are_paths(source):
            source = paths_of(source)
            manifest.settle_folder(source)
            version = manifest.version(source)
            files = find(source, storage_options)
            schemas = manifest.check_files(source, files) | check_remote_files(source, files, storage_options)
            beside = schema_beside(source, files, storage_options, schemas)
            dtypes = {**hive_dtypes(files[0], beside), **(dtypes or {})}
            size = size or part_size_of_files(files)
            options = OpenOptions(
                size, dtypes, names, separator, header, on_error, storage_options, quote, encoding, missing
            )
            parts, found = format_named(format or infer_format(files, storage_options)).open(files, options)
            manifest.check_version(source, version)
            place = files[0]
        else:
            parts, found = open_frame(cast(Frame, source), size, dtypes)
        self._set(parts, merged(found, schema or beside, schema is not None, place))

    # Changes that move rows between partitions.

    def shuffle_by_keys(
        self, keys: Sequence[str], num_partitions: int | None = None, engine: EngineLike = None
    ) -> Self:
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

    def _exchanged(self, assign: exchange.Assign, num_buckets: int, engine: EngineLike) -> Self:
        names = self._schema.names
        parts = [MappedPartition(p, described_frame, tuple(names)) for p in self._parts]
        buckets = exchange.exchange(parts, assign, num_buckets, resolve(engine), names)
        return self.from_partitions(buckets, self._schema)

    def shuffle(self, seed: int = 0, num_partitions: int | None = None, engine: EngineLike = None) -> Self:
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
        return self.from_partitions(parts, self._schema)

    def merge(
        self,
        other: DataLike,
        on: str | Sequence[str],
        how: str = "inner",
        suffix: str = "_right",
        engine: EngineLike = None,
    ) -> Self:
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
        return self.from_partitions(*merging.merged_partitions(self, right, keys, how, suffix, engine))

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
