"""One way to read scores, labels, weights and groups: checked, of one length, rows without a meaning left out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock.core.errors import DataError
from penstock.core.extras import require
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
    read = partial(_tensor, like=scores) if on_device else _floats
    found = read(scores, metric, "scores")
    truth = read(labels, metric, "labels")
    weighted = None if weights is None else read(weights, metric, "weights")
    named = None if groups is None else host_array(groups).reshape(-1)
    _check_lengths(metric, found, labels=truth, weights=weighted, groups=named)
    missing = found != found  # of NaN alone
    wrong = wrong_labels(truth, binary)
    num_wrong, num_nan = _counts(wrong, missing)
    if num_wrong:
        row = int(host_array(wrong).argmax())
        raise label_error(metric, truth[row], row, binary)
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


def read_clicks(metric: str, probabilities: Values, labels: Values) -> tuple[Any, Any]:
    """Check a batch of probabilities and labels of 0 or 1, one a row.

    Args:
        metric: the metric's name, for errors.
        probabilities: floats, as `(B,)` or `(B, 1)`.
        labels: as many.

    Returns:
        Both as arrays, the labels as booleans; or both as tensors, where probabilities are on a GPU. Labels there are
        as they came and not checked, since that would wait for the device.

    Raises:
        DataError: the lengths differ, or a label on the host is neither 0 nor 1.
    """
    on_device = is_on_gpu(probabilities)
    read = partial(_on_device_of, like=probabilities) if on_device else host_array
    found = _one_dimension(read(probabilities), metric, "scores")
    truth = _one_dimension(read(labels), metric, "labels")
    _check_lengths(metric, found, labels=truth)
    if on_device:
        return found if found.element_size() >= 4 else found.float(), truth
    for what, values in (("scores", found), ("labels", truth)):
        _check_numbers(values, metric, what)
    wrong = wrong_labels(truth)
    if wrong.any():
        row = int(wrong.argmax())
        raise label_error(metric, truth[row], row)
    return found, truth == 1


def label_error(metric: str, label: float, row: int, binary: bool = True) -> DataError:
    """What is raised for a label that is none."""
    wanted = "0 or 1" if binary else "finite and not below zero"
    return DataError(f"{metric}: labels must be {wanted}, got {float(label)!r} in row {int(row)} of a batch")


def beside(values: Values, scores: Values) -> Values:
    """The values on the GPU of the scores, where these are on one; else as they are."""
    return _on_device_of(values, scores) if is_on_gpu(scores) else values


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
    _check_numbers(array, metric, what)
    if array.dtype.kind in "iu" and array.size and max(int(array.max()), -int(array.min())) > _EXACT_INTEGERS:
        raise DataError(f"{metric}: {what} beyond 2**53 would be rounded; scale them first")
    return np.asarray(array.astype(np.float64))


def _check_numbers(array: np.ndarray, metric: str, what: str) -> None:
    if array.dtype.kind not in "biuf" and array.size:
        raise DataError(f"{metric}: {what} must be numbers, got {array.dtype}")


def _tensor(values: Any, metric: str, what: str, like: Any) -> Any:
    return _one_dimension(_on_device_of(values, like), metric, what).double()


def _on_device_of(values: Any, like: Any) -> Any:
    """A tensor where another one is."""
    return require("torch", "torch").as_tensor(values, device=like.device).detach()


def _one_dimension(values: Any, metric: str, what: str) -> Any:
    shape = tuple(values.shape)
    if len(shape) == 2 and shape[1] == 1:
        return values.reshape(-1)
    if len(shape) != 1:
        raise DataError(f"{metric}: {what} must be (B,), got {shape}; name several outputs as a dict of them")
    return values


def _check_lengths(metric: str, scores: Any, **others: Any) -> None:
    for what, values in others.items():
        if values is not None and len(values) != len(scores):
            raise DataError(f"{metric}: {len(scores)} scores and {len(values)} {what}; give one of each for every row")


def wrong_labels(labels: Any, binary: bool = True) -> Any:
    """Which are no labels, NaN among them."""
    return ~((labels == 0) | (labels == 1) if binary else (labels >= 0) & (labels < float("inf")))


def _counts(*masks: Any) -> list[int]:
    """How many are true in each. A device is waited for once."""
    if isinstance(masks[0], np.ndarray):
        return [int(np.count_nonzero(mask)) for mask in masks]
    torch: Any = require("torch", "torch")
    return [int(count) for count in torch.stack([mask.sum() for mask in masks]).tolist()]
