"""From raw click logs to a model that serves, in one job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from penstock import Dataset, Workflow
from penstock.core.errors import (
    ArtefactError,
    DataError,
    OutputExistsError,
    ParameterError,
    PenstockError,
    SchemaError,
)
from penstock.data.synthetic import CRITEO_DTYPES, CRITEO_NAMES, criteo
from penstock.etl import presets
from penstock.jobs import RunRecorder, TrainingStopped, TrainJob, TrainResult, events
from penstock.jobs.etl import EtlJob
from penstock.jobs.run_folder import RunFolder
from penstock.jobs.scoring import evaluate_model
from penstock.serve import Predictor
from penstock.train import TrainRecord, ValidRecord
from penstock.train.records import record_to_dict

SETTINGS: dict[str, Any] = {
    "model": {"name": "DLRM", "bottom": [16], "top": [16]},
    "epochs": 2,
    "batch_size": 256,
    "embedding_dim": 8,
    "device": "cpu",
}
RECIPE = presets.load("criteo")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return criteo(tmp_path_factory.mktemp("logs") / "day.tsv", 4_000, cardinalities=50, progress=False)


@pytest.fixture(scope="module")
def features(made: Any) -> Path:
    place = made.path.parent / "features"
    EtlJob([str(made.path)], str(place), recipe=RECIPE).run()
    return place


def job(made: Any, output: Path, **more: Any) -> TrainJob:
    settings = {**SETTINGS, **more.pop("settings", {})}
    return TrainJob(made.path, output, RECIPE, settings=settings, progress=False, **more)


class Ear:
    """Keeps what a job tells."""

    def __init__(self) -> None:
        self.heard: list[events.Event] = []

    def __call__(self, event: events.Event) -> None:
        self.heard.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.heard if isinstance(event, kind)]


def test_the_whole_way(made: Any, tmp_path: Path) -> None:
    ear = Ear()
    found = job(made, tmp_path / "out", listener=ear, best_auc=made.best_auc).run()
    assert found.rows == {"train": 3_600, "valid": 400}
    assert 0.55 < found.auc < made.best_auc + 0.05
    assert (found.best_auc, found.steps) == (made.best_auc, 30)
    assert found.embedding_rows > 200 and found.rows_per_second > 0
    assert set(found.seconds) == {"etl", "regression", "train", "second", "save", "predict", "total"}
    assert len(found.examples) == 3 and all(0 < e["probability"] < 1 for e in found.examples)
    parts = {"features", "valid", "workflow", "checkpoints", "model", "config.yaml"}
    assert {p.name for p in (tmp_path / "out").iterdir()} == parts

    raw = pl.read_csv(
        made.path, separator="\t", has_header=False, new_columns=CRITEO_NAMES, n_rows=200,
        schema_overrides=[pl.String if CRITEO_DTYPES[n] == "hex32" else pl.Int32 for n in CRITEO_NAMES],
    ).drop("label")  # fmt: skip
    with Predictor(found.model) as predictor:
        by_frame, by_row = predictor.predict(raw), predictor.predict(raw.to_dicts()[:5])
    assert by_frame[:5] == pytest.approx(by_row, rel=1e-5)

    with pytest.raises(OutputExistsError, match=r"overwrite=True to replace it, TrainJob\.resumed"):
        job(made, tmp_path / "out").run()
    again = job(made, tmp_path / "out", overwrite=True).run()
    assert again.auc == found.auc
    _check_events(ear, found)


def _check_events(ear: Ear, found: TrainResult) -> None:
    often = (events.StageBegan, events.StageEnded, events.Recorded)
    assert [type(event) for event in ear.heard if not isinstance(event, often)] == [
        events.RunBegan, events.DataOpened, events.DataPrepared, events.TrainingBegan, events.Trained,
        events.ModelSaved, events.RunDone,
    ]  # fmt: skip
    stages = [(type(event), event.name) for event in ear.heard if isinstance(event, often[:2])]
    assert stages == [(kind, name) for name in ("etl", "regression", "train", "save", "predict") for kind in often[:2]]
    assert ear.of(events.StageEnded)[0].seconds == found.seconds["etl"]
    (began,), (training,), (done,) = (ear.of(k) for k in (events.RunBegan, events.TrainingBegan, events.RunDone))
    assert began.configuration["batch_size"] == 256 and began.best_auc == found.best_auc
    assert training.steps == 30 and training.loader.num_rows == 3_600 and training.valid.num_rows == 400
    assert done.figures == found.to_dict()
    kinds = [record_to_dict(event.record)["kind"] for event in ear.of(events.Recorded)]
    assert kinds.count("valid") == 3 and kinds.count("checkpoint") >= 2 and kinds.count("train") >= 20


def test_a_stopped_run_goes_on_to_the_same_bits(made: Any, tmp_path: Path) -> None:
    exact = {"settings": {"staleness": 1}}  # with more, a checkpoint makes batches under way be looked up again
    whole = job(made, tmp_path / "whole", **exact).run()
    ear, steps = Ear(), []

    def stop() -> bool:
        steps.append(1)
        return len(steps) >= 20

    with pytest.raises(TrainingStopped, match=r"stopped at step 1\d of 30") as stopped:
        job(made, tmp_path / "part", stop=stop, listener=ear, **exact).run()
    assert 10 <= stopped.value.step < 30
    assert ear.of(events.RunFailed)[0].is_interrupted and not (tmp_path / "part" / "model").exists()

    ear = Ear()
    features = (tmp_path / "part" / "features").stat().st_mtime_ns
    resumed = TrainJob.resumed(tmp_path / "part", listener=ear, progress=False).run()
    assert "etl" not in [event.name for event in ear.of(events.StageBegan)]
    assert (tmp_path / "part" / "features").stat().st_mtime_ns == features
    records = [event.record for event in ear.of(events.Recorded)]
    told = [record.step for record in records if isinstance(record, TrainRecord)]  # only what is new
    assert told[0] > stopped.value.step and told[-1] == 30
    assert (resumed.auc, resumed.log_loss, resumed.steps) == (whole.auc, whole.log_loss, 30)
    assert resumed.examples == whole.examples
    again = TrainJob.resumed(tmp_path / "part", progress=False).run()  # there is nothing left to do
    assert (again.auc, again.steps) == (whole.auc, 30)


def test_a_finished_run_can_train_on(made: Any, tmp_path: Path) -> None:
    first = job(made, tmp_path / "run", settings={"epochs": 1}).run()
    longer = TrainJob.resumed(tmp_path / "run", {"epochs": 2}, progress=False).run()
    assert (first.steps, longer.steps) == (15, 30)
    assert longer.auc == job(made, tmp_path / "at-once").run().auc
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["epochs"] == 2
    with pytest.raises(ParameterError, match="batch_size was 256 when this run began and cannot become 512"):
        TrainJob.resumed(tmp_path / "run", {"batch_size": 512})
    with pytest.raises(ArtefactError, match="not the folder of a training run"):
        TrainJob.resumed(tmp_path / "nothing")


class Spoiler(RunRecorder):
    """A recorder that turns the model's answers round behind each evaluation from the second on."""

    def training_began(self, event: events.TrainingBegan) -> None:
        super().training_began(event)
        self.model: Any = event.model

    def recorded(self, event: events.Recorded) -> None:
        super().recorded(event)
        if isinstance(event.record, ValidRecord) and event.record.step == 30:
            self.turned = -10.0 * self.model.linear.weight.data
        if isinstance(event.record, ValidRecord) and event.record.step >= 30:
            self.model.top[-1].weight.data.zero_()
            self.model.linear.weight.data.copy_(self.turned)


