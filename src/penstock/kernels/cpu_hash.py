"""Stable 64-bit hashes: the same on every machine, release and thread; they may be written into artefacts.

integers   SplitMix64's output function of the key widened to 64 bits (signed keys by two's complement):
           `x += 0x9E3779B97F4A7C15; x = (x ^ x>>30) * 0xBF58476D1CE4E5B9; x = (x ^ x>>27) * 0x94D049BB133111EB;
           x ^= x>>31`, all modulo 2**64.
bytes      XXH64 with seed 0 (the published specification of xxHash).
combined   `combine(a, b) = splitmix64(a * 0x9FB21C651E98DF25 + b)`: depends on the order.
bucket     `hash % num_buckets`.

>>> [hex(int(h)) for h in hash64(np.array([0, 1], np.uint64))]
['0xe220a8397b1dcdaf', '0x910a2dec89025cc1']
>>> hex(hash64_one(b"abc"))
'0x44bc2cf5ad770999'
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_intrinsics import KERNEL, address_of, kernel_input, kernel_output, load8, load32, load64
from penstock.kernels.kernel_cache import njit

U64 = np.uint64
GOLDEN = U64(0x9E3779B97F4A7C15)
FARM = U64(0x9AE16A3B2F90404F)
COMBINE = U64(0x9FB21C651E98DF25)
P1, P2, P3 = U64(0x9E3779B185EBCA87), U64(0xC2B2AE3D27D4EB4F), U64(0x165667B19E3779F9)
P4, P5 = U64(0x85EBCA77C2B2AE63), U64(0x27D4EB2F165667C5)

BytesColumn = tuple[np.ndarray, np.ndarray]  # (data uint8[], offsets int64[n + 1])


@njit(inline="always", **KERNEL)
def splitmix64(key: Any) -> Any:
    """SplitMix64's output function: a bijection of 64 bits."""
    mixed = U64(key) + GOLDEN
    mixed = (mixed ^ (mixed >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> U64(27))) * U64(0x94D049BB133111EB)
    return mixed ^ (mixed >> U64(31))


@njit(inline="always", **KERNEL)
def _rotate(value: Any, by: int) -> Any:
    return (value << U64(by)) | (value >> U64(64 - by))


@njit(inline="always", **KERNEL)
def farmhash64(key: Any) -> Any:
    """FarmHash64 of the eight bytes of a little-endian integer."""
    times, first = FARM + U64(16), U64(key) + FARM
    left = _rotate(U64(key), 27) * times + first
    right = (_rotate(first, 39) + U64(key)) * times
    mixed = (left ^ right) * times
    mixed = (right ^ mixed ^ (mixed >> U64(47))) * times
    return (mixed ^ (mixed >> U64(47))) * times


@njit(inline="always", **KERNEL)
def _round(lane: Any, value: Any) -> Any:
    return _rotate(lane + value * P2, 31) * P1


@njit(**KERNEL)
def _stripes(address: Any, end: Any, seed: Any) -> Any:
    """XXH64's main loop over the 32-byte stripes of `[address, end)`."""
    zero = U64(0)
    lane_1, lane_2, lane_3, lane_4 = seed + P1 + P2, seed + P2, seed, seed - P1
    while address + U64(32) <= end:
        lane_1 = _round(lane_1, load64(address))
        lane_2 = _round(lane_2, load64(address + U64(8)))
        lane_3 = _round(lane_3, load64(address + U64(16)))
        lane_4 = _round(lane_4, load64(address + U64(24)))
        address += U64(32)
    result = _rotate(lane_1, 1) + _rotate(lane_2, 7) + _rotate(lane_3, 12) + _rotate(lane_4, 18)
    for lane in (lane_1, lane_2, lane_3, lane_4):
        result = (result ^ _round(zero, lane)) * P1 + P4
    return result


