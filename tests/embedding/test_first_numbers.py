"""First numbers of rows, set from outside, in every home that takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from penstock import ColumnSchema, Schema
from penstock.embedding import SGD, Adagrad, FusedEmbeddings, LazyAdam, RowWiseAdam, SlotConfig, Store
from penstock.embedding.first_numbers import clear_rows, takes_first_numbers, write_first_numbers

SHARED = {"role": "categorical", "cardinality": 9, "properties": {"vocabulary": "both"}}
SCHEMA = Schema(
    [ColumnSchema("user", "int64", role="categorical", cardinality=6)]
    + [ColumnSchema(name, "int64", **SHARED) for name in ("item", "last")]
)
SLOTS = [SlotConfig("user", 4), SlotConfig("item", 4, group="both"), SlotConfig("last", 4, group="both")]


def home(kind: str) -> Store | FusedEmbeddings:
    return Store(SLOTS, Adagrad(lr=0.1)) if kind == "store" else FusedEmbeddings(SCHEMA, 4, optimizer="adagrad", lr=0.1)


def looked_up(embeddings: Store | FusedEmbeddings, batch: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    found = embeddings.lookup(batch, train=False)
    return {name: np.array(torch.as_tensor(found[name]).detach()) for name in batch}


@pytest.mark.parametrize("kind", ["store", "fused"])
def test_only_the_first_number_of_the_rows_named_changes(kind: str) -> None:
    embeddings = home(kind)
    batch = {"user": torch.tensor([0, 2, 5]), "item": torch.tensor([1, 3, 8]), "last": torch.tensor([8, 3, 0])}
    assert takes_first_numbers(embeddings)
    embeddings.lookup(batch)  # rows of a store appear
    before = {
        name: np.array(torch.as_tensor(found).detach()) for name, found in embeddings.lookup(batch, False).items()
    }
    write_first_numbers(embeddings, "item", np.array([3, 8]), np.array([0.25, -2.0]))
    write_first_numbers(embeddings, "user", np.array([], np.int64), np.array([]))
    after = looked_up(embeddings, batch)
    np.testing.assert_array_equal(after["user"], before["user"])
    np.testing.assert_array_equal(after["item"][:, 1:], before["item"][:, 1:])
    assert after["item"][1:, 0].tolist() == [0.25, -2.0] and after["item"][0, 0] == before["item"][0, 0]
    assert after["last"][:2, 0].tolist() == [-2.0, 0.25]  # the rows are one another's
    embeddings.close()


def test_homes_that_do_not_take_them() -> None:
    assert not takes_first_numbers(None)
    with Store(SLOTS, Adagrad(lr=0.1), storage="bfloat16") as halves, Store(SLOTS) as serving:
        assert not takes_first_numbers(halves) and not takes_first_numbers(serving)
    assert not takes_first_numbers(FusedEmbeddings(SCHEMA, 4, optimizer="adagrad", lr=0.1, dtype="bfloat16"))


@pytest.mark.parametrize("optimizer", [SGD(lr=0.1), Adagrad(lr=0.1), LazyAdam(lr=0.1), RowWiseAdam(lr=0.1)])
def test_rows_keep_what_their_optimizer_knows(optimizer: Any) -> None:
    """Two stores with the same updates, one of which has its first numbers written as they are in between."""
    found = []
    for is_written in (False, True):
        with Store(SLOTS, optimizer) as store:
            for step in range(3):
                looked = store.lookup({"user": [1, 2], "item": [3, 4], "last": [4, 5]})
                if is_written and step:
                    write_first_numbers(store, "user", np.array([1, 2]), looked["user"][:, 0].copy())
                store.update(looked, {name: np.full((2, 4), 0.5, np.float32) for name in store.names})
            found.append(store.lookup({"user": [1, 2], "item": [3, 4], "last": [4, 5]}, train=False).packed.copy())
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("kind", ["store", "fused"])
def test_rows_that_training_never_sees_are_zeros_in_every_home(kind: str) -> None:
    embeddings = home(kind)
    write_first_numbers(embeddings, "user", np.array([2, 3]), np.array([0.5, -0.5]))
    clear_rows(embeddings, "user", np.array([0, 1, 4, 5]))
    others = torch.zeros(6, dtype=torch.int64)
    found = looked_up(embeddings, {"user": torch.arange(6), "item": others, "last": others})["user"]
    assert not found[[0, 1, 4, 5]].any() and found[[2, 3]].all()
