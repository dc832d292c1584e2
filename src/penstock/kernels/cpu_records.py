"""Rows that lie together, gathered in a new order and taken apart into columns. Releases the GIL.

A column by itself is read at random, one cache line a value; a row whose values lie side by side takes a line or two
for all of them. Rows are taken `TILE` at a time, asked for while those before them are taken apart: eight words of
eight rows become eight rows of one word each in vector registers, and what is narrower or wider is made of those.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import int32, int64, types, uint32, uint64

from penstock.kernels.cpu_gather import fence
from penstock.kernels.cpu_intrinsics import ALIGNMENT, KERNEL, intrinsic, memcpy, prefetch, stream_line
from penstock.kernels.kernel_cache import njit

TILE = 128  # rows; a multiple of what a transposition takes and of what a cache line holds
ACROSS = 8  # words of eight rows are transposed at a time
BLOCK_BITS = 10  # a table says for every 1,024th row of a chunk in which piece it lies
WORD = 4  # bytes; records have whole ones
# Columns of the table of columns, one row per column: where a value lies in a record, its bytes there and as delivered,
# whether its sign is kept, where the slab has the column, and how many places batches are apart there.
FROM, BYTES, TO_BYTES, SIGNED, ADDRESS, STRIDE = range(6)
SPARE_BYTES = ACROSS * WORD  # behind the last record, which is read as whole vectors

# Which lanes of two vectors make a new one, in three rounds: neighbours, pairs, halves.
_ROUNDS = (
    ([0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]),
    ([0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]),
    ([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]),
)


@intrinsic
def _transpose(typingctx: Any, records: Any, place: Any, out: Any, apart: Any) -> Any:
    """Eight words from byte `place` on of the eight records whose addresses lie at `records`: eight rows at `out`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        records, place, out, apart = args
        word, address = ir.IntType(32), ir.IntType(64)
        vector = ir.VectorType(word, ACROSS)

        def pointer(at: Any, kind: Any) -> Any:
            return builder.inttoptr(at, kind.as_pointer())

        def mixed(a: Any, b: Any, lanes: list[int]) -> Any:
            return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(word, ACROSS), lanes))

        rows = []
        for k in range(ACROSS):
            record = builder.load(pointer(builder.add(records, address(8 * k)), address), align=8)
            rows.append(builder.load(pointer(builder.add(record, place), vector), align=1))
        first, second, third = _ROUNDS
        t = [mixed(rows[k & ~1], rows[k | 1], first[k & 1]) for k in range(ACROSS)]
        u = [mixed(t[(k & 4) + (k >> 1 & 1)], t[(k & 4) + (k >> 1 & 1) + 2], second[k & 1]) for k in range(ACROSS)]
        for k in range(ACROSS):
            turned = mixed(u[k & 3], u[(k & 3) + 4], third[k >> 2])
            builder.store(turned, pointer(builder.add(out, builder.mul(apart, address(k))), vector), align=1)
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64, types.uint64, types.uint64), generate


@njit(**KERNEL)
def _tile(at, rows, batch_size):
    """How many of `rows` rows from place `at` on are taken apart at once: none of another batch."""
    return min(TILE, rows, batch_size - at % batch_size)


