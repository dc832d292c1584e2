"""Negatives come out alike in every framework, beside list columns, and for columns of any shape."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from penstock.core.errors import ColumnNotFoundError
from penstock.loader import NegativeSampling, Ragged

DATA = {
    "user": np.arange(12) % 5,
    "item": np.arange(12) + 100,
    "seen": [list(range(n % 3)) for n in range(12)],
    "click": np.ones(12, np.float32),
}
ADAPTERS = {"numpy": "loader", "torch": "torch", "keras": "keras", "jax": "jax"}


def batch(adapter: str, sample: NegativeSampling) -> tuple[dict[str, Any], Any]:
    module = importlib.import_module(f"penstock.loader.{ADAPTERS[adapter]}")
    loader = module.Loader(DATA, 12, categorical=["user", "item", "seen"], labels=["click"])
    return loader.map(sample).peek()


@pytest.mark.parametrize("uniform", [{}, {"cardinality": 50, "low": 3}], ids=["popular", "uniform"])
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_framework_gets_the_same_negatives(adapter: str, uniform: dict[str, int]) -> None:
    sample = NegativeSampling(["item"], num_negatives=2, seed=1, **uniform)
    features, labels = batch(adapter, sample)
    expected, _ = batch("numpy", sample)
    assert np.asarray(labels).ravel().tolist() == [1.0] * 12 + [0.0] * 24
    assert np.asarray(features["item"]).ravel().tolist() == expected["item"].tolist()
    assert np.asarray(features["user"]).ravel().tolist() == DATA["user"].tolist() * 3
    assert type(features["item"]) is type(features["user"])
    seen = features["seen"]
    seen = (seen.values, seen.row_splits) if adapter == "keras" else seen
    assert np.asarray(seen[0]).tolist() == np.concatenate(DATA["seen"] * 3).astype(int).tolist()
    assert np.asarray(seen[1]).tolist() == np.cumsum([0, *([n % 3 for n in range(12)] * 3)]).tolist()
    drawn = expected["item"][12:]
    assert ((drawn >= 3) & (drawn < 50)).all() if uniform else set(drawn) <= set(DATA["item"])


def test_a_list_column_cannot_be_drawn() -> None:
    features = {"user": np.array([1, 2]), "seen": Ragged(np.array([1, 2]), np.array([0, 1, 2]))}
    with pytest.raises(ColumnNotFoundError, match=r"'seen'.*user"):
        NegativeSampling(["seen"])((features, np.ones(2)))
