"""Threads that fill slabs ahead of the consumer: bounded, in plan order, ended when the consumer goes."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING

from penstock.core.errors import PenstockError
from penstock.core.runtime.buffers import BufferPool
from penstock.core.runtime.forks import Process
from penstock.core.runtime.threads import new_thread
from penstock.loader.blocks import Slab, SlabLayout
from penstock.loader.chunks import ChunkJob, Task
from penstock.loader.columns import ColumnSource
from penstock.loader.parquet import Workspace
from penstock.loader.plan import EpochPlan

if TYPE_CHECKING:
    from penstock.loader.sampling import WeightedSampling

_running: weakref.WeakSet[SlabReader] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Threads must not be inside native code while the interpreter goes down."""
    for reader in list(_running):
        reader.close()


class _Work:
    """A chunk under way: the tasks of its present stage, and how many of them are not done."""

    def __init__(self, job: ChunkJob) -> None:
        self.job = job
        self._prepared: list[Task] = []
        self._filling = False
        # Looking into files takes time, so even finding out what there is to do is a task.
        self.tasks: deque[Task] = deque([self._prepare])
        self.open_tasks = 1

    def _prepare(self, space: Workspace) -> None:
        self._prepared = self.job.prepare()

    def next_stage(self) -> bool:
        """Bring up the next tasks; False when the chunk is finished."""
        tasks, self._prepared = self._prepared, []
        if not tasks and not self._filling:
            tasks, self._filling = self.job.fill(), True
        self.tasks.extend(tasks)
        self.open_tasks = len(tasks)
        return bool(tasks)


class SlabReader:
    """The slabs of an epoch from chunk `first` up to `last` (not included), in order.

    A chunk's rows go to a slab of whole batches; the batches that two chunks share have a small slab, a bridge, of
    their own, so that nothing is copied and no chunk waits for another.

    `depth` chunks may be open at a time, counting the one whose batches are being consumed. Everything that waits does
    so on one condition; whatever goes wrong in a thread is raised in `next_slabs`, when its chunk is due. Without
    `carry` a slab holds exactly the rows of its chunk, in stored order: for a device, which shuffles by itself. Where
    `device_decodes`, it has parquet pages instead of values wherever that device can decode them.
    """

    def __init__(
        self,
        source: ColumnSource,
        plan: EpochPlan,
        layout: SlabLayout,
        pool: BufferPool,
        *,
        first: int,
        last: int,
        num_threads: int,
        depth: int = 2,
        sampling: WeightedSampling | None = None,
        carry: bool = True,
        device_decodes: bool = False,
    ) -> None:
        self._device_decodes = device_decodes
        self._source, self._plan, self._layout, self._pool, self._sampling = source, plan, layout, pool, sampling
        self._carry, self._depth = carry, depth
        self._to_open = self._to_deliver = self._wanted = first
        self._last = last
        self._work: list[_Work] = []
        self._slabs: dict[tuple[str, int], Slab] = {}
        self._largest = max((c.num_rows for c in plan.chunks[first:last]), default=0)
        self._done: set[int] = set()
        self._error: tuple[int, BaseException] | None = None
        self._stopped = False
        self._condition = threading.Condition()
        self._process = Process()
        self._threads = [new_thread(f"loader-{number}", self._run) for number in range(num_threads)]
        _running.add(self)
        for thread in self._threads:
            thread.start()

    def next_slabs(self) -> list[Slab] | None:
        """The slabs that the next chunk completes, once they are filled; None at the end."""
        if not self._process.is_this():
            raise PenstockError("this iterator was begun in another process, before a fork; begin a new one here")
        index = self._to_deliver
        with self._condition:
            if index >= self._last:
                return None
            self._wanted = index
            self._condition.notify_all()
            while index not in self._done:
                if self._error is not None and self._error[0] <= index:
                    raise self._error[1]
                if self._stopped:
                    return None
                self._condition.wait()
            self._to_deliver += 1
            self._done.discard(index)
            return [self._slabs.pop(key) for key in (("bridge", index), ("slab", index)) if key in self._slabs]

    def close(self) -> None:
        """End the threads and let go of everything; safe to call twice, from any thread, and after a fork."""
        if not self._process.is_this():
            return
        with self._condition:
            self._stopped = True
            self._work.clear()
            self._slabs.clear()
            self._condition.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        _running.discard(self)

    def _run(self) -> None:
        with self._source.workspace() as space:
            while (picked := self._wait_for_task()) is not None:
                work, task = picked
                try:
                    task(space)
                except BaseException as error:
                    self._fail(work, error)
                else:
                    self._finish(work)
                del work, task, picked  # an idle thread must not keep a slab alive

    def _wait_for_task(self) -> tuple[_Work, Task] | None:
        with self._condition:
            while not self._stopped:
                picked = self._pick()
                if picked is not None:
                    return picked
                if self._to_open >= self._last and not self._work:
                    return None
                self._condition.wait()
            return None

    def _pick(self) -> tuple[_Work, Task] | None:
        """A task of the oldest chunk that has one, or of a new chunk; the condition is held."""
        limit = self._error[0] if self._error else self._last
        for work in self._work:
            if work.tasks and work.job.chunk.index < limit:
                return work, work.tasks.popleft()
        if self._to_open < min(limit, self._wanted + self._depth):
            work = _Work(self._open(self._to_open))
            self._to_open += 1
            self._work.append(work)
            return work, work.tasks.popleft()
        return None

    def _open(self, index: int) -> ChunkJob:
        """The job of a chunk, with the slabs its rows go to."""
        plan, chunk = self._plan, self._plan.chunks[index]
        if not self._carry:
            targets = [self._slab("slab", index, (chunk.first, chunk.end), self._largest)]
        else:
            targets = [self._slab("slab", index, plan.slab_rows(chunk), self._largest)]
            if (rows := plan.bridge_rows(chunk)) is not None:
                targets.insert(0, self._slab("bridge", index, rows, plan.batch_size))
            if index + 1 < len(plan.chunks) and (rows := plan.bridge_rows(plan.chunks[index + 1])) is not None:
                targets.append(self._slab("bridge", index + 1, rows, plan.batch_size))
        shuffle_here = self._carry or self._sampling is not None
        decodes = self._device_decodes and not shuffle_here
        return ChunkJob(self._source, plan, chunk, targets, self._pool, shuffle_here, self._sampling, decodes)

    def _slab(self, kind: str, index: int, rows: tuple[int, int], capacity: int) -> Slab:
        """A slab, made when the first of the chunks that fill it is opened; all of a kind have buffers of one size."""
        key = kind, index
        if key not in self._slabs:
            self._slabs[key] = Slab(self._layout, rows[0], rows[1] - rows[0], self._pool, capacity)
        return self._slabs[key]

    def _finish(self, work: _Work) -> None:
        with self._condition:
            work.open_tasks -= 1
            if work.open_tasks or self._stopped:
                return
            if not work.next_stage():
                work.job.release()
                self._work.remove(work)
                self._done.add(work.job.chunk.index)
            self._condition.notify_all()

    def _fail(self, work: _Work, error: BaseException) -> None:
        with self._condition:
            index = work.job.chunk.index
            if self._error is None or index < self._error[0]:
                self._error = index, error
            self._condition.notify_all()
