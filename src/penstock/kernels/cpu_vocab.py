"""Vocabularies of integers: `Counter` counts a column's distinct values, `Encoder` turns values into codes.

Two kinds of key: `"uint32"` and `"uint64"` (signed integers by two's complement: pass `column.view(np.uint64)`). No key
value is special: nulls come by mask. Texts: `cpu_text_vocab`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.core.errors import ParameterError
from penstock.core.params import Int, OneOf, check
from penstock.core.runtime.buffers import SpareBuffers
from penstock.kernels import cpu_encode, cpu_table
from penstock.kernels.cpu_hash import combine_hashes, hash64, hash64_one
from penstock.kernels.cpu_intrinsics import address_of, kernel_input
from penstock.kernels.cpu_table import check_codes, check_length, larger, num_slots, placing_of

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

KINDS = ("uint32", "uint64")
_codes = SpareBuffers()


class Counter:
    """The distinct values of one column with their counts; values are numbered by first sight.

    Memory for 32-bit keys is 24 to 48 bytes a distinct value, for 64-bit keys 32 to 64; never anything per row. One
    thread at a time may use a counter.

    >>> counter = Counter("uint32")
    >>> counter.add(np.array([7, 9, 7, 0], np.uint32), valid=np.array([True, True, True, False]))
    >>> [part.tolist() for part in counter.items()], counter.num_rows, counter.num_null
    ([[7, 9], [2, 1]], 4, 1)
    """

    def __init__(self, kind: str, expected: int = 0, key: int | None = None) -> None:
        check("kind", kind, OneOf(KINDS))
        check("expected", expected, Int(min=0, max=2**30))
        self.kind, self.num_rows, self.num_null, self._size = kind, 0, 0, 0
        self._slots = np.zeros(num_slots(max(expected + cpu_table.BLOCK, 512)), np.uint64)
        self._entries = self._new_entries()
        self.key = cpu_table.new_key() if key is None else key

    def add(self, keys: np.ndarray, valid: np.ndarray | None = None, weights: np.ndarray | None = None) -> None:
        """Count every valid row once, or `weights[row]` times. `valid` is a mask, true where a value is there."""
        keys = _check_keys(self.kind, keys)
        num_rows, row = len(keys), 0
        mask = check_length("valid", valid, np.uint8, num_rows)
        amounts = check_length("weights", weights, np.int64, num_rows)
        kernel = cpu_table.count32 if self.kind == "uint32" else cpu_table.count64
        while row < num_rows:
            table = (self._slots, self._placing(), self._entries, self._size)
            row, self._size = kernel(keys, mask, amounts, row, *table)
            if row < num_rows:
                self._grow()
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
        needed = num_slots(self._size + num_values + cpu_table.BLOCK)
        if needed > len(self._slots):
            self._enlarge(needed)

    def items(self) -> tuple[np.ndarray, np.ndarray]:
        """`(keys, counts)` in order of first sight. Both are copies."""
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
        return self._slots.nbytes + self._entries.nbytes

    def _placing(self) -> int:
        return placing_of(self.key, self._slots)

    def table(self) -> tuple[int, ...]:
        """What `cpu_table.count32_places` has to know: `SLOTS` to `SIZE` there."""
        slots, counts = self._slots, self._entries
        return address_of(slots), self._placing(), len(slots) - 1, address_of(counts), len(counts), self._size

    def _new_entries(self) -> np.ndarray:
        capacity = len(self._slots) // 2
        return np.empty(capacity, np.int64) if self.kind == "uint32" else np.empty((capacity, 2), np.uint64)

    def _grow(self) -> None:
        """Make room for one more block."""
        if self._size + cpu_table.BLOCK >= len(self._slots) // 2:
            self._enlarge(2 * len(self._slots))

    def _enlarge(self, wanted: int) -> None:
        self._slots, old = larger(self._slots, wanted, self.key), self._entries
        self._entries = self._new_entries()
        self._entries[: len(old)] = old


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
        counter._grow()
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

    def __init__(self, kind: str, keys: np.ndarray, codes: np.ndarray) -> None:
        check("kind", kind, OneOf(KINDS))
        keys = _check_keys(kind, keys)
        self.kind, self._size = kind, len(keys)
        self._codes = check_codes(codes, self._size)
        self._slots = np.zeros(num_slots(self._size), np.uint64)
        self._placing, self._mask = placing_of(cpu_table.new_key(), self._slots), len(self._slots) - 1
        if kind == "uint32":
            twice = cpu_encode.build32(keys, self._codes, self._slots, self._placing)
            self._keys, self._codes = np.empty(0, np.uint64), np.empty(0, np.int64)  # both live in the slots
        else:
            self._keys = np.array(keys, copy=True)
            twice = cpu_encode.build64(self._keys, self._slots, self._placing)
        if twice >= 0:
            raise ParameterError(f"keys must be distinct; the key at position {twice} was there before")
        self._addresses = tuple(address_of(array) for array in (self._slots, self._keys, self._codes))

    def encode(
        self, keys: np.ndarray, valid: np.ndarray | None = None, null_code: int = 0, oov_code: int = -1,
        num_oov_buckets: int = 1, out: np.ndarray | None = None, dtype: Any = np.int32,
    ) -> np.ndarray:  # fmt: skip
        """The code of every row, written to `out` (any integer dtype, contiguous) or to a new array of `dtype`."""
        keys = _check_keys(self.kind, keys)
        mask = check_length("valid", valid, np.uint8, len(keys))
        out = np.empty(len(keys), dtype) if out is None else out
        if len(out) != len(keys):
            raise ParameterError(f"out must have {len(keys)} rows, got {len(out)}")
        codes = (int(null_code), int(oov_code), int(num_oov_buckets), out)
        if self.kind == "uint32":
            cpu_encode.encode32(keys, mask, self._slots, self._placing, *codes)
        else:
            cpu_encode.encode64(keys, mask, self._slots, self._placing, self._keys, self._codes, *codes)
        return out

    def get(self, key: int, oov_code: int = -1, num_oov_buckets: int = 1) -> int:
        """The code of one value. Negative integers stand for their two's complement."""
        slots, keys, codes = self._addresses
        if self.kind == "uint32":
            if not -(2**31) <= key < 2**32:
                return self._unknown(key, oov_code, num_oov_buckets)
            code = cpu_encode.get32(slots, self._placing, self._mask, int(key))
        else:
            key = int(key)
            # Always a signed argument: numba would compile a second version for integers above 2**63.
            code = cpu_encode.get64(slots, self._placing, self._mask, keys, codes, key - 2**64 if key >= 2**63 else key)
        return code if code >= 0 else self._unknown(key, oov_code, num_oov_buckets)

    def _unknown(self, key: int, oov_code: int, num_oov_buckets: int) -> int:
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
        return self._slots.nbytes + self._keys.nbytes + self._codes.nbytes


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


def _check_keys(kind: str, keys: np.ndarray) -> np.ndarray:
    """Keys of the right dtype as kernels take them."""
    if not isinstance(keys, np.ndarray) or keys.dtype != np.dtype(kind) or keys.ndim != 1:
        what = f"{keys.dtype} array" if isinstance(keys, np.ndarray) else type(keys).__name__
        raise ParameterError(f"keys must be a 1-D array of {kind}, got {what}")
    return kernel_input(keys)
