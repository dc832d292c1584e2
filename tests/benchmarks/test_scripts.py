"""Every script of the suite still runs, with the smallest data that its claims can be made of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))  # as for a script that runs there

import run as bench  # noqa: E402

SMALLEST = {
    "checkpoints.py": ["--rows", "2000", "--rounds", "1", "--steps", "8", "--every", "4", "--no-ray"],
    "checks.py": ["--rows", "2000", "--repeats", "1", "--only", "loader,frames"],
    "compat.py": ["--rows", "20000", "--batch", "2048", "--rounds", "1"],
    "embedding.py": ["--rows", "2000", "--batch-sizes", "256", "--repeats", "1"],
    "etl.py": ["--rows", "5000", "--memory-rows", "10000", "--rounds", "1"],
    "etl_shapes.py": ["--scale", "0.001", "--rounds", "1", "--shapes", "text_csv", "lists", "groups"],
    "hybrid.py": ["--rows", "1000", "--rounds", "1", "--batch-size", "256", "--no-ray"],
    "keras_loader.py": ["--rows", "10000", "--batch", "1024", "--rounds", "1", "--slow-rows", "500"],
    "loader.py": ["--rows", "20000", "--batch", "2048", "--rounds", "1", "--slow-rows", "500", "--peers", ""],
    "loader_multihot.py": ["--rows", "10000", "--batch", "1024", "--rounds", "1"],
    "loader_remote.py": ["--rows", "20000", "--files", "2", "--delay", "1"],
    "pipeline.py": ["--rows", "5000", "--rounds", "1", "--batch-size", "512"],
    "quality.py": ["--rows", "400", "--test-rows", "400", "--teachers", "id_only", "--models", "MLP"],
    "row_latency.py": ["--rows", "2000", "--calls", "20"],
    "serve.py": ["--rows", "2000", "--seconds", "0.1", "--rounds", "1"],
    "sizing.py": ["--batch", "256", "--rounds", "1", "--dims", "8"],
    "standbys.py": ["--rows", "1000", "--turns", "1"],
}
# Without a GPU these say so and end.
ON_A_GPU = {
    "loader_gpu.py", "fused_stages.py", "criteo_h200.py", "gpu_dense.py", "gpu_tables.py", "mlperf_h200.py",
    "gpu_cache.py",
}  # fmt: skip


def test_every_script_is_tried() -> None:
    assert {*SMALLEST, *ON_A_GPU} == set(bench.read_suite(ROOT / "benchmarks"))


@pytest.mark.slow
@pytest.mark.parametrize("script", [*SMALLEST, *sorted(ON_A_GPU)])
def test_it_ends_with_its_claims(script: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), *SMALLEST.get(script, [])],
        capture_output=True, text=True, timeout=900, cwd=tmp_path, env={**os.environ, **bench._QUIET},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    claims = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"claim"')]
    assert claims or script in ON_A_GPU, done.stdout[-2000:]
    for claim in claims:
        assert {"claim", "unit", "penstock", "peers", "ratios"} <= claim.keys(), claim
