"""What every metric keeps to: merging, saving, NaN, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from penstock.core.errors import DataError, ParameterError
from penstock.metrics import METRICS, Metric, create_metric
from penstock.metrics.registry import WITHIN_GROUPS


@pytest.fixture(params=sorted(METRICS))
def name(request) -> str:
    return request.param


def rows(number: int = 400) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, number)
    return {"scores": random.normal(size=number).astype(np.float32) + labels, "labels": labels,
            "weights": random.random(number), "groups": random.integers(0, 20, number)}  # fmt: skip


def counted(name: str, *parts: dict) -> Metric:
    metric = create_metric(name)
    for part in parts:
        metric.update(**part)
    return metric


def test_it_is_a_metric_under_its_name(name) -> None:
    metric = create_metric(name)
    assert isinstance(metric, Metric) and metric.name == name and math.isnan(metric.compute())


def test_its_best_is_what_a_perfect_model_reaches(name) -> None:
    data = rows()
    perfect = counted(name, {**data, "scores": np.where(data["labels"] == 1, 30.0, -30.0)}).compute()
    some = counted(name, {**data, "scores": 0.5 + data["scores"]}).compute()
    best = create_metric(name).best
    assert abs(perfect - best) < 1e-9 < abs(some - best)


def test_the_list_says_which_need_groups(name) -> None:
    assert create_metric(name).needs_groups == (name in WITHIN_GROUPS)


def test_batches_merges_and_states_in_any_order_give_one_figure(name) -> None:
    data = rows()
    expected = counted(name, data).compute()
    cuts = np.array_split(np.arange(400), 7)
    parts = [counted(name, {key: value[cut] for key, value in data.items()}) for cut in cuts]
    for order in (range(7), reversed(range(7)), (3, 0, 6, 1, 5, 2, 4)):
        whole = create_metric(name)
        for number in order:
            saved = create_metric(name)
            saved.load_state(parts[number].state())
            whole.merge(saved)
        assert whole.compute() == pytest.approx(expected, rel=1e-12)
    assert math.isfinite(expected)
    whole.reset()
    assert math.isnan(whole.compute())


def test_tensors_and_arrays_give_the_same(name) -> None:
    data = rows()
    tensors = {key: torch.from_numpy(value) for key, value in data.items()}
    tensors["scores"].requires_grad_()
    assert counted(name, tensors).compute() == counted(name, data).compute()


def test_weights_count_as_rows_do(name) -> None:
    data = rows()
    times = np.random.default_rng(1).integers(0, 3, 400)
    if name == "ndcg":  # whose weights are those of groups
        times = np.repeat(2, 400)
        expected = counted(name, {**data, "weights": None}).compute()
    else:
        expected = counted(
            name, {key: np.repeat(value, times) for key, value in data.items() if key != "weights"}
        ).compute()
    assert counted(name, {**data, "weights": times}).compute() == pytest.approx(expected, rel=1e-9)


def test_a_score_that_is_nan_leaves_no_figure(name) -> None:
    data = rows()
    data["scores"][[3, 5]] = np.nan
    metric = counted(name, data)
    assert metric.num_nan == 2 and math.isnan(metric.compute())
    other = counted(name, rows())
    other.merge(metric)
    assert other.num_nan == 2 and math.isnan(other.compute())
    other.load_state(metric.state())
    assert other.num_nan == 2 and math.isnan(other.compute())
    other.reset()
    assert other.num_nan == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [1.0]}, "2 scores and 1 labels"),
        ({"labels": [1.0, -1.0]}, "labels must be .* got -1.0 in row 1"),
        ({"labels": [math.nan, 1.0]}, "labels must be .* got nan in row 0"),
        ({"scores": [[0.1, 0.2], [0.3, 0.4]]}, r"scores must be \(B,\), got \(2, 2\)"),
        ({"scores": ["a", "b"]}, "scores must be numbers"),
        ({"scores": [2**60, 2**60 + 1]}, "would be rounded"),
        ({"weights": [1.0, -1.0]}, "weights must be finite and not below zero"),
        ({"weights": [1.0, math.nan]}, "weights must be finite and not below zero"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_counted(name, change, message) -> None:
    metric = create_metric(name)
    with pytest.raises(DataError, match=message):
        metric.update(**{"scores": [0.1, 0.2], "labels": [0, 1], "groups": [1, 1], **change})
    assert math.isnan(metric.compute())
    with pytest.raises(DataError, match="another metric"):
        metric.load_state({})


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ParameterError, match="no metric 'aux'; did you mean 'auc'"):
        create_metric("aux")
