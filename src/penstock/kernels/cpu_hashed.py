"""Hashed tables on the CPU: the rows of a batch's ids, one occurrence after the other.

The words and the arrays are those of `hashed_contract`. Going through the occurrences in order numbers new rows as the
GPU does. An array of length 0 stands for a state that there is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels import hashed_contract as contract
from penstock.kernels.cpu_embedding_index import UNIFORM, initial_value
from penstock.kernels.cpu_half import float_to_bfloat, mix
from penstock.kernels.cpu_intrinsics import ROW_KERNEL
from penstock.kernels.kernel_cache import njit

_USED, _FREE, _CLOCK, _BY_TABLE = contract.USED, contract.FREE, contract.CLOCK, contract.BY_TABLE
_PROBES, _NO_ROW = contract.PROBES, contract.NO_ROW
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LOW32 = np.int64(0xFFFFFFFF)


@njit(**ROW_KERNEL)
def _seek(index: np.ndarray, sign: Any, start: Any, size: Any, salt: Any) -> Any:
    """The sign's entry, or the empty one where it would go; -1 where there is neither."""
    place = np.int64(mix(np.uint64(sign ^ salt)) & np.uint64(size - 1))
    for _ in range(min(_PROBES, size)):
        held = index[start + place, 0]
        if held == sign or held == 0:
            return start + place
        place = (place + 1) & (size - 1)
    return np.int64(-1)


@njit(**ROW_KERNEL)
def _new_row(counters: np.ndarray, free: np.ndarray, capacity: Any) -> Any:
    """A row for a new id, or NO_ROW."""
    if counters[_FREE] > 0:
        counters[_FREE] -= 1
        return np.int64(free[counters[_FREE]])
    if counters[_USED] >= capacity:
        return np.int64(_NO_ROW)
    counters[_USED] += 1
    return counters[_USED] - 1


def _make_find(start_weights: Any) -> Any:
    @njit(**ROW_KERNEL)
    def find(
        index: np.ndarray, features: np.ndarray, ids: np.ndarray, by_row: Any, by_column: Any, rows: Any, singles: Any,
        values: np.ndarray, offsets: np.ndarray, counters: np.ndarray, num_tables: Any, salt: Any, nothing: Any,
        out: np.ndarray, train: bool, stamped: bool, capacity: Any, free: np.ndarray, seeds: np.ndarray,
        weight: np.ndarray, vector1: np.ndarray, vector2: np.ndarray, number1: np.ndarray, number2: np.ndarray,
        starts: np.ndarray,
    ) -> Any:  # fmt: skip
        """`gpu_hashed.find`; the first feature with the id -1, or -1. `starts` are low, width and those of states."""
        clock, wrong = counters[_CLOCK], np.int64(-1)
        for k in range(len(out)):
            if k < singles * rows:
                f = k // rows
                identity = np.int64(ids[(k % rows) * by_row + f * by_column])
            else:
                v = k - singles * rows
                out[k] = nothing + 1
                f = singles
                while f + 1 < len(features) and v >= offsets[(f + 1 - singles) * (rows + 1)]:
                    f += 1
                first = (f - singles) * (rows + 1)
                if v < offsets[first] or v >= offsets[first + rows]:
                    continue  # it belongs to no bag
                identity = values[v]
            start, size, table = features[f, 0], features[f, 1], features[f, 2]
            sign = identity + 1
            out[k] = nothing + 1 if train else nothing
            if sign == 0:
                wrong = f if wrong < 0 else wrong
                continue
            at = _seek(index, sign, start, size, salt)
            if at >= 0 and index[at, 0] == sign and index[at, 1] >= 0:
                row = index[at, 1] & _LOW32
                if train and stamped:
                    index[at, 1] = row | (clock << 32)
            elif not train:
                continue
            else:
                row = np.int64(_NO_ROW) if at < 0 else _new_row(counters, free, capacity)
                if at >= 0 and index[at, 0] == 0:
                    index[at, 0] = sign
                    counters[_BY_TABLE + table] += 1
                if row < 0:
                    counters[_BY_TABLE + num_tables + table] += 1
                    continue
                index[at, 1] = row | (clock << 32)
                seed = mix(np.uint64(sign ^ seeds[table]))
                start_weights(weight, row, seed, starts)
                if len(vector1):
                    vector1[row] = starts[2]
                if len(number1):
                    number1[row] = starts[2]
                if len(vector2):
                    vector2[row] = starts[3]
                if len(number2):
                    number2[row] = starts[3]
            out[k] = row
        counters[_CLOCK] += train
        return wrong

    return find


@njit(**ROW_KERNEL)
def _start(weight: np.ndarray, row: Any, seed: Any, starts: np.ndarray) -> None:
    for i in range(weight.shape[1]):
        draw = mix(seed + np.uint64(i + 1) * _GOLDEN)
        weight[row, i] = np.float32(initial_value(draw, UNIFORM, starts[0], starts[0] + starts[1]))


@njit(**ROW_KERNEL)
def _start_bits(weight: np.ndarray, row: Any, seed: Any, starts: np.ndarray) -> None:
    """`_start` of bfloat16 bits, rounded as `cpu_half.narrow_row` does."""
    random = seed
    for i in range(weight.shape[1]):
        if i & 3 == 0:
            random = mix(random + _GOLDEN)
        noise = (random >> np.uint64(16 * (i & 3))) & np.uint64(0xFFFF)
        draw = mix(seed + np.uint64(i + 1) * _GOLDEN)
        value = np.float32(initial_value(draw, UNIFORM, starts[0], starts[0] + starts[1]))
        weight[row, i] = float_to_bfloat(value, noise)


find = _make_find(_start)
find_bits = _make_find(_start_bits)


@njit(**ROW_KERNEL)
def enter(
    index: np.ndarray, features: np.ndarray, signs: np.ndarray, tables: np.ndarray, values: np.ndarray,
    counters: np.ndarray, salt: Any,
) -> None:  # fmt: skip
    """`gpu_hashed.enter`."""
    for i in range(len(signs)):
        at = _seek(index, signs[i], features[tables[i], 0], features[tables[i], 1], salt)
        if at >= 0:
            counters[_BY_TABLE + tables[i]] += index[at, 0] == 0
            index[at, 0], index[at, 1] = signs[i], values[i]
