"""Loops that make click logs: counter-based draws, the planted teacher's logit, lines of TSV.

Every random number is `bits(key, counter)`, a pure function of a column's key and a row's number, so any slice of the
data can be made alone. `penstock.data.synthetic.draws` states the same formulas in NumPy.
"""

from __future__ import annotations

import math

import numpy as np

from penstock.kernels.kernel_cache import njit

NULL_RANK = -1
NULL_INTEGER = -(2**31)
# The longest line: a label, 13 integers of 11 characters, 26 ids of 8, each followed by a tab or the newline.
BYTES_PER_INTEGER, BYTES_PER_ID, BYTES_PER_LABEL = 12, 9, 2

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_U0, _U1, _U4, _U8, _U11, _U13, _U16, _U27, _U30, _U31, _U32, _U48 = (
    np.uint64(n) for n in (0, 1, 4, 8, 11, 13, 16, 27, 30, 31, 32, 48)
)
_LOW_16, _LOW_32 = np.uint64(0xFFFF), np.uint64(0xFFFFFFFF)
_FMIX_1, _FMIX_2 = np.uint64(0x85EBCA6B), np.uint64(0xC2B2AE35)
_BYTES_IN_32, _NIBBLES_IN_16 = np.uint64(0x000000FF000000FF), np.uint64(0x000F000F000F000F)
_ZEROS, _SIXES, _ONES = np.uint64(0x3030303030303030), np.uint64(0x0606060606060606), np.uint64(0x0101010101010101)
_LETTER_GAP = np.uint64(39)  # from "9" + 1 to "a"
_TO_UNIT = 2.0**-53
_NORMAL_SCALE = math.sqrt(3.0) / 65536.0  # four 16-bit uniforms summed have this inverse deviation
_NORMAL_MEAN = 2.0 * 65535.0
_TAB, _NEWLINE, _MINUS, _DIGIT_ZERO = 9, 10, 45, 48


@njit(nogil=True, cache=True)
def bits(key, counter):
    """SplitMix64: the `counter`-th number of the stream `key`."""
    z = np.uint64(key) + (np.uint64(counter) + _U1) * _GOLDEN
    z = (z ^ (z >> _U30)) * _MIX_1
    z = (z ^ (z >> _U27)) * _MIX_2
    return z ^ (z >> _U31)


@njit(nogil=True, cache=True)
def _unit(z):
    return np.float64(z >> _U11) * _TO_UNIT


@njit(nogil=True, cache=True)
def _normal(z):
    total = (z & _LOW_16) + ((z >> _U16) & _LOW_16) + ((z >> _U32) & _LOW_16) + (z >> _U48)
    return (np.float64(total) - _NORMAL_MEAN) * _NORMAL_SCALE


@njit(nogil=True, cache=True)
def _fmix32(rank, mask):
    h = (np.uint64(rank) ^ np.uint64(mask)) & _LOW_32
    h ^= h >> _U16
    h = (h * _FMIX_1) & _LOW_32
    h ^= h >> _U13
    h = (h * _FMIX_2) & _LOW_32
    return h ^ (h >> _U16)


@njit(nogil=True, cache=True)
def draw_ranks(key, null_key, start, null_rate, cardinality, exponent, out):
    """out[i] = rank of row start+i, P(rank ≥ r) a power law cut at `cardinality`; NULL_RANK at `null_rate`."""
    power = 1.0 - exponent
    span = (cardinality + 1.0) ** power - 1.0
    inverse = 1.0 / power
    for i in range(out.size):
        row = start + i
        if null_rate > 0.0 and _unit(bits(null_key, row)) < null_rate:
            out[i] = NULL_RANK
        else:
            rank = np.int64((1.0 + _unit(bits(key, row)) * span) ** inverse) - 1
            out[i] = min(max(rank, 0), cardinality - 1)


@njit(nogil=True, cache=True)
def draw_integers(key, null_key, start, null_rate, mean, deviation, low, out):
    """out[i] = low + ⌊exp(mean + deviation · normal)⌋; NULL_INTEGER at `null_rate`."""
    for i in range(out.size):
        row = start + i
        if null_rate > 0.0 and _unit(bits(null_key, row)) < null_rate:
            out[i] = NULL_INTEGER
        else:
            value = math.exp(mean + deviation * _normal(bits(key, row)))
            out[i] = np.int32(min(value, 2.0e9)) + low


@njit(nogil=True, cache=True)
def draw_labels(key, start, probability, out):
    """out[i] = 1 with probability[i], else 0."""
    for i in range(out.size):
        out[i] = _unit(bits(key, start + i)) < probability[i]


@njit(nogil=True, cache=True)
def _shrink(rank, half):
    # Rare categories matter less: nobody could learn their effects, and the best AUC should be within reach.
    return half / (half + max(rank, 0))


