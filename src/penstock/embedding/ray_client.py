"""The client's side of a sharded look-up: numbering a batch, dividing its signs, pooling rows, summing gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.core.runtime.buffers import BufferPool
from penstock.core.runtime.kernel_threads import KernelThreads
from penstock.embedding.batches import IdBatch
from penstock.embedding.slot_layout import SlotLayout
from penstock.kernels import cpu_embedding_batch as layout
from penstock.kernels import cpu_embedding_remote as remote
from penstock.kernels.cpu_intrinsics import address_of, kernel_input


class RoutedBatch:
    """A batch whose distinct signs have been numbered and routed to their shards."""

    def __init__(
        self, slots: SlotLayout, ids: IdBatch, pool: BufferPool, threads: KernelThreads, num_shards: int
    ) -> None:
        self.slots, self.pool, self.threads = slots, pool, threads
        self.number = 0  # of the command that updates it, once it was sent
        self.work = slots.number(ids.inputs, pool)
        self.work.keep = [ids]
        work, most = self.work, int(self.work.positions.max(initial=0))
        total = len(work.signs)

        def number() -> None:
            local = pool.array((max(16, 1 << (2 * most - 1).bit_length()),), np.uint32)
            layout.number_groups(
                threads.counter, slots.group_starts, slots.members, slots.slots, work.inputs, work.groups,
                work.inverse, work.signs, local,
            )  # fmt: skip

        threads.run(number, len(work.groups), total)
        self._owner, self._place = pool.array((total,), np.uint16), pool.array((total,), np.uint32)
        self.counts = np.zeros((num_shards, len(work.groups)), np.int64)
        remote.route(work.groups, work.signs, self._owner, self._place, self.counts)
        self.dims = slots.slots[slots.members[slots.group_starts[:-1]], layout.SLOT_DIM].astype(np.int64)
        # Where each (shard, group) begins in a flat array of signs, and of floats.
        self._sign_begin = (np.cumsum(self.counts.ravel()) - self.counts.ravel()).reshape(self.counts.shape)
        sizes = self.counts * self.dims
        self._float_begin = (np.cumsum(sizes.ravel()) - sizes.ravel()).reshape(sizes.shape)
        self._floats = sizes.sum(axis=1)
        self._signs = np.empty(int(self.counts.sum()), np.uint64)
        remote.gather_signs(work.groups, work.signs, self._owner, self._place, self._sign_begin, self._signs)

    def requests(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each shard: how many signs of each group, and the signs."""
        ends = np.cumsum(self.counts.sum(axis=1))
        return [(counts, part) for counts, part in zip(self.counts, np.split(self._signs, ends[:-1]), strict=True)]

    def pool_rows(self, replies: Sequence[np.ndarray]) -> None:
        """Fill the look-up's outputs from the rows that the shards sent."""
        work, slots = self.work, self.slots
        rows = [kernel_input(reply, np.float32) for reply in replies]
        places = self.pool.array((len(work.signs),), np.uint64)
        begin = self._addresses([address_of(array) for array in rows])
        remote.locate_rows(work.groups, self.dims, self._owner, self._place, begin, places)

        def pool() -> None:
            layout.pool_groups(
                self.threads.counter, slots.group_starts, slots.members, slots.slots, work.inputs, work.groups,
                work.inverse, places,
            )  # fmt: skip

        self.threads.run(pool, len(work.groups), len(work.signs))

    def _addresses(self, bases: Sequence[int]) -> np.ndarray:
        inside = self._float_begin - self._float_begin[:, :1]
        addresses: np.ndarray = np.array(bases, np.uint64)[:, None] + inside.astype(np.uint64) * np.uint64(4)
        return addresses

    def sum_gradients(self) -> tuple[list[tuple[np.ndarray, np.ndarray, np.ndarray]], np.ndarray, np.ndarray]:
        """Each shard's (counts, signs, summed gradients); which groups take a step; dropped gradients by slot."""
        work, slots = self.work, self.slots
        unique = work.groups[:, layout.UNIQUE]
        sizes = unique * self.dims
        sums = self.pool.array((int(sizes.sum()),), np.float32)
        at = np.uint64(address_of(sums)) + (np.cumsum(sizes) - sizes).astype(np.uint64) * np.uint64(4)
        counts = np.zeros((len(slots.slots), layout.NUM_COUNTS), np.int64)

        def add_up() -> None:
            layout.sum_groups(
                self.threads.counter, slots.group_starts, slots.members, slots.slots, work.inputs, work.groups,
                work.inverse, at, counts,
            )  # fmt: skip

        self.threads.run(add_up, len(work.groups), len(work.signs))
        flat = np.empty(int(self._floats.sum()), np.float32)
        starts = np.cumsum(self._floats) - self._floats
        begin = self._addresses([address_of(flat) + 4 * int(start) for start in starts])
        remote.scatter_sums(work.groups, self.dims, self._owner, self._place, begin, at)
        parts = np.split(flat, np.cumsum(self._floats)[:-1])
        stepped = work.groups[:, layout.STATUS].astype(np.bool_)
        sent = [(*request, part) for request, part in zip(self.requests(), parts, strict=True)]
        return sent, stepped, counts[:, layout.DROPPED]
