"""Row shuffles on the CPU: permutations, gathers of columns and of lists, padding. All release the GIL.

`out` of the dense kernels is one column of a block. Batches of `width` rows begin `stride` places apart, which keeps
each of them aligned whatever its size: row `r` is at `place(r) = r // width * stride + r % width`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types, uint32, uint64
from numba.extending import intrinsic

from penstock.kernels.cpu_intrinsics import ALIGNMENT as LINE
from penstock.kernels.cpu_intrinsics import stream_line
from penstock.kernels.kernel_cache import njit
from penstock.kernels.split_mix import split_mix

AHEAD = 24  # rows between a prefetch and the use of what it fetched
LIST_SLACK = 8
BUFFERED = 1024  # values gathered before they are written
CACHED_ROWS = 1 << 19  # row numbers that a core's own cache holds, or nearly
DRAWS = 64  # that are made before the first of them is used
BITS = {size: np.dtype(f"uint{8 * size}") for size in (1, 2, 4, 8)}  # one compilation for all types of a width
NO_CODES = np.empty(0, np.uint16)
_intrinsic: Any = intrinsic  # its first argument is numba's own, which type checkers do not know


def as_bits(source: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Arrays of one dtype as whole numbers of its width, for kernels that only move values; others as they are.

    >>> as_bits(np.array([1.0], np.float32), np.empty(1, np.float32))[0].dtype
    dtype('uint32')
    """
    if source.dtype != out.dtype or source.itemsize not in BITS:
        return source, out
    bits = BITS[source.itemsize]
    return source.view(bits), out.view(bits)


