"""Fused embeddings in plain NumPy: look-up of many tables, and the optimizer applied to the rows a batch touched.

This is the oracle of `cpu_fused_embedding` and `gpu_embedding`, which have the same arithmetic and the words of
`fused_contract`. Slow, and in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from penstock.kernels.fused_contract import LIMIT
from penstock.kernels.optimizer_formulas import Rule


def rates_at(rule: Rule, rate: float, step: int) -> tuple[float, float]:
    """`(P, Q)` of Adam's `w -= P m / (√v Q + eps)` for the step numbered `step`, from 1; `(rate, 1)` for the others."""
    first, second = 1 - rule.beta1**step, 1 - rule.beta2**step
    if rule.kind == "lazy_adam":  # torch.optim.SparseAdam: both corrections in the step size
        return rate * math.sqrt(second) / first, 1.0
    return (rate / first, 1 / math.sqrt(second)) if rule.kind == "row_adam" else (rate, 1.0)


def look_up(
    weight: np.ndarray,
    features: np.ndarray,
    ids: np.ndarray,
    values: np.ndarray,
    offsets: np.ndarray,
    sample_weights: np.ndarray | None,
    pooling: str,
    width: int,
) -> np.ndarray:
    """`(B, width)`: single ids `(B, singles)`, then bags, feature by feature, in `values` and `offsets`.

    An id outside its table gives zeros, and so do columns of no feature.
    """
    rows, dim = len(ids), weight.shape[1]
    out = np.zeros((rows, width))
    for (start, size, _, at), column in zip(features, ids.T, strict=False):
        for b, one in enumerate(column):
            if 0 <= one < size:
                out[b, at : at + dim] = weight[start + one]
    for (start, size, _, at), b, low, high in bags_of(features[ids.shape[1] :], offsets, rows):
        for k in range(low, high):
            if 0 <= values[k] < size:
                factor = 1.0 if sample_weights is None else float(sample_weights[k])
                out[b, at : at + dim] += factor * weight[start + values[k]]
        out[b, at : at + dim] *= pool_factor(int(high - low), pooling)
    return out


def bags_of(features: np.ndarray, offsets: np.ndarray, rows: int) -> Iterator[tuple[np.ndarray, int, int, int]]:
    """For each bag its feature, its sample, and where its values begin and end."""
    for feature, own in zip(features, offsets.reshape(-1, rows + 1), strict=True):
        for b in range(rows):
            yield feature, b, int(own[b]), int(own[b + 1])


def pool_factor(count: int, pooling: str) -> float:
    """What the sum of a bag of `count` ids is multiplied by."""
    return {"sum": 1.0, "mean": 1 / max(count, 1), "sqrt_n": 1 / math.sqrt(max(count, 1))}[pooling]


def row_gradients(
    gradient: np.ndarray,
    features: np.ndarray,
    ids: np.ndarray,
    values: np.ndarray,
    offsets: np.ndarray,
    sample_weights: np.ndarray | None,
    pooling: str,
    dim: int,
) -> dict[int, np.ndarray]:
    """`{row of the weight: its gradient}` for a gradient `(B, width)` of `look_up`'s output."""
    found: dict[int, np.ndarray] = {}
    gradient = gradient.astype(np.float64)
    for (start, size, _, at), column in zip(features, ids.T, strict=False):
        for b, one in enumerate(column):
            if 0 <= one < size:
                row = int(start + one)
                found[row] = found.get(row, np.zeros(1)) + gradient[b, at : at + dim]
    for (start, size, _, at), b, low, high in bags_of(features[ids.shape[1] :], offsets, len(ids)):
        factor = pool_factor(high - low, pooling)
        for k in range(low, high):
            if 0 <= values[k] < size:
                scale = factor * (1.0 if sample_weights is None else float(sample_weights[k]))
                row = int(start + values[k])
                found[row] = found.get(row, np.zeros(1)) + scale * gradient[b, at : at + dim]
    return found


def apply(
    rule: Rule, w: np.ndarray, first: np.ndarray | None, second: np.ndarray | None, row: int, g: np.ndarray,
    rate: float, step: int,
) -> None:  # fmt: skip
    """One step of the optimizer on one row, in place; a gradient that is not finite leaves it alone."""
    if not (np.abs(g) < LIMIT).all():
        return
    g = g + rule.decay * w[row]
    adam, correction = rates_at(rule, rate, step)
    if rule.kind == "sgd":
        w[row] -= rate * g
    elif first is not None and rule.kind in ("adagrad", "adagrad_row"):
        first[row] += g * g if rule.kind == "adagrad" else np.mean(g * g)
        w[row] -= rate * g / (np.sqrt(first[row]) + rule.eps)
    elif first is not None and second is not None:
        square = g * g if rule.kind == "lazy_adam" else np.mean(g * g)
        first[row] += (g - first[row]) * (1 - rule.beta1)
        second[row] = rule.beta2 * second[row] + (1 - rule.beta2) * square
        w[row] -= adam * first[row] / (np.sqrt(second[row]) * correction + rule.eps)
    if rule.bound:
        w[row] = np.clip(w[row], -rule.bound, rule.bound)


def noise(row: np.ndarray, column: np.ndarray, step: int) -> np.ndarray:
    """Sixteen random bits for an element of the weight at a step: a hash, so a run can be repeated."""
    mask = np.uint64(0xFFFFFFFF)
    h = np.uint64(step * 0x9E3779B1 & 0xFFFFFFFF) ^ (row.astype(np.uint64) * np.uint64(0x85EBCA77) & mask)
    h = (h ^ (row.astype(np.uint64) >> np.uint64(32))) + column.astype(np.uint64) * np.uint64(0xC2B2AE3D) & mask
    h = (h ^ h >> np.uint64(16)) * np.uint64(0x7FEB352D) & mask
    h = (h ^ h >> np.uint64(15)) * np.uint64(0x846CA68B) & mask
    bits: np.ndarray = ((h ^ h >> np.uint64(16)) & np.uint64(0xFFFF)).astype(np.uint32)
    return bits


def rounded_to_bfloat(values: np.ndarray, random: np.ndarray) -> np.ndarray:
    """float32 → the bits of a bfloat16, rounded up with the probability of the remainder; finite values stay finite."""
    bits = values.astype(np.float32).view(np.uint32)
    up = (bits + random) >> 16
    finite = (up & 0x7F80) != 0x7F80
    return np.where(finite, up, bits >> 16).astype(np.uint16)
