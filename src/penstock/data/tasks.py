"""What a data set does to one partition: plain functions, so that they travel to any thread or machine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from penstock.core.described import described_frame
from penstock.core.overflow import filtered
from penstock.core.schema import Schema
from penstock.data import split
from penstock.data.bad_lines import collecting
from penstock.data.partition import Partition


def empty(schema: Schema) -> pl.DataFrame:
    return pl.DataFrame(schema=schema.polars_schema)


def count(part: Partition) -> int:
    with collecting():  # counting is not the place to report bad lines; reading is
        return part.count()


def read(part: Partition, columns: list[str]) -> pl.DataFrame:
    return part.read(columns)


def filter(frame: pl.DataFrame, predicate: pl.Expr) -> pl.DataFrame:
    return filtered(frame, predicate, "Dataset.filter")


def permute(frame: pl.DataFrame, seed: int, index: int) -> pl.DataFrame:
    return frame[np.random.default_rng([seed, 2, index]).permutation(frame.height)]


def strata(part: Partition, column: str | None) -> tuple[np.ndarray, np.ndarray]:
    """The strata of one partition and the rows of each (see `penstock.data.split`)."""
    if column is None:
        return np.zeros(1, np.uint64), np.array([part.count()])
    with collecting():  # counting is not the place to report bad lines; reading is
        return split.count_strata(split.strata_hashes(part.read([column]), column))


def join(left: pl.DataFrame, right: pl.DataFrame, on: list[str], how: str, suffix: str) -> pl.DataFrame:
    """Join by key columns. A missing key (null or NaN) equals nothing, however the rows are partitioned."""
    left, right = described_frame(left), described_frame(right)
    floats = [name for name in on if right.schema[name].is_float()]
    missing = pl.any_horizontal(pl.col(name).is_nan().fill_null(False) for name in floats) if floats else pl.lit(False)
    unequal, right = right.filter(missing), right.filter(~missing)
    joined = _join(left, right, on, how, suffix)
    if how == "full" and unequal.height:
        return pl.concat([joined, _join(left.clear(), unequal, on, how, suffix)])
    return joined


def _join(left: pl.DataFrame, right: pl.DataFrame, on: list[str], how: str, suffix: str) -> pl.DataFrame:
    order = "left_right" if how == "full" else "left"
    return left.join(
        right,
        on=on,
        how=how,  # type: ignore[arg-type]
        suffix=suffix,
        nulls_equal=False,
        coalesce=True,
        maintain_order=order,  # type: ignore[arg-type]
    )


def join_with(
    frame: pl.DataFrame, right: pl.DataFrame, join_frames: Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame]
) -> pl.DataFrame:
    return join_frames(frame, right)


def join_part(
    frame: pl.DataFrame, right: Partition, join_frames: Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame]
) -> pl.DataFrame:
    return join_frames(frame, right.read())
