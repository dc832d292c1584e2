"""Scales: float32 as NVTabular 0.5 gave them, float64 as later releases did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.compat import settings
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native
from penstock.etl.operator import Operator

if TYPE_CHECKING:
    from penstock.kernels.cpu_stats import Moments

__all__ = ["Normalize", "NormalizeMinMax"]

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
