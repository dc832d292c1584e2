"""A small trained model and its saved form, shared by the tests of serving."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch

import penstock as ps
from penstock import ops
from penstock.embedding import Adagrad, EmbeddingTables, Store, slots_from_schema
from penstock.loader.torch import Loader
from penstock.nn import DLRM
from penstock.serve import save_model
from penstock.train import fit


def raw_rows(rows: int = 300) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    user = rng.integers(0, 20, rows)
    return pl.DataFrame(
        {
            "user": [f"u{n}" for n in user],
            "ad": pl.Series(rng.integers(1, 2**31, 5)[rng.integers(0, 5, rows)], dtype=pl.UInt32),
            "tags": [rng.integers(0, 9, n).tolist() for n in rng.integers(0, 4, rows)],
            "price": pl.Series([None if p < 0.1 else float(p) for p in rng.random(rows)], dtype=pl.Float32),
            "click": pl.Series((user % 2).astype(np.int8)),
        }
    )


class Trained:
    def __init__(self, tables: bool = False) -> None:
        torch.manual_seed(0)
        self.frame = raw_rows()
        columns = ps.Schema.from_polars(self.frame.schema)
        columns = columns.with_column(columns["ad"].with_(properties={"text": "hex"}))
        data = ps.Dataset(self.frame, schema=columns).with_roles(label=["click"])
        categories = ["user", "ad"] >> ops.Categorify()
        lists = ["tags"] >> ops.Categorify()
        self.workflow = ps.Workflow(
            ["click"] + categories + lists + (["price"] >> ops.FillMissing() >> ops.Normalize())
        )
        self.features = self.workflow.fit_transform(data).to_polars()
        self.schema = self.workflow.output_schema
        self.loader = Loader(ps.Dataset(self.features, schema=self.schema), 50)
        self.model = DLRM(self.schema, 4, bottom=(8,), top=(8,))
        if tables:
            self.store = EmbeddingTables(self.schema, 4)
        else:
            self.store = Store(slots_from_schema(self.schema, 4), Adagrad(lr=0.2))
        fit(self.model, self.loader, self.store, epochs=3, staleness=1, progress=False)

    def expected(self) -> np.ndarray:
        """What the model says of the features, computed by hand."""
        columns = {n: self.features[n] for n in ("user", "ad", "tags", "price")}
        lists = columns["tags"].to_arrow()
        ids = {n: columns[n].to_numpy() for n in ("user", "ad")}
        ragged = lists.values.to_numpy(zero_copy_only=False).astype(np.int64), lists.offsets.to_numpy().astype(np.int64)
        with torch.no_grad():
            if isinstance(self.store, Store):
                found = self.store.lookup({**ids, "tags": ragged}, train=False).tensors()
            else:
                tensors = {n: torch.as_tensor(v.astype(np.int64)) for n, v in ids.items()}
                found = self.store({**tensors, "tags": tuple(map(torch.as_tensor, ragged))})
            dense = torch.from_numpy(columns["price"].to_numpy().astype(np.float32))[:, None]
            return torch.sigmoid(self.model.eval()(dense, found)).numpy()


@pytest.fixture(scope="session")
def train():
    """The class itself, for tests that want another one."""
    return Trained


@pytest.fixture(scope="module")
def trained():
    return Trained()


@pytest.fixture(scope="module")
def place(trained, tmp_path_factory):
    place = tmp_path_factory.mktemp("served") / "model"
    save_model(place, trained.workflow, trained.model, trained.store)
    return place
