"""The log loss of a linear model over ids and numbers, and its gradient, in one walk over the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_intrinsics import KERNEL
from penstock.kernels.kernel_cache import njit

U64 = np.uint64


@njit(**KERNEL)
def logit_of(
    row: Any, starts: np.ndarray, keys: np.ndarray, values: np.ndarray, numbers: np.ndarray, weights: np.ndarray
) -> float:
    """What the model says of a row: the weights of its keys, its numbers by theirs, and the last as a constant."""
    first, count = weights.shape[0] - numbers.shape[1] - 1, numbers.shape[1]
    logit = weights[U64(weights.shape[0] - 1)]
    for at in range(U64(starts[row]), U64(starts[row + U64(1)])):
        weight = weights[U64(keys[at])]
        logit += weight if values.shape[0] == 0 else weight * values[at]
    for column in range(U64(count)):
        logit += numbers[row, column] * weights[U64(first) + column]
    return logit


@njit(**KERNEL)
def logits(
    starts: np.ndarray, keys: np.ndarray, values: np.ndarray, numbers: np.ndarray, weights: np.ndarray, out: np.ndarray
) -> None:
    """What the model says of each row; see `loss_and_gradient`."""
    for row in range(U64(out.shape[0])):
        out[row] = logit_of(row, starts, keys, values, numbers, weights)


@njit(**KERNEL)
def loss_and_gradient(
    starts: np.ndarray, keys: np.ndarray, values: np.ndarray, numbers: np.ndarray, labels: np.ndarray,
    weights: np.ndarray, first: int, last: int, gradient: np.ndarray,
) -> float:  # fmt: skip
    """Rows `[first, last)`: the sum of `log(1 + exp(z)) - y z`, and in `gradient` what each weight adds to it.

    Args:
        starts: where the keys of each row begin, and of the last one end.
        keys: of all rows.
        values: how often each key counts; empty where all count once.
        numbers: `(rows, numbers)`.
        labels: y, from 0 to 1.
        weights: of the keys, of the numbers, and a constant.
        first: the first row.
        last: the first row that is left out.
        gradient: as `weights`, filled in.
    """
    gradient[:] = 0.0
    begin, count, end = U64(weights.shape[0] - numbers.shape[1] - 1), U64(numbers.shape[1]), U64(weights.shape[0] - 1)
    loss = 0.0
    for row in range(U64(first), U64(last)):
        logit = logit_of(row, starts, keys, values, numbers, weights)
        below = np.exp(-abs(logit))  # never more than 1, whatever the logit
        loss += max(logit, 0.0) + np.log1p(below) - labels[row] * logit
        residual = (1.0 if logit >= 0 else below) / (1.0 + below) - labels[row]
        for at in range(U64(starts[row]), U64(starts[row + U64(1)])):
            gradient[U64(keys[at])] += residual if values.shape[0] == 0 else residual * values[at]
        for column in range(count):
            gradient[begin + column] += residual * numbers[row, column]
        gradient[end] += residual
    return loss
