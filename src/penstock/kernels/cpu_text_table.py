"""Hash tables of texts: the compiled loops under `cpu_vocab.Counter` and `cpu_vocab.Encoder` for byte strings.

Texts come as Arrow's string views, which is how polars holds them: 16 bytes a row, of which the first four are the
length. Up to twelve bytes of text follow right there; of a longer text its first four bytes, the number of a buffer and
the place in it. So a short text is two words that are hashed and compared as two integers are, and nothing else is
looked at. Columns as `(data, offsets)` are made views first (`views_of`).

An entry of a table is three words: the view's two and a count or a code. The second word of a longer text is where it
begins in the table's arena, which has those texts only. Slots, tags and keys are those of `cpu_table`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_hash import xxh64
from penstock.kernels.cpu_intrinsics import (
    KERNEL,
    LOG2_8,
    bytes_address,
    bytes_equal,
    load8,
    load32,
    load64,
    memcpy,
    prefetch,
    store64,
)
from penstock.kernels.cpu_table import (
    BLOCK,
    CACHED_SLOTS,
    LOW,
    MASK,
    PLACING,
    SIZE,
    SLOTS,
    TAG_MULTIPLIER,
    U64,
    key_of,
    shift_of,
    tag_of_hash,
)
from penstock.kernels.kernel_cache import njit

LONGEST_INLINE = U64(12)
LOG2_16 = U64(4)
LOG2_PIECE = 30  # a view has 32 bits for a place: larger data are taken for pieces of a gigabyte
ENTRY_WORDS = 3
ENTRY = U64(8 * ENTRY_WORDS)  # bytes
VIEW_MULTIPLIER = U64(0x9FB21C651E98DF25)
NOT_FOUND = np.int64(-1)

# A column: where its views lie, its validity bits (0: none missing), its first bit, the addresses of its buffers, and
# how often each row counts (0: once).
VIEWS, BITS, FIRST_BIT, BUFFERS, WEIGHTS = range(5)
# A table that counts: as in `cpu_table`, the entries in the place of the counts; its arena, how much of that is used
# and how much there is, and how much the next block of rows may need.
ENTRIES, CAPACITY = 3, 4
ARENA, ARENA_USED, ARENA_SIZE, ARENA_NEEDED = range(6, 10)
NUM_FIELDS = 10


@njit(inline="always", **KERNEL)
def _tag_of_words(low: Any, high: Any, placing: Any) -> Any:
    """The tag of a short text; as many rounds under the table's key as 64-bit keys have."""
    mixed = (low ^ key_of(placing)) * TAG_MULTIPLIER
    mixed = (mixed ^ (mixed >> U64(32)) ^ high) * VIEW_MULTIPLIER
    return ((mixed ^ (mixed >> U64(32))) * TAG_MULTIPLIER) >> U64(32)


@njit(inline="always", **KERNEL)
def _length(low: Any) -> Any:
    return low & LOW


@njit(inline="always", **KERNEL)
def _address(view: Any, buffers: Any) -> Any:
    """Where a view's text lies."""
    if load32(view) <= LONGEST_INLINE:
        return view + U64(4)
    return load64(buffers + (load32(view + U64(8)) << LOG2_8)) + load32(view + U64(12))


@njit(inline="always", **KERNEL)
def _tag_of_text(address: Any, length: Any, placing: Any) -> Any:
    """The tag of a text that is too long for a view."""
    return tag_of_hash(xxh64(address, length, key_of(placing)), placing)


@njit(inline="always", **KERNEL)
def _is_there(bits: Any, bit: Any) -> Any:
    return bits == U64(0) or (load8(bits + (bit >> U64(3))) >> (bit & U64(7))) & U64(1) != U64(0)


@njit(inline="always", **KERNEL)
def _is_same(entry: Any, arena: Any, low: Any, high: Any, address: Any) -> Any:
    """Whether an entry is of this text: the words of its view, and where it lies if it is long."""
    if load64(entry) != low:
        return False
    if _length(low) <= LONGEST_INLINE:
        return load64(entry + U64(8)) == high
    return bytes_equal(arena + load64(entry + U64(8)), address, _length(low))


@njit(inline="always", **KERNEL)
def _prefetch_block(slots: Any, entries: Any, mask: Any, tags: np.ndarray, filled: Any, home: Any) -> None:
    """The slots of a block, then the entries that they point to."""
    if mask >= CACHED_SLOTS:
        for index in range(filled):
            prefetch(slots + ((tags[index] >> home) << LOG2_8))
        for index in range(filled):
            number = (load64(slots + ((tags[index] >> home) << LOG2_8)) & LOW) - U64(1)
            prefetch(entries + number * ENTRY)


