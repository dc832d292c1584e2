"""Columns from pairs and groups of columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native


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
