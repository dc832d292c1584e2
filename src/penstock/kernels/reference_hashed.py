"""Hashed tables an id at a time, in dictionaries: slow, obvious, the oracle of `cpu_hashed` and `gpu_hashed`."""

from __future__ import annotations

import numpy as np

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


class Rows:
    """The rows of ids `(table, id)`, numbered as they come; `capacity` of them."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.rows, self.touched = capacity, dict[tuple[int, int], int](), dict[tuple[int, int], int]()
        self.free: list[int] = []
        self.used, self.clock, self.refused = 0, 1, dict[int, int]()

    def find(self, occurrences: list[tuple[int, int] | None], train: bool) -> list[int]:
        """Rows of occurrences `(table, id)`; `capacity` for what has none, one more where it cannot be trained."""
        found = [self._row(occurrence, train) for occurrence in occurrences]
        self.clock += train
        return found

    def _row(self, occurrence: tuple[int, int] | None, train: bool) -> int:
        if occurrence is None or occurrence[1] == -1:
            return self.capacity + train
        if occurrence not in self.rows and train:
            if self.free:
                self.rows[occurrence] = self.free.pop()
            elif self.used < self.capacity:
                self.rows[occurrence] = self.used
                self.used += 1
            else:
                self.refused[occurrence[0]] = self.refused.get(occurrence[0], 0) + 1
        if occurrence not in self.rows:
            return self.capacity + train
        if train:
            self.touched[occurrence] = self.clock
        return self.rows[occurrence]

    def drop(self, occurrence: tuple[int, int]) -> None:
        """An id loses its row, which is free then."""
        self.free.append(self.rows.pop(occurrence))


def mix(key: int) -> int:
    """`cpu_half.mix`."""
    for _ in range(2):
        key ^= key >> 32
        key = key * 0xD6E8FEB86659FD93 & _MASK
    return key ^ (key >> 32)


def first_weights(identity: int, seed: int, dim: int, low: float, width: float) -> np.ndarray:
    """How the row of an id starts, in float32."""
    hashed = mix((identity + 1 ^ seed) & _MASK)
    draws = [mix(hashed + (i + 1) * _GOLDEN & _MASK) >> 40 for i in range(dim)]
    shares = np.array(draws, np.float32) * np.float32(2.0**-24)
    return np.float32(low) + np.float32(width) * shares
