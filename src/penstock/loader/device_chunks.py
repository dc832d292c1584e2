"""From host chunks to batches on a GPU: pinned buffers, copies and shuffles on a side stream, nothing that stalls.

A thread of its own takes chunks as they are read (unshuffled; parquet pages as they are where the device can decode
them, else values, ids in their narrowest type), copies them to the device on a side stream, decodes, shuffles and
widens them there, and queues the result with an event. The consumer's stream
waits for that event, not the consumer. Device memory comes from torch's allocator, and `record_stream` keeps it from
being given out again while the consumer's kernels still read it.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.core.batch import BlockSpec, ListSpec, Ragged
from penstock.core.dtypes import narrowest_int
from penstock.core.extras import require
from penstock.core.runtime.threads import start_thread
from penstock.loader.blocks import Slab, SlabLayout
from penstock.loader.device_pages import Decoded, PageDecoder, can_decode
from penstock.loader.device_pins import host_pins, pinned_memory
from penstock.loader.device_rows import place_rows
from penstock.loader.plan import Chunk, EpochPlan
from penstock.loader.reader import SlabReader

if TYPE_CHECKING:
    from penstock.loader.base import BaseLoader
    from penstock.loader.runtime import Runtime

torch = require("torch", "torch")
_LARGE = 1 << 20  # bytes from which on it matters how memory is pinned
QUEUED = 1  # chunks that wait on the device, besides the one in use and the one being copied


def pinned_buffers(device: Any) -> Callable[[int], np.ndarray]:
    """What makes host memory that the GPU copies from at full speed."""
    pins = host_pins(device) if device.type == "cuda" else None

    def allocate(size: int) -> np.ndarray:
        memory = pinned_memory(size, pins) if pins is not None and size >= _LARGE else None
        if memory is None:
            memory = torch.empty(size, dtype=torch.uint8, pin_memory=torch.cuda.is_available()).numpy()
        return memory

    return allocate


def wire_layout(loader: BaseLoader) -> SlabLayout:
    """The narrowest types that hold what the schema promises; rows of a chunk end to end."""
    dtypes = {}
    for column in loader._schema:
        delivered = loader._dtypes[column.name]
        stored = np.dtype("uint8" if column.dtype == "bool" else column.dtype)
        dtype = min(stored, delivered, key=lambda d: d.itemsize) if stored.kind == delivered.kind else delivered
        if column.cardinality is not None and dtype.kind in "iu":
            dtype = min(dtype, np.dtype(narrowest_int(column.cardinality)), key=lambda d: d.itemsize)
        dtypes[column.name] = dtype
    return SlabLayout.of(loader._schema, dtypes, loader.batch_size, padded=False)


@dataclass
class DeviceChunk:
    """A chunk on the device with the rows left over from the one before it; `first` is its first row's position."""

    first: int
    num_rows: int
    blocks: list[Any]
    ragged: dict[str, Ragged]
    places: dict[str, dict[int, int]]  # of each list column, where its values are cut: {row: offset}
    ready: Any = None

    def tensors(self) -> list[Any]:
        return [*self.blocks, *(t for r in self.ragged.values() for t in r)]


class _Side:
    """The side stream of a device; on the CPU, where tests run it, everything happens at once."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def __call__(self) -> Any:
        return torch.cuda.stream(self.stream) if self.stream is not None else nullcontext()

    def mark(self) -> Any:
        """An event behind everything issued so far."""
        if self.stream is None:
            return None
        event = torch.cuda.Event(blocking=True)  # who waits for it leaves the core to others
        event.record(self.stream)
        return event

    def join(self, chunk: DeviceChunk) -> None:
        """Let the consumer's present stream use a chunk as soon as it is there."""
        if self.stream is None:
            return
        current = torch.cuda.current_stream(self.device)
        current.wait_event(chunk.ready)
        for tensor in chunk.tensors():
            tensor.record_stream(current)