@njit(nogil=True, cache=True)
def add_main_effect(ranks, key, weight, half, logit):
    """logit += weight · normal(key, rank) · half / (half + rank); null is a category of its own."""
    for i in range(ranks.size):
        rank = ranks[i]
        logit[i] += weight * _shrink(rank, half) * _normal(bits(key, rank + 1))


@njit(nogil=True, cache=True)
def _dot(a, b):
    total = 0.0
    for _ in range(4):
        total += (np.float64(a & _LOW_16) - 32767.5) * (np.float64(b & _LOW_16) - 32767.5)
        a >>= _U16
        b >>= _U16
    return total * (6.0 / 65536.0**2)  # deviation 1


@njit(nogil=True, cache=True)
def add_pair_effect(left, left_key, right, right_key, weight, half, logit):
    """logit += weight · ⟨v(left rank), v(right rank)⟩, shrunk for rare ranks, v of four dimensions."""
    for i in range(left.size):
        a, b = left[i], right[i]
        shrink = _shrink(a, half) * _shrink(b, half)
        logit[i] += weight * shrink * _dot(bits(left_key, a + 1), bits(right_key, b + 1))


@njit(nogil=True, cache=True)
def standard_log(integers, mean, deviation, out):
    """out = (log1p(max(x, 0)) - mean) / deviation; 0 where x is null."""
    for i in range(integers.size):
        value = integers[i]
        out[i] = 0.0 if value == NULL_INTEGER else (math.log1p(max(value, 0)) - mean) / deviation


@njit(nogil=True, cache=True)
def add_slope_effect(ranks, key, numbers, weight, half, logit):
    """logit += weight · normal(key, rank) · number: the slope of a number differs by category."""
    for i in range(ranks.size):
        rank = ranks[i]
        logit[i] += weight * _shrink(rank, half) * _normal(bits(key, rank + 1)) * numbers[i]


@njit(nogil=True, cache=True)
def mix_ids(ranks, mask, out):
    """out = the 32-bit id of each rank, a bijection; 0 at nulls."""
    for i in range(ranks.size):
        out[i] = 0 if ranks[i] < 0 else _fmix32(ranks[i], mask)


@njit(nogil=True, cache=True)
def _put_hex(out, at, number):
    # Spread eight nibbles over eight bytes, the highest first, then lift each to its digit or letter.
    v = ((number & _LOW_16) << _U32) | (number >> _U16)
    v = ((v & _BYTES_IN_32) << _U16) | ((v >> _U8) & _BYTES_IN_32)
    v = ((v & _NIBBLES_IN_16) << _U8) | ((v >> _U4) & _NIBBLES_IN_16)
    v += _ZEROS + (((v + _SIXES) >> _U4) & _ONES) * _LETTER_GAP
    for k in range(8):
        out[at + k] = np.uint8(v & np.uint64(0xFF))
        v >>= _U8
    return at + 8


@njit(nogil=True, cache=True)
def _put_integer(out, at, value):
    rest = np.int64(value)
    if rest < 0:
        out[at] = _MINUS
        at += 1
        rest = -rest
    digits, probe = 1, rest
    while probe >= 10:
        probe //= 10
        digits += 1
    left = np.uint32(rest)
    for k in range(at + digits - 1, at - 1, -1):
        tenth = left // np.uint32(10)
        out[k] = np.uint8(_DIGIT_ZERO + left - tenth * np.uint32(10))
        left = tenth
    return at + digits


@njit(nogil=True, cache=True)
def format_lines(labels, integers, ranks, masks, out):
    """Write each row as `label \\t integers \\t 8-digit hex ids \\n`, nulls empty; returns the bytes used of `out`."""
    at = 0
    for i in range(labels.size):
        out[at] = _DIGIT_ZERO + labels[i]
        out[at + 1] = _TAB
        at += 2
        for j in range(integers.shape[0]):
            value = integers[j, i]
            if value != NULL_INTEGER:
                at = _put_integer(out, at, value)
            out[at] = _TAB
            at += 1
        for j in range(ranks.shape[0]):
            rank = ranks[j, i]
            if rank >= 0:
                at = _put_hex(out, at, _fmix32(rank, masks[j]))
            out[at] = _TAB
            at += 1
        out[at - 1] = _NEWLINE
    return at


@njit(nogil=True, cache=True)
def format_hex(ranks, mask, out, offsets):
    """The Arrow layout of one string column: hex digits end to end, `offsets` around each; nulls have no bytes."""
    at = 0
    offsets[0] = 0
    for i in range(ranks.size):
        if ranks[i] >= 0:
            at = _put_hex(out, at, _fmix32(ranks[i], mask))
        offsets[i + 1] = at
    return at
