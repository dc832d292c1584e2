"""One vocabulary: every value seen with its count, and the codes given to those that are frequent enough.

Counting is mergeable and independent of order. When a memory limit is set, counts beyond it are spilled to disk in
hash buckets, so that finishing needs one bucket at a time in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from penstock.core.artefact import SavedFile
from penstock.core.conversion import held
from penstock.core.dtypes import canonical
from penstock.core.errors import DataError
from penstock.core.times import series_of
from penstock.data.keys import as_texts, from_keys, key_kind, stable_hashes, to_keys
from penstock.data.places import places_of, text_places_of
from penstock.data.scratch import Scratch
from penstock.engine import Engine
from penstock.etl.ranged_counts import RangedCounter, new_counter

VALUE, COUNT, CODE = "value", "count", "code"


@dataclass(frozen=True)
class Codes:
    """How one vocabulary's codes are laid out: null, out of vocabulary (one or more), then the vocabulary.

    `later` lists `(place, code)`: from that place on, values have the codes from that code on.
    """

    null: int
    oov: int
    num_buckets: int
    later: tuple[tuple[int, int], ...] = ()

    @property
    def first(self) -> int:
        return self.oov + self.num_buckets

    def shifted(self, by: int, later: tuple[tuple[int, int], ...] = ()) -> Codes:
        return Codes(self.null + by, self.oov + by, self.num_buckets, later)


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
        self._saved: SavedFile | None = None  # counts of rare values that stand in a saved workflow
        self._known: pl.DataFrame | None = None

    def add(self, series: pl.Series) -> None:
        """Count a column's values."""
        if key_kind(series.dtype) == "bytes":
            self.add_texts([self], [series])
            return
        keys = to_keys(series)
        self._table(keys.kind).add(keys.values, keys.valid)
        self.note_rows(len(series), 0 if keys.valid is None else int(len(series) - np.count_nonzero(keys.valid)))

    @staticmethod
    def add_integers(counts: Sequence[ValueCounts], frame: pl.DataFrame, names: Sequence[str]) -> None:
        """Count columns of 32-bit integers side by side, each into counts of its own."""
        from penstock.kernels.cpu_vocab import count_side_by_side

        places = places_of(frame, names)
        count_side_by_side([own._table("uint32") for own in counts], places.table, places.num_rows, places.null_counts)
        for own, num_null in zip(counts, places.null_counts, strict=True):
            own.note_rows(places.num_rows, num_null)

    @staticmethod
    def add_texts(counts: Sequence[ValueCounts], columns: Sequence[pl.Series]) -> None:
        """Count columns of texts side by side, each into counts of its own."""
        from penstock.kernels.cpu_text_vocab import count_texts_side_by_side

        places = text_places_of([as_texts(column) for column in columns])
        tables = [own._table("bytes") for own in counts]
        count_texts_side_by_side(tables, places.table, places.num_rows, places.null_counts)
        for own, num_null in zip(counts, places.null_counts, strict=True):
            own.note_rows(places.num_rows, num_null)

    @property
    def has_plain_counter(self) -> bool:
        """Whether columns can be counted side by side: values were not merged by ranges before."""
        return not isinstance(self._counter, RangedCounter)

    def note_rows(self, num_rows: int, num_null: int) -> None:
        """Rows were added to the table."""
        self.num_rows += num_rows
        self.num_null += num_null
        self._spill_if_large()

    def add_counts(self, values: pl.Series, counts: np.ndarray) -> None:
        """Count values that were counted before."""
        keys = to_keys(values.cast(self.dtype))
        table = self._table(keys.kind)
        table.reserve(len(values))
        table.add(keys.values, keys.valid, np.asarray(counts, np.int64))
        self._spill_if_large()

    def _table(self, kind: str) -> Any:
        if self._counter is None:
            self._counter = new_counter(kind)
        return self._counter

    def merge(self, other: ValueCounts) -> ValueCounts:
        """Both counts as one; the larger table takes the smaller."""
        if self.dtype != other.dtype:
            raise DataError(
                f"values were counted as {self.dtype} and come as {other.dtype} now; fit the workflow again"
            )
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

    @classmethod
    def merge_ranges(cls, columns: Sequence[Sequence[ValueCounts]], engine: Engine) -> list[ValueCounts]:
        """For each column all its counts as one, on all of the engine's threads; the others are given up.

        For integers within memory.
        """
        tables = [[own._counter for own in counts if own._counter is not None] for counts in columns]
        for counts in columns:
            for own in counts:
                own._counter = None
        for counts, merged in zip(columns, RangedCounter.all_merged(tables, engine), strict=True):
            counts[0]._counter = merged
            counts[0].num_rows = sum(own.num_rows for own in counts)
            counts[0].num_null = sum(own.num_null for own in counts)
        return [counts[0] for counts in columns]

    @property
    def has_ranges(self) -> bool:
        """Whether `merge_ranges` can merge it."""
        return (
            self.memory_limit is None
            and not self._runs
            and self._saved is None
            and self._counter is not None
            and self._counter.kind != "bytes"
        )

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

    def hold(self, known: pl.DataFrame, rare: SavedFile) -> None:
        """Counts from a saved workflow: known values now, the many rare ones only when more data comes."""
        self._known, self._saved = known.select(VALUE, COUNT), rare

    def _load_saved(self) -> None:
        if self._saved is not None:
            rare = self._saved.frame()
            self._saved = None
            assert self._known is not None
            for frame in (self._known, rare):
                self.add_counts(frame[VALUE], frame[COUNT].to_numpy())

    def __deepcopy__(self, memo: dict[int, Any]) -> ValueCounts:
        """A copy to add to; what has been spilled is shared, and goes with the last of the copies."""
        copied = ValueCounts(self.dtype, self.memory_limit, self.num_buckets)
        copied.__dict__.update(self.__dict__, _runs=list(self._runs), _scratch=list(self._scratch), _counter=None)
        if self._counter is not None:
            keys, counts = self._counter.items()
            table = copied._table(self._counter.kind)
            table.reserve(len(counts))
            table.add(keys, None, counts)
        return copied

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


