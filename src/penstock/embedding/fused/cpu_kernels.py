"""The numba kernels of fused embeddings behind the calls of `penstock.kernels.gpu_embedding`, for CPU tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.core.runtime.kernel_threads import in_stretches
from penstock.kernels.fused_contract import POOLINGS, code
from penstock.kernels.optimizer_formulas import FUSED, Rule

_ROWS_PER_THREAD = 4096
# What is absent has the dtype that it has elsewhere, or kernels would be compiled once more for it.
_NO_FLOATS, _NO_ROWS = np.empty(0, np.float32), np.empty((0, 1), np.float32)
_NO_IDS, _NO_KEYS = np.empty(0, np.int64), np.empty(0, np.int32)


def _split(work: Callable[[int, int], Any], count: int) -> list[Any]:
    """`work(low, high)` over stretches of `range(count)`, on torch's number of threads; what it returned."""
    return in_stretches(work, count, torch.get_num_threads(), _ROWS_PER_THREAD)


def _array(tensor: Tensor) -> np.ndarray:
    """The tensor's memory; bfloat16 as its bits."""
    tensor = tensor.detach()
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def _memory(matrix: Tensor) -> np.ndarray:
    """A matrix's memory from its first element to its last, whatever lies between: an array of one layout."""
    (rows, columns), (by_row, by_column) = matrix.shape, matrix.stride()
    extent = (rows - 1) * by_row + (columns - 1) * by_column + 1 if rows and columns else 0
    return matrix.detach().as_strided((extent,), (1,)).numpy()


def look_up(
    weight: Tensor,
    features: Tensor,
    ids: Tensor,
    bags: tuple[Tensor, Tensor, Tensor | None] | None,
    pooling: str,
    out: Tensor,
    errors: Tensor,
    occurrences: tuple[Tensor, Tensor, Tensor] | None = None,
    unit: int = 1,
) -> None:
    """See `gpu_embedding.look_up`. Ids are checked first: a wrong one is left in `errors` and nothing is read."""
    from penstock.kernels import cpu_fused_embedding as kernels

    values, offsets = (bags[0].numpy(), bags[1].numpy()) if bags is not None else (_NO_IDS, _NO_IDS)
    weights = bags[2].numpy() if bags is not None and bags[2] is not None else _NO_FLOATS
    places = features.numpy()
    singles = _memory(ids), *ids.stride(), *ids.shape
    feature, identity = kernels.first_wrong(*singles, places, values, offsets)
    if feature >= 0:
        errors.fill_(code(int(places[feature, 2]), identity))
        return
    narrow = out.dtype != torch.float32
    target = torch.empty(out.shape, dtype=torch.float32) if narrow or out.stride(1) != 1 else out
    keys, sources, scales = map(_array, occurrences) if occurrences is not None else (_NO_KEYS, _NO_KEYS, _NO_FLOATS)
    look_up = kernels.look_up_bits if weight.dtype == torch.bfloat16 else kernels.look_up
    bag_values = values, offsets, weights, POOLINGS[pooling]
    arrays = _array(weight), places, *singles, *bag_values, _memory(target), target.stride(0), keys, sources, scales
    _split(lambda low, high: look_up(*arrays, low, high), len(ids))
    if target is not out:
        out.copy_(target)


def sort(keys: Tensor) -> tuple[Tensor, Tensor]:
    """See `gpu_embedding.sort`."""
    return torch.sort(keys, stable=True)


def update(
    rule: Rule,
    weight: Tensor,
    states: tuple[Tensor | None, Tensor | None],
    features: Tensor,
    in_order: tuple[Tensor, Tensor],
    bags: tuple[Tensor, Tensor] | None,
    gradient: Tensor,
    singles: int,
    rates: Tensor,
    steps: Tensor,
    unscale: Tensor,
    skipped: Tensor,
    unit: int = 1,
) -> None:
    """See `gpu_embedding.update`."""
    from penstock.kernels import cpu_fused_embedding as kernels

    keys, order = (tensor.numpy() for tensor in in_order)
    vectors: list[Any] = [_NO_ROWS, _NO_ROWS]
    scalar = _NO_FLOATS
    for number, state in enumerate(states):
        if state is not None and state.dim() == 1:
            scalar = state.numpy()
        elif state is not None:
            vectors[number] = state.numpy()
    sources, scales = (bags[0].numpy(), bags[1].numpy()) if bags is not None else (_NO_KEYS, _NO_FLOATS)
    constants = np.array([rule.eps, *rule.taken, rule.decay, rule.bound], np.float32)
    update = kernels.update_bits if weight.dtype == torch.bfloat16 else kernels.update
    arrays = (
        FUSED[rule.kind], _array(weight), *vectors, scalar, features.numpy(), keys, order, sources, scales,
        gradient.float().contiguous().numpy(), singles, rates.contiguous().numpy(), unscale.contiguous().numpy(),
        constants, int(steps),
    )  # fmt: skip
    skipped += sum(_split(lambda low, high: update(*arrays, low, high), len(keys)))
