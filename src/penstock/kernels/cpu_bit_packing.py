"""Numbers that parquet packs bit by bit, eight at a time in vector registers. All release the GIL.

Eight numbers of `width` bits take `width` bytes, so each group of eight begins at a byte, and where in its words they
lie is the same for all groups: one shift and one mask of vectors bring out all eight. LLVM splits the lanes on machines
with narrower registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types, uint64
from numba.extending import intrinsic as _intrinsic

from penstock.kernels.kernel_cache import njit

NARROW, WIDE = 16, 32  # bits of a number at most, as `unpack_narrow` and `unpack_wide` give them
GROUP = 8  # numbers; so many may be written where fewer are wanted
_FROM_PAIRS = 28  # bits up to which a word that begins at any bit of its first byte holds two numbers
_intrinsic_of: Any = _intrinsic  # its stated type still has the typing context that callers never pass
_I32, _I64 = ir.IntType(32), ir.IntType(64)
_LANES = ir.VectorType(_I64, GROUP)


def _unpacking(bits: int, in_a_word: int) -> Callable[..., Any]:
    """Eight numbers from `source` to `target`, `bits` wide there; each word that is loaded holds so many of them."""

    def unpack_group(typingctx: Any, source: Any, target: Any, width: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            source, target, width = args
            words, shifts = ir.Constant(_LANES, ir.Undefined), ir.Constant(_LANES, ir.Undefined)
            for lane in range(GROUP):
                if lane % in_a_word == 0:
                    first = builder.mul(width, _I64(lane))
                    place = builder.add(source, builder.lshr(first, _I64(3)))
                    word = builder.load(builder.inttoptr(place, _I64.as_pointer()), align=1)
                shift = builder.add(builder.and_(first, _I64(7)), builder.mul(width, _I64(lane % in_a_word)))
                words = builder.insert_element(words, word, _I32(lane))
                shifts = builder.insert_element(shifts, shift, _I32(lane))
            mask = builder.sub(builder.shl(_I64(1), width), _I64(1))
            masks = ir.Constant(_LANES, ir.Undefined)
            for lane in range(GROUP):
                masks = builder.insert_element(masks, mask, _I32(lane))
            out = ir.VectorType(ir.IntType(bits), GROUP)
            numbers = builder.trunc(builder.and_(builder.lshr(words, shifts), masks), out)
            builder.store(numbers, builder.inttoptr(target, out.as_pointer()), align=bits // 8)
            return context.get_dummy_value()

        return types.void(types.uint64, types.uint64, types.uint64), generate

    found: Callable[..., Any] = _intrinsic_of(unpack_group)
    return found


_narrow_group = _unpacking(NARROW, 2)
_wide_group, _widest_group = _unpacking(WIDE, 2), _unpacking(WIDE, 1)


@njit(nogil=True, cache=True)
def unpack_narrow(data, at, width, out, count):
    """`count` numbers of at most 16 bits that are packed from byte `at` on; `out` (uint16) has room for 7 more.

    Up to `width` bytes and 8 more are read behind them.
    """
    step, source, target = uint64(width), uint64(data.ctypes.data) + uint64(at), uint64(out.ctypes.data)
    for _ in range((count + GROUP - 1) // GROUP):
        _narrow_group(source, target, step)
        source += step
        target += uint64(2 * GROUP)


@njit(nogil=True, cache=True)
def unpack_wide(data, at, width, out, count):
    """The same for numbers of at most 32 bits, to uint32."""
    step, source, target = uint64(width), uint64(data.ctypes.data) + uint64(at), uint64(out.ctypes.data)
    if width > _FROM_PAIRS:
        for _ in range((count + GROUP - 1) // GROUP):
            _widest_group(source, target, step)
            source += step
            target += uint64(4 * GROUP)
        return
    for _ in range((count + GROUP - 1) // GROUP):
        _wide_group(source, target, step)
        source += step
        target += uint64(4 * GROUP)


@njit(nogil=True, cache=True)
def greatest(numbers):
    """The greatest of some unsigned numbers; 0 where there are none."""
    found = numbers.dtype.type(0)
    for i in range(numbers.shape[0]):
        found = max(found, numbers[i])
    return found
