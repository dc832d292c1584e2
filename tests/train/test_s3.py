"""Data and checkpoints on S3: its own client, s3fs, with a server that speaks S3 over HTTP (skipped without them)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from penstock import Dataset
from penstock.core.errors import DataError
from penstock.jobs import TrainJob
from penstock.train import Checkpointer

s3fs = pytest.importorskip("s3fs")
moto_server = pytest.importorskip("moto.server")

SETTINGS: dict[str, Any] = {
    "model": {"name": "MLP", "hidden": [4]}, "batch_size": 40, "epochs": 2, "checkpoint_every": 3, "device": "cpu",
    "select_by": "last", "staleness": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The URL of a bucket of a server of its own."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir("clicks")
        yield "s3://clicks"
    server.stop()


def test_a_run_reads_its_rows_from_s3_and_goes_on_from_checkpoints_there(bucket: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = {"user": rng.integers(0, 40, 400), "price": rng.normal(size=400), "click": rng.integers(0, 2, 400)}
    data = Dataset(pl.DataFrame(rows)).with_roles(categorical=["user"], continuous=["price"], label=["click"])
    data.to_parquet(f"{bucket}/features")
    data.to_parquet(tmp_path / "features")
    wanted = TrainJob(tmp_path / "features", tmp_path / "here", settings=SETTINGS).run()
    there = {**SETTINGS, "copy_checkpoints_to": f"{bucket}/run"}
    TrainJob(f"{bucket}/features", tmp_path / "run", settings={**there, "max_steps": 9}).run()
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    found = TrainJob.resumed(tmp_path / "run", {"max_steps": None}).run()
    assert found.steps == wanted.steps and found.log_loss == wanted.log_loss
    assert Checkpointer(f"{bucket}/run").steps()[-1] == found.steps


def test_a_bucket_that_is_not_there_is_named(bucket: str) -> None:
    with pytest.raises(DataError, match=r"nothing is at s3://nowhere/clicks\.parquet"):
        Dataset("s3://nowhere/clicks.parquet")
