"""Columns from other rows: of another table, of the same category, of an earlier row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from penstock.compat.merlin.dag.node import as_node
from penstock.compat.merlin.io.dataset import Dataset
from penstock.compat.merlin.io.opening import opened
from penstock.compat.nvtabular.ops import Placed, names_of
from penstock.core.artefact import replacing
from penstock.core.dtypes import INTEGERS, to_polars
from penstock.core.schema import ColumnSchema, Schema
from penstock.etl import ops as native
from penstock.etl.graph import Node as NativeNode
from penstock.etl.operator import ROW_NUMBER, Columns, Operator
from penstock.etl.ops.target import FOLD

FOLDS = "__fold__"
_STATISTICS = {"count": "int32", "mean": "float32", "std": "float32", "var": "float32"}


class TakesNode(Placed):
    """Mixin: the argument named by `takes` may also be a node, whose columns are known once a schema is."""

    takes = ""
    _node: NativeNode | None = None

    def _names_or_node(self, columns: Any) -> Any:
        if isinstance(columns, (list, tuple)) and any(_computed(item) for item in columns):
            columns = as_node(columns[0] if len(columns) == 1 else list(columns))
        if _computed(columns):
            self._node = columns
            return ["?"]
        return names_of(columns, f"{type(self).__name__}.{self.takes}")

    def dependencies(self) -> list[Any]:
        named: list[Any] = super().dependencies()  # type: ignore[misc]
        return named if self._node is None else [self._node]

    def take_names(self, columns_of: Callable[[NativeNode], list[str]]) -> None:
        """Put the names of the node's columns in its place."""
        if self._node is not None:
            setattr(self, self.takes, columns_of(self._node))


def _computed(columns: Any) -> bool:
    return isinstance(columns, NativeNode) and columns.kind != "source"


class JoinExternal(Placed, native.JoinExternal):
    """Join a frame, a Dataset, a Dask frame or files by key; `kind_ext` and `cache` are taken and mean nothing here.

    Keys that the table names otherwise come out too, as in a merge of pandas.

    >>> import pandas as pd
    >>> JoinExternal(pd.DataFrame({"id": [1], "price": [2.0]}), on="id").table["price"].to_list()
    [2.0]
    """

    def __init__(
        self,
        df_ext: Any,
        on: Any,
        how: str = "left",
        on_ext: Any = None,
        columns_ext: Any = None,
        drop_duplicates_ext: bool | None = None,
        kind_ext: Any = None,
        cache: str = "host",
        **kwargs: Any,
    ) -> None:
        if isinstance(df_ext, Dataset):
            df_ext = df_ext.native
        elif hasattr(df_ext, "to_delayed"):
            df_ext = opened(df_ext, None, None, None, None, None, None, {})
        super().__init__(df_ext, on, how, on_ext, columns_ext, bool(drop_duplicates_ext))

    def _keys_left_out(self, columns: Columns) -> list[str]:
        return [key for key in self._keys_ext if key in columns.names]


class JoinGroupby(TakesNode, native.JoinGroupby):
    """Statistics of numbers over a category's rows, as new columns: int32 counts, float32 means, deviations and
    variances; sums and extremes of integers are integers, those of other numbers float64.

    `tree_width`, `split_out`, `split_every`, `cat_cache`, `out_path` and `on_host` are taken and mean nothing here.

    >>> JoinGroupby(cont_cols=["price"], stats=["mean"]).stats
    ['mean']
    """

    takes = "cont_cols"
    gives_tags, makes_features = False, True

    def __init__(
        self,
        cont_cols: Any = None,
        stats: Any = ("count",),
        tree_width: Any = None,
        cat_cache: Any = "host",
        out_path: Any = None,
        on_host: bool = True,
        name_sep: str = "_",
        split_out: Any = None,
        split_every: Any = None,
    ) -> None:
        super().__init__(self._names_or_node(cont_cols), stats, name_sep)

    def output_names(self, group: tuple[str, ...]) -> dict[str, tuple[str, str]]:
        """As NVTabular orders them: by column, then as `stats` says; the count comes where it is named first."""
        out: dict[str, tuple[str, str]] = {}
        for cont in self._conts or [""]:
            for statistic in self._stats:
                counts = statistic == "count"
                parts = (*group, statistic) if counts else (*group, cont, statistic)
                out.setdefault(self.name_sep.join(parts), (statistic, "" if counts else cont))
        return out

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        made = super().output_schema(inputs, columns)
        of = {name: told for group in columns.groups for name, told in self.output_names(group).items()}
        self._dtypes = {c.name: _statistic_dtype(*of[c.name], inputs) for c in made}
        return Schema(c.with_(dtype=self._dtypes[c.name]) for c in made)

    def made_from(self, output: str, columns: Columns) -> str:
        of = {
            name: source or group[0]
            for group in columns.groups
            for name, (_, source) in self.output_names(group).items()
        }
        return of.get(output, output)

    def transform(self, frame: Any, columns: Any) -> Any:
        made = super().transform(frame, columns)
        if not isinstance(made, pl.DataFrame):
            return made  # of a pandas frame, at once: what stands below has been done
        if not hasattr(self, "_dtypes"):  # learned from a frame by itself, outside a workflow
            self.output_schema(Schema.from_polars(frame.schema), columns)
        return made.with_columns(pl.col(name).cast(to_polars(self._dtypes[name])) for name in made.columns)


def _statistic_dtype(statistic: str, source: str, inputs: Schema) -> str:
    if statistic in _STATISTICS:
        return _STATISTICS[statistic]
    integers = source in inputs and inputs[source].dtype in INTEGERS
    return "float64" if not integers else "int64" if statistic == "sum" else inputs[source].dtype


