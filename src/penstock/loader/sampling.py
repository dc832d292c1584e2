"""Sampling inside the loader: rows by weight, and negatives for pairs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.batch import Ragged
from penstock.core.conversion import convert
from penstock.core.errors import ColumnNotFoundError, DataError
from penstock.core.params import STR, Int, check
from penstock.kernels.cpu_gather import mix_seed


@dataclass(frozen=True)
class WeightedSampling:
    """Draw the rows of each chunk with replacement, with probability proportional to a column of weights.

    Chunks keep their number of rows, so an epoch keeps its length; rows of weight 0 never come. The column need not be
    among those that are delivered. Like every order, the draw depends on the seed, epoch, rank and world only.

    Args:
        column: of weights, numbers from 0.

    >>> order = WeightedSampling("weight").draw(np.array([0.0, 1.0, 0.0]), seed=1)
    >>> order.tolist()
    [1, 1, 1]
    """

    column: str

    def __post_init__(self) -> None:
        check("WeightedSampling.column", self.column, STR)

    def draw(self, weights: np.ndarray, seed: int) -> np.ndarray:
        """As many row numbers as there are weights.

        Args:
            weights: of the rows of a chunk.
            seed: of the draw.

        Returns:
            Row numbers of uint32.

        Raises:
            DataError: there is no weight to draw by.
        """
        total = np.cumsum(weights, dtype=np.float64)
        if not len(total) or not np.isfinite(total[-1]) or total[-1] <= 0 or weights.min() < 0:
            raise DataError(
                f"the weights in column {self.column!r} must be numbers ≥ 0, not all of them 0, in every chunk; "
                f"mend the column or load larger chunks (chunk_rows=)"
            )
        points = np.random.default_rng(seed).random(len(total)) * total[-1]
        # A product that was rounded up to the whole would fall behind the last weight.
        points = np.minimum(points, np.nextafter(total[-1], 0))
        drawn: np.ndarray = np.searchsorted(total, points, side="right").astype(np.uint32)
        return drawn


@dataclass(frozen=True)
class NegativeSampling:
    """For each row `num_negatives` rows more, with other items and label 0: `loader.map(NegativeSampling(…))`.

    Items are drawn from those of the batch (their popularity then is that of the data), or uniformly from
    `range(low, cardinality)` when a cardinality is given. Batches are `(features, labels)`, of NumPy, torch,
    TensorFlow or JAX; lists are repeated with their rows. A drawn item can be the row's own by chance: that is not
    excluded.

    Args:
        items: columns that are drawn anew together.
        num_negatives: rows more for each row.
        seed: of the draws.
        cardinality: draw ids below it instead of those of the batch.
        low: the first id, then.

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
        if self.cardinality is not None:
            check("NegativeSampling.cardinality", self.cardinality, Int(min=self.low + 1))

    def __call__(self, batch: tuple[dict[str, Any], Any]) -> tuple[dict[str, Any], Any]:
        features, labels = batch
        rows = len(labels)
        missing = [name for name in self.items if name not in features or _is_list(features[name])]
        if missing:
            single = [name for name, column in features.items() if not _is_list(column)]
            raise ColumnNotFoundError(missing[0], single, "the columns that negatives can be drawn for")
        # The content seeds the draw: the same batch gives the same negatives, in whatever order batches are asked for.
        first = _numpy(features[self.items[0]])
        rng = np.random.default_rng(mix_seed(self.seed, rows, int(first.astype(np.int64).sum())))
        picks = rng.integers(0, rows, rows * self.num_negatives)
        out = {}
        for name, column in features.items():
            if name not in self.items:
                out[name] = _repeat(column, self.num_negatives)
            elif self.cardinality is None:
                out[name] = _repeat(column, self.num_negatives, lambda array: array[picks])
            else:
                drawn = self._held(rng.integers(self.low, self.cardinality, len(picks)), name, column)
                out[name] = _repeat(column, self.num_negatives, lambda _: drawn)  # noqa: B023  (called at once)
        return out, _repeat(labels, self.num_negatives, lambda _: 0)

    def _held(self, drawn: np.ndarray, name: str, column: Any) -> np.ndarray:
        """Ids in the dtype of the batch's column, which must hold every one of the cardinality."""
        dtype = _numpy(column[:0]).dtype.name
        for bound in (self.low, (self.cardinality or 1) - 1):
            convert(bound, dtype, column=name, where="NegativeSampling (low, cardinality)")
        return drawn.astype(dtype)


def _repeat(column: Any, times: int, others: Callable[[Any], Any] | None = None) -> Any:
    """The rows once and `times` times more, in new memory; `others` makes what stands in the further ones."""
    if isinstance(column, Ragged):
        shifts = np.arange(times + 1)[:, None] * int(column.offsets[-1])
        offsets = _numpy(column.offsets)
        offsets = np.concatenate([[0], (offsets[1:] + shifts).ravel()]).astype(offsets.dtype)
        return Ragged(_repeat(column.values, times), _like(column.offsets, offsets))
    if _is_list(column):
        return sys.modules["tensorflow"].concat([column] * (times + 1), axis=0)
    if hasattr(column, "new_tensor"):  # torch, where it is
        rows = column.repeat(times + 1, *[1] * (column.ndim - 1))
        if others is not None:
            rows[len(column) :] = _as_rows(others(column), column)
        return rows
    array = _numpy(column)
    rows = np.tile(array, (times + 1, *[1] * (array.ndim - 1)))
    if others is not None:
        rows[len(array) :] = _as_rows(others(array), array)
    return _like(column, rows)


def _as_rows(made: Any, column: Any) -> Any:
    """What was drawn in NumPy, in the shape and home of the column's rows; all else as it is."""
    if not isinstance(made, np.ndarray):
        return made
    return _like(column, made.reshape(-1, *column.shape[1:]))


def _is_list(column: Any) -> bool:
    return isinstance(column, Ragged) or hasattr(column, "row_splits")  # as TensorFlow has them


def _numpy(column: Any) -> np.ndarray:
    return np.asarray(column.cpu() if hasattr(column, "cpu") else column)


def _like(column: Any, array: np.ndarray) -> Any:
    """The array as the framework of `column` has it; no framework is imported that is not there already."""
    home = type(column).__module__.partition(".")[0]
    if hasattr(column, "new_tensor"):
        return column.new_tensor(array)
    if home == "tensorflow":
        return sys.modules["tensorflow"].convert_to_tensor(array)
    return sys.modules["jax"].numpy.asarray(array) if home in ("jax", "jaxlib") else array
