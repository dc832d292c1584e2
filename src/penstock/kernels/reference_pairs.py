"""Products of pairs in plain NumPy: the oracle for `cpu_pairs` and `gpu_pairs`."""

from __future__ import annotations

import numpy as np


def joined(first: np.ndarray, others: np.ndarray) -> np.ndarray:
    """A row's vectors, `(B, n, dim)`."""
    return np.concatenate([first[:, None], others], 1) if len(first) else others


def multiply(first: np.ndarray, others: np.ndarray, share: np.ndarray, beside: bool) -> tuple[np.ndarray, np.ndarray]:
    """`[first,] v₁·v₀, v₂·v₀, v₂·v₁, …` in float64, and the sums of the first numbers of `others`."""
    seen = others.astype(np.float64) * (share if len(share) else 1)
    vectors = joined(first.astype(np.float64), seen)
    pairs = [(vectors[:, i] * vectors[:, j]).sum(1) for i in range(vectors.shape[1]) for j in range(i)]
    products = np.stack(pairs, 1) if pairs else np.empty((len(vectors), 0))
    out = np.concatenate([first.astype(np.float64), products], 1) if beside else products
    return out, others[:, :, 0].astype(np.float64).sum(1)


def gradients(
    first: np.ndarray, others: np.ndarray, share: np.ndarray, beside: bool, gradient: np.ndarray, of_sums: np.ndarray
) -> np.ndarray:
    """Those of the joined vectors, `(B, n, dim)`, in float64."""
    ahead = 1 if len(first) else 0
    seen = others.astype(np.float64) * (share if len(share) else 1)
    vectors = joined(first.astype(np.float64), seen)
    found, pair = np.zeros_like(vectors), first.shape[1] if beside else 0
    if beside:
        found[:, 0] += gradient[:, :pair]
    for i in range(vectors.shape[1]):
        for j in range(i):
            factor = gradient[:, pair, None]
            found[:, i] += factor * vectors[:, j]
            found[:, j] += factor * vectors[:, i]
            pair += 1
    found[:, ahead:] *= share if len(share) else 1
    if len(of_sums):
        found[:, ahead:, 0] += of_sums[:, None]
    return found
