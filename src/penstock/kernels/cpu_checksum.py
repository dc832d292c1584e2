"""CRC-32 (the one of gzip and parquet pages), fast enough to be taken of every page that is read. Releases the GIL.

A message is a polynomial over the bits 0 and 1, and its checksum the remainder by `_POLYNOMIAL`. Where the processor
multiplies such polynomials (PCLMULQDQ), 64 bytes at a time are folded onto the next 64: `A · x⁵¹²` has the same
remainder as `A_low · (x⁵⁷⁶ mod P) + A_high · (x⁵¹² mod P)`, which is 64 bits shorter. Newer processors multiply two or
four such pairs at once (VPCLMULQDQ), and fold 128 or 256 bytes. What is left, and everything on other processors, goes
through tables, sixteen bytes at a time (slicing-by-16).
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
from llvmlite import ir
from numba import int64, uint8, uint32, uint64
from numba.core import cgutils, types
from numba.core.registry import cpu_target

from penstock.kernels.cpu_intrinsics import intrinsic
from penstock.kernels.kernel_cache import njit

_POLYNOMIAL = 0x104C11DB7
_SLICES = 16
_REGISTERS, _LANE = 4, 16  # of folding: registers, which have lanes of so many bytes
_FOLDED = _REGISTERS * _LANE  # bytes at a time with one lane a register


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


def _lanes() -> int:
    """Lanes of a register that can be multiplied at once; 0 where none can.

    Asked of numba, which may compile for less than the processor has (`NUMBA_CPU_NAME=generic`).
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return 0
    features = set(cpu_target.target_context.codegen().magic_tuple()[2].split(","))
    if {"+vpclmulqdq", "+avx2"} <= features:
        return 4 if "+avx512f" in features else 2
    return int("+pclmul" in features)


LANES = _lanes()
_WIDE = LANES * _FOLDED


def _multiplied(builder: Any, register: Any, bits: int) -> Any:
    """Every lane `bits` further on: a product of reversed polynomials has one power of x more than it should."""
    kind = register.type
    name = {2: "llvm.x86.pclmulqdq", 4: "llvm.x86.pclmulqdq.256", 8: "llvm.x86.pclmulqdq.512"}[kind.count]
    function = ir.FunctionType(kind, [kind, kind, ir.IntType(8)])
    multiply = cgutils.get_or_insert_function(builder.module, function, name)
    powers = ir.Constant(kind, [_power(bits + 63), _power(bits - 1)] * (kind.count // 2))
    halves = [ir.Constant(ir.IntType(8), half) for half in (0x00, 0x11)]
    return builder.xor(*(builder.call(multiply, [register, powers, half]) for half in halves))


def _one_lane(builder: Any, registers: list[Any]) -> Any:
    """Registers behind one another folded into a single lane."""
    width = registers[0].type.count // 2
    total = None
    for place in range(len(registers) * width):
        register, lane = registers[place // width], place % width
        mask = ir.Constant(ir.VectorType(ir.IntType(32), 2), [2 * lane, 2 * lane + 1])
        found = builder.shuffle_vector(register, register, mask)
        behind = len(registers) * width - 1 - place
        found = _multiplied(builder, found, 8 * _LANE * behind) if behind else found
        total = found if total is None else builder.xor(total, found)
    return total


def _folding(width: int) -> Any:
    """The intrinsic that folds with `width` lanes a register."""
    kind, number = ir.VectorType(ir.IntType(64), 2 * width), ir.IntType(64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start, count, begun, target = args

        def load(place: Any, register: int) -> Any:
            at = builder.add(place, ir.Constant(number, register * width * _LANE))
            return builder.load(builder.inttoptr(at, kind.as_pointer()), align=1)

        places = [cgutils.alloca_once(builder, kind) for _ in range(_REGISTERS)]
        none = ir.Constant(kind, [0] * 2 * width)
        before = builder.insert_element(none, builder.zext(begun, number), ir.Constant(number, 0))
        for k, place in enumerate(places):
            builder.store(builder.xor(load(start, k), before if k == 0 else none), place)
        with cgutils.for_range(builder, builder.sub(count, ir.Constant(number, 1))) as loop:
            ahead = builder.add(loop.index, ir.Constant(number, 1))
            block = builder.add(start, builder.mul(ahead, ir.Constant(number, width * _FOLDED)))
            for k, place in enumerate(places):
                further = _multiplied(builder, builder.load(place), 8 * width * _FOLDED)
                builder.store(builder.xor(further, load(block, k)), place)
        total = _one_lane(builder, [builder.load(place) for place in places])
        builder.store(total, builder.inttoptr(target, total.type.as_pointer()), align=1)
        return context.get_dummy_value()

    def fold(typingctx: Any, address: Any, blocks: Any, remainder: Any, out: Any) -> Any:
        """Fold `blocks` (at least one) at `address`, begun with `remainder`, into 16 bytes at `out`."""
        return types.void(types.uint64, types.int64, types.uint32, types.uint64), generate

    return intrinsic(fold)


_fold, _fold_wide = _folding(1), _folding(max(1, LANES))


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
def _by_folding(data, at, end, remainder):
    """The same with PCLMULQDQ, 64 bytes at a time."""
    blocks = (end - at) // _FOLDED
    if blocks > 0:
        folded = np.empty(_LANE, np.uint8)
        _fold(uint64(data.ctypes.data) + uint64(at), blocks, remainder, uint64(folded.ctypes.data))
        remainder = _by_tables(folded, int64(0), int64(_LANE), uint32(0))
    return _by_tables(data, at + blocks * _FOLDED, end, remainder)


@njit(nogil=True, cache=True)
def _by_wide_folding(data, at, end, remainder):
    """The same with VPCLMULQDQ, 128 or 256 bytes at a time."""
    blocks = (end - at) // _WIDE
    if blocks > 0:
        folded = np.empty(_LANE, np.uint8)
        _fold_wide(uint64(data.ctypes.data) + uint64(at), blocks, remainder, uint64(folded.ctypes.data))
        remainder = _by_tables(folded, int64(0), int64(_LANE), uint32(0))
    return _by_folding(data, at + blocks * _WIDE, end, remainder)


@njit(nogil=True, cache=True)
def crc32_by_tables(data, start, size, before):
    """The checksum of `size` bytes from `start` on, behind bytes whose checksum is `before`; on any processor."""
    remainder = uint32(before) ^ uint32(0xFFFFFFFF)
    return int64(_by_tables(data, start, start + size, remainder) ^ uint32(0xFFFFFFFF))


@njit(nogil=True, cache=True)
def crc32_by_folding(data, start, size, before):
    """The same where `LANES` is at least 1."""
    remainder = uint32(before) ^ uint32(0xFFFFFFFF)
    return int64(_by_folding(data, start, start + size, remainder) ^ uint32(0xFFFFFFFF))


@njit(nogil=True, cache=True)
def crc32_by_wide_folding(data, start, size, before):
    """The same where `LANES` is at least 2."""
    remainder = uint32(before) ^ uint32(0xFFFFFFFF)
    return int64(_by_wide_folding(data, start, start + size, remainder) ^ uint32(0xFFFFFFFF))


WAYS = (crc32_by_tables, crc32_by_folding, crc32_by_wide_folding)[: 1 + min(2, LANES)]
crc32 = WAYS[-1]
