"""Counter-based random numbers: each is a pure function of a key and a counter, so row i never depends on the rest.

>>> key = stream_key(0, "C1")
>>> bool((uniform(key, np.arange(10))[5:] == uniform(key, np.arange(5, 10))).all())
True
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LOW_16 = np.uint64(0xFFFF)


def stream_key(seed: int, name: str) -> np.uint64:
    """The key of one named stream of random numbers."""
    return np.uint64(int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest(), "little"))


def bits(key: np.uint64, counters: NDArray[Any]) -> NDArray[np.uint64]:
    """SplitMix64 at the given counters."""
    z = key + (np.asarray(counters).astype(np.uint64) + np.uint64(1)) * _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(key: np.uint64, counters: NDArray[Any]) -> NDArray[np.float64]:
    """Uniform in [0, 1)."""
    return (bits(key, counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(key: np.uint64, counters: NDArray[Any]) -> NDArray[np.float64]:
    """Nearly normal (four uniforms summed), mean 0, deviation 1, within ±3.47."""
    z = bits(key, counters)
    quarters = (((z >> np.uint64(16 * k)) & _LOW_16).astype(np.float64) for k in range(4))
    total: NDArray[np.float64] = sum(quarters, np.zeros(()))
    return (total - 2.0 * 65535.0) * (math.sqrt(3.0) / 65536.0)


def zipf(key: np.uint64, counters: NDArray[Any], cardinality: int, exponent: float) -> NDArray[np.int64]:
    """Ranks in [0, cardinality) whose frequencies fall as rank^-exponent, by the inverse of the distribution."""
    power = 1.0 - exponent
    span = (cardinality + 1.0) ** power - 1.0
    ranks = ((1.0 + uniform(key, counters) * span) ** (1.0 / power)).astype(np.int64) - 1
    clipped: NDArray[np.int64] = np.clip(ranks, 0, cardinality - 1)
    return clipped


def scatter(key: np.uint64, ranks: NDArray[Any], cardinality: int) -> NDArray[np.int64]:
    """A permutation of [0, cardinality), so that frequent ids are not the small ones."""
    step, offset = _affine(key, cardinality)
    return (np.asarray(ranks, np.int64) * step + offset) % cardinality


def gather(key: np.uint64, ids: NDArray[Any], cardinality: int) -> NDArray[np.int64]:
    """The inverse of `scatter`.

    >>> key, ranks = stream_key(0, "user"), np.arange(10)
    >>> gather(key, scatter(key, ranks, 10), 10).tolist() == ranks.tolist()
    True
    """
    step, offset = _affine(key, cardinality)
    return (np.asarray(ids, np.int64) - offset) % cardinality * pow(step, -1, cardinality) % cardinality


def _affine(key: np.uint64, cardinality: int) -> tuple[int, int]:
    step = int(key & np.uint64(0x7FFFFFFF)) % cardinality
    while math.gcd(step, cardinality) != 1:
        step += 1
    return step, int(key >> np.uint64(33)) % cardinality


def mix32(ranks: NDArray[Any], mask: int) -> NDArray[np.uint32]:
    """The 32-bit id of each rank: a bijection without a pattern (MurmurHash3's finaliser)."""
    h = np.asarray(ranks).astype(np.uint32) ^ np.uint32(mask)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def unmix32(ids: NDArray[Any], mask: int) -> NDArray[np.uint32]:
    """The rank of each id: `unmix32(mix32(r, m), m) == r`.

    >>> int(unmix32(mix32(np.array([12345]), 7), 7)[0])
    12345
    """
    h = np.asarray(ids).astype(np.uint32)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x7ED1B41D)
    h ^= (h >> np.uint32(13)) ^ (h >> np.uint32(26))
    h *= np.uint32(0xA5CB9243)
    h ^= h >> np.uint32(16)
    return h ^ np.uint32(mask)


def calibrate(raw: NDArray[np.float64], base_rate: float, signal: float) -> tuple[float, float]:
    """`(bias, scale)` that give `bias + scale · raw` the deviation `signal` and the mean probability `base_rate`."""
    deviation = float(raw.std())
    scale = signal / deviation if deviation > 0 else 1.0
    low, high = -50.0, 50.0
    for _ in range(60):  # the mean probability grows with the bias: bisection
        bias = (low + high) / 2
        if sigmoid(bias + scale * raw).mean() < base_rate:
            low = bias
        else:
            high = bias
    return (low + high) / 2, scale


def sigmoid(logit: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / (1 + e^-x), without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * logit))


def expected_auc(probability: NDArray[np.float64]) -> float:
    """The AUC that the probabilities themselves reach on labels drawn from them, over all such draws.

    >>> round(expected_auc(np.array([0.0, 0.0, 1.0])), 3), round(expected_auc(np.full(9, 0.3)), 3)
    (1.0, 0.5)
    """
    levels, inverse = np.unique(probability, return_inverse=True)
    positive = np.bincount(inverse, probability, levels.size)
    negative = np.bincount(inverse, 1.0 - probability, levels.size)
    below = np.cumsum(negative) - negative
    pairs = positive.sum() * negative.sum()
    return float((positive * (below + 0.5 * negative)).sum() / pairs) if pairs > 0 else float("nan")
