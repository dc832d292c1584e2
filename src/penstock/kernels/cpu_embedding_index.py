"""The index of one embedding table: from 64-bit signs to rows, by extendible hashing over open-addressed segments.

A table is described by one line of a `uint64` array (its header; the names below are its fields). The hash of a sign
chooses a segment by its upper bits, through a directory of segment addresses, and a place in it by its lower bits.
A full segment is split in two by itself, so growing never stops the world for longer than one segment takes.

An entry is 16 bytes: the sign (0 = empty), the row (32 bits) and the step that last touched it (32 bits). Rows sit in
chunks of `1 << SHIFT` rows; a chunk is the rows with their optimizer state beside them, then one scalar a row, then
one count a row (each only where the table needs it).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.kernels import cpu_xoshiro as xoshiro
from penstock.kernels.cpu_half import FLOAT32, mix, narrow_row
from penstock.kernels.cpu_intrinsics import LOG2_4, LOG2_8, ROW_KERNEL, load64
from penstock.kernels.cpu_vector import INLINED, load_u32, store_float, store_u32, store_u64
from penstock.kernels.kernel_cache import njit

# Fields of a header.
DIRECTORY, DEPTH, MASK, ROWS, PENDING, NEXT_ROW, CAPACITY, FREE, FREE_COUNT = range(9)
CHUNKS, SHIFT, STRIDE, STATE_OFFSET, SCALAR_OFFSET, COUNT_OFFSET = range(9, 15)
DIM, NUM_STATES, STORAGE, INIT, SEED, GENERATION, CROWDED, MIN_COUNT, ADMIT_BELOW, TIME_TO_LIVE, STEP = range(15, 26)
HISTORY, STAMPED, KEY, NUM_FIELDS = 26, 27, 28, 29
# Fields of a table's float settings.
INIT_A, INIT_B, STATE_0, STATE_1, SCALAR_0, FTRL_DIVISOR, FTRL_L1, NUM_SETTINGS = range(8)
UNIFORM, NORMAL, ZEROS, XOSHIRO = range(4)  # XOSHIRO: INIT_B is the width, not the upper end

ENTRY_BYTES, SEGMENT_HEADER, MAX_SEGMENT = 16, 64, 32768  # bytes, bytes, entries
ABSENT, NEED_ROWS, NEED_SPLIT = -1, -2, -3  # what `resolve` answers in place of a row
PENDING_ROW = np.uint64(0xFFFFFFFF)  # an entry that only counts: its sign is not admitted yet
_LOW32 = np.uint64(0xFFFFFFFF)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@njit(**INLINED)
def hash_of(header: np.ndarray, sign: Any) -> Any:
    """The hash by which the index places a sign: keyed for each table, so that nobody can choose signs that collide."""
    return mix(sign ^ header[KEY])


@njit(**INLINED)
def segment_of(header: np.ndarray, hashed: Any) -> Any:
    """Address of the segment that holds signs with this hash."""
    # Shifted in two steps: with depth 0 a single shift would be by 64 bits, which is undefined.
    index = (hashed >> np.uint64(1)) >> (np.uint64(63) - header[DEPTH])
    return load64(header[DIRECTORY] + (index << LOG2_8))


@njit(**INLINED)
def first_place(header: np.ndarray, sign: Any) -> Any:
    """Address where the search for a sign begins: what to prefetch."""
    hashed = hash_of(header, sign)
    return segment_of(header, hashed) + np.uint64(SEGMENT_HEADER) + ((hashed & header[MASK]) << np.uint64(4))


@njit(**INLINED)
def find_entry(header: np.ndarray, sign: Any) -> Any:
    """Address of the sign's entry, or of the empty one where it would go."""
    hashed = hash_of(header, sign)
    base, mask = segment_of(header, hashed) + np.uint64(SEGMENT_HEADER), header[MASK]
    place = hashed & mask
    while True:
        entry = base + (place << np.uint64(4))
        key = load64(entry)
        if key == sign or key == np.uint64(0):
            return entry
        place = (place + np.uint64(1)) & mask


@njit(**INLINED)
def chunk_of(header: np.ndarray, row: Any) -> Any:
    """Address of the chunk that holds a row."""
    return load64(header[CHUNKS] + ((row >> header[SHIFT]) << LOG2_8))


@njit(**INLINED)
def row_address(header: np.ndarray, row: Any) -> Any:
    """Address of a row's weights; its optimizer state follows at `STATE_OFFSET`."""
    inside = row & ((np.uint64(1) << header[SHIFT]) - np.uint64(1))
    return chunk_of(header, row) + inside * header[STRIDE]


