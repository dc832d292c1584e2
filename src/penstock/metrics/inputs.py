"""One way to read scores, labels, weights and groups: checked, of one length, rows without a meaning left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.errors import DataError
from penstock.metrics.protocol import State, Values

_EXACT_INTEGERS = 2**53  # the largest that a float64 tells from its neighbours


@dataclass(frozen=True)
class ScoredRows:
    """Rows with a score that is a number and a weight above zero, and how many scores were NaN.

    Arrays are NumPy's in float64, or tensors on a GPU where that was asked for.
    """

    scores: Any
    labels: Any
    weights: Any  # None: one each
    groups: np.ndarray | None
    num_nan: int


def read_rows(
    metric: str,
    scores: Values,
    labels: Values,
    weights: Values | None = None,
    groups: Values | None = None,
    *,
    binary: bool = True,
    stay_on_device: bool = False,
) -> ScoredRows:
    """Check a batch for the metric of this name.

    Args:
        metric: the metric's name, for errors.
        scores, labels, weights, groups: one value a row, as `(B,)` or `(B, 1)`.
        binary: whether labels must be 0 or 1; else any that are finite.
        stay_on_device: leave tensors on their GPU.

    Raises:
        DataError: the lengths differ, a label or weight is out of its domain, or something is no number.
    """
    on_device = stay_on_device and is_on_gpu(scores)
    read = _tensor if on_device else _floats
    found = read(scores, metric, "scores")
    truth = read(labels, metric, "labels")
    weighted = None if weights is None else read(weights, metric, "weights")
    named = None if groups is None else host_array(groups).reshape(-1)
    for what, values in (("labels", truth), ("weights", weighted), ("groups", named)):
        if values is not None and len(values) != len(found):
            raise DataError(f"{metric}: {len(found)} scores and {len(values)} {what}; give one of each for every row")
    _check_labels(metric, truth, binary)
    missing = found != found  # of NaN alone
    num_nan = int(missing.sum())
    drop = missing if num_nan else None
    if weighted is not None:
        if not bool(((weighted >= 0) & (weighted < float("inf"))).all()):
            raise DataError(f"{metric}: weights must be finite and not below zero")
        drop = missing | (weighted == 0)
    if drop is not None:
        kept = ~drop
        found, truth = found[kept], truth[kept]
        weighted = None if weighted is None else weighted[kept]
        named = None if named is None else named[host_array(kept)]
    return ScoredRows(found, truth, weighted, named, num_nan)


def read_state(metric: str, state: State, names: tuple[str, ...]) -> list[np.ndarray]:
    """The arrays of a saved state, in the order of `names`.

    Raises:
        DataError: one of them is missing.
    """
    missing = [name for name in names if name not in state]
    if missing:
        raise DataError(f"{metric}: the state has no {', '.join(missing)}; it is that of another metric")
    return [np.array(state[name]) for name in names]


def is_on_gpu(values: Any) -> bool:
    """Whether these are a tensor's on a CUDA device."""
    return bool(getattr(values, "is_cuda", False))


def host_array(values: Any) -> np.ndarray:
    """NumPy's view of arrays, lists and tensors of any device; half-precision tensors in float32."""
    if hasattr(values, "detach"):
        values = values.detach()
        if values.is_floating_point() and values.element_size() < 4:
            values = values.float()
        values = values.cpu().numpy()
    return np.asarray(values)


def _floats(values: Any, metric: str, what: str) -> np.ndarray:
    array = _one_dimension(host_array(values), metric, what)
    if array.dtype.kind not in "biuf" and array.size:
        raise DataError(f"{metric}: {what} must be numbers, got {array.dtype}")
    if array.dtype.kind in "iu" and array.size and max(int(array.max()), -int(array.min())) > _EXACT_INTEGERS:
        raise DataError(f"{metric}: {what} beyond 2**53 would be rounded; scale them first")
    return np.asarray(array.astype(np.float64))


def _tensor(values: Any, metric: str, what: str) -> Any:
    return _one_dimension(values.detach(), metric, what).double()


def _one_dimension(values: Any, metric: str, what: str) -> Any:
    shape = tuple(values.shape)
    if len(shape) == 2 and shape[1] == 1:
        return values.reshape(-1)
    if len(shape) != 1:
        raise DataError(f"{metric}: {what} must be (B,), got {shape}; name several outputs as a dict of them")
    return values


def _check_labels(metric: str, labels: Any, binary: bool) -> None:
    fine = (labels == 0) | (labels == 1) if binary else (labels >= 0) & (labels < float("inf"))
    if bool(fine.all()):
        return
    wanted = "0 or 1" if binary else "finite and not below zero"
    row = int(host_array(~fine).argmax())
    raise DataError(f"{metric}: labels must be {wanted}, got {float(labels[row])!r} in row {row} of a batch")
