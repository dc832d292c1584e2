"""Fused embeddings on a GPU: every table looked up by one kernel, every touched row updated in place.

The words (feature, occurrence, key) are those of `fused_contract`.
The look-up writes the keys on its way; the update sorts them and goes through them in order
(`gpu_embedding_update`). Nothing here depends on the order in which programs run, and nothing waits for the host.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from penstock.kernels.gpu_triton import require_triton

require_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from penstock.kernels.fused_contract import FEATURE_FIELDS, ID_BITS, POOLINGS  # noqa: E402
from penstock.kernels.gpu_embedding_update import (  # noqa: E402
    finish_rows,
    locate,
    reduce_partials,
    reduce_rows,
    reduce_tiles,
)
from penstock.kernels.gpu_launch import Launch, parts  # noqa: E402
from penstock.kernels.optimizer_formulas import FUSED, Rule  # noqa: E402

_FIELDS = tl.constexpr(FEATURE_FIELDS)
_MEAN, _SQRT_N = tl.constexpr(POOLINGS["mean"]), tl.constexpr(POOLINGS["sqrt_n"])
_ID_BITS, _ID_MASK = tl.constexpr(ID_BITS), tl.constexpr((1 << ID_BITS) - 1)

_BAG_TILE, _LOCATE_TILE, _FINISH_CHUNKS, _FINISH_WARPS = 8, 1024, 8, 4


class Tiles(NamedTuple):
    """How the work is cut for rows of one width; measured on an H200 (`benchmarks/gpu_tables.py` repeats it).

    A program looks up `look_up` samples of a feature at once, or `bags` lists. The update goes through chunks of
    `chunk` occurrences: one a program, as a tile, where `side` is 0; else `side` of them side by side, row by row, so
    that a row of each fills the warp together. What a row has in several chunks is added up over `group` chunks a
    program, then over `finish` groups at a time.
    """

    look_up: int
    bags: int
    side: int
    chunk: int
    group: int
    group_warps: int
    finish: int


def tiles_for(width: int, num: int) -> Tiles:
    """The tiles for rows of `width` (a power of two from 16 on) and `num` occurrences.

    >>> tiles_for(16, 1_000_000).chunk, tiles_for(128, 1_000_000).look_up, tiles_for(64, 1_000_000).side
    (32, 64, 2)
    """
    look_up, bags, finish = max(16, min(256, 8192 // width)), max(1, min(4, 128 // width)), max(8, 4096 // width)
    if width < 32:
        return Tiles(look_up, bags, 0, 512 // width, 16, 2, finish)
    # Longer chunks leave fewer partial sums; there must be enough of them for every multiprocessor.
    chunk = 64 if num >= 1 << 22 else 32 if num >= 1 << 17 else 16
    return Tiles(look_up, bags, max(1, 128 // width), chunk, 8 if width < 64 else 4 if width < 512 else 2, 1, finish)


@triton.jit
def _report(errors, place, identity, wrong):
    """Keep the worst of the wrong ids, with its place in the output: a maximum, so the same one whatever the order."""
    code = ((place + 1) << _ID_BITS) | (identity & _ID_MASK)
    tl.atomic_max(errors + tl.zeros_like(identity), code, mask=wrong)


@triton.jit
def _look_up_single(
    ids, features, weight, out, keys, errors, num_rows, row_stride, column_stride, out_stride, missing,
    WIDTH: tl.constexpr, DIM: tl.constexpr, UNIT: tl.constexpr, KEYS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """out[b, column(f)] = weight[start(f) + ids[b, f]], and the keys where they are wanted."""
    feature = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < num_rows
    start = tl.load(features + feature * _FIELDS)
    size = tl.load(features + feature * _FIELDS + 1)
    place = tl.load(features + feature * _FIELDS + 2)
    first_column = tl.load(features + feature * _FIELDS + 3) // UNIT * UNIT
    at = row.to(tl.int64) * row_stride + feature.to(tl.int64) * column_stride
    identity = tl.load(ids + at, mask=inside, other=0).to(tl.int64)
    known = (identity >= 0) & (identity < size)
    _report(errors, place, identity, inside & (known == 0))
    column = tl.arange(0, DIM)
    real = (column < WIDTH)[None, :]
    found = tl.load(
        weight + (start + identity)[:, None] * WIDTH + column[None, :], mask=(inside & known)[:, None] & real, other=0.0
    )
    target = out + row.to(tl.int64)[:, None] * out_stride + first_column + column[None, :]
    tl.store(target, found.to(out.dtype.element_ty), mask=inside[:, None] & real)
    if KEYS:
        key = tl.where(known, start + identity, missing)
        tl.store(keys + feature.to(tl.int64) * num_rows + row, key.to(keys.dtype.element_ty), mask=inside)


@triton.jit
def _look_up_bags(
    values, offsets, sample_weights, features, weight, out, keys, sources, scales, errors, num_rows, singles,
    single_occurrences, num_values, out_stride, missing,
    WIDTH: tl.constexpr, DIM: tl.constexpr, UNIT: tl.constexpr, KEYS: tl.constexpr, BAGS: tl.constexpr,
    TILE: tl.constexpr, WEIGHTED: tl.constexpr, SCALES: tl.constexpr, POOLING: tl.constexpr,
):  # fmt: skip
    """out[b, column(f)] = factor(length) · Σ weight[start(f) + value] · sample_weight; some bags a program."""
    row = tl.program_id(0) * BAGS + tl.arange(0, BAGS)
    there = row < num_rows
    feature = tl.program_id(1) + singles
    bag = tl.program_id(1).to(tl.int64) * (num_rows + 1) + row
    low = tl.maximum(tl.load(offsets + bag, mask=there, other=0), 0)  # they come unchecked, and must not lead
    high = tl.minimum(tl.load(offsets + bag + 1, mask=there, other=0), num_values)  # beyond the values
    start = tl.load(features + feature * _FIELDS)
    size = tl.load(features + feature * _FIELDS + 1)
    place = tl.load(features + feature * _FIELDS + 2)
    first_column = tl.load(features + feature * _FIELDS + 3) // UNIT * UNIT
    column = tl.arange(0, DIM)
    real = column < WIDTH
    length = tl.maximum(high - low, 1).to(tl.float32)
    factor = tl.full((BAGS,), 1.0, tl.float32)
    if POOLING == _MEAN:
        factor = 1.0 / length
    elif POOLING == _SQRT_N:
        factor = 1.0 / tl.sqrt(length)
    total = tl.zeros((BAGS, DIM), tl.float32)
    for begin in range(0, tl.max(high - low, 0), TILE):
        k = low[:, None] + begin + tl.arange(0, TILE)[None, :]
        inside = k < high[:, None]
        identity = tl.load(values + k, mask=inside, other=0).to(tl.int64)
        known = (identity >= 0) & (identity < size)
        _report(errors, place, identity, inside & (known == 0))
        scale = tl.full((BAGS, TILE), 1.0, tl.float32)
        if WEIGHTED:
            scale = tl.load(sample_weights + k, mask=inside, other=0.0).to(tl.float32)
        found = tl.load(
            weight + (start + identity)[:, :, None] * WIDTH + column[None, None, :],
            mask=(inside & known)[:, :, None] & real[None, None, :],
            other=0.0,
        )
        total += tl.sum(found.to(tl.float32) * scale[:, :, None], 1)
        if KEYS:
            key = tl.where(known, start + identity, missing)
            tl.store(keys + single_occurrences + k, key.to(keys.dtype.element_ty), mask=inside)
            source = (feature * num_rows + row)[:, None] + tl.zeros_like(k)
            tl.store(sources + k, source.to(tl.int32), mask=inside)
            if SCALES:
                tl.store(scales + k, scale * factor[:, None], mask=inside)
    target = out + row.to(tl.int64)[:, None] * out_stride + first_column + column[None, :]
    tl.store(target, (total * factor[:, None]).to(out.dtype.element_ty), mask=there[:, None] & real[None, :])


_LOOK_UP_SINGLE, _LOOK_UP_BAGS, _LOCATE = Launch(_look_up_single), Launch(_look_up_bags), Launch(locate)
_REDUCE_ROWS, _REDUCE_TILES = Launch(reduce_rows), Launch(reduce_tiles)
_REDUCE_PARTIALS, _FINISH_ROWS = Launch(reduce_partials), Launch(finish_rows)


def padded_dim(dim: int) -> int:
    """Tiles are powers of two; sixteen columns at least, so that loads are wide."""
    return max(16, 1 << (dim - 1).bit_length())


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
    """Fill the features' columns of `out`; `occurrences` (keys, sources, scales) are filled for `update`.

    `ids` is `(B, singles)` with any strides, `bags` `(values, offsets, sample weights)`, feature by feature.
    All first columns of `features` are multiples of `unit`, so that the compiler knows how wide it may read and write.
    """
    rows, singles = ids.shape
    dim = weight.shape[1]
    keys, sources, scales = occurrences if occurrences is not None else (errors, errors, errors)
    sizes: dict[str, Any] = {"WIDTH": dim, "DIM": padded_dim(dim), "UNIT": unit, "KEYS": occurrences is not None}
    tiles = tiles_for(sizes["DIM"], 0)
    arguments: tuple[Any, ...]
    if rows and singles:
        arguments = (
            ids, features, weight, out, keys, errors, rows, ids.stride(0), ids.stride(1), out.stride(0),
            weight.shape[0],
        )  # fmt: skip
        grid = parts(rows, tiles.look_up), singles
        _LOOK_UP_SINGLE(grid, arguments, sizes | {"ROWS": tiles.look_up})
    if rows and bags is not None:
        values, offsets, sample_weights = bags
        arguments = (
            values, offsets, scales if sample_weights is None else sample_weights, features, weight, out, keys, sources,
            scales, errors, rows, singles, singles * rows, len(values), out.stride(0), weight.shape[0],
        )  # fmt: skip
        kind = {"WEIGHTED": sample_weights is not None, "SCALES": len(scales) > 0, "POOLING": POOLINGS[pooling]}
        grid = parts(rows, tiles.bags), len(offsets) // (rows + 1)
        _LOOK_UP_BAGS(grid, arguments, sizes | {"BAGS": tiles.bags, "TILE": _BAG_TILE} | kind, num_warps=1)


def sort(keys: Tensor) -> tuple[Tensor, Tensor]:
    """The keys in order, and where each came from; equal keys keep their order, so sums can be repeated."""
    in_order, origin = torch.sort(keys, stable=True)
    return in_order, origin


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
    """Apply the optimizer to every row that the batch touched.

    `in_order` is what `sort` gave, `bags` `(sources, scales)` (no scales where all are one), `gradient` that of
    `look_up`'s output, `rates` the rate and `reference_fused.rates_at`, on the device. Gradients are multiplied by
    `unscale`; rows whose gradient is not finite are left alone and counted in `skipped`.
    """
    keys, order = in_order
    num, rows, dim = len(keys), len(gradient), weight.shape[1]
    if not num:
        return
    if gradient.stride(1) != 1:
        gradient = gradient.contiguous()
    width, device = padded_dim(dim), weight.device
    tiles = tiles_for(width, num)
    sources, scales = bags if bags is not None else (order, rates)
    scaled = bags is not None and len(scales) > 0
    samples = torch.empty((2, num), dtype=torch.int32, device=device)
    in_scale = torch.empty(num, dtype=torch.float32, device=device) if scaled else rates
    place = keys, order, features, sources, scales, samples[0], samples[1], in_scale, num, singles * rows, rows
    kind = {"BAGS": bags is not None, "SCALED": scaled, "TILE": _LOCATE_TILE}
    _LOCATE((parts(num, _LOCATE_TILE),), (*place, weight.shape[0]), kind)
    chunks = parts(num, tiles.chunk)
    groups = parts(chunks, tiles.group)
    partial = torch.empty((2 * (chunks + groups), width), dtype=torch.float32, device=device)
    of_chunks, of_groups = partial[: 2 * chunks], partial[2 * chunks :]
    first, second = (rates if state is None else state for state in states)
    table = (weight, first, second)
    rest = (rates, steps, unscale, skipped, num, weight.shape[0], rule.eps, *rule.taken, rule.decay, rule.bound)
    sizes = {"KIND": FUSED[rule.kind], "WIDTH": dim, "DIM": width}
    sums = (keys, samples[0], samples[1], in_scale, gradient, *table, of_chunks, gradient.stride(0), *rest)
    kind = {"SIZE": tiles.chunk, "SCALED": scaled, "UNIT": unit}
    if tiles.side:
        _REDUCE_ROWS((parts(chunks, tiles.side),), sums, sizes | kind | {"SIDE": tiles.side}, num_warps=1)
    else:
        _REDUCE_TILES((chunks,), sums, sizes | kind, num_warps=1)
    kind = {"SIZE": tiles.chunk, "GROUP": tiles.group}
    _REDUCE_PARTIALS((groups,), (keys, of_chunks, *table, of_groups, *rest), sizes | kind, tiles.group_warps)
    kind = {"SIZE": tiles.chunk * tiles.group, "TILE": tiles.finish, "CHUNKS": _FINISH_CHUNKS}
    grid = (parts(groups, _FINISH_CHUNKS),)
    _FINISH_ROWS(grid, (keys, of_groups, *table, *rest), sizes | kind, _FINISH_WARPS)
