"""One vocabulary: every value seen with its count, and the codes given to those that are frequent enough.

Counting is mergeable and independent of order. When a memory limit is set, counts beyond it are spilled to disk in
hash buckets, so that finishing needs one bucket at a time in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from penstock.core.errors import ArtefactError
from penstock.data.keys import from_keys, stable_hashes, to_keys
from penstock.data.scratch import Scratch

VALUE, COUNT, CODE = "value", "count", "code"


class ValueCounts:
    """Counts of values of one dtype; the state that Categorify merges.

    >>> counts = ValueCounts(pl.String())
    >>> counts.add(pl.Series(["a", "b", "a", None]))
    >>> counts.frame().sort("value").rows(), counts.num_null
    ([('a', 2), ('b', 1)], 1)
    """

    def __init__(self, dtype: pl.DataType, memory_limit: int | None = None, num_buckets: int = 1) -> None:
        self.dtype, self.memory_limit, self.num_buckets = dtype, memory_limit, num_buckets
        self.num_rows = self.num_null = 0
        self._counter: Any = None
        self._runs: list[list[Path]] = []  # spilled: one file a bucket
        self._scratch: list[Scratch] = []
        self._saved: Path | None = None  # counts of rare values that stand in a saved workflow
        self._known: pl.DataFrame | None = None

    def add(self, series: pl.Series) -> None:
        """Count a column's values."""
        keys = to_keys(series)
        self._table(keys.kind).add(keys.values, keys.valid)
        self.num_rows += len(series)
        self.num_null += 0 if keys.valid is None else int(len(series) - np.count_nonzero(keys.valid))
        self._spill_if_large()

    def add_counts(self, values: pl.Series, counts: np.ndarray) -> None:
        """Count values that were counted before."""
        keys = to_keys(values.cast(self.dtype))
        self._table(keys.kind).add(keys.values, keys.valid, np.asarray(counts, np.int64))
        self._spill_if_large()

    def _table(self, kind: str) -> Any:
        if self._counter is None:
            from penstock.kernels.cpu_vocab import Counter

            self._counter = Counter(kind)
        return self._counter

    def merge(self, other: ValueCounts) -> ValueCounts:
        """Both counts as one; the larger table takes the smaller."""
        self._load_saved()
        other._load_saved()
        large, small = (self, other) if self.num_held >= other.num_held else (other, self)
        large.num_rows += small.num_rows
        large.num_null += small.num_null
        large._runs = [*large._runs, *small._runs]
        large._scratch = [*large._scratch, *small._scratch]
        if small._counter is not None:
            if large._counter is None:
                large._counter = small._counter
            else:
                large._counter.merge(small._counter)
        large._spill_if_large()
        return large

    @property
    def num_held(self) -> int:
        """Distinct values in memory."""
        return 0 if self._counter is None else len(self._counter)

    @property
    def is_spilled(self) -> bool:
        return bool(self._runs)

    def _spill_if_large(self) -> None:
        if self.memory_limit is None or self._counter is None or self._counter.nbytes <= self.memory_limit:
            return
        scratch = Scratch()
        run = []
        for bucket, frame in enumerate(self._bucketed(self._table_frame())):
            path = scratch.path / f"bucket-{bucket:04d}.parquet"
            frame.write_parquet(path, compression="lz4")
            run.append(path)
        self._runs.append(run)
        self._scratch.append(scratch)
        self._counter = None

    def _table_frame(self) -> pl.DataFrame:
        if self._counter is None:
            return pl.DataFrame(schema={VALUE: self.dtype, COUNT: pl.Int64})
        keys, counts = self._counter.items()
        return pl.DataFrame({VALUE: from_keys(keys, self.dtype), COUNT: counts})

    def _bucketed(self, frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
        buckets = stable_hashes(frame[VALUE]) % np.uint64(self.num_buckets)
        for bucket in range(self.num_buckets):
            yield frame.filter(pl.Series(buckets == bucket))

    def frames(self) -> Iterator[pl.DataFrame]:
        """Values with their total counts, in pieces that fit in memory; each value stands in one piece."""
        self._load_saved()
        if not self.is_spilled:
            yield self._table_frame()
            return
        for bucket, rest in enumerate(self._bucketed(self._table_frame())):
            pieces = [rest, *(pl.read_parquet(run[bucket]) for run in self._runs)]
            yield pl.concat(pieces).group_by(VALUE).agg(pl.col(COUNT).sum())

    def frame(self) -> pl.DataFrame:
        """All values with their counts."""
        return pl.concat(list(self.frames()))

    def hold(self, known: pl.DataFrame, rare: Path) -> None:
        """Counts from a saved workflow: known values now, the many rare ones only when more data comes."""
        self._known, self._saved = known.select(VALUE, COUNT), rare

    def _load_saved(self) -> None:
        if self._saved is not None:
            path, self._saved = self._saved, None
            if not path.is_file():
                raise ArtefactError(f"{path} is gone; updating needs the folder that the workflow was loaded from")
            assert self._known is not None
            for frame in (self._known, pl.read_parquet(path)):
                self.add_counts(frame[VALUE], frame[COUNT].to_numpy())

    # Other processes get the counts, not the table: it is rebuilt, and its arrays are writable, over there.

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state["_counter"] = None if self._counter is None else self._table_frame()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        frame = state.pop("_counter")
        self.__dict__.update(state)
        self._counter = None
        if frame is not None:
            self.add_counts(frame[VALUE], frame[COUNT].to_numpy())


class Vocabulary:
    """The values that have a code, in the order of their codes, with a table to look them up.

    >>> counts = ValueCounts(pl.String())
    >>> counts.add(pl.Series(["b", "a", "b", "c", "c"]))
    >>> Vocabulary.chosen(counts, freq_threshold=2, most=None).values.to_list()
    ['b', 'c']
    """

    def __init__(self, values: pl.Series, counts: np.ndarray | None = None) -> None:
        self.values = values
        self.counts = np.zeros(len(values), np.int64) if counts is None else np.asarray(counts, np.int64)
        self._lookup: Any = None
        self._first = 0

    @classmethod
    def chosen(
        cls, counts: ValueCounts, freq_threshold: int, most: int | None, known: Vocabulary | None = None
    ) -> Vocabulary:
        """The values seen often enough, by falling count, ties by value; those of `known` keep their places."""
        before = pl.Series(VALUE, [], dtype=counts.dtype) if known is None else known.values
        kept, again = [], []
        for frame in counts.frames():
            old = frame.filter(pl.col(VALUE).is_in(before.implode())) if len(before) else frame.clear()
            again.append(old)
            fresh = frame.filter(pl.col(COUNT) >= freq_threshold) if freq_threshold > 1 else frame
            if len(before):
                fresh = fresh.join(old, on=VALUE, how="anti")
            kept.append(fresh)
            if most is not None and len(kept) > 1:  # never hold more than can be chosen
                kept = [pl.concat(kept).sort([COUNT, VALUE], descending=[True, False]).head(most)]
        new = pl.concat(kept).sort([COUNT, VALUE], descending=[True, False])
        if most is not None:
            new = new.head(max(0, most - len(before)))
        old = pl.DataFrame({VALUE: before}).join(pl.concat(again), on=VALUE, how="left", maintain_order="left")
        whole = pl.concat([old.with_columns(pl.col(COUNT).fill_null(0)), new])
        return cls(whole[VALUE], whole[COUNT].to_numpy())

    def __len__(self) -> int:
        return len(self.values)

    def lookup(self, first: int) -> Any:
        """The table from values to `first` + place, built when it is first needed."""
        if self._lookup is None or self._first != first:
            from penstock.kernels.cpu_vocab import Lookup

            keys = to_keys(self.values)
            codes = np.arange(first, first + len(self.values))
            self._lookup, self._first = Lookup(keys.kind, keys.values, codes), first
        return self._lookup

    def encode(
        self, series: pl.Series, first: int, null_code: int, oov_code: int, num_buckets: int, dtype: np.dtype
    ) -> np.ndarray:
        """Codes of a column: `first` + place in the vocabulary."""
        if series.dtype != self.values.dtype:
            series = series.cast(self.values.dtype)
        keys = to_keys(series)
        return self.lookup(first).encode(keys.values, keys.valid, null_code, oov_code, num_buckets, dtype=dtype)

    def code_of(self, value: Any, first: int, null_code: int, oov_code: int, num_buckets: int) -> int:
        """The code of one value."""
        if value is None:
            return null_code
        if isinstance(value, str):
            return self.lookup(first).get(value.encode(), oov_code, num_buckets)
        if type(value) is int and self.values.dtype.is_integer():
            return self.lookup(first).get(value, oov_code, num_buckets)
        series = pl.Series([value], dtype=self.values.dtype)
        return int(self.encode(series, first, null_code, oov_code, num_buckets, np.dtype(np.int64))[0])

    def decode(self, codes: np.ndarray, first: int) -> pl.Series:
        """The values behind codes; reserved codes become null."""
        places = codes.astype(np.int64) - first
        inside = (places >= 0) & (places < len(self.values))
        taken = self.values.gather(pl.Series(np.where(inside, places, 0))) if len(self.values) else None
        if taken is None:
            return pl.Series([None] * len(codes), dtype=self.values.dtype)
        return taken.zip_with(pl.Series(inside), pl.Series([None], dtype=taken.dtype).new_from_index(0, len(taken)))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lookup": None}  # the table holds addresses; it is rebuilt where it is needed
