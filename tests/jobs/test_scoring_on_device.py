"""Features that go to a device are scored, kept, counted and refused as those that do not. Here the device is a CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from penstock import Dataset, Workflow, ops
from penstock.core.errors import PenstockError
from penstock.jobs import TrainJob, scoring
from penstock.jobs.scoring import evaluate_model, predict_files
from penstock.metrics import inputs
from penstock.serve.feature_rows import are_packed

ROWS = 700


def raw(rows: int = ROWS) -> pl.DataFrame:
    random = np.random.default_rng(3)
    user = random.integers(0, 20, rows)
    clicks = random.random(rows) < np.where(user % 2 == 0, 0.8, 0.2)
    return pl.DataFrame({"user": user, "price": random.random(rows), "click": clicks.astype(np.int8)})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with tables, and the features of its rows beside it."""
    place = tmp_path_factory.mktemp("run")
    recipe = Workflow((["user"] >> ops.Categorify()) + (["price"] >> ops.Normalize()) + ["click"]).to_recipe()
    data = Dataset(raw()).with_roles(label=["click"])
    settings = {"model": "MLP", "epochs": 2, "batch_size": 64, "device": "cpu", "tables": "fused"}
    TrainJob(data, place / "run", recipe, settings=settings, progress=False).run()
    features = Workflow.load(place / "run" / "workflow").transform(data)
    features.to_parquet(place / "features", row_group_size=90, progress=False)
    return place


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(scoring, "go_to_device", are_packed)


def test_the_same_figures_and_predictions(run: Path, tmp_path: Path, on_device: Callable[[], None]) -> None:
    def scored(name: str) -> tuple[dict, pl.DataFrame]:
        figures = evaluate_model(run / "run", run / "features", metrics=["auc", "log_loss", "gauc"], group="user")
        predict_files(run / "run", run / "features", tmp_path / name, keep=["price", "click"])
        return figures.to_dict(), pl.read_parquet(tmp_path / name)

    figures, written = scored("host.parquet")
    on_device()
    again, rewritten = scored("device.parquet")
    assert again["rows"] == ROWS and again["unknown"] == figures["unknown"]
    assert again["metrics"] == pytest.approx(figures["metrics"], abs=1e-5)
    assert rewritten.drop("probability").equals(written.drop("probability"))
    np.testing.assert_allclose(rewritten["probability"], written["probability"], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("column", "wrong", "row"), [("click", 7, 650), ("click", None, 650), ("user", None, 3), ("price", None, 699)]
)
def test_what_is_wrong_is_said_alike(
    run: Path, tmp_path: Path, on_device: Callable[[], None], column: str, wrong: int | None, row: int
) -> None:
    data = Dataset(run / "features")
    frame = data.to_polars()
    values = pl.when(pl.int_range(ROWS) == row).then(wrong).otherwise(column).cast(frame[column].dtype)
    frame = frame.with_columns(values.alias(column))
    frame.write_parquet(tmp_path / "wrong.parquet", row_group_size=90)
    rows = Dataset.from_partitions(Dataset(tmp_path / "wrong.parquet", part_size="1KB").partitions, data.schema)

    def refusal() -> str:
        with pytest.raises(PenstockError) as refused:
            evaluate_model(run / "run", rows)
        return str(refused.value)

    on_host = refusal()
    on_device()
    assert refusal() == on_host and column in on_host


def test_a_label_that_is_refused_late_is_said_alike(
    run: Path, on_device: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an AUC nobody waits for a device before all rows have been counted."""
    data = Dataset(run / "features")
    wrong = pl.when(pl.int_range(ROWS) == 650).then(7).otherwise("click").cast(pl.Int8).alias("click")
    rows = Dataset.from_partitions(Dataset(data.to_polars().with_columns(wrong)).partitions, data.schema)

    def refusal() -> str:
        with pytest.raises(PenstockError) as refused:
            evaluate_model(run / "run", rows, metrics=["log_loss"])
        return str(refused.value)

    on_host = refusal()
    on_device()
    monkeypatch.setattr(inputs, "is_on_gpu", lambda values: isinstance(values, torch.Tensor))
    assert refusal() == on_host and "click" in on_host


def test_nothing_is_written_of_rows_that_are_refused(run: Path, tmp_path: Path, on_device: Callable[[], None]) -> None:
    frame = Dataset(run / "features").to_polars().with_columns(price=pl.lit(None, pl.Float32))
    data = Dataset.from_partitions(Dataset(frame).partitions, Dataset(run / "features").schema)
    on_device()
    with pytest.raises(PenstockError, match="'price' has missing values behind the workflow"):
        predict_files(run / "run", data, tmp_path / "out.parquet")
    assert not list(tmp_path.iterdir())