@njit(**KERNEL)
def count_texts(places: np.ndarray, num_rows: int, tables: np.ndarray, column: int, row: int) -> tuple[int, int]:
    """Count the texts of many columns from a row of a column on; `(column, row)` where a table has no room.

    A line of `places` is `VIEWS` to `WEIGHTS`, one of `tables` as long as `NUM_FIELDS`. Both are written to where they
    tell how far it came.
    """
    tags, rows = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    while column < places.shape[0]:
        views, bits, first_bit = U64(places[column, VIEWS]), U64(places[column, BITS]), U64(places[column, FIRST_BIT])
        buffers, weights = U64(places[column, BUFFERS]), U64(places[column, WEIGHTS])
        slots, placing, mask = U64(tables[column, SLOTS]), tables[column, PLACING], U64(tables[column, MASK])
        entries, size = U64(tables[column, ENTRIES]), U64(tables[column, SIZE])
        arena, used = U64(tables[column, ARENA]), U64(tables[column, ARENA_USED])
        home = shift_of(placing)
        while row < num_rows and size + U64(BLOCK) <= U64(tables[column, CAPACITY]):
            stop, filled, needed = min(row + BLOCK, num_rows), U64(0), U64(0)
            for source in range(U64(row), U64(stop)):
                view = views + (U64(source) << LOG2_16)
                if not _is_there(bits, first_bit + U64(source)):
                    continue
                low = load64(view)
                if _length(low) <= LONGEST_INLINE:
                    tags[filled] = _tag_of_words(low, load64(view + U64(8)), placing)
                else:
                    tags[filled] = _tag_of_text(_address(view, buffers), _length(low), placing)
                    needed += _length(low)
                rows[filled] = U64(source)
                filled += U64(1)
            if used + needed > U64(tables[column, ARENA_SIZE]):
                tables[column, ARENA_NEEDED] = used + needed
                break
            row = stop
            _prefetch_block(slots, entries, mask, tags, filled, home)
            for index in range(filled):
                view, tag = views + (rows[index] << LOG2_16), tags[index]
                low, high, address = load64(view), load64(view + U64(8)), _address(view, buffers)
                position = tag >> home
                while True:
                    slot = load64(slots + (position << LOG2_8))
                    number = (slot ^ (tag << U64(32))) - U64(1)
                    entry = entries + number * ENTRY
                    if number < LOW and _is_same(entry, arena, low, high, address):
                        break
                    if slot == U64(0):
                        entry = entries + size * ENTRY
                        store64(slots + (position << LOG2_8), (tag << U64(32)) | (size + U64(1)))
                        if _length(low) > LONGEST_INLINE:
                            memcpy(arena + used, address, _length(low))
                            high = used
                            used += _length(low)
                        store64(entry, low)
                        store64(entry + U64(8), high)
                        store64(entry + U64(16), U64(0))
                        size += U64(1)
                        break
                    position = (position + U64(1)) & mask
                weight = U64(1) if weights == U64(0) else load64(weights + (rows[index] << LOG2_8))
                store64(entry + U64(16), load64(entry + U64(16)) + weight)
        tables[column, SIZE], tables[column, ARENA_USED] = size, used
        if row < num_rows:
            return column, row
        column, row = column + 1, 0
    return column, 0


@njit(**KERNEL)
def number_texts(views: int, buffers: int, num_rows: int, codes: np.ndarray, table: np.ndarray) -> int:
    """Fill an empty table with distinct texts and their codes; the row of a text that was there before, or -1.

    `table` is as for `count_texts`, and has room for all.
    """
    slots, placing, mask = U64(table[SLOTS]), table[PLACING], U64(table[MASK])
    entries, arena, used, home = U64(table[ENTRIES]), U64(table[ARENA]), U64(0), shift_of(table[PLACING])
    for row in range(num_rows):
        view, entry = U64(views) + (U64(row) << LOG2_16), entries + U64(row) * ENTRY
        low, high, address = load64(view), load64(view + U64(8)), _address(view, U64(buffers))
        is_long = _length(low) > LONGEST_INLINE
        tag = _tag_of_text(address, _length(low), placing) if is_long else _tag_of_words(low, high, placing)
        if _find(slots, home, mask, entries, arena, tag, low, high, address) != NOT_FOUND:
            return row
        if is_long:
            memcpy(arena + used, address, _length(low))
            high = used
            used += _length(low)
        store64(entry, low)
        store64(entry + U64(8), high)
        store64(entry + U64(16), U64(codes[row]))
        position = tag >> home
        while load64(slots + (position << LOG2_8)) != U64(0):
            position = (position + U64(1)) & mask
        store64(slots + (position << LOG2_8), (tag << U64(32)) | U64(row + 1))
    return -1


@njit(inline="always", **KERNEL)
def _find(
    slots: Any, home: Any, mask: Any, entries: Any, arena: Any, tag: Any, low: Any, high: Any, address: Any
) -> Any:
    """The code of a text, or -1."""
    position = tag >> home
    while True:
        slot = load64(slots + (position << LOG2_8))
        number = (slot ^ (tag << U64(32))) - U64(1)
        entry = entries + number * ENTRY
        if number < LOW and _is_same(entry, arena, low, high, address):
            return np.int64(load64(entry + U64(16)))
        if slot == U64(0):
            return NOT_FOUND
        position = (position + U64(1)) & mask


