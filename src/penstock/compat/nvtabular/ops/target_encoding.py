"""Target encoding."""

from __future__ import annotations

from typing import Any

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed, names_of
from penstock.core.errors import ParameterError
from penstock.etl import ops as native

__all__ = ["TargetEncoding"]


class TargetEncoding(Placed, native.TargetEncoding):
    """A category as the smoothed mean of the target.

    Folds are for the rows of `fit_transform` alone; `transform` uses the statistics of all rows, also where NVTabular
    drew folds for data that it had never fitted on. `tree_width`, `split_out`, `split_every`, `cat_cache`, `out_path`
    and `on_host` are taken and mean nothing here.

    >>> TargetEncoding("click", kfold=5).kfold
    5
    """

    saved_as = native.TargetEncoding

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
            names_of(target, "TargetEncoding.target"), target_mean, kfold or 3, fold_seed or 0, p_smooth,
            _flat(out_col), out_dtype, name_sep,
        )  # fmt: skip


def _flat(names: Any) -> Any:
    """NVTabular takes a list for each group and target; the outputs come in that order."""
    if names is None or isinstance(names, str):
        return names
    return [name for item in names for name in ([item] if isinstance(item, str) else item)]


__getattr__ = module_getattr(__name__)
