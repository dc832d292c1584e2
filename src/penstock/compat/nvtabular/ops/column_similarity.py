"""How alike two ids are."""

from __future__ import annotations

from typing import Any

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["ColumnSimilarity"]


class ColumnSimilarity(Placed, native.ColumnSimilarity):
    """The similarity of two ids' features; `on_device` is taken and means nothing here.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> node = [["a", "b"]] >> ColumnSimilarity([[1.0, 0.0], [0.0, 1.0]], metric="inner")
    >>> Workflow(node).transform(pd.DataFrame({"a": [0, 0], "b": [0, 1]}))["a_b_sim"].tolist()
    [1.0, 0.0]
    """

    saved_as = native.ColumnSimilarity

    def __init__(
        self, left_features: Any, right_features: Any = None, metric: str = "tfidf", on_device: bool = True
    ) -> None:
        super().__init__(_on_host(left_features), _on_host(right_features), metric)


def _on_host(features: Any) -> Any:
    """CuPy's arrays and matrices come to the host by `get`."""
    return features.get() if type(features).__module__.startswith("cupy") else features


__getattr__ = module_getattr(__name__)
