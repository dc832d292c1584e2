"""The few array functions that NumPy and torch spell differently: one algorithm runs on the host and on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from penstock.core.extras import require

_ALL_BUT_SIGN = 2**63 - 1


class Arrays(Protocol):
    """One-dimensional arrays of int64, float64 and bool, where they live."""

    def order_of(self, values: Any) -> Any:
        """The places of the values in ascending order."""

    def concatenate(self, parts: Sequence[Any]) -> Any: ...

    def running_max(self, values: Any) -> Any: ...

    def running_sum(self, values: Any) -> Any: ...

    def places(self, mask: Any) -> Any:
        """Where a mask is true."""

    def where(self, mask: Any, yes: Any, no: Any) -> Any: ...

    def num_below(self, ascending: Any, values: Any, or_equal: bool = False) -> Any:
        """How many of the ascending ones are below each value."""

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

    def where(self, mask: np.ndarray, yes: Any, no: Any) -> np.ndarray:
        return np.asarray(np.where(mask, yes, no))

    def num_below(self, ascending: np.ndarray, values: np.ndarray, or_equal: bool = False) -> np.ndarray:
        return np.searchsorted(ascending, values, side="right" if or_equal else "left")

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

    def where(self, mask: Any, yes: Any, no: Any) -> Any:
        return self._torch.where(mask, yes, no)

    def num_below(self, ascending: Any, values: Any, or_equal: bool = False) -> Any:
        return self._torch.searchsorted(ascending, values, right=or_equal)

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