def test_the_best_epoch_is_the_model(made: Any, tmp_path: Path) -> None:
    recorder = Spoiler(tmp_path / "best")
    own = {"linear_start": False}  # a regression to begin with would be the best
    found = job(made, tmp_path / "best", settings={"epochs": 4, **own}, listener=recorder).run()
    evaluated = [record for record in recorder.report()["records"] if record["kind"] == "valid"]
    best = min(evaluated, key=lambda record: record["log_loss"])
    assert best["step"] <= 30 < 60 == found.steps and found.auc == best["auc"]
    expected = {"by": "log_loss", "step": best["step"], "epoch": best["epoch"] + 1, "epochs": 4, "stopped_early": False}
    assert found.selected == recorder.report()["selected"] == expected
    scored = evaluate_model(found.model, tmp_path / "best" / "valid", is_raw=False)
    assert scored.auc == pytest.approx(found.auc, abs=1e-6)

    settings = {"epochs": 9, "patience": 1, **own}
    impatient = job(made, tmp_path / "short", settings=settings, listener=Spoiler(tmp_path / "short")).run()
    assert impatient.selected["stopped_early"] and impatient.steps <= 45 and impatient.auc == found.auc
    last = TrainJob.resumed(tmp_path / "best", {"select_by": "last"}, progress=False).run()
    assert last.selected["step"] == 60 and last.auc == evaluated[-1]["auc"] < found.auc


