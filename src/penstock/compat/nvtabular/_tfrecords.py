"""TFRecord files as parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.artefact import replacing
from penstock.core.errors import DataError
from penstock.core.extras import require
from penstock.core.params import BOOL, Int, OneOf, check

_KINDS = {"bytes_list": pa.binary(), "float_list": pa.float32(), "int64_list": pa.int64()}


def convert_tfrecords_to_parquet(
    filenames: Sequence[Any],
    output_dir: Any,
    compression_type: str = "",
    chunks: int = 100_000,
    convert_lists: bool = False,
) -> None:
    """Write each file of `tf.train.Example` records as a parquet file of the same name.

    Args:
        filenames: the TFRecord files.
        output_dir: where the parquet files go.
        compression_type: of the records: `""`, `"ZLIB"` or `"GZIP"`.
        chunks: how many records are held in memory, and written as a row group.
        convert_lists: every feature of a record is a list; those that are as long in all records of the first chunk
            become a column, or one for each element.

    Raises:
        DataError: a record is no `tf.train.Example`, or its features do not fit those before it.
    """
    check("compression_type", compression_type, OneOf(("", "ZLIB", "GZIP")))
    check("chunks", chunks, Int(min=1))
    check("convert_lists", convert_lists, BOOL)
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    for file in filenames:
        target = folder / f"{Path(file).name.split('.')[0]}.parquet"
        with replacing(target) as partial:
            _convert(str(file), partial, compression_type, chunks, convert_lists)


def _convert(file: str, target: Path, compression: str, chunks: int, convert_lists: bool) -> None:
    schema: pa.Schema | None = None
    sizes: dict[str, int] | None = None
    writer: pq.ParquetWriter | None = None
    for rows in _chunks(file, compression, chunks):
        if schema is None:
            schema = pa.schema({name: pa.list_(kind) for name, (kind, _) in sorted(rows[0].items())})
        table = _table(rows, schema, file)
        if convert_lists:
            sizes = _sizes(table) if sizes is None else sizes
            table = _flat(table, sizes, file)
        if writer is None:
            writer = pq.ParquetWriter(target, table.schema)
        writer.write_table(table)
    if writer is None:
        raise DataError(f"{file} holds no records")
    writer.close()


def _chunks(file: str, compression: str, size: int) -> Iterator[list[dict[str, Any]]]:
    tf = require("tensorflow", "keras")
    rows: list[dict[str, Any]] = []
    for number, record in enumerate(tf.data.TFRecordDataset(file, compression_type=compression)):
        try:
            features = tf.train.Example.FromString(record.numpy()).features.feature
        except Exception as error:
            raise DataError(f"{file}: record {number} is no tf.train.Example: {error}") from error
        kinds = {name: feature.WhichOneof("kind") for name, feature in features.items()}
        rows.append({name: (_KINDS[kind], getattr(features[name], kind).value) for name, kind in kinds.items() if kind})
        if len(rows) == size:
            yield rows
            rows = []
    if rows:
        yield rows


def _table(rows: list[dict[str, Any]], schema: pa.Schema, file: str) -> pa.Table:
    for number, row in enumerate(rows):
        for name, (kind, _) in row.items():
            if name not in schema.names or schema.field(name).type.value_type != kind:
                raise DataError(
                    f"{file}: feature {name!r} of a record (the {number}th of its chunk) is not as in the first"
                )
    columns = {
        field.name: pa.array([list(row[field.name][1]) if field.name in row else [] for row in rows], type=field.type)
        for field in schema
    }
    return pa.table(columns, schema=schema)


def _sizes(table: pa.Table) -> dict[str, int]:
    """The features whose lists are all as long, and how long."""
    found = {name: set(table[name].combine_chunks().value_lengths().to_pylist()) for name in table.column_names}
    return {name: lengths.pop() for name, lengths in found.items() if len(lengths) == 1 and 0 not in lengths}


def _flat(table: pa.Table, sizes: dict[str, int], file: str) -> pa.Table:
    columns: dict[str, Any] = {}
    for name in table.column_names:
        lists = table[name].combine_chunks()
        if name not in sizes:
            columns[name] = lists
            continue
        size = sizes[name]
        if any(length != size for length in lists.value_lengths().to_pylist()):
            raise DataError(f"{file}: lists of {name!r} are not all {size} long, as in the first chunk; raise chunks")
        values = lists.flatten()
        for i in range(size):
            columns[name if size == 1 else f"{name}_{i}"] = values.take(pa.array(range(i, len(values), size)))
    return pa.table(columns)
