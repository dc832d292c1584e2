"""Figures of an evaluation on a GPU are those of the host, and the device is not waited for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from penstock.core.errors import DataError
from penstock.jobs.scoring_figures import ScoreFigures
from penstock.metrics import AUC, Calibration, GroupAUC, LogLoss

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
METRICS = [AUC, LogLoss, Calibration]


def rows(number: int = 300_000) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    probabilities = 1 / (1 + np.exp(-random.normal(-2, 2, number)))
    labels = (random.random(number) < probabilities).astype(np.float32)
    probabilities[:4], labels[:4] = [0, 1, 0, 1], [0, 1, 1, 0]
    return probabilities.astype(np.float32), labels


def counted(probabilities, labels, metrics=METRICS, groups=None) -> ScoreFigures:
    figures, other = ScoreFigures(metrics), ScoreFigures(metrics)
    for number, start in enumerate(range(0, len(labels), 70_000)):
        part = slice(start, start + 70_000)
        counting = other if number % 2 else figures
        counting.add(labels[part], probabilities[part], None if groups is None else groups[part])
    figures.merge(other)
    return figures


@pytest.mark.parametrize("labels_on", ["host", "device"])
def test_tensors_and_arrays_have_the_same_figures(labels_on: str) -> None:
    probabilities, labels = rows()
    expected = counted(probabilities, labels)
    truth = torch.from_numpy(labels).cuda() if labels_on == "device" else labels
    found = counted(torch.from_numpy(probabilities).cuda(), truth)
    assert found.num_rows == expected.num_rows
    assert found.metrics() == pytest.approx(expected.metrics(), rel=1e-9)
    one, other = found.calibration.state(), expected.calibration.state()
    np.testing.assert_array_equal(one["clicked"].sum(), other["clicked"].sum())
    np.testing.assert_allclose(one["predicted"].sum(), other["predicted"].sum(), rtol=1e-11)
    assert np.abs(one["rows"] - other["rows"]).sum() <= 2  # of log odds next to a bin's edge


def test_metrics_within_groups_are_counted_beside_them() -> None:
    probabilities, labels = rows(50_000)
    groups = np.arange(50_000) % 90
    expected = counted(probabilities, labels, [GroupAUC], groups).metrics()
    tensors = torch.from_numpy(probabilities).cuda(), torch.from_numpy(labels).cuda()
    assert counted(*tensors, [GroupAUC], groups).metrics() == pytest.approx(expected, rel=1e-12)


def test_the_same_rows_have_the_same_bits_twice() -> None:
    tensors = [torch.from_numpy(values).cuda() for values in rows()]
    one, other = (counted(*tensors) for _ in range(2))
    assert one.metrics() == other.metrics()
    assert all(np.array_equal(v, other.calibration.state()[n]) for n, v in one.calibration.state().items())


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_the_device_is_not_waited_for() -> None:
    probabilities, labels = (torch.from_numpy(values).cuda() for values in rows(10_000))
    figures = ScoreFigures([LogLoss])
    figures.add(labels, probabilities)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        figures.add(labels, probabilities)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert figures.num_rows == 20_000 and figures.metrics()["log_loss"] is not None


def test_a_wrong_label_is_named() -> None:
    probabilities, labels = (torch.from_numpy(values).cuda() for values in rows(10_000))
    labels[123] = 7
    figures = ScoreFigures([LogLoss])
    figures.add(labels, probabilities)
    with pytest.raises(DataError, match=r"log_loss: labels must be 0 or 1, got 7\.0 in row 123 of a batch"):
        figures.metrics()
