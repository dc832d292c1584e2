"""Categorify: values to codes by frequency, and the embedding sizes that follow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from penstock.core.artefact import SavedFolder
from penstock.core.conversion import convert
from penstock.core.dtypes import INTEGERS, DtypeLike, canonical, to_numpy
from penstock.core.errors import ParameterError
from penstock.core.params import BOOL, NONE, STR, Instance, Int, OneOf, PerColumn, Satisfies
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.data.files import parse_bytes
from penstock.data.lists import flatten
from penstock.data.partition import in_order
from penstock.etl.cells import BulkFunction, RowFunction
from penstock.etl.operator import Columns, Invertible
from penstock.etl.ops.categorify_bulk import bulk_encoder
from penstock.etl.ops.categorify_columns import Together, encoded_side_by_side, quick_outputs, together
from penstock.etl.ops.categorify_files import read_vocabularies, write_category, write_vocabularies
from penstock.etl.ops.categorify_learning import LearnedVocabularies, of_vocabulary
from penstock.etl.ops.categorify_threads import build_tables
from penstock.etl.ops.categorify_values import plain_vocabulary
from penstock.etl.vocabulary import ValueCounts

INTEGER_DTYPE = Satisfies(lambda d: canonical(d) in INTEGERS, "an integer dtype")


class Categorify(LearnedVocabularies, Invertible):
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
            size, threshold = of_vocabulary(self.max_size, name, 0), of_vocabulary(self.freq_threshold, name, 0)
            where = f" for column {name!r}" if name else ""
            if size and threshold:
                raise ParameterError(f"Categorify takes freq_threshold or max_size, not both{where}")
            least = of_vocabulary(self.num_buckets, name, 1) + 2
            if size and size < least:
                raise ParameterError(f"Categorify.max_size must be ≥ num_buckets + 2 = {least}{where}, got {size}")

    def recipe_params(self) -> dict[str, Any]:
        params = super().recipe_params() if self.vocabs is None else _without_vocabs(self).recipe_params()
        if self.vocabs is not None:
            params["vocabs"] = {n: plain_vocabulary(v, n) for n, v in self.vocabs.items()}
        if self.out_path is not None:
            params["out_path"] = str(self.out_path)
        return params

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

    # Transforming.

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        of = columns, self.shifts_, self.later_  # which another fit makes anew
        first = next(iter(self.vocabularies_.values()), None)
        known: Together | None = None if first is None else first.beside
        if known is not None and known.suits(frame, of):
            return known.encoded(frame)
        dtype = to_numpy(canonical(self.dtype))
        outputs = self._outputs(columns)
        layouts = {name: self.layout(name) for _, name, _ in outputs}
        build_tables(self.vocabularies_, layouts)
        quick = quick_outputs(
            frame, [(output, names, self.vocabularies_[name].values.dtype) for output, name, names in outputs]
        )
        steps = {
            output: (names[0], self.vocabularies_[name], layouts[name])
            for output, name, names in outputs
            if output in quick
        }
        if first is not None and len(quick) == len(outputs):
            first.beside = together(frame, steps, dtype, of)
        done = encoded_side_by_side(frame, steps, dtype)
        if len(quick) == len(outputs):
            return in_order(done, [output for output, _, _ in outputs])
        out = []
        for output, name, names in outputs:
            if output in quick:
                out.append(done.get_column(output))
                continue
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

    def finish(self, state: dict[str, ValueCounts], columns: Columns) -> None:
        super().finish(state, columns)
        if self.out_path is not None:
            self.write_categories(Path(self.out_path) / "categories")

    def save_state(self, folder: Path) -> None:
        write_vocabularies(folder, self.vocabularies_, self.state_, self.later_, self.codes)

    def load_state(self, folder: SavedFolder, columns: Columns) -> None:
        self.vocabularies_, self.state_, self.later_ = read_vocabularies(folder)
        self._set_shifts(columns)

    def write_categories(self, folder: Path) -> None:
        """`unique.<column>.parquet` (code, value, count) and `meta.<column>.parquet` for each vocabulary.

        Args:
            folder: where to.
        """
        folder.mkdir(parents=True, exist_ok=True)
        for name, vocabulary in self.vocabularies_.items():
            counts = self.state_.get(name)
            write_category(folder, name, vocabulary, counts, self.codes(name), self.start_index is None)


def _without_vocabs(op: Categorify) -> Categorify:
    return Categorify(**{**op.params(), "vocabs": None})
