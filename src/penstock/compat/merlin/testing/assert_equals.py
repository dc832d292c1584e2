"""`merlin.testing.assert_equals`: whether two frames, or two tables of tensors, hold the same."""

from __future__ import annotations

from typing import Any

from penstock.compat.merlin.table.tensor_table import TensorTable
from penstock.core.extras import require

__all__ = ["assert_table_equal", "assert_transformable_equal"]


def assert_table_equal(left: TensorTable, right: TensorTable) -> None:
    """Raise AssertionError, which says where, unless two tables hold the same.

    >>> import numpy as np
    >>> assert_table_equal(TensorTable({"a": np.array([1])}), TensorTable({"a": np.array([1])}))
    """
    assert_transformable_equal(left.cpu().to_df(), right.cpu().to_df())


def assert_transformable_equal(left: Any, right: Any) -> None:
    """Raise AssertionError unless two pandas frames, or two tables, hold the same.

    >>> import pandas as pd
    >>> assert_transformable_equal(pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1]}))
    """
    pandas = require("pandas", "pandas")
    if isinstance(left, TensorTable):
        assert_table_equal(left, right)
    elif isinstance(left, pandas.DataFrame):
        pandas.testing.assert_frame_equal(left, right)
    else:
        raise NotImplementedError(f"neither a pandas frame nor a table: {type(left).__name__}")
