"""Dot products of all pairs of a row's vectors, and their gradients: what DLRM does between its layers.

A row's vectors `v₀ … vₙ₋₁` are `first` (where it has rows) and `others`, each times `share` (where that has numbers).
`out` is `[first,] (v₁·v₀, v₂·v₀, v₂·v₁, …)`: the lower triangle of `V Vᵀ`, row after row. Beside it, `sums` (where it
has rows) are the first numbers of `others`, added up: the weights of a linear part, which `share` hides. Both
directions are a product of small matrices, four rows by 16 columns at a time, which stay in registers. All release the
GIL.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

from penstock.kernels.cpu_intrinsics import KERNEL, LOG2_4, intrinsic
from penstock.kernels.kernel_cache import njit

ROWS, LANES = 4, 16  # of a block
_FLOAT, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)


def _splat(builder: Any, scalar: Any) -> Any:
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    one = builder.insert_element(nothing, scalar, _I32(0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))


@intrinsic
def _block(
    typingctx: Any, left: Any, next_left: Any, right: Any, next_right: Any, count: Any, o0: Any, o1: Any, o2: Any,
    o3: Any,
) -> Any:  # fmt: skip
    """`o[q] = Σ left[q, t] · right[t, :16]` for four rows of `left`, over `count` columns; all of them addresses.

    `next_left` and `next_right` are the bytes from one row to the next.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left, next_left, right, next_right, count, *outs = args
        sums = [cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, [0.0] * LANES)) for _ in outs]
        for place in sums:  # what the line above does happens once a function
            builder.store(ir.Constant(_VECTOR, [0.0] * LANES), place)
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        multiply_add = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")
        with cgutils.for_range(builder, count) as loop:
            at = builder.add(right, builder.mul(loop.index, next_right))
            row = builder.load(builder.inttoptr(at, _VECTOR.as_pointer()), align=4)
            for number, place in enumerate(sums):
                begin = builder.add(left, builder.mul(next_left, _I64(number)))
                at = builder.add(begin, builder.shl(loop.index, _I64(2)))
                factor = _splat(builder, builder.load(builder.inttoptr(at, _FLOAT.as_pointer()), align=4))
                builder.store(builder.call(multiply_add, [factor, row, builder.load(place)]), place)
        for place, out in zip(sums, outs, strict=True):
            builder.store(builder.load(place), builder.inttoptr(out, _VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(*[types.uint64] * 9), generate


@intrinsic
def _turn(typingctx: Any, source: Any, next_source: Any, target: Any, next_target: Any) -> Any:
    """Write 16 rows of 16 numbers as columns; addresses, and the bytes from one row to the next."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, next_source, target, next_target = args
        rows = []
        for number in range(LANES):
            at = builder.add(source, builder.mul(next_source, _I64(number)))
            rows.append(builder.load(builder.inttoptr(at, _VECTOR.as_pointer()), align=4))
        for apart in (1, 2, 4, 8):  # quarters of squares twice as wide change places
            lanes = range(LANES)
            upper = [lane + LANES - apart if lane & apart else lane for lane in lanes]
            lower = [lane + LANES if lane & apart else lane + apart for lane in lanes]
            for number in (n for n in lanes if not n & apart):
                pair = rows[number], rows[number + apart]
                rows[number], rows[number + apart] = (
                    builder.shuffle_vector(*pair, ir.Constant(ir.VectorType(_I32, LANES), chosen))
                    for chosen in (upper, lower)
                )
        for number, row in enumerate(rows):
            at = builder.add(target, builder.mul(next_target, _I64(number)))
            builder.store(row, builder.inttoptr(at, _VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(*[types.uint64] * 4), generate


@intrinsic
def _scale(typingctx: Any, source: Any, factors: Any, target: Any) -> Any:
    """`target[:16] = source[:16] · factors[:16]`; all of them addresses."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, factors, target = (builder.inttoptr(address, _VECTOR.as_pointer()) for address in args)
        builder.store(builder.fmul(builder.load(source, align=4), builder.load(factors, align=4)), target, align=4)
        return context.get_dummy_value()

    return types.void(*[types.uint64] * 3), generate


# Called with one argument less than they are written with.
block: Any = _block
turn: Any = _turn
scale: Any = _scale


@njit(**KERNEL)
def _padded(count: Any, step: Any) -> Any:
    return (count + step - 1) // step * step


@njit(**KERNEL)
def _factors(share: np.ndarray, dim: Any) -> np.ndarray:
    """What each number of a vector is multiplied by."""
    found = np.ones(dim, np.float32)
    for k in range(len(share)):
        found[k] = share[k]
    return found


@njit(**KERNEL)
def _fill_vectors(first: np.ndarray, others: np.ndarray, factors: np.ndarray, row: Any, vectors: np.ndarray) -> None:
    """A row's vectors, one below the other."""
    ahead, dim = 0, others.shape[2]
    whole = dim - dim % LANES
    if len(first):
        for k in range(first.shape[1]):
            vectors[0, k] = first[row, k]
        ahead = 1
    source, by = np.uint64(others[row:].ctypes.data), np.uint64(factors.ctypes.data)
    for i in range(others.shape[1]):
        target = np.uint64(vectors[ahead + i :].ctypes.data)
        for k in range(0, whole, LANES):
            far = np.uint64(k) << LOG2_4
            scale(source + far, by + far, target + far)
        for k in range(whole, dim):
            vectors[ahead + i, k] = others[row, i, k] * factors[k]
        source += np.uint64(dim) << LOG2_4


@njit(**KERNEL)
def multiply(
    first: np.ndarray, others: np.ndarray, share: np.ndarray, beside: Any, out: np.ndarray, sums: np.ndarray,
    begin: Any, end: Any,
) -> None:  # fmt: skip
    """Rows `begin` to `end` of `out` and `sums`; with `beside` those of `out` begin with `first` itself."""
    dim, num = others.shape[2], others.shape[1] + (1 if len(first) else 0)
    vectors = np.zeros((_padded(num, LANES), _padded(dim, LANES)), np.float32)
    turned = np.zeros(vectors.shape[::-1], np.float32)
    factors = _factors(share, dim)
    # A block's rows are written whole, 16 values at a time, and what goes too far is written again by what comes after:
    # the next row, for which the last one of a stretch has a place of its own.
    rows = _padded(num, ROWS)
    found = np.empty(rows * (rows - 1) // 2 + 2 * LANES, np.float32)
    left, right, aside = np.uint64(vectors.ctypes.data), np.uint64(turned.ctypes.data), np.uint64(found.ctypes.data)
    next_left, next_right = np.uint64(vectors.shape[1]) << LOG2_4, np.uint64(vectors.shape[0]) << LOG2_4
    ahead = dim if beside else 0
    for row in range(begin, end):
        _fill_vectors(first, others, factors, row, vectors)
        if len(sums):
            sums[row] = others[row, :, 0].sum()
        for i in range(0, num, LANES):
            for k in range(0, dim, LANES):
                source = left + np.uint64(i) * next_left + (np.uint64(k) << LOG2_4)
                turn(source, next_left, right + np.uint64(k) * next_right + (np.uint64(i) << LOG2_4), next_right)
        is_last = (end - row) * out.shape[1] < ahead + len(found)
        target = aside if is_last else np.uint64(out[row, ahead:].ctypes.data)
        for i in range(0, num, ROWS):
            o0 = target + (np.uint64(i * (i - 1) // 2) << LOG2_4)
            o1 = o0 + (np.uint64(i) << LOG2_4)
            o2 = o1 + (np.uint64(i + 1) << LOG2_4)
            o3 = o2 + (np.uint64(i + 2) << LOG2_4)
            for lane in range((i + ROWS - 2) // LANES * LANES, -1, -LANES):
                far = np.uint64(lane) << LOG2_4
                place = left + np.uint64(i) * next_left
                block(place, next_left, right + far, next_right, np.uint64(dim), o0 + far, o1 + far, o2 + far, o3 + far)
        for k in range(ahead):
            out[row, k] = first[row, k]
        if is_last:
            for pair in range(num * (num - 1) // 2):
                out[row, ahead + pair] = found[pair]
    turned[0, 0] = np.float32(0)  # numba frees an array that no line further down speaks of, and `right` points to it


@njit(**KERNEL)
def gradients(
    first: np.ndarray, others: np.ndarray, share: np.ndarray, beside: Any, gradient: np.ndarray,
    of_sums: np.ndarray, to_first: np.ndarray, to_others: np.ndarray, begin: Any, end: Any,
) -> None:  # fmt: skip
    """What reaches `first` and `others` of the gradients of `out` and `sums`, for rows `begin` to `end`."""
    dim, num = others.shape[2], others.shape[1] + (1 if len(first) else 0)
    width = _padded(dim, LANES)
    vectors, factors = np.zeros((num, width), np.float32), _factors(share, dim)
    weights = np.zeros((_padded(num, ROWS), num), np.float32)  # the gradient as a symmetric matrix, noughts between
    found = np.empty((len(weights), width), np.float32)
    left, right, target = np.uint64(weights.ctypes.data), np.uint64(vectors.ctypes.data), np.uint64(found.ctypes.data)
    next_left, next_right = np.uint64(num) << LOG2_4, np.uint64(width) << LOG2_4
    ahead = dim if beside else 0
    for row in range(begin, end):
        _fill_vectors(first, others, factors, row, vectors)
        pair = ahead
        for i in range(num):
            for j in range(i):
                weights[i, j] = gradient[row, pair + j]
            for j in range(i):
                weights[j, i] = gradient[row, pair + j]
            pair += i
        for i in range(0, num, ROWS):
            place = left + np.uint64(i) * next_left
            for lane in range(0, width, LANES):
                far = np.uint64(lane) << LOG2_4
                o0 = target + np.uint64(i) * next_right + far
                o1 = o0 + next_right
                o2 = o1 + next_right
                block(place, next_left, right + far, next_right, np.uint64(num), o0, o1, o2, o2 + next_right)
        behind = 0
        if len(first):
            for k in range(dim):
                to_first[row, k] = found[0, k] + (gradient[row, k] if beside else np.float32(0))
            behind = 1
        for i in range(others.shape[1]):
            for k in range(dim):
                to_others[row, i, k] = found[behind + i, k]
            for k in range(len(share)):
                to_others[row, i, k] *= share[k]
            if len(of_sums):
                to_others[row, i, 0] += of_sums[row]
