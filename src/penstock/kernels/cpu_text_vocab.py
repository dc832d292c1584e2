"""Vocabularies of texts: what `cpu_vocab` has for integers, over the tables of `cpu_text_table`.

Texts come as `(data uint8[], offsets int64[n + 1])`, or as `places`: where the string views of columns lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.core.errors import ParameterError
from penstock.core.runtime.buffers import SpareBuffers
from penstock.kernels import cpu_table
from penstock.kernels import cpu_text_table as kernels
from penstock.kernels.cpu_hash import BytesColumn, bytes_column, hash64_one
from penstock.kernels.cpu_intrinsics import address_of
from penstock.kernels.cpu_table import check_codes, check_length, larger, num_slots, placing_of

_codes = SpareBuffers()


class TextCounter:
    """The distinct texts of one column with their counts; texts are numbered by first sight.

    Memory is 40 to 80 bytes a distinct text, and up to twice the text itself where it is longer than twelve bytes. One
    thread at a time may use a counter.

    >>> counter = TextCounter()
    >>> counter.add((np.frombuffer(b"abbab", np.uint8), np.array([0, 1, 2, 3, 5])))
    >>> (data, offsets), counts = counter.items()
    >>> bytes(data), offsets.tolist(), counts.tolist()
    (b'abab', [0, 1, 2, 4], [1, 2, 1])
    """

    kind = "bytes"

    def __init__(self, expected: int = 0, key: int | None = None) -> None:
        self.num_rows, self.num_null, self._size, self._used = 0, 0, 0, 0
        self.key = cpu_table.new_key() if key is None else key
        self._slots = np.zeros(num_slots(max(expected + cpu_table.BLOCK, 512)), np.uint64)
        self._entries = self._new_entries()
        self._arena = np.empty(0, np.uint8)

    def add(self, keys: BytesColumn, valid: np.ndarray | None = None, weights: np.ndarray | None = None) -> None:
        """Count every valid row once, or `weights[row]` times. `valid` is a mask, true where a text is there."""
        column = _Column(keys, valid, weights)
        amounts = column.weights
        count_texts_side_by_side([self], column.places, column.num_rows, [0])
        if len(amounts):
            self.num_rows += int(amounts.sum()) - column.num_rows
        if valid is not None:
            missing = ~np.asarray(valid, np.bool_)
            self.num_null += int(amounts[missing].sum()) if len(amounts) else int(np.count_nonzero(missing))

    def merge(self, other: TextCounter) -> None:
        """Add another counter's texts and counts; texts new to this one are appended in the other's order."""
        if other.kind != self.kind:
            raise ParameterError(f"cannot merge a counter of {other.kind} keys into one of {self.kind} keys")
        keys, counts = other.items()
        num_rows, num_null = self.num_rows + other.num_rows, self.num_null + other.num_null
        self.reserve(len(counts))
        self.add(keys, weights=counts)
        self.num_rows, self.num_null = num_rows, num_null

    def reserve(self, num_values: int) -> None:
        """Make room for so many more texts at once."""
        needed = num_slots(self._size + num_values + cpu_table.BLOCK)
        if needed > len(self._slots):
            self._enlarge(needed)

    def items(self) -> tuple[BytesColumn, np.ndarray]:
        """`((data, offsets), counts)` in order of first sight. All are copies."""
        offsets = np.empty(self._size + 1, np.int64)
        kernels.text_offsets(self._entries, offsets)
        data = np.empty(int(offsets[-1]), np.uint8)
        kernels.write_texts(self._entries, address_of(self._arena), offsets, address_of(data))
        return (data, offsets), self._entries[: self._size, 2].astype(np.int64)

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """Memory held by the table."""
        return self._slots.nbytes + self._entries.nbytes + self._arena.nbytes

    def table(self) -> tuple[int, ...]:
        """What `cpu_text_table.count_texts` has to know."""
        slots, entries, arena = self._slots, self._entries, self._arena
        hashing = (address_of(slots), placing_of(self.key, slots), len(slots) - 1)
        return *hashing, address_of(entries), len(entries), self._size, address_of(arena), self._used, len(arena), 0

    def grow(self, table: np.ndarray) -> None:
        """Take over what a kernel has done with the table, and make room for one more block of rows."""
        self.settle(table)
        if self._size + cpu_table.BLOCK >= len(self._slots) // 2:
            self._enlarge(2 * len(self._slots))
        if (needed := int(table[kernels.ARENA_NEEDED])) > len(self._arena):
            arena = np.empty(max(needed, 2 * len(self._arena)), np.uint8)
            arena[: self._used] = self._arena[: self._used]
            self._arena = arena

    def settle(self, table: np.ndarray) -> None:
        """Take over what a kernel has done with the table."""
        self._size, self._used = int(table[cpu_table.SIZE]), int(table[kernels.ARENA_USED])

    def _new_entries(self) -> np.ndarray:
        return np.empty((len(self._slots) // 2, kernels.ENTRY_WORDS), np.uint64)

    def _enlarge(self, wanted: int) -> None:
        self._slots, old = larger(self._slots, wanted, self.key), self._entries
        self._entries = self._new_entries()
        self._entries[: len(old)] = old


def count_texts_side_by_side(
    counters: Sequence[TextCounter], places: np.ndarray, num_rows: int, null_counts: Sequence[int]
) -> None:
    """Count the texts of many columns in one call, each column with a counter of its own.

    Args:
        counters: no two of them the same.
        places: `(columns, 5)`, as `cpu_text_table` says.
        num_rows: of each column.
        null_counts: how many of them are null.
    """
    tables = np.array([counter.table() for counter in counters], np.int64)
    column, row = kernels.count_texts(places, num_rows, tables, 0, 0)
    while column < len(counters):
        counters[column].grow(tables[column])
        tables[column] = counters[column].table()
        column, row = kernels.count_texts(places, num_rows, tables, column, row)
    for counter, table, num_null in zip(counters, tables, null_counts, strict=True):
        counter.settle(table)
        counter.num_rows += num_rows
        counter.num_null += num_null


class TextEncoder:
    """A read-only map from texts to codes in `[0, 2**32 - 3]`; any number of threads may use it at once.

    Texts that are not in it get `oov_code`, or with `num_oov_buckets > 1` the code
    `oov_code + hash64(text) % num_oov_buckets` (`hash64`: see `penstock.kernels.cpu_hash`).

    >>> lookup = TextEncoder((np.frombuffer(b"abc", np.uint8), np.array([0, 1, 3])), np.array([3, 4]))
    >>> lookup.get(b"bc"), lookup.get(b"b"), lookup.get(b"b", oov_code=2)
    (4, -1, 2)
    """

    kind = "bytes"

    def __init__(self, keys: BytesColumn, codes: np.ndarray) -> None:
        column = _Column(keys)
        self._size = column.num_rows
        codes = check_codes(codes, self._size)
        self._slots = np.zeros(num_slots(self._size), np.uint64)
        self._entries = np.empty((self._size, kernels.ENTRY_WORDS), np.uint64)
        lengths = np.diff(column.offsets)
        self._arena = np.empty(int(lengths[lengths > kernels.LONGEST_INLINE].sum()), np.uint8)
        hashing = (address_of(self._slots), placing_of(cpu_table.new_key(), self._slots), len(self._slots) - 1)
        arena = (address_of(self._arena), 0, len(self._arena), 0)
        self.table = np.array((*hashing, address_of(self._entries), self._size, 0, *arena), np.int64)
        self._addresses = (*hashing, address_of(self._entries), address_of(self._arena))
        views, buffers = (int(column.places[0, place]) for place in (kernels.VIEWS, kernels.BUFFERS))
        twice = kernels.number_texts(views, buffers, self._size, codes, self.table)
        if twice >= 0:
            raise ParameterError(f"keys must be distinct; the key at position {twice} was there before")

    def encode(
        self, keys: BytesColumn, valid: np.ndarray | None = None, null_code: int = 0, oov_code: int = -1,
        num_oov_buckets: int = 1, dtype: Any = np.int32,
    ) -> np.ndarray:  # fmt: skip
        """The code of every row."""
        column, layout = _Column(keys, valid), (int(null_code), int(oov_code), int(num_oov_buckets))
        codes = TextEncoders([self], [layout]).encode_places(column.places, column.num_rows, dtype)
        return codes[0]

    def get(self, key: bytes, oov_code: int = -1, num_oov_buckets: int = 1) -> int:
        """The code of one text."""
        code: int = kernels.get_text(*self._addresses, key)
        if code >= 0:
            return code
        return oov_code + hash64_one(key) % num_oov_buckets if num_oov_buckets > 1 else oov_code

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """Memory held by the table."""
        return self._slots.nbytes + self._entries.nbytes + self._arena.nbytes


class TextEncoders:
    """Look-ups of texts side by side: many columns in one call.

    Args:
        lookups: one a column.
        layouts: of each, the null code, the oov code and the number of buckets.
    """

    def __init__(self, lookups: Sequence[TextEncoder], layouts: Sequence[tuple[int, int, int]]) -> None:
        self._lookups = list(lookups)  # what the addresses point into
        self._tables = np.array([own.table for own in lookups], np.int64)
        self._layouts = np.array(layouts, np.int64)

    def encode_places(self, places: np.ndarray, num_rows: int, dtype: Any) -> np.ndarray:
        """The codes `(columns, rows)` of texts whose views lie anywhere: `places` as `count_texts` takes them."""
        if len(places) != len(self._lookups):
            raise ParameterError(f"places must have a line for each of {len(self._lookups)} columns, got {len(places)}")
        out = _codes.array((len(places), num_rows), dtype)
        kernels.encode_texts(places, num_rows, self._tables, self._layouts, out)
        return out


class _Column:
    """Texts as `(data, offsets)`, with the views that kernels take; it keeps what `places` points to."""

    def __init__(self, keys: BytesColumn, valid: np.ndarray | None = None, weights: np.ndarray | None = None) -> None:
        if not isinstance(keys, tuple) or len(keys) != 2:
            raise ParameterError("keys of kind bytes are given as (data, offsets)")
        self.data, self.offsets = bytes_column(keys)
        self.num_rows = len(self.offsets) - 1
        self.weights = check_length("weights", weights, np.int64, self.num_rows)
        self.views = np.empty((self.num_rows, 2), np.uint64)
        start = address_of(self.data)
        kernels.write_views(start, self.offsets, self.views)
        pieces = range(start, start + max(1, len(self.data)), 1 << kernels.LOG2_PIECE)
        self.buffers = np.array(pieces, np.int64)
        self.bits = np.empty(0, np.uint8)
        if valid is not None:
            self.bits = np.packbits(check_length("valid", valid, np.uint8, self.num_rows) != 0, bitorder="little")
        masked = address_of(self.bits) if valid is not None else 0
        amounts = address_of(self.weights) if len(self.weights) else 0
        self.places = np.array([(address_of(self.views), masked, 0, address_of(self.buffers), amounts)], np.int64)
