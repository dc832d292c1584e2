"""Statistics by category."""

from __future__ import annotations

from typing import Any

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed, names_of
from penstock.etl import ops as native

__all__ = ["JoinGroupby"]


class JoinGroupby(Placed, native.JoinGroupby):
    """Statistics of numbers over a category's rows, as new columns (int64 counts, float64 statistics).

    `tree_width`, `split_out`, `split_every`, `cat_cache`, `out_path` and `on_host` are taken and mean nothing here.

    >>> JoinGroupby(cont_cols=["price"], stats=["mean"]).stats
    ['mean']
    """

    saved_as = native.JoinGroupby

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
        super().__init__(names_of(cont_cols, "JoinGroupby.cont_cols"), stats, name_sep)


__getattr__ = module_getattr(__name__)