_OWN = ("_lookup", "beside", "_building")  # what a vocabulary holds that another process cannot use


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
        self._lookup: tuple[Any, Codes] | None = None
        self.beside: Any = None  # what an operator keeps of its tables as long as this vocabulary is there
        self._building = threading.Lock()
        dtype = values.dtype
        self._is_text = dtype == pl.String
        limits = np.iinfo(str(dtype).lower()) if dtype.is_integer() else None
        self._low, self._high = (int(limits.min), int(limits.max)) if limits is not None else (0, -1)

    @classmethod
    def chosen(
        cls,
        counts: ValueCounts,
        freq_threshold: int,
        most: int | None,
        known: Vocabulary | None = None,
        ties: pl.Expr | None = None,
    ) -> Vocabulary:
        """The values seen often enough: by falling count, ties by `ties` (or value); those of `known` keep places."""
        ties = pl.col(VALUE) if ties is None else ties
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
                kept = [pl.concat(kept).sort([pl.col(COUNT), ties], descending=[True, False]).head(most)]
        new = pl.concat(kept).sort([pl.col(COUNT), ties], descending=[True, False])
        if most is not None:
            new = new.head(max(0, most - len(before)))
        old = pl.DataFrame({VALUE: before}).join(pl.concat(again), on=VALUE, how="left", maintain_order="left")
        whole = pl.concat([old.with_columns(pl.col(COUNT).fill_null(0)), new])
        return cls(whole[VALUE], whole[COUNT].to_numpy())

    def __len__(self) -> int:
        return len(self.values)

    def codes(self, layout: Codes) -> np.ndarray:
        """The code of each value, in the order of the values."""
        codes = np.arange(layout.first, layout.first + len(self.values))
        for place, code in layout.later:  # values that came when other codes had been given already
            codes[place:] = np.arange(code, code + len(self.values) - place)
        return codes

    def lookup(self, layout: Codes) -> Any:
        """The table from values to codes, built when it is first needed."""
        found = self._lookup
        if found is None or found[1] != layout:
            with self._building:  # one thread builds it, the others wait
                found = self._lookup
                if found is None or found[1] != layout:
                    found = self._lookup = self._built(layout), layout
        return found[0]

    def has_lookup(self, layout: Codes) -> bool:
        """Whether the table for these codes is there."""
        return self._lookup is not None and self._lookup[1] == layout

    def _built(self, layout: Codes) -> Any:
        from penstock.kernels.cpu_text_vocab import TextEncoder
        from penstock.kernels.cpu_vocab import Encoder

        keys = to_keys(self.values)
        if isinstance(keys.values, tuple):
            return TextEncoder(keys.values, self.codes(layout))
        return Encoder(keys.kind, keys.values, self.codes(layout))

    def encode(self, series: pl.Series, layout: Codes, dtype: np.dtype) -> np.ndarray:
        """The codes of a column. Values that the vocabulary's dtype does not hold are out of the vocabulary."""
        lost: pl.Series | None = None
        given = series
        if series.dtype != self.values.dtype:
            series, lost = held(series, canonical(self.values.dtype))
        codes = self._encoded(series, layout, dtype)
        if lost is not None:
            outside = lost.to_numpy()
            wide = given.cast(pl.Int64) if given.dtype.is_integer() and given.dtype != pl.UInt64 else given
            buckets = stable_hashes(wide)[outside] % np.uint64(layout.num_buckets)
            codes[outside] = layout.oov + buckets.astype(np.int64)
        return codes

    def _encoded(self, series: pl.Series, layout: Codes, dtype: np.dtype) -> np.ndarray:
        lookup, codes = self.lookup(layout), (layout.null, layout.oov, layout.num_buckets)
        if lookup.kind == "bytes":
            from penstock.kernels.cpu_text_vocab import TextEncoders

            places = text_places_of([as_texts(series)])
            encoded: np.ndarray = TextEncoders([lookup], [codes]).encode_places(places.table, places.num_rows, dtype)[0]
        else:
            keys = to_keys(series)
            encoded = lookup.encode(keys.values, keys.valid, *codes, dtype=dtype)
        return encoded

    def code_of(self, value: Any, layout: Codes) -> int:
        """The code of one value."""
        if value is None:
            return layout.null
        if type(value) is str and self._is_text:
            code: int = self.lookup(layout).get(value.encode(), layout.oov, layout.num_buckets)
            return code
        if type(value) is int and self._low <= value <= self._high:
            number: int = self.lookup(layout).get(value, layout.oov, layout.num_buckets)
            return number
        return int(self.encode(series_of([value]), layout, np.dtype(np.int64))[0])

    def decode(self, codes: np.ndarray, layout: Codes) -> pl.Series:
        """The values behind codes; reserved codes become null."""
        codes, size = codes.astype(np.int64), len(self.values)
        places = np.full(len(codes), -1)
        runs = [(0, layout.first), *layout.later, (size, 0)]
        for (place, code), (end, _) in pairwise(runs):
            inside = (codes >= code) & (codes < code + end - place)
            places[inside] = codes[inside] - code + place
        known = places >= 0
        taken = self.values.gather(pl.Series(np.where(known, places, 0))) if size else None
        if taken is None:
            return pl.Series([None] * len(codes), dtype=self.values.dtype)
        return taken.zip_with(pl.Series(known), pl.Series([None], dtype=taken.dtype).new_from_index(0, len(taken)))

    def __getstate__(self) -> dict[str, Any]:
        """Without the table, which holds addresses: it is rebuilt where it is needed."""
        return {name: value for name, value in self.__dict__.items() if name not in _OWN}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lookup=None, beside=None, _building=threading.Lock())
