"""What a run trains with where nobody says: by the rows, and never in the place of what somebody says."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from penstock import Dataset
from penstock.jobs import TrainJob, TrainSettings
from penstock.jobs.defaults import (
    default_adagrad,
    default_batch_size,
    default_epochs,
    default_rate,
    filled_in,
    late_patience,
)


def filled(num_rows: int = 8_000, **given: Any) -> TrainSettings:
    return filled_in(TrainSettings.resolve(given), num_rows)


def test_nothing_is_left_open() -> None:
    found = filled()
    assert None not in (found.batch_size, found.epochs, found.patience)
    assert found.dense_optimizer["lr"] > 0 and found.embedding_optimizer["lr"] > 0
    assert filled_in(found, 10**9) == found  # a resumed run finds everything said


def test_more_rows_take_larger_batches_and_fewer_epochs() -> None:
    rows = [1, 10, 10**3, 10**4, 10**5, 10**6, 10**7, 10**9]
    for values in ([default_batch_size(n) for n in rows], [-default_epochs(n) for n in rows]):
        assert values == sorted(values) and len(set(values)) > 1
    rates = [default_rate(size) for size in (64, 256, 1024)]
    assert rates == sorted(set(rates)) and default_rate(64, is_slow=True) < rates[0] < default_rate(64, is_apart=True)
    accumulators = [default_adagrad(size)["initial_accumulator"] for size in (64, 256, 1024)]
    assert accumulators == sorted(set(accumulators), reverse=True)
    embedding_rates = [default_adagrad(size)["lr"] for size in (1024, 4096, 10**6, 10**7)]
    assert embedding_rates[0] < embedding_rates[1] < embedding_rates[2] == embedding_rates[3]
    # A run of any size takes steps enough to learn from, were it not for data that has so few rows.
    assert all(n * default_epochs(n) / default_batch_size(n) > 150 for n in rows[2:])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"batch_size": 300}, {"batch_size": 300}),
        ({"epochs": 2}, {"epochs": 2, "patience": None}),
        ({"epochs": 2, "patience": 1}, {"epochs": 2, "patience": 1}),
        ({"patience": 1}, {"patience": 1}),
        ({"eval_every": 10}, {"patience": None}),  # evaluations of a part of an epoch say little
        ({"learning_rate": 0.5}, {"dense_optimizer": {"name": "Adam", "lr": 0.5}}),
        ({"dense_optimizer": {"name": "SGD"}}, {"dense_optimizer": {"name": "SGD"}}),
        ({"dense_optimizer": {"name": "AdamW", "lr": 0.5}}, {"dense_optimizer": {"name": "AdamW", "lr": 0.5}}),
        ({"embedding_optimizer": {"name": "LazyAdam"}}, {"embedding_optimizer": {"name": "LazyAdam"}}),
        ({"model": {"name": "MLP", "dropout": 0.0}}, {"model": {"name": "MLP", "dropout": 0.0, "linear": True}}),
        ({"model": {"name": "MLP", "linear": False}}, {"model": {"name": "MLP", "dropout": 0.3, "linear": False}}),
        ({"model": "DeepFM"}, {"model": {"name": "DeepFM", "dropout": 0.3, "linear": "first"}}),
        ({"embedding_learning_rate": 0.5}, {"embedding_optimizer": {**filled().embedding_optimizer, "lr": 0.5}}),
    ],
)
def test_what_is_said_stays(given: dict[str, Any], expected: dict[str, Any]) -> None:
    found = filled(**given).to_dict()
    assert {name: found[name] for name in expected} == expected


def test_a_network_begins_at_zero_where_rows_are_few_and_embeddings_do_not_start_apart() -> None:
    def linear(**given: Any) -> list[Any]:
        return [filled(rows, **given).model["linear"] for rows in (100, 8_000, 60_000, 10**7)]

    assert linear() == [True, True, True, True]  # and the regression stays where the network is no better
    # Without a regression, or with products that nothing weighs, there is more to learn and more to spoil.
    for given in ({"linear_start": False}, {"tables": "hashed"}, {"cluster": "local"}):
        assert linear(**given) == ["first", "first", True, True]
    assert linear(model="DeepFM") == [True, "first", True, True]


def test_embeddings_start_apart_beside_a_regression() -> None:
    apart = filled().store["init"]
    assert apart["b"] == -apart["a"] > 0.05
    for model in ("MLP", "DCNv2"):
        assert filled(60_000, model=model).store == filled(100, model=model).store == {"init": apart}
    for rows, given in (
        (10**7, {}),
        (8_000, {"linear_start": False}),
        (8_000, {"model": "DeepFM"}),
    ):
        assert "init" not in filled(rows, **given).store
    assert filled(store={"init": {"kind": "zeros"}, "pooling": "sum"}).store["init"] == {"kind": "zeros"}


def test_products_of_embeddings_are_waited_for() -> None:
    """What columns say together may be learned after a plateau of thousands of steps."""
    for rows in (4_000, 8_000, 16_200, 40_000, 100_000, 200_000):
        found = filled(rows)
        steps = found.patience * rows / found.batch_size
        assert found.epochs > found.patience >= 9 and steps > 1_400, rows
    many, without = filled(10**7, linear_start=True), filled(40_000, linear_start=False)
    assert many.epochs == default_epochs(10**7) and without.patience == filled(40_000, model="DeepFM").patience == 3


def test_few_rows_are_judged_by_their_log_loss() -> None:
    assert [filled(rows).select_by for rows in (100, 200_000, 10**7)] == ["log_loss", "log_loss", None]
    assert filled(100, select_by="auc").select_by == "auc"
    assert filled_in(TrainSettings(), 100, is_selected=False).select_by is None


def test_few_rows_begin_with_a_regression() -> None:
    assert [filled(rows).linear_start for rows in (100, 8_000, 200_000, 10**7)] == [True, True, True, False]
    assert [filled(rows, linear_start=said).linear_start for rows, said in ((100, False), (10**7, True))] == [
        False,
        True,
    ]


def test_few_epochs_where_the_last_one_is_the_model() -> None:
    assert filled_in(TrainSettings(), 8_000, is_selected=False).epochs == 3
    assert filled_in(TrainSettings.resolve({"epochs": 7}), 8_000, is_selected=False).epochs == 7
    assert filled_in(TrainSettings(), 10**8, is_selected=False).epochs == default_epochs(10**8) == 2


def test_a_run_keeps_what_was_chosen(tmp_path: Any) -> None:
    users = [i % 7 for i in range(600)]
    data = Dataset({"user": users, "item": [i % 5 for i in range(600)], "click": [int(u < 2) for u in users]})
    data = data.with_roles(categorical=["user", "item"], label=["click"])
    found = TrainJob(data, tmp_path / "run", settings={"model": "MLP", "max_steps": 5}, progress=False).run()
    kept = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (kept["batch_size"], kept["epochs"], kept["patience"]) == (64, 31, late_patience(540, 64))
    assert kept["dense_optimizer"]["lr"] == default_rate(64, is_apart=True) and found.steps == 5
    assert found.learning["kind"] == "few steps" and 0.55 < found.labels["constant_log_loss"] < 0.65
