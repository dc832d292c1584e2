"""Operators that compute a row's values from that row, or from a column's mean and range."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.compat import settings
from penstock.compat.missing import CompatTypeError
from penstock.compat.nvtabular.ops import Placed
from penstock.etl import ops as native
from penstock.etl.operator import Operator
from penstock.etl.ops.embedding_sizes import default_dimension

if TYPE_CHECKING:
    from penstock.kernels.cpu_stats import Moments
import numpy as np
import polars as pl

from penstock.core.schema import ColumnSchema
from penstock.etl.ops.elementwise import from_values, numeric

# Hashed ids, with the sizes of their embeddings.


class HashBucket(Placed, native.HashBucket):
    """Values as one of `num_buckets` ids, by Penstock's hash.

    >>> HashBucket({"a": 10}).get_embedding_sizes(["a"])
    {'a': (10, 16)}
    """

    def __init__(self, num_buckets: Any) -> None:
        if not isinstance(num_buckets, (int, Mapping)):
            raise CompatTypeError(f"HashBucket.num_buckets must be a number or {{column: number}}, got {num_buckets!r}")
        super().__init__(num_buckets)

    def get_embedding_sizes(self, columns: Any) -> dict[str, tuple[int, int]]:
        """`{column: (rows, dimension)}`."""
        known = self.num_buckets
        sizes = {name: int(known[name] if isinstance(known, Mapping) else known) for name in columns}
        return {name: (size, default_dimension(size)) for name, size in sizes.items()}

    def output_column(self, column: ColumnSchema) -> ColumnSchema:
        made = super().output_column(column)
        size, dimension = self.get_embedding_sizes([column.name])[column.name]
        told = {"domain": {"min": 0, "max": size}, "embedding_sizes": {"cardinality": size, "dimension": dimension}}
        return made.with_(properties={**made.properties, **told})  # the domain ends one further, as NVTabular had it


# Columns from pairs and groups of columns.


class ColumnSimilarity(Placed, native.ColumnSimilarity):
    """The similarity of two ids' features; `on_device` is taken and means nothing here.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> node = [["a", "b"]] >> ColumnSimilarity([[1.0, 0.0], [0.0, 1.0]], metric="inner")
    >>> Workflow(node).transform(pd.DataFrame({"a": [0, 0], "b": [0, 1]}))["a_b_sim"].tolist()
    [1.0, 0.0]
    """

    def __init__(
        self, left_features: Any, right_features: Any = None, metric: str = "tfidf", on_device: bool = True
    ) -> None:
        super().__init__(_on_host(left_features), _on_host(right_features), metric)


class HashedCross(Placed, native.HashedCross):
    """`[["a", "b"]] >> HashedCross(n)` gives `a_X_b`; the hashes are Penstock's own.

    >>> HashedCross({("a", "b"): 10}).num_buckets
    {'a_X_b': 10}
    """

    def __init__(self, num_buckets: int | Mapping[Any, int]) -> None:
        if isinstance(num_buckets, Mapping):
            num_buckets = {k if isinstance(k, str) else "_X_".join(k): v for k, v in num_buckets.items()}
        super().__init__(num_buckets)


def _on_host(features: Any) -> Any:
    """CuPy's arrays and matrices come to the host by `get`."""
    return features.get() if type(features).__module__.startswith("cupy") else features


# Scales: float32 as NVTabular 0.5 gave them, float64 as later releases did.

_HUGE = 2.0**1000


class Normalize(Placed, native.Normalize):
    """Mean 0 and standard deviation 1.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> Normalize()).fit_transform(pd.DataFrame({"x": [1.0, 2.0, 3.0]}))["x"].tolist()
    [-1.0, 0.0, 1.0]
    """

    def __init__(self, out_dtype: Any = None) -> None:
        super().__init__(_dtype(out_dtype))

    @property
    def means(self) -> dict[str, float]:
        return dict(self.means_) if self.is_fitted else {}

    @property
    def stds(self) -> dict[str, float]:
        return dict(self.stds_) if self.is_fitted else {}


