"""The index of a cache of embedding rows on the CPU, in NumPy; the words and arrays are those of `cache_contract`."""

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
    number = np.repeat(np.arange(singles), rows)
    identity = np.concatenate([ids.T.reshape(-1).astype(np.int64), values.astype(np.int64)])
    claimed = np.ones(len(identity), bool)
    if len(offsets):
        position, by_feature = np.arange(len(values)), offsets.reshape(-1, rows + 1)
        bag = np.clip(np.searchsorted(by_feature[:, 0], position, side="right") - 1, 0, None)
        number = np.concatenate([number, singles + bag])
        claimed[singles * rows :] = (position >= by_feature[bag, 0]) & (position < by_feature[bag, -1])
    start, size, place, _ = features[number].T
    known = claimed & (identity >= 0) & (identity < size)
    return np.where(known, start + identity, total), np.where(claimed, code(place, identity), 0)


def find_slots(keys: np.ndarray, slot_of: np.ndarray, capacity: int) -> np.ndarray:
    """The slots of keys; `capacity` for what has none."""
    found = slot_of[keys]
    return np.where(found >= 0, found, capacity).astype(slot_of.dtype)


def claim(keys: np.ndarray, slot_of: np.ndarray, used: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Mark the rows of batch `number` as used; the keys that are not in the cache, once each, and their `slot_of`.

    Those are CLAIMED from now on.
    """
    total = len(slot_of) - 1
    wanted = np.unique(keys[keys < total])
    slots = slot_of[wanted]
    used[slots[slots >= 0]] = number
    missing = wanted[(slots < 0) & (slots != CLAIMED)]
    was = slot_of[missing]
    slot_of[missing] = CLAIMED
    return missing, was
