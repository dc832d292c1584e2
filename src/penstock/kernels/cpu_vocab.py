"""Vocabularies: `Counter` counts a column's distinct values, `Encoder` turns values into codes.

Three kinds of key: `"uint32"`, `"uint64"` (signed integers by two's complement: pass `column.view(np.uint64)`) and
`"bytes"`, given as `(data uint8[], offsets int64[n + 1])`. No key value is special: nulls come by mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.core.errors import ParameterError
from penstock.core.params import Int, OneOf, check
from penstock.core.runtime.buffers import SpareBuffers
from penstock.kernels import cpu_encode, cpu_table
from penstock.kernels.cpu_hash import BytesColumn, bytes_column, combine_hashes, hash64, hash64_one
from penstock.kernels.cpu_intrinsics import address_of, kernel_input

__all__ = [
    "KINDS",
    "Counter",
    "Encoder",
    "Encoders32",
    "combine_hashes",
    "count_side_by_side",
    "hash64",
    "hash64_one",
]

KINDS = ("uint32", "uint64", "bytes")
Keys = np.ndarray | BytesColumn
MAX_CODE = 2**32 - 3  # a slot keeps `code + 1` in 32 bits
_codes = SpareBuffers()
NO_MASK, NO_WEIGHTS = np.empty(0, np.uint8), np.empty(0, np.int64)


class Counter:
    """The distinct values of one column with their counts; values are numbered by first sight.

    Memory for 32-bit keys is 24 to 48 bytes a distinct value, for 64-bit keys 32 to 64, for byte strings 32 to 64 and
    up to twice their text; never anything per row. One thread at a time may use a counter.

    >>> counter = Counter("uint32")
    >>> counter.add(np.array([7, 9, 7, 0], np.uint32), valid=np.array([True, True, True, False]))
    >>> [part.tolist() for part in counter.items()], counter.num_rows, counter.num_null
    ([[7, 9], [2, 1]], 4, 1)
    """

    def __init__(self, kind: str, expected: int = 0, key: int | None = None) -> None:
        check("kind", kind, OneOf(KINDS))
        check("expected", expected, Int(min=0, max=2**30))
        self.kind, self.num_rows, self.num_null, self._size = kind, 0, 0, 0
        self._slots = np.zeros(_num_slots(max(expected + cpu_table.BLOCK, 512)), np.uint64)
        self._entries = self._new_entries()
        self._arena = np.empty(1024 if kind == "bytes" else 0, np.uint8)
        self.key = cpu_table.new_key() if key is None else key

    def add(self, keys: Keys, valid: np.ndarray | None = None, weights: np.ndarray | None = None) -> None:
        """Count every valid row once, or `weights[row]` times. `valid` is a mask, true where a value is there."""
        columns = _check_keys(self.kind, keys)
        num_rows = len(columns[-1]) - (self.kind == "bytes")
        mask = _check_length("valid", valid, np.uint8, num_rows)
        amounts = _check_length("weights", weights, np.int64, num_rows)
        row = 0
        while row < num_rows:
            row = self._count(columns, mask, amounts, row)
            if row < num_rows:
                self._grow(columns, row)
        self.num_rows += int(amounts.sum()) if len(amounts) else num_rows
        if len(mask):
            missing = mask == 0
            self.num_null += int(amounts[missing].sum()) if len(amounts) else int(np.count_nonzero(missing))

    def merge(self, other: Counter) -> None:
        """Add another counter's values and counts; values new to this one are appended in the other's order."""
        if other.kind != self.kind:
            raise ParameterError(f"cannot merge a counter of {other.kind} keys into one of {self.kind} keys")
        keys, counts = other.items()
        num_rows, num_null = self.num_rows + other.num_rows, self.num_null + other.num_null
        self.reserve(len(counts))
        self.add(keys, weights=counts)
        self.num_rows, self.num_null = num_rows, num_null

    def reserve(self, num_values: int) -> None:
        """Make room for so many more values at once."""
        needed = _num_slots(self._size + num_values + cpu_table.BLOCK)
        if needed > len(self._slots):
            self._enlarge(needed)

    def items(self) -> tuple[Any, np.ndarray]:
        """`(keys, counts)` in order of first sight; byte strings as `(data, offsets)`. Both are copies."""
        if self.kind == "bytes":
            offsets = self._entries[: self._size + 1, 0].copy()
            return (self._arena[: offsets[-1]].copy(), offsets), self._entries[: self._size, 1].copy()
        if self.kind == "uint64":
            return self._entries[: self._size, 0].copy(), self._entries[: self._size, 1].astype(np.int64)
        keys = np.empty(self._size, np.uint32)
        cpu_table.keys_in_order(self._slots, keys, self._placing())
        return keys, self._entries[: self._size].copy()

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """Memory held by the tables."""
        return self._slots.nbytes + self._entries.nbytes + self._arena.nbytes

    def _placing(self) -> int:
        return _placing(self.key, self._slots)

    def table(self) -> tuple[int, ...]:
        """What `cpu_table.count32_places` has to know: `SLOTS` to `SIZE` there."""
        slots, counts = self._slots, self._entries
        return address_of(slots), self._placing(), len(slots) - 1, address_of(counts), len(counts), self._size

    def _new_entries(self) -> np.ndarray:
        capacity = len(self._slots) // 2
        if self.kind == "uint32":
            return np.empty(capacity, np.int64)
        entries = np.empty((capacity + 1, 2), np.uint64 if self.kind == "uint64" else np.int64)
        entries[0] = 0  # where the first byte string starts
        return entries

    def _count(self, columns: tuple[np.ndarray, ...], valid: np.ndarray, weights: np.ndarray, row: int) -> int:
        table = (self._slots, self._placing())
        if self.kind == "bytes":
            state = (self._arena, self._entries, self._size)
            row, self._size = cpu_table.count_bytes(*columns, valid, weights, row, *table, *state)
        else:
            kernel = cpu_table.count32 if self.kind == "uint32" else cpu_table.count64
            row, self._size = kernel(*columns, valid, weights, row, *table, self._entries, self._size)
        return row

    def _grow(self, columns: tuple[np.ndarray, ...], row: int) -> None:
        """Make room for one more block: in the arena of a byte-string counter, or in the table."""
        if self._size + cpu_table.BLOCK >= len(self._slots) // 2:
            self._enlarge(2 * len(self._slots))
        if self.kind == "bytes":
            offsets = columns[1]
            used = int(self._entries[self._size, 0])
            needed = used + int(offsets[min(row + cpu_table.BLOCK, len(offsets) - 1)] - offsets[row])
            if needed > len(self._arena):
                arena = np.empty(max(needed, 2 * len(self._arena)), np.uint8)
                arena[:used] = self._arena[:used]
                self._arena = arena

    def _enlarge(self, num_slots: int) -> None:
        if num_slots > 2**32:
            raise ParameterError(f"a vocabulary of over {self._size:,} values; hash the column into buckets first")
        old_slots, old_entries = self._slots, self._entries
        self._slots = np.zeros(num_slots, np.uint64)
        cpu_table.rehash(old_slots, self._slots, self._placing())
        self._entries = self._new_entries()
        self._entries[: len(old_entries)] = old_entries


def count_side_by_side(
    counters: Sequence[Counter], places: np.ndarray, num_rows: int, null_counts: Sequence[int]
) -> None:
    """`Counter.add` for 32-bit keys of many columns in one call, each column with a counter of its own.

    Args:
        counters: of the kind `uint32`, no two of them the same.
        places: `(columns, 3)`: where a column's keys and validity bits lie (0: none), and its first bit.
        num_rows: of each column.
        null_counts: how many of them are null.

    >>> counter, keys = Counter("uint32"), np.array([7, 9, 7], np.uint32)
    >>> count_side_by_side([counter], np.array([[address_of(keys), 0, 0]]), 3, [0])
    >>> [part.tolist() for part in counter.items()]
    [[7, 9], [2, 1]]
    """
    for counter in counters:
        check("kind", counter.kind, OneOf(("uint32",)))
    tables = np.array([counter.table() for counter in counters], np.int64)
    column, row = cpu_table.count32_places(places, num_rows, tables, 0, 0)
    while column < len(counters):
        counter = counters[column]
        counter._size = int(tables[column, cpu_table.SIZE])
        counter._grow((), row)
        tables[column] = counter.table()
        column, row = cpu_table.count32_places(places, num_rows, tables, column, row)
    for counter, size, num_null in zip(counters, tables[:, cpu_table.SIZE].tolist(), null_counts, strict=True):
        counter._size = size
        counter.num_rows += num_rows
        counter.num_null += num_null


class Encoder:
    """A read-only map from values to codes in `[0, 2**32 - 3]`; any number of threads may use it at once.

    Values that are not in it get `oov_code`, or with `num_oov_buckets > 1` the code
    `oov_code + hash64(value) % num_oov_buckets` (`hash64`: see `penstock.kernels.cpu_hash`).

    >>> lookup = Encoder("uint32", np.array([7, 9], np.uint32), np.array([3, 4]))
    >>> lookup.encode(np.array([9, 1, 7], np.uint32), np.array([1, 1, 0], np.uint8), null_code=1, oov_code=2)
    array([4, 2, 1], dtype=int32)
    >>> lookup.get(9), lookup.get(8), lookup.get(8, oov_code=2)
    (4, -1, 2)
    """

    def __init__(self, kind: str, keys: Keys, codes: np.ndarray) -> None:
        check("kind", kind, OneOf(KINDS))
        columns = _check_keys(kind, keys)
        self.kind = kind
        self._size = len(columns[-1]) - (kind == "bytes")
        self._codes = kernel_input(codes, np.int64)
        if len(self._codes) != self._size:
            raise ParameterError(f"codes must be as many as keys, got {len(self._codes)} for {self._size}")
        if self._size and not 0 <= self._codes.min() <= self._codes.max() <= MAX_CODE:
            raise ParameterError(f"codes must lie in [0, {MAX_CODE}]")
        self._slots = np.zeros(_num_slots(self._size), np.uint64)
        self._placing, self._mask = _placing(cpu_table.new_key(), self._slots), len(self._slots) - 1
        if kind == "uint32":
            twice = cpu_encode.build32(*columns, self._codes, self._slots, self._placing)
            columns, self._codes = (), np.empty(0, np.int64)  # keys and codes live in the slots
        else:
            columns = tuple(np.array(column, copy=True) for column in columns)
            build = cpu_encode.build64 if kind == "uint64" else cpu_encode.build_bytes
            twice = build(*columns, self._slots, self._placing)
        if twice >= 0:
            raise ParameterError(f"keys must be distinct; the key at position {twice} was there before")
        self._columns = columns
        self._addresses = tuple(address_of(array) for array in (self._slots, *columns, self._codes))

    def encode(
        self, keys: Keys, valid: np.ndarray | None = None, null_code: int = 0, oov_code: int = -1,
        num_oov_buckets: int = 1, out: np.ndarray | None = None, dtype: Any = np.int32,
    ) -> np.ndarray:  # fmt: skip
        """The code of every row, written to `out` (any integer dtype, contiguous) or to a new array of `dtype`."""
        columns = _check_keys(self.kind, keys)
        num_rows = len(columns[-1]) - (self.kind == "bytes")
        mask = _check_length("valid", valid, np.uint8, num_rows)
        out = np.empty(num_rows, dtype) if out is None else out
        if len(out) != num_rows:
            raise ParameterError(f"out must have {num_rows} rows, got {len(out)}")
        codes = (int(null_code), int(oov_code), int(num_oov_buckets), out)
        if self.kind == "uint32":
            cpu_encode.encode32(*columns, mask, self._slots, self._placing, *codes)
        else:
            kernel = cpu_encode.encode64 if self.kind == "uint64" else cpu_encode.encode_bytes
            kernel(*columns, mask, self._slots, self._placing, *self._columns, self._codes, *codes)
        return out

    def get(self, key: int | bytes, oov_code: int = -1, num_oov_buckets: int = 1) -> int:
        """The code of one value. Negative integers stand for their two's complement."""
        if self.kind == "bytes":
            slots, arena, offsets, codes = self._addresses
            code = cpu_encode.get_bytes(slots, self._placing, self._mask, arena, offsets, codes, key)
        elif self.kind == "uint32":
            if not -(2**31) <= key < 2**32:  # type: ignore[operator]
                return self._unknown(key, oov_code, num_oov_buckets)
            code = cpu_encode.get32(self._addresses[0], self._placing, self._mask, int(key))
        else:
            key = int(key)
            slots, keys, codes = self._addresses
            # Always a signed argument: numba would compile a second version for integers above 2**63.
            code = cpu_encode.get64(slots, self._placing, self._mask, keys, codes, key - 2**64 if key >= 2**63 else key)
        return code if code >= 0 else self._unknown(key, oov_code, num_oov_buckets)

    def _unknown(self, key: int | bytes, oov_code: int, num_oov_buckets: int) -> int:
        if num_oov_buckets <= 1:
            return oov_code
        if self.kind == "uint32" and int(key) < 0:
            key = int(key) + 2**32
        return oov_code + hash64_one(key) % num_oov_buckets

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """Memory held by the table."""
        return self._slots.nbytes + self._codes.nbytes + sum(column.nbytes for column in self._columns)


