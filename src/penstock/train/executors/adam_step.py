"""Adam on a GPU in two kernels: are all gradients finite, and the step of all weights.

The state is that of `torch.optim.Adam`, and so are checkpoints; only the step is not torch's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from penstock.kernels.gpu_triton import has_triton, is_interpreted

_STATE = ("exp_avg", "exp_avg_sq", "step")
_CAPTURES = 4  # one after another, without a step between: tables that grow make room and are captured again
_UNKNOWN = ("amsgrad", "maximize", "differentiable")  # what torch's own step is left for


@dataclass
class _Table:
    """Where the tensors of a group lie."""

    addresses: Tensor
    pieces: Tensor
    sizes: Tensor


class AdamStep:
    """The steps of an optimizer that is an Adam.

    Args:
        optimizer: `torch.optim.Adam` or `AdamW`, of weights on a GPU.
        skipped: what counts the steps that are not taken.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, skipped: Tensor) -> None:
        self._optimizer, self._skipped = optimizer, skipped
        self._fine = torch.ones((), device=skipped.device)
        self._layouts: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}
        # Tables that graphs read are made before the capture and written behind it.
        self._spare: list[Tensor] = []
        self._kept: list[Tensor] = []
        self._unwritten: list[tuple[Tensor, Tensor]] = []

    @classmethod
    def of(cls, optimizer: torch.optim.Optimizer | None, skipped: Tensor) -> Self | None:
        """The steps of an optimizer, or None where they must be torch's."""
        if not isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW):
            return None
        if any(group.get(name) for group in optimizer.param_groups for name in _UNKNOWN):
            return None
        on_gpu = skipped.device.type == "cuda" or is_interpreted()
        return cls(optimizer, skipped) if on_gpu and has_triton() else None

    def step(self) -> bool:
        """Take a step, or count it as skipped; False where this one must be torch's, which has done nothing then."""
        from penstock.kernels import gpu_adam

        groups: list[tuple[dict[str, Any], _Table]] = []
        for group in self._optimizer.param_groups:
            table = self._table(group)
            if table is None:
                return False
            if len(table.sizes):
                groups.append((group, table))
        self._fine.fill_(1)
        for _, table in groups:
            gpu_adam.find_broken(table.addresses, table.pieces, table.sizes, self._fine)
        for number, (group, table) in enumerate(groups):
            gpu_adam.count_step(table.addresses, self._fine, None if number else self._skipped)
            decay, kind = _decay(self._optimizer, group)
            gpu_adam.step(
                table.addresses, table.pieces, table.sizes, self._fine, self._rate(group), group["betas"],
                group["eps"], decay, kind,
            )  # fmt: skip
        return True

    def _rate(self, group: dict[str, Any]) -> Tensor:
        rate = group["lr"]
        return rate if isinstance(rate, Tensor) else torch.full_like(self._fine, float(rate))

    def _table(self, group: dict[str, Any]) -> _Table | None:
        """Where a group's tensors are; None where one has no state yet, or one that the kernel does not read."""
        weights = [weight for weight in group["params"] if weight.grad is not None]
        tensors: list[list[Tensor]] = [weights, [weight.grad for weight in weights]]
        state = self._optimizer.state
        for name in _STATE:
            tensors.append([state[weight].get(name) for weight in weights])
        flat = [tensor for several in tensors for tensor in several]
        device = self._skipped.device
        if any(t is None or t.is_sparse or t.dtype != torch.float32 or t.device != device for t in flat):
            return None
        strides = zip(*tensors[:4], strict=True)
        if not all(_are_dense(tensor) for tensor in flat) or any(len({t.stride() for t in s}) > 1 for s in strides):
            return None
        layout = self._layout(tuple(weight.numel() for weight in weights))
        if layout is None:
            return None
        addresses = self._on_device([[tensor.data_ptr() for tensor in several] for several in tensors])
        return None if addresses is None else _Table(addresses, *layout)

    def _layout(self, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor] | None:
        """The pieces that tensors of these sizes are cut into, and the sizes; None if it is too late to make them."""
        from penstock.kernels.gpu_adam import PIECE

        if sizes not in self._layouts:
            if self._is_capturing():
                return None
            pieces = [[number, first] for number, size in enumerate(sizes) for first in range(0, size, PIECE)]
            made = torch.tensor(pieces, dtype=torch.int64).reshape(-1, 2), torch.tensor(sizes, dtype=torch.int64)
            self._layouts[sizes] = made[0].to(self._skipped.device), made[1].to(self._skipped.device)
        return self._layouts[sizes]

    def settle(self) -> None:
        """Behind a capture: write what its graph reads."""
        for table, numbers in self._unwritten:
            table.copy_(numbers)
        self._unwritten.clear()

    def _on_device(self, numbers: list[list[int]]) -> Tensor | None:
        """Numbers on the device; during a capture, where they will be once it is settled. None if there is no room."""
        found = torch.tensor(numbers, dtype=torch.int64)
        if not self._is_capturing():
            if not any(spare.shape == found.shape for spare in self._spare):
                self._spare += [torch.empty_like(found, device=self._skipped.device) for _ in range(_CAPTURES)]
            return found.to(self._skipped.device)
        table = next((spare for spare in self._spare if spare.shape == found.shape), None)
        if table is not None:
            self._spare = [spare for spare in self._spare if spare is not table]
            self._kept.append(table)
            self._unwritten.append((table, found))
        return table

    def _is_capturing(self) -> bool:
        return self._skipped.device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _decay(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> tuple[float, int]:
    from penstock.kernels.gpu_adam import DECOUPLED, PLAIN, WITH_DECAY

    decay = float(group["weight_decay"])
    if not decay:
        return decay, PLAIN
    is_apart = group.get("decoupled_weight_decay", isinstance(optimizer, torch.optim.AdamW))
    return decay, DECOUPLED if is_apart else WITH_DECAY


def _are_dense(tensor: Tensor) -> bool:
    """Whether a tensor's numbers lie side by side, in whatever order."""
    return tensor.is_contiguous() or (tensor.dim() == 2 and tensor.t().is_contiguous())
