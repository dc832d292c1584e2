"""Figures of an evaluation are those of its metrics, one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from penstock.core.errors import DataError
from penstock.jobs.scoring_figures import ScoreFigures, metrics_of
from penstock.metrics import AUC, Calibration, GroupAUC, LogLoss, inputs, logit

METRICS = [AUC, LogLoss, GroupAUC, Calibration]


class Doubled(LogLoss):
    """One of one's own, that does something else with the same scores."""

    def compute(self) -> float:
        return 2 * super().compute()


def rows(number: int = 2_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    probabilities = 1 / (1 + np.exp(-random.normal(-1, 2, number)))
    labels = (random.random(number) < probabilities).astype(np.int8)
    return probabilities.astype(np.float32), labels, random.integers(0, 20, number)


@pytest.mark.parametrize("place", ["host", "device"])
def test_they_are_those_of_the_metrics(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    probabilities, labels, groups = rows()
    expected = {}
    for metric in (AUC(), LogLoss(), GroupAUC(), Calibration()):
        scores = probabilities if metric.name == "auc" else logit(probabilities)
        metric.update(scores, labels, groups=groups)
        expected[metric.name] = metric.compute()
    calibration = metric.to_dict()
    given: object = probabilities
    if place == "device":  # a CPU, whose tensors are told to be on a GPU
        monkeypatch.setattr(inputs, "is_on_gpu", lambda values: isinstance(values, torch.Tensor))
        given = torch.from_numpy(probabilities)
    whole, other = ScoreFigures(METRICS), ScoreFigures(METRICS)
    for figures, part in ((whole, slice(0, 700)), (other, slice(700, 701)), (other, slice(701, None))):
        figures.add(labels[part], given[part], groups[part])
    whole.merge(other)
    assert whole.metrics() == pytest.approx(expected, rel=1e-12) and whole.num_rows == 2_000
    assert whole.metrics() == whole.metrics()
    assert whole.calibration.to_dict()["ratio"] == pytest.approx(calibration["ratio"], rel=1e-12)
    assert whole.calibration.to_dict()["expected_error"] == pytest.approx(calibration["expected_error"], rel=1e-9)


def test_one_of_ones_own_counts_for_itself() -> None:
    probabilities, labels, _ = rows()
    figures = ScoreFigures([LogLoss, Doubled])
    figures.add(labels, probabilities)
    own = Doubled()
    own.update(logit(probabilities), labels)
    assert figures.metrics()["log_loss"] == pytest.approx(own.compute(), rel=1e-12)


def test_without_rows_there_is_no_figure() -> None:
    figures = ScoreFigures(metrics_of(None, None))
    assert figures.metrics() == {"auc": None, "log_loss": None} and figures.num_rows == 0
    assert figures.calibration.to_dict()["ratio"] is None


@pytest.mark.parametrize(("metrics", "name"), [([AUC], "auc"), ([LogLoss], "log_loss"), ([], "calibration")])
def test_a_wrong_label_is_named_by_a_metric_that_is_asked_for(metrics: list, name: str) -> None:
    figures = ScoreFigures(metrics)
    with pytest.raises(DataError, match=f"{name}: labels must be 0 or 1, got 7[.]0 in row 1"):
        figures.add(np.array([0, 7]), np.array([0.5, 0.5], np.float32))