def test_features_that_are_there_already(made: Any, features: Path, tmp_path: Path) -> None:
    found = TrainJob(features, tmp_path / "run", settings=SETTINGS, progress=False).run()
    assert found.rows == {"train": 3_600, "valid": 400} and len(found.examples) == 3
    with Predictor(found.model) as predictor:  # the workflow beside the features came along
        assert predictor.workflow is not None
        assert predictor.workflow.input_schema.names[0] == "C1" or "C1" in predictor.workflow.input_schema.names

    ear = Ear()
    place = tmp_path / "in-place"
    split = Dataset(features).split([0.5, 0.5], seed=1)[0]
    split.to_parquet(tmp_path / "held-out")
    found = TrainJob(
        features, place, valid=tmp_path / "held-out", settings={**SETTINGS, "epochs": 1}, listener=ear, progress=False
    ).run()
    assert found.rows == {"train": 4_000, "valid": 2_000}
    assert not (place / "features").exists() and not (place / "valid").exists()
    assert found.seconds["etl"] == 0 and not ear.of(events.DataOpened)
    assert ear.of(events.DataPrepared)[0].features.num_rows == 4_000


def test_without_held_out_rows_and_without_a_workflow(features: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "epochs": 1, "valid_share": 0}
    found = TrainJob(Dataset(features), tmp_path / "run", settings=settings, progress=False).run()
    assert (found.auc, found.log_loss, found.examples) == (None, None, [])
    assert found.rows == {"train": 4_000, "valid": None}
    with Predictor(found.model) as predictor:
        assert predictor.workflow is None
    with pytest.raises(ParameterError, match="read data from memory"):
        TrainJob.resumed(tmp_path / "run")


def test_a_frame_without_categories(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [i / 400 for i in range(400)], "click": [int(i > 200) for i in range(400)]})
    data = Dataset(frame).with_roles(continuous=["x"], label=["click"])
    settings = {"model": "MLP", "epochs": 20, "batch_size": 50, "device": "cpu"}
    found = TrainJob(data, tmp_path / "run", settings=settings, progress=False).run()
    assert found.auc > 0.95 and found.embedding_rows == 0


@pytest.mark.parametrize("model", ["DCNv2", "DeepFM"])
def test_every_model_with_settings_of_its_own(made: Any, tmp_path: Path, model: str) -> None:
    settings = {
        "model": {"name": model, "hidden": [8]},
        "max_steps": 6,
        "dense_optimizer": {"name": "SGD", "lr": {"schedule": "Warmup", "lr": 0.1, "steps": 4}, "momentum": 0.9},
        "embedding_optimizer": {"name": "RowWiseAdam"},
        "store": {"eviction": {"policy": "lru", "max_rows": 1_000}, "init": {"kind": "zeros"}},
        "slots": {"C1": {"group": "shared"}, "C2": {"group": "shared"}},
        "loader": {"cache": "memory"},
    }
    found = job(made, tmp_path / "run", settings=settings).run()
    assert found.steps == 6 and found.embedding_rows <= 1_000
    assert 0 < found.auc < 1  # though it ended in the middle of an epoch


# What cannot work is refused before anything is written.


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"model": "GPT"}, ParameterError, "model.name is 'GPT'"),
        (
            {"model": {"name": "MLP", "hiden": [4]}},
            ParameterError,
            "MLP has no argument 'hiden'; did you mean 'hidden'",
        ),
        ({"dense_optimizer": {"name": "Adam", "lr": -1}}, ParameterError, "dense_optimizer: Invalid learning rate"),
        ({"dense_optimizer": {"beta": 1}}, ParameterError, "unknown key 'beta' in dense_optimizer, a Adam"),
        ({"slots": {"C99": {}}}, ParameterError, "slots names 'C99'"),
        ({"device": "cuda:7"}, ParameterError, "torch sees 0 CUDA devices"),
        ({"device": "gpu"}, ParameterError, "which torch does not know"),
        ({"loader": {"cache": "ram"}}, ParameterError, r"loader\.cache must be one of"),
        ({"etl": {"engine": "spark"}}, ParameterError, "unknown engine"),
        ({"etl": {"part_size": "many"}}, ParameterError, "a size must be"),
        ({"store": {"storage": "int8"}}, ParameterError, "Store.storage must be one of"),
    ],
)
def test_bad_settings(made: Any, tmp_path: Path, settings: dict, error: type[PenstockError], said: str) -> None:
    if settings.get("device") == "cuda:7":
        torch = pytest.importorskip("torch")
        if torch.cuda.device_count():
            pytest.skip("there is a GPU")
    with pytest.raises(error, match=said):
        job(made, tmp_path / "run", settings=settings).run()
    assert not (tmp_path / "run").exists()


