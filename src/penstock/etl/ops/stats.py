"""Statistics of columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from penstock.core.artefact import SavedFolder
from penstock.core.schema import ColumnSchema, Schema
from penstock.data.lists import flatten
from penstock.etl.cells import RowFunction
from penstock.etl.fitted_operator import FittedOperator
from penstock.etl.operator import Columns, per_column, same_names
from penstock.etl.ops.elementwise import numeric
from penstock.etl.vocabulary import COUNT, VALUE, ValueCounts

MEMORY_LIMIT = 256 << 20  # a column's distinct values go to disk beyond this


class DataStats(FittedOperator):
    """Learn what is in each column, as `statistics_` and as properties of the schema; the data passes through.

    For each column: `count` (values that are there), `null_share`, `cardinality` (distinct values, exact); for numbers
    also `min`, `max`, `mean`, `std` (of the sample). In list columns, the elements are counted. NaN counts as missing.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"price": [1.0, 3.0, None, 3.0]})
    >>> stats = DataStats()
    >>> workflow = Workflow(["price"] >> stats).fit(frame)
    >>> stats.statistics_["price"]["cardinality"], stats.statistics_["price"]["null_share"]
    (2, 0.25)
    """

    learns_by_column = True

    def __init__(self) -> None:
        pass

    def partial(self, frame: pl.DataFrame, columns: Columns) -> dict[str, Any]:
        return self.accumulate(None, frame, columns)

    def accumulate(self, state: dict[str, Any] | None, frame: pl.DataFrame, columns: Columns) -> dict[str, Any]:
        from penstock.kernels.cpu_stats import Moments, exact_moments

        state = {} if state is None else state
        for name in columns.names:
            series = frame[name]
            if isinstance(series.dtype, (pl.List, pl.Array)):
                series = flatten(series)[0]
            if name not in state:
                state[name] = (ValueCounts(series.dtype, MEMORY_LIMIT, 16), Moments())
            counts, moments = state[name]
            counts.add(series)
            if series.dtype.is_numeric() or series.dtype == pl.Boolean:
                moments = moments.merge(exact_moments(*numeric(series, "DataStats")))
            state[name] = (counts, moments)
        return state

    def merge(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        return {n: (left[n][0].merge(right[n][0]), left[n][1].merge(right[n][1])) for n in left}

    def finish(self, state: dict[str, Any], columns: Columns) -> None:
        self.state_ = state
        self.statistics_ = {name: _summary(counts, moments) for name, (counts, moments) in state.items()}

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        return frame.select(columns.names)

    def origins(self, columns: Columns) -> dict[str, str]:
        return same_names(columns)

    def row_function(self, columns: Columns) -> RowFunction:
        names = columns.names
        return lambda values: {name: values[name] for name in names}

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        if not self.is_fitted:
            return inputs.select(columns.names)
        return per_column(inputs, columns, self._column)

    def _column(self, column: ColumnSchema) -> ColumnSchema:
        return column.with_(properties={**column.properties, "statistics": self.statistics_[column.name]})

    def save_state(self, folder: Path) -> None:
        plain = []
        for i, (name, (counts, moments)) in enumerate(self.state_.items()):
            counts.frame().sort(VALUE).write_parquet(folder / f"values.{i}.parquet")
            plain.append(
                {"name": name, "rows": counts.num_rows, "nulls": counts.num_null, "moments": moments.to_dict()}
            )
        (folder / "state.json").write_text(json.dumps(plain))

    def load_state(self, folder: SavedFolder, columns: Columns) -> None:
        from penstock.kernels.cpu_stats import Moments

        state = {}
        for i, entry in enumerate(folder.json("state.json")):
            frame = folder.frame(f"values.{i}.parquet")
            counts = ValueCounts(frame[VALUE].dtype, MEMORY_LIMIT, 16)
            counts.add_counts(frame[VALUE], frame[COUNT].to_numpy())
            counts.num_rows, counts.num_null = entry["rows"], entry["nulls"]
            state[entry["name"]] = (counts, Moments.from_dict(entry["moments"]))
        self.finish(state, columns)


def _summary(counts: ValueCounts, moments: Any) -> dict[str, Any]:
    """What is told of a column; numbers only where there are some."""
    cardinality = sum(frame.height for frame in counts.frames())
    summary: dict[str, Any] = {
        "count": counts.num_rows - counts.num_null,
        "null_share": counts.num_null / counts.num_rows if counts.num_rows else 0.0,
        "cardinality": cardinality,
    }
    if moments.count:
        summary |= {"min": moments.minimum, "max": moments.maximum, "mean": moments.mean()}
        summary["std"] = moments.std(ddof=1) if moments.count > 1 else 0.0
    return summary
