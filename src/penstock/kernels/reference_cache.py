"""The index of a cache of embedding rows, an id at a time: slow, obvious, the oracle of `cpu_cache` and `gpu_cache`."""

from __future__ import annotations

import numpy as np

from penstock.kernels.cache_contract import CLAIMED
from penstock.kernels.fused_contract import code


def find_keys(
    features: np.ndarray, ids: np.ndarray, values: np.ndarray, offsets: np.ndarray, total: int
) -> tuple[np.ndarray, np.ndarray]:
    """Keys of single ids `(B, singles)`, feature by feature, then of the bags' values; and the `code` of each.

    A value that no bag claims has the key `total` and the code 0.
    """
    rows, singles = ids.shape
    found = [_key(features[f], int(ids[b, f]), total) for f in range(singles) for b in range(rows)]
    bags = [(total, 0)] * len(values)
    for number, own in enumerate(offsets.reshape(-1, rows + 1)):
        for k in range(own[0], own[-1]):
            bags[k] = _key(features[singles + number], int(values[k]), total)
    keys, codes = np.array(found + bags, np.int64).reshape(-1, 2).T
    return keys, codes


def _key(feature: np.ndarray, identity: int, total: int) -> tuple[int, int]:
    start, size, place = (int(field) for field in feature[:3])
    return start + identity if 0 <= identity < size else total, code(place, identity)


def find_slots(keys: np.ndarray, slot_of: np.ndarray, capacity: int) -> np.ndarray:
    """The slots of keys; `capacity` for what has none."""
    return np.array([slot_of[key] if slot_of[key] >= 0 else capacity for key in keys], slot_of.dtype)


def claim(keys: np.ndarray, slot_of: np.ndarray, used: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Mark the rows of batch `number` as used; the keys that are not in the cache, once each, and their `slot_of`.

    Those are CLAIMED from now on.
    """
    missing = {}
    for key in sorted(set(keys.tolist()) - {len(slot_of) - 1}):
        slot = int(slot_of[key])
        if slot >= 0:
            used[slot] = number
        elif slot != CLAIMED:
            missing[key], slot_of[key] = slot, CLAIMED
    return np.array(list(missing), np.int64), np.array(list(missing.values()), slot_of.dtype)
