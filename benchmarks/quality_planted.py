"""Rows whose labels a teacher has drawn, and what teachers are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from penstock.core.schema import ColumnSchema, Schema


@dataclass(frozen=True)
class Planted:
    """Rows to train on and to test with, as raw columns, and the teacher's own probabilities of the test rows."""

    train: pl.DataFrame
    test: pl.DataFrame
    best: np.ndarray
    categorical: list[str]
    continuous: list[str]
    lists: tuple[str, ...] = ()  # of the categorical columns, those with several ids a row
    number_ops: tuple[str, ...] = ("Normalize",)  # what makes features of the numbers

    @property
    def schema(self) -> Schema:
        """Of the raw columns, with their roles."""
        numbers = [ColumnSchema(name, "float32", role="continuous") for name in self.continuous]
        dtypes = {name: "list[int64]" if name in self.lists else "int64" for name in self.categorical}
        ids = [ColumnSchema(name, dtype, role="categorical") for name, dtype in dtypes.items()]
        return Schema([ColumnSchema("click", "int32", role="label"), *numbers, *ids])


def popular(rng: np.random.Generator, total: int, size: int, skew: float = 1.05) -> np.ndarray:
    """Ids of which few are frequent and most are rare."""
    weights = 1.0 / np.arange(1, size + 1) ** skew
    found = np.searchsorted(np.cumsum(weights) / weights.sum(), rng.random(total))
    return np.minimum(found, size - 1)


def effect(rng: np.random.Generator, ids: np.ndarray, size: int, deviation: float) -> np.ndarray:
    """What each id says by itself."""
    return rng.normal(0, deviation, size)[ids]


def pair(
    rng: np.random.Generator, a: np.ndarray, size_a: int, b: np.ndarray, size_b: int, deviation: float
) -> np.ndarray:
    """What two ids say together."""
    return rng.normal(0, deviation, (size_a, size_b))[a, b]


def standard(numbers: np.ndarray) -> np.ndarray:
    """Numbers with a mean of 0 and a deviation of 1."""
    return (numbers - numbers.mean(0)) / numbers.std(0)


def drawn(
    rng: np.random.Generator,
    logit: np.ndarray,
    ids: Sequence[np.ndarray],
    numbers: np.ndarray,
    num_rows: int,
    number_ops: tuple[str, ...] = ("Normalize",),
) -> Planted:
    """Rows with labels drawn by these logits; the first of them to train on. A number that is NaN is missing."""
    probability = 1 / (1 + np.exp(-logit))
    names = [f"id_{i}" for i in range(len(ids))]
    number_names = [f"number_{i}" for i in range(numbers.shape[1])]
    columns = {"click": (rng.random(len(logit)) < probability).astype(np.int32)}
    columns |= {name: numbers[:, i] for i, name in enumerate(number_names)}
    columns |= {name: np.asarray(column, np.int64) for name, column in zip(names, ids, strict=True)}
    frame = pl.DataFrame(columns).with_columns(pl.col(number_names).fill_nan(None))
    return Planted(
        frame[:num_rows], frame[num_rows:], probability[num_rows:], names, number_names, number_ops=number_ops
    )
