"""The optimizers of fused embeddings on a GPU, a tile of rows at a time: the formulas of `reference_fused.apply`."""

from __future__ import annotations

from penstock.kernels.gpu_triton import require_triton

require_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from penstock.kernels.fused_contract import LIMIT  # noqa: E402
from penstock.kernels.optimizer_formulas import FUSED  # noqa: E402

_SGD, _ADAGRAD, _ADAGRAD_ROW = (tl.constexpr(FUSED[k]) for k in ("sgd", "adagrad", "adagrad_row"))
_LAZY_ADAM, _ROW_ADAM = (tl.constexpr(FUSED[k]) for k in ("lazy_adam", "row_adam"))
_LIMIT = tl.constexpr(LIMIT)


@triton.jit
def _noise(row, column, step):
    """`reference_fused.noise`."""
    h = (step.to(tl.uint32) * 0x9E3779B1) ^ (row.to(tl.uint32) * 0x85EBCA77)
    h = (h ^ (row >> 32).to(tl.uint32)) + column.to(tl.uint32) * 0xC2B2AE3D
    h = (h ^ (h >> 16)) * 0x7FEB352D
    h = (h ^ (h >> 15)) * 0x846CA68B
    return (h ^ (h >> 16)) & 0xFFFF


@triton.jit
def _to_bfloat(value, random):
    """`reference_fused.rounded_to_bfloat`, the bits left in a float32 whose lower half is zero."""
    bits = value.to(tl.uint32, bitcast=True)
    up = (bits + random) & 0xFFFF0000
    kept = tl.where((up & 0x7F800000) == 0x7F800000, bits & 0xFFFF0000, up)
    return kept.to(tl.float32, bitcast=True)


@triton.jit
def fetch(row, chosen, weight, first, second, KIND: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr):
    """The chosen rows and their state, for `step`: apart, so that gradients can be added up while they come."""
    column = tl.arange(0, DIM)
    mask = chosen[:, None] & (column < WIDTH)[None, :]
    at = row[:, None] * WIDTH + column[None, :]
    w = tl.load(weight + at, mask=mask, other=0.0).to(tl.float32)
    m, v = w, w
    if KIND == _ADAGRAD_ROW:
        m = tl.load(first + row, mask=chosen, other=1.0)
    elif KIND != _SGD:
        m = tl.load(first + at, mask=mask, other=1.0)
    if KIND == _LAZY_ADAM:
        v = tl.load(second + at, mask=mask, other=1.0)
    elif KIND == _ROW_ADAM:
        v = tl.load(second + row, mask=chosen, other=1.0)
    return w, m, v


@triton.jit
def step(
    row, chosen, gradient, w, m, v, weight, first, second, rates, steps, unscale, skipped, eps, take1, take2, decay,
    bound, KIND: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """One step of the optimizer (`reference_fused.apply`) on the chosen rows; `gradient` is (rows, DIM).

    `w`, `m` and `v` are what `fetch` gave. A row whose gradient is not finite stays as it is, and is counted in
    `skipped`.
    """
    broken = tl.max(tl.abs(gradient), 1) >= _LIMIT
    tl.atomic_add(skipped + tl.zeros_like(row), 1, mask=chosen & broken)
    chosen = chosen & (broken == 0)
    column = tl.arange(0, DIM)
    mask = chosen[:, None] & (column < WIDTH)[None, :]
    at = row[:, None] * WIDTH + column[None, :]
    g = tl.where(mask, gradient * tl.load(unscale) + decay * w, 0.0)
    rate = tl.load(rates)
    # Where a tile has fewer elements than the program has threads, several warps hold (and load) the same element, and
    # one stores it: all must have loaded before.
    tl.debug_barrier()
    if KIND == _SGD:
        w -= rate * g
    elif KIND == _ADAGRAD:
        m += g * g
        tl.store(first + at, m, mask=mask)
        w -= rate * g / (tl.sqrt(m) + eps)
    elif KIND == _ADAGRAD_ROW:
        m += tl.sum(g * g, 1) / WIDTH
        tl.store(first + row, m, mask=chosen)
        w -= (rate / (tl.sqrt(m) + eps))[:, None] * g
    else:
        rate = tl.load(rates + 1)
        correction = tl.load(rates + 2)
        m += (g - m) * take1
        if KIND == _LAZY_ADAM:
            v = (1.0 - take2) * v + take2 * g * g
            tl.store(second + at, v, mask=mask)
            w -= rate * m / (tl.sqrt(v) * correction + eps)
        else:
            v = (1.0 - take2) * v + take2 * tl.sum(g * g, 1) / WIDTH
            tl.store(second + row, v, mask=chosen)
            w -= (rate / (tl.sqrt(v) * correction + eps))[:, None] * m
        tl.store(first + at, m, mask=mask)
    if bound > 0:
        w = tl.minimum(tl.maximum(w, -bound), bound)
    if weight.dtype.element_ty == tl.bfloat16:
        w = _to_bfloat(w, _noise(row[:, None], column[None, :], tl.load(steps)))
    tl.store(weight + at, w.to(weight.dtype.element_ty), mask=mask)
