"""Tables of `cpu_table` put together: what several of them have counted, one range of tags of many columns in one call.

Tables of one key place a value by the same tag, so a range of tags is a stretch of slots in each of them, and lies in
the order of its tags there. Threads that take a range each read every slot once, write to nobody else's memory, and
need the interpreter's lock once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from penstock.kernels.cpu_intrinsics import KERNEL, LOG2_4, LOG2_8, address_of, load64, prefetch, store32, store64
from penstock.kernels.cpu_table import BLOCK, COUNTS, LOW, MASK, PLACING, SLOTS, key32, shift_of
from penstock.kernels.kernel_cache import njit

if TYPE_CHECKING:
    from penstock.kernels.cpu_vocab import Counter

U64 = np.uint64
NUM_FIELDS = 1 + COUNTS  # of what `cpu_table` knows of a table; slots at 0: there is none
Piece = tuple[np.ndarray, np.ndarray]  # values and their counts


class RangeMerge:
    """Counters of several columns, to be merged range by range; together, the ranges have every value once.

    Args:
        columns: the counters of each column, for integers of one kind; all under one key.

    >>> from penstock.kernels.cpu_vocab import Counter
    >>> tables = [Counter("uint32", key=1) for _ in range(2)]
    >>> for table, keys in zip(tables, ([7, 9, 7], [5, 7])):
    ...     table.add(np.array(keys, np.uint32))
    >>> [(keys, counts)] = RangeMerge([tables]).merged(0, 1)
    >>> sorted(zip(keys.tolist(), counts.tolist()))
    [(5, 1), (7, 3), (9, 1)]
    """

    def __init__(self, columns: Sequence[Sequence[Counter]]) -> None:
        self._owners = [list(own) for own in columns]
        self._kind = columns[0][0].kind
        self._sizes = [sum(map(len, own)) for own in columns]
        self._tables = np.zeros((len(columns), max(map(len, columns)), NUM_FIELDS), np.int64)
        for place, own in enumerate(columns):
            self._tables[place, : len(own)] = [counter.table()[:NUM_FIELDS] for counter in own]

    def merged(self, number: int, num_ranges: int, room: float = 1.3) -> list[Piece]:
        """For each column the values of one range, and how often all its counters have seen them.

        Args:
            number: of the range.
            num_ranges: how many ranges there are.
            room: for how many times the average of all ranges; doubled where that is not enough.
        """
        while True:
            most = [int(size * room) // num_ranges + 64 for size in self._sizes]
            log2_slots = np.array([(2 * size - 1).bit_length() for size in most], np.int64)
            slots = np.empty(1 << int(log2_slots.max()), np.uint64)
            keys, counts = np.empty(sum(most), self._kind), np.empty(sum(most), np.int64)
            ends = np.zeros(len(most) + 1, np.int64)
            is_wide = self._kind == "uint64"
            if _merge_range(
                self._tables, is_wide, number, num_ranges, log2_slots, slots, address_of(keys), counts, ends[1:]
            ):
                return [(keys[begin:end], counts[begin:end]) for begin, end in pairwise(ends.tolist())]
            room *= 2


@njit(**KERNEL)
def _merge_range(
    tables: np.ndarray, wide: bool, number: int, num_ranges: int, log2_slots: np.ndarray, slots: np.ndarray, keys: int,
    counts: np.ndarray, ends: np.ndarray,
) -> bool:  # fmt: skip
    """The values of one range of tags with their counts, column behind column; whether there was room for them.

    Args:
        tables: `(columns, tables, NUM_FIELDS)`, those of a column under one key.
        wide: whether entries are `(key, count)` of 64 bits each; else they are counts, and tags are the keys.
        number, num_ranges: the range, and of how many.
        log2_slots: of each column, for the table to merge in; a column has no more values than half of its slots.
        slots: the memory of that table.
        keys: where values are written to, of four bytes or eight.
        counts: of the values; as many may be written.
        ends: filled in: where a column's values end.
    """
    low, high = (U64(number) << U64(32)) // U64(num_ranges), (U64(number + 1) << U64(32)) // U64(num_ranges)
    log2_entry = U64(4) if wide else LOG2_8
    base, out, at = U64(slots.ctypes.data), U64(keys), U64(0)
    tags, places = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    for column in range(tables.shape[0]):
        num_slots, first = U64(1) << U64(log2_slots[column]), at
        own_mask, most = num_slots - U64(1), min(at + (num_slots >> U64(1)), U64(counts.shape[0]))
        for index in range(num_slots):
            store64(base + (U64(index) << LOG2_8), U64(0))
        for table in range(tables.shape[1]):
            if tables[column, table, SLOTS] == 0:
                continue
            source, entries = U64(tables[column, table, SLOTS]), U64(tables[column, table, COUNTS])
            placing, mask = U64(tables[column, table, PLACING]), U64(tables[column, table, MASK])
            position, step = low >> shift_of(placing), U64(0)
            within = ((high - U64(1)) >> shift_of(placing)) - position
            more = True
            while more:
                filled = U64(0)
                while filled < U64(BLOCK):
                    slot = load64(source + (((position + step) & mask) << LOG2_8))
                    # Behind the range, up to the first empty slot, are values of it that found theirs taken.
                    if (slot == U64(0) and step > within) or step > mask:
                        more = False
                        break
                    step += U64(1)
                    tag = slot >> U64(32)
                    tags[filled], places[filled] = tag, entries + (((slot & LOW) - U64(1)) << log2_entry)
                    prefetch(places[filled])
                    filled += U64(slot != U64(0) and tag >= low and tag < high)
                for index in range(filled):
                    tag, place = tags[index], places[index]
                    key = load64(place) if wide else U64(0)
                    count = np.int64(load64(place + (U64(8) if wide else U64(0))))
                    home = ((tag - low) * U64(num_ranges) * num_slots) >> U64(32)
                    while True:
                        found = load64(base + (home << LOG2_8))
                        same = first + (found & LOW) - U64(1)
                        if found == U64(0):
                            if at == most:
                                return False
                            store64(base + (home << LOG2_8), (tag << U64(32)) | (at - first + U64(1)))
                            if wide:
                                store64(out + (at << LOG2_8), key)
                            else:
                                store32(out + (at << LOG2_4), U64(key32(tag, placing)))
                            counts[at] = count
                            at += U64(1)
                            break
                        if found >> U64(32) == tag and (not wide or load64(out + (same << LOG2_8)) == key):
                            counts[same] += count
                            break
                        home = (home + U64(1)) & own_mask
        ends[column] = at
    return True
