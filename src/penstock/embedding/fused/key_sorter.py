"""A batch's keys sorted beside the dense model's work: nothing needs their order before the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_WORTH_A_STREAM = 1 << 22  # keys; sorting fewer takes less than telling two streams to wait for one another


class KeySorter:
    """Room for keys, and their order; on a GPU both belong to a stream of their own where that pays.

    The memory is the side stream's own, free as soon as the sort is done. It is handed out again only to a later batch,
    whose sort waits for all that the main stream has done by then, and the main stream has waited for this one
    (`wait`).
    """

    def __init__(self) -> None:
        self._side: Any = None
        self._beside = False  # whether the last room was made on it
        self._sorting = False  # whether it may still be at it

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """A copy of tables makes a stream of its own."""
        return KeySorter, ()

    def empty(self, count: int, kind: torch.dtype, device: torch.device) -> Tensor:
        """Room for a batch's keys."""
        if device.type == "cuda" and self._side is None:  # before any capture
            self._side = torch.cuda.Stream(device)
        # In a captured step waiting costs nothing.
        self._beside = device.type == "cuda" and (count >= _WORTH_A_STREAM or torch.cuda.is_current_stream_capturing())
        if not self._beside:
            return torch.empty(count, dtype=kind, device=device)
        main = torch.cuda.current_stream(device)
        if self._sorting:  # a look-up that had no backward pass: its keys may still be read
            main.wait_stream(self._side)
        self._side.wait_stream(main)  # part of a capture, if there is one, before it allocates
        with torch.cuda.stream(self._side):
            return torch.empty(count, dtype=kind, device=device)

    def sorted(self, kernels: Any, keys: Tensor) -> tuple[Tensor, Tensor]:
        """The keys in order, and where each came from."""
        if not self._beside:
            return _sort(kernels, keys)
        self._side.wait_stream(torch.cuda.current_stream(keys.device))
        self._sorting = True
        with torch.cuda.stream(self._side):
            return _sort(kernels, keys)

    def wait(self, device: torch.device) -> None:
        """Let the current stream wait for the last sort."""
        if self._sorting and device.type == "cuda":  # it may have moved since
            torch.cuda.current_stream(device).wait_stream(self._side)
            self._sorting = False


def _sort(kernels: Any, keys: Tensor) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = kernels.sort(keys)
    return found