class Encoders32:
    """Look-ups of 32-bit keys side by side: the few rows of many columns in one call.

    >>> one, two = (Encoder("uint32", np.array(keys, np.uint32), np.array([3, 4])) for keys in ([7, 9], [5, 7]))
    >>> both = Encoders32([one, two], [(1, 2, 1), (1, 2, 1)])
    >>> both.encode(np.array([[9, 1], [7, 0]], np.uint32), np.array([[True, True], [True, False]]), np.int32)
    array([[4, 2],
           [4, 1]], dtype=int32)
    """

    def __init__(self, lookups: Sequence[Encoder], layouts: Sequence[tuple[int, int, int]]) -> None:
        for lookup in lookups:
            check("kind", lookup.kind, OneOf(("uint32",)))
        self._lookups = list(lookups)  # what the addresses point into
        self._tables = np.array([(own._addresses[0], own._placing, own._mask) for own in lookups], np.uint64)
        self._layouts = np.array(layouts, np.int64)

    def encode(self, keys: np.ndarray, valid: np.ndarray, dtype: Any) -> np.ndarray:
        """The codes of `keys` `(columns, rows)`, by each column's layout: null code, oov code, number of buckets."""
        if keys.dtype != np.uint32 or valid.dtype != np.bool_ or keys.shape != valid.shape:
            raise ParameterError(f"keys must be uint32 and valid bool of one shape, got {keys.dtype} and {valid.dtype}")
        if len(keys) != len(self._lookups):
            raise ParameterError(f"keys must have a line for each of {len(self._lookups)} columns, got {len(keys)}")
        out = np.empty(keys.shape, dtype)
        tables = (self._tables, self._layouts)
        cpu_encode.encode32_columns(np.ascontiguousarray(keys), np.ascontiguousarray(valid), *tables, out)
        return out

    def encode_places(self, places: np.ndarray, num_rows: int, dtype: Any) -> np.ndarray:
        """The same, `(columns, rows)`, of keys that lie anywhere: `places` as `count_side_by_side` takes them."""
        if len(places) != len(self._lookups):
            raise ParameterError(f"places must have a line for each of {len(self._lookups)} columns, got {len(places)}")
        out = _codes.array((len(places), num_rows), dtype)
        cpu_encode.encode32_places(places, num_rows, self._tables, self._layouts, out)
        return out


