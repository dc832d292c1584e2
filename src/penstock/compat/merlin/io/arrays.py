"""`Dataset.to_npy`: all rows as one array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from penstock.core.array_files import load_array
from penstock.core.artefact import replacing
from penstock.core.errors import DataError, SchemaError
from penstock.data.dataset import Dataset


def write_array(data: Dataset, output_file: Any, append: bool) -> None:
    """Write a `.npy` file with a column for each column of the data, and for each element of its lists."""
    pieces = [np.hstack([_block(series) for series in frame]) for frame in data.iter_frames()]
    if append and Path(output_file).exists():
        pieces.insert(0, load_array(output_file))
    with replacing(output_file) as partial, partial.open("wb") as file:
        np.save(file, np.vstack(pieces))


def _block(series: pl.Series) -> np.ndarray:
    if series.null_count():
        raise DataError(
            f"Cannot convert data because null values were detected: column {series.name!r} has {series.null_count()}; "
            f"fill them first (FillMissing)"
        )
    if isinstance(series.dtype, pl.List):
        lengths = set(series.list.len().to_list())
        if len(lengths) > 1:
            raise SchemaError(f"column {series.name!r} holds lists of different lengths; an array needs them equal")
        return np.vstack(series.to_list()) if series.len() else np.empty((0, 0))
    return series.to_numpy().reshape(-1, 1)
