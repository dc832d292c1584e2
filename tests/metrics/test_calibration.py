"""Predicted against observed click rates."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.metrics import Calibration, logit


def test_a_model_that_promises_too_much() -> None:
    random = np.random.default_rng(1)
    truth = random.random(50_000) * 0.5
    calibration = Calibration()
    for part in np.array_split(truth, 7):
        calibration.update(logit((part * 1.2).astype(np.float32)), (random.random(len(part)) < part).astype(np.int64))
    found = calibration.to_dict()
    assert found["ratio"] == calibration.compute() == pytest.approx(1.2, abs=0.02)
    assert found["expected_error"] == pytest.approx(0.05, abs=0.005)
    assert [b["rows"] for b in found["bins"]] == pytest.approx([5_000] * 10, rel=0.1)
    predicted = [b["predicted"] for b in found["bins"]]
    assert predicted == sorted(predicted)


def test_weights_count_as_rows_do() -> None:
    random = np.random.default_rng(2)
    logits, labels, weights = random.normal(size=500), random.integers(0, 2, 500), random.integers(0, 4, 500)
    weighted, repeated = Calibration(), Calibration()
    weighted.update(logits, labels, weights)
    repeated.update(np.repeat(logits, weights), np.repeat(labels, weights))
    one, other = weighted.to_dict(), repeated.to_dict()
    assert one["expected_error"] == pytest.approx(other["expected_error"]) and one["ratio"] == pytest.approx(
        other["ratio"]
    )


def test_infinite_logits_are_certain() -> None:
    calibration = Calibration()
    calibration.update([np.inf, -np.inf, np.inf, -np.inf], [1, 0, 1, 0])
    assert calibration.compute() == 1.0 and calibration.to_dict()["expected_error"] == 0
