"""What the host knows of counters that a GPU changes: never less than they are, without waiting for it."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.kernels.hashed_contract import BY_TABLE, FREE, USED


class KnownCounts:
    """Upper bounds on the rows in use and the signs of each table.

    With every step the counters are copied to the host, behind what the GPU has been given before. A bound is the last
    copy that has arrived and all ids that were asked for since, as if each were new.

    >>> counts = KnownCounts(2)
    >>> counters = torch.zeros(BY_TABLE + 4, dtype=torch.int64)
    >>> counts.ask(np.array([3, 5, 8]), counters)  # ids of each table, and of all
    >>> counts.rows, counts.signs.tolist()
    (8, [3, 5])
    >>> counters[USED], counters[BY_TABLE + 1] = 2, 2  # most were there already
    >>> counts.wait(counters)
    >>> counts.rows, counts.signs.tolist()
    (2, [0, 2])
    """

    def __init__(self, num_tables: int) -> None:
        self._asked = np.zeros(num_tables + 1, np.int64)  # so far: of each table, of all
        self._known, self._asked_then = np.zeros(BY_TABLE + 2 * num_tables, np.int64), self._asked.copy()
        self._coming: deque[tuple[Any, Tensor, np.ndarray]] = deque()

    @property
    def rows(self) -> int:
        """Rows in use, at most."""
        self._look()
        return int(self._known[USED] - self._known[FREE] + self._asked[-1] - self._asked_then[-1])

    @property
    def signs(self) -> np.ndarray:
        """Signs in the index by table, at most."""
        self._look()
        asked = (self._asked - self._asked_then)[:-1]
        found: np.ndarray = self._known[BY_TABLE : BY_TABLE + len(asked)] + asked
        return found

    def ask(self, ids: np.ndarray, counters: Tensor) -> None:
        """A step with so many ids of each table, and of all, comes next; the counters before it are on their way."""
        if counters.device.type == "cuda":
            held = torch.empty(counters.shape, dtype=torch.int64, pin_memory=True)
            held.copy_(counters, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record(torch.cuda.current_stream(counters.device))
            self._coming.append((arrived, held, self._asked.copy()))
        else:
            self.wait(counters)
        self._asked += ids

    def advance(self) -> bool:
        """Wait for the oldest copy that is under way; false where there is none."""
        if not self._coming:
            return False
        self._coming[0][0].synchronize()
        self._look()
        return True

    def wait(self, counters: Tensor) -> None:
        """Wait for the device, and know them exactly."""
        self._coming.clear()
        self._known, self._asked_then = counters.cpu().numpy().copy(), self._asked.copy()

    def _look(self) -> None:
        while self._coming and self._coming[0][0].query():
            _, held, asked = self._coming.popleft()
            self._known, self._asked_then = held.numpy(), asked
