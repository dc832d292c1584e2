"""Whole runs with tables on the device: trained, stopped, resumed, evaluated, asked; and what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import yaml

from penstock import ColumnSchema, Dataset, Schema
from penstock.core.errors import ParameterError, SchemaError
from penstock.data.synthetic import criteo
from penstock.embedding import CachedEmbeddings, FusedEmbeddings
from penstock.etl import presets
from penstock.jobs import TrainingStopped, TrainJob, TrainSettings
from penstock.jobs.building import build_dense_optimizer
from penstock.jobs.embeddings import cache_rows, choose_tables, fused_arguments, needed_bytes
from penstock.jobs.events import Event, TrainingBegan
from penstock.jobs.recorder import RunRecorder
from penstock.jobs.scoring import evaluate_model, predict_files
from penstock.loader.torch import Loader
from penstock.serve import Predictor
from penstock.train.batch import named_columns

SETTINGS: dict[str, Any] = {
    "model": {"name": "DLRM", "bottom": [16], "top": [16]},
    "tables": "fused",
    "epochs": 3,
    "batch_size": 128,
    "embedding_dim": 8,
    "device": "cpu",
    "learning_rate": 0.005,
}
RECIPE = presets.load("criteo")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("logs") / "day.tsv"
    criteo(place, 6_000, cardinalities=40, progress=False)
    return place


class Run:
    """A finished run, with the live model and tables that it trained."""

    def __init__(self, logs: Path, output: Path) -> None:
        self.output = output
        self.live: TrainingBegan | None = None
        self.recorder = RunRecorder(output)
        self.found = job(logs, output, listener=self._keep).run()

    def _keep(self, event: Event) -> None:
        self.recorder(event)
        if isinstance(event, TrainingBegan):
            self.live = event

    def expected(self) -> np.ndarray:
        """What the live model says of the held-out rows."""
        (raw,) = Loader(self.output / "valid", 1_000)
        columns, _ = named_columns(raw, self.live.loader.schema)
        model, tables = self.live.model.eval(), self.live.embeddings
        numbers = torch.stack([columns[name] for name in model.continuous], 1)
        with torch.no_grad():
            return torch.sigmoid(model(numbers, tables({n: columns[n] for n in tables.names}))).numpy()


def job(logs: Path, output: Path, **more: Any) -> TrainJob:
    settings = {**SETTINGS, **more.pop("settings", {})}
    return TrainJob(logs, output, RECIPE, settings=settings, progress=False, **more)


@pytest.fixture(scope="module")
def run(logs: Path) -> Run:
    return Run(logs, logs.parent / "run")


def test_it_trains_and_says_so(run: Run) -> None:
    found = run.found
    assert found.auc > 0.6 and found.log_loss < 0.6 and found.rows_per_second > 0
    assert isinstance(run.live.embeddings, FusedEmbeddings)
    assert found.embedding_rows == sum(run.live.embeddings.sizes.values())
    assert all(0 < example["probability"] < 1 for example in found.examples)
    config = yaml.safe_load((run.output / "config.yaml").read_text())
    assert config["tables"] == "fused" and config["loader"]["chunk_rows"] > 0
    report = json.loads((run.output / "report.json").read_text())
    assert (report["store"]["kind"], report["store"]["rows"]) == ("FusedEmbeddings", found.embedding_rows)


def test_every_way_to_ask_gives_the_same(run: Run, logs: Path, tmp_path: Path) -> None:
    expected, model = run.expected(), run.found.model
    valid = Dataset(run.output / "valid")
    with Predictor(model) as predictor:
        np.testing.assert_array_equal(predictor.predict_features(valid.to_polars()), expected)
    figures = evaluate_model(model, run.output / "valid", progress=False)
    assert figures.auc == pytest.approx(run.found.auc, abs=1e-4)
    assert figures.log_loss == pytest.approx(run.found.log_loss, rel=1e-5)
    predict_files(model, run.output / "valid", tmp_path / "scores.parquet", progress=False)
    np.testing.assert_array_equal(pl.read_parquet(tmp_path / "scores.parquet")["probability"].to_numpy(), expected)
    assert predict_files(model, logs, tmp_path / "raw.csv", progress=False).rows == 6_000


def test_a_stopped_run_goes_on_to_the_same_bits(run: Run, logs: Path, tmp_path: Path) -> None:
    asked = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) >= 30

    with pytest.raises(TrainingStopped):
        job(logs, tmp_path / "part", stop=stop).run()
    resumed = TrainJob.resumed(tmp_path / "part", progress=False).run()
    for figure in ("auc", "log_loss", "steps", "examples"):
        assert getattr(resumed, figure) == getattr(run.found, figure), figure
    with pytest.raises(ParameterError, match="tables was 'fused' when this run began and cannot become 'store'"):
        TrainJob.resumed(tmp_path / "part", {"tables": "store"})


@pytest.mark.parametrize("tables", ["fused", "store"])
def test_a_column_with_a_dim_of_its_own(logs: Path, tmp_path: Path, tables: str) -> None:
    settings = {"tables": tables, "slots": {"C3": {"dim": 4}}, "epochs": 1, "max_steps": 20, "staleness": 1}
    heard: list[Event] = []
    found = job(logs, tmp_path / "run", settings=settings, listener=heard.append).run()
    live = next(event for event in heard if isinstance(event, TrainingBegan))
    assert live.embeddings.dims["C3"] == live.model.dims["C3"] == 4
    assert live.embeddings.dims["C4"] == live.model.dims["C4"] == live.model.embedding_dim == 8
    figures = evaluate_model(found.model, tmp_path / "run" / "valid", progress=False)
    assert figures.log_loss == pytest.approx(found.log_loss, rel=1e-5)


def test_tables_behind_a_cache(logs: Path, tmp_path: Path) -> None:
    settings = {"tables": "cached", "store": {"cache_rows": 500}, "batch_size": 16, "epochs": 1, "max_steps": 200}
    heard: list[Event] = []
    found = job(logs, tmp_path / "run", settings=settings, listener=heard.append).run()
    tables = next(event for event in heard if isinstance(event, TrainingBegan)).embeddings
    assert isinstance(tables, CachedEmbeddings) and len(tables.weight) == 500 < found.embedding_rows
    assert tables.stats()["written_back"] > 500  # it had to make room
    assert found.auc > 0.5
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["tables"] == "cached" and config["store"]["cache_rows"] == 500
    figures = evaluate_model(found.model, tmp_path / "run" / "valid", progress=False)
    assert figures.auc == pytest.approx(found.auc, abs=1e-4)

    asked = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) >= 12

    with pytest.raises(TrainingStopped):
        job(logs, tmp_path / "part", settings=settings, stop=stop).run()
    resumed = TrainJob.resumed(tmp_path / "part", progress=False).run()
    assert resumed.steps == 200 and resumed.auc == pytest.approx(found.auc, abs=1e-6)


def test_a_finished_run_trains_on_and_ends_within_an_epoch(logs: Path, tmp_path: Path) -> None:
    schedule = {"schedule": "Warmup", "lr": 0.05, "steps": 20}
    settings = {
        "max_steps": 10,
        "dense_optimizer": {"name": "SGD", "lr": schedule, "momentum": 0.9},
        "embedding_optimizer": {"name": "Adagrad", "row_wise": True, "lr": schedule},
        "autocast": "bfloat16",
        "select_by": "last",  # the shorter run has evaluated at its end, where the longer one does not
    }
    first = job(logs, tmp_path / "run", settings=settings).run()
    assert first.steps == 10 and 0 < first.auc < 1 and first.log_loss > 0
    longer = TrainJob.resumed(tmp_path / "run", {"max_steps": 60}, progress=False).run()
    assert (
        longer.steps == 60
        and longer.auc == job(logs, tmp_path / "at-once", settings={**settings, "max_steps": 60}).run().auc
    )


def test_list_columns(train: Any, tmp_path: Path) -> None:
    made = train()
    data = Dataset(made.features, schema=made.schema)
    own = {"batch_size": 25, "epochs": 10, "embedding_learning_rate": 0.3, "store": {"pooling": "sqrt_n"}}
    job = TrainJob(
        data, tmp_path / "run", workflow=made.workflow, settings={**SETTINGS, **own}, progress=False, valid=data
    )
    found = job.run()
    assert found.auc > 0.9
    with Predictor(found.model) as predictor:
        assert predictor.tables.pooling == "sqrt_n"
        scores = predictor.predict(made.frame.drop("click"))
        np.testing.assert_array_equal(predictor.predict_features(made.features), scores)


def test_without_categories_there_is_nothing_to_hold(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [i / 400 for i in range(400)], "click": [int(i > 200) for i in range(400)]})
    data = Dataset(frame).with_roles(continuous=["x"], label=["click"])
    settings = {"model": "MLP", "epochs": 20, "batch_size": 50, "device": "cpu", "tables": "fused"}
    found = TrainJob(data, tmp_path / "run", settings=settings, progress=False).run()
    assert found.auc > 0.95 and found.embedding_rows == 0


# What cannot be is refused before anything is written.


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tables": "gpu"}, "tables must be one of"),
        ({"tables": "cached", "embedding_optimizer": {"name": "FTRL"}}, "LazyAdam, RowWiseAdam, without momentum"),
        ({"tables": "cached", "store": {"cache_rows": 0}}, "cache_rows"),
        ({"store": {"cache_rows": 5}}, r"store\.cache_rows goes with tables: cached"),
        ({"embedding_optimizer": {"name": "FTRL"}}, "embedding_optimizer is .*FTRL.* take SGD, .*without momentum"),
        ({"embedding_optimizer": {"name": "SGD", "momentum": 0.9}}, "without momentum.*tables: store"),
        (
            {"embedding_optimizer": {"name": "DecayedAdagrad"}},
            "take SGD, Adagrad, LazyAdam, RowWiseAdam",
        ),
        ({"store": {"eviction": {"policy": "lru", "max_rows": 10}}}, r"store\.eviction is set.*--tables store"),
        ({"store": {"admission": {"min_count": 2}}}, r"store\.admission is set"),
        ({"store": {"storage": "float16"}}, "'float16', and tables on the device are float32 or bfloat16"),
        ({"store": {"init": {"kind": "normal", "a": 0, "b": 1}}}, "start at zeros or uniform between"),
        ({"slots": {"C1": {"group": "shared"}}}, r"slots\.C1 sets group"),
    ],
)
def test_what_only_a_store_does(logs: Path, tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        job(logs, tmp_path / "run", settings=settings).run()
    assert not (tmp_path / "run").exists()


def test_categories_without_a_cardinality(logs: Path, tmp_path: Path) -> None:
    data = Dataset(pl.DataFrame({"user": [1, 2] * 50, "item": [5, 6] * 50, "click": [0, 1] * 50}))
    data = data.with_roles(categorical=["user", "item"], label=["click"])
    with pytest.raises(SchemaError, match=r"column 'user' has no cardinality.*Categorify.*store"):
        TrainJob(data, tmp_path / "a", settings=SETTINGS).run()
    raw = {**RECIPE, "nodes": {**RECIPE["nodes"], "categories": {"columns": ["C1", "C2"]}}}
    with pytest.raises(SchemaError, match="column 'C1' has no cardinality"):  # before the features are made
        TrainJob(logs, tmp_path / "b", raw, settings=SETTINGS).run()
    assert not list(tmp_path.iterdir())


# Choosing.

SCHEMA = Schema([ColumnSchema("user", "int64", role="categorical", cardinality=1_000_000)])
OPEN = Schema([ColumnSchema("user", "int64", role="categorical")])
CPU, GPU = torch.device("cpu"), torch.device("cuda")


def settings(**given: Any) -> TrainSettings:
    return TrainSettings.resolve(given)


def test_what_tables_would_take() -> None:
    assert needed_bytes(settings(embedding_dim=16), SCHEMA) == 128_000_000  # Adagrad: as much again
    row_wise = {"name": "Adagrad", "row_wise": True}
    assert needed_bytes(settings(embedding_optimizer=row_wise, store={"storage": "bfloat16"}), SCHEMA) == 36_000_000
    assert needed_bytes(settings(embedding_dim=16, slots={"user": {"dim": 4}}), SCHEMA) == 32_000_000
    assert fused_arguments(settings(store={"init": {"kind": "zeros"}}))["scale"] == 0
    assert fused_arguments(settings(store={"init": {"a": -0.5, "b": 0.5}}))["scale"] == 0.5


def test_auto_takes_tables_on_a_gpu_where_all_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    free = 10 << 30
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, free))  # there may be no GPU here
    assert choose_tables(settings(), SCHEMA, CPU) == "store"
    assert choose_tables(settings(), SCHEMA, GPU) == "fused"
    assert choose_tables(settings(tables="fused"), SCHEMA, CPU) == "fused"
    assert choose_tables(settings(tables="store"), SCHEMA, GPU) == "store"
    assert choose_tables(settings(), OPEN, GPU) == "store"
    assert (
        choose_tables(settings(), Schema([]), GPU)
        == "store"
        == choose_tables(settings(tables="fused"), Schema([]), CPU)
    )
    for only_a_store in ({"embedding_optimizer": {"name": "Adam"}}, {"slots": {"user": {"group": "a"}}}):
        assert choose_tables(settings(**only_a_store), SCHEMA, GPU) == "store"
    free = 2 << 30
    assert choose_tables(settings(), SCHEMA, GPU) == "store"
    assert choose_tables(settings(tables="cached"), SCHEMA, GPU) == "cached"


def test_how_many_rows_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    free = (2 << 30) + 4_000_000 + 14_000_000
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, free))
    assert cache_rows(settings(tables="cached"), SCHEMA, CPU) == 1_000_000
    assert cache_rows(settings(tables="cached"), SCHEMA, GPU) == 100_000  # 16 weights, 16 sums, 12 bytes of index
    assert cache_rows(settings(tables="cached", store={"cache_rows": 7}), SCHEMA, GPU) == 7
    with pytest.raises(ParameterError, match=r"leaves room for 100,000 cached rows, and store.cache_rows is 200000"):
        cache_rows(settings(tables="cached", store={"cache_rows": 200_000}), SCHEMA, GPU)
    free = 2 << 30
    with pytest.raises(ParameterError, match="leaves room for 0 cached rows"):
        cache_rows(settings(tables="cached"), SCHEMA, GPU)


def test_dense_optimizers_that_a_graph_can_hold() -> None:
    model = torch.nn.Linear(2, 1)
    flags = {}
    for name in ("Adam", "AdamW", "SGD", "RMSprop", "Adagrad"):
        optimizer, _ = build_dense_optimizer(settings(dense_optimizer={"name": name, "lr": 0.1}), model, for_graph=True)
        (group,) = optimizer.param_groups
        flags[name] = (bool(group.get("fused")), bool(group.get("capturable")))
    assert flags == {
        "Adam": (True, True),
        "AdamW": (True, True),
        "SGD": (True, False),
        "RMSprop": (False, True),
        "Adagrad": (False, False),
    }
    asked = {"name": "Adam", "lr": 0.1, "foreach": True}
    (group,) = build_dense_optimizer(settings(dense_optimizer=asked), model, for_graph=True)[0].param_groups
    assert not group["fused"] and group["foreach"]
