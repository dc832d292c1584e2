"""An eager update as one launch: sort and update of batches of one shape, captured once as a CUDA graph of their own.

Outside a captured training step, launching the twenty kernels of an update one by one takes a host longer than a GPU
takes to run them, as long as batches are small. Everything they read but keys and gradient lies where it lay before; so
the look-up writes its keys to a fixed place, the gradient is copied to one, and a graph does the rest.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from penstock.core.errors import PenstockError

_MOST = 1 << 22  # occurrences; more of them keep the device busy for longer than their launches take
_MOST_BYTES = 1 << 28  # of the gradient, which is copied: beyond, that takes longer than the launches it saves
_SEEN = 8  # batches of one shape in a row before room is made for it: steps that are captured as a whole have fewer
_WARM_UP = 2  # updates before the capture


class RoomClaim:
    """One look-up's right to the room until its update; it ends when that is done, or when nobody holds it."""

    def __init__(self, room: Room) -> None:
        self.room, self.done = room, False


class Room:
    """Fixed places for the keys and the gradient of a batch, and the graph that reads them."""

    def __init__(self, count: int, kind: torch.dtype, out: Tensor) -> None:
        self.keys = torch.empty(count, dtype=kind, device=out.device)
        self._gradient = torch.empty_like(out)
        self._graph: Any = None
        self._runs = 0
        self._claim: Any = None  # a weak reference

    def claim(self) -> RoomClaim | None:
        """The right to it, unless another look-up waits for its backward pass."""
        holder = None if self._claim is None else self._claim()
        if holder is not None and not holder.done:
            return None
        claim = RoomClaim(self)
        self._claim = weakref.ref(claim)
        return claim

    def check(self, claim: RoomClaim) -> None:
        """Raise if another look-up has taken the room since, so that the keys are not this one's any more."""
        if self._claim is None or self._claim() is not claim:
            raise PenstockError(
                "the backward pass of this look-up was run before, and another look-up has followed since; look the "
                "batch up again before a second backward pass"
            )

    def update(self, gradient: Tensor, work: Callable[[Tensor], None]) -> None:
        """Run `work(gradient)`, which reads `keys`, or what was captured of it."""
        self._gradient.copy_(gradient)
        if self._graph is None and self._runs >= _WARM_UP:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                work(self._gradient)
            self._graph = graph
        if self._graph is not None:
            self._graph.replay()
        else:
            work(self._gradient)
            self._runs += 1


class ReplayedUpdates:
    """The room of a module's tables for the shape its batches have, once they have had it for a while."""

    def __init__(self) -> None:
        self._shape: Any = None
        self._seen = 0
        self._room: Room | None = None

    def claim(self, count: int, kind: torch.dtype, out: Tensor, memory: tuple[Tensor | None, ...]) -> RoomClaim | None:
        """Room for the update of a batch, or None where its kernels are launched one by one.

        Args:
            count: occurrences of the batch.
            kind: of the keys.
            out: of its look-up.
            memory: what the update reads and writes; the graph is good as long as it stays where it is.

        Returns:
            The right to it.
        """
        large = count > _MOST or out.numel() * out.element_size() > _MOST_BYTES
        if large or out.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return None
        shape = (count, kind, out.shape, out.dtype, *(None if t is None else t.data_ptr() for t in memory))
        if shape != self._shape:
            self._shape, self._seen, self._room = shape, 0, None
        self._seen += 1
        if self._seen <= _SEEN:
            return None
        self._room = self._room or Room(count, kind, out)
        return self._room.claim()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """A copy of tables has other memory, and begins anew."""
        return ReplayedUpdates, ()
