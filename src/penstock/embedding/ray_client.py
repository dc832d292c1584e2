"""The client's side of a sharded look-up: numbering a batch, dividing its signs, pooling rows, summing gradients."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.core.runtime.buffers import BufferPool
from penstock.core.runtime.kernel_threads import KernelThreads
from penstock.embedding.batches import IdBatch
from penstock.embedding.ray_memory import Place, SharedBuffers
from penstock.embedding.slot_layout import SlotLayout, bundles
from penstock.kernels import cpu_embedding_batch as layout
from penstock.kernels import cpu_embedding_client as kernel
from penstock.kernels.cpu_intrinsics import address_of, kernel_input

_LIGHT = 8  # signs that are copied in the time that one takes in other kernels


class RoutedBatch:
    """A batch whose distinct signs have been numbered and routed to their shards."""

    def __init__(
        self,
        slots: SlotLayout,
        ids: IdBatch,
        pool: BufferPool,
        shared: SharedBuffers,
        threads: KernelThreads,
        num_shards: int,
    ) -> None:
        self.slots, self.pool, self.shared, self.threads = slots, pool, shared, threads
        self._sums: np.ndarray | None = None
        self.number = 0  # of the command that updates it, once it was sent
        self.work = slots.number(ids.inputs, pool)
        self.work.keep = [ids]
        work, most = self.work, int(self.work.positions.max(initial=0))
        total = len(work.signs)

        self._owner, self._place = pool.array((total,), np.uint16), pool.array((total,), np.uint32)
        self.counts = np.zeros((num_shards, len(work.groups)), np.int64)

        def number() -> None:
            local = pool.array((max(16, 1 << (2 * most - 1).bit_length()),), np.uint32)
            kernel.number_and_route(
                threads.counter, slots.group_starts, slots.members, slots.slots, work.inputs, work.groups,
                work.inverse, work.signs, local, self._owner, self._place, self.counts,
            )  # fmt: skip

        threads.run(number, len(work.groups), total)
        self.dims = slots.slots[slots.members[slots.group_starts[:-1]], layout.SLOT_DIM].astype(np.int64)
        # Where each (shard, group) begins in a flat array of signs, and of floats.
        self._sign_begin = (np.cumsum(self.counts.ravel()) - self.counts.ravel()).reshape(self.counts.shape)
        sizes = self.counts * self.dims
        self._float_begin = (np.cumsum(sizes.ravel()) - sizes.ravel()).reshape(sizes.shape)
        floats = [0, *np.cumsum(sizes.sum(axis=1)).tolist()]
        self._float_parts = [slice(*ends) for ends in pairwise(floats)]
        signs = shared.array(int(self.counts.sum()), np.uint64)

        def gather() -> None:
            kernel.gather_signs(
                threads.counter, work.groups, work.signs, self._owner, self._place, self._sign_begin, signs
            )

        threads.run(gather, len(work.groups), len(signs) // _LIGHT)
        self._signs = np.split(signs, np.cumsum(self.counts.sum(axis=1))[:-1])
        self._rows = shared.array(floats[-1], np.float32)

    def request(self, train: bool, shard: int, here: bool) -> tuple[Any, ...]:
        """What a shard is asked for: how many signs of each group, the signs, and where rows go if it is `here`."""
        rows = self.shared.place(self._rows[self._float_parts[shard]]) if here else None
        return self.counts[shard], self._given(self._signs[shard], here), train, rows

    def _given(self, array: np.ndarray, here: bool) -> np.ndarray | Place:
        place = self.shared.place(array) if here else None
        return array if place is None else place

    def pool_rows(self, replies: Sequence[np.ndarray | bool]) -> None:
        """Fill the look-up's outputs from the rows that the shards sent, or wrote here."""
        work, slots = self.work, self.slots
        rows = [
            self._rows[self._float_parts[shard]] if reply is True else kernel_input(reply, np.float32)
            for shard, reply in enumerate(replies)
        ]
        places = self.pool.array((len(work.signs),), np.uint64)
        begin = self._addresses([address_of(array) for array in rows])

        def pool() -> None:
            kernel.pool_groups(
                self.threads.counter, slots.group_starts, slots.members, slots.slots, work.inputs, work.groups,
                work.inverse, self.dims, self._owner, self._place, begin, places,
            )  # fmt: skip

        self.threads.run(pool, len(work.groups), len(work.signs))

    def _addresses(self, bases: Sequence[int]) -> np.ndarray:
        inside = self._float_begin - self._float_begin[:, :1]
        addresses: np.ndarray = np.array(bases, np.uint64)[:, None] + inside.astype(np.uint64) * np.uint64(4)
        return addresses

    def sum_gradients(self) -> tuple[np.ndarray, np.ndarray]:
        """Add gradients up by sign, for the shards; which groups take a step, and dropped gradients by slot."""
        work, slots = self.work, self.slots
        starts, order = bundles(slots, work, np.argsort(-work.positions, kind="stable"))
        sizes = (work.groups[:, layout.UNIQUE] * self.dims)[order]
        most = int(np.add.reduceat(sizes, starts[:-1]).max(initial=0)) if len(order) else 0
        counts = np.zeros((len(slots.slots), layout.NUM_COUNTS), np.int64)
        # Rows have been pooled: their memory takes the gradients, unless a shard may still be reading those.
        self._sums = self._rows if self._sums is None else self.shared.array(len(self._rows), np.float32)
        begin = self._addresses([address_of(self._sums) + 4 * part.start for part in self._float_parts])

        def add_up() -> None:
            kernel.sum_bundles(
                self.threads.counter, starts, order, slots.group_starts, slots.members, slots.slots, work.inputs,
                work.groups, work.inverse, self.dims, self._owner, self._place, begin,
                self.pool.array((most,), np.float32), counts,
            )  # fmt: skip

        self.threads.run(add_up, len(starts) - 1, len(work.signs))
        return work.groups[:, layout.STATUS].astype(np.bool_), counts[:, layout.DROPPED]

    def gradients(self, stepped: np.ndarray, scale: float, shard: int, here: bool) -> tuple[Any, ...]:
        """What a shard is sent: how many signs of each group, the signs, their summed gradients, and how to apply."""
        assert self._sums is not None
        part = self._sums[self._float_parts[shard]]
        signs = self._given(self._signs[shard], here)
        return self.counts[shard], signs, self._given(part, here), stepped, scale
