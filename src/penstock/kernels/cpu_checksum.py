"""CRC-32 (the one of gzip and parquet pages), fast enough to be taken of every page that is read. Releases the GIL.

A message is a polynomial over the bits 0 and 1, and its checksum the remainder by `_POLYNOMIAL`. Where the processor
multiplies such polynomials (PCLMULQDQ), 64 bytes at a time are folded onto the next 64: `A · x⁵¹²` has the same
remainder as `A_low · (x⁵⁷⁶ mod P) + A_high · (x⁵¹² mod P)`, which is 64 bits shorter. What is left, and everything on
other processors, goes through tables, sixteen bytes at a time (slicing-by-16).
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, uint8, uint32, uint64
from numba.core import cgutils, types

from penstock.kernels.cpu_intrinsics import intrinsic

_POLYNOMIAL = 0x104C11DB7
_SLICES = 16
_LANES, _LANE = 4, 16  # of folding: bytes of a lane
_FOLDED = _LANES * _LANE


def _reversed(value: int, bits: int) -> int:
    return int(f"{value:0{bits}b}"[::-1], 2)


def _tables() -> np.ndarray:
    """Table k has what a byte followed by k zero bytes adds to the remainder."""
    tables = np.zeros((_SLICES, 256), np.uint32)
    remainders = np.arange(256, dtype=np.uint32)
    reflected = np.uint32(_reversed(_POLYNOMIAL & 0xFFFFFFFF, 32))
    for _ in range(8):
        remainders = np.where(remainders & 1, (remainders >> 1) ^ reflected, remainders >> 1)
    tables[0] = remainders
    for k in range(1, _SLICES):
        tables[k] = tables[0][tables[k - 1] & 255] ^ (tables[k - 1] >> 8)
    return tables


def _power(exponent: int) -> int:
    """`x ** exponent` modulo the polynomial, first coefficient in the lowest of 64 bits as in the data."""
    remainder = 1
    for _ in range(exponent):
        remainder <<= 1
        remainder ^= _POLYNOMIAL if remainder >> 32 else 0
    return _reversed(remainder, 32) << 32


_TABLES = _tables()


def _can_fold() -> bool:
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    return bool(binding.get_host_cpu_features().get("pclmul"))


CAN_FOLD = _can_fold()


def _multiplied(builder: Any, lane: Any, bits: int) -> Any:
    """The lane `bits` further on: a product of reversed polynomials has one power of x more than it should."""
    pair = ir.VectorType(ir.IntType(64), 2)
    kind = ir.FunctionType(pair, [pair, pair, ir.IntType(8)])
    multiply = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.pclmulqdq")
    powers = ir.Constant(pair, [_power(bits + 63), _power(bits - 1)])
    first, second = (builder.call(multiply, [lane, powers, ir.Constant(ir.IntType(8), half)]) for half in (0x00, 0x11))
    return builder.xor(first, second)


@intrinsic
def _fold(typingctx: Any, address: Any, blocks: Any, remainder: Any, out: Any) -> Any:
    """Fold `blocks` (at least one) times 64 bytes at `address`, begun with `remainder`, into 16 bytes at `out`."""
    pair = ir.VectorType(ir.IntType(64), 2)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start, count, begun, target = args
        number, word = ir.IntType(64), ir.Constant(ir.IntType(64), 0)

        def load(place: Any, lane: int) -> Any:
            at = builder.add(place, ir.Constant(number, lane * _LANE))
            return builder.load(builder.inttoptr(at, pair.as_pointer()), align=1)

        lanes = [cgutils.alloca_once(builder, pair) for _ in range(_LANES)]
        before = builder.insert_element(ir.Constant(pair, [0, 0]), builder.zext(begun, number), word)
        for k, lane in enumerate(lanes):
            builder.store(builder.xor(load(start, k), before) if k == 0 else load(start, k), lane)
        rest = builder.sub(count, ir.Constant(number, 1))
        with cgutils.for_range(builder, rest) as loop:
            ahead = builder.mul(builder.add(loop.index, ir.Constant(number, 1)), ir.Constant(number, _FOLDED))
            place = builder.add(start, ahead)
            for k, lane in enumerate(lanes):
                builder.store(builder.xor(_multiplied(builder, builder.load(lane), 8 * _FOLDED), load(place, k)), lane)
        total = builder.load(lanes[-1])
        for k, lane in enumerate(lanes[:-1]):
            total = builder.xor(total, _multiplied(builder, builder.load(lane), 8 * _LANE * (_LANES - 1 - k)))
        builder.store(total, builder.inttoptr(target, pair.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.uint64, types.int64, types.uint32, types.uint64), generate


@njit(nogil=True, cache=True)
def _by_tables(data, at, end, remainder):
    """The remainder after the bytes from `at` to `end`."""
    while end - at >= _SLICES:
        total = uint32(0)
        for k in range(4):
            byte = uint8(remainder >> uint32(8 * k)) ^ data[at + k]
            total ^= _TABLES[_SLICES - 1 - k, byte]
        for k in range(4, _SLICES):
            total ^= _TABLES[_SLICES - 1 - k, data[at + k]]
        remainder = total
        at += _SLICES
    while at < end:
        remainder = _TABLES[0, uint8(remainder) ^ data[at]] ^ (remainder >> uint32(8))
        at += 1
    return remainder


@njit(nogil=True, cache=True)
def crc32_by_tables(data, start, size, before=0):
    """The checksum of `size` bytes from `start` on, behind bytes whose checksum is `before`; on any processor."""
    remainder = uint32(before) ^ uint32(0xFFFFFFFF)
    return int(_by_tables(data, start, start + size, remainder) ^ uint32(0xFFFFFFFF))


@njit(nogil=True, cache=True)
def crc32_by_folding(data, start, size, before=0):
    """The same with PCLMULQDQ."""
    remainder, blocks = uint32(before) ^ uint32(0xFFFFFFFF), size // _FOLDED
    if blocks > 0:
        folded = np.empty(_LANE, np.uint8)
        _fold(uint64(data.ctypes.data) + uint64(start), blocks, remainder, uint64(folded.ctypes.data))
        remainder = _by_tables(folded, 0, _LANE, uint32(0))
    remainder = _by_tables(data, start + blocks * _FOLDED, start + size, remainder)
    return int(remainder ^ uint32(0xFFFFFFFF))


crc32 = crc32_by_folding if CAN_FOLD else crc32_by_tables
