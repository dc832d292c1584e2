"""Machine-level helpers that the CPU kernels share: loads and stores by address, prefetch, bit counts, array hand-over.

Kernels index by `uint64` or by address, because a signed index makes numba test for negative (wrap-around) indices at
every access. Addresses are plain `uint64`; the caller keeps the array alive.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic as _intrinsic

from penstock.kernels.kernel_cache import njit

ALIGNMENT = 64  # bytes; one cache line, and the alignment that TensorFlow and Arrow recommend
# Shifts that turn a number of 4-byte or 8-byte words into bytes: a shift of uint64 by uint64 stays one in numba.
LOG2_4, LOG2_8 = np.uint64(2), np.uint64(3)

# Every kernel is compiled with these: callers run them from several threads at once, and only once per machine.
# Division is NumPy's: Python's looks for a 0 before each, and no loop with a branch becomes vectors.
KERNEL: dict[str, Any] = {"nogil": True, "cache": True, "boundscheck": False, "error_model": "numpy"}
# Those of embeddings also before they are linked: left to their callers, look-ups took 1.6 times as long.
ROW_KERNEL: dict[str, Any] = {**KERNEL, "optimised_apart": True}

# The C library's functions by name: unlike ctypes pointers they can be compiled to the cache. Pointers go as integers.
memcpy: Any = types.ExternalFunction("memcpy", types.uint64(types.uint64, types.uint64, types.uint64))

intrinsic: Any = _intrinsic  # its stated type still has the typing context that callers never pass


def _pointer(builder: Any, address: Any, bits: int) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


@intrinsic
def load8(typingctx: Any, address: Any) -> Any:
    """The byte at `address`, widened to uint64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.load(_pointer(builder, args[0], 8), align=1), ir.IntType(64))

    return types.uint64(types.uint64), generate


@intrinsic
def load32(typingctx: Any, address: Any) -> Any:
    """The four bytes at `address` (any alignment), widened to uint64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.load(_pointer(builder, args[0], 32), align=1), ir.IntType(64))

    return types.uint64(types.uint64), generate


@intrinsic
def load64(typingctx: Any, address: Any) -> Any:
    """The eight bytes at `address` (any alignment) as uint64; little-endian machines only."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(builder, args[0], 64), align=1)

    return types.uint64(types.uint64), generate


def _store(bits: int) -> Any:
    def typed(typingctx: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            low = builder.trunc(args[1], ir.IntType(bits)) if bits < 64 else args[1]
            builder.store(low, _pointer(builder, args[0], bits), align=1)
            return context.get_dummy_value()

        return types.void(types.uint64, types.uint64), generate

    typed.__name__ = f"store{bits}"
    typed.__doc__ = f"Write the low {bits} bits of a uint64 at an address of any alignment."
    return intrinsic(typed)


store8, store16, store32, store64 = _store(8), _store(16), _store(32), _store(64)


@intrinsic
def match_mask(typingctx: Any, address: Any, byte: Any) -> Any:
    """Which of the 64 bytes at `address` (any alignment) equal `byte`: bit i of the result stands for byte i."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), 64)
        block = builder.load(builder.inttoptr(args[0], vector.as_pointer()), align=1)
        one = builder.insert_element(ir.Constant(vector, ir.Undefined), args[1], ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
        splat = builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)
        return builder.bitcast(builder.icmp_unsigned("==", block, splat), ir.IntType(64))

    return types.uint64(types.uint64, types.uint8), generate


@intrinsic
def zero_mask(typingctx: Any, address: Any) -> Any:
    """Which of the 64 words of eight bytes at `address` are 0: bit i of the result stands for word i."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.IntType(64), 64)
        words = builder.load(builder.inttoptr(args[0], vector.as_pointer()), align=8)
        return builder.bitcast(builder.icmp_unsigned("==", words, ir.Constant(vector, [0] * 64)), ir.IntType(64))

    return types.uint64(types.uint64), generate


@intrinsic
def prefetch(typingctx: Any, address: Any) -> Any:
    """Ask for the cache line of `address`; never faults, so any address will do."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte_pointer, int32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [byte_pointer, int32, int32, int32])
        function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0i8")
        builder.call(function, [builder.inttoptr(args[0], byte_pointer), int32(0), int32(3), int32(1)])
        return context.get_dummy_value()

    return types.void(types.uint64), generate


@intrinsic
def stream_line(typingctx: Any, target: Any, source: Any) -> Any:
    """Copy 64 bytes to an address that is a multiple of as many, without caching them there."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        line = ir.VectorType(ir.IntType(32), ALIGNMENT // 4).as_pointer()
        value = builder.load(builder.inttoptr(args[1], line), align=1)
        store = builder.store(value, builder.inttoptr(args[0], line), align=ALIGNMENT)
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64), generate


