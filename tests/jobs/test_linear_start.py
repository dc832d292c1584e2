"""A run of few rows begins with their logistic regression, and keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from penstock import Dataset
from penstock.core.errors import ParameterError
from penstock.jobs import TrainingStopped, TrainJob, linear_start
from penstock.metrics import AUC
from penstock.nn.logistic import LinearRows, fit_logistic
from penstock.serve import Predictor

RECIPE = {
    "recipe": 1,
    "input": {"roles": {"label": ["click"]}},
    "nodes": {
        "label": {"columns": ["click"]},
        "ids": {"columns": ["user", "tags"], "ops": ["Categorify"]},
        "numbers": {"columns": ["price"], "ops": ["Normalize"]},
    },
    "output": ["label", "ids", "numbers"],
}
STILL = {"learning_rate": 1e-12, "embedding_learning_rate": 1e-12, "epochs": 1, "device": "cpu"}  # nothing is learned


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    user, tags = rng.integers(0, 30, 1_500), [sorted(rng.choice(8, rng.integers(0, 4), False)) for _ in range(1_500)]
    effects = rng.normal(0, 1, 8)
    logit = rng.normal(0, 1, 30)[user] + [effects[found].mean() if len(found) else 0.0 for found in tags]
    price = rng.normal(5, 2, 1_500)
    clicks = rng.random(1_500) < 1 / (1 + np.exp(-(logit + 0.4 * (price - 5))))
    columns = {"click": clicks.astype(int), "user": user, "tags": [list(map(int, found)) for found in tags]}
    return pl.DataFrame({**columns, "price": price})


def trained(frame: pl.DataFrame, place: Path, **settings: Any) -> np.ndarray:
    """Logits of all rows by the saved model."""
    TrainJob(frame, place, RECIPE, settings=settings, overwrite=True, progress=False, num_examples=0).run()
    with Predictor(place / "model") as predictor:
        said = np.asarray(predictor.predict(frame.drop("click")), np.float64)
    return np.log(said / (1 - said))


@pytest.mark.parametrize(
    ("model", "tables"), [("DLRM", "store"), ("DCNv2", "store"), ("DeepFM", "store"), ("MLP", "fused")]
)
def test_it_begins_with_the_regression(frame: pl.DataFrame, tmp_path: Path, model: str, tables: str) -> None:
    found = trained(frame, tmp_path / "run", model=model, tables=tables, **STILL)
    train, valid = (Dataset(tmp_path / "run" / part).to_polars() for part in ("features", "valid"))
    wanted = as_rows(pl.concat([train, valid])).logits(fit_logistic(as_rows(train)))
    # The same rows in another order.
    assert np.corrcoef(np.sort(found), np.sort(wanted))[0, 1] > 0.999
    assert np.abs(np.sort(found) - np.sort(wanted)).max() < 0.1


def as_rows(features: pl.DataFrame) -> LinearRows:
    keys = [[user, *(tag + 100 for tag in tags)] for user, tags in features.select("user", "tags").iter_rows()]
    values = [[1.0, *np.ones(len(tags)) / max(1, len(tags))] for tags in features["tags"].to_list()]
    return LinearRows(
        features.select("price").to_numpy().astype(np.float64), np.cumsum([0, *map(len, keys)]), np.concatenate(keys),
        np.concatenate(values), features["click"].to_numpy().astype(np.float64), 200, np.arange(200) // 100,
    )  # fmt: skip


def test_weights_of_ids_stay_while_the_network_learns(frame: pl.DataFrame, tmp_path: Path) -> None:
    def first_numbers(place: Path, **settings: Any) -> np.ndarray:
        trained(frame, place, model={"name": "MLP", "hidden": [8]}, embedding_dim=4, **settings)
        with Predictor(place / "model") as predictor:
            rows = predictor.store.lookup({"user": np.arange(31), "tags": np.arange(31) % 9}, train=False)
        return np.asarray(rows["user"])

    still = first_numbers(tmp_path / "still", **STILL)
    moved = first_numbers(tmp_path / "moved", epochs=2, device="cpu", select_by="last")
    np.testing.assert_array_equal(still[:, 0], moved[:, 0])
    assert not np.array_equal(still[:, 1:], moved[:, 1:])
    free = first_numbers(tmp_path / "free", epochs=2, device="cpu", linear_start=False)
    assert not np.array_equal(still[:, 0], free[:, 0])


def test_the_run_says_whether_it_did(frame: pl.DataFrame, tmp_path: Path) -> None:
    trained(frame, tmp_path / "run", model={"name": "MLP", "hidden": [8]}, epochs=1, device="cpu")
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["linear_start"] is True


def test_a_stopped_run_goes_on_to_the_same_bits(frame: pl.DataFrame, tmp_path: Path) -> None:
    frame.write_parquet(tmp_path / "rows.parquet")
    settings = {"model": {"name": "MLP", "hidden": [8]}, "epochs": 2, "device": "cpu", "staleness": 1}

    def job(place: str, **hooks: Any) -> TrainJob:
        return TrainJob(tmp_path / "rows.parquet", tmp_path / place, RECIPE, settings=settings, progress=False, **hooks)

    whole = job("whole").run()
    for place, records in (("at once", 1), ("halves", 8)):  # before the first step, and later
        seen: list[Any] = []
        with pytest.raises(TrainingStopped):
            job(place, callbacks=[seen.append], stop=lambda seen=seen, records=records: len(seen) >= records).run()
        again = TrainJob.resumed(tmp_path / place, progress=False).run()
        assert (again.auc, again.log_loss, again.selected) == (whole.auc, whole.log_loss, whole.selected)


@pytest.mark.parametrize("model", ["DLRM", "DCNv2", "DeepFM", "MLP"])
def test_a_network_that_learns_nothing_leaves_the_regression(frame: pl.DataFrame, tmp_path: Path, model: str) -> None:
    """At such a rate every epoch is worse: what is saved is the regression, and the run says so."""
    settings = {"model": model, "epochs": 2, "device": "cpu", "learning_rate": 1.0, "batch_size": 16}
    job = TrainJob(frame, tmp_path / "run", RECIPE, settings=settings, progress=False, num_examples=0)
    found = job.run()
    assert found.selected["is_start"] and found.learning["kind"] == "regression"
    with Predictor(tmp_path / "run" / "model") as predictor:
        said = np.asarray(predictor.predict(frame.drop("click")), np.float64)
    train, valid = (Dataset(tmp_path / "run" / part).to_polars() for part in ("features", "valid"))
    wanted = as_rows(pl.concat([train, valid])).logits(fit_logistic(as_rows(train)))
    assert np.abs(np.sort(np.log(said / (1 - said))) - np.sort(wanted)).max() < 0.02


@pytest.mark.parametrize(
    "settings",
    [
        {"store": {"storage": "bfloat16"}},
        {"store": {"admission": {"min_count": 2}}},
        {"slots": {"user": {"pooling": "sum"}}},
        {"tables": "cached"},
        {"embedding_optimizer": {"name": "FTRL", "lr": 0.05}},
        {"model": {"name": "MLP", "hidden": [8], "linear": False}},
    ],
)
def test_what_does_not_allow_it_trains_as_before(frame: pl.DataFrame, tmp_path: Path, settings: dict[str, Any]) -> None:
    own = {"model": {"name": "MLP", "hidden": [8]}, "epochs": 1, "device": "cpu", **settings}
    found = trained(frame, tmp_path / "a", **own).tolist()
    assert yaml.safe_load((tmp_path / "a" / "config.yaml").read_text())["linear_start"] is False
    assert found == trained(frame, tmp_path / "b", linear_start=False, **own).tolist()
    with pytest.raises(ParameterError, match="linear_start cannot be true here"):
        trained(frame, tmp_path / "c", linear_start=True, **own)


def test_numbers_alone(frame: pl.DataFrame, tmp_path: Path) -> None:
    nodes = {name: RECIPE["nodes"][name] for name in ("label", "numbers")}  # type: ignore[index]
    recipe = {**RECIPE, "nodes": nodes, "output": list(nodes)}
    job = TrainJob(frame, tmp_path / "run", recipe, settings={"model": "MLP", **STILL}, progress=False, num_examples=0)
    assert job.run().auc is not None
    with Predictor(tmp_path / "run" / "model") as predictor:
        metric = AUC()
        metric.update(np.asarray(predictor.predict(frame.select("price")), np.float64), frame["click"].to_numpy())
    assert metric.compute() > 0.6


HUGE = float(np.finfo(np.float32).max)


@pytest.mark.parametrize(
    ("numbers", "labels", "is_sound"),
    [
        ([1e300, -1e300, 0.0], [0, 1, 1], False),
        ([np.nan, 1.0, 0.0], [0, 1, 1], False),
        ([-np.inf, 1.0, 0.0], [0, 1, 1], False),
        ([0.0, 1.0, 2.0], [5, -4, 0], False),
        ([0.0, 1.0, 2.0], [0, np.nan, 1], False),
        ([0.0, 1.0, 2.0], [1, 1, 1], False),
        ([0.0], [1], False),
        ([], [], False),
        ([HUGE, -HUGE, 1e-300], [0, 1, 1], True),
        ([7.0, 7.0], [0, 1], True),
    ],
)
def test_what_is_fitted_gives_numbers(numbers: list[float], labels: list[float], is_sound: bool) -> None:
    count = len(labels)
    starts, keys = np.arange(count + 1), np.zeros(count, np.int64)
    rows = LinearRows(np.array(numbers).reshape(-1, 1), starts, keys, np.empty(0), np.array(labels, float), 1)
    assert linear_start._is_sound(rows) == is_sound
    if is_sound:
        assert np.isfinite(fit_logistic(rows)).all()


@pytest.mark.slow  # 12 s; how long it is waited for, the examples of jobs/defaults.py say
def test_the_network_finds_what_columns_say_together(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    user, item = rng.integers(0, 6, (2, 6_000))
    likes = rng.normal(0, 1.5, (6, 6))
    likes -= likes.mean(0) + likes.mean(1, keepdims=True) - likes.mean()  # nothing that one of them says alone
    clicks = (rng.random(6_000) < 1 / (1 + np.exp(-likes[user, item]))).astype(int)
    rows = pl.DataFrame({"click": clicks, "user": user, "item": item})
    ids = {"columns": ["user", "item"], "ops": ["Categorify"]}
    recipe = {"recipe": 1, "nodes": {"label": {"columns": ["click"]}, "ids": ids}, "output": ["label", "ids"]}
    data = Dataset(rows).with_roles(label=["click"])
    found = TrainJob(data, tmp_path / "run", recipe, settings={"device": "cpu"}, progress=False, num_examples=0).run()
    assert found.metrics["auc"] > 0.57  # the regression alone has 0.5, and likes themselves have 0.70
