"""The oracle of `cpu_logistic`: whole arrays at once."""

from __future__ import annotations

import numpy as np


def logits(
    starts: np.ndarray, keys: np.ndarray, values: np.ndarray, numbers: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """What a linear model says of each row."""
    rows, num_keys = np.repeat(np.arange(len(starts) - 1), np.diff(starts)), len(weights) - numbers.shape[1] - 1
    counted = weights[keys] * (values if len(values) else 1.0)
    return np.bincount(rows, counted, len(starts) - 1) + numbers @ weights[num_keys:-1] + weights[-1]


def loss_and_gradient(
    starts: np.ndarray, keys: np.ndarray, values: np.ndarray, numbers: np.ndarray, labels: np.ndarray,
    weights: np.ndarray,
) -> tuple[float, np.ndarray]:  # fmt: skip
    """The log loss, summed over the rows, and how it changes with each weight."""
    rows, num_keys = np.repeat(np.arange(len(starts) - 1), np.diff(starts)), len(weights) - numbers.shape[1] - 1
    said = logits(starts, keys, values, numbers, weights)
    residuals = np.exp(-np.logaddexp(0.0, -said)) - labels
    ids = np.bincount(keys, residuals[rows] * (values if len(values) else 1.0), num_keys)
    loss = float(np.sum(np.logaddexp(0.0, said) - labels * said))
    return loss, np.concatenate([ids, residuals @ numbers, [residuals.sum()]])