class NormalizeMinMax(Placed, native.NormalizeMinMax):
    """The range seen in fitting becomes [0, 1]; a column that was constant becomes 0.5, whatever comes later.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> NormalizeMinMax()).fit_transform(pd.DataFrame({"x": [1.0, 2.0, 3.0]}))["x"].tolist()
    [0.0, 0.5, 1.0]
    """

    def __init__(self, out_dtype: Any = None) -> None:
        super().__init__(_dtype(out_dtype))

    @classmethod
    def recipe_class(cls) -> type[Operator]:
        return cls

    def offset_and_scale(self, moments: Moments) -> tuple[float, float]:
        if moments.minimum is not None and moments.minimum == moments.maximum:
            return -_HUGE, 2 * _HUGE  # beside which any number is nothing
        return super().offset_and_scale(moments)

    @property
    def mins(self) -> dict[str, Any]:
        return {name: moments.minimum for name, moments in (self.state_ or {}).items()}

    @property
    def maxs(self) -> dict[str, Any]:
        return {name: moments.maximum for name, moments in (self.state_ or {}).items()}


def _dtype(out_dtype: Any) -> Any:
    if out_dtype is not None:
        return out_dtype
    return "float32" if settings.nvtabular() == "0.5" else "float64"


class Bucketize(Placed, native.Bucketize):
    """The number of the bucket that a value falls in; a missing value is in the last one, as NaN is for `np.digitize`.

    `boundaries` is a rising list, one for each column, or a function that gives one for a column's name.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> Bucketize([0, 5])).transform(pd.DataFrame({"x": [-1.0, 0.0, 9.0, None]}))["x"].tolist()
    [0, 1, 2, 2]
    """

    _given: Callable[[str], Any] | None = None  # asked when a column comes

    def __init__(self, boundaries: Any) -> None:
        if callable(boundaries):
            self._given, boundaries = boundaries, {}
        elif isinstance(boundaries, (int, float, str)):
            raise CompatTypeError(
                f"Bucketize.boundaries must be a list, lists by column or a function, got {boundaries!r}"
            )
        super().__init__(boundaries)

    def _of(self, name: str) -> list[int | float]:
        if self._given is not None and name not in self.boundaries:
            known: Any = self.boundaries
            self.boundaries = {**known, name: list(self._given(name))}
        return super()._of(name)

    def apply(self, series: pl.Series, name: str) -> pl.Series:
        return super().apply(series, name).fill_null(len(self._of(name)))

    def apply_null(self, name: str) -> int:
        return len(self._of(name))

    @classmethod
    def recipe_class(cls) -> type[Operator]:
        return cls


class ListSlice(Placed, native.ListSlice):
    """Some elements of every list; the columns are tagged as lists from here on.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> sliced = Workflow(["x"] >> ListSlice(-2)).transform(pd.DataFrame({"x": [[1, 2, 3], [4]]}))
    >>> [row.tolist() for row in sliced["x"]]
    [[2, 3], [4]]
    """

    def _column(self, column: ColumnSchema) -> ColumnSchema:
        made = super()._column(column)
        return made.with_(tags=made.tags | {"list"})


class LogOp(Placed, native.LogOp):
    """`log(x + 1)`, both in float32; Penstock's own adds and takes the logarithm in one step, which rounds less.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> LogOp()).transform(pd.DataFrame({"x": [0.0, 1e-8]}))["x"].tolist()
    [0.0, 0.0]
    """

    def apply(self, series: pl.Series, name: str) -> pl.Series:
        values, valid = numeric(series, "LogOp")
        return from_values(series.name, _log(values), valid)

    def apply_block(self, names: list[str], values: np.ndarray, valid: np.ndarray | None) -> Any:
        return _log(values), valid

    def apply_one(self, value: Any, name: str) -> float:
        return float(_log(np.asarray([value]))[0])


def _log(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(values.astype(np.float32) + np.float32(1))
