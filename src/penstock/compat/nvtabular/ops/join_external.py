"""Columns of another table."""

from __future__ import annotations

from typing import Any

from penstock.compat.merlin.io.dataset import Dataset
from penstock.compat.merlin.io.opening import opened
from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["JoinExternal"]


class JoinExternal(Placed, native.JoinExternal):
    """Join a frame, a Dataset, a Dask frame or files by key; `kind_ext` and `cache` are taken and mean nothing here.

    >>> import pandas as pd
    >>> JoinExternal(pd.DataFrame({"id": [1], "price": [2.0]}), on="id").table["price"].to_list()
    [2.0]
    """

    saved_as = native.JoinExternal

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


__getattr__ = module_getattr(__name__)
