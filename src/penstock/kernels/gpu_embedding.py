"""Fused embeddings on a GPU: every table looked up by one kernel, every touched row updated in place by two.

The words (feature, occurrence, key) are those of `reference_fused`; an occurrence's *key* is its row of the weight.
The look-up writes the keys on its way. The update sorts them, cuts the sorted sequence into chunks of fixed length and
lets one program reduce one chunk: occurrences of a row lie side by side, so the sums of all rows of a chunk are one
product with the matrix `key_i = key_j`. A row that lies inside its chunk is updated at once. What a row has in several
chunks (an id that is in every sample) is left as one partial sum a chunk, and a second kernel adds those up. Nothing
here depends on the order in which programs run, and nothing waits for the host.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

from penstock.kernels.gpu_triton import require_triton

require_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from penstock.kernels.gpu_embedding_optim import apply  # noqa: E402
from penstock.kernels.optimizer_formulas import FUSED, Rule  # noqa: E402
from penstock.kernels.reference_fused import FEATURE_FIELDS, HUGE, LIMIT, POOLINGS  # noqa: E402

_FIELDS = tl.constexpr(FEATURE_FIELDS)
_MEAN, _SQRT_N = tl.constexpr(POOLINGS["mean"]), tl.constexpr(POOLINGS["sqrt_n"])
_LIMIT, _HUGE = tl.constexpr(LIMIT), tl.constexpr(HUGE)
_ID_MASK = tl.constexpr((1 << 40) - 1)

# The interpreter, which runs the kernels without a GPU, multiplies no bfloat16 matrices.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

LOOK_UP_ROWS, BAG_TILE = 256, 16
CHUNK, CHUNK_WARPS, PARTIAL_TILE, FINISH_CHUNKS, FINISH_WARPS = 64, 4, 128, 8, 1


@triton.jit
def _report(errors, place, identity, wrong):
    """Keep the worst of the wrong ids, with its place in the output: a maximum, so the same one whatever the order."""
    code = ((place + 1) << 40) | (identity & _ID_MASK)
    tl.atomic_max(errors + tl.zeros_like(identity), code, mask=wrong)


@triton.jit
def _look_up_single(
    ids, features, weight, out, keys, errors, num_rows, row_stride, column_stride, out_stride, missing,
    WIDTH: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """out[b, place(f)] = weight[start(f) + ids[b, f]], and the keys where they are wanted."""
    feature = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < num_rows
    start = tl.load(features + feature * _FIELDS)
    size = tl.load(features + feature * _FIELDS + 1)
    place = tl.load(features + feature * _FIELDS + 2)
    at = row.to(tl.int64) * row_stride + feature.to(tl.int64) * column_stride
    identity = tl.load(ids + at, mask=inside, other=0).to(tl.int64)
    known = (identity >= 0) & (identity < size)
    _report(errors, place, identity, inside & (known == 0))
    column = tl.arange(0, DIM)
    real = (column < WIDTH)[None, :]
    found = tl.load(
        weight + (start + identity)[:, None] * WIDTH + column[None, :], mask=(inside & known)[:, None] & real, other=0.0
    )
    target = out + row.to(tl.int64)[:, None] * out_stride + place * WIDTH + column[None, :]
    tl.store(target, found.to(out.dtype.element_ty), mask=inside[:, None] & real)
    if KEYS:
        key = tl.where(known, start + identity, missing)
        tl.store(keys + feature.to(tl.int64) * num_rows + row, key.to(keys.dtype.element_ty), mask=inside)


@triton.jit
def _look_up_bags(
    values, offsets, sample_weights, features, weight, out, keys, sources, scales, errors, num_rows, singles,
    single_occurrences, num_values, out_stride, missing,
    WIDTH: tl.constexpr, DIM: tl.constexpr, TILE: tl.constexpr, KEYS: tl.constexpr, WEIGHTED: tl.constexpr,
    POOLING: tl.constexpr,
):  # fmt: skip
    """out[b, place(f)] = factor(length) · Σ weight[start(f) + value] · sample_weight; one program a bag."""
    row = tl.program_id(0)
    feature = tl.program_id(1) + singles
    bag = tl.program_id(1).to(tl.int64) * num_rows + row
    low = tl.maximum(tl.load(offsets + bag), 0)  # offsets come unchecked, and must not lead beyond the values
    high = tl.minimum(tl.load(offsets + bag + 1), num_values)
    start = tl.load(features + feature * _FIELDS)
    size = tl.load(features + feature * _FIELDS + 1)
    place = tl.load(features + feature * _FIELDS + 2)
    column = tl.arange(0, DIM)
    real = column < WIDTH
    factor = tl.full((), 1.0, tl.float32)
    length = tl.maximum(high - low, 1).to(tl.float32)
    if POOLING == _MEAN:
        factor = 1.0 / length
    elif POOLING == _SQRT_N:
        factor = 1.0 / tl.sqrt(length)
    total = tl.zeros((DIM,), tl.float32)
    for begin in range(low, high, TILE):
        k = begin + tl.arange(0, TILE)
        inside = k < high
        identity = tl.load(values + k, mask=inside, other=0).to(tl.int64)
        known = (identity >= 0) & (identity < size)
        _report(errors, place, identity, inside & (known == 0))
        scale = tl.full((TILE,), 1.0, tl.float32)
        if WEIGHTED:
            scale = tl.load(sample_weights + k, mask=inside, other=0.0).to(tl.float32)
        found = tl.load(
            weight + (start + identity)[:, None] * WIDTH + column[None, :],
            mask=(inside & known)[:, None] & real[None, :],
            other=0.0,
        )
        total += tl.sum(found.to(tl.float32) * scale[:, None], 0)
        if KEYS:
            key = tl.where(known, start + identity, missing)
            tl.store(keys + single_occurrences + k, key.to(keys.dtype.element_ty), mask=inside)
            tl.store(sources + k, (feature * num_rows + row + tl.zeros_like(k)).to(tl.int32), mask=inside)
            tl.store(scales + k, scale * factor, mask=inside)
    target = out + row.to(tl.int64) * out_stride + place * WIDTH + column
    tl.store(target, (total * factor).to(out.dtype.element_ty), mask=real)


@triton.jit
def _sum_equal(key, gradient, EXACT: tl.constexpr, NARROW: tl.constexpr):
    """For every occurrence of a chunk the sum of the gradients of its row, on the tensor cores.

    The matrix holds zeros and ones, and sums are in float32. A bfloat16 gradient is exact as it is. Tensor cores read
    eleven bits of a float32's mantissa, so it is cut into its upper eleven bits and the rest.
    """
    same = key[:, None] == key[None, :]
    if EXACT:
        ones = same.to(tl.float32)
        upper = (gradient.to(tl.uint32, bitcast=True) & 0xFFFFE000).to(tl.float32, bitcast=True)
        total = tl.dot(ones, upper, input_precision="tf32") + tl.dot(ones, gradient - upper, input_precision="tf32")
    elif NARROW:
        total = tl.dot(same.to(tl.bfloat16), gradient)
    else:
        total = tl.dot(same.to(tl.float32), gradient.to(tl.float32), input_precision="tf32")
    return total


@triton.jit
def _reduce_chunks(
    keys, order, sources, scales, gradient, features, weight, first, second, partial, rates, steps,
    unscale, skipped, num, single_occurrences, num_rows, gradient_stride, missing, eps, beta1, beta2, decay, bound,
    KIND: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr, BAGS: tl.constexpr,
    EXACT: tl.constexpr, NARROW: tl.constexpr,
):  # fmt: skip
    """Rows inside the chunk: updated. Rows that reach over an end of it: their sum here goes to `partial`.

    A chunk has two places in `partial`: one for the row of its first occurrence, one for that of its last.
    """
    chunk = tl.program_id(0)
    begin = chunk * SIZE
    lane = tl.arange(0, SIZE)
    i = begin + lane
    inside = i < num
    key = tl.load(keys + i, mask=inside, other=missing)
    following = tl.load(keys + i + 1, mask=i + 1 < num, other=-1)
    first_key = tl.load(keys + begin)
    preceding = tl.where(begin > 0, tl.load(keys + tl.maximum(begin - 1, 0)), -1)
    occurrence = tl.load(order + i, mask=inside, other=0).to(tl.int32)
    sample = occurrence
    if BAGS:
        value = tl.maximum(occurrence - single_occurrences, 0)
        of_bag = inside & (occurrence >= single_occurrences)
        sample = tl.where(of_bag, tl.load(sources + value, mask=of_bag, other=0), occurrence)
    feature = sample // num_rows
    row = (sample - feature * num_rows).to(tl.int64)
    place = tl.load(features + feature * _FIELDS + 2, mask=inside, other=0)
    column = tl.arange(0, DIM)
    used = inside & (key < missing)
    g = tl.load(
        gradient + (row * gradient_stride + place * WIDTH)[:, None] + column[None, :],
        mask=used[:, None] & (column < WIDTH)[None, :],
        other=0.0,
    )
    if EXACT:
        g = g.to(tl.float32)
    if BAGS:
        g = g * tl.where(of_bag, tl.load(scales + value, mask=of_bag, other=1.0), 1.0)[:, None]
    # What is not finite must not reach the product: there zero times infinity is NaN, in every row of the chunk.
    total = _sum_equal(key, tl.where(tl.abs(g) < _LIMIT, g, tl.full(g.shape, _HUGE, g.dtype)), EXACT, NARROW)
    last = used & ((key != following) | (lane == SIZE - 1))
    partly = (((key == first_key) & (key == preceding)) | (key == following)) & (lane >= 0)
    apply(
        key.to(tl.int64), last & (partly == 0), total, weight, first, second, rates, steps, unscale, skipped, eps,
        beta1, beta2, decay, bound, KIND, WIDTH, DIM,
    )  # fmt: skip
    slot = chunk * 2 + (key != first_key).to(tl.int32)
    left = ((last & partly) != 0)[:, None] & (column >= 0)[None, :]
    tl.store(partial + slot[:, None] * DIM + column[None, :], total, mask=left)


@triton.jit
def _finish_rows(
    keys, partial, weight, first, second, rates, steps, unscale, skipped, num, missing, eps, beta1, beta2, decay, bound,
    KIND: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr,
    CHUNKS: tl.constexpr,
):  # fmt: skip
    """The rows that begin in these chunks and reach over their ends: partial sums added up, and the update.

    Most chunks have none, and a program that finds nothing costs its start: so one looks after several.
    """
    for chunk in range(tl.program_id(0) * CHUNKS, tl.program_id(0) * CHUNKS + CHUNKS):
        begin = chunk * SIZE
        end = begin + SIZE
        if end < num:
            first_key, key = tl.load(keys + begin), tl.load(keys + end - 1)
            preceding = tl.where(begin > 0, tl.load(keys + tl.maximum(begin - 1, 0)), -1)
            if (key == tl.load(keys + end)) & (key != preceding) & (key < missing):
                column = tl.arange(0, DIM)
                slot = chunk * 2 + (key != first_key).to(tl.int32)
                total = tl.load(partial + slot * DIM + column)
                chunks = chunk + 1 + tl.arange(0, TILE)
                same = tl.load(keys + chunks * SIZE, mask=chunks * SIZE < num, other=-1) == key
                while tl.max(same.to(tl.int32), 0) > 0:
                    at = partial + (chunks * 2)[:, None] * DIM + column[None, :]
                    total += tl.sum(tl.load(at, mask=same[:, None], other=0.0), 0)
                    chunks += TILE
                    same = tl.load(keys + chunks * SIZE, mask=chunks * SIZE < num, other=-1) == key
                row = tl.zeros((1,), tl.int64) + key
                apply(
                    row, row >= 0, total[None, :], weight, first, second, rates, steps, unscale, skipped, eps, beta1,
                    beta2, decay, bound, KIND, WIDTH, DIM,
                )  # fmt: skip


def padded_dim(dim: int) -> int:
    """Tiles are powers of two, and a matrix product needs sixteen columns."""
    return max(16, triton.next_power_of_2(dim))


def look_up(
    weight: Tensor,
    features: Tensor,
    ids: Tensor,
    bags: tuple[Tensor, Tensor, Tensor | None] | None,
    pooling: str,
    out: Tensor,
    errors: Tensor,
    occurrences: tuple[Tensor, Tensor, Tensor] | None = None,
) -> None:
    """Fill `out` (B, at least places · dim); `occurrences` (keys, sources, scales) are filled for `update`.

    `ids` is `(B, singles)` with any strides, `bags` `(values, offsets, sample weights)`, feature by feature.
    """
    rows, singles = ids.shape
    dim = weight.shape[1]
    keys, sources, scales = occurrences if occurrences is not None else (errors, errors, errors)
    sizes: dict[str, Any] = {"WIDTH": dim, "DIM": padded_dim(dim), "KEYS": occurrences is not None}
    if rows and singles:
        _look_up_single[(triton.cdiv(rows, LOOK_UP_ROWS), singles)](
            ids, features, weight, out, keys, errors, rows, ids.stride(0), ids.stride(1), out.stride(0),
            weight.shape[0], ROWS=LOOK_UP_ROWS, **sizes,
        )  # fmt: skip
    if rows and bags is not None:
        values, offsets, sample_weights = bags
        _look_up_bags[(rows, (len(offsets) - 1) // rows)](
            values, offsets, scales if sample_weights is None else sample_weights, features, weight, out, keys, sources,
            scales, errors, rows, singles, singles * rows, len(values), out.stride(0), weight.shape[0],
            TILE=BAG_TILE, WEIGHTED=sample_weights is not None, POOLING=POOLINGS[pooling], num_warps=1, **sizes,
        )  # fmt: skip


def sort(keys: Tensor) -> tuple[Tensor, Tensor]:
    """The keys in order, and where each came from; equal keys keep their order, so sums can be repeated."""
    in_order, origin = torch.sort(keys, stable=True)
    return in_order, origin.int()  # half the memory to hold until the backward pass, and to read in it


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
) -> None:
    """Apply the optimizer to every row that the batch touched.

    `in_order` is what `sort` gave, `bags` `(sources, scales)`, `gradient` that of `look_up`'s output, `rates` the rate
    and `reference_fused.rates_at`, on the device. Gradients are multiplied by `unscale`; rows whose gradient is not
    finite are left alone and counted in `skipped`.
    """
    keys, order = in_order
    num, rows, dim = len(keys), len(gradient), weight.shape[1]
    if not num:
        return
    if gradient.stride(1) != 1:
        gradient = gradient.contiguous()
    width = padded_dim(dim)
    chunks = triton.cdiv(num, CHUNK)
    partial = torch.empty((2 * chunks, width), dtype=torch.float32, device=weight.device)
    first, second = (rates if state is None else state for state in states)
    sources, scales = bags if bags is not None else (order, rates)
    constants = (rule.eps, rule.beta1, rule.beta2, rule.decay, rule.bound)
    _reduce_chunks[(chunks,)](
        keys, order, sources, scales, gradient, features, weight, first, second, partial, rates, steps,
        unscale, skipped, num, singles * rows, rows, gradient.stride(0), weight.shape[0], *constants,
        KIND=FUSED[rule.kind], WIDTH=dim, DIM=width, SIZE=CHUNK, BAGS=bags is not None,
        EXACT=bags is not None or gradient.dtype != torch.bfloat16, NARROW=not INTERPRETED,
        num_warps=CHUNK_WARPS,
    )  # fmt: skip
    _finish_rows[(triton.cdiv(chunks, FINISH_CHUNKS),)](
        keys, partial, weight, first, second, rates, steps, unscale, skipped, num, weight.shape[0], *constants,
        KIND=FUSED[rule.kind], WIDTH=dim, DIM=width, SIZE=CHUNK, TILE=PARTIAL_TILE, CHUNKS=FINISH_CHUNKS,
        num_warps=FINISH_WARPS,
    )  # fmt: skip