def test_metrics_that_were_asked_for(features: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "metrics": ["log_loss", "calibration"], "max_steps": 3}
    ear = Ear()
    found = TrainJob(features, tmp_path / "run", settings=settings, progress=False, listener=ear).run()
    assert list(found.metrics) == ["log_loss", "calibration"] and found.auc is None and found.log_loss > 0
    records = [event.record for event in ear.heard if isinstance(event, events.Recorded)]
    assert {name for record in records for name in getattr(record, "metrics", ())} == {"log_loss", "calibration"}


def test_bad_data(made: Any, features: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(SchemaError, match="raw rows need a recipe"):
        TrainJob(made.path, run).run()
    rated = pl.DataFrame({"user": [1, 2, 3, 4] * 5, "item": [1, 2] * 10, "rating": [1, 3, 5, 2] * 5})
    data = Dataset(rated).with_roles(categorical=["user", "item"], label=["rating"])
    with pytest.raises(SchemaError, match="DLRM multiplies pairs of columns, and 'user' is the only one"):
        one = Dataset(rated).with_roles(categorical=["user"], label=["rating"])
        TrainJob(one, run, settings={"model": {"name": "DLRM", "constant": False}}).run()
    with pytest.raises(SchemaError, match="'rating' has values from 1 to 5; these models predict 0 or 1"):
        TrainJob(data, run / "a").run()
    with pytest.raises(SchemaError, match="has no label column"):
        TrainJob(Dataset(rated).with_roles(categorical=["user"]), run / "b").run()
    with pytest.raises(SchemaError, match="says of no column what it is for"):
        TrainJob(rated, run / "c").run()
    two = data.with_roles(label=["item", "rating"])
    with pytest.raises(SchemaError, match="2 labels"):
        TrainJob(two, run / "d").run()
    empty = Dataset(rated.clear()).with_roles(categorical=["user", "item"], label=["rating"])
    with pytest.raises(DataError, match="no rows to train on"):
        TrainJob(empty, run / "e").run()
    with pytest.raises(SchemaError, match=r"column 'item' is not in .* \(rows to evaluate on\)"):
        TrainJob(data, run / "v", valid=data.select(["user", "rating"])).run()
    without_label = {**RECIPE, "output": ["categories", "numbers"]}
    with pytest.raises(SchemaError, match="what the recipe makes has no label"):
        TrainJob(made.path, run / "f", without_label).run()
    with pytest.raises(ParameterError, match="a workflow goes with features"):
        TrainJob(made.path, run / "g", RECIPE, workflow=f"{features}-workflow").run()


def test_what_is_in_the_way_stays(made: Any, features: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "model").mkdir(parents=True)
    (home / "model" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputExistsError, match="is not the folder of a training run"):
        job(made, home, overwrite=True).run()
    assert (home / "model" / "thesis.txt").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputExistsError, match="is a file"):
        job(made, tmp_path / "file").run()

    run = tmp_path / "run"
    TrainJob(features, run, settings={**SETTINGS, "max_steps": 2}, progress=False).run()
    (run / "notes.txt").write_text("mine")
    with pytest.raises(ParameterError, match="lies inside the output"):
        TrainJob(run / "features", run, overwrite=True, settings=SETTINGS).run()
    before = (run / "model" / "model" / "manifest.json").read_bytes()
    with pytest.raises(ParameterError):  # refused before the earlier run is touched
        TrainJob(features, run, overwrite=True, settings={**SETTINGS, "slots": {"C99": {}}}).run()
    assert (run / "model" / "model" / "manifest.json").read_bytes() == before
    TrainJob(features, run, overwrite=True, settings={**SETTINGS, "max_steps": 3}, progress=False).run()
    assert (run / "notes.txt").read_text() == "mine"
    assert (run / "model" / "model" / "manifest.json").read_bytes() != before


def test_a_failure_in_training_is_told_and_can_be_resumed(made: Any, tmp_path: Path) -> None:
    ear = Ear()

    def fails(record: Any) -> None:
        if isinstance(record, ValidRecord):
            raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="the disk is full"):
        job(made, tmp_path / "run", listener=ear, callbacks=[fails]).run()
    assert ear.of(events.RunFailed) == [events.RunFailed("the disk is full")]
    assert TrainJob.resumed(tmp_path / "run", progress=False).run().steps == 30


def test_a_run_that_stopped_before_its_features_were_whole_makes_them_again(made: Any, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def listener(event: events.Event) -> None:
        if isinstance(event, events.DataOpened):
            raise Stop

    with pytest.raises(Stop):
        job(made, tmp_path / "run", listener=listener).run()
    assert not RunFolder(tmp_path / "run").workflow.exists()
    assert TrainJob.resumed(tmp_path / "run", progress=False).run().rows["train"] == 3_600
    assert Workflow.load(tmp_path / "run" / "workflow").is_fitted