@intrinsic
def trailing_zeros(typingctx: Any, value: Any) -> Any:
    """Number of zero bits below the lowest set bit; 64 for zero."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@intrinsic
def population_count(typingctx: Any, value: Any) -> Any:
    """Number of set bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), generate


@intrinsic
def multiply_high(typingctx: Any, left: Any, right: Any) -> Any:
    """The upper 64 bits of the 128-bit product."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def bytes_address(typingctx: Any, text: Any) -> Any:
    """Where a Python `bytes` argument keeps its characters."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        buffer = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.ptrtoint(buffer.data, ir.IntType(64))

    return types.uint64(text), generate


class _Alias:
    """Carries an array interface, and the owner of its memory, into `np.asarray`."""

    def __init__(self, array: np.ndarray) -> None:
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__, self._owner = interface, array


def kernel_input(array: Any, dtype: Any = None) -> np.ndarray:
    """`array` as kernels want it: C-contiguous, aligned, and typed as writable even where it is read-only.

    numba compiles another copy of a kernel for read-only arrays (zero-copy Arrow and polars columns are); kernels
    never write to their inputs, so the flag is dropped instead.
    """
    if type(array) is np.ndarray and (dtype is None or array.dtype == dtype) and array.dtype != np.bool_:
        flags = array.flags  # most arrays are as they should be, and `np.require` takes long to say so
        if flags.c_contiguous and flags.aligned:
            return array if flags.writeable or array.size == 0 else np.asarray(_Alias(array))
    array = np.asarray(array)
    if array.dtype == np.bool_ and (dtype is None or np.dtype(dtype) == np.uint8):
        array = array.view(np.uint8)
    array = np.require(array, dtype=dtype, requirements=["C", "A"])
    return array if array.flags.writeable or array.size == 0 else np.asarray(_Alias(array))


def aligned_empty(count: int, dtype: Any) -> np.ndarray:
    """An uninitialised 1-D array whose first byte is 64-byte aligned."""
    dtype = np.dtype(dtype)
    raw = np.empty(count * dtype.itemsize + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + count * dtype.itemsize].view(dtype)


def address_of(array: np.ndarray) -> int:
    """Where the array's memory starts, for kernels that take addresses and read or write on from there.

    An array whose items do not follow each other in memory is refused: a kernel would read what lies beside it.

    >>> address_of(np.arange(3)[::-1])
    Traceback (most recent call last):
    ...
    ValueError: a kernel needs memory without gaps, got strides (-8,) for shape (3,) of int64
    """
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise ValueError(
            f"a kernel needs memory without gaps, got strides {array.strides} for shape {array.shape} of {array.dtype}"
        )
    address: int = array.__array_interface__["data"][0]
    return address


def rows_input(array: Any, dtype: Any) -> tuple[np.ndarray, int, int]:
    """`(array, address, stride)` of rows whose items lie side by side; a copy where they do not.

    Kernels go from row to row by adding the stride, which is a multiple of the item's size and never negative: rows
    may be spaced out, or be one row again and again, but not run backwards.

    >>> array, _, stride = rows_input(np.ones((4, 6), np.float32)[::2, :3], np.float32)
    >>> array.flags.owndata, stride
    (False, 48)
    >>> rows_input(np.ones((4, 3), np.float32)[::-1], np.float32)[2]
    12
    """
    array = np.asarray(array, dtype)
    inner = array[:1].strides[1:] == np.empty((1, *array.shape[1:]), array.dtype).strides[1:]
    if array.size and not (inner and array.strides[0] >= 0 and array.flags.aligned):
        array = np.require(array, requirements=["C", "A"])
    # The stride of a single row is anything, also below zero, and none of anyone's business.
    return array, array.__array_interface__["data"][0], array.strides[0] if len(array) > 1 and array.size else 0


def kernel_output(array: np.ndarray, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """`array`, if a kernel may write `shape` items of `dtype` to it."""
    if array.dtype != dtype or array.shape != shape or not array.flags.carray:
        raise ValueError(
            f"a kernel writes {shape} items of {np.dtype(dtype)} here, got {array.shape} of {array.dtype}, strides "
            f"{array.strides}, {'writable' if array.flags.writeable else 'read-only'}"
        )
    return array


@njit(**KERNEL)
def bytes_equal(left: Any, right: Any, length: Any) -> bool:
    """Whether `length` bytes at two addresses are the same; reads nothing beyond them."""
    left, right = np.uint64(left), np.uint64(right)
    position, end = np.uint64(0), np.uint64(length)
    while position + np.uint64(8) <= end:
        if load64(left + position) != load64(right + position):
            return False
        position += np.uint64(8)
    while position < end:
        if load8(left + position) != load8(right + position):
            return False
        position += np.uint64(1)
    return True
