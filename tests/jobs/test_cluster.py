"""Training on a Ray cluster: trainers, shards and the ETL in processes of their own."""

from __future__ import annotations

import os
import signal
import socket
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from penstock import Dataset
from penstock.core.errors import DataError, ParameterError, PenstockError
from penstock.data.synthetic import criteo
from penstock.embedding import ShardRestartedWarning
from penstock.etl import presets
from penstock.jobs import RunRecorder, TrainingStopped, TrainJob
from penstock.jobs.cluster import Cluster, TrainerRestartedWarning
from penstock.jobs.settings import TrainSettings
from penstock.report.run_metrics import metrics_text
from penstock.serve import Predictor
from penstock.train import CheckpointRecord, TrainRecord
from penstock.train.ray_cluster import resources_of_trainers
from penstock.train.ray_trainers import Report, Trainers

SETTINGS: dict[str, Any] = {
    "model": {"name": "MLP", "hidden": [8]}, "epochs": 1000, "batch_size": 256, "checkpoint_every": 4, "log_every": 2,
    "embedding_dim": 4, "patience": None, "select_by": "last", "valid_share": 0.2,
}  # fmt: skip


class OnCheckpoint:
    """Kills a trainer at the first checkpoint, and asks the run to stop at the second."""

    def __init__(self, ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ray, self.trainers, self.checkpoints = ray, [], 0
        real = Trainers.run

        def run(trainers: Trainers) -> Any:
            self.trainers.append(trainers)
            return real(trainers)

        monkeypatch.setattr(Trainers, "run", run)

    def __call__(self, record: Any) -> None:
        if isinstance(record, CheckpointRecord):
            self.checkpoints += 1
            if self.checkpoints == 1:
                os.kill(self.ray.get(self.trainers[0].actors[1].ping.remote()), signal.SIGKILL)

    def stop(self) -> bool:
        return self.checkpoints >= 2


@pytest.mark.slow
def test_a_run_survives_a_trainer_stops_and_goes_on_with_other_numbers(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    criteo(tmp_path / "day.tsv", 4000, cardinalities=50)
    watching = OnCheckpoint(ray, monkeypatch)
    job = TrainJob(
        tmp_path / "day.tsv", tmp_path / "run", presets.load("criteo"), settings=SETTINGS, callbacks=[watching],
        stop=watching.stop, cluster={"address": "local", "trainers": 2, "shards": 2},
    )  # fmt: skip
    with (
        pytest.warns(TrainerRestartedWarning, match="a trainer died .* goes on from .*step-"),
        pytest.raises(TrainingStopped) as stopped,
    ):
        job.run()
    assert stopped.value.steps == 13_000  # an epoch of 3,200 rows, 256 a step over all trainers
    seen: list[Any] = []
    changes = {"trainers": 1, "shards": 1, "max_steps": stopped.value.step + 6}
    found = TrainJob.resumed(tmp_path / "run", changes, callbacks=[seen.append]).run()
    assert {record.step - stopped.value.step for record in seen if isinstance(record, TrainRecord)} <= set(range(1, 7))
    assert found.steps == changes["max_steps"] and found.rows == {"train": 3200, "valid": 800}
    assert found.auc is not None and 0.5 < found.auc < 1 and found.embedding_rows > 500
    assert len(found.examples) == 3  # predicted by the saved model
    assert ray.is_initialized()  # one that ran before is left running


def test_what_a_cluster_began_goes_on_in_one_process(ray: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {"user": rng.integers(1, 40, 600), "price": rng.normal(size=600).astype(np.float32)}
    labels = (columns["user"] % 2).astype(np.float32)
    data = Dataset(pl.DataFrame({**columns, "click": labels})).with_roles(
        categorical=["user"], continuous=["price"], label=["click"]
    )
    data.to_parquet(tmp_path / "features")
    settings = {**SETTINGS, "epochs": 1, "batch_size": 60, "checkpoint_every": 2, "embedding_learning_rate": 0.3}
    recorder = RunRecorder(tmp_path / "run")
    settings |= {"max_steps": 4, "feed": str(tmp_path / "feed")}
    job = TrainJob(
        tmp_path / "features", tmp_path / "run", settings=settings, listener=recorder,
        cluster={"address": "local", "trainers": 2, "shards": 1},
    )  # fmt: skip
    found = job.run()
    watched(recorder, found.embedding_rows)
    rows = data.to_polars().drop("click")
    with Predictor(tmp_path / "run" / "model") as own, Predictor(tmp_path / "feed", feed=tmp_path / "feed") as service:
        assert service.refresh() >= 1 and service.step == 4
        assert np.array_equal(service.predict(rows), own.predict(rows))
    assert found.steps == 4 and found.rows == {"train": 480, "valid": 120} and found.embedding_rows > 20
    more = TrainJob.resumed(tmp_path / "run", {"cluster": "none", "max_steps": 8}).run()
    assert more.steps == 8 and more.embedding_rows >= found.embedding_rows


def watched(recorder: RunRecorder, rows: int) -> None:
    """The page and the metrics tell what the shard has done."""
    report = recorder.report()
    assert not report["problems"]
    (shard,) = report["cluster"]["shards"]
    assert (shard["state"], shard["role"], shard["rows"], shard["updates"]) == ("up", "primary", rows, 8)
    assert shard["seconds"]["lookup"]["count"] >= 8 and shard["seconds"]["update"]["count"] == 8
    page, metrics = recorder.path.read_text(), metrics_text(report)
    assert 'href="#cluster"' in page and "Shard 0" in page
    assert 'penstock_shard_command_seconds_count{shard="0",replica="0",command="update"} 8' in metrics


class DiesOnce:
    """Work whose process is killed the first time."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __call__(self, report: Report) -> str:
        if not self.place.exists():
            self.place.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        warnings.warn("a shard is gone", ShardRestartedWarning, stacklevel=1)
        while not report("at work"):
            time.sleep(0.01)
        return "told to stop"


class Refuses:
    """Work that cannot be done."""

    def __call__(self, report: Report) -> None:
        raise DataError("row 3 is not there")


def test_workers_begin_anew_when_one_died_and_stop_when_told(ray: Any, tmp_path: Path) -> None:
    told: list[str] = []
    deaths: list[str] = []
    common: dict[str, Any] = {"on_record": told.append, "is_progress": lambda _: False, "stop": lambda: bool(told)}
    trainers = Trainers(1, DiesOnce(tmp_path / "begun"), on_death=deaths.append, **common)
    with pytest.warns(ShardRestartedWarning, match="a shard is gone"):  # of a worker, to who waits for it
        assert trainers.run() == "told to stop"
    assert set(told) == {"at work"} and len(deaths) == 1


@pytest.mark.slow
def test_what_the_work_refuses_is_no_death(ray: Any) -> None:
    deaths: list[str] = []
    common: dict[str, Any] = {"on_record": print, "is_progress": lambda _: False, "stop": lambda: False}
    with pytest.raises(DataError, match="row 3 is not there"):
        Trainers(1, Refuses(), on_death=deaths.append, **common).run()
    assert not deaths


def test_settings_of_a_cluster_have_short_names_and_are_checked() -> None:
    found = TrainSettings.resolve({"cluster": "ray://head:10001", "trainers": 4, "shards": 8, "replicas": 2})
    for nothing in ("none", None):  # the second as a file says it
        assert Cluster.of(TrainSettings.resolve(found.to_dict(), {"cluster": nothing})) is None
    assert Cluster.of(found) == Cluster("ray://head:10001", 4, 8, 2)
    assert Cluster.of(TrainSettings()) is None
    for given, said in (
        ({"trainers": 2}, "trainers goes with a cluster; name it"),
        ({"cluster": "local", "trainers": 0}, "trainers must be an int ≥ 1"),
        ({"cluster": "local", "replicas": 3}, "replicas must be"),
        ({"cluster": "local", "tables": "fused"}, "embeddings are in a store"),
    ):
        with pytest.raises(ParameterError, match=said):
            Cluster.of(TrainSettings.resolve(given))


@pytest.mark.parametrize("address", ["ray://127.0.0.1:{}", "127.0.0.1:{}"])
def test_an_address_where_nobody_answers_is_refused_at_once(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        where = address.format(taken.getsockname()[1])
        with pytest.raises(PenstockError, match=f"no Ray cluster answers at {where}: .*is it running"):
            Cluster(where).running().__enter__()


def test_what_a_machine_of_the_cluster_does_not_see_is_refused(ray: Any, tmp_path: Path) -> None:
    (tmp_path / "clicks.csv").touch()
    cluster = Cluster("auto")
    cluster.check_shared(tmp_path, tmp_path / "clicks.csv", "s3://bucket/clicks.csv", tmp_path / "*.csv", None)
    with pytest.raises(PenstockError, match=r"machine \S+ of the cluster does not see .*elsewhere; data and the run's"):
        cluster.check_shared(tmp_path / "elsewhere", None)


@pytest.mark.parametrize("numbers", [{"trainers": 100_000}, {"shards": 65_535, "replicas": 2}])
def test_more_processes_than_this_machine_holds_are_refused(numbers: dict[str, int]) -> None:
    """Ray would start them until the system ends some."""
    with pytest.raises(ParameterError, match=r"takes [\d.]+ GB before it holds a row, .*; ask for fewer trainers or"):
        Cluster("local", **numbers).running().__enter__()


def test_more_trainers_than_the_cluster_has_cpus_are_refused(ray: Any) -> None:
    assert resources_of_trainers(2, "cpu") == {"num_cpus": 1}
    with pytest.raises(PenstockError, match="200 trainers take 200 CPUs, and the cluster has 2; ask for fewer"):
        resources_of_trainers(200, "cpu")
