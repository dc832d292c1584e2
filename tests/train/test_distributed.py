"""Two dense workers (gloo) train one model and share one store on Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from penstock.embedding import Adagrad, Init, RayStore, slots_from_schema
from penstock.train import Checkpointer

from .conftest import SCHEMA


def test_two_workers_share_a_store(ray, tmp_path) -> None:
    store = RayStore(
        slots_from_schema(SCHEMA, 4, init=Init("uniform", -0.1, 0.1)), Adagrad(lr=0.1), num_shards=2, name="shared"
    )
    address = ray.get_runtime_context().gcs_address
    common = {**os.environ, "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1", "RAY_ADDRESS": address}
    command = [sys.executable, str(Path(__file__).with_name("ddp_worker.py")), "shared", str(tmp_path)]
    workers = [
        subprocess.Popen(command, env={**common, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        for worker in workers:
            _, errors = worker.communicate(timeout=600)
            assert worker.returncode == 0, errors[-3000:]
    finally:
        for worker in workers:
            worker.kill()
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