@_intrinsic
def fence(typingctx):
    """What was streamed is visible to other threads before anything that follows."""

    def codegen(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@_intrinsic
def prefetch(typingctx, array, position):
    """Ask for the cache line of `array[position]`."""

    def codegen(context, builder, signature, args):
        from llvmlite import ir
        from numba.core import cgutils

        view = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=args[0])
        byte = ir.IntType(8).as_pointer()
        pointer = builder.bitcast(builder.gep(view.data, [args[1]]), byte)
        int32 = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, int32, int32, int32])
        call = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(call, [pointer, int32(0), int32(3), int32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


def mix_seed(*parts: int) -> int:
    """64 well-mixed bits from any integers; order matters.

    >>> mix_seed(0, 1) != mix_seed(1, 0)
    True
    """
    state = 0
    for part in parts:
        state, out = split_mix(state ^ (part & 0xFFFF_FFFF_FFFF_FFFF))
        state ^= out
    return state


def permutation(size: int, seed: int, out: np.ndarray | None = None) -> np.ndarray:
    """A uniform permutation of `range(size)` as uint32, the same on every machine and version; in `out` if given.

    >>> sorted(permutation(5, seed=3).tolist())
    [0, 1, 2, 3, 4]
    """
    order = np.empty(size, np.uint32) if out is None else out
    fill_permutation(order, np.uint64(seed))
    return order


@njit(nogil=True, cache=True)
def _drawn(state, top):
    """A number from 0 to `top`, by SplitMix64 and a multiply instead of a modulo."""
    z = state
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    z = z ^ (z >> uint64(31))
    return ((z >> uint64(32)) * uint64(top + 1)) >> uint64(32)


@njit(nogil=True, cache=True)
def fill_permutation(order, seed):
    """Fisher and Yates from the top.

    What is beyond the cache is asked for before it is swapped: several draws at a time, which do not depend on swaps.
    """
    size = order.shape[0]
    for i in range(size):
        order[i] = uint32(i)
    state, step = uint64(seed), uint64(0x9E3779B97F4A7C15)
    i, draws = size - 1, np.empty(DRAWS, np.uint32)
    while i > CACHED_ROWS:
        for k in range(DRAWS):
            state += step
            draws[k] = uint32(_drawn(state, i - k))
            prefetch(order, draws[k])
        for k in range(DRAWS):
            j, swap = draws[k], order[i - k]
            order[i - k] = order[j]
            order[j] = swap
        i -= DRAWS
    while i > 0:
        state += step
        j, swap = _drawn(state, i), order[i]
        order[i] = order[j]
        order[j] = swap
        i -= 1


@njit(nogil=True, cache=True)
def _stretch(at, left, out, width, stride):
    """`(begin, rows, those of whole buffers)` of the next stretch of `out` without a gap; the last 0 if not aligned."""
    place = at % width
    begin, rows = at // width * stride + place, min(left, width - place)
    aligned = (out.ctypes.data + begin * out.itemsize) % LINE == 0
    return begin, rows, rows // BUFFERED * BUFFERED if aligned else 0


@njit(nogil=True, cache=True)
def _stream(buffer, out, at):
    """A full buffer to the rows of `out` from `at` on, past the cache."""
    target, source = uint64(out.ctypes.data + at * out.itemsize), uint64(buffer.ctypes.data)
    for k in range(0, BUFFERED * out.itemsize, LINE):
        stream_line(target + uint64(k), source + uint64(k))


@njit(nogil=True, cache=True)
def gather_column(source, order, out, at, width, stride):
    """`out[place(at + i)] = source[order[i]]`, cast to the dtype of `out`.

    Values are gathered in a buffer that stays in the cache and leave it past the cache: nobody reads the block soon,
    and it would drive out the source, which is read at random.
    """
    i, size = 0, order.shape[0]
    buffer = np.empty(BUFFERED, out.dtype)
    while i < size:
        begin, rows, buffered = _stretch(at + i, size - i, out, width, stride)
        for done in range(0, buffered, BUFFERED):
            picks = order[i + done : i + done + BUFFERED]
            for k in range(BUFFERED):
                buffer[k] = source[picks[k]]
            _stream(buffer, out, begin + done)
        target, picks = out[begin + buffered : begin + rows], order[i + buffered : i + rows]
        for k in range(target.shape[0]):
            target[k] = source[picks[k]]
        i += rows
    fence()


@njit(nogil=True, cache=True)
def gather_codes(source, codes, order, out, at, width, stride):
    """`out[place(at + i)] = source[codes[order[i]]]`, cast to the dtype of `out`.

    A loop of its own: one for both, with a branch outside of what is done for each value, took 1.4 times as long.
    """
    i, size = 0, order.shape[0]
    buffer = np.empty(BUFFERED, out.dtype)
    while i < size:
        begin, rows, buffered = _stretch(at + i, size - i, out, width, stride)
        for done in range(0, buffered, BUFFERED):
            picks = order[i + done : i + done + BUFFERED]
            for k in range(BUFFERED):
                buffer[k] = source[codes[picks[k]]]
            _stream(buffer, out, begin + done)
        target, picks = out[begin + buffered : begin + rows], order[i + buffered : i + rows]
        for k in range(target.shape[0]):
            target[k] = source[codes[picks[k]]]
        i += rows
    fence()


@njit(nogil=True, cache=True)
def copy_column(source, out, at, width, stride):
    """`out[place(at + i)] = source[i]`, cast to the dtype of `out`."""
    i, size = 0, source.shape[0]
    while i < size:
        place = (at + i) % width
        run = min(size - i, width - place)
        base = (at + i) // width * stride + place
        target = out[base : base + run]
        values = source[i : i + run]
        for k in range(target.shape[0]):
            target[k] = values[k]
        i += run


@njit(nogil=True, cache=True)
def first_outside(source, low, high):
    """The position of the first value outside `[low, high]`, or -1."""
    size = source.shape[0]
    if size == 0:
        return -1
    least = source[0]
    most = source[0]
    for i in range(size):  # no early exit: this loop runs in vector registers
        least = min(least, source[i])
        most = max(most, source[i])
    if least >= low and most <= high:
        return -1
    for i in range(size):
        if source[i] < low or source[i] > high:
            return i
    return -1


@njit(nogil=True, cache=True)
def first_nan(source):
    """The position of the first NaN, or -1."""
    found = False
    for i in range(source.shape[0]):
        found |= source[i] != source[i]
    if found:
        for i in range(source.shape[0]):
            if source[i] != source[i]:
                return i
    return -1


@njit(nogil=True, cache=True)
def first_beyond(source, bound):
    """The position of the first finite number whose size exceeds `bound`, or -1."""
    found = False
    for i in range(source.shape[0]):
        found |= abs(source[i]) > bound
    if found:
        for i in range(source.shape[0]):
            if abs(source[i]) > bound and not np.isinf(source[i]):
                return i
    return -1


@njit(nogil=True, cache=True)
def list_offsets(offsets, order, starts, out):
    """Where the lists begin in the input and in the result when put in `order`; returns the number of values."""
    total, size = 0, order.shape[0]
    out[0] = 0
    for i in range(size):
        prefetch(offsets, order[min(i + AHEAD, size - 1)])
        j = order[i]
        start = offsets[j]
        starts[i] = start
        total += offsets[uint64(j) + uint64(1)] - start
        out[i + 1] = total
    return total


@njit(nogil=True, cache=True)
def gather_lists(values, starts, out_offsets, out):
    """The values of the lists in a new order; `starts` and `out_offsets` come from `list_offsets`.

    `LIST_SLACK` values are copied at once, whatever the length: most lists are short, and a loop whose end cannot be
    foretold costs more than the copy. What is too much is overwritten by the next list; `out` has room for the last.
    """
    size = starts.shape[0]
    last = values.shape[0] - LIST_SLACK
    for i in range(size):
        prefetch(values, starts[min(i + AHEAD, size - 1)])
        start, at = starts[i], out_offsets[i]
        length = out_offsets[i + 1] - at
        if start <= last:
            source = values[start : start + LIST_SLACK]
            target = out[at : at + LIST_SLACK]
            for k in range(LIST_SLACK):
                target[k] = source[k]
            for k in range(LIST_SLACK, length):
                out[at + k] = values[start + k]
        else:
            for k in range(length):
                out[at + k] = values[start + k]


def pad_lists(values: np.ndarray, offsets: np.ndarray, out: np.ndarray, fill: Any, left: bool) -> None:
    """Lists as the rows of `out`: cut to its width, filled up on the left or the right."""
    source, target = as_bits(values, out)
    _pad_lists(source, offsets, target, np.asarray(fill, out.dtype).view(target.dtype)[()], left)


@njit(nogil=True, cache=True)
def _pad_lists(values, offsets, out, fill, left):
    rows, width = out.shape
    for i in range(rows):
        start = offsets[i]
        size = min(offsets[i + 1] - start, width)
        shift = width - size if left else 0
        for k in range(width):
            out[i, k] = fill
        for k in range(size):
            out[i, shift + k] = values[start + k]