class Stager:
    """The thread between the reader and the consumer."""

    def __init__(self, loader: BaseLoader, runtime: Runtime, plan: EpochPlan, start: int, stop: int) -> None:
        self._wire, self._out = wire_layout(loader), loader._layout
        self._plan, self._device = plan, loader.device  # type: ignore[attr-defined]
        self._stats = runtime.source.stats
        self.side = _Side(self._device)
        # Weighted draws need the weights, which are on the host: then the host shuffles, and slabs have no order.
        self._source = runtime.source
        self._has_kernels = decodes = can_decode(self._device)
        if decodes:
            runtime.source.for_device.keep_pages(host_pins(self._device), plan.world)
        self._decoder = PageDecoder(self._out.blocks, self._device, self._send, runtime.pool)
        self._reader: SlabReader = runtime.reader(
            plan, self._wire, loader.sampling, start, stop, carry=False, device_decodes=decodes
        )
        self._next_chunk = plan.chunk_of(plan.bounds(start)[0])
        self._queue: queue.Queue[DeviceChunk | BaseException | None] = queue.Queue(QUEUED)
        self._stopped = False
        self._sent = 0  # bytes of the chunk that is being staged
        self._tail: tuple[list[Any], dict[str, Ragged]] | None = None
        self._thread = start_thread("stager", self._run)

    def next_chunk(self) -> DeviceChunk | None:
        item = self._queue.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        self._stopped = True
        self._reader.close()
        while self._thread.is_alive():
            try:
                self._queue.get_nowait()
            except queue.Empty:
                self._thread.join(0.01)
        self._tail = None

    def _run(self) -> None:
        try:
            while not self._stopped and (slabs := self._reader.next_slabs()) is not None:
                chunk = self._stage(slabs.pop())
                self._queue.put(chunk)
                del chunk
            self._queue.put(None)
        except BaseException as error:
            self._queue.put(error)

    def _stage(self, slab: Slab) -> DeviceChunk:
        """Copy, shuffle, widen; returns when the host memory is free again."""
        began, self._sent = time.perf_counter(), 0
        chunk = self._plan.chunks[self._next_chunk]
        self._next_chunk += 1
        with self.side():
            sent, decoded = self._sent_blocks(slab)
            lists = {s.name: self._send_lists(slab.lists[s.name][0]) for s in self._wire.lists}
            order = None if slab.order is None else self._send(slab.order.view(np.int32))
            copied = self.side.mark()
            staged = self._made(chunk, sent, lists, order)
        if copied is not None:
            copied.synchronize()
        if slab.encoded is not None:
            slab.encoded.check_files()
        if decoded is not None and (suspicious := decoded.suspicious()):
            with self.side():
                staged = self._made(chunk, self._decoded_by_host(sent, chunk, suspicious), lists, order)
        with self.side():
            self._keep_tail(staged)
        self._stats.add("copy", time.perf_counter() - began, self._sent)
        return staged

    def _made(
        self, chunk: Chunk, sent: list[tuple[BlockSpec, Any]], lists: dict[str, Ragged], order: Any
    ) -> DeviceChunk:
        """The chunk as it is delivered."""
        blocks = [self._block(spec, sent, order, b) for b, spec in enumerate(self._out.blocks)]
        ragged = {s.name: self._lists(s, lists[s.name], order) for s in self._out.lists}
        staged = DeviceChunk(chunk.first - self._carried(), chunk.num_rows + self._carried(), blocks, ragged, {})
        staged.ready = self.side.mark()
        self._locate(staged)
        return staged

    def _sent_blocks(self, slab: Slab) -> tuple[list[tuple[BlockSpec, Any]], Decoded | None]:
        """The columns in stored order, in blocks as they were sent or decoded here."""
        if slab.encoded is None or not slab.encoded.found:
            arrays = zip(self._wire.blocks, slab.arrays, strict=True)
            return [(spec, self._send(array)[:, : slab.num_rows]) for spec, array in arrays], None  # one copy a block
        decoded = self._decoder.decode(slab.encoded, slab.num_rows)
        self._sent += decoded.num_bytes
        blocks = list(decoded.blocks)
        for number, spec in enumerate(self._wire.blocks):
            for i, name in enumerate(spec.names):
                if name not in slab.encoded.found:
                    own = slab.arrays[number][i : i + 1, : slab.num_rows]
                    blocks.append((replace(spec, names=(name,)), self._send(own)))
        return blocks, decoded

    def _decoded_by_host(
        self, blocks: list[tuple[BlockSpec, Any]], chunk: Chunk, names: list[str]
    ) -> list[tuple[BlockSpec, Any]]:
        """The same blocks with some columns as the host reads them: it says what is wrong, or finds that nothing is."""
        for name in names:
            blocks = list(_without(blocks, name))
            role = self._source.schema[name].role
            values = self._source.whole_column([piece.partition for piece in chunk.pieces], name)
            blocks.append((BlockSpec(role, values.dtype, (name,)), self._send(values[None])))
        return blocks

    def _send(self, array: np.ndarray) -> Any:
        self._sent += array.nbytes
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
        if self._device.type != "cuda":
            return tensor.clone()
        return tensor.to(self._device, non_blocking=True)

    def _send_lists(self, segment: Any) -> Ragged:
        base, end = int(segment.offsets[0]), int(segment.offsets[-1])
        return Ragged(self._send(segment.values[base:end]), self._send(segment.offsets - base))

    def _carried(self) -> int:
        if self._tail is None:
            return 0
        blocks, ragged = self._tail
        return blocks[0].shape[1] if blocks else len(next(iter(ragged.values())).offsets) - 1

    def _block(self, spec: BlockSpec, sent: list[tuple[BlockSpec, Any]], order: Any, number: int) -> Any:
        """One delivered block: the rows carried over, then the chunk's, gathered and cast from the blocks sent."""
        carried = self._carried()
        rows = sent[0][1].shape[1] if sent else 0
        out = torch.empty((len(spec.names), carried + rows), dtype=_torch_dtype(spec.dtype), device=self._device)
        if carried:
            out[:, :carried] = self._tail[0][number]  # type: ignore[index]
        place_rows(spec, sent, order, out[:, carried:], self._has_kernels)
        return out

    def _lists(self, spec: ListSpec, sent: Ragged, picks: Any) -> Ragged:
        values, offsets = sent
        if picks is not None:
            values, offsets = gather_lists(values, offsets, picks)
        values = values.to(_torch_dtype(spec.dtype))
        if self._tail is None:
            return Ragged(values, offsets)
        before = self._tail[1][spec.name]
        joined = torch.cat([before.values, values])
        return Ragged(joined, torch.cat([before.offsets, offsets[1:] + len(before.values)]))

    def _locate(self, staged: DeviceChunk) -> None:
        """Where batches begin and end in the values of lists; this thread waits for the side stream to know."""
        if not staged.ragged:
            return
        size, end = self._plan.batch_size, staged.first + staged.num_rows
        batches = range(staged.first // size, min(-(-end // size), self._plan.num_batches))
        rows = {row - staged.first for b in batches for row in self._plan.bounds(b)} | {
            end // size * size - staged.first
        }
        wanted = sorted(r for r in rows if 0 <= r <= staged.num_rows)
        index = torch.tensor(wanted, device=self._device)
        for name, lists in staged.ragged.items():
            staged.places[name] = dict(zip(wanted, lists.offsets[index].tolist(), strict=True))

    def _keep_tail(self, staged: DeviceChunk) -> None:
        """Rows behind the last complete batch open the next chunk."""
        rest = (staged.first + staged.num_rows) % self._plan.batch_size
        if rest == 0 or self._next_chunk >= len(self._plan.chunks):
            self._tail = None
            return
        cut = staged.num_rows - rest
        ragged = {}
        for name, (values, offsets) in staged.ragged.items():
            start = staged.places[name][cut]
            ragged[name] = Ragged(values[start:], offsets[cut:] - start)
        self._tail = [b[:, cut:] for b in staged.blocks], ragged


def _without(blocks: list[tuple[BlockSpec, Any]], name: str) -> Iterator[tuple[BlockSpec, Any]]:
    """The blocks less one column."""
    for spec, block in blocks:
        kept = [i for i, other in enumerate(spec.names) if other != name]
        if len(kept) == len(spec.names):
            yield spec, block
        elif kept:
            yield replace(spec, names=tuple(spec.names[i] for i in kept)), block[kept]


def gather_lists(values: Any, offsets: Any, picks: Any) -> tuple[Any, Any]:
    """Lists in a new order, on their device and without waiting for it.

    >>> values, offsets = gather_lists(torch.tensor([7, 8, 9]), torch.tensor([0, 2, 3]), torch.tensor([1, 0]))
    >>> values.tolist(), offsets.tolist()
    ([9, 7, 8], [0, 1, 3])
    """
    starts, lengths = offsets[:-1][picks], (offsets[1:] - offsets[:-1])[picks]
    new = torch.zeros_like(offsets)
    torch.cumsum(lengths, 0, out=new[1:])
    shift = torch.repeat_interleave(starts - new[:-1], lengths, output_size=len(values))
    return values[shift + torch.arange(len(values), device=values.device)], new


def _torch_dtype(dtype: np.dtype) -> Any:
    return getattr(torch, dtype.name)
