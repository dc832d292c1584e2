"""The numba kernels of hashed tables behind the calls of `penstock.kernels.gpu_hashed`, for CPU tensors."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from penstock.kernels.fused_contract import code
from penstock.kernels.hashed_contract import NewRows

_NO_IDS, _NO_ROWS = np.empty(0, np.int64), np.empty((0, 1), np.float32)
_NO_FLOATS, _NO_SEEDS = np.empty(0, np.float32), np.empty(0, np.int64)


def find(
    index: Tensor,
    features: Tensor,
    ids: Tensor,
    bags: tuple[Tensor, Tensor] | None,
    counters: Tensor,
    num_tables: int,
    salt: int,
    nothing: int,
    out: Tensor,
    wrong: Tensor,
    rows: NewRows | None = None,
) -> None:
    """See `gpu_hashed.find`."""
    from penstock.kernels import cpu_hashed as kernels

    values, offsets = (bags[0].numpy(), bags[1].numpy()) if bags is not None else (_NO_IDS, _NO_IDS)
    matrix = ids.contiguous()
    common = (
        index.numpy(), features.numpy(), matrix.view(-1).numpy(), *matrix.stride(), *matrix.shape, values, offsets,
        counters.numpy(), num_tables, salt, nothing, out.numpy(),
    )  # fmt: skip
    if rows is None:
        nobody = _NO_IDS, _NO_SEEDS, _NO_ROWS, _NO_ROWS, _NO_ROWS, _NO_FLOATS, _NO_FLOATS, _NO_FLOATS
        found = kernels.find(*common, False, False, 0, *nobody)
    else:
        weight, narrow = rows.weight, rows.weight.dtype == torch.bfloat16
        vectors = [_NO_ROWS if state is None or state.ndim == 1 else state.numpy() for state in rows.states]
        numbers = [_NO_FLOATS if state is None or state.ndim == 2 else state.numpy() for state in rows.states]
        starts = np.array([rows.low, rows.width, *rows.state_starts], np.float32)
        found = (kernels.find_bits if narrow else kernels.find)(
            *common, True, rows.stamped, rows.capacity, rows.free.numpy(), rows.seeds.numpy(),
            weight.view(torch.uint16).numpy() if narrow else weight.numpy(), *vectors, *numbers, starts,
        )  # fmt: skip
    if found >= 0:
        wrong.clamp_(min=code(int(features[found, 2]), -1))


def enter(
    index: Tensor, features: Tensor, signs: Tensor, tables: Tensor, values: Tensor, counters: Tensor, salt: int
) -> None:
    """See `gpu_hashed.enter`."""
    from penstock.kernels import cpu_hashed as kernels

    kernels.enter(*(t.numpy() for t in (index, features, signs, tables, values, counters)), salt)