def _placing(key: int, slots: np.ndarray) -> int:
    """What kernels find a value's home by (see `cpu_table`)."""
    return key << 6 | (33 - len(slots).bit_length())


def _num_slots(size: int) -> int:
    """The power of two that keeps a table of `size` keys at most half full."""
    return 1 << max(10, (2 * size - 1).bit_length() if size else 0)


def _check_keys(kind: str, keys: Keys) -> tuple[np.ndarray, ...]:
    """Keys of the right dtype as the arrays that kernels take."""
    if kind == "bytes":
        if not isinstance(keys, tuple) or len(keys) != 2:
            raise ParameterError("keys of kind bytes are given as (data, offsets)")
        return bytes_column(keys)
    if not isinstance(keys, np.ndarray) or keys.dtype != np.dtype(kind) or keys.ndim != 1:
        what = f"{keys.dtype} array" if isinstance(keys, np.ndarray) else type(keys).__name__
        raise ParameterError(f"keys must be a 1-D array of {kind}, got {what}")
    return (kernel_input(keys),)


def _check_length(name: str, array: np.ndarray | None, dtype: Any, num_rows: int) -> np.ndarray:
    if array is None:
        return NO_MASK if dtype is np.uint8 else NO_WEIGHTS
    array = kernel_input(array, dtype)
    if len(array) != num_rows:
        raise ParameterError(f"{name} must have one entry per row ({num_rows}), got {len(array)}")
    return array
