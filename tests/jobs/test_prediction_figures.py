"""Predictions on held-out rows as a report shows them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from penstock import Dataset, Workflow, ops
from penstock.embedding import SGD, Store, slots_from_schema
from penstock.jobs.prediction_figures import bin_edges, describe_predictions
from penstock.jobs.table_figures import hot_ids
from penstock.nn import MLP
from penstock.report.profile import profile_dataset
from penstock.serve import Predictor, save_model


@pytest.fixture(scope="module")
def rows() -> Dataset:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"user": rng.integers(0, 9, 400).astype(str), "click": rng.integers(0, 2, 400)})
    return Dataset(frame, part_size="1kB").with_roles(label=["click"])


@pytest.fixture(scope="module")
def model(rows: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Dataset]:
    workflow = Workflow((["user"] >> ops.Categorify()) + ["click"])
    features = workflow.fit_transform(rows)
    place = tmp_path_factory.mktemp("model")
    with Store(slots_from_schema(features.schema, 4), SGD()) as store:
        save_model(place, workflow, MLP(features.schema, 4, hidden=(4,)), store)
    return place, Dataset(features.to_polars(), schema=workflow.output_schema)


def test_all_rows_or_a_sample(model: tuple[Path, Dataset]) -> None:
    place, features = model
    with Predictor(place) as predictor:
        whole = describe_predictions(predictor, features, "click")
        some = describe_predictions(predictor, features, "click", most_rows=100)
        assert describe_predictions(predictor, Dataset(features.to_polars().head(0)), "click") is None
    assert whole["rows"] == 400 and not whole["is_sample"] and sum(map(sum, whole["counts"].values())) == 400
    assert some["rows"] == 100 and some["is_sample"]


@pytest.mark.parametrize(
    "scores", [[0.5], [0.0, 1.0], [1e-6, 2e-6], [0.02, 0.021, 0.3], np.random.default_rng(1).beta(1, 40, 5000)]
)
def test_bins_hold_the_predictions(scores: list[float]) -> None:
    edges = bin_edges(np.asarray(scores))
    assert (np.diff(edges) > 0).all() and edges[0] >= 0 and edges[-1] <= 1
    low, high = np.quantile(scores, [0.001, 0.999])
    assert edges[0] <= low + 1e-9 and edges[-1] >= high - 1e-9


def test_hot_ids_of_lists_are_the_values_that_people_know() -> None:
    raw = Dataset({"genres": [["Comedy", "Drama"], ["Comedy"], ["Comedy", "Horror"], []], "click": [0, 1, 1, 0]})
    workflow = Workflow((["genres"] >> ops.Categorify()) + ["click"])
    features = workflow.fit_transform(raw)
    profile = profile_dataset(Dataset(features.to_polars(), schema=workflow.output_schema.with_roles(label=["click"])))
    hot = hot_ids(profile, workflow)["genres"]
    assert [entry["value"] for entry in hot] == ["Comedy", "Drama", "Horror"]
    assert hot[0]["share"] == pytest.approx(0.6)