@njit(**INLINED)
def side_address(header: np.ndarray, row: Any, offset: Any) -> Any:
    """Address of a row's scalar (`header[SCALAR_OFFSET]`) or count (`header[COUNT_OFFSET]`)."""
    inside = row & ((np.uint64(1) << header[SHIFT]) - np.uint64(1))
    return chunk_of(header, row) + offset + (inside << LOG2_4)


@njit(**ROW_KERNEL)
def initial_value(draw: Any, kind: Any, a: Any, b: Any) -> Any:
    """Uniform in [a, b), or normal with mean a and deviation b, from 64 random bits."""
    first = np.float32((draw >> np.uint64(40)) & np.uint64(0xFFFFFF)) * np.float32(2.0**-24)
    if kind == UNIFORM:
        return a + (b - a) * first
    second = np.float32((draw >> np.uint64(8)) & np.uint64(0xFFFFFF)) * np.float32(2.0**-24)
    radius = math.sqrt(np.float32(-2) * math.log(first + np.float32(2.0**-25)))
    return np.float32(a + b * radius * math.cos(np.float32(2 * math.pi) * second))


@njit(**ROW_KERNEL)
def initialise_row(header: np.ndarray, settings: np.ndarray, sign: Any, row: Any, scratch: Any) -> None:
    """Weights from the sign alone, whatever the order of arrival or the number of shards; state at its start."""
    dim, kind = np.int64(header[DIM]), np.int64(header[INIT])
    address = row_address(header, row)
    state = address + header[STATE_OFFSET]
    weights = address if header[STORAGE] == FLOAT32 else scratch
    seed = mix(sign ^ header[SEED])
    generator = (seed, seed, seed, seed)
    if kind == XOSHIRO:
        generator = xoshiro.seeded(sign ^ header[SEED])
    for i in range(dim):
        step = np.uint64(i) << LOG2_4
        value = np.float32(0)
        if kind == XOSHIRO:
            value, generator = xoshiro.drawn(generator)
            value = np.float32(value * settings[INIT_B]) + settings[INIT_A]
        elif kind != ZEROS:
            value = np.float32(
                initial_value(mix(seed + np.uint64(i + 1) * _GOLDEN), kind, settings[INIT_A], settings[INIT_B])
            )
        store_float(weights + step, value)
        if header[NUM_STATES] > 0:
            store_float(state + step, settings[STATE_0])
        if header[NUM_STATES] > 1:
            second = settings[STATE_1]
            if settings[FTRL_DIVISOR] > 0:  # the z for which FTRL's closed form gives this weight back
                shrink = settings[FTRL_L1] if value > 0 else (-settings[FTRL_L1] if value < 0 else np.float32(0))
                second = -(value * settings[FTRL_DIVISOR] + shrink)
            store_float(state + ((np.uint64(dim) + np.uint64(i)) << LOG2_4), second)
    if header[STORAGE] != FLOAT32:
        narrow_row(address, weights, dim, np.int64(header[STORAGE]), seed)
    if header[SCALAR_OFFSET] > 0:
        place = side_address(header, row, header[SCALAR_OFFSET])
        # A table with a history keeps, per row, the step up to which it has been brought (an integer).
        if header[HISTORY] > 0:
            store_u32(place, np.uint32(header[STEP]))
        else:
            store_float(place, settings[SCALAR_0])
    if header[COUNT_OFFSET] > 0:
        store_u32(side_address(header, row, header[COUNT_OFFSET]), np.uint32(0))


@njit(**INLINED)
def allocate_row(header: np.ndarray) -> Any:
    """A free row, or NEED_ROWS."""
    if header[FREE_COUNT] > 0:
        header[FREE_COUNT] -= np.uint64(1)
        return np.int64(load_u32(header[FREE] + (header[FREE_COUNT] << LOG2_4)))
    if header[NEXT_ROW] >= header[CAPACITY]:
        return NEED_ROWS
    header[NEXT_ROW] += np.uint64(1)
    return np.int64(header[NEXT_ROW] - np.uint64(1))


@njit(**INLINED)
def admitted(header: np.ndarray, sign: Any) -> Any:
    """Whether the draw that belongs to this sign lets it in."""
    limit = header[ADMIT_BELOW]  # the probability times 2⁶⁴; all ones = every sign
    return limit == np.uint64(0xFFFFFFFFFFFFFFFF) or mix(sign ^ header[SEED] ^ _GOLDEN) < limit


