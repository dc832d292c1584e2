"""Whole runs with hashed tables: no vocabulary is made; trained, stopped, resumed, evaluated, asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from penstock import ColumnSchema, Schema
from penstock.core.errors import ParameterError
from penstock.embedding import CachedEmbeddings, HashedEmbeddings
from penstock.jobs import TrainingStopped, TrainJob, TrainSettings
from penstock.jobs.draft import draft_recipe
from penstock.jobs.embeddings import check_embeddings
from penstock.jobs.events import Event, TrainingBegan
from penstock.jobs.recorder import RunRecorder
from penstock.jobs.scoring import evaluate_model, predict_files
from penstock.serve import Predictor

SETTINGS: dict[str, Any] = {
    "model": {"name": "DLRM", "bottom": [16], "top": [16]},
    "tables": "hashed",
    "epochs": 2,
    "batch_size": 64,
    "embedding_dim": 4,
    "device": "cpu",
    "staleness": 1,
}
CACHED = {"store": {"cache_rows": 300}}
ROWS = 2_000


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Numbers beyond 32 bits, text, lists in text, and gaps."""
    draw, place = np.random.default_rng(0), tmp_path_factory.mktemp("clicks") / "clicks.parquet"
    users = draw.integers(0, 60, ROWS)
    tags = [" ".join(draw.choice(["a", "b", "c", "d"], 2)) for _ in range(ROWS)]
    pl.DataFrame(
        {
            "user_id": users * 10**12 + 5,
            "city": pl.Series([None if user == 3 else f"city {user % 25}" for user in users]),
            "words": pl.Series([text.split() for text in tags]),
            "price": draw.random(ROWS),
            "click": (draw.random(ROWS) < 0.2 + 0.6 * (users % 2)).astype(np.int64),
        }
    ).write_parquet(place)
    return place


def job(clicks: Path, output: Path, **more: Any) -> TrainJob:
    settings = {**SETTINGS, **more.pop("settings", {})}
    recipe = draft_recipe(clicks, "click", hashed=True).recipe
    return TrainJob(clicks, output, recipe, settings=settings, progress=False, **more)


class Run:
    """A finished run, and the tables that it trained."""

    def __init__(self, clicks: Path, output: Path, settings: dict[str, Any]) -> None:
        self.output, self.settings, self.live = output, settings, None
        recorder = RunRecorder(output)

        def keep(event: Event) -> None:
            recorder(event)
            if isinstance(event, TrainingBegan):
                self.live = event

        self.found = job(clicks, output, settings=settings, listener=keep).run()


@pytest.fixture(scope="module", params=["hashed", "behind a cache"])
def run(request: pytest.FixtureRequest, clicks: Path) -> Run:
    settings = {} if request.param == "hashed" else CACHED
    return Run(clicks, clicks.parent / request.param.replace(" ", "-"), settings)


def test_it_trains_without_a_vocabulary(run: Run, clicks: Path) -> None:
    assert run.found.auc > 0.7
    tables = run.live.embeddings
    assert isinstance(tables, CachedEmbeddings if run.settings else HashedEmbeddings)
    raw = pl.read_parquet(clicks)
    seen = {"user_id": raw["user_id"].n_unique(), "city": raw["city"].n_unique(), "words": 4}
    assert tables.stats()["rows_by_table"] == {name: seen[name] for name in tables.names}
    assert run.found.embedding_rows == sum(seen.values())
    report = json.loads((run.output / "report.json").read_text())
    assert {t["name"]: t["rows"] for t in report["store"]["tables"]} == seen
    config = yaml.safe_load((run.output / "config.yaml").read_text())
    assert config["tables"] == "hashed" and "Categorify" not in json.dumps(config["recipe"])


def test_every_way_to_ask_gives_the_same(run: Run, clicks: Path, tmp_path: Path) -> None:
    figures = evaluate_model(run.found.model, run.output / "valid", progress=False)
    assert figures.log_loss == pytest.approx(run.found.log_loss, rel=1e-5)
    predict_files(run.found.model, clicks, tmp_path / "scores.parquet", progress=False)
    scores = pl.read_parquet(tmp_path / "scores.parquet")["probability"].to_numpy()
    raw = pl.read_parquet(clicks).head(40).drop("click")
    with Predictor(run.found.model) as predictor:
        np.testing.assert_allclose(predictor.predict(raw), scores[:40], rtol=1e-6)
        rows = raw.to_dicts()
        np.testing.assert_allclose(predictor.predict(rows), scores[:40], rtol=1e-6)
        unseen = {**rows[0], "user_id": 7, "city": "elsewhere"}
        assert 0 < float(predictor.predict([unseen])[0]) < 1
        assert predictor.unknown.to_dict() == {"user_id": 1, "city": 1}


def test_a_stopped_run_goes_on_to_the_same_figures(run: Run, clicks: Path, tmp_path: Path) -> None:
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) >= 20

    with pytest.raises(TrainingStopped):
        job(clicks, tmp_path / "part", settings=run.settings, stop=stop).run()
    resumed = TrainJob.resumed(tmp_path / "part", progress=False).run()
    for figure in ("auc", "log_loss", "steps", "embedding_rows"):
        assert getattr(resumed, figure) == getattr(run.found, figure), figure


def test_the_figures_are_a_stores(run: Run, clicks: Path, tmp_path: Path) -> None:
    store = job(clicks, tmp_path / "run", settings={"tables": "store"}).run()
    assert store.log_loss == pytest.approx(run.found.log_loss, rel=1e-3)
    assert store.embedding_rows == run.found.embedding_rows


def test_rows_go_where_the_settings_say_how_many_stay(clicks: Path, tmp_path: Path) -> None:
    """On the device, behind a cache and in a store: the same figures."""
    found = []
    for name, own in {"hashed": {}, "cached": {"cache_rows": 100}, "store": {}}.items():
        bound = {"eviction": {"policy": "lru", "max_rows": 80}}
        settings = {"store": bound | own, "epochs": 1, "batch_size": 16} | ({"tables": name} if name == "store" else {})
        found.append(job(clicks, tmp_path / name, settings=settings).run())
    assert found[0].embedding_rows == found[1].embedding_rows == found[2].embedding_rows <= 80
    assert found[1].log_loss == pytest.approx(found[0].log_loss, rel=1e-5)
    assert found[2].log_loss == pytest.approx(found[0].log_loss, rel=1e-3)


SCHEMA = Schema([ColumnSchema(name, "int64", role="categorical") for name in ("user", "item")])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"store": {"eviction": {"policy": "lfu", "max_rows": 9}}}, "policy: lru and max_rows alone"),
        ({"store": {"eviction": {"policy": "lfu", "max_rows": 9}, "cache_rows": 5}}, "policy: lru and max_rows alone"),
        ({"store": {"admission": {"min_count": 2}}}, "admission is set"),
        ({"slots": {"user": {"dim": 2}}}, "several dims, and hashed tables have one"),
        ({"embedding_optimizer": {"name": "FTRL"}}, "RowWiseAdam, without momentum"),
    ],
)
def test_what_hashed_tables_cannot_do_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        check_embeddings(TrainSettings.resolve(SETTINGS, settings), SCHEMA, is_fitted=False)
