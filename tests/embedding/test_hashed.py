"""Hashed tables: a store's numbers for any ids, on the device, whatever grows or is evicted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from penstock import ColumnSchema, Schema
from penstock.core.errors import ArtefactError, DataError, ParameterError, PenstockError
from penstock.embedding import Eviction, HashedEmbeddings, Init, MemoryBudgetError, SlotConfig, Store

NAMES, DIM, SCALE = ["user", "item"], 6, 0.05
OPTIMIZERS = ["sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam"]


def hashed(**settings: Any) -> HashedEmbeddings:
    given = {"capacity": 4, "optimizer": "rowwise_adagrad", "lr": 0.1, "scale": SCALE, "seed": 3, **settings}
    return HashedEmbeddings(NAMES, DIM, **given)


def store_like(tables: HashedEmbeddings, max_rows: int | None = None, pooling: str = "sum") -> Store:
    slots = [SlotConfig(name, DIM, pooling, init=Init("uniform", -SCALE, SCALE)) for name in NAMES]
    eviction = None if max_rows is None else Eviction("lru", max_rows=max_rows)
    return Store(slots, tables.optimizer, seed=3, eviction=eviction, num_threads=1)


def some_ids(rng: np.random.Generator, rows: int = 13, most: int = 60) -> dict[str, np.ndarray]:
    return {"user": rng.integers(0, most, rows) + 2**61, "item": rng.integers(0, most, rows)}


def tensors(batch: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(column) for name, column in batch.items()}


@pytest.mark.parametrize("max_rows", [None, 40])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_numbers_are_a_stores(optimizer: str, max_rows: int | None) -> None:
    rng = np.random.default_rng(0)
    tables = hashed(optimizer=optimizer, max_rows=max_rows)
    with store_like(tables, max_rows) as store:
        for step in range(12):
            ids = some_ids(rng)
            gradients = {name: rng.standard_normal((13, DIM)).astype(np.float32) for name in NAMES}
            mine, theirs = tables.lookup(tensors(ids)), store.lookup(ids)
            for name in NAMES:
                compare = np.testing.assert_array_equal if step == 0 else close
                compare(mine[name].numpy(), theirs[name])
            tables.update(mine, gradients)
            store.update(theirs, gradients)
            seen = some_ids(rng)
            for name in NAMES:  # what was evicted is zeros in both
                close(tables.lookup(tensors(seen), train=False)[name].numpy(), store.lookup(seen, train=False)[name])
        figures, wanted = tables.stats(), store.stats()
        assert (figures["rows"], figures["evicted"]) == (wanted["rows"], wanted["evicted"])
        assert figures["rows_by_table"] == wanted["rows_by_group"]


def close(left: Any, right: Any) -> None:
    np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pooling", ["sum", "mean", "sqrt_n"])
def test_lists_are_pooled_as_in_a_store(pooling: str) -> None:
    rng, tables = np.random.default_rng(1), hashed(pooling=pooling)
    lists = rng.integers(0, 30, 20), np.array([0, 3, 3, 9, 20])
    batch = {"user": rng.integers(0, 9, 4), "item": lists}
    with store_like(tables, pooling=pooling) as store:
        for _ in range(3):
            found = tables({"user": torch.from_numpy(batch["user"]), "item": tuple(map(torch.from_numpy, lists))})
            wanted = store.lookup(batch)
            close(found.detach().reshape(4, -1).numpy(), wanted.packed)
            found.square().sum().backward()
            store.update(wanted, {name: 2 * np.asarray(wanted[name]) for name in NAMES})


def test_any_id_but_minus_one() -> None:
    tables = hashed()
    ids = torch.tensor([[2**63 - 1, -(2**63)], [-2, 0]])
    tables(ids).sum().backward()
    assert tables.stats()["rows"] == 4
    with torch.no_grad():
        assert (tables(ids) != 0).all()
        assert (tables(ids.flip(1)) == 0).all()  # the same ids in the other table
    with pytest.raises(DataError, match="'item' was asked for the id -1"):
        tables(torch.tensor([[1, -1]]))
    tables.check_ids()  # said once


def trained(steps: int, tables: HashedEmbeddings, seed: int = 0) -> HashedEmbeddings:
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        ids = torch.from_numpy(np.stack(list(some_ids(rng).values()), 1))
        tables(ids).square().sum().backward()
    return tables


def assert_same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for key in left:
        assert torch.equal(left[key], right[key]), key


def test_growing_changes_no_bit() -> None:
    small, large = (trained(6, hashed(capacity=capacity, optimizer="adam")) for capacity in (1, 4096))
    assert 1 < small.home.capacity < 4096 == large.home.capacity
    assert_same(small.state_dict(), large.state_dict())


@pytest.mark.parametrize("settings", [{}, {"dtype": "bfloat16", "max_rows": 30, "optimizer": "adam"}])
def test_what_is_saved_goes_on_with_the_same_bits(settings: dict[str, Any], tmp_path: Path) -> None:
    whole = trained(5, hashed(**settings))
    whole.save(tmp_path / "saved")
    resumed = hashed(**settings)
    trained(2, resumed, seed=9)  # what is there is replaced
    resumed.load(tmp_path / "saved")
    assert_same(resumed.state_dict(), whole.state_dict())
    assert_same(trained(4, resumed, 5).state_dict(), trained(4, whole, 5).state_dict())


def test_another_state_is_refused(tmp_path: Path) -> None:
    trained(1, hashed()).save(tmp_path / "saved")
    for other in (hashed(optimizer="adam"), HashedEmbeddings(["one"], DIM), HashedEmbeddings(NAMES, DIM + 1)):
        with pytest.raises(ArtefactError, match="not the state of hashed tables"):
            other.load(tmp_path / "saved")


def test_rows_of_a_look_up_stay_until_its_backward_pass() -> None:
    tables = hashed(max_rows=30, optimizer="sgd", lr=1.0)
    first = torch.tensor([[1001, 1001], [1002, 1002]])  # nobody else's
    found = tables(first)
    before = found.detach().clone()
    for start in range(100, 200, 10):
        with torch.no_grad():
            tables.lookup({name: torch.arange(start, start + 5) for name in NAMES})
    assert tables.stats()["rows"] <= 30
    found.sum().backward()
    # Rows 0 to 3 were given out first, and to nobody else since.
    torch.testing.assert_close(tables.weight[:4], before.transpose(0, 1).reshape(4, DIM) - 1.0)
    trained(4, tables)
    with torch.no_grad():
        assert (tables(first) == 0).all()  # gone by now


def test_a_batch_larger_than_the_budget_says_so() -> None:
    tables = hashed(max_rows=5)
    tables(torch.arange(20).reshape(10, 2)).sum().backward()
    with pytest.raises(MemoryBudgetError, match=r"one batch needs 20 rows, more than max_rows=5"):
        tables.stats()


def test_gradients_that_are_not_finite_cost_their_row_alone() -> None:
    tables = hashed(optimizer="sgd")
    ids = torch.tensor([[1, 1], [2, 2]])
    before = tables(ids).detach().clone()
    found = tables(ids)
    found.backward(torch.stack([torch.full((2, DIM), torch.inf), torch.ones(2, DIM)]))
    with torch.no_grad():
        after = tables(ids)
    assert torch.equal(after[0], before[0]) and (after[1] != before[1]).all() and tables.skipped_rows == 2


@pytest.mark.parametrize(
    ("tables", "settings", "said"),
    [
        ("user", {}, "different names"),
        (["a", "a"], {}, "different names"),
        ([], {}, "different names"),
        (Schema([ColumnSchema("price", "float32")]), {}, "categorical"),
        (["a"], {"capacity": 0}, "capacity"),
        (["a"], {"max_rows": -1}, "max_rows"),
        (["a"], {"optimizer": "ftrl"}, "ftrl"),
    ],
)
def test_wrong_settings_are_named(tables: Any, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(PenstockError, match=said):
        HashedEmbeddings(tables, 4, **settings)


def test_a_schema_needs_no_cardinality() -> None:
    schema = Schema([ColumnSchema("user", "int64", role="categorical"), ColumnSchema("price", "float32")])
    tables = HashedEmbeddings(schema, 4)
    assert tables.names == ["user"] and tables(torch.tensor([[2**50]])).shape == (1, 1, 4)
    with pytest.raises(ParameterError, match="concat"):
        tables(torch.tensor([[1]]), torch.ones(1, 1))


@pytest.mark.parametrize("settings", [{"optimizer": "adam", "max_rows": 40}, {"dtype": "bfloat16"}])
def test_a_store_goes_on_where_the_tables_are(settings: dict[str, Any]) -> None:
    tables = trained(5, hashed(**settings))
    with tables.as_store() as store:
        figures = tables.stats()
        assert store.stats()["rows_by_group"] == figures["rows_by_table"]
        assert set(store.stats()["steps"].values()) == {5}
        rng = np.random.default_rng(5)
        for _ in range(1 if "dtype" in settings else 4):  # 16 bits are rounded by other draws
            ids, gradient = some_ids(rng), rng.standard_normal((13, DIM)).astype(np.float32)
            mine, theirs = tables.lookup(tensors(ids)), store.lookup(ids)
            for name in NAMES:
                close(mine[name].numpy(), theirs[name])
            tables.update(mine, dict.fromkeys(NAMES, gradient))
            store.update(theirs, dict.fromkeys(NAMES, gradient))
        assert store.stats()["rows"] == tables.stats()["rows"]


def test_a_saved_model_predicts_with_the_rows_that_there_are(tmp_path: Path) -> None:
    from penstock.nn import MLP
    from penstock.serve import Predictor, save_model

    schema = Schema([ColumnSchema(name, "int64", role="categorical") for name in NAMES])
    tables = trained(3, HashedEmbeddings(schema, DIM, lr=0.5))
    model = MLP(schema, DIM, hidden=())
    save_model(tmp_path / "saved", None, model, tables)
    ids = {"user": np.array([2**61 + 1, 2**61 + 999]), "item": np.array([5, 6])}
    with torch.no_grad():
        wanted = torch.sigmoid(model(torch.empty(2, 0), tables(tensors(ids)))).flatten()
    with Predictor(tmp_path / "saved") as predictor:
        close(np.asarray(predictor.predict_features(pl.DataFrame(ids))).reshape(-1), wanted.numpy())


def test_triton_trains_the_same(on_triton: Callable[..., str]) -> None:
    """The module on Triton's interpreter: the bits of the CPU's index."""
    assert "trained alike" in on_triton(__file__)


if __name__ == "__main__":
    from on_both import train_on_both

    train_on_both(lambda: trained(2, hashed(max_rows=26)))
