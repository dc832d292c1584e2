"""Columns from other rows: of another table, of the same category, of an earlier row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.compat.merlin.io.dataset import Dataset
from penstock.compat.merlin.io.opening import opened
from penstock.compat.nvtabular.ops.placed import Placed, names_of
from penstock.core.errors import ParameterError
from penstock.etl import ops as native
from penstock.etl.graph import Node as NativeNode


class TakesNode(Placed):
    """Mixin: the argument named by `takes` may also be a node, whose columns are known once a schema is."""

    takes = ""
    _node: NativeNode | None = None

    def _names_or_node(self, columns: Any) -> Any:
        if isinstance(columns, NativeNode) and columns.kind != "source":
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


class JoinExternal(Placed, native.JoinExternal):
    """Join a frame, a Dataset, a Dask frame or files by key; `kind_ext` and `cache` are taken and mean nothing here.

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


class JoinGroupby(TakesNode, native.JoinGroupby):
    """Statistics of numbers over a category's rows, as new columns (int64 counts, float64 statistics).

    `tree_width`, `split_out`, `split_every`, `cat_cache`, `out_path` and `on_host` are taken and mean nothing here.

    >>> JoinGroupby(cont_cols=["price"], stats=["mean"]).stats
    ['mean']
    """

    takes = "cont_cols"

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


class TargetEncoding(TakesNode, native.TargetEncoding):
    """A category as the smoothed mean of the target.

    Folds are for the rows of `fit_transform` alone; `transform` uses the statistics of all rows, also where NVTabular
    drew folds for data that it had never fitted on. `tree_width`, `split_out`, `split_every`, `cat_cache`, `out_path`
    and `on_host` are taken and mean nothing here.

    >>> TargetEncoding("click", kfold=5).kfold
    5
    """

    takes = "target"

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
        if not drop_folds:
            raise ParameterError("TargetEncoding(drop_folds=False) is not here: folds are no column of the data")
        super().__init__(
            self._names_or_node(target), target_mean, kfold or 3, fold_seed or 0, p_smooth,
            _flat(out_col), out_dtype, name_sep,
        )  # fmt: skip


class DifferenceLag(TakesNode, native.DifferenceLag):
    """`x` minus the `x` of an earlier row of the same series, over the whole data set.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> frame = pd.DataFrame({"user": [1, 1], "time": [5, 8]})
    >>> Workflow(["time"] >> DifferenceLag("user")).transform(frame)["time_difference_lag_1"].tolist()
    [nan, 3.0]
    """

    takes = "partition_cols"

    def __init__(self, partition_cols: Any, shift: Any = 1) -> None:
        super().__init__(self._names_or_node(partition_cols), shift)


def _flat(names: Any) -> Any:
    """NVTabular takes a list for each group and target; the outputs come in that order."""
    if names is None or isinstance(names, str):
        return names
    return [name for item in names for name in ([item] if isinstance(item, str) else item)]
