"""Rows of a shard as Parquet files that anything can read: one per table, with weights and optimizer state as lists."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.arrow_arrays import arrow_of, numpy_of
from penstock.core.artefact import SavedFolder
from penstock.core.errors import ArtefactError
from penstock.core.runtime.threads import thread_pool
from penstock.embedding.row_layout import RowColumns
from penstock.embedding.slots import EmbeddingConfig
from penstock.embedding.table import SEGMENTS_AT_ONCE, Table
from penstock.embedding.table_copies import TableCopy
from penstock.embedding.tables import TableSet

Keep = Callable[[np.ndarray], np.ndarray]
_Copy: TypeAlias = TableCopy | tuple[list[pa.Table], pa.Table | None]  # all rows, or those that changed
_ROWS_AT_ONCE = 1 << 18
# Share of the rows that are read one by one: in the time that all of the memory is copied in; and where only the index
# would have to be copied, in a few times that, since all rows behind it would take as much memory again.
_MANY, _MANY_BESIDE = 0.3, 0.05
_ROWS_UNDER_LOCK = 1 << 14  # a few milliseconds: what a look-up may have to wait


def write_shard(
    tables: TableSet, folder: Path, since: int = -1, with_state: bool = True, moved: Sequence[np.ndarray] | None = None
) -> None:
    """Write the rows touched after step `since`, and the ids that wait for admission, into `folder`.

    `moved` lists further rows by table, in ascending order of their signs.
    """
    folder.mkdir(parents=True)
    for number, table in enumerate(tables.tables):
        parts = _parts(table, since, with_state, *(moved[number],) if moved else ())
        _write_table(folder, number, _schema(table, with_state), parts, _waiting(table) if with_state else None)


def copied_shard(tables: TableSet, since: int = -1) -> Callable[[Path], None]:
    """The same as it is now: what is returned writes it into a folder, while the tables go on.

    Rows are copied by whoever calls that, beside updates. Only where look-ups write to rows too, they are copied now.
    """
    at_once = tables.eviction is not None or tables.keeps_history
    many = _MANY if at_once else _MANY_BESIDE

    def copied(table: Table) -> _Copy:
        if since >= 0 and table.share_touched(since) <= many:
            return list(_parts(table, since, True)), _waiting(table)
        found = TableCopy(table)
        if at_once:
            found.complete()
        return found

    with thread_pool(tables.threads.num_threads, "copy") as pool:  # the tables wait for this
        copies = list(pool.map(copied, tables.tables))

    def write(folder: Path) -> None:
        try:
            _write_copies(tables, copies, since, folder)
        except BaseException as error:  # whoever keeps the error would keep the copies, which updates keep rows for
            copies.clear()
            traceback.clear_frames(error.__traceback__)
            raise

    return write


def _write_copies(tables: TableSet, copies: list[_Copy], since: int, folder: Path) -> None:
    folder.mkdir(parents=True)
    for found in copies:  # all of them first: until then updates keep rows for them
        if isinstance(found, TableCopy):
            found.complete()
    for number, table in enumerate(tables.tables):
        found = copies.pop(0)  # its memory is free when it is written
        if isinstance(found, TableCopy):
            parts, waiting = _parts(found.table, since, True), _waiting(found.table)
        else:
            parts, waiting = iter(found[0]), found[1]
        _write_table(folder, number, _schema(table, True), parts, waiting)


def _parts(table: Table, since: int, with_state: bool, *moved: np.ndarray) -> Iterator[pa.Table]:
    for first in range(0, table.num_segments(), SEGMENTS_AT_ONCE):
        columns = table.read(first, first + SEGMENTS_AT_ONCE, since, *moved)
        if len(columns):
            yield _to_arrow(table, columns, with_state)


def _waiting(table: Table) -> pa.Table | None:
    """The ids that wait for admission."""
    if not table.pending:
        return None
    signs, seen = table.read_pending()
    return pa.table({"sign": arrow_of(signs), "seen": arrow_of(seen)})


def _write_table(
    folder: Path, number: int, schema: pa.Schema, parts: Iterable[pa.Table], waiting: pa.Table | None
) -> None:
    with pq.ParquetWriter(folder / f"{number:05d}.parquet", schema, compression="zstd") as out:
        for part in parts:
            out.write_table(part)
    if waiting is not None:
        pq.write_table(waiting, folder / f"{number:05d}.waiting.parquet")


def write_removed(removed: list[np.ndarray], folder: Path) -> None:
    """Write the signs of removed rows, by table."""
    for number, signs in enumerate(removed):
        if len(signs):
            pq.write_table(pa.table({"sign": arrow_of(signs)}), folder / f"{number:05d}.removed.parquet")


def read_shard(
    tables: TableSet,
    folder: SavedFolder,
    keep: Keep | None = None,
    with_state: bool = True,
    lock: AbstractContextManager[Any] | None = None,
    written_by: EmbeddingConfig | None = None,
) -> None:
    """Apply what `write_shard` and `write_removed` wrote; `keep` says which signs belong to this shard.

    `written_by` is the configuration of the store that wrote, where its signs may have other prefixes.

    With `lock`, tables in use are changed a few rows at a time, under the lock, which is free in between.
    """
    size, lock = (_ROWS_AT_ONCE, nullcontext()) if lock is None else (_ROWS_UNDER_LOCK, lock)
    for number, table in enumerate(tables.tables):
        shift = _shift(tables, table.name, written_by)
        removed = f"{number:05d}.removed.parquet"
        if removed in folder:
            signs = _uint64(folder.frame(removed), "sign", folder.file(removed)) + shift
            with lock:
                table.drop(signs)
        path = folder.parquet(f"{number:05d}.parquet")
        try:
            for batch in _batches(path, size):
                columns = _from_arrow(table, batch, with_state, path)
                columns.signs += shift
                columns = columns if keep is None else _chosen(columns, keep(columns.signs))
                with lock:
                    table.write(columns)
        except (pa.ArrowException, KeyError) as error:
            raise ArtefactError(f"{path} cannot be read as the rows of table {table.name!r}: {error}") from error
        waiting = f"{number:05d}.waiting.parquet"
        if with_state and waiting in folder and table.admission.min_count > 1:
            _read_waiting(table, folder.frame(waiting), folder.file(waiting), keep, shift)


def _shift(tables: TableSet, group: str, written_by: EmbeddingConfig | None) -> np.uint64:
    """What takes the signs of a group as they were written to its signs here, modulo 2^64."""
    before = tables.config if written_by is None else written_by
    return np.uint64((tables.config.prefix(group) - before.prefix(group)) % 2**64)


def _read_waiting(table: Table, data: pl.DataFrame, path: Path, keep: Keep | None, shift: np.uint64) -> None:
    columns = table.empty_columns(data.height)
    columns.signs[:], columns.stamps[:] = _uint64(data, "sign", path) + shift, _uint64(data, "seen", path)
    table.write(columns if keep is None else _chosen(columns, keep(columns.signs)), pending=True)


def _uint64(data: pl.DataFrame, name: str, path: Path) -> np.ndarray:
    if name not in data.columns or not data[name].dtype.is_unsigned_integer() or data[name].null_count():
        raise ArtefactError(f"{path}: column {name!r} is missing, or holds something else than unsigned integers")
    return data[name].to_numpy()


def _batches(path: Path, size: int) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(size)


def _schema(table: Table, with_state: bool) -> pa.Schema:
    layout = table.layout
    weights = pa.float16() if layout.storage == "float16" else pa.float32()
    fields = [("sign", pa.uint64()), ("stamp", pa.uint32()), ("weights", pa.list_(weights, layout.dim))]
    if with_state:
        fields += [(f"state_{i}", pa.list_(pa.float32(), layout.dim)) for i in range(layout.states)]
        scalar = pa.uint32() if _is_step(table) else pa.float32()
        fields += [("scalar", scalar)] * layout.scalar + [("count", pa.uint32())] * layout.count
    return pa.schema(fields)


def _is_step(table: Table) -> bool:
    """Whether the scalar of a row is a step's number rather than a float (see `Adam`)."""
    return table.optimizer is not None and table.optimizer.formula.replays


