"""Operators that call a function of the user: on a column, or on rows to keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl

from penstock.compat.merlin.dag.declaring import Declares
from penstock.compat.merlin.dag.observed import Observed
from penstock.compat.merlin.dag.unsaved import KeepsFunction
from penstock.compat.merlin.dag.user_operator import names_and_nodes
from penstock.compat.merlin.dtypes import dtype_of
from penstock.compat.merlin.dtypes import to_native as dtype_to_native
from penstock.compat.merlin.io._frames import as_pandas
from penstock.compat.merlin.schema.tags import listed, role_of, text_of
from penstock.compat.missing import CompatTypeError
from penstock.compat.nvtabular.ops import Placed, at_once
from penstock.core.errors import DataError
from penstock.core.schema import Schema
from penstock.etl import ops as native
from penstock.etl.operator import ROW_NUMBER, Columns
from penstock.etl.ops.custom import _takes_two


class LambdaOp(KeepsFunction, Placed, Observed, native.LambdaOp):
    """`f(series)` or `f(series, frame)` on pandas, a partition at a time.

    The dtype of the result is seen on the first rows when it is not given. A function that is importable by name is
    saved with the workflow; without a lambda, what was saved cannot transform.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> words = pd.DataFrame({"text": ["a b", "c"]})
    >>> Workflow(["text"] >> LambdaOp(lambda col: col.str.split(" "))).transform(words)["text"].tolist()[0].tolist()
    ['a', 'b']
    """

    label: Any = None  # an argument here; without one, the function's name
    # A function says nothing by itself: outputs are declared as a user's operator declares them.
    compute_output_schema = Declares.compute_output_schema
    column_mapping = Declares.column_mapping
    _compute_dtype, _compute_tags = Declares._compute_dtype, Declares._compute_tags
    _compute_properties, _compute_shape = Declares._compute_properties, Declares._compute_shape

    @property
    def output_dtype(self) -> Any:
        return self.dtype

    @property
    def output_tags(self) -> Any:
        return self.tags or []

    @property
    def output_properties(self) -> dict[str, Any]:
        return dict(self.properties or {})

    def __init__(
        self,
        f: Callable[..., Any],
        dependency: Any = None,
        label: str | None = None,
        dtype: Any = None,
        tags: Any = None,
        properties: Mapping[str, Any] | None = None,
        outputs: Mapping[str, str] | None = None,
    ) -> None:
        if not callable(f):
            raise CompatTypeError(f"LambdaOp.f must be a function, got {f!r}")
        wanted = None if dtype is None else dtype_to_native(dtype_of(dtype))
        named = getattr(f, "__name__", "<lambda>")
        label = label or ("UDF" if named == "<lambda>" else named)
        super().__init__(f, dependency, label, wanted, [text_of(t) for t in listed(tags)] or None, properties)
        self.outputs = None if outputs is None else dict(outputs)

    def dependencies(self) -> list[Any]:
        return names_and_nodes(self.dependency)

    def _call(self, frame: pl.DataFrame, name: str) -> pl.Series:
        column = as_pandas(frame[name])
        result: Any = self.f(column, as_pandas(frame)) if _takes_two(self.f) else self.f(column)
        if hasattr(result, "dask"):  # Dask's functions give its own series for one of pandas
            result = result.compute()
        if hasattr(result, "reset_index"):
            return pl.Series(name, pl.from_pandas(result.reset_index(drop=True)))
        return pl.Series(name, result)

    def compute(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        return native.LambdaOp.transform(self, frame, columns)

    def transform(self, frame: Any, columns: Any) -> Any:
        if not isinstance(frame, pl.DataFrame):
            return at_once(self, self.compute, frame, columns)
        return self.cast(self.compute(frame, columns))

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        if self._looking:
            return inputs.select(columns.names)
        self.left_of(inputs, columns)
        schema = super().output_schema(inputs, columns) if self.outputs is None else self._annotated(inputs)
        role = role_of(listed(self.tags))
        return schema if role is None else Schema(c.with_(role=role) for c in schema)

    def _annotated(self, inputs: Schema) -> Schema:
        seen = self.seen_schema(inputs)
        assert seen is not None
        tags, properties = set(listed(self.tags)), dict(self.properties or {})
        return Schema(c.with_(tags=c.tags | tags, properties={**c.properties, **properties}) for c in seen)


# Rows that a pandas function keeps.


class Filter(KeepsFunction, Placed, native.Filter):
    """`f(frame)` on pandas gives a mask, or the frame with fewer rows (under their old index).

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> Filter(lambda df: df["x"] > 1)).transform(pd.DataFrame({"x": [1, 2, 3]}))["x"].tolist()
    [2, 3]
    """

    def __init__(self, f: Callable[[Any], Any]) -> None:
        super().__init__(f)

    def transform(self, frame: Any, columns: Any) -> Any:
        if not isinstance(frame, pl.DataFrame):
            return at_once(self, self._kept, frame, columns)
        return self._kept(frame, columns)

    def _kept(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        rows = as_pandas(frame.drop(ROW_NUMBER, strict=False))
        kept = self.f(rows)
        if not hasattr(kept, "columns"):
            mask = np.asarray(kept, dtype=bool)
            if len(mask) != frame.height:
                raise DataError(f"Filter's function gave a mask of {len(mask)} rows for {frame.height}")
            return frame.filter(pl.Series(mask))
        places = np.asarray(kept.index)
        renumbered = len(kept) < frame.height and np.array_equal(places, np.arange(len(kept)))
        if renumbered and not rows.iloc[places].equals(kept):
            raise DataError("Filter's function gave its rows a new index; return a mask, or leave the index as it is")
        return frame[places]
