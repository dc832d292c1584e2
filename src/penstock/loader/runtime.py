"""What runs behind a loader: its buffers, its cache, its counters, and the threads that read for an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from penstock.core.batch import Batch
from penstock.core.runtime.buffers import BufferPool
from penstock.core.runtime.forks import Process
from penstock.core.runtime.threads import available_cores, thread_count
from penstock.loader.blocks import SlabLayout
from penstock.loader.cache import Cache, DiskCache
from penstock.loader.columns import ColumnSource
from penstock.loader.plan import EpochPlan
from penstock.loader.reader import SlabReader
from penstock.loader.sampling import WeightedSampling

if TYPE_CHECKING:
    from penstock.loader.base import BaseLoader


class Runtime:
    """Buffers, cache and counters of a loader, made when first needed in each process."""

    def __init__(self, loader: BaseLoader, pool: BufferPool | None = None) -> None:
        self.process = Process()
        self.pool = pool or BufferPool()
        caches: dict[str | None, Callable[[], Cache | None]] = {None: lambda: None, "memory": Cache, "disk": DiskCache}
        partitions = loader._partitions()
        self.source = ColumnSource(
            partitions, loader._row_counts(), loader._read_schema, loader._dtypes, loader._fill, caches[loader.cache]()
        )
        # Beside a GPU two cores stay free: for the thread that feeds it, and for the one that stages chunks.
        spare = 2 if getattr(loader, "_staged", False) and available_cores() > 4 else 0
        self.num_threads = thread_count(loader.num_threads, most=16, spare=spare)

    def reader(
        self,
        plan: EpochPlan,
        layout: SlabLayout,
        sampling: WeightedSampling | None,
        start: int,
        stop: int,
        carry: bool = True,
        device_decodes: bool = False,
    ) -> SlabReader:
        """Threads that read the chunks of batches `[start, stop)`."""
        last_row = plan.bounds(stop - 1)[1] - 1
        return SlabReader(
            self.source,
            plan,
            layout,
            self.pool,
            first=plan.chunk_of(plan.bounds(start)[0]),
            last=plan.chunk_of(last_row) + 1,
            num_threads=self.num_threads,
            depth=2 if carry else 3,  # a device holds on to one chunk more, while it copies
            sampling=sampling,
            carry=carry,
            device_decodes=device_decodes,
        )


def batches_from(reader: SlabReader, plan: EpochPlan, start: int, stop: int) -> Iterator[Batch]:
    """Batches cut from slabs as these arrive."""
    batch = start
    try:
        while batch < stop and (slabs := reader.next_slabs()) is not None:
            while slabs:
                slab = slabs.pop(0)
                end = slab.first + slab.num_rows
                while batch < stop and plan.bounds(batch)[1] <= end:
                    yield slab.batch(*plan.bounds(batch))
                    batch += 1
                del slab
    finally:
        reader.close()