def _to_arrow(table: Table, columns: RowColumns, with_state: bool) -> pa.Table:
    layout, schema = table.layout, _schema(table, with_state)
    arrays = {
        "sign": arrow_of(columns.signs),
        "stamp": arrow_of(columns.stamps),
        "weights": _list(_readable(columns.weights, layout.storage), layout.dim),
        "scalar": arrow_of(columns.scalars.view(np.uint32) if _is_step(table) else columns.scalars),
        "count": arrow_of(columns.counts),
    }
    for i in range(layout.states):
        arrays[f"state_{i}"] = _list(columns.states[:, i * layout.dim : (i + 1) * layout.dim], layout.dim)
    return pa.table([arrays[name] for name in schema.names], schema=schema)


def _list(values: np.ndarray, dim: int) -> Any:
    return pa.FixedSizeListArray.from_arrays(arrow_of(np.ascontiguousarray(values).reshape(-1)), dim)


def _readable(weights: np.ndarray, storage: str) -> np.ndarray:
    """Stored bits as numbers: bfloat16, which Parquet does not have, exactly as float32."""
    if storage == "bfloat16":
        return (weights.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return weights.view(np.float16) if storage == "float16" else weights


def _from_arrow(table: Table, batch: pa.RecordBatch, with_state: bool, path: Path) -> RowColumns:
    layout, rows = table.layout, len(batch)
    expected = _schema(table, with_state)
    for name in expected.names:
        found = batch.schema.get_field_index(name)
        if found < 0 or batch.schema.field(found).type != expected.field(name).type:
            kind = batch.schema.field(found).type if found >= 0 else "missing"
            raise ArtefactError(f"{path}: column {name!r} is {kind}, this store needs {expected.field(name).type}")
    columns = table.empty_columns(rows)
    columns.signs[:], columns.stamps[:] = numpy_of(batch["sign"]), numpy_of(batch["stamp"])
    weights = _values(batch["weights"], rows, layout.dim)
    if layout.storage == "bfloat16":
        weights = (weights.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    columns.weights[:] = weights.view(columns.weights.dtype)
    if with_state:
        for i in range(layout.states):
            columns.states[:, i * layout.dim : (i + 1) * layout.dim] = _values(batch[f"state_{i}"], rows, layout.dim)
        if layout.scalar:
            columns.scalars[:] = numpy_of(batch["scalar"]).view(np.float32)
        if layout.count:
            columns.counts[:] = numpy_of(batch["count"])
    return columns


def _values(column: Any, rows: int, dim: int) -> np.ndarray:
    if column.null_count:  # they would not be among the values
        raise pa.ArrowInvalid(f"{column.null_count} rows are missing")
    return numpy_of(column.flatten()).reshape(rows, dim)


def copy_weights(source: TableSet, target: TableSet) -> None:
    """Fill a shard without optimizer state from one that has it, each row brought to the current step first."""
    for number, table in enumerate(source.tables):
        source.bring_forward(number)
        for first in range(0, table.num_segments(), SEGMENTS_AT_ONCE):
            columns = table.read(first, first + SEGMENTS_AT_ONCE)
            bare = target.tables[number].empty_columns(len(columns))
            bare.signs, bare.stamps, bare.weights = columns.signs, columns.stamps, columns.weights
            target.tables[number].write(bare)


def _chosen(columns: RowColumns, mask: np.ndarray) -> RowColumns:
    def pick(array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array[mask]) if len(array) else array

    return RowColumns(*(pick(a) for a in vars(columns).values()))
