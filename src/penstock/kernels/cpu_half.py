"""Sixteen-bit rows: widening to float32, and narrowing by stochastic rounding.

Rounding to nearest would swallow every update smaller than half a step of the 16-bit grid. A value is rounded up with
the probability of its distance from the lower neighbour instead, so small updates survive on average. The random bits
are a pure function of (row's sign, step), which keeps runs reproducible.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_intrinsics import LOG2_4, ROW_KERNEL
from penstock.kernels.cpu_vector import INLINED, bits_float, float_bits, load_float, load_u16, store_float, store_u16
from penstock.kernels.kernel_cache import njit

FLOAT32, FLOAT16, BFLOAT16 = 0, 1, 2  # storage codes


@njit(**INLINED)
def mix(key: Any) -> Any:
    """A 64-bit hash that is a bijection: every input bit reaches every output bit."""
    key ^= key >> np.uint64(32)
    key *= np.uint64(0xD6E8FEB86659FD93)
    key ^= key >> np.uint64(32)
    key *= np.uint64(0xD6E8FEB86659FD93)
    return key ^ (key >> np.uint64(32))


@njit(**ROW_KERNEL)
def half_to_float(half: Any) -> Any:
    """IEEE binary16 bits → float32."""
    magnitude = np.uint32(half) & np.uint32(0x7FFF)
    sign = (np.uint32(half) & np.uint32(0x8000)) << np.uint32(16)
    if magnitude < np.uint32(0x0400):  # zero and subnormals: multiples of 2⁻²⁴
        value = np.float32(magnitude) * np.float32(2.0**-24)
        return -value if sign else value
    if magnitude >= np.uint32(0x7C00):
        return bits_float(np.uint32(sign | np.uint32(0x7F800000) | ((magnitude & np.uint32(0x3FF)) << np.uint32(13))))
    return bits_float(np.uint32(sign | ((magnitude << np.uint32(13)) + np.uint32(112 << 23))))


@njit(**ROW_KERNEL)
def float_to_half(value: Any, random: Any) -> Any:
    """float32 → binary16 bits, rounded up with the probability of the remainder; 13 random bits."""
    bits = float_bits(value)
    sign = (bits >> np.uint32(16)) & np.uint32(0x8000)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    noise = np.uint32(random) & np.uint32(0x1FFF)
    if magnitude >= np.uint32(0x477FE000):  # 65504 and beyond: the largest finite value, never an infinity
        return np.uint16(sign | np.uint32(0x7BFF))
    if magnitude < np.uint32(0x38800000):  # below 2⁻¹⁴ the grid is 2⁻²⁴
        scaled = bits_float(np.uint32(magnitude)) * np.float32(2.0**24) + np.float32(noise) * np.float32(2.0**-13)
        return np.uint16(sign | np.uint32(scaled))
    return np.uint16(sign | ((magnitude + noise - np.uint32(112 << 23)) >> np.uint32(13)))


@njit(**ROW_KERNEL)
def float_to_bfloat(value: Any, random: Any) -> Any:
    """float32 → bfloat16 bits, rounded up with the probability of the remainder; 16 random bits."""
    bits = float_bits(value)
    if (bits & np.uint32(0x7F800000)) == np.uint32(0x7F800000):
        return np.uint16(bits >> np.uint32(16))
    rounded = (bits + (np.uint32(random) & np.uint32(0xFFFF))) >> np.uint32(16)
    if (rounded & np.uint32(0x7F80)) == np.uint32(0x7F80):  # rounded over the largest finite value
        rounded = bits >> np.uint32(16)
    return np.uint16(rounded)


@njit(**ROW_KERNEL)
def widen_row(target: Any, source: Any, dim: Any, storage: Any) -> None:
    """target[:dim] (float32) = source[:dim] (binary16 or bfloat16)."""
    for i in range(dim):
        bits = load_u16(source + (np.uint64(i) << np.uint64(1)))
        value = half_to_float(bits) if storage == FLOAT16 else bits_float(np.uint32(np.uint32(bits) << np.uint32(16)))
        store_float(target + (np.uint64(i) << LOG2_4), value)


@njit(**ROW_KERNEL)
def narrow_row(target: Any, source: Any, dim: Any, storage: Any, seed: Any) -> None:
    """target[:dim] (binary16 or bfloat16) = source[:dim] (float32), rounded stochastically."""
    random = np.uint64(seed)
    for i in range(dim):
        if i & 3 == 0:  # four elements from each 64-bit draw
            random = mix(random + np.uint64(0x9E3779B97F4A7C15))
        noise = (random >> np.uint64(16 * (i & 3))) & np.uint64(0xFFFF)
        value = load_float(source + (np.uint64(i) << LOG2_4))
        bits = float_to_half(value, noise) if storage == FLOAT16 else float_to_bfloat(value, noise)
        store_u16(target + (np.uint64(i) << np.uint64(1)), bits)
