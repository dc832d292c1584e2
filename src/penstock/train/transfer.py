"""Embeddings to the model's device and gradients back, beside the work that is under way there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from penstock.train.batch import to_device


class Transfer:
    """Copies for the training thread. On the CPU there is nothing to do; on a GPU they go through a side stream.

    >>> Transfer(torch.device("cpu")).to_device(torch.zeros(2)).shape
    torch.Size([2])
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def to_device(self, value: Any) -> Any:
        """Tensors (or mappings of them) on the device; called by the training thread."""
        if self._stream is None:
            return to_device(value, self.device)
        with torch.cuda.stream(self._stream):
            moved = to_device(value, self.device)
        self._stream.synchronize()  # host memory is free again, and any stream may read what has arrived
        return moved

    def used_here(self, tensor: Tensor) -> None:
        """Keep a tensor's memory until the loop's present stream has read it."""
        if self._stream is not None:
            tensor.record_stream(torch.cuda.current_stream(self.device))

    def mark(self) -> Any:
        """An event behind the backward pass: what `to_host` waits for."""
        if self._stream is None:
            return None
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.device))
        return event

    def to_host(self, gradients: dict[str, Tensor], ready: Any) -> dict[str, Tensor]:
        """Gradients where the store reads them; called by the training thread."""
        if self._stream is None:
            return gradients
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(ready)
            moved = {name: gradient.to("cpu") for name, gradient in gradients.items()}
        for gradient in gradients.values():
            gradient.record_stream(self._stream)
        return moved
