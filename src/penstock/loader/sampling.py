"""Sampling inside the loader: rows by weight, and negatives for pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.errors import DataError
from penstock.core.params import STR, Int, check
from penstock.kernels.cpu_gather import mix_seed


@dataclass(frozen=True)
class WeightedSampling:
    """Draw the rows of each chunk with replacement, with probability proportional to a column of weights.

    Chunks keep their number of rows, so an epoch keeps its length; rows of weight 0 never come. The column need not be
    among those that are delivered. Like every order, the draw depends on the seed, epoch, rank and world only.

    >>> order = WeightedSampling("weight").draw(np.array([0.0, 1.0, 0.0]), seed=1)
    >>> order.tolist()
    [1, 1, 1]
    """

    column: str

    def __post_init__(self) -> None:
        check("WeightedSampling.column", self.column, STR)

    def draw(self, weights: np.ndarray, seed: int) -> np.ndarray:
        """As many row numbers as there are weights."""
        total = np.cumsum(weights, dtype=np.float64)
        if not len(total) or not np.isfinite(total[-1]) or total[-1] <= 0 or weights.min() < 0:
            raise DataError(
                f"the weights in column {self.column!r} must be numbers ≥ 0, not all of them 0, in every chunk; "
                f"mend the column or load larger chunks (chunk_rows=)"
            )
        points = np.random.default_rng(seed).random(len(total)) * total[-1]
        return np.searchsorted(total, points, side="right").clip(max=len(total) - 1).astype(np.uint32)


@dataclass(frozen=True)
class NegativeSampling:
    """For each row `num_negatives` rows more, with other items and label 0: `loader.map(NegativeSampling(…))`.

    Items are drawn from those of the batch (their popularity then is that of the data), or uniformly from
    `range(low, cardinality)` when a cardinality is given. Works on batches `(features, labels)` of NumPy arrays and of
    anything that indexes and concatenates like them. A drawn item can be the row's own by chance: that is not excluded.

    >>> sample = NegativeSampling(["item"], num_negatives=1, seed=3)
    >>> features, labels = sample(({"user": np.array([1, 2]), "item": np.array([10, 20])}, np.array([1.0, 1.0])))
    >>> features["user"], labels
    (array([1, 2, 1, 2]), array([1., 1., 0., 0.]))
    """

    items: Sequence[str]
    num_negatives: int = 1
    seed: int = 0
    cardinality: int | None = None
    low: int = 0

    def __post_init__(self) -> None:
        check("NegativeSampling.num_negatives", self.num_negatives, Int(min=1))

    def __call__(self, batch: tuple[dict[str, Any], Any]) -> tuple[dict[str, Any], Any]:
        features, labels = batch
        rows = len(labels)
        # The content seeds the draw: the same batch gives the same negatives, in whatever order batches are asked for.
        first = np.asarray(features[self.items[0]])
        rng = np.random.default_rng(mix_seed(self.seed, rows, int(first.astype(np.int64).sum())))
        picks = rng.integers(0, rows, rows * self.num_negatives)
        out = {}
        for name, column in features.items():
            repeated = _repeat(column, self.num_negatives)
            if name in self.items:
                repeated[rows:] = column[picks] if self.cardinality is None else self._drawn(rng, len(picks), column)
            out[name] = repeated
        extended = _repeat(labels, self.num_negatives)
        extended[rows:] = 0
        return out, extended

    def _drawn(self, rng: np.random.Generator, count: int, like: Any) -> Any:
        drawn = rng.integers(self.low, self.cardinality, count)
        if isinstance(like, np.ndarray):
            return drawn.astype(like.dtype)
        return like.new_tensor(drawn)


def _repeat(column: Any, times: int) -> Any:
    """The rows once and `times` times more, in new memory."""
    if isinstance(column, np.ndarray):
        return np.tile(column, (times + 1, *[1] * (column.ndim - 1)))
    return column.repeat(times + 1, *[1] * (column.ndim - 1))
