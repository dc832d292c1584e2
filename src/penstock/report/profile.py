"""Profiles of data sets, as plain data that JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from penstock.core.artefact import MANIFEST
from penstock.core.described import described_frame
from penstock.core.dtypes import INTEGERS, NUMERIC
from penstock.core.errors import ParameterError
from penstock.core.schema import ColumnSchema, Role
from penstock.data import Dataset
from penstock.data.dataset import as_dataset
from penstock.data.sources import DataLike
from penstock.report.plain import plain

SAMPLE_ROWS = 1_000_000
NUM_BINS = 12


_WORKFLOWS = ("workflow", "model/workflow", "model/model/workflow", ".")  # in a run, a saved model, and by itself


def saved_workflow(path: str | Path) -> Path | None:
    """The folder of a saved workflow: this one, or that in a training run or a saved model.

    Args:
        path: of any folder.

    Returns:
        The folder; None where there is no workflow.

    >>> saved_workflow("clicks.parquet") is None
    True
    """
    return next((found for inside in _WORKFLOWS if ((found := Path(path) / inside) / MANIFEST).is_file()), None)


def profile_dataset(source: DataLike, sample_rows: int = SAMPLE_ROWS) -> dict[str, Any]:
    """Roles, cardinalities, null shares and histograms, exact over at most `sample_rows` rows.

    The rows come from partitions spread over the whole data set, so that data ordered by time is seen at both ends.

    >>> profile = profile_dataset({"user": ["a", "b", "a", None], "price": [1.0, 2.0, 3.0, 4.0]})
    >>> profile["rows"], profile["columns"][0]["distinct"], profile["columns"][0]["null_share"]
    (4, 2, 0.25)
    """
    if sample_rows < 1:
        raise ParameterError(f"the number of rows to look at must be an int ≥ 1, got {sample_rows}")
    data = as_dataset(source)
    frame, whole, rows_per_byte = _sample(data, sample_rows)
    known = [part.num_rows for part in data.partitions]
    rows = frame.height if whole else (None if None in known else sum(n or 0 for n in known))
    return {
        "kind": "dataset",
        "rows": rows,
        "estimated_rows": round(rows_per_byte * sum(p.num_bytes for p in data.partitions)) if rows is None else rows,
        "sampled_rows": frame.height,
        "is_sample": not whole,
        "partitions": data.num_partitions,
        "bytes": sum(part.num_bytes for part in data.partitions),
        "columns": [profile_column(frame[column.name], column) for column in data.schema],
    }


def _sample(data: Dataset, most: int) -> tuple[pl.DataFrame, bool, float]:
    """At most `most` rows, whether they are all there are, and how many there are in a byte of the source."""
    parts, frames, height, size = data.partitions, [], 0, 0
    for number in spread(len(parts)):
        frame = described_frame(parts[number].read(data.schema.names))
        size += parts[number].num_bytes
        if height + frame.height > most:
            frames.append(frame.head(most - height))
            return pl.concat(frames), False, (height + frame.height) / max(1, size)
        frames.append(frame)
        height += frame.height
        if height == most:
            break
    return pl.concat(frames), len(frames) == len(parts), height / max(1, size)


def spread(count: int) -> Iterator[int]:
    """Every number below `count`, any first few of them far apart.

    >>> list(spread(6))
    [0, 4, 2, 1, 5, 3]
    """
    bits = max(1, (count - 1).bit_length())
    for i in range(1 << bits):
        number = int(f"{i:0{bits}b}"[::-1], 2)
        if number < count:
            yield number


def profile_column(series: pl.Series, column: ColumnSchema) -> dict[str, Any]:
    """One column: what the schema says and what the values show."""
    out: dict[str, Any] = {
        "name": column.name,
        "dtype": f"list[{column.dtype}]" if column.is_list else column.dtype,
        "role": str(column.role),
        "tags": sorted(column.tags),
        "cardinality": column.cardinality,
        "null_share": series.null_count() / max(1, len(series)),
    }
    if column.is_list:
        lengths = series.list.len().drop_nulls()
        out["mean_length"] = plain(lengths.mean())
        out["max_length"] = plain(lengths.max())
        while isinstance(series.dtype, (pl.List, pl.Array)):  # of lists of lists the innermost values
            series = series.explode()
    values = series.drop_nulls()
    out["distinct"] = values.n_unique()
    if column.dtype in NUMERIC and column.dtype != "bool" and not _is_category(column):
        numbers = values.cast(pl.Float64)
        numbers = numbers.filter(numbers.is_finite())
        ends = values if column.dtype in INTEGERS else numbers  # integers to the last digit: they may be ids
        out.update(min=plain(ends.min()), max=plain(ends.max()), mean=plain(numbers.mean()))
        out["histogram"] = histogram(numbers.to_numpy())
    else:
        out["histogram"] = frequencies(values, as_hex=column.properties.get("text") == "hex")
    return out


def _is_category(column: ColumnSchema) -> bool:
    return column.role in (Role.CATEGORICAL, Role.LABEL) or column.properties.get("text") == "hex"


def histogram(numbers: np.ndarray, num_bins: int = NUM_BINS) -> dict[str, Any]:
    """Counts in bins of equal width; of logarithmic width where a long tail would leave one bin with everything.

    >>> histogram(np.array([0.0, 1.0, 2.0, 3.0]), num_bins=2)
    {'scale': 'linear', 'edges': [0.0, 1.5, 3.0], 'counts': [2, 2]}
    """
    if len(numbers) == 0:
        return {"scale": "linear", "edges": [], "counts": []}
    low, high = float(numbers.min()), float(numbers.max())
    if low == high:
        return {"scale": "linear", "edges": [low, high], "counts": [len(numbers)]}
    first, third = np.quantile(numbers, [0.25, 0.75])
    if high - low > 20 * max(third - first, 1e-12) and high - low > num_bins:
        edges = low + np.expm1(np.linspace(0, math.log1p(high - low), num_bins + 1))
        edges[-1] = high  # rounding must not leave the largest value outside
        scale = "log"
    else:
        edges, scale = np.linspace(low, high, num_bins + 1), "linear"
    counts, _ = np.histogram(numbers, edges)
    return {"scale": scale, "edges": [float(e) for e in edges], "counts": [int(c) for c in counts]}


def frequencies(values: pl.Series, most: int = NUM_BINS, as_hex: bool = False) -> dict[str, Any]:
    """The most frequent values and how often they occur; ties by value.

    >>> frequencies(pl.Series(["b", "a", "b"]))
    {'scale': 'frequency', 'values': ['b', 'a'], 'counts': [2, 1]}
    """
    counts = pl.DataFrame({"value": values}).group_by("value").len().sort("len", "value", descending=[True, False])
    top = counts.head(most)
    shown = [f"{v:08x}" if as_hex else plain(v) for v in top["value"].to_list()]
    return {"scale": "frequency", "values": shown, "counts": top["len"].to_list()}
