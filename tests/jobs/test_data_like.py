"""Whatever takes data takes it as paths, as a frame of any kind or as a Dataset, and makes the same of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from penstock import Dataset, Workflow, ops
from penstock.core.errors import ParameterError
from penstock.jobs import EtlJob, TrainJob, draft_recipe
from penstock.jobs.explaining import explain_model
from penstock.jobs.scoring import evaluate_model, predict_files
from penstock.loader import Loader
from penstock.report.profile import profile_dataset
from penstock.serve import Predictor

KINDS: dict[str, Callable[[pl.DataFrame, Path], Any]] = {
    "path": lambda frame, place: _written(frame, place),
    "text": lambda frame, place: str(_written(frame, place)),
    "list": lambda frame, place: [_written(frame, place)],
    "set": lambda frame, place: {str(_written(frame, place))},
    "polars": lambda frame, place: frame,
    "lazy": lambda frame, place: frame.lazy(),
    "pandas": lambda frame, place: frame.to_pandas(),
    "arrow": lambda frame, place: frame.to_arrow(),
    "dict": lambda frame, place: frame.to_dict(as_series=False),
    "dataset": lambda frame, place: Dataset(frame),
}
SETTINGS = {"model": {"name": "MLP", "hidden": [4]}, "epochs": 1, "batch_size": 64, "device": "cpu"}


def rows(number: int = 120) -> pl.DataFrame:
    random = np.random.default_rng(0)
    user = random.integers(0, 9, number)
    clicks = random.random(number) < np.where(user % 2 == 0, 0.8, 0.2)
    return pl.DataFrame({"user": [f"u{u}" for u in user], "price": random.random(number), "click": clicks.astype(int)})


def recipe() -> dict[str, Any]:
    nodes = (["user"] >> ops.Categorify()) + (["price"] >> ops.Normalize()) + ["click"]
    return {**Workflow(nodes).to_recipe(), "input": {"roles": {"label": ["click"]}}}


def _written(frame: pl.DataFrame, place: Path) -> Path:
    frame.write_parquet(place / "rows.parquet")
    return place / "rows.parquet"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model") / "run"
    return Path(TrainJob(rows(), place, recipe(), settings=SETTINGS, progress=False).run().model)


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return KINDS[request.param](rows(), tmp_path)


def test_scoring(model: Path, source: Any, tmp_path: Path) -> None:
    expected = evaluate_model(model, Dataset(rows()), progress=False)
    found = evaluate_model(model, source, progress=False)
    assert (found.auc, found.log_loss, found.rows) == (expected.auc, expected.log_loss, 120)
    predict_files(model, source, tmp_path / "out.parquet", progress=False)
    with Predictor(model) as predictor:
        scores = predictor.predict(rows())
        assert predictor.predict(source if not isinstance(source, dict) else pl.DataFrame(source)).tolist() == (
            pl.read_parquet(tmp_path / "out.parquet")["probability"].to_list()
        )
    assert pl.read_parquet(tmp_path / "out.parquet")["probability"].to_list() == scores.tolist()
    assert explain_model(model, source, repeats=1, progress=False).rows == 120


def test_features(source: Any, tmp_path: Path) -> None:
    expected = Workflow.from_recipe(recipe()).fit_transform(rows())
    done = EtlJob(source, str(tmp_path / "out"), recipe=recipe(), progress=False).run()
    assert Dataset(tmp_path / "out").to_polars().equals(expected)
    assert done.schema.select(roles="label").names == ["click"]
    transformed = Workflow.from_recipe(recipe()).fit(source, progress=False).transform(source)
    assert (transformed.to_polars() if isinstance(transformed, Dataset) else pl.DataFrame(transformed)).equals(expected)
    assert sum(len(labels) for _, labels in Loader(source, 50, continuous=["price"], labels=["click"])) == 120


def test_what_is_told_of_it(source: Any) -> None:
    assert draft_recipe(source, "click").label == "click"
    assert profile_dataset(source)["rows"] == 120
    joined = Dataset(rows().select("user").unique()).merge(source, "user")
    assert joined.num_rows == 120


@pytest.mark.parametrize("nothing", [3, [{"user": "u1"}], object(), None])
def test_what_is_no_data_is_refused_in_words(model: Path, nothing: Any, tmp_path: Path) -> None:
    for refused in (
        lambda: evaluate_model(model, nothing),
        lambda: predict_files(model, nothing, tmp_path / "out.csv"),
        lambda: EtlJob(nothing, str(tmp_path / "out"), recipe=recipe()).run(),
        lambda: draft_recipe(nothing),
        lambda: Workflow.from_recipe(recipe()).fit(nothing),
    ):
        with pytest.raises(ParameterError, match="cannot read data from"):
            refused()
