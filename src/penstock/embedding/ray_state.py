"""All that a shard holds, as arrays that travel from a primary to its standby."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.embedding.row_layout import RowColumns
from penstock.embedding.table import Table
from penstock.embedding.tables import TableSet

_SEGMENTS = 2  # of the index in one piece: some ten milliseconds in which the primary does nothing else


@dataclass
class TableRows:
    """Rows of one table, and signs whose rows went before them."""

    columns: RowColumns
    removed: np.ndarray

    def __len__(self) -> int:
        return len(self.columns)


@dataclass
class ShardState:
    """What is left when the rows have been copied: the last of them, and everything that is not a row."""

    rows: list[TableRows]
    waiting: list[tuple[np.ndarray, np.ndarray]]
    steps: list[int]
    history: list[np.ndarray] | None
    tables: dict[str, Any]
    tallies: np.ndarray
    shard: dict[str, Any]


def piece_of(table: Table, first: int) -> tuple[TableRows, int]:
    """Some rows from a segment on, and the segment after them; 0 at the end.

    A segment that is split between two pieces leaves rows for a later one only: new segments are added at the end.
    """
    last = first + _SEGMENTS
    rows = TableRows(table.read(first, last), np.empty(0, np.uint64))
    return rows, last if last < table.num_segments() else 0


def changed_rows(tables: TableSet, watcher: str) -> list[TableRows]:
    """The rows of each table that changed since `watcher` began to watch, and what was removed."""
    since, removed = tables.changes(watcher)
    return [
        TableRows(table.read(0, table.num_segments(), since), gone)
        for table, gone in zip(tables.tables, removed, strict=True)
    ]


def shard_state(tables: TableSet, rows: list[TableRows], shard: dict[str, Any]) -> ShardState:
    """Everything that is not a row, beside the last rows that changed."""
    oldest = min(tables.watchers.values(), default=None)
    kept = [] if oldest is None else [entry for entry in tables.removed if entry[0] >= oldest]
    tables.removed = kept
    own = {"clock": tables.clock, "evicted": tables.evicted, "removed": kept, "watchers": dict(tables.watchers)}
    history = [tables.history(group).copy() for group in range(len(tables.tables))] if tables.keeps_history else None
    waiting = [table.read_pending() for table in tables.tables]
    return ShardState(rows, waiting, tables.steps, history, own, tables.tallies.copy(), shard)


def take_rows(table: Table, rows: TableRows) -> None:
    """Write what another process has read."""
    if len(rows.removed):
        table.drop(np.array(rows.removed))
    if len(rows):
        table.write(RowColumns(*(np.array(array) for array in vars(rows.columns).values())))


def take_state(tables: TableSet, state: ShardState) -> dict[str, Any]:
    """Become what another process was; the attributes of its shard."""
    for table, rows, (signs, seen) in zip(tables.tables, state.rows, state.waiting, strict=True):
        take_rows(table, rows)
        if len(signs):
            columns = table.empty_columns(len(signs))
            columns.signs[:], columns.stamps[:] = signs, seen
            table.write(columns, pending=True)
    vars(tables).update(state.tables)
    tables.tallies[:] = state.tallies
    tables.set_steps(state.steps, state.history)
    return state.shard
