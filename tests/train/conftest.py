"""Small data with something to learn, and everything a training needs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from penstock import ColumnSchema, Schema
from penstock.embedding import Adagrad, Init, Store, slots_from_schema
from penstock.loader.torch import Loader
from penstock.nn import DLRM

ROLES = {"categorical": ["user", "item"], "continuous": ["price", "age"], "labels": ["click"]}


def some_rows(rows: int = 640, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, 40, rows), rng.integers(0, 30, rows)
    price, age = rng.normal(size=rows).astype(np.float32), rng.normal(size=rows).astype(np.float32)
    logit = 1.5 * np.sin(user) + 1.5 * np.cos(3 * item) + price
    click = (rng.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.int8)
    return {"user": user, "item": item, "price": price, "age": age, "click": click}


SCHEMA = Schema(
    [
        ColumnSchema("user", "int64", role="categorical", cardinality=40),
        ColumnSchema("item", "int64", role="categorical", cardinality=30),
        ColumnSchema("price", "float32", role="continuous"),
        ColumnSchema("age", "float32", role="continuous"),
        ColumnSchema("click", "int8", role="label"),
    ]
)


class Setup:
    """A model, a store, an optimizer and a loader, the same every time."""

    def __init__(self, batch_size: int = 32, rows: int = 640, optimizer=None, shuffle: bool = True, **model) -> None:
        torch.manual_seed(7)
        self.loader = Loader(some_rows(rows), batch_size, shuffle=shuffle, seed=3, chunk_rows=200, **ROLES)
        self.valid = Loader(some_rows(400, seed=1), 100, **ROLES)
        self.model = DLRM(SCHEMA, embedding_dim=4, bottom=(8,), top=(8,), **model)
        self.store = Store(slots_from_schema(SCHEMA, 4, init=Init("uniform", -0.1, 0.1)), optimizer or Adagrad(lr=0.1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def weights(self) -> dict[str, np.ndarray]:
        ids = {"user": np.arange(40), "item": np.arange(40) % 30}
        found = self.store.lookup(ids, train=False)
        dense = {name: value.detach().numpy().copy() for name, value in self.model.state_dict().items()}
        return {**dense, **{f"embedding {name}": np.array(found[name]) for name in found}}


def assert_same_bits(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_array_equal(value, right[name], err_msg=name)


@pytest.fixture
def make():
    stores = []

    def create(**settings) -> Setup:
        setup = Setup(**settings)
        stores.append(setup.store)
        return setup

    yield create
    for store in stores:
        store.close()
