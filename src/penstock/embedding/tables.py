"""All tables of one shard: look-up and update over many groups, by threads that share nothing.

Every store works on this class: the in-process store directly, a sharded one through its actors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.errors import PenstockError
from penstock.core.runtime.buffers import BufferPool
from penstock.core.runtime.kernel_threads import KernelThreads
from penstock.embedding.evicting import make_room
from penstock.embedding.native_threads import NativeThreads
from penstock.embedding.optimizers import Optimizer
from penstock.embedding.policies import Admission, Eviction
from penstock.embedding.row_seeds import stable_number
from penstock.embedding.slot_layout import BatchWork, SlotLayout, bundles
from penstock.embedding.slots import EmbeddingConfig
from penstock.embedding.table import SEGMENTS_AT_ONCE, Table
from penstock.embedding.table_copies import keep_before_update
from penstock.kernels import cpu_embedding as kernel
from penstock.kernels import cpu_embedding_batch as layout
from penstock.kernels import cpu_embedding_index as index
from penstock.kernels import cpu_embedding_optim as formulas
from penstock.kernels import cpu_embedding_remote as remote
from penstock.kernels.cpu_intrinsics import address_of
from penstock.kernels.optimizer_formulas import NO_OPTIMIZER

# What is counted for each table: ids looked up in training, those distinct within their batch, rows made, ids that got
# no row (not admitted yet); then distinct ids looked up without training, and those that had no row.
TALLIES = ("ids", "distinct", "inserted", "absent", "evaluated", "missed")

SAVING = "checkpoint under way"  # who watches the tables while one is written


@dataclass
class UpdateCounts:
    """What an update did."""

    dropped: np.ndarray  # per slot: gradients that were not finite
    evicted: int  # rows that were gone


class TableSet:
    """The tables of one shard.

    >>> from penstock.embedding.slots import EmbeddingConfig, SlotConfig
    >>> tables = TableSet(EmbeddingConfig([SlotConfig("user", 4)]), None, num_threads=1)
    >>> tables.rows
    0
    """

    def __init__(
        self,
        config: EmbeddingConfig,
        optimizer: Optimizer | None,
        storage: str = "float32",
        admission: Admission | None = None,
        eviction: Eviction | None = None,
        num_threads: int | None = None,
        seed: int = 0,
        signs_given: bool = False,
    ) -> None:
        self.config, self.optimizer, self.storage = config, optimizer, storage
        self.admission, self.eviction = admission or Admission(), eviction
        self.layout = SlotLayout(config, signs_given)
        self.headers = np.zeros((len(config.groups), index.NUM_FIELDS), np.uint64)
        self.settings = np.zeros((len(config.groups), index.NUM_SETTINGS), np.float32)
        self.tables = []
        for i, group in enumerate(config.groups):
            slot = config.members(group)[0]
            self.tables.append(
                Table(
                    group,
                    self.headers[i],
                    self.settings[i],
                    slot.dim,
                    slot.init,
                    optimizer,
                    storage,
                    self.admission,
                    eviction,
                    seed if config.prefix_bits else seed + stable_number(group),
                )
            )
        self.clock = 0  # training look-ups so far; what rows are stamped with
        self.evicted = 0
        self.tallies = np.zeros((len(TALLIES), len(self.tables)), np.int64)
        self.removed: list[tuple[int, int, np.ndarray]] = []  # (clock, group, signs), kept while someone watches
        self.watchers: dict[str, int] = {}  # who follows changes (checkpoints, a feed), and from which clock on
        self.pool = BufferPool(slack=4, keep=64)
        self.threads = KernelThreads(num_threads, "store")
        self.native_threads = NativeThreads(self.threads.num_threads)
        self._kind = optimizer.formula.number if optimizer else NO_OPTIMIZER
        self._hyper = np.zeros((len(self.tables), formulas.NUM_HYPER), np.float32)
        self._history = [np.zeros((0, 2), np.float32) for _ in self.tables]
        self._widest = max(slot.dim for slot in config)
        self.set_steps([0] * len(self.tables))

    @property
    def rows(self) -> int:
        return int(self.headers[:, index.ROWS].sum())

    @property
    def bytes(self) -> int:
        return sum(table.bytes for table in self.tables)

    def by_table(self) -> dict[str, dict[str, int]]:
        """Rows, memory and what was counted so far (`TALLIES`), by table."""
        return {
            table.name: {
                "rows": table.rows,
                "dim": table.layout.dim,
                "bytes": table.bytes,
                "payload_bytes": table.rows * table.layout.payload,
                **{name: int(self.tallies[k, i]) for k, name in enumerate(TALLIES)},
            }
            for i, table in enumerate(self.tables)
        }

    @property
    def steps(self) -> list[int]:
        """Optimizer steps each table has taken."""
        return [int(step) for step in self.headers[:, index.STEP]]

    def set_steps(self, steps: Sequence[int], history: Sequence[np.ndarray] | None = None) -> None:
        """Set the steps taken (on load), with the record of past steps where the optimizer keeps one."""
        self.headers[:, index.STEP] = steps
        for i, table_history in enumerate(history or []):
            self._history[i] = np.ascontiguousarray(table_history, np.float32)
        if self.keeps_history and self.optimizer is not None:
            for i, step in enumerate(steps):
                self._hyper[i, : formulas.NUM_HYPER] = self.optimizer.hyper(int(step) + 1)
                self._remember(i, int(step))

    @property
    def keeps_history(self) -> bool:
        return self.optimizer is not None and self.optimizer.formula.replays

    def history(self, group: int) -> np.ndarray:
        """For every step so far, the two numbers that replaying it needs."""
        return self._history[group][: int(self.headers[group, index.STEP])]

    def _remember(self, group: int, step: int) -> None:
        """Room in the history for the next step, and where the kernels find it."""
        if len(self._history[group]) <= step:
            longer = np.zeros((max(64, 2 * step), 2), np.float32)
            longer[: len(self._history[group])] = self._history[group]
            self._history[group] = longer
        self.headers[group, index.HISTORY] = address_of(self._history[group])

    # Look-up

    def lookup(self, inputs: np.ndarray, train: bool, keep: list[Any] | None = None) -> BatchWork:
        """Fill the outputs that `inputs` names. Training touches and inserts rows, then evicts to the budget."""
        work = self.layout.number(inputs, self.pool)
        work.keep = keep or []
        if train:
            self.clock += 1
            self._stamp_if_needed()
        work.clock = self.clock
        clock = self.clock if train else self.clock + 1
        order, before = self._order(work), self.headers[:, index.ROWS].copy()
        self._run_lookup(order, work, clock, train, False)
        while (waiting := np.flatnonzero(work.groups[:, layout.STATUS] != layout.DONE)).size:
            for group in waiting:
                info = work.groups[group]
                missing = int(info[layout.UNIQUE] - info[layout.PROGRESS])
                self.tables[group].grow(-int(info[layout.STATUS]), missing)
            self._run_lookup(waiting, work, clock, train, True)
        self._tally(work.groups, work.rows, work.positions, before, train)
        if train:
            self._upkeep()
        return work

    def _tally(self, groups: np.ndarray, rows: np.ndarray, ids: np.ndarray, before: np.ndarray, train: bool) -> None:
        distinct = groups[:, layout.UNIQUE]
        if not train:
            self.tallies[4] += distinct
            layout.count_absent(groups, rows, self.tallies[5])
            return
        self.tallies[0] += ids
        self.tallies[1] += distinct
        self.tallies[2] += (self.headers[:, index.ROWS] - before).astype(np.int64)
        if self.admission.min_count > 1 or self.admission.probability < 1:  # else every id has its row
            layout.count_absent(groups, rows, self.tallies[3])

    def _stamp_if_needed(self) -> None:
        # A stamp dirties the row's line in the index: rows are stamped only while something asks for stamps.
        self.headers[:, index.STAMPED] = self.eviction is not None or bool(self.watchers)

    def _upkeep(self) -> None:
        self.split_crowded()
        make_room(self)

    def split_crowded(self) -> None:
        """Give tables whose index fills up more of it."""
        for group in np.flatnonzero(self.headers[:, index.CROWDED]):
            self.tables[group].split_crowded()

    def _order(self, work: BatchWork) -> np.ndarray:
        # The largest tables first: their groups take longest, and a long one begun last leaves threads idle.
        cost = work.positions * (1 + (self.headers[:, index.ROWS] > 10_000))
        return np.argsort(-cost.astype(np.int64), kind="stable")

    def _run_lookup(self, order: np.ndarray, work: BatchWork, clock: int, train: bool, again: bool) -> None:
        most = int(work.positions.max(initial=0))
        wide_rows = 2 + (most if self.storage != "float32" else 0)

        def run() -> None:
            wide = self.pool.array((wide_rows, self._widest), np.float32)
            wide[:2] = 0
            kernel.lookup_groups(
                self.threads.counter, order, self.layout.group_starts, self.layout.members, self.headers, self.settings,
                self._hyper, self.layout.slots, work.inputs, work.groups, work.inverse, work.signs, work.rows,
                self.pool.array((max(16, 1 << (2 * most - 1).bit_length()),), np.uint32),
                self.pool.array((most,), np.uint64), wide, np.uint64(clock), train, again,
            )  # fmt: skip

        self.threads.run(run, len(order), int(work.positions.sum()))

    # Update

    def update(self, work: BatchWork, scale: float = 1.0) -> UpdateCounts:
        """Apply the gradients that `work.inputs` names, divided by `scale`."""
        before = self._prepare_step(scale)
        counts = np.zeros((len(self.layout.slots), layout.NUM_COUNTS), np.int64)
        starts, order = bundles(self.layout, work, self._order(work))
        unique = work.groups[order, layout.UNIQUE] * self.headers[order, index.DIM].astype(np.int64)
        most = int(np.add.reduceat(unique, starts[:-1]).max(initial=0)) if len(order) else 0
        keep_before_update(self, work.groups, work.signs)

        def run() -> None:
            kernel.update_groups(
                self.threads.counter, starts, order, self.layout.group_starts, self.layout.members, self.headers,
                self._hyper, self._kind, self.layout.slots, work.inputs, work.groups, work.inverse, work.signs,
                work.rows, self.pool.array((most,), np.float32), self.pool.array((self._widest,), np.float32), counts,
            )  # fmt: skip

        self.threads.run(run, len(starts) - 1, int(work.positions.sum()))
        self._touch_again(work)
        firsts = self.layout.members[self.layout.group_starts[:-1]]
        self._finish_step(before, np.flatnonzero(counts[firsts, layout.UPDATED]))
        return UpdateCounts(counts[:, layout.DROPPED], int(counts[:, layout.EVICTED].sum()))

    def _prepare_step(self, scale: float) -> np.ndarray:
        """Work out each table's numbers for its next step; the steps taken so far."""
        if self.optimizer is None:
            raise PenstockError("this store was opened without an optimizer (for serving); it cannot be updated")
        before = self.headers[:, index.STEP].copy()
        for step in set(before.tolist()):  # mostly one: tables step together unless a slot got no gradient
            self._hyper[before == step] = self.optimizer.hyper(step + 1, scale)
        return before

    def _finish_step(self, before: np.ndarray, groups: np.ndarray) -> None:
        for group in groups:
            if self.keeps_history:
                self._history[group][int(before[group])] = self._hyper[group, formulas.P3 : formulas.P4 + 1]
                self._remember(int(group), int(before[group]) + 1)
            self.headers[group, index.STEP] += np.uint64(1)

    def bring_forward(self, group: int, since_step: int = 0) -> np.ndarray:
        """Bring every row of a table to the current step, for optimizers that replay missed steps.

        Returns:
            The signs of the rows whose weights are others than when all were brought to `since_step`, in ascending
            order: such rows have moved without being touched.
        """
        moved = [np.empty(0, np.uint64)]
        if self.keeps_history:
            table, scratch = self.tables[group], self.pool.array((self._widest,), np.float32)
            for first in range(0, table.num_segments(), SEGMENTS_AT_ONCE):
                before, entries = table.read(first, first + SEGMENTS_AT_ONCE), table.entries(first, SEGMENTS_AT_ONCE)
                kernel.bring_forward(self.headers[group], self._hyper[group], *entries, np.uint64(address_of(scratch)))
                after = table.read(first, first + SEGMENTS_AT_ONCE)
                bits = f"u{before.weights.itemsize}"
                changed = (before.weights.view(bits) != after.weights.view(bits)).any(axis=1)
                moved.append(before.signs[changed | (before.scalars.view(np.uint32) > since_step)])
        return np.sort(np.concatenate(moved))

    # By distinct signs, for the clients of a shard

    def lookup_signs(
        self, counts: np.ndarray, signs: np.ndarray, train: bool, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Rows of distinct signs, `counts` of them a group, end to end in one float32 array (`out`, or a new one)."""
        self.clock += train
        self._stamp_if_needed()
        clock = self.clock if train else self.clock + 1
        groups, begin = self._parts(counts)
        out = np.empty(int(begin[-1]), np.float32) if out is None else out
        rows, waiting = self.pool.array((len(signs),), np.uint32), np.argsort(-counts, kind="stable")
        before = self.headers[:, index.ROWS].copy()
        most = int(counts.max(initial=0))
        wide_rows = 2 + (most if self.storage != "float32" else 0)
        while waiting.size:
            order = waiting

            def run() -> None:
                wide = self.pool.array((wide_rows, self._widest), np.float32)
                wide[:2] = 0
                remote.lookup_signs(
                    self.threads.counter, order, self.headers, self.settings, self._hyper,  # noqa: B023 - run at once
                    groups, signs, rows, begin, out, self.pool.array((most,), np.uint64), wide, np.uint64(clock), train,
                )  # fmt: skip

            self.threads.run(run, len(order), len(signs))
            waiting = np.flatnonzero(groups[:, layout.STATUS] != layout.DONE)
            for group in waiting:
                info = groups[group]
                missing = int(info[layout.UNIQUE] - info[layout.PROGRESS])
                self.tables[group].grow(-int(info[layout.STATUS]), missing)
        self._tally(groups, rows, counts, before, train)
        if train:
            self._upkeep()
        return out

    def update_signs(
        self, counts: np.ndarray, signs: np.ndarray, sums: np.ndarray, stepped: np.ndarray, scale: float
    ) -> int:
        """Apply gradients summed per sign; `stepped` says which groups take a step. How many rows were gone."""
        before = self._prepare_step(scale)
        self._stamp_if_needed()
        groups, begin = self._parts(counts)
        gone = np.zeros(len(counts), np.int64)
        order, rows = np.flatnonzero(stepped), self.pool.array((len(signs),), np.uint32)
        order = order[np.argsort(-counts[order], kind="stable")]
        keep_before_update(self, groups, signs)

        def run() -> None:
            remote.update_signs(
                self.threads.counter, order, self.headers, self._hyper, self._kind, groups, signs, rows, begin, sums,
                self.pool.array((self._widest,), np.float32), np.uint64(self.clock), gone,
            )  # fmt: skip

        self.threads.run(run, len(order), len(signs))
        self._finish_step(before, np.flatnonzero(stepped))
        return int(gone.sum())

    def _parts(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        groups = np.zeros((len(counts), layout.NUM_GROUP_FIELDS), np.int64)
        groups[:, layout.START] = np.cumsum(counts) - counts
        groups[:, layout.UNIQUE] = counts
        sizes = counts * self.headers[:, index.DIM].astype(np.int64)
        return groups, np.concatenate([[0], np.cumsum(sizes)])

    # Following changes

    def watch(self, name: str, instead_of: str | None = None) -> None:
        """Begin, or begin again, to follow what changes from here on, or from where `instead_of` began to.

        Rows touched in this very step count as changed again later: an update for them may still be under way.
        """
        self.watchers[name] = self.clock if instead_of is None else self.watchers.pop(instead_of)
        oldest = min(self.watchers.values())
        self.removed = [entry for entry in self.removed if entry[0] >= oldest]

    def changes(self, name: str) -> tuple[int, list[np.ndarray]]:
        """The step after which rows count as changed for a watcher, and the signs removed since, by group."""
        since = self.watchers[name]
        removed = [[np.empty(0, np.uint64)] for _ in self.tables]
        for clock, group, signs in self.removed:
            if clock >= since:
                removed[group].append(signs)
        return since - 1, [np.concatenate(parts) for parts in removed]

    def _touch_again(self, work: BatchWork) -> None:
        """Stamp rows updated long after their look-up, for watchers that have looked in between."""
        # Before anyone watched, rows were not stamped: a look-up of the very step at which a watch began counts too.
        if any(work.clock <= seen for seen in self.watchers.values()):
            for table, info in zip(self.tables, work.groups, strict=True):
                start, count = info[layout.START], info[layout.UNIQUE]
                table.touch(work.signs[start : start + count], np.full(count, self.clock))

    def clear(self) -> None:
        """Forget every row and all optimizer state."""
        for table in self.tables:
            table.reset()
        self.clock, self.evicted, self.removed, self.watchers = 0, 0, [], {}
        self.tallies[:] = 0
        self.set_steps([0] * len(self.tables))

    def close(self) -> None:
        """Stop the threads."""
        self.threads.close()
        self.native_threads.close()
