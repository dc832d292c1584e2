"""Two dense workers (gloo) train one model and share one store on Ray."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.embedding import Adagrad, Init, RayStore, slots_from_schema
from penstock.train import Checkpointer

from .conftest import SCHEMA


def test_two_workers_share_a_store(ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first worker is this process, which has loaded torch already."""
    store = RayStore(
        slots_from_schema(SCHEMA, 4, init=Init("uniform", -0.1, 0.1)), Adagrad(lr=0.1), num_shards=2, name="shared"
    )
    address = ray.get_runtime_context().gcs_address
    for name, value in {"WORLD_SIZE": "2", "OMP_NUM_THREADS": "1", "RAY_ADDRESS": address}.items():
        monkeypatch.setenv(name, value)
    program = Path(__file__).with_name("ddp_worker.py")
    command = [sys.executable, str(program), "shared", str(tmp_path)]
    other = subprocess.Popen(command, env={**os.environ, "RANK": "1"}, stderr=subprocess.PIPE, text=True)
    try:
        monkeypatch.setenv("RANK", "0")
        runpy.run_path(str(program))["main"]("shared", str(tmp_path))
        _, errors = other.communicate(timeout=600)
        assert other.returncode == 0, errors[-3000:]
    finally:
        other.kill()
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2))
    assert first["world"] == 2 and first["stats"]["steps"] == second["stats"]["steps"] == 25
    assert first["weights"] == second["weights"]  # the dense side is synchronous
    valid = [record for record in first["records"] if record["kind"] == "valid"]
    assert valid[-1]["rows"] == 402 and valid[-1]["auc"] > 0.6
    assert [r["auc"] for r in second["records"] if r["kind"] == "valid"] == [r["auc"] for r in valid]
    assert store.stats()["rows"] == 70
    assert sum(shard["updates"] for shard in store.stats()["shards"]) == 100  # 25 steps, two workers, two shards
    assert Checkpointer(tmp_path / "checkpoints").steps() == [20, 25]
    store.close()
