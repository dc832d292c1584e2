"""From what the user names to partitions and a schema: one function per format."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core import dtypes as dt
from penstock.core.errors import ColumnNotFoundError, DataError, ParameterError
from penstock.core.schema import ColumnSchema, Schema
from penstock.data import text
from penstock.data.files import COMPRESSIONS, filesystem, is_remote, suffixes
from penstock.data.partition import (
    AvroPartition,
    FramePartition,
    IpcPartition,
    ParquetPartition,
    Partition,
    WrappedPartition,
    open_ipc,
)
from penstock.data.scratch import Scratch

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclasses.dataclass(frozen=True)
class OpenOptions:
    """Everything that says how files are to be read."""

    part_size: int
    dtypes: Mapping[str, Any] | None = None
    names: Sequence[str] | None = None
    separator: str | None = None
    header: bool | None = None
    on_error: str = "raise"
    storage_options: dict[str, Any] | None = None


def open_files(files: list[str], kind: str, options: OpenOptions) -> tuple[list[Partition], Schema]:
    """Partitions and schema of files of one format."""
    if kind == "parquet":
        return _open_parquet(files, options)
    if kind == "ipc":
        return _open_ipc_files(files, options)
    if kind == "avro":
        return _open_avro(files, options)
    if kind in ("csv", "tsv"):
        return _open_text(files, kind, options)
    raise ParameterError(f"format must be 'parquet', 'csv', 'tsv', 'ipc' or 'avro', got {kind!r}")


def _open_parquet(files: list[str], options: OpenOptions) -> tuple[list[Partition], Schema]:
    expected: dict[str, pl.DataType] | None = None
    parts: list[Partition] = []
    for path in files:
        metadata = _parquet_metadata(path, options.storage_options)
        constants = hive_constants(path)
        found = _polars_schema(metadata.schema.to_arrow_schema()) | dict.fromkeys(constants, pl.String())
        expected = _agree(expected, found, path, files[0], options.dtypes)
        parts += [dataclasses.replace(p, constants=constants) for p in _row_group_runs(path, metadata, options)]
    assert expected is not None
    parts = [dataclasses.replace(p, dtypes=expected) for p in parts]  # type: ignore[type-var]
    return parts, Schema.from_polars(expected)


def hive_constants(path: str) -> dict[str, str | None]:
    """The values that a file's folders name, as Hive spells them.

    >>> hive_constants("data/day=2024-01-02/country=__HIVE_DEFAULT_PARTITION__/part-0.parquet")
    {'day': '2024-01-02', 'country': None}
    """
    pairs = [folder.split("=", 1) for folder in path.split("/")[:-1] if "=" in folder]
    return {name: None if value == HIVE_NULL else unquote(value) for name, value in pairs}


def hive_dtypes(path: str, described: Schema | None) -> dict[str, str]:
    """The dtypes of columns that folder names hold as text, where a schema tells them."""
    names = hive_constants(path) if described is not None else {}
    return {n: column.dtype for n in names if (column := described.get(n)) is not None}  # type: ignore[union-attr]


def _parquet_metadata(path: str, storage_options: dict[str, Any] | None) -> pq.FileMetaData:
    try:
        if is_remote(path):
            with filesystem(path, storage_options).open(path, "rb") as file:
                return pq.read_metadata(file)
        if Path(path).stat().st_size == 0:
            raise DataError(f"{path} is empty (0 bytes), not a parquet file; write it again or leave it out")
        return pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a whole parquet file ({error}); it may be truncated: write it again") from error


def _row_group_runs(path: str, metadata: pq.FileMetaData, options: OpenOptions) -> list[ParquetPartition]:
    """Adjacent row groups together as long as they stay within `part_size`."""
    parts: list[ParquetPartition] = []
    run: list[int] = []
    first = rows = size = 0

    def close() -> None:
        nonlocal run, first, rows, size
        if run and rows:
            parts.append(ParquetPartition(path, tuple(run), first, rows, size, storage_options=options.storage_options))
        first, rows, size, run = first + rows, 0, 0, []

    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        if run and size + group.total_byte_size > options.part_size:
            close()
        run.append(index)
        rows += group.num_rows
        size += group.total_byte_size
    close()
    return parts


def _open_ipc_files(files: list[str], options: OpenOptions) -> tuple[list[Partition], Schema]:
    expected: dict[str, pl.DataType] | None = None
    parts: list[Partition] = []
    for path in files:
        try:
            with open_ipc(path, options.storage_options) as source, pa.ipc.open_file(source) as reader:
                expected = _agree(expected, _polars_schema(reader.schema), path, files[0], options.dtypes)
                batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
                sizes = [(b.num_rows, b.nbytes) for b in batches]
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path} is not a whole Arrow IPC file ({error})") from error
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
    assert expected is not None
    return [dataclasses.replace(p, dtypes=expected) for p in parts], Schema.from_polars(expected)  # type: ignore[type-var]


def _open_avro(files: list[str], options: OpenOptions) -> tuple[list[Partition], Schema]:
    expected: dict[str, pl.DataType] | None = None
    parts: list[AvroPartition] = []
    for path in files:
        found = AvroPartition(path, storage_options=options.storage_options).read()
        expected = _agree(expected, dict(found.schema), path, files[0], options.dtypes)
        size = int(found.estimated_size())
        parts.append(AvroPartition(path, found.height, size, storage_options=options.storage_options))
    assert expected is not None
    return [dataclasses.replace(p, dtypes=expected) for p in parts], Schema.from_polars(expected)


def _open_text(files: list[str], kind: str, options: OpenOptions) -> tuple[list[Partition], Schema]:
    layout: text.TextFormat | None = None
    parts: list[Partition] = []
    for path in files:
        scratch, local = _decompressed(path, options)
        if layout is None or layout.has_header:
            found = text.infer_layout(
                local, kind, options.names, options.dtypes, options.separator, options.header,
                options.on_error, options.storage_options,
            )  # fmt: skip
            layout = found if layout is None else _same_layout(layout, found, path, files[0])
        for part in text.partitions(local, layout, options.part_size, options.storage_options):
            parts.append(part if scratch is None else SpooledPartition(part, path, scratch))
    assert layout is not None
    columns = [
        ColumnSchema(n, layout.dtypes[n], properties={"text": "hex"} if layout.dtypes[n] in dt.HEX else {})
        for n in layout.names
    ]
    return parts, Schema(columns)


def _same_layout(first: text.TextFormat, found: text.TextFormat, path: str, first_path: str) -> text.TextFormat:
    for name in first.names:
        if name not in found.names:
            raise ColumnNotFoundError(name, found.names, f"{path} ({first_path} has it)")
    if first.names != found.names:
        raise DataError(f"{path} orders its columns differently from {first_path}; write them in one order")
    for name in first.names:
        if first.dtypes[name] != found.dtypes[name]:
            raise DataError(_disagree(path, name, found.dtypes[name], first_path, first.dtypes[name]))
    return first


@dataclasses.dataclass(frozen=True)
class SpooledPartition(WrappedPartition):
    """A byte range of a compressed file that was unpacked to scratch, because nobody can seek in a gzip stream."""

    source: text.TextPartition
    packed: str
    scratch: Scratch = dataclasses.field(compare=False)
    keeps_rows: bool = True

    @property
    def path(self) -> str:  # type: ignore[override]
        return self.packed

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        try:
            return self.source.read(columns)
        except DataError as error:
            raise DataError(str(error).replace(self.source.path, self.packed)) from None


def _decompressed(path: str, options: OpenOptions) -> tuple[Scratch | None, str]:
    compression = COMPRESSIONS.get(suffixes(path)[1])
    if compression is None:
        return None, path
    scratch = Scratch()
    target = scratch.path / Path(path).stem
    try:
        source = filesystem(path, options.storage_options).open(path, "rb") if is_remote(path) else path
        with pa.input_stream(source, compression=compression) as packed, target.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 1 << 22)
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{path} cannot be unpacked ({error}); the {compression} stream is damaged or truncated"
        ) from error
    return scratch, str(target)


def open_frame(source: Any, part_size: int) -> tuple[list[Partition], Schema]:
    """Partitions of a frame in memory: polars, pandas, Arrow, or a mapping of arrays."""
    frame = to_polars(source)
    rows = max(1, frame.height)
    step = max(1, min(rows, int(rows * part_size / max(1, frame.estimated_size()))))
    parts = [FramePartition(frame.slice(at, step)) for at in range(0, rows, step)]
    return list(parts), Schema.from_polars(frame.schema)


def to_polars(source: Any) -> pl.DataFrame:
    """A polars frame from a polars, pandas or Arrow one, or from a mapping of arrays."""
    if isinstance(source, pl.DataFrame):
        return source
    if isinstance(source, pl.LazyFrame):
        return source.collect()
    if isinstance(source, (pa.Table, pa.RecordBatch)):
        return pl.DataFrame(pl.from_arrow(source))
    if isinstance(source, Mapping):
        return pl.DataFrame(dict(source))
    if type(source).__module__.split(".")[0] == "pandas" and hasattr(source, "columns"):
        return pl.from_pandas(source)
    raise ParameterError(
        f"cannot read data from {type(source).__name__}; give paths, a polars, pandas or Arrow frame, or a dict"
    )


def _polars_schema(schema: pa.Schema) -> dict[str, pl.DataType]:
    return dict(pl.DataFrame(pl.from_arrow(schema.empty_table())).schema)


def _agree(
    expected: dict[str, pl.DataType] | None,
    found: dict[str, pl.DataType],
    path: str,
    first: str,
    dtypes: Mapping[str, Any] | None,
) -> dict[str, pl.DataType]:
    """One schema for all files: columns that lack or differ are errors, unless `dtypes` decides them."""
    given = {n: dt.to_polars(dt.canonical(d)) for n, d in (dtypes or {}).items()}
    if expected is None:
        for name in given:
            if name not in found:
                raise ColumnNotFoundError(name, found, f"{path} (named in dtypes=)")
        return {
            n: pl.List(given[n]) if isinstance(d, pl.List) and n in given else given.get(n, d) for n, d in found.items()
        }
    for name, dtype in expected.items():
        if name not in found:
            raise ColumnNotFoundError(name, found, f"{path} ({first} has it)")
        if found[name] != dtype and name not in given:
            raise DataError(_disagree(path, name, found[name], first, dtype))
    return expected


def _disagree(path: str, name: str, found: Any, first: str, expected: Any) -> str:
    return (
        f"column {name!r} is {found} in {path} and {expected} in {first}; "
        f"pass dtypes={{{name!r}: …}} to read both as one, or mend the files"
    )
