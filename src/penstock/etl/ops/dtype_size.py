"""Fewer bytes and fewer columns: narrower dtypes, and no columns that say nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from penstock.core.conversion import convert
from penstock.core.dtypes import FLOATS, INTEGERS, DtypeLike, canonical
from penstock.core.errors import ConversionError, DataError
from penstock.core.params import Int, Satisfies
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.data.lists import flatten
from penstock.etl.fitted_operator import FittedOperator
from penstock.etl.operator import Columns, Operator, per_column, same_names
from penstock.etl.raw_values import policy_of

_CANDIDATES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


class ReduceDtypeSize(FittedOperator):
    """Integers in the narrowest dtype that holds all values seen in fitting, floats as `float_dtype`.

    Integers beyond what was seen are refused at transform when they do not fit; update the workflow with them.

    Args:
        float_dtype: what floats become.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"age": [30, 41], "price": [1.0, 2.0]})
    >>> Workflow(["age", "price"] >> ReduceDtypeSize()).fit(frame).output_dtypes
    {'age': 'int8', 'price': 'float32'}
    """

    constraints = {"float_dtype": Satisfies(lambda d: canonical(d) in FLOATS, "float32 or float64")}

    def __init__(self, float_dtype: DtypeLike = "float32") -> None:
        self.float_dtype = float_dtype

    def partial(self, frame: pl.DataFrame, columns: Columns) -> dict[str, list[int | None]]:
        state = {}
        for name in columns.names:
            series = frame[name]
            if isinstance(series.dtype, (pl.List, pl.Array)):
                series = flatten(series)[0]
            if series.dtype.is_integer():
                state[name] = [series.min(), series.max()]
        return state  # type: ignore[return-value]

    def merge(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        return {
            name: [
                min((s[name][0] for s in (left, right) if s[name][0] is not None), default=None),
                max((s[name][1] for s in (left, right) if s[name][1] is not None), default=None),
            ]
            for name in left
        }

    def _dtype(self, column: str, dtype: str) -> str:
        if dtype in FLOATS:
            return canonical(self.float_dtype)
        if dtype not in INTEGERS or not self.is_fitted:
            return dtype
        low, high = self.state_[column]
        if low is None:
            return dtype
        return next(d for d in _CANDIDATES if np.iinfo(d).min <= low and high <= np.iinfo(d).max)

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        out = []
        for name in columns.names:
            series = frame[name]
            is_list = isinstance(series.dtype, (pl.List, pl.Array))
            inner = series.dtype.inner if is_list else series.dtype  # type: ignore[attr-defined]
            wanted = self._dtype(name, canonical(inner))
            if canonical(inner) == wanted:
                out.append(series)
                continue
            try:
                out.append(convert(series, wanted, column=name, policy=policy_of(wanted)))
            except ConversionError as error:
                advice = (
                    "pass float_dtype='float64'" if wanted in FLOATS else "update the workflow with this data first"
                )
                raise DataError(f"ReduceDtypeSize: {error}; {advice}") from error
        return pl.DataFrame(out)

    def origins(self, columns: Columns) -> dict[str, str]:
        return same_names(columns)

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        return per_column(inputs, columns, lambda c: c.with_(dtype=self._dtype(c.name, c.dtype)))


class DropLowCardinality(Operator):
    """Leave out categorical columns whose cardinality (reserved codes included) is below `min_cardinality`.

    Cardinalities come from the schema, as `Categorify` sets them; a column without one stays.

    Args:
        min_cardinality: what a column must have to stay.

    >>> from penstock import Workflow, ops
    >>> frame = pl.DataFrame({"country": ["IT", "IT"], "city": ["Rome", "Bari"]})
    >>> node = ["country", "city"] >> ops.Categorify() >> DropLowCardinality(min_cardinality=5)
    >>> Workflow(node).fit_transform(frame).columns
    ['city']
    """

    constraints = {"min_cardinality": Int(min=0)}

    def __init__(self, min_cardinality: int = 4) -> None:
        self.min_cardinality = min_cardinality

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        return frame.select(columns.names)  # the plan keeps what the schema declares

    def origins(self, columns: Columns) -> dict[str, str]:
        return same_names(columns)

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        return Schema(inputs[n] for n in columns.names if not self._is_low(inputs[n]))

    def _is_low(self, column: ColumnSchema) -> bool:
        low = column.cardinality is not None and column.cardinality < self.min_cardinality
        return column.role is Role.CATEGORICAL and low
