"""A small run from raw rows to a trained model, with everything a report tells of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from penstock import Dataset, Workflow, ops
from penstock.jobs import RunRecorder
from penstock.jobs.events import (
    DataOpened,
    DataPrepared,
    ModelSaved,
    RunBegan,
    RunDone,
    RunFailed,
    StageBegan,
    StageEnded,
    Trained,
    TrainingBegan,
)

HOSTILE = "</script><img src=x onerror=alert(1)>"


def some_clicks(rows: int = 1500, seed: int = 0, name: str = "user") -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, 40, rows), rng.zipf(1.5, rows) % 50
    price = rng.normal(size=rows).astype(np.float32)
    click = rng.random(rows) < 1 / (1 + np.exp(-(1.5 * np.sin(user) + np.cos(3 * item) + price)))
    return pl.DataFrame(
        {
            name: [f"{HOSTILE}{u}" if name == HOSTILE else f"u{u}" for u in user],
            "item": item,
            "price": pl.Series(price).set(pl.Series(rng.random(rows) < 0.1), None),
            "click": click.astype(np.int8),
        }
    )


def train_some(listener: Any, place: Path, name: str = "user", epochs: int = 2, callbacks: tuple = ()) -> Any:
    """A run of one's own: every event by hand, a real training in the middle."""
    import torch

    from penstock.embedding import Adagrad, Store, slots_from_schema
    from penstock.jobs.prediction_figures import describe_predictions
    from penstock.loader.torch import Loader
    from penstock.nn import MLP
    from penstock.serve import Predictor, save_model
    from penstock.train import fit

    raw = Dataset(some_clicks(name=name))
    listener(RunBegan({"model": "MLP", "staleness": 2, "epochs": epochs, name: name}, place))
    listener(StageBegan("etl"))
    listener(DataOpened(raw))
    output = ([name, "item"] >> ops.Categorify()) + (["price"] >> ops.FillMissing(0.0) >> ops.Normalize()) + ["click"]
    workflow = Workflow(output)
    made = workflow.fit_transform(raw).to_polars()
    features = Dataset(made, schema=workflow.output_schema.with_roles(label=["click"], continuous=["price"]))
    listener(DataPrepared(features, workflow))
    listener(StageEnded("etl"))
    listener(StageBegan("train"))
    loader, valid = Loader(features, 50, shuffle=True), Loader(features, 500)
    torch.manual_seed(0)
    model = MLP(loader.schema, 4, hidden=(8,))
    with Store(slots_from_schema(loader.schema, 4), Adagrad(lr=0.1)) as store:
        steps = epochs * len(loader)
        listener(TrainingBegan(model, loader, valid, store, steps))
        history = fit(
            model, loader, store, epochs=epochs, valid=valid, staleness=2, log_every=5,
            callbacks=[listener.record, *callbacks],
        )  # fmt: skip
        listener(Trained(history))
        listener(StageEnded("train"))
        save_model(place / "model", workflow, model, store)
    listener(ModelSaved(str(place / "model")))
    with Predictor(place / "model") as predictor:
        predictions = describe_predictions(predictor, features, "click")
    last = history.last("valid")
    examples = [{"label": 1, "probability": 0.7}, {"label": 0, "probability": 0.1}]
    figures = {"auc": last.metrics["auc"], "log_loss": last.metrics["log_loss"], "examples": examples}
    listener(RunDone({**figures, "predictions": predictions}))
    return history


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RunRecorder:
    """A finished run."""
    place = tmp_path_factory.mktemp("recorded")
    recorder = RunRecorder(place, best_auc=0.9)
    train_some(recorder, place)
    return recorder


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> RunRecorder:
    """A finished run whose columns and values are an attack on the page."""
    place = tmp_path_factory.mktemp("hostile")
    recorder = RunRecorder(place, title=HOSTILE)
    train_some(recorder, place, name=HOSTILE, epochs=1)
    recorder(RunFailed(HOSTILE))
    return recorder
