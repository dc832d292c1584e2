"""Fused embeddings on the CPU: the arithmetic of `gpu_embedding`, the words of `fused_contract`.

Weights are float32, or bfloat16 as their bits (uint16). The update walks the sorted keys once; each thread takes a
stretch of them that begins and ends between two rows, so no row has two writers and the sums do not depend on the
number of threads.

Matrices of ids and of results come as their memory from the first element to the last, with the distances between rows
and columns: numba compiles anew for every layout of an array, and there are three of each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.kernels.cpu_intrinsics import ROW_KERNEL
from penstock.kernels.cpu_vector import bits_float, float_bits
from penstock.kernels.fused_contract import LIMIT, POOLINGS
from penstock.kernels.kernel_cache import njit
from penstock.kernels.optimizer_formulas import FUSED

_SGD, _ADAGRAD, _ADAGRAD_ROW, _LAZY_ADAM = (FUSED[k] for k in ("sgd", "adagrad", "adagrad_row", "lazy_adam"))
_MEAN, _SQRT_N = POOLINGS["mean"], POOLINGS["sqrt_n"]
_LIMIT = np.float32(LIMIT)


@njit(**ROW_KERNEL)
def read(weight: np.ndarray, row: Any, target: np.ndarray) -> None:
    """target = weight[row] in float32."""
    for d in range(len(target)):
        element = weight[row, d]
        target[d] = element


@njit(**ROW_KERNEL)
def read_bits(weight: np.ndarray, row: Any, target: np.ndarray) -> None:
    """`read` of bfloat16 bits."""
    for d in range(len(target)):
        target[d] = bits_float(np.uint32(np.uint32(weight[row, d]) << np.uint32(16)))


@njit(**ROW_KERNEL)
def noise(row: Any, column: Any, step: Any) -> Any:
    """`reference_fused.noise`."""
    mask, row = np.uint64(0xFFFFFFFF), np.uint64(row)
    h = (np.uint64(step) * np.uint64(0x9E3779B1) & mask) ^ (row * np.uint64(0x85EBCA77) & mask)
    h = ((h ^ (row >> np.uint64(32))) + np.uint64(column) * np.uint64(0xC2B2AE3D)) & mask
    h = ((h ^ (h >> np.uint64(16))) * np.uint64(0x7FEB352D)) & mask
    h = ((h ^ (h >> np.uint64(15))) * np.uint64(0x846CA68B)) & mask
    return np.uint32((h ^ (h >> np.uint64(16))) & np.uint64(0xFFFF))


@njit(**ROW_KERNEL)
def write(weight: np.ndarray, row: Any, source: np.ndarray, step: Any) -> None:
    """weight[row] = source."""
    for d in range(len(source)):
        weight[row, d] = source[d]


@njit(**ROW_KERNEL)
def write_bits(weight: np.ndarray, row: Any, source: np.ndarray, step: Any) -> None:
    """`write` to bfloat16 bits, rounded stochastically (`reference_fused.rounded_to_bfloat`)."""
    for d in range(len(source)):
        bits = np.uint32(float_bits(source[d]))
        up = np.uint32(bits + noise(row, d, step)) >> np.uint32(16)
        if (up & np.uint32(0x7F80)) == np.uint32(0x7F80):
            up = bits >> np.uint32(16)
        weight[row, d] = np.uint16(up)


@njit(**ROW_KERNEL)
def first_wrong(
    ids: np.ndarray, by_row: Any, by_column: Any, rows: Any, singles: Any, features: np.ndarray, values: np.ndarray,
    offsets: np.ndarray,
) -> Any:  # fmt: skip
    """`(feature, id)` of the first id outside its table; feature -1 where all are inside."""
    for b in range(rows):
        for f in range(singles):
            identity = np.int64(ids[b * by_row + f * by_column])
            if identity < 0 or identity >= features[f, 1]:
                return np.int64(f), identity
    for bag in range(len(offsets) // (rows + 1)):
        f, first = singles + bag, bag * (rows + 1)
        for k in range(offsets[first], offsets[first + rows]):
            if values[k] < 0 or values[k] >= features[f, 1]:
                return np.int64(f), np.int64(values[k])
    return np.int64(-1), np.int64(0)


@njit(**ROW_KERNEL)
def _factor(count: Any, pooling: Any) -> Any:
    length = np.float32(max(count, 1))
    if pooling == _MEAN:
        return np.float32(1) / length
    if pooling == _SQRT_N:
        return np.float32(1) / np.float32(math.sqrt(length))
    return np.float32(1)


def _make_look_up(read_row: Any) -> Any:
    @njit(**ROW_KERNEL)
    def look_up(
        weight: np.ndarray, features: np.ndarray, ids: np.ndarray, by_row: Any, by_column: Any, rows: Any, singles: Any,
        values: np.ndarray, offsets: np.ndarray, sample_weights: np.ndarray, pooling: Any, out: np.ndarray,
        out_by_row: Any, keys: np.ndarray, sources: np.ndarray, scales: np.ndarray, low: Any, high: Any,
    ) -> None:  # fmt: skip
        """Samples `low` to `high` of `gpu_embedding.look_up`; arrays of length 0 stand for what is not wanted."""
        dim = weight.shape[1]
        for b in range(low, high):
            for f in range(singles):
                row = features[f, 0] + np.int64(ids[b * by_row + f * by_column])
                at = b * out_by_row + features[f, 3]
                read_row(weight, row, out[at : at + dim])
                if len(keys):
                    keys[f * rows + b] = row
        if len(offsets) == 0:
            return
        found = np.empty(dim, np.float32)
        for f in range(singles, len(features)):
            for b in range(low, high):
                bag = (f - singles) * (rows + 1) + b
                factor = _factor(offsets[bag + 1] - offsets[bag], pooling)
                at = b * out_by_row + features[f, 3]
                total = out[at : at + dim]
                total[:] = np.float32(0)
                for k in range(offsets[bag], offsets[bag + 1]):
                    row = features[f, 0] + values[k]
                    scale = np.float32(sample_weights[k]) if len(sample_weights) else np.float32(1)
                    read_row(weight, row, found)
                    for d in range(dim):
                        total[d] += scale * found[d]
                    if len(keys):
                        keys[singles * rows + k] = row
                        sources[k] = f * rows + b
                        scales[k] = scale * factor
                for d in range(dim):
                    total[d] *= factor

    return look_up


look_up = _make_look_up(read)
look_up_bits = _make_look_up(read_bits)


@njit(**ROW_KERNEL)
def apply(
    kind: Any, w: np.ndarray, g: np.ndarray, row: Any, vector1: np.ndarray, vector2: np.ndarray, scalar: np.ndarray,
    rates: np.ndarray, constants: np.ndarray,
) -> None:  # fmt: skip
    """`reference_fused.apply` on the weights `w` of a row; `g` is overwritten by the decayed gradient."""
    eps, take1, take2, decay, bound = constants
    keep2, dim, square = np.float32(1) - take2, len(w), np.float32(0)
    for d in range(dim):
        g[d] += decay * w[d]
        square += g[d] * g[d]
    square /= np.float32(dim)
    if kind == _SGD:
        for d in range(dim):
            w[d] -= rates[0] * g[d]
    elif kind == _ADAGRAD:
        for d in range(dim):
            vector1[row, d] += g[d] * g[d]
            w[d] -= rates[0] * g[d] / (math.sqrt(vector1[row, d]) + eps)
    elif kind == _ADAGRAD_ROW:
        scalar[row] += square
        rate = rates[0] / (math.sqrt(scalar[row]) + eps)
        for d in range(dim):
            w[d] -= rate * g[d]
    else:
        divisor = np.float32(0)
        if kind != _LAZY_ADAM:
            scalar[row] = keep2 * scalar[row] + take2 * square
            divisor = np.float32(math.sqrt(scalar[row])) * rates[2] + eps
        for d in range(dim):
            vector1[row, d] += (g[d] - vector1[row, d]) * take1
            if kind == _LAZY_ADAM:
                vector2[row, d] = keep2 * vector2[row, d] + take2 * g[d] * g[d]
                divisor = np.float32(math.sqrt(vector2[row, d])) * rates[2] + eps
            w[d] -= rates[1] * vector1[row, d] / divisor
    if bound > 0:
        for d in range(dim):
            w[d] = min(max(w[d], -bound), bound)


@njit(**ROW_KERNEL)
def _all_finite(values: np.ndarray) -> bool:
    for value in values:  # noqa: SIM110, a generator would not compile
        if not abs(value) < _LIMIT:
            return False
    return True


def _make_update(read_row: Any, write_row: Any) -> Any:
    @njit(**ROW_KERNEL)
    def update(
        kind: Any, weight: np.ndarray, vector1: np.ndarray, vector2: np.ndarray, scalar: np.ndarray,
        features: np.ndarray, keys: np.ndarray, order: np.ndarray, sources: np.ndarray, scales: np.ndarray,
        gradient: np.ndarray, singles: Any, rates: np.ndarray, unscale: np.ndarray, constants: np.ndarray, step: Any,
        low: Any, high: Any,
    ) -> Any:  # fmt: skip
        """`gpu_embedding.update` for the rows whose first occurrence is at `low` to `high` of the sorted keys.

        Returns how many of them had a gradient that is not finite, and were left alone.
        """
        rows, dim, at, skipped = len(gradient), weight.shape[1], low, 0
        while 0 < at < high and keys[at] == keys[at - 1]:
            at += 1
        g, w = np.empty(dim, np.float32), np.empty(dim, np.float32)
        while at < high:
            key = keys[at]
            if key >= len(weight):  # values that no bag claims lie behind all rows
                return skipped
            g[:] = np.float32(0)
            while at < len(keys) and keys[at] == key:
                sample, scale = order[at], np.float32(1)
                if sample >= singles * rows:
                    scale = scales[sample - singles * rows]
                    sample = np.int64(sources[sample - singles * rows])
                column = features[sample // rows, 3]
                for d in range(dim):
                    g[d] += scale * gradient[sample % rows, column + d]
                at += 1
            if not _all_finite(g):
                skipped += 1
                continue
            for d in range(dim):
                g[d] *= unscale[0]
            read_row(weight, key, w)
            apply(kind, w, g, key, vector1, vector2, scalar, rates, constants)
            write_row(weight, key, w, step)
        return skipped

    return update


update = _make_update(read, write)
update_bits = _make_update(read_bits, write_bits)