@njit(**KERNEL)
def encode_texts(places: np.ndarray, num_rows: int, tables: np.ndarray, layouts: np.ndarray, out: np.ndarray) -> None:
    """The codes `(columns, rows)` of the texts of many columns.

    Lines of `places` and `tables` are as for `count_texts`; one of `layouts` is (null code, oov code, number of
    buckets), where an unknown text has `oov code + xxh64(text) % number of buckets`.
    """
    tags = np.empty(BLOCK, np.uint64)
    for column in range(places.shape[0]):
        views, bits, first_bit = U64(places[column, VIEWS]), U64(places[column, BITS]), U64(places[column, FIRST_BIT])
        buffers = U64(places[column, BUFFERS])
        slots, placing, mask = U64(tables[column, SLOTS]), tables[column, PLACING], U64(tables[column, MASK])
        entries, arena, home = U64(tables[column, ENTRIES]), U64(tables[column, ARENA]), shift_of(placing)
        null_code, oov_code, num_buckets = layouts[column, 0], layouts[column, 1], layouts[column, 2]
        for first in range(0, num_rows, BLOCK):
            filled = min(BLOCK, num_rows - first)
            for index in range(filled):
                view = views + (U64(first + index) << LOG2_16)
                low = load64(view)
                if _length(low) <= LONGEST_INLINE:
                    tags[index] = _tag_of_words(low, load64(view + U64(8)), placing)
                elif _is_there(bits, first_bit + U64(first + index)):  # what stands in null rows leads nowhere
                    tags[index] = _tag_of_text(_address(view, buffers), _length(low), placing)
            _prefetch_block(slots, entries, mask, tags, U64(filled), home)
            for index in range(filled):
                if not _is_there(bits, first_bit + U64(first + index)):
                    out[column, first + index] = null_code
                    continue
                view = views + (U64(first + index) << LOG2_16)
                low, high, address = load64(view), load64(view + U64(8)), _address(view, buffers)
                code = _find(slots, home, mask, entries, arena, tags[index], low, high, address)
                if code == NOT_FOUND:
                    code = oov_code
                    if num_buckets > 1:
                        code += np.int64(xxh64(address, _length(low), U64(0)) % U64(num_buckets))
                out[column, first + index] = code


@njit(inline="always", **KERNEL)
def _words(address: Any, length: Any) -> tuple[Any, Any]:
    """The two words of a text's view; the second is 0 where it would say where the text lies."""
    low, high = length, U64(0)
    for index in range(min(length, U64(4))):
        low |= load8(address + U64(index)) << (U64(32) + (U64(index) << LOG2_8))
    if length <= LONGEST_INLINE:
        for index in range(U64(4), length):
            high |= load8(address + U64(index)) << ((U64(index) - U64(4)) << LOG2_8)
    return low, high


@njit(**KERNEL)
def get_text(slots: int, placing: int, mask: int, entries: int, arena: int, text: bytes) -> Any:
    """The code of one text, or -1. Plain integers come in: array arguments would cost more than the look-up."""
    address, length = bytes_address(text), U64(len(text))
    low, high = _words(address, length)
    tag = _tag_of_words(low, high, placing) if length <= LONGEST_INLINE else _tag_of_text(address, length, placing)
    return _find(U64(slots), shift_of(placing), U64(mask), U64(entries), U64(arena), tag, low, high, address)


@njit(**KERNEL)
def write_views(data: int, offsets: np.ndarray, views: np.ndarray) -> None:
    """The views `(rows, 2)` of texts that lie one behind another, taken for pieces of `1 << LOG2_PIECE` bytes."""
    for row in range(views.shape[0]):
        start, length = U64(offsets[row]), U64(offsets[row + 1] - offsets[row])
        low, high = _words(U64(data) + start, length)
        if length > LONGEST_INLINE:
            high = start >> U64(LOG2_PIECE) | (start & U64((1 << LOG2_PIECE) - 1)) << U64(32)
        views[row, 0], views[row, 1] = low, high


@njit(**KERNEL)
def text_offsets(entries: np.ndarray, offsets: np.ndarray) -> None:
    """Where the texts of entries begin when they lie one behind another, and where the last ends."""
    offsets[0] = 0
    for number in range(offsets.shape[0] - 1):
        offsets[number + 1] = offsets[number] + np.int64(_length(entries[number, 0]))


@njit(**KERNEL)
def write_texts(entries: np.ndarray, arena: int, offsets: np.ndarray, data: int) -> None:
    """The texts of entries, one behind another."""
    for number in range(offsets.shape[0] - 1):
        entry, length = U64(entries.ctypes.data) + U64(number) * ENTRY, _length(entries[number, 0])
        source = entry + U64(4) if length <= LONGEST_INLINE else U64(arena) + entries[number, 1]
        memcpy(U64(data) + U64(offsets[number]), source, length)
