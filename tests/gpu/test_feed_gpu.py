"""Feeds from a real GPU: a service on the CPU follows tables that train on CUDA, and predicts what they predict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.train.test_publishing import EVERYTHING, HOMES, Training

from penstock.data.synthetic import criteo
from penstock.embedding import CachedEmbeddings
from penstock.embedding.feed_packets import packet_numbers
from penstock.etl import presets
from penstock.jobs import TrainJob
from penstock.serve import Predictor
from penstock.train import TrainRecord

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # said by torch's compiler
    pytest.mark.filterwarnings("ignore:TensorFloat32", "ignore:The .grad attribute", "ignore:Online softmax"),
]


def cached_and_hashed(_: Any) -> CachedEmbeddings:
    return CachedEmbeddings(["user", "item"], 4, cache_rows=70, hashed=True, optimizer="adagrad", lr=0.3)


@pytest.mark.parametrize("home", ["store", "fused", "cached", "hashed", "cached and hashed", "parameters"])
def test_who_follows_predicts_what_the_gpu_has_learned(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(HOMES, "cached and hashed", cached_and_hashed)
    training = Training(home, tmp_path)
    with Predictor(training.feed, feed=training.feed) as service:
        before = service.predict(EVERYTHING)
        for steps in (3, 2):
            training.train(steps, device="cuda")
            assert next(training.model.parameters()).is_cuda
            assert service.refresh() >= 1 and service.step == steps
            now = service.predict(EVERYTHING)
            assert np.array_equal(now, training.predictions()) and not np.array_equal(now, before)
            before = now


@pytest.mark.parametrize("tables", ["fused", "hashed", "cached"])
def test_a_run_on_the_gpu_is_followed_while_it_goes_on(tables: str, tmp_path: Path) -> None:
    """Packets of captured steps, of a job from raw rows: each is applied as it comes, and the last is the model."""
    criteo(tmp_path / "day.tsv", 8_000, cardinalities=40, progress=False)
    criteo(tmp_path / "few.tsv", 100, cardinalities=40, progress=False)
    feed, rows, seen = tmp_path / "feed", str(tmp_path / "few.tsv"), []

    def follow(record: Any) -> None:
        if isinstance(record, TrainRecord) and packet_numbers(feed):
            with Predictor(feed, feed=feed) as service:
                seen.append((service.refresh(), service.step, service.predict(rows)))

    settings: dict[str, Any] = {
        "model": {"name": "DLRM", "bottom": [16], "top": [16]}, "epochs": 2, "batch_size": 256, "embedding_dim": 16,
        "device": "cuda", "tables": tables, "log_every": 10, "feed": str(feed), "feed_seconds": 0.001,
        **({"cache_rows": 2_000} if tables == "cached" else {}),
    }  # fmt: skip
    recipe = presets.load("criteo", hashed=tables == "hashed")
    TrainJob(
        tmp_path / "day.tsv", tmp_path / "run", recipe, settings=settings, progress=False, callbacks=[follow]
    ).run()
    assert len(seen) > 2 and [step for _, step, _ in seen] == sorted(step for _, step, _ in seen)
    with Predictor(tmp_path / "run" / "model") as own, Predictor(feed, feed=feed) as service:
        assert service.refresh() >= 1
        assert np.array_equal(service.predict(rows), own.predict(rows))
    assert not np.array_equal(seen[0][2], seen[-1][2])