class TargetEncoding(TakesNode, native.TargetEncoding):
    """A category as the smoothed mean of the target.

    Folds are for the rows of `fit_transform` alone; `transform` uses the statistics of all rows, also where NVTabular
    drew folds for data that it had never fitted on. `drop_folds=False` gives each row's fold as `__fold__`. `means`
    holds the mean of each target once fitted. `tree_width`, `split_out`, `split_every`, `cat_cache`, `out_path`
    and `on_host` are taken and mean nothing here.

    >>> TargetEncoding("click", kfold=5).kfold
    5
    """

    takes = "target"
    makes_features = True

    def __init__(
        self,
        target: Any,
        target_mean: Any = None,
        kfold: int | None = None,
        fold_seed: int | None = 42,
        p_smooth: float = 20,
        out_col: Any = None,
        out_dtype: Any = None,
        tree_width: Any = None,
        cat_cache: Any = "host",
        out_path: Any = None,
        on_host: bool = True,
        name_sep: str = "_",
        drop_folds: bool = True,
        split_out: Any = None,
        split_every: Any = None,
    ) -> None:
        super().__init__(
            self._names_or_node(target), target_mean, kfold or 3, fold_seed or 0, p_smooth,
            _flat(out_col), out_dtype, name_sep,
        )  # fmt: skip
        self.drop_folds, self.tree_width, self.split_out, self.split_every = (
            drop_folds,
            tree_width,
            split_out,
            split_every,
        )
        self.cat_cache, self.out_path, self.on_host = cat_cache, out_path, on_host

    def __new__(cls, *args: Any, drop_folds: bool = True, **kwargs: Any) -> TargetEncoding:
        return super().__new__(cls if drop_folds or cls is not TargetEncoding else FoldsKept)

    def made_from(self, output: str, columns: Columns) -> str:
        return {name: target for name, _, target in self.output_names(columns)}.get(output, output)

    @property
    def means(self) -> dict[str, float]:
        return dict(self.means_) if self.is_fitted else {}

    def finish(self, state: Any, columns: Columns) -> None:
        super().finish(state, columns)
        self._groups = columns.groups

    @property
    def stats(self) -> dict[str, str]:
        """The totals of each group of columns as parquet files, written when they are asked for; by fold with folds."""
        if not self.is_fitted:
            return {}
        folder = Path("." if self.out_path is None else self.out_path) / "categories"
        folder.mkdir(parents=True, exist_ok=True)
        written = {}
        for sums, group in zip(self.state_, self._groups, strict=True):
            totals = sums.frame().with_columns(pl.col(pl.Int128).cast(pl.Float64))  # readers have no such integers
            totals = totals.rename({**dict(zip(sums.keys, group, strict=False)), FOLD: FOLDS})
            whole = totals.group_by(group, maintain_order=True).agg(pl.exclude(FOLDS, *group).sum())
            for name, frame in ((self.name_sep.join(group), whole), (self.name_sep.join((FOLDS, *group)), totals)):
                written[name] = str(folder / f"cat_stats.{name}.parquet")
                with replacing(written[name]) as partial:
                    frame.write_parquet(partial)
        return written


class FoldsKept(TargetEncoding):
    """With `drop_folds=False`: the fold of each row is a column, `__fold__`.

    >>> type(TargetEncoding("click", drop_folds=False)).__name__
    'FoldsKept'
    """

    @classmethod
    def recipe_class(cls) -> type[Operator]:
        return cls  # the native one has no such column

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        made = super().output_schema(inputs, columns)
        return made if self.kfold == 1 else made.with_column(ColumnSchema(FOLDS, "uint16", nullable=False))

    def _looked_up(self, frame: pl.DataFrame, *arguments: Any) -> pl.DataFrame:
        made = super()._looked_up(frame, *arguments)
        return made if self.kfold == 1 else made.with_columns(pl.Series(FOLDS, self._folds(frame).astype("uint16")))

    def _folds(self, frame: pl.DataFrame) -> np.ndarray:
        if ROW_NUMBER not in frame.columns:  # a frame by itself: its rows are the first ones
            frame = frame.with_columns(pl.Series(ROW_NUMBER, np.arange(frame.height)))
        return super()._folds(frame)


class DifferenceLag(TakesNode, native.DifferenceLag):
    """`x` minus the `x` of an earlier row of the same series, over the whole data set; float32.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> frame = pd.DataFrame({"user": [1, 1], "time": [5, 8]})
    >>> Workflow(["time"] >> DifferenceLag("user")).transform(frame)["time_difference_lag_1"].tolist()
    [nan, 3.0]
    """

    takes = "partition_cols"

    def __init__(self, partition_cols: Any, shift: Any = 1) -> None:
        super().__init__(self._names_or_node(partition_cols), shift)

    def _outputs(self, columns: Columns) -> list[tuple[str, str, int]]:
        """As NVTabular has them: all shifts of a column, then those of the next."""
        made, names = super()._outputs(columns), list(columns.names)
        return sorted(made, key=lambda output: names.index(output[1]))

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        return Schema(c.with_(dtype="float32") for c in super().output_schema(inputs, columns))

    def transform(self, frame: Any, columns: Any) -> Any:
        made = super().transform(frame, columns)
        return made.cast(pl.Float32) if isinstance(made, pl.DataFrame) else made


def _flat(names: Any) -> Any:
    """NVTabular takes a list for each group and target; the outputs come in that order."""
    if names is None or isinstance(names, str):
        return names
    return [name for item in names for name in ([item] if isinstance(item, str) else item)]
