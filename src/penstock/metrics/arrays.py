"""The few array functions that NumPy and torch spell differently: one algorithm runs on the host and on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from penstock.core.extras import require

_ALL_BUT_SIGN = 2**63 - 1
_KEY_BITS = 63  # levels of the trie of keys: a block of the last one is all scores of one sign


class Arrays(Protocol):
    """One-dimensional arrays of int64, float64 and bool, where they live."""

    def order_of(self, values: Any) -> Any:
        """The places of the values in ascending order."""

    def concatenate(self, parts: Sequence[Any]) -> Any: ...

    def running_max(self, values: Any) -> Any: ...

    def running_sum(self, values: Any) -> Any: ...

    def places(self, mask: Any) -> Any:
        """Where a mask is true."""

    def light_blocks(self, keys: Any, upto: Any, heaviest: float) -> Any:
        """Where the largest blocks of the keys' binary trie begin that weigh no more than `heaviest`.

        `upto` is what the keys before each weigh, and all of them. A key that is heavier is a block of its own.
        """

    def segment_sums(self, values: Any, starts: Any) -> Any:
        """Sums of the runs that begin at `starts`, the first of which is 0."""

    def starts_with_true(self, mask: Any) -> Any:
        """The mask with one more true value before it."""

    def keys_of(self, scores: Any) -> Any:
        """Integers in the order of the scores: a float's bits, those of negative ones counted downwards."""


class NumpyArrays:
    """On the host."""

    def order_of(self, values: np.ndarray) -> np.ndarray:
        return np.argsort(values)

    def concatenate(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(parts)

    def running_max(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum.accumulate(values))

    def running_sum(self, values: np.ndarray) -> np.ndarray:
        return np.cumsum(values)

    def places(self, mask: np.ndarray) -> np.ndarray:
        return np.flatnonzero(mask)

    def light_blocks(self, keys: np.ndarray, upto: np.ndarray, heaviest: float) -> np.ndarray:
        from penstock.kernels import cpu_score_bins

        starts = np.empty(len(keys), np.int64)
        return starts[: cpu_score_bins.light_blocks(keys, upto, heaviest, starts)]

    def segment_sums(self, values: np.ndarray, starts: np.ndarray) -> np.ndarray:
        return np.asarray(np.add.reduceat(values, starts)) if len(values) else values

    def starts_with_true(self, mask: np.ndarray) -> np.ndarray:
        return np.concatenate([[True], mask])

    def keys_of(self, scores: np.ndarray) -> np.ndarray:
        bits = (scores + 0.0).view(np.int64)  # -0.0 becomes 0.0
        return np.where(bits < 0, bits ^ _ALL_BUT_SIGN, bits)


class TorchArrays:
    """On the device of the tensors that are given."""

    def __init__(self) -> None:
        self._torch: Any = require("torch", "torch")

    def order_of(self, values: Any) -> Any:
        return self._torch.argsort(values)

    def concatenate(self, parts: Sequence[Any]) -> Any:
        return self._torch.cat(list(parts))

    def running_max(self, values: Any) -> Any:
        """The largest so far. In two levels: torch scans a row by one block of threads, many rows side by side."""
        width = 2048
        lowest = self._torch.iinfo(values.dtype).min
        padded = self._torch.nn.functional.pad(values, (0, -len(values) % width), value=lowest)
        rows = padded.view(-1, width).cummax(1).values
        carried = rows[:, -1].cummax(0).values
        rows[1:] = self._torch.maximum(rows[1:], carried[:-1, None])
        return rows.view(-1)[: len(values)]

    def running_sum(self, values: Any) -> Any:
        return self._torch.cumsum(values, 0)

    def places(self, mask: Any) -> Any:
        return self._torch.nonzero(mask).reshape(-1)

    def light_blocks(self, keys: Any, upto: Any, heaviest: float) -> Any:
        """A block weighs no less than those in it, so its level is found by halving, for all keys at once.

        A loop over the levels would wait for the device at each.
        """
        search, where = self._torch.searchsorted, self._torch.where
        light, most = keys * 0 - 1, keys * 0 + _KEY_BITS
        for _ in range(_KEY_BITS.bit_length() + 1):
            level = (light + most + 1) >> 1
            below = ~((keys * 0 - 1) << level)
            weight = upto[search(keys, keys | below, right=True)] - upto[search(keys, keys & ~below)]
            light, most = where(weight <= heaviest, level, light), where(weight <= heaviest, most, level - 1)
        begin = keys & ((keys * 0 - 1) << where(light < 0, 0, light))
        return self.places(self.starts_with_true(begin[1:] != begin[:-1]))

    def segment_sums(self, values: Any, starts: Any) -> Any:
        if not len(values):
            return values
        # Differences of running sums: exact for counts, and in the same order every time, unlike atomic additions.
        ends = self._torch.cat([starts[1:] - 1, starts.new_tensor([len(values) - 1])])
        upto = self._torch.cumsum(values, 0)[ends]
        return self._torch.diff(upto, prepend=upto.new_zeros(1))

    def starts_with_true(self, mask: Any) -> Any:
        return self._torch.cat([mask.new_ones(1), mask])

    def keys_of(self, scores: Any) -> Any:
        bits = (scores + 0.0).view(self._torch.int64)
        return self._torch.where(bits < 0, bits ^ _ALL_BUT_SIGN, bits)


def arrays_of(values: Any) -> Arrays:
    """The functions for these values."""
    return NumpyArrays() if isinstance(values, np.ndarray) else TorchArrays()
