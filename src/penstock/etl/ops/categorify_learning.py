"""The vocabularies that `Categorify` learns: which there are, how values are counted, where their codes lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from penstock.core.conversion import convert
from penstock.core.dtypes import DtypeLike, canonical, common, split_list, to_numpy
from penstock.core.errors import DataError, SchemaError
from penstock.data.files import parse_bytes
from penstock.data.lists import flatten
from penstock.etl.fitted_operator import FittedOperator
from penstock.etl.operator import Columns
from penstock.etl.ops.categorify_columns import can_count, counted_side_by_side
from penstock.etl.ops.categorify_files import Later
from penstock.etl.ops.categorify_threads import engine_for, merged
from penstock.etl.ops.categorify_values import combined_order, combined_values, given_vocabulary
from penstock.etl.vocabulary import Codes, ValueCounts, Vocabulary


class LearnedVocabularies(FittedOperator):
    """The part of `Categorify` that learns. The settings are its constructor's, and described there."""

    freq_threshold: int | Mapping[str, int]
    max_size: int | Mapping[str, int]
    num_buckets: int | Mapping[str, int] | None
    vocabs: Mapping[str, Any] | None
    encode_type: str
    name_sep: str
    dtype: DtypeLike
    single_table: bool
    start_index: int | None
    cardinality_memory_limit: int | str | None
    split_out: int | Mapping[str, int]

    # What was learned, by vocabulary.
    vocabularies_: dict[str, Vocabulary]
    shifts_: dict[str, int]  # where its codes begin in a single table
    later_: Later
    total_: int  # codes of all of them

    # Which vocabularies there are.

    def vocabulary_name(self, group: tuple[str, ...]) -> str:
        """What the vocabulary of some columns is called.

        Args:
            group: columns that are encoded together.

        Returns:
            The name.
        """
        return group[0] if len(group) == 1 else self.name_sep.join(group)

    def _outputs(self, columns: Columns) -> list[tuple[str, str, tuple[str, ...]]]:
        """`(output column, vocabulary, input columns)` for every output."""
        out = []
        for group in columns.groups:
            vocabulary = self.vocabulary_name(group)
            if self.encode_type == "combo" and len(group) > 1:
                out.append((vocabulary, vocabulary, group))
            else:
                out += [(name, vocabulary, (name,)) for name in group]
        return out

    def codes(self, vocabulary: str) -> Codes:
        """The layout of a vocabulary's codes, before any shift into a single table.

        Args:
            vocabulary: its name.

        Returns:
            Which codes are reserved and where values begin.
        """
        buckets = of_vocabulary(self.num_buckets, vocabulary, 1)
        if self.start_index is not None:
            return Codes(self.start_index, self.start_index, buckets)
        return Codes(1, 2, buckets)

    def layout(self, vocabulary: str) -> Codes:
        """The codes of a fitted vocabulary as `transform` gives them.

        Args:
            vocabulary: its name.

        Returns:
            Which codes are reserved and where values begin.
        """
        return self.codes(vocabulary).shifted(self.shifts_[vocabulary], self.later_.get(vocabulary, ()))

    def _dtypes(self, columns: Columns, schema: Mapping[str, str]) -> dict[str, str]:
        """The dtype of each vocabulary that columns share: one that holds the values of all."""
        out = {}
        for group in columns.groups:
            if len(group) > 1 and self.encode_type == "joint":
                found = {name: schema[name] for name in group}
                dtype = common(found.values())
                if dtype is None:
                    shown = ", ".join(f"{name!r} is {dtype}" for name, dtype in found.items())
                    raise SchemaError(f"Categorify: columns of one vocabulary must be of one kind, but {shown}")
                out[self.vocabulary_name(group)] = dtype
        return out

    # Fitting.

    def partial(self, frame: pl.DataFrame, columns: Columns) -> dict[str, ValueCounts]:
        return self.accumulate(None, frame, columns)

    def accumulate(
        self, state: dict[str, ValueCounts] | None, frame: pl.DataFrame, columns: Columns
    ) -> dict[str, ValueCounts]:
        state = {} if state is None else state
        shared: dict[str, str] = {}
        if any(len(group) > 1 for group in columns.groups):
            shared = self._dtypes(columns, {name: _element(frame.get_column(name).dtype) for name in columns.names})
        together: dict[str, ValueCounts] = {}  # by column
        dtypes = dict(zip(frame.columns, frame.dtypes, strict=True))
        for _, vocabulary, names in self._outputs(columns):
            if self.vocabs is not None and vocabulary in self.vocabs:
                continue
            alone = len(names) == 1 and vocabulary not in shared
            if alone and vocabulary in state and can_count(dtypes[names[0]], state[vocabulary]):
                together[names[0]] = state[vocabulary]
                continue
            values = self._values(frame, names)
            if vocabulary in shared:
                values = convert(values, shared[vocabulary], column=names[0])
            if vocabulary not in state:
                limit = self.cardinality_memory_limit
                memory = None if limit is None else parse_bytes(limit)
                state[vocabulary] = ValueCounts(values.dtype, memory, of_vocabulary(self.split_out, vocabulary, 1))
            if alone and can_count(dtypes[names[0]], state[vocabulary]):
                together[names[0]] = state[vocabulary]
            else:
                state[vocabulary].add(values)
        counted_side_by_side(frame, together)
        return state

    def merge(self, left: dict[str, ValueCounts], right: dict[str, ValueCounts]) -> dict[str, ValueCounts]:
        return self.merge_all([left, right])

    def merge_all(self, states: list[dict[str, ValueCounts]]) -> dict[str, ValueCounts]:
        return merged(states)

    def _values(self, frame: pl.DataFrame, names: tuple[str, ...]) -> pl.Series:
        """The values to encode: flat for lists, one JSON text a row for combinations."""
        if len(names) > 1:
            return combined_values(frame, names)
        series = frame.get_column(names[0])
        if isinstance(series.dtype, (pl.List, pl.Array)):
            series = flatten(series)[0]
        if isinstance(series.dtype, (pl.Categorical, pl.Enum)):
            series = series.cast(pl.String)
        return series

    def finish(self, state: dict[str, ValueCounts], columns: Columns) -> None:
        known = getattr(self, "vocabularies_", {})
        groups = {name: group for _, name, group in self._outputs(columns)}
        names = list(groups)
        engine = engine_for(sum(counts.num_held for counts in state.values()))
        made = engine.map(lambda name: self._chosen(name, len(groups[name]) > 1, state, known.get(name)), names)
        vocabularies: dict[str, Vocabulary] = dict(zip(names, made, strict=True))
        later = self._later(known, vocabularies) if self.single_table and known else {}
        self._check_sizes(vocabularies)
        self.state_ = state
        self.vocabularies_, self.later_ = vocabularies, later
        self._set_shifts(columns)

    def _chosen(
        self, name: str, combined: bool, state: Mapping[str, ValueCounts], known: Vocabulary | None
    ) -> Vocabulary:
        """The vocabulary of this name: the one that was given, or what was seen often enough."""
        if self.vocabs is not None and name in self.vocabs:
            return given_vocabulary(self.vocabs[name], name)
        size = of_vocabulary(self.max_size, name, 0)
        most = size - self._reserved(name) if size else None
        ties = combined_order() if combined else None
        return Vocabulary.chosen(state[name], of_vocabulary(self.freq_threshold, name, 0), most, known, ties)

    def _reserved(self, vocabulary: str) -> int:
        return self.codes(vocabulary).first

    def _later(self, known: Mapping[str, Vocabulary], vocabularies: Mapping[str, Vocabulary]) -> Later:
        """Where the values that an update brought go in a table that all columns share: to its end."""
        later, total = dict(self.later_), self.total_
        for name, vocabulary in vocabularies.items():
            before = len(known[name])
            if len(vocabulary) > before:
                later[name] = (*later.get(name, ()), (before, total))
                total += len(vocabulary) - before
        return later

    def _check_sizes(self, vocabularies: Mapping[str, Vocabulary]) -> None:
        """Refuse codes that the dtype does not hold."""
        limit, total = np.iinfo(to_numpy(canonical(self.dtype))).max, 0
        for name, vocabulary in vocabularies.items():
            size = self._reserved(name) + len(vocabulary)
            total = total + size if self.single_table else size
            if total - 1 > limit:
                raise DataError(
                    f"column {name!r} has {len(vocabulary):,} categories, more than {canonical(self.dtype)} can hold"
                    f"{' with those of the other columns of the single table' * self.single_table}; "
                    f"pass dtype='int64', a freq_threshold, or hash it (ops.HashBucket)"
                )

    def _set_shifts(self, columns: Columns) -> None:
        self.shifts_ = dict.fromkeys(self.vocabularies_, 0)
        self.total_ = 0
        for name, vocabulary in self.vocabularies_.items():
            if self.single_table:
                self.shifts_[name] = self.total_
            later = self.later_.get(name, ())
            self.total_ += self._reserved(name) + (later[0][0] if later else len(vocabulary))
        for name, vocabulary in self.vocabularies_.items():
            if later := self.later_.get(name, ()):
                self.total_ += len(vocabulary) - later[0][0]

    def _cardinality(self, vocabulary: str) -> int:
        if self.single_table:
            return self.total_
        return self._reserved(vocabulary) + len(self.vocabularies_[vocabulary])


def of_vocabulary(setting: Any, name: str, default: int) -> int:
    """An int setting for one vocabulary."""
    if setting is None:
        return default
    if isinstance(setting, Mapping):
        return int(setting.get(name, default))
    return int(setting)


def _element(dtype: pl.DataType) -> str:
    """The canonical dtype of a column's values, those in lists too."""
    return canonical(split_list(dtype)[0])