@njit(**KERNEL)
def xxh64(address: Any, length: Any, seed: Any) -> Any:
    """XXH64 of `length` bytes at `address`; all are uint64, or it would be compiled for each kind of number."""
    end = address + length
    if length >= U64(32):
        result = _stripes(address, end, seed) + length
        address += length & ~U64(31)
    else:
        result = seed + P5 + length
    while address + U64(8) <= end:
        result = _rotate(result ^ _round(U64(0), load64(address)), 27) * P1 + P4
        address += U64(8)
    if address + U64(4) <= end:
        result = _rotate(result ^ (load32(address) * P1), 23) * P2 + P3
        address += U64(4)
    while address < end:
        result = _rotate(result ^ (load8(address) * P5), 11) * P1
        address += U64(1)
    result = (result ^ (result >> U64(33))) * P2
    result = (result ^ (result >> U64(29))) * P3
    return result ^ (result >> U64(32))


@njit(**KERNEL)
def _hash_integers(keys: np.ndarray, out: np.ndarray) -> None:
    for row in range(keys.shape[0]):
        out[row] = splitmix64(keys[row])


@njit(**KERNEL)
def _hash_bytes(base: Any, offsets: np.ndarray, out: np.ndarray) -> None:
    base = U64(base)
    for row in range(out.shape[0]):
        start = offsets[row]
        out[row] = xxh64(base + U64(start), U64(offsets[row + 1] - start), U64(0))


@njit(**KERNEL)
def _combine_into(left: np.ndarray, right: np.ndarray) -> None:
    for row in range(left.shape[0]):
        left[row] = splitmix64(left[row] * COMBINE + right[row])


def bytes_column(keys: Any) -> BytesColumn:
    """`(data, offsets)` as contiguous uint8 and int64 arrays, the offsets inside the data."""
    data, offsets = keys
    data, offsets = kernel_input(data, np.uint8), kernel_input(offsets, np.int64)
    if len(offsets) == 0 or offsets[0] < 0 or offsets[-1] > len(data):
        raise ValueError(f"byte strings need offsets from 0 to {len(data)}, got {offsets[:1]} to {offsets[-1:]}")
    return data, offsets


def as_uint64(keys: np.ndarray) -> np.ndarray:
    """Integer keys widened to 64 bits, signed ones by two's complement, and viewed as uint64."""
    keys = np.asarray(keys)
    if keys.dtype.kind not in "iub":
        raise TypeError(f"hash64 takes integers or (data, offsets) of bytes, not {keys.dtype}")
    return kernel_input(keys, np.int64 if keys.dtype.kind == "i" else np.uint64).view(np.uint64)


def hash64(keys: np.ndarray | BytesColumn, out: np.ndarray | None = None) -> np.ndarray:
    """The stable hash of every key: an integer array, or `(data, offsets)` of byte strings."""
    if isinstance(keys, tuple):
        data, offsets = bytes_column(keys)
        out = (
            np.empty(len(offsets) - 1, np.uint64) if out is None else kernel_output(out, np.uint64, (len(offsets) - 1,))
        )
        _hash_bytes(address_of(data), offsets, out)
        return out
    integers = as_uint64(keys)
    out = np.empty(len(integers), np.uint64) if out is None else kernel_output(out, np.uint64, integers.shape)
    _hash_integers(integers, out)
    return out


def hash64_one(key: int | bytes) -> int:
    """The stable hash of one Python int or byte string."""
    if isinstance(key, int):
        mixed = (key + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        return mixed ^ (mixed >> 31)
    view = np.frombuffer(key, np.uint8) if key else np.zeros(1, np.uint8)
    return int(xxh64(np.uint64(address_of(view)), np.uint64(len(key)), np.uint64(0)))


def combine_hashes(*hashes: np.ndarray) -> np.ndarray:
    """One hash per row from several columns' hashes; the order of the columns matters.

    >>> a, b = hash64(np.array([1], np.uint64)), hash64(np.array([2], np.uint64))
    >>> bool(combine_hashes(a, b)[0] == combine_hashes(b, a)[0])
    False
    """
    combined = np.array(hashes[0], np.uint64, copy=True)
    for column in hashes[1:]:
        if np.shape(column) != combined.shape:
            raise ValueError(f"hashes of {np.shape(column)} and {combined.shape} rows cannot be combined")
        _combine_into(combined, kernel_input(column, np.uint64))
    return combined
