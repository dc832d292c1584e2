"""xoshiro256++ seeded by PCG32: the numbers of Rust's `rand` 0.8, `SmallRng::seed_from_u64(seed)` on 64 bits.

    seed    four words s₀ … s₃, each of two PCG32 outputs, the lower half first; PCG32 starts at `seed`
    draw    rotl(s₀ + s₃, 23) + s₀, of which the upper 32 bits count
    uniform low + scale · u, u = the upper 23 of those bits as a fraction, all in float32

Embeddings that PERSIA trained start with these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_intrinsics import KERNEL
from penstock.kernels.kernel_cache import njit

_MULTIPLIER, _INCREMENT = np.uint64(6364136223846793005), np.uint64(11634580027462260723)
_LOW32 = np.uint64(0xFFFFFFFF)


@njit(**KERNEL)
def _rotated_left(value: Any, bits: Any) -> Any:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@njit(**KERNEL)
def _pcg32(state: Any) -> Any:
    """The output of a PCG32 state that has been stepped: xorshift, then a rotation by its upper five bits."""
    shifted = (((state >> np.uint64(18)) ^ state) >> np.uint64(27)) & _LOW32
    turn = state >> np.uint64(59)
    return ((shifted >> turn) | (shifted << ((np.uint64(32) - turn) & np.uint64(31)))) & _LOW32


@njit(**KERNEL)
def _seed_word(state: Any) -> Any:
    """A word of the seed, and PCG32's state behind it."""
    first = state * _MULTIPLIER + _INCREMENT
    second = first * _MULTIPLIER + _INCREMENT
    return _pcg32(first) | (_pcg32(second) << np.uint64(32)), second


@njit(**KERNEL)
def seeded(seed: Any) -> Any:
    """The state `(s₀, s₁, s₂, s₃)` for a seed."""
    s0, state = _seed_word(np.uint64(seed))
    s1, state = _seed_word(state)
    s2, state = _seed_word(state)
    s3, state = _seed_word(state)
    return s0, s1, s2, s3


@njit(**KERNEL)
def drawn(state: Any) -> Any:
    """A uniform number in [0, 1) with 23 random bits, and the state behind it."""
    s0, s1, s2, s3 = state
    result = _rotated_left(s0 + s3, 23) + s0
    shifted = s1 << np.uint64(17)
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    s3 = _rotated_left(s3, 45)
    return np.float32(result >> np.uint64(41)) * np.float32(2.0**-23), (s0, s1, s2, s3)
