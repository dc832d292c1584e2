"""The planted teacher of the Criteo-like data: who clicks, as a function of the columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from penstock.core.errors import ColumnNotFoundError, DataError
from penstock.data.sources import Frame
from penstock.data.synthetic import draws

INTEGERS = [f"I{i}" for i in range(1, 14)]
CATEGORIES = [f"C{i}" for i in range(1, 27)]
# The frequency rank at which a category's effect has halved.
HALF_RANK = 256.0
# Main effects of the categories: C1 weighs 1, each later column a little less.
MAIN_DECAY = 0.93
# Effects of log1p of these numbers, in units of their own deviation.
NUMBERS = {"I2": 0.7, "I5": -0.8, "I6": -0.5, "I7": 0.6, "I11": 0.7, "I13": -0.5}
PAIRS = {("C1", "C5"): 0.9, ("C6", "C9"): 0.8, ("C8", "C14"): 0.8, ("C2", "C17"): 0.8, ("C20", "C23"): 0.7}
SLOPES = {("C6", "I2"): 0.6, ("C9", "I6"): 0.6, ("C14", "I5"): 0.6}


def id_mask(name: str) -> int:
    """What keeps the ids of one column apart from those of the next; the same for every seed."""
    return int(draws.stream_key(0, f"ids/{name}") & np.uint64(0xFFFFFFFF))


@dataclass(frozen=True)
class Teacher:
    """Click probabilities: main effects of categories and numbers, and a few interactions of both kinds.

    `probability` recomputes them from raw rows: the best score that any model can give. `logs` holds the mean and the
    deviation of log1p of the numbers used.

    Args:
        seed: of the effects.
        bias: added to the sum of effects.
        scale: that sum is multiplied by.
        logs: mean and deviation by column.
        cardinalities: by column.

    >>> teacher = Teacher(0, bias=-1.0, scale=0.5, logs={name: (1.0, 1.0) for name in NUMBERS}, cardinalities={})
    >>> row = {name: [None] for name in INTEGERS + CATEGORIES}
    >>> teacher.probability(row).shape
    (1,)
    """

    seed: int
    bias: float
    scale: float
    logs: Mapping[str, tuple[float, float]]
    cardinalities: Mapping[str, int]

    def probability(self, frame: Frame) -> NDArray[np.float64]:
        """The probability of label 1 for raw rows: polars, pandas, Arrow or a dict; ids as hex text or integers.

        Args:
            frame: raw rows.

        Returns:
            One probability a row.

        Raises:
            ColumnNotFoundError: a column is missing.
            DataError: a column holds ids that were never written.
        """
        frame = _to_polars(frame)
        for name in (*INTEGERS, *CATEGORIES):
            if name not in frame.columns:
                raise ColumnNotFoundError(name, frame.columns, "the frame")
        integers = np.stack([_integers(frame[name]) for name in INTEGERS])
        ranks = np.stack([_ranks(frame[name], self.cardinalities.get(name, 2**31 - 1)) for name in CATEGORIES])
        return self.score(integers, ranks)

    def score(self, integers: NDArray[np.int32], ranks: NDArray[np.int32]) -> NDArray[np.float64]:
        """The same from `(13, rows)` integers and `(26, rows)` ranks as the kernels hold them.

        Args:
            integers: of the rows.
            ranks: of their categories.

        Returns:
            One number a row.
        """
        return draws.sigmoid(self.bias + self.scale * raw_logit(self.seed, self.logs, integers, ranks))


def raw_logit(
    seed: int, logs: Mapping[str, tuple[float, float]], integers: NDArray[np.int32], ranks: NDArray[np.int32]
) -> NDArray[np.float64]:
    """The sum of all effects, before it is scaled and shifted to the wanted signal and base rate."""
    from penstock.kernels import cpu_synthetic as kernels

    def key(*parts: str) -> np.uint64:
        return draws.stream_key(seed, "/".join(("teacher", *parts)))

    logit = np.zeros(integers.shape[1])
    rank = dict(zip(CATEGORIES, ranks, strict=True))
    number = {}
    for name in NUMBERS:
        number[name] = np.empty(logit.size)
        kernels.standard_log(integers[INTEGERS.index(name)], *logs[name], number[name])
        logit += NUMBERS[name] * number[name]
    for place, name in enumerate(CATEGORIES):
        kernels.add_main_effect(rank[name], key(name), MAIN_DECAY**place, HALF_RANK, logit)
    for (left, right), weight in PAIRS.items():
        keys = key(left, right, "left"), key(left, right, "right")
        kernels.add_pair_effect(rank[left], keys[0], rank[right], keys[1], weight, HALF_RANK, logit)
    for (category, name), weight in SLOPES.items():
        kernels.add_slope_effect(rank[category], key(category, name), number[name], weight, HALF_RANK, logit)
    return logit


def _to_polars(frame: Frame) -> pl.DataFrame:
    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if isinstance(frame, Mapping):
        return pl.DataFrame(dict(frame), strict=False)
    if type(frame).__module__.split(".")[0] == "pyarrow":
        converted = pl.from_arrow(frame)
        assert isinstance(converted, pl.DataFrame)
        return converted
    return pl.from_pandas(frame)


def _integers(column: pl.Series) -> NDArray[np.int32]:
    from penstock.kernels.cpu_synthetic import NULL_INTEGER

    if column.dtype.is_float():
        column = column.fill_nan(None)  # pandas has no other way to hold a missing integer
    return column.cast(pl.Int32).fill_null(NULL_INTEGER).to_numpy()


def _ranks(column: pl.Series, cardinality: int) -> NDArray[np.int32]:
    try:
        ids = column.str.to_integer(base=16, dtype=pl.UInt32) if column.dtype == pl.String else column.cast(pl.UInt32)
    except pl.exceptions.PolarsError as error:
        raise DataError(f"column {column.name!r} does not hold 32-bit ids or their hex text: {error}") from error
    missing = ids.is_null().to_numpy()
    ranks = draws.unmix32(ids.fill_null(0).to_numpy(), id_mask(column.name)).astype(np.int64)
    strange = np.flatnonzero((ranks >= cardinality) & ~missing)
    if strange.size:
        raise DataError(
            f"column {column.name!r}, row {strange[0]}: {ids[int(strange[0])]:08x} is not one of this generator's "
            f"{cardinality} ids; pass the cardinalities that the data were made with"
        )
    return np.where(missing, -1, ranks).astype(np.int32)
