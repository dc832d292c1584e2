"""`log(1 + x)` of float64 rounded to float32, a block at a time in the machine's vectors, with NumPy's bits.

Formula: `u = 1 + x = 2**k * m` with m between √½ and √2; `log u = k log 2 + 2 atanh(s)` with `s = (m - 1) / (m + 1)`,
the latter by the polynomial of fdlibm's `e_log.c` (Sun Microsystems, 1993), whose error is below 2**-58; what rounding
`u` has lost comes back as `c / u`. All in all it is off by a few units in the last place, and so may NumPy be. Where
`NEAR` of it rounds to another float32, or x is none of the usual numbers, NumPy is asked.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_intrinsics import KERNEL
from penstock.kernels.kernel_cache import njit

BLOCK = 1024  # rows whose numbers and parts stay in the first-level cache
NEAR = 2.0**-48  # more than two good logarithms differ by, relative to their value
_BELOW, _ABOVE = 1.0 - NEAR, 1.0 + NEAR
I64, U64 = np.int64, np.uint64
# As unsigned integers: bits from 0.0 to 1e300, and the stretch from -1e-300 to -0.5.
_MOST, _LEAST_NEGATIVE, _HALF = (U64(np.float64(number).view(np.uint64)) for number in (1e300, -1e-300, -0.5))
_NEGATIVES = U64(_HALF - _LEAST_NEGATIVE)
_SQRT_HALF = I64(0x3FE6A09E667F3BCD)  # the bits of √½
_TO_ONE = I64(0x3FF0000000000000) - _SQRT_HALF  # from there to those of 1: m from √2 on counts for the next exponent
_MANTISSA, _EXPONENT_AT = I64(0x000FFFFFFFFFFFFF), I64(52)
_AS_FLOAT, _BIAS = I64(0x4330000000000000), 2.0**52 + 1023  # a small integer in these bits is a float64 of 2**52 more
_LOG2_HIGH, _LOG2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_A, _B, _C, _D, _E, _F, _G = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
    1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01,
)  # fmt: skip


def log1p_by_numpy(values: np.ndarray) -> np.ndarray:
    """The definition: in float64 by NumPy, rounded to float32; no warnings."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        wide = values.astype(np.float64)
        return np.log1p(wide, out=wide).astype(np.float32)


@njit(**KERNEL)
def parts_of(bits: Any) -> Any:
    """Of a positive normal number's bits: those of its exponent k as `log_of_parts` takes it, and those of m."""
    shifted = bits + _TO_ONE
    return (shifted >> _EXPONENT_AT) | _AS_FLOAT, (shifted & _MANTISSA) + _SQRT_HALF


@njit(**KERNEL)
def log_of_parts(biased: Any, m: Any, lost: Any) -> Any:
    """`log(2**k * m) + lost`, k as the number whose bits `parts_of` gave."""
    exponent, f = biased - _BIAS, m - 1.0
    s = f / (2.0 + f)
    z, half = s * s, 0.5 * f * f
    series = z * (_A + z * (_B + z * (_C + z * (_D + z * (_E + z * (_F + z * _G))))))
    small = exponent * _LOG2_LOW + lost
    return exponent * _LOG2_HIGH - ((half - (s * (half + series) + small)) - f)


@njit(**KERNEL)
def log1p_block(x: np.ndarray, count: int, u: np.ndarray, m: np.ndarray, out: np.ndarray) -> Any:
    """Logarithms of a block into `out` (float32); whether all of them are right. `u` and `m` are for the work.

    `out` and `m` then tell `unsure` of each row.
    """
    u_bits, m_bits = u.view(np.int64), m.view(np.int64)
    for k in range(count):
        u[k] = 1.0 + x[k]
    for k in range(count):
        u_bits[k], m_bits[k] = parts_of(u_bits[k])
    for k in range(count):
        value, whole = x[k], 1.0 + x[k]
        lost = (1.0 - (whole - value)) if value > 1.0 else (value - (whole - 1.0))
        u[k] = log_of_parts(u[k], m[k], lost / whole)
    return _rounded(x, count, u, m, out)


@njit(**KERNEL)
def _rounded(x: np.ndarray, count: int, u: np.ndarray, m: np.ndarray, out: np.ndarray) -> Any:
    """`u` as float32, and whether that is sure of every row; `m` then has the float32 just above, end to end."""
    above = m.view(np.float32)
    for k in range(count):
        out[k] = np.float32(u[k] * _BELOW)
    for k in range(count):
        above[k] = np.float32(u[k] * _ABOVE)
    bits, lower, upper = x.view(np.int64), out.view(np.int32), above.view(np.int32)
    differing, odd = np.int32(0), I64(0)
    for k in range(count):
        differing |= lower[k] ^ upper[k]
    for k in range(count):
        odd |= I64(_is_odd(bits[k]))
    return differing == 0 and odd == 0


@njit(**KERNEL)
def _is_odd(bits: Any) -> Any:
    """Whether the bits are of a number that is left to NumPy: not finite, -0.0, too near to 0 or to -1."""
    return (U64(bits) > _MOST) & (U64(bits) - _LEAST_NEGATIVE > _NEGATIVES)


@njit(**KERNEL)
def unsure(x: np.ndarray, m: np.ndarray, out: np.ndarray, k: int) -> Any:
    """Whether NumPy must be asked of a row, after `log1p_block` was not sure of all."""
    above = m.view(np.float32)
    return out.view(np.int32)[k] != above.view(np.int32)[k] or _is_odd(x.view(np.int64)[k])
