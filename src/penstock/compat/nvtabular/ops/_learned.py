"""Operators whose learned values old code reads: under the names and in the form that NVTabular kept them in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from polars import selectors as cs

from penstock.compat import settings
from penstock.compat.merlin.dag.declaring import inherited
from penstock.compat.nvtabular.ops import Placed, names_of
from penstock.core.errors import ColumnNotFoundError
from penstock.core.extras import require
from penstock.core.schema import ColumnSchema, Schema
from penstock.etl import ops as native
from penstock.etl.operator import Columns
from penstock.etl.vocabulary import COUNT, VALUE


class Flagging(Placed):
    """Mixin: the flags `<column>_filled` are bool, and to a model what their column is."""

    add_binary_cols: bool

    def transform(self, frame: Any, columns: Any) -> Any:
        made = super().transform(frame, columns)
        if not self.add_binary_cols or not isinstance(made, pl.DataFrame):
            return made  # of a pandas frame, at once: what stands below has been done
        return made.with_columns(pl.col(f"{name}_filled").cast(pl.Boolean) for name in columns.names)

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        made = super().output_schema(inputs, columns)
        flags = {f"{name}_filled": inputs[name] for name in columns.names} if self.add_binary_cols else {}
        bare = {flag: ColumnSchema(flag, "bool", nullable=False) for flag in flags}
        return Schema(inherited(bare[c.name], flags[c.name], None) if c.name in flags else c for c in made)


class FillMissing(Flagging, native.FillMissing):
    """A value in place of missing ones.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> frame = pd.DataFrame({"x": [1.0, None]})
    >>> Workflow(["x"] >> FillMissing(add_binary_cols=True)).transform(frame)["x_filled"].tolist()
    [False, True]
    """


class FillMedian(Flagging, native.FillMedian):
    """Medians in place of missing values; `medians` holds them by column once fitted.

    >>> FillMedian().medians
    {}
    """

    @property
    def medians(self) -> dict[str, Any]:
        return dict(getattr(self, "medians_", {}))


class ValueCount(Placed, native.ValueCount):
    """The shortest and the longest list of each column, as `stats[column]["value_count"]`; other columns pass.

    >>> ValueCount().stats
    {}
    """

    @property
    def stats(self) -> dict[str, Any]:
        found = self.state_ or {}
        return {n: {"value_count": {"min": low, "max": high}} for n, (low, high) in found.items() if high is not None}

    def partial(self, frame: pl.DataFrame, columns: Columns) -> dict[str, Any]:
        lists = [n for n in columns.names if isinstance(frame.schema[n], (pl.List, pl.Array))]
        found = super().partial(frame, Columns(tuple((name,) for name in lists)))
        return {name: found.get(name, [None, None]) for name in columns.names}

    def _column(self, column: ColumnSchema) -> ColumnSchema:
        return super()._column(column) if column.is_list else column


class DataStats(Placed, native.DataStats):
    """Statistics of each column as `output[column]`: numbers, or for text those of its lengths.

    >>> DataStats().output
    {}
    """

    @property
    def output(self) -> dict[str, dict[str, Any]]:
        if not self.is_fitted:
            return {}
        return {name: self._described(name, counts) for name, (counts, _) in self.state_.items()}

    def _described(self, name: str, counts: Any) -> dict[str, Any]:
        known = self.statistics_[name]
        values = counts.frame()
        dtype = values.schema[VALUE]
        out: dict[str, Any] = {key: known[key] for key in ("min", "max", "mean", "std") if key in known}
        if dtype == pl.String:
            weighed = values.select(length=pl.col(VALUE).str.len_chars(), count=pl.col(COUNT)).drop_nulls()
            total = weighed["count"].sum()
            mean = (weighed["length"] * weighed["count"]).sum() / total if total else float("nan")
            square = ((weighed["length"] - mean) ** 2 * weighed["count"]).sum()
            std = math.sqrt(square / (total - 1)) if total > 1 else float("nan")
            out = {"min": weighed["length"].min(), "max": weighed["length"].max(), "mean": mean, "std": std}
        if not dtype.is_float():
            out["cardinality"] = known["cardinality"]
        named = _text_dtype() if dtype == pl.String else str(dtype).lower()
        return {**out, "per_nan": 100.0 * known["null_share"], "dtype": named}


class DropLowCardinality(Placed, native.DropLowCardinality):
    """Leave out categorical columns whose largest code is below `min_cardinality`.

    >>> DropLowCardinality(4).min_cardinality  # as Penstock counts: codes, the reserved ones among them
    5
    """

    def __init__(self, min_cardinality: int | None = None) -> None:
        if min_cardinality is None:
            min_cardinality = 4 if settings.nvtabular() == "latest" else 2
        super().__init__(min_cardinality + 1)


class ReduceDtypeSize(Placed, native.ReduceDtypeSize):
    """The narrowest dtypes that hold what was seen; `ranges` holds the least and largest values."""

    @property
    def ranges(self) -> dict[str, Any]:
        return dict(self.state_ or {})


class Groupby(Placed, native.Groupby):
    """One row a key, over the whole data set; keys may be columns that were not selected, and are left out then.

    Rows without a key are left out, as pandas leaves them out. Keys come sorted within a partition, and up to 65,536
    rows make one partition.

    With `ascending=False` lists fall; `first` and `last` are those of the rising order all the same. Sums, means,
    medians, deviations and variances are float32; they are worked out in float64 and more.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> frame = pd.DataFrame({"user": [2, 1, 2], "item": ["c", "a", "b"]})
    >>> Workflow(["item"] >> Groupby("user", aggs="count")).transform(frame)["item_count"].tolist()
    [1, 2]
    """

    gives_tags = False
    gathered_rows = 1 << 16
    missing_last = True  # as pandas sorts

    def __init__(
        self,
        groupby_cols: Any = None,
        sort_cols: Any = None,
        aggs: Any = "list",
        name_sep: str = "_",
        ascending: bool | Sequence[bool] = True,
    ) -> None:
        keys, order = (
            names_of(c, f"Groupby.{n}") for c, n in ((groupby_cols, "groupby_cols"), (sort_cols, "sort_cols"))
        )
        super().__init__([] if keys is None else keys, order, _named(aggs), name_sep, ascending)

    @classmethod
    def recipe_class(cls) -> type:
        return cls  # the native one takes its keys from the selection

    def dependencies(self) -> list[str]:
        return [*self.keys, *_listed(self.sort_cols)]

    def exchange_keys(self, columns: Columns) -> tuple[str, ...]:
        return tuple(self.keys)

    def _plan(self, columns: Columns) -> list[tuple[str, str, str]]:
        falling = {"first": "last", "last": "first"} if self.ascending is False else {}
        if not isinstance(self.aggs, Mapping):
            return [(output, name, falling.get(agg, agg)) for output, name, agg in super()._plan(columns)]
        chosen = {n: a for n, a in self.aggs.items() if n in columns.names and n not in self.keys}
        return [
            (self.name_sep.join((n, agg)), n, falling.get(agg, agg))
            for n, wanted in chosen.items()
            for agg in _listed(wanted)
        ]

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        for name in self.dependencies():
            if name not in inputs:
                raise ColumnNotFoundError(name, inputs.names, "Groupby's inputs")
        made = super().output_schema(inputs, columns).without([k for k in self.keys if k not in columns.names])
        narrow = self._narrow(columns)
        return Schema(c.with_(dtype="float32") if c.name in narrow else c for c in made)

    def transform(self, frame: Any, columns: Any) -> Any:
        if isinstance(frame, pl.DataFrame):
            frame = frame.filter(pl.all_horizontal(pl.col(self.keys).is_not_null()))
            frame = frame.filter(pl.all_horizontal(True, (cs.by_name(self.keys) & cs.float()).is_not_nan()))
        made = super().transform(frame, columns)
        if not isinstance(made, pl.DataFrame):
            return made  # of a pandas frame, at once: what stands below has been done
        return made.with_columns(pl.col(name).cast(pl.Float32) for name in self._narrow(columns))

    def _narrow(self, columns: Columns) -> list[str]:
        return [name for name, _, agg in self._plan(columns) if agg in ("sum", "mean", "median", "std", "var")]


def _text_dtype() -> str:
    """What pandas calls a column of text: `object`, and `str` from its third version on."""
    return str(require("pandas", "pandas").Series(["a"]).dtype)


def _named(aggs: Any) -> Any:
    """Aggregations by name; Python's `list` is one."""
    if isinstance(aggs, Mapping):
        return {name: _named(wanted) for name, wanted in aggs.items()}
    if isinstance(aggs, (list, tuple)):
        return [_named(wanted) for wanted in aggs]
    return "list" if aggs is list else aggs


def _listed(names: Any) -> list[Any]:
    if names is None:
        return []
    return [names] if isinstance(names, str) else list(names)
