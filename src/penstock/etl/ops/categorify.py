"""Categorify: values to codes by frequency, and the embedding sizes that follow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from penstock.core.artefact import SavedFolder, replacing
from penstock.core.conversion import convert
from penstock.core.dtypes import INTEGERS, DtypeLike, canonical, common, split_list, to_numpy
from penstock.core.errors import DataError, ParameterError, SchemaError
from penstock.core.file_names import file_name
from penstock.core.params import BOOL, NONE, STR, Instance, Int, OneOf, PerColumn, Satisfies
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.data.files import parse_bytes
from penstock.data.lists import flatten
from penstock.etl.operator import (
    BulkFunction,
    Columns,
    FittedOperator,
    Invertible,
    RowFunction,
)
from penstock.etl.ops.categorify_bulk import bulk_encoder
from penstock.etl.ops.categorify_threads import build_tables, engine_for, merged
from penstock.etl.ops.categorify_values import combined_values, given_vocabulary, plain_vocabulary
from penstock.etl.vocabulary import CODE, COUNT, VALUE, Codes, ValueCounts, Vocabulary

INTEGER_DTYPE = Satisfies(lambda d: canonical(d) in INTEGERS, "an integer dtype")


class Categorify(FittedOperator, Invertible):
    """Encode categories as integers, frequent ones first, ties by value.

    Codes: 0 padding, 1 null, then `num_buckets` codes (one by default) for values out of the vocabulary, then the
    vocabulary. With `start_index` the older layout is used: null and unknown share `start_index`, the vocabulary
    follows. List columns are encoded element by element; nested names (`[["a", "b"]]`) share one vocabulary.

    Args:
        freq_threshold: values seen less often are out of vocabulary; an int, or `{column: int}`.
        max_size: at most this many codes, reserved ones included; excludes `freq_threshold`; int or `{column: int}`.
        num_buckets: spread values out of vocabulary over this many codes by hash; int or `{column: int}`.
        vocabs: `{column: values}` (or a parquet path) fixes vocabularies instead of learning them.
        encode_type: `"joint"`: the columns of a group share a vocabulary; `"combo"`: a group becomes one column.
        name_sep: joins the names of a combination.
        dtype: of the codes; a vocabulary that does not fit is an error.
        out_path: also write `categories/unique.<column>.parquet` and `meta.<column>.parquet` there.
        single_table: shift each column's codes so that all columns index one table.
        start_index: use the older layout, from this code on.
        cardinality_memory_limit: spill counts to disk beyond this much memory a column and worker (`"1GB"`).
        split_out: finish spilled counts in this many pieces.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"city": ["Rome", "Oslo", "Rome", None]})
    >>> workflow = Workflow(["city"] >> Categorify())
    >>> workflow.fit_transform(frame)["city"].to_list()
    [3, 4, 3, 1]
    >>> workflow.transform(pl.DataFrame({"city": ["Lima"]}))["city"].to_list()
    [2]
    """

    constraints = {
        "freq_threshold": PerColumn(Int(min=0)),
        "max_size": PerColumn(Int(min=0)),
        "num_buckets": PerColumn(Int(min=1)) | NONE,
        "vocabs": Instance(Mapping, "a mapping of column to values") | NONE,
        "encode_type": OneOf(("joint", "combo")),
        "name_sep": STR,
        "dtype": INTEGER_DTYPE,
        "single_table": BOOL,
        "start_index": Int(min=0) | NONE,
        "split_out": PerColumn(Int(min=1)),
    }

    bulk_takes_lists = True

    def __init__(
        self,
        freq_threshold: int | Mapping[str, int] = 0,
        max_size: int | Mapping[str, int] = 0,
        num_buckets: int | Mapping[str, int] | None = None,
        vocabs: Mapping[str, Any] | None = None,
        encode_type: str = "joint",
        name_sep: str = "_",
        dtype: DtypeLike = "int32",
        out_path: str | Path | None = None,
        single_table: bool = False,
        start_index: int | None = None,
        cardinality_memory_limit: int | str | None = None,
        split_out: int | Mapping[str, int] = 1,
    ) -> None:
        self.freq_threshold = freq_threshold
        self.max_size = max_size
        self.num_buckets = num_buckets
        self.vocabs = vocabs
        self.encode_type = encode_type
        self.name_sep = name_sep
        self.dtype = dtype
        self.out_path = out_path
        self.single_table = single_table
        self.start_index = start_index
        self.cardinality_memory_limit = cardinality_memory_limit
        self.split_out = split_out

    def check_params(self) -> None:
        super().check_params()
        if self.cardinality_memory_limit is not None:
            parse_bytes(self.cardinality_memory_limit)
        names = {n for p in (self.freq_threshold, self.max_size) if isinstance(p, Mapping) for n in p} | {""}
        for name in names:
            size, threshold = _of(self.max_size, name, 0), _of(self.freq_threshold, name, 0)
            where = f" for column {name!r}" if name else ""
            if size and threshold:
                raise ParameterError(f"Categorify takes freq_threshold or max_size, not both{where}")
            least = _of(self.num_buckets, name, 1) + 2
            if size and size < least:
                raise ParameterError(f"Categorify.max_size must be ≥ num_buckets + 2 = {least}{where}, got {size}")

    def recipe_params(self) -> dict[str, Any]:
        params = super().recipe_params() if self.vocabs is None else _without_vocabs(self).recipe_params()
        if self.vocabs is not None:
            params["vocabs"] = {n: plain_vocabulary(v, n) for n, v in self.vocabs.items()}
        if self.out_path is not None:
            params["out_path"] = str(self.out_path)
        return params

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
        buckets = _of(self.num_buckets, vocabulary, 1)
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

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        self._dtypes(columns, {name: inputs[name].dtype for name in columns.names})
        out = []
        for output, vocabulary, names in self._outputs(columns):
            like = inputs[names[0]]
            properties = {k: v for k, v in like.properties.items() if k not in ("text", "num_values")}
            if self.is_fitted:
                properties["vocabulary"] = vocabulary
            size = self._cardinality(vocabulary) if self.is_fitted else None
            role = like.role if like.role is Role.LABEL else Role.CATEGORICAL
            out.append(
                ColumnSchema(
                    output, canonical(self.dtype), role, like.is_list, False, size,
                    like.tags, properties,
                )
            )  # fmt: skip
        return Schema(out)

    # Fitting.

    def partial(self, frame: pl.DataFrame, columns: Columns) -> dict[str, ValueCounts]:
        return self.accumulate(None, frame, columns)

    def accumulate(
        self, state: dict[str, ValueCounts] | None, frame: pl.DataFrame, columns: Columns
    ) -> dict[str, ValueCounts]:
        state = {} if state is None else state
        shared = self._dtypes(columns, {name: _element(frame.get_column(name).dtype) for name in columns.names})
        for _, vocabulary, names in self._outputs(columns):
            if self.vocabs is not None and vocabulary in self.vocabs:
                continue
            values = self._values(frame, names)
            if vocabulary in shared:
                values = convert(values, shared[vocabulary], column=names[0])
            if vocabulary not in state:
                limit = self.cardinality_memory_limit
                state[vocabulary] = ValueCounts(
                    values.dtype, None if limit is None else parse_bytes(limit), _of(self.split_out, vocabulary, 1)
                )
            state[vocabulary].add(values)
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
        names = list(dict.fromkeys(name for _, name, _ in self._outputs(columns)))
        engine = engine_for(sum(counts.num_held for counts in state.values()))
        made = engine.map(lambda name: self._chosen(name, state, known.get(name)), names)
        vocabularies: dict[str, Vocabulary] = dict(zip(names, made, strict=True))
        later = self._later(known, vocabularies) if self.single_table and known else {}
        self._check_sizes(vocabularies)
        self.state_ = state
        self.vocabularies_, self.later_ = vocabularies, later
        self._set_shifts(columns)
        if self.out_path is not None:
            self.write_categories(Path(self.out_path) / "categories")

    def _chosen(self, name: str, state: Mapping[str, ValueCounts], known: Vocabulary | None) -> Vocabulary:
        """The vocabulary of this name: the one that was given, or what was seen often enough."""
        if self.vocabs is not None and name in self.vocabs:
            return given_vocabulary(self.vocabs[name], name)
        size = _of(self.max_size, name, 0)
        most = size - self._reserved(name) if size else None
        return Vocabulary.chosen(state[name], _of(self.freq_threshold, name, 0), most, known)

    def _reserved(self, vocabulary: str) -> int:
        return self.codes(vocabulary).first

    def _later(
        self, known: Mapping[str, Vocabulary], vocabularies: Mapping[str, Vocabulary]
    ) -> dict[str, tuple[tuple[int, int], ...]]:
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
        self.shifts_: dict[str, int] = dict.fromkeys(self.vocabularies_, 0)
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

    # Transforming.

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        dtype = to_numpy(canonical(self.dtype))
        layouts = {name: self.layout(name) for _, name, _ in self._outputs(columns)}
        build_tables(self.vocabularies_, layouts)
        out = []
        for output, name, names in self._outputs(columns):
            codes = layouts[name]
            series = frame[names[0]]
            vocabulary = self.vocabularies_[name]
            if len(names) == 1 and isinstance(series.dtype, (pl.List, pl.Array)):
                values, lists = flatten(series)
                encoded = vocabulary.encode(values, codes, dtype)
                out.append(lists.rebuild(pl.Series(encoded)).fill_null([]).alias(output))
                continue
            values = self._values(frame, names)
            encoded = vocabulary.encode(values, codes, dtype)
            out.append(pl.Series(output, encoded))
        return pl.DataFrame(out)

    def row_function(self, columns: Columns) -> RowFunction | None:
        if any(len(names) > 1 for _, _, names in self._outputs(columns)):
            return None
        steps = []
        for output, name, (column,) in self._outputs(columns):
            steps.append((output, column, self.vocabularies_[name].code_of, self.layout(name)))

        def run(values: dict[str, Any]) -> dict[str, Any]:
            out: dict[str, Any] = {}
            for output, column, code_of, layout in steps:
                value = values[column]
                if isinstance(value, (list, tuple, np.ndarray)):
                    out[output] = [code_of(v, layout) for v in value]
                else:
                    out[output] = code_of(value, layout)
            return out

        return run

    def bulk_function(self, columns: Columns) -> BulkFunction | None:
        if any(len(names) > 1 for _, _, names in self._outputs(columns)):
            return None
        steps = {}
        for output, name, (column,) in self._outputs(columns):
            steps[output] = (column, self.vocabularies_[name], self.layout(name))
        return bulk_encoder(steps, to_numpy(canonical(self.dtype)))

    def origins(self, columns: Columns) -> dict[str, str]:
        return {output: names[0] for output, _, names in self._outputs(columns) if len(names) == 1}

    def inverse(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        out = []
        for output, name, _ in self._outputs(columns):
            if output not in frame.columns:
                continue
            codes = convert(frame[output].fill_null(0), "int64", column=output)  # 0 stands for no value
            out.append(self.vocabularies_[name].decode(codes.to_numpy(), self.layout(name)).alias(output))
        return pl.DataFrame(out)

    # Saving.

    def save_state(self, folder: Path) -> None:
        meta: dict[str, Any] = {}
        for number, (name, vocabulary) in enumerate(self.vocabularies_.items()):
            counts = self.state_.get(name)
            meta[name] = {"file": number}
            if name in self.later_:
                meta[name]["later"] = self.later_[name]
            if counts is not None:
                meta[name] |= {"num_rows": counts.num_rows, "num_null": counts.num_null}
                _write_rare(counts, vocabulary, folder / f"rare.{number}.parquet")
            _unique_frame(vocabulary, self._reserved(name)).write_parquet(folder / f"unique.{number}.parquet")
        (folder / "vocabularies.json").write_text(json.dumps(meta))

    def load_state(self, folder: SavedFolder, columns: Columns) -> None:
        meta = folder.json("vocabularies.json")
        self.state_, self.vocabularies_, self.later_ = {}, {}, {}
        for name, entry in meta.items():
            if "later" in entry:
                self.later_[name] = tuple((place, code) for place, code in entry["later"])
            frame = folder.frame(f"unique.{entry['file']}.parquet")
            self.vocabularies_[name] = Vocabulary(frame[VALUE], frame[COUNT].to_numpy())
            if "num_rows" in entry:
                counts = ValueCounts(frame[VALUE].dtype)
                counts.num_rows, counts.num_null = entry["num_rows"], entry["num_null"]
                counts.hold(frame, folder.later(f"rare.{entry['file']}.parquet"))
                self.state_[name] = counts
        self._set_shifts(columns)

    def write_categories(self, folder: Path) -> None:
        """`unique.<column>.parquet` (code, value, count) and `meta.<column>.parquet` for each vocabulary.

        Args:
            folder: where to.
        """
        folder.mkdir(parents=True, exist_ok=True)
        for name, vocabulary in self.vocabularies_.items():
            codes = self.codes(name)
            with replacing(folder / f"unique.{file_name(name)}.parquet") as partial:
                _unique_frame(vocabulary, codes.first).write_parquet(partial)
            counts = self.state_.get(name)
            seen = 0 if counts is None else counts.num_rows - counts.num_null
            known = int(vocabulary.counts.sum())
            rows = [
                ("oov", codes.oov, codes.num_buckets, seen - known if counts is not None else 0),
                ("unique", codes.first, len(vocabulary), known),
            ]
            if self.start_index is None:
                rows = [("pad", 0, 1, 0), ("null", codes.null, 1, 0 if counts is None else counts.num_null), *rows]
            names = ("kind", "offset", "num_indices", "num_observed")
            with replacing(folder / f"meta.{file_name(name)}.parquet") as partial:
                pl.DataFrame(rows, schema=list(names), orient="row").write_parquet(partial)


def _unique_frame(vocabulary: Vocabulary, first: int) -> pl.DataFrame:
    codes = np.arange(first, first + len(vocabulary), dtype=np.int64)
    return pl.DataFrame({CODE: codes, VALUE: vocabulary.values, COUNT: vocabulary.counts})


def _write_rare(counts: ValueCounts, vocabulary: Vocabulary, path: Path) -> None:
    """Counts of values that have no code: an update may lift them over the threshold."""
    known = vocabulary.values.implode()
    rare = [f.filter(~pl.col(VALUE).is_in(known)) if len(vocabulary) else f for f in counts.frames()]
    pl.concat(rare).sort(VALUE).write_parquet(path)  # in an order that does not depend on the partitions


def _without_vocabs(op: Categorify) -> Categorify:
    return Categorify(**{**op.params(), "vocabs": None})


def _of(setting: Any, name: str, default: int) -> int:
    """An int setting for one vocabulary."""
    if setting is None:
        return default
    if isinstance(setting, Mapping):
        return int(setting.get(name, default))
    return int(setting)


def _element(dtype: pl.DataType) -> str:
    """The canonical dtype of a column's values, those in lists too."""
    return canonical(split_list(dtype)[0])
