"""Sums for log loss and calibration are those of the metrics themselves, on the host and on a device.

Here the device is a CPU, whose tensors are told to be on a GPU.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from penstock.core.errors import DataError
from penstock.metrics import Calibration, LogLoss, inputs, logit
from penstock.metrics.probability_sums import ProbabilitySums


@pytest.fixture(params=["host", "device"])
def place(request, monkeypatch: pytest.MonkeyPatch):
    """What puts probabilities there."""
    if request.param == "host":
        return np.asarray
    return on_device(monkeypatch)


def on_device(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inputs, "is_on_gpu", lambda values: isinstance(values, torch.Tensor))
    return torch.from_numpy


def rows(number: int = 3_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    probabilities = 1 / (1 + np.exp(-random.normal(-2, 3, number)))
    return probabilities.astype(np.float32), (random.random(number) < probabilities).astype(np.int8)


def assert_as_metrics(sums: ProbabilitySums, probabilities: np.ndarray, labels: np.ndarray) -> None:
    for metric, found in ((LogLoss(), sums.log_loss_state()), (Calibration(), sums.calibration_state())):
        metric.update(logit(probabilities), labels)
        loaded = type(metric)()
        loaded.load_state(found)
        assert loaded.compute() == pytest.approx(metric.compute(), rel=1e-12, nan_ok=True)
        for name, wanted in metric.state().items():
            assert found[name].dtype == wanted.dtype and found[name].shape == wanted.shape
            np.testing.assert_allclose(found[name], wanted, rtol=1e-12, atol=1e-9)
    assert sums.num_rows == len(labels)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("label_dtype", [bool, np.int8, np.int64, np.float32])
def test_they_are_those_of_the_metrics(place, dtype: type, label_dtype: type) -> None:
    probabilities, labels = rows()
    probabilities, labels = probabilities.astype(dtype), labels.astype(label_dtype)
    probabilities[:6], labels[:6] = [0, 1, 0, 1, 0.5, 1e-30], [0, 1, 1, 0, 1, 0]
    sums = ProbabilitySums("log_loss")
    for part in np.array_split(np.arange(len(labels)), [0, 700, 701]):
        sums.add(place(probabilities[part]), labels[part])
    assert_as_metrics(sums, probabilities, labels)


def test_half_precision_and_columns_of_one(place) -> None:
    probabilities, labels = rows()
    half = torch.from_numpy(probabilities).half()
    sums = ProbabilitySums("log_loss")
    sums.add(half[:, None], torch.from_numpy(labels)[:, None])
    assert_as_metrics(sums, half.float().numpy(), labels)


def test_a_prediction_that_is_nan_is_counted_alone(place) -> None:
    probabilities, labels = rows()
    probabilities[[3, 5]] = np.nan
    sums = ProbabilitySums("log_loss")
    sums.add(place(probabilities), labels)
    assert_as_metrics(sums, probabilities, labels)
    assert sums.log_loss_state()["num_nan"] == sums.calibration_state()["num_nan"] == 2


def test_any_places_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    to_device = on_device(monkeypatch)
    probabilities, labels = rows()
    first, second, third = (ProbabilitySums("log_loss") for _ in range(3))
    first.add(probabilities[:900], labels[:900])
    first.add(to_device(probabilities[900:1000]), labels[900:1000])
    second.add(to_device(probabilities[1000:]), torch.from_numpy(labels[1000:]))
    third.add(np.empty(0, np.float32), np.empty(0))
    third.add(to_device(np.empty(0, np.float32)), np.empty(0))
    for other in (second, third):
        first.merge(other)
    assert_as_metrics(first, probabilities, labels)


def test_the_order_of_rows_on_a_device_changes_no_bit_of_a_bin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its additions come in any order."""
    to_device = on_device(monkeypatch)
    probabilities, labels = rows()
    found = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(labels))
        sums = ProbabilitySums("log_loss")
        sums.add(to_device(probabilities[order]), labels[order])
        found.append(sums.calibration_state())
    for name, values in found[0].items():
        assert all(np.array_equal(other[name], values) for other in found)


@pytest.mark.parametrize("wrong", [7.0, -1.0, 0.5, math.nan])
def test_a_wrong_label_is_named_at_once_on_the_host(wrong: float) -> None:
    sums = ProbabilitySums("calibration")
    with pytest.raises(DataError, match=f"^calibration: labels must be 0 or 1, got {wrong!r} in row 1 of a batch$"):
        sums.add(np.full(3, 0.5, np.float32), np.array([0, wrong, 9]))
    assert sums.num_rows == sums.calibration_state()["rows"].sum() == 0


@pytest.mark.parametrize("wrong", [7.0, -1.0, 0.5, math.nan])
@pytest.mark.parametrize("asked", ["loss", "calibration", "merge", "merged", "another device"])
def test_a_wrong_label_on_a_device_is_never_lost(monkeypatch: pytest.MonkeyPatch, wrong: float, asked: str) -> None:
    to_device, half = on_device(monkeypatch), np.full(3, 0.5, np.float32)
    sums, other = ProbabilitySums("log_loss"), ProbabilitySums("log_loss")
    for labels in ([0, 1, 1], [0, wrong, 9], [8, 0, 0], [0, 1, 0]):
        sums.add(to_device(half), np.array(labels, np.float32))
    ask = {
        "loss": sums.log_loss_state,
        "calibration": sums.calibration_state,
        "merge": lambda: sums.merge(other),
        "merged": lambda: other.merge(sums),
        "another device": lambda: sums.add(torch.empty(3, device="meta"), torch.empty(3, device="meta")),
    }[asked]
    for _ in range(2):  # whoever asks once more is told once more
        with pytest.raises(DataError, match=f"^log_loss: labels must be 0 or 1, got {wrong!r} in row 1 of a batch$"):
            ask()


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        (np.ones(2, np.float32), np.ones(1), "2 scores and 1 labels"),
        (np.ones((2, 2), np.float32), np.ones(2), r"scores must be \(B,\), got \(2, 2\)"),
    ],
)
def test_bad_shapes_are_refused_at_once(place, probabilities, labels, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ProbabilitySums("log_loss").add(place(probabilities), labels)


def test_text_is_refused() -> None:
    with pytest.raises(DataError, match="labels must be numbers"):
        ProbabilitySums("log_loss").add(np.ones(1, np.float32), np.array(["a"]))