@njit(**INLINED)
def resolve(header: np.ndarray, settings: np.ndarray, sign: Any, clock: Any, train: bool, scratch: Any) -> Any:
    """The sign's row. Training touches it, and inserts it where admission allows; else ABSENT."""
    entry = find_entry(header, sign)
    if load64(entry) == sign:
        value = load64(entry + np.uint64(8))
        row, stamp = value & _LOW32, value >> np.uint64(32)
        if row == PENDING_ROW:
            return _count_pending(header, settings, sign, entry, clock, scratch) if train else ABSENT
        expired = header[TIME_TO_LIVE] > 0 and stamp + header[TIME_TO_LIVE] < clock
        if not train:
            return ABSENT if expired else np.int64(row)
        if expired:
            initialise_row(header, settings, sign, row, scratch)
        if header[STAMPED] > 0:
            store_u64(entry + np.uint64(8), row | (clock << np.uint64(32)))
        if header[COUNT_OFFSET] > 0:
            place = side_address(header, row, header[COUNT_OFFSET])
            store_u32(place, np.uint32(load_u32(place) + np.uint32(1)))
        return np.int64(row)
    if not train or not admitted(header, sign):
        return ABSENT
    return _insert(header, settings, sign, entry, clock, scratch)


@njit(**ROW_KERNEL)
def _insert(header: np.ndarray, settings: np.ndarray, sign: Any, entry: Any, clock: Any, scratch: Any) -> Any:
    segment = segment_of(header, hash_of(header, sign))
    count, size = load64(segment), header[MASK] + np.uint64(1)
    if count * np.uint64(8) >= size * np.uint64(7):
        return NEED_SPLIT
    row = np.int64(PENDING_ROW)
    if header[MIN_COUNT] <= 1:
        row = allocate_row(header)
        if row < 0:
            return row
    store_u64(segment, count + np.uint64(1))
    if (count + np.uint64(1)) * np.uint64(4) > size * np.uint64(3):
        header[CROWDED] = np.uint64(1)
    store_u64(entry, sign)
    if header[MIN_COUNT] > 1:  # seen once: the stamp's place counts until the sign is admitted
        store_u64(entry + np.uint64(8), PENDING_ROW | (np.uint64(1) << np.uint64(32)))
        header[PENDING] += np.uint64(1)
        return ABSENT
    _settle(header, settings, sign, np.uint64(row), entry, clock, scratch)
    return row


@njit(**ROW_KERNEL)
def _count_pending(header: np.ndarray, settings: np.ndarray, sign: Any, entry: Any, clock: Any, scratch: Any) -> Any:
    seen = (load64(entry + np.uint64(8)) >> np.uint64(32)) + np.uint64(1)
    if seen < header[MIN_COUNT]:
        store_u64(entry + np.uint64(8), PENDING_ROW | (seen << np.uint64(32)))
        return ABSENT
    row = allocate_row(header)
    if row < 0:
        return row
    header[PENDING] -= np.uint64(1)
    _settle(header, settings, sign, np.uint64(row), entry, clock, scratch)
    return row


@njit(**ROW_KERNEL)
def _settle(
    header: np.ndarray, settings: np.ndarray, sign: Any, row: Any, entry: Any, clock: Any, scratch: Any
) -> None:
    store_u64(entry + np.uint64(8), row | (clock << np.uint64(32)))
    header[ROWS] += np.uint64(1)
    initialise_row(header, settings, sign, row, scratch)
    if header[COUNT_OFFSET] > 0:
        store_u32(side_address(header, row, header[COUNT_OFFSET]), np.uint32(1))


@njit(**ROW_KERNEL)
def place_entry(header: np.ndarray, segment: Any, mask: Any, key: Any, value: Any) -> None:
    """Put an entry that is known to be new into a segment."""
    place = hash_of(header, key) & mask
    while load64(segment + np.uint64(SEGMENT_HEADER) + (place << np.uint64(4))) != np.uint64(0):
        place = (place + np.uint64(1)) & mask
    entry = segment + np.uint64(SEGMENT_HEADER) + (place << np.uint64(4))
    store_u64(entry, key)
    store_u64(entry + np.uint64(8), value)
    store_u64(segment, load64(segment) + np.uint64(1))


@njit(**ROW_KERNEL)
def redistribute(header: np.ndarray, copied: np.ndarray, mask: Any, low: Any, high: Any, bit: Any) -> None:
    """Put the entries of a copied segment into two empty ones by one bit of their hash."""
    for i in range(copied.shape[0]):
        key = copied[i, 0]
        if key != np.uint64(0):
            segment = high if (hash_of(header, key) >> bit) & np.uint64(1) else low
            place_entry(header, segment, mask, key, copied[i, 1])


@njit(**ROW_KERNEL)
def segment_counts(segments: np.ndarray, out: np.ndarray) -> None:
    """How many entries each segment holds."""
    for i in range(segments.shape[0]):
        out[i] = np.int64(load64(segments[i]))
