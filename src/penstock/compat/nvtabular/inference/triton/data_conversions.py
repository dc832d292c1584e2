"""Rows as a frame or as arrays by name."""

from __future__ import annotations

from typing import Any

from penstock.compat.merlin.core._dispatch_data import df_from_dict, dict_from_df
from penstock.compat.merlin.dag.declaring import Supports
from penstock.compat.missing import CompatError

__all__ = ["convert_format"]


def convert_format(tensors: Any, kind: Supports, target_kind: Supports) -> tuple[Any, Supports]:
    """The rows in another form, and which form that is; lists are pairs of values and offsets among arrays.

    >>> import pandas as pd
    >>> rows, kind = convert_format(pd.DataFrame({"a": [1]}), Supports.CPU_DATAFRAME, Supports.CPU_DICT_ARRAY)
    >>> rows["a"].tolist(), kind.name
    ([1], 'CPU_DICT_ARRAY')
    """
    if kind & target_kind:
        return tensors, kind
    if target_kind & Supports.CPU_DICT_ARRAY:
        return dict_from_df(tensors), Supports.CPU_DICT_ARRAY
    if target_kind & Supports.CPU_DATAFRAME:
        return df_from_dict(tensors), Supports.CPU_DATAFRAME
    raise CompatError(f"rows are in host memory here, and cannot become {target_kind}")
