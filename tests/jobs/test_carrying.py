"""A model carries what its recipe joins, and columns of one vocabulary share their embeddings."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from penstock import Workflow
from penstock.embedding.slots import shared_groups, slots_from_schema
from penstock.jobs import TrainJob
from penstock.jobs.embeddings import build_store
from penstock.jobs.settings import TrainSettings
from penstock.serve import Predictor

SETTINGS = {"model": {"name": "MLP", "hidden": [8]}, "epochs": 1, "batch_size": 64, "embedding_dim": 4}


def clicks(rows: int = 300) -> pl.DataFrame:
    draw = np.random.default_rng(0)
    return pl.DataFrame(
        {"item": draw.integers(0, 9, rows), "last": draw.integers(0, 9, rows), "click": draw.integers(0, 2, rows)}
    )


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_joined_by_path_is_in_the_model(tmp_path, suffix):
    table = pl.DataFrame({"item": list(range(9)), "shop": list("abcabcabc"), "unused": [0] * 9})
    path = tmp_path / f"items.{suffix}"
    table.write_csv(path) if suffix == "csv" else table.write_parquet(path)
    recipe = {
        "recipe": 1,
        "input": {"roles": {"label": ["click"]}},
        "nodes": {
            "joined": {
                "columns": ["item"],
                "ops": [{"JoinExternal": {"df_ext": str(path), "on": "item", "columns_ext": ["shop"]}}, "Categorify"],
            },
            "label": {"columns": ["click"]},
        },
    }
    clicks().write_parquet(tmp_path / "clicks.parquet")
    found = TrainJob(tmp_path / "clicks.parquet", tmp_path / "run", recipe, settings=SETTINGS).run()
    with Predictor(found.model) as predictor:
        before = predictor.predict([{"item": 3}])
    path.unlink()
    with Predictor(found.model) as predictor:
        assert predictor.predict([{"item": 3}]) == before
        assert len(predictor.predict(pl.DataFrame({"item": [1, 2, 100]}))) == 3


def shared_schema():
    recipe = {"recipe": 1, "nodes": {"ids": {"columns": [["item", "last"], "click"], "ops": ["Categorify"]}}}
    return Workflow.from_recipe(recipe).fit(clicks()).output_schema


def test_columns_of_one_vocabulary_share_embeddings_unless_told_otherwise():
    schema = shared_schema()
    assert shared_groups(schema) == {"item": "item_last", "last": "item_last"}
    assert [slot.group for slot in slots_from_schema(schema, 4)] == ["item_last", "item_last", "click"]
    with build_store(TrainSettings.resolve(SETTINGS), schema) as store:
        found = store.lookup({name: np.array([3, 4]) for name in ("item", "last", "click")}, train=True)
        assert np.array_equal(found["item"], found["last"])
        assert not np.array_equal(found["item"], found["click"])
    apart = TrainSettings.resolve(SETTINGS, {"slots": {"last": {"group": "last"}}})
    with build_store(apart, schema) as store:
        found = store.lookup({name: np.array([3, 4]) for name in ("item", "last", "click")}, train=True)
        assert not np.array_equal(found["item"], found["last"])
