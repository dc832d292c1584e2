"""Numbers brought to a common scale: by mean and standard deviation, or by their range."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from penstock.core.artefact import SavedFolder
from penstock.core.dtypes import FLOATS, DtypeLike, canonical
from penstock.core.params import Satisfies
from penstock.core.schema import ColumnSchema
from penstock.etl.fitted_operator import FittedOperator
from penstock.etl.operator import Columns, Invertible, same_names
from penstock.etl.ops.elementwise import Block, Elementwise, as_continuous, from_values, numeric, require_numbers

if TYPE_CHECKING:
    from penstock.kernels.cpu_stats import Moments

FLOAT_DTYPE = Satisfies(lambda d: canonical(d) in FLOATS, "float32 or float64")


class _Scale(Elementwise, FittedOperator, Invertible):
    """`(x - offset) / scale` with numbers learned from exact, order-independent moments.

    Args:
        out_dtype: of the result, a float.
    """

    learns_by_column = True

    def __init__(self, out_dtype: DtypeLike = "float32") -> None:
        self.out_dtype = out_dtype

    def partial(self, frame: pl.DataFrame, columns: Columns) -> dict[str, Any]:
        from penstock.data.lists import flatten
        from penstock.kernels.cpu_stats import exact_moments

        state = {}
        for name in columns.names:
            series = frame[name]
            if isinstance(series.dtype, pl.List):
                series = flatten(series)[0]
            state[name] = exact_moments(*numeric(series, type(self).__name__))
        return state

    def merge(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        return {name: left[name].merge(right[name]) for name in left}

    def finish(self, state: dict[str, Any], columns: Columns) -> None:
        self.state_ = state
        self.offsets_, self.scales_ = {}, {}
        for name, moments in state.items():
            offset, scale = self.offset_and_scale(moments)
            self.offsets_[name] = offset if math.isfinite(offset) else 0.0
            self.scales_[name] = scale if math.isfinite(scale) and scale > 0 else 1.0

    def offset_and_scale(self, moments: Moments) -> tuple[float, float]:
        """How a column is scaled.

        Args:
            moments: what was learned of a column.

        Returns:
            What is taken off, and what it is divided by then.

        Raises:
            TypeError: a subclass does not define it.
        """
        raise TypeError(f"{type(self).__name__} does not define offset_and_scale")

    def save_state(self, folder: Path) -> None:
        import json

        plain = {name: moments.to_dict() for name, moments in self.state_.items()}
        (folder / "state.json").write_text(json.dumps(plain))

    def load_state(self, folder: SavedFolder, columns: Columns) -> None:
        from penstock.kernels.cpu_stats import Moments

        plain = folder.json("state.json")
        self.finish({name: Moments.from_dict(m) for name, m in plain.items()}, columns)

    def apply(self, series: pl.Series, name: str) -> pl.Series:
        from penstock.kernels.cpu_scale import scaled

        values, valid = numeric(series, type(self).__name__)
        out = scaled(values, self.offsets_[name], self.scales_[name], np.dtype(canonical(self.out_dtype)))
        return from_values(series.name, out, valid)

    def apply_block(self, names: list[str], values: np.ndarray, valid: np.ndarray | None) -> Block | None:
        offsets, scales = (np.array([of[name] for name in names])[:, None] for of in (self.offsets_, self.scales_))
        with np.errstate(all="ignore"):
            return ((values - offsets) / scales).astype(canonical(self.out_dtype)), valid

    def apply_one(self, value: Any, name: str) -> float:
        scaled_value: float = (value - self.offsets_[name]) / self.scales_[name]
        return scaled_value

    def output_column(self, column: ColumnSchema) -> ColumnSchema:
        return as_continuous(require_numbers(column, type(self).__name__), canonical(self.out_dtype))

    def origins(self, columns: Columns) -> dict[str, str]:
        return same_names(columns)

    def inverse(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        return frame.select(pl.col(n).cast(pl.Float64) * self.scales_[n] + self.offsets_[n] for n in frame.columns)


class Normalize(_Scale):
    """Subtract the mean, divide by the standard deviation (of the sample; a constant column is only centred).

    Args:
        out_dtype: of the result, a float.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"x": [1.0, 2.0, 3.0]})
    >>> Workflow(["x"] >> Normalize()).fit_transform(frame)["x"].to_list()
    [-1.0, 0.0, 1.0]
    """

    constraints = {"out_dtype": FLOAT_DTYPE}

    def __init__(self, out_dtype: DtypeLike = "float32") -> None:
        super().__init__(out_dtype)

    def offset_and_scale(self, moments: Moments) -> tuple[float, float]:
        return moments.mean(), moments.std(ddof=1)

    @property
    def means_(self) -> dict[str, float]:
        return self.offsets_

    @property
    def stds_(self) -> dict[str, float]:
        return {name: 0.0 if m.count < 2 else m.std(ddof=1) for name, m in self.state_.items()}


class NormalizeMinMax(_Scale):
    """Map the range seen in fitting to [0, 1] (a constant column to 0).

    Args:
        out_dtype: of the result, a float.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"price": [2.0, 4.0, 3.0]})
    >>> Workflow(["price"] >> NormalizeMinMax()).fit_transform(frame)["price"].to_list()
    [0.0, 1.0, 0.5]
    """

    constraints = {"out_dtype": FLOAT_DTYPE}

    def __init__(self, out_dtype: DtypeLike = "float32") -> None:
        super().__init__(out_dtype)

    def offset_and_scale(self, moments: Moments) -> tuple[float, float]:
        if moments.minimum is None or moments.maximum is None:
            return math.nan, math.nan
        return float(moments.minimum), float(moments.maximum) - float(moments.minimum)