@njit(**KERNEL)
def _find(pieces, starts, blocks, size, order, first, low, high, addresses):
    """The addresses of records `[low, high)` of a tile, which are asked for; the last is repeated to a whole eight."""
    address = uint64(0)
    for k in range(low, high):
        row = uint64(order[uint64(first + k)])
        piece = blocks[row >> uint64(BLOCK_BITS)]
        while int64(row) >= starts[piece + 1]:
            piece += 1
        address = pieces[piece] + (row - uint64(starts[piece])) * uint64(size)
        addresses[k] = address
        for line in range(0, size, ALIGNMENT):
            prefetch(address + uint64(line))
        prefetch(address + uint64(size - 1))
    for k in range(high, -(-high // ACROSS) * ACROSS if high > low else high):
        addresses[k] = address


@njit(**KERNEL)
def _narrow(words, word, bit, bits, signed, out):
    """Values of `bits` bits from bit `bit` of a word on, widened to what `out` holds, with or without their sign."""
    left, right = uint32(32 - bits - bit), uint32(32 - bits)
    if signed:
        for k in range(TILE):
            out[k] = int32(words[word, k] << left) >> int32(right)
    else:
        for k in range(TILE):
            out[k] = (words[word, k] << left) >> right


@njit(**KERNEL)
def _wide(words, word, out):
    """Values of two words."""
    for k in range(TILE):
        out[k] = uint64(words[word, k]) | (uint64(words[word + 1, k]) << uint64(32))


@njit(**KERNEL)
def gather_records(pieces, starts, blocks, size, order, columns, at, batch_size):
    """Rows `order` of a chunk to the places from `at` on of a slab.

    Args:
        pieces: addresses of the first record of each piece of the chunk.
        starts: the first row of each piece in the chunk, and the one behind the last.
        blocks: for every 1,024th row of the chunk the piece it lies in.
        size: bytes of a record, whole words.
        order: rows of the chunk, 32-bit.
        columns: what is taken (`FROM`, `BYTES`, …).
        at: place of the first row, in rows of the slab.
        batch_size: rows of a batch.
    """
    rows, across = order.shape[0], -(-size // (WORD * ACROSS)) * ACROSS
    words = np.empty((across, TILE), np.uint32)
    here, ahead = np.empty(TILE, np.uint64), np.empty(TILE, np.uint64)
    out8, out16 = np.empty(TILE, np.uint8), np.empty(TILE, np.uint16)
    out32, out64 = np.empty(TILE, np.uint32), np.empty(TILE, np.uint64)
    count = _tile(at, rows, batch_size)
    _find(pieces, starts, blocks, size, order, 0, 0, count, ahead)
    i = 0
    while i < rows:
        here, ahead = ahead, here
        behind = i + count
        following = _tile(at + behind, rows - behind, batch_size)
        for k in range(0, max(count, following), ACROSS):  # some are asked for, others are taken apart, by turns
            _find(pieces, starts, blocks, size, order, behind, k, min(k + ACROSS, following), ahead)
            if k >= count:
                continue
            for w in range(0, across, ACROSS):
                place = uint64(words.ctypes.data + (w * TILE + k) * WORD)
                _transpose(uint64(here.ctypes.data + 8 * k), uint64(WORD * w), place, uint64(TILE * WORD))
        batch, place = (at + i) // batch_size, (at + i) % batch_size
        for c in range(columns.shape[0]):
            word, byte = columns[c, FROM] // WORD, columns[c, FROM] % WORD
            bits, to_bytes, signed = 8 * columns[c, BYTES], columns[c, TO_BYTES], columns[c, SIGNED] != 0
            if to_bytes == 4 and bits == 32:
                source = uint64(words.ctypes.data + word * TILE * WORD)
            elif to_bytes == 4 and bits < 32:
                _narrow(words, word, 8 * byte, bits, signed, out32)
                source = uint64(out32.ctypes.data)
            elif to_bytes == 8:
                if bits == 64:
                    _wide(words, word, out64)
                else:
                    _narrow(words, word, 8 * byte, bits, signed, out64.view(np.int64))
                source = uint64(out64.ctypes.data)
            elif to_bytes == 4:  # the low word of two
                source = uint64(words.ctypes.data + word * TILE * WORD)
            elif to_bytes == 2:
                _narrow(words, word, 8 * byte, min(bits, 32), signed, out16)
                source = uint64(out16.ctypes.data)
            else:
                _narrow(words, word, 8 * byte, min(bits, 32), signed, out8)
                source = uint64(out8.ctypes.data)
            out = uint64(columns[c, ADDRESS] + (batch * columns[c, STRIDE] + place) * to_bytes)
            if count == TILE and out % uint64(ALIGNMENT) == uint64(0):  # past the cache: nobody reads the slab soon
                for line in range(0, TILE * to_bytes, ALIGNMENT):
                    stream_line(out + uint64(line), source + uint64(line))
            else:
                memcpy(out, source, uint64(count * to_bytes))
        i, count = behind, following
    fence()


def blocks_of(starts: np.ndarray) -> np.ndarray:
    """The piece that every 1,024th row lies in.

    >>> blocks_of(np.array([0, 1000, 3000])).tolist()
    [0, 1, 1]
    """
    rows = np.arange(0, max(int(starts[-1]), 1), 1 << BLOCK_BITS)
    return (np.searchsorted(starts, rows, side="right") - 1).astype(np.int64)
