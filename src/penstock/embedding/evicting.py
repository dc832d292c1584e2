"""Keeping a shard within its budget: which rows go, across all of its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.embedding.policies import MemoryBudgetError
from penstock.kernels import cpu_embedding_upkeep as upkeep

if TYPE_CHECKING:
    from penstock.embedding.tables import TableSet

_ROOM = 16  # evicting frees one row in so many


def rows_left(most: int) -> int:
    """How many rows stay, of those that may go, when there are more than `most`: one in 16 fewer, so it happens seldom.

    >>> rows_left(1600), rows_left(15)
    (1500, 15)
    """
    return most - most // _ROOM


def make_room(shard: TableSet) -> None:
    """After a training look-up: forget waiting ids, expired rows, then rows beyond the budget."""
    _forget_waiting(shard)
    if shard.eviction is None:
        return
    if shard.eviction.steps and shard.clock % max(1, shard.eviction.steps // 4) == 0:
        _remove(shard, False, shard.clock - shard.eviction.steps, 0)
    if shard.eviction.max_rows is not None:
        fit_rows(shard, shard.eviction.max_rows)
    if shard.eviction.max_bytes is not None:
        _fit_bytes(shard, shard.eviction.max_bytes)


def fit_rows(shard: TableSet, most: int) -> list[np.ndarray]:
    """Evict where there are more than `most` rows; the signs of those that went, by table."""
    if shard.rows <= most:
        return [np.empty(0, np.uint64) for _ in shard.tables]
    return evict(shard, shard.rows - rows_left(most), at_least=shard.rows - most)


def _fit_bytes(shard: TableSet, most: int) -> None:
    while shard.bytes > most:
        before = shard.bytes
        evict(shard, max(1, shard.rows // _ROOM), at_least=1)
        for table in shard.tables:
            table.shrink()
        if shard.bytes >= before and shard.rows == 0:
            raise MemoryBudgetError(f"max_bytes={most} is less than an empty store of these slots takes ({before})")


def _forget_waiting(shard: TableSet) -> None:
    remember = shard.admission.remember
    if shard.admission.min_count <= 1 or sum(table.pending for table in shard.tables) <= remember:
        return
    seen = 1
    while sum(table.pending for table in shard.tables) > remember // 2:
        for table in shard.tables:
            table.remove(upkeep.BY_PENDING, False, shard.clock, seen)
        seen += 1


def evict(shard: TableSet, wanted: int, at_least: int) -> list[np.ndarray]:
    """Evict `wanted` rows (or all that may go, which must be `at_least` so many): the lowest in rank.

    The rank is the step of the last touch or the count; equal ranks are broken by the hash of the sign, so the choice
    depends on nothing but the rows themselves. Rows of the current step stay. The signs of those that went, by table.
    """
    by_count = shard.eviction is not None and shard.eviction.policy == "lfu"
    upper_bins = _histogram(shard, by_count, -1)
    available = int(upper_bins.sum())
    if available < at_least:
        budget = shard.eviction
        raise MemoryBudgetError(
            f"one batch needs {shard.rows - available} rows ({shard.bytes:,} bytes allocated), more than the store's "
            f"budget of max_rows={budget and budget.max_rows}, max_bytes={budget and budget.max_bytes}; "
            "raise the budget or use smaller batches"
        )
    if wanted >= available:
        return _remove(shard, by_count, 1 << 32, 0)
    upper = int(np.searchsorted(np.cumsum(upper_bins), wanted, side="right"))
    wanted -= int(upper_bins[:upper].sum())
    lower_bins = _histogram(shard, by_count, upper)
    lower = int(np.searchsorted(np.cumsum(lower_bins), wanted, side="right"))
    wanted -= int(lower_bins[:lower].sum())
    priority = (upper << 16) | lower
    tie = 0
    if wanted > 0:
        most = int(lower_bins[lower])
        hashes = np.concatenate([table.ties(by_count, shard.clock, priority, most) for table in shard.tables])
        tie = int(np.partition(hashes, wanted)[wanted])
    return _remove(shard, by_count, priority, tie)


def _histogram(shard: TableSet, by_count: bool, upper: int) -> np.ndarray:
    bins = np.zeros(1 << 16, np.int64)
    for table in shard.tables:
        table.histogram(by_count, shard.clock, upper, bins)
    return bins


def _remove(shard: TableSet, by_count: bool, limit: int, tie: int) -> list[np.ndarray]:
    gone = [table.remove(upkeep.BY_PRIORITY, by_count, shard.clock, limit, tie) for table in shard.tables]
    for group, signs in enumerate(gone):
        shard.evicted += len(signs)
        if len(signs) and shard.watchers:
            shard.removed.append((shard.clock, group, signs))
    return gone
