"""Hashed tables behind a cache: a store's numbers for any ids, whatever leaves the cache and comes back."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from penstock import ColumnSchema, Schema
from penstock.core.errors import ArtefactError, DataError, ParameterError
from penstock.embedding import (
    CachedEmbeddings,
    EmbeddingConfig,
    Eviction,
    HashedEmbeddings,
    Init,
    MemoryBudgetError,
    SlotConfig,
    Store,
    prefetched,
)
from penstock.embedding.hashed.listed_rows import listed_rows

NAMES, DIM, SCALE, ROWS = ["user", "item", "tags"], 6, 0.05, 11
OPTIMIZERS = ["sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam"]


def cached(cache_rows: int = 60, **settings: Any) -> CachedEmbeddings:
    given = {"optimizer": "rowwise_adagrad", "lr": 0.1, "scale": SCALE, "seed": 3, **settings}
    return CachedEmbeddings(NAMES, DIM, cache_rows=cache_rows, hashed=True, **given)


def store_like(tables: CachedEmbeddings, pooling: str = "sum") -> Store:
    slots = [SlotConfig(name, DIM, pooling, init=Init("uniform", -SCALE, SCALE)) for name in NAMES]
    eviction = None if tables.max_rows is None else Eviction("lru", max_rows=tables.max_rows)
    return Store(slots, tables.optimizer, seed=3, eviction=eviction, num_threads=1)


def batch(seed: int, most: int = 200) -> dict[str, Any]:
    """Ids of all sizes; the later the seed, the more of them are new."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 4, ROWS)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return {
        "user": rng.integers(0, most, ROWS) + 2**61 + 7 * seed,
        "item": rng.integers(0, 9, ROWS).astype(np.int32),
        "tags": (rng.integers(0, most, offsets[-1]), offsets),
    }


def tensors(given: dict[str, Any]) -> dict[str, Any]:
    lists = {name: tuple(map(torch.from_numpy, c)) for name, c in given.items() if isinstance(c, tuple)}
    return {name: lists.get(name) or torch.from_numpy(column) for name, column in given.items()}


def close(left: Any, right: Any) -> None:
    np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)


def same_rows(tables: CachedEmbeddings, store: Store, seeds: range) -> None:
    for seed in seeds:
        with torch.no_grad():
            found = tables(tensors(batch(seed))).reshape(ROWS, -1)
        close(found.numpy(), store.lookup(batch(seed), train=False).packed)


def trained_with(tables: CachedEmbeddings, store: Store, together: int, compared: bool) -> None:
    """Twenty steps in both; `compared`, also what evaluation finds in between."""
    tables.prefetch_batches = max(together, 1)
    batches = [tensors(batch(seed)) for seed in range(20)]
    coming = prefetched(batches, tables, ids=lambda ids: ids) if together else iter(batches)
    for seed, ids in enumerate(coming):
        found, wanted = tables(ids), store.lookup(batch(seed))
        close(found.detach().reshape(ROWS, -1).numpy(), wanted.packed)
        gradient = np.random.default_rng(seed).standard_normal((ROWS, 3, DIM)).astype(np.float32)
        found.backward(torch.from_numpy(gradient))
        store.update(wanted, {name: gradient[:, i] for i, name in enumerate(NAMES)})
        if compared and seed % 6 == 5:
            same_rows(tables, store, range(seed - 2, seed + 1))


@pytest.mark.parametrize("together", [0, 1, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_numbers_are_a_stores(optimizer: str, together: int) -> None:
    tables = cached(60 * max(together, 1), optimizer=optimizer)
    with store_like(tables) as store:
        trained_with(tables, store, together, compared=True)
        same_rows(tables, store, range(25))
        figures = tables.stats()
        assert figures["rows"] == store.stats()["rows"] == tables.store.stats()["rows"]
        assert figures["written_back"] > 0 and set(tables.store.stats()["steps"].values()) == {20}


def last_used(store: Store) -> dict[str, torch.Tensor]:
    """Whose rows there are, and which steps used them last."""
    found = listed_rows(store, NAMES, {})
    return {name: found[name] for name in ("tables", "ids", "touched", "clock")}


@pytest.mark.parametrize(
    ("max_rows", "cache_rows", "together"),
    # A bound below the cache, about as large and above; batches that must wait for one another, and that need not.
    [(40, 45, 0), (40, 60, 1), (60, 200, 1), (90, 60, 1), (90, 120, 2), (120, 200, 3), (200, 60, 0), (200, 200, 3)],
)
def test_with_a_bound_the_least_recently_used_rows_go_as_in_a_store(
    max_rows: int, cache_rows: int, together: int
) -> None:
    tables = cached(cache_rows, max_rows=max_rows)
    with store_like(tables) as store:
        trained_with(tables, store, together, compared=together == 0)
        same_rows(tables, store, range(25))
        figures, wanted = tables.stats(), store.stats()
        assert (figures["rows"], figures["evicted"]) == (wanted["rows"], wanted["evicted"])
        assert wanted["evicted"] > 50 and figures["rows"] <= max_rows
        assert_same(last_used(tables.store), last_used(store))


def test_a_copy_of_an_announced_batch_is_that_batch() -> None:
    """As a captured step has them while it warms up: brought in twice, rows would be used in another order."""
    tables = cached(200, max_rows=120, prefetch_batches=2)
    with store_like(tables) as store:
        for seed, ids in enumerate(prefetched([tensors(batch(s)) for s in range(20)], tables, ids=lambda ids: ids)):
            tables(copy.deepcopy(ids)).sum().backward()
            store.update(store.lookup(batch(seed)), {name: np.ones((ROWS, DIM), np.float32) for name in NAMES})
        assert_same(last_used(tables.store), last_used(store))
        assert tables.stats()["evicted"] == store.stats()["evicted"] > 50


def test_a_batch_that_was_written_into_is_another() -> None:
    tables, ids = cached(200), tensors(batch(0))
    tables.prefetch(ids)
    ids["user"].add_(1)
    tables(ids).sum().backward()
    known = last_used(tables.store)
    assert set(ids["user"].tolist()) <= set(known["ids"][known["tables"] == 0].tolist())


@pytest.mark.parametrize("settings", [{"optimizer": "adam"}, {"dtype": "bfloat16", "optimizer": "sgd"}])
def test_a_bound_can_be_repeated_bit_for_bit(settings: dict[str, Any]) -> None:
    states = []
    for _ in range(2):
        tables = cached(200, max_rows=120, prefetch_batches=3, **settings)
        for ids in prefetched([tensors(batch(seed)) for seed in range(12)], tables, ids=lambda ids: ids):
            tables(ids).square().sum().backward()
        states.append(tables.state_dict())
    assert_same(*states)


def test_the_bound_is_that_of_hashed_tables() -> None:
    behind, plain = cached(max_rows=50), HashedEmbeddings(NAMES, DIM, max_rows=50, lr=0.1, scale=SCALE, seed=3)
    for tables in (behind, plain):
        trained(tables, range(9))
    assert behind.stats()["evicted"] == plain.stats()["evicted"] > 100
    again = cached(max_rows=50)
    again.load_state_dict(plain.state_dict())
    assert_same(last_used(again.store), last_used(behind.store))


def test_a_smaller_bound_holds_as_soon_as_rows_are_loaded() -> None:
    whole = trained(cached(), range(6))
    fewer = cached(max_rows=60)
    fewer.load_state_dict(whole.state_dict())
    assert fewer.num_rows <= 60 < whole.num_rows
    assert trained(fewer, range(6, 8)).num_rows <= 60


def test_rows_in_flight_stay() -> None:
    tables = cached(200, max_rows=80)
    first, second = tables(tensors(batch(0))), tables(tensors(batch(1)))  # no backward pass so far
    with pytest.raises(ParameterError, match=r"max_rows=80 does not hold .* train on the batches before first"):
        tables(tensors(batch(2)))
    (first.sum() + second.sum()).backward()
    trained(tables, range(2, 4))
    assert tables.num_rows <= 80


def test_a_batch_larger_than_the_bound_is_refused() -> None:
    tables = cached(max_rows=5)
    with pytest.raises(MemoryBudgetError, match=r"one batch needs \d+ rows .*max_rows=5"):
        tables(tensors(batch(0)))
    one = {"user": torch.tensor([7]), "item": torch.tensor([8]), "tags": torch.tensor([9])}
    trained_on = tables(one)
    trained_on.sum().backward()
    assert tables.num_rows <= 5 and (trained_on != 0).all()


def test_changes_since_a_checkpoint_tell_of_rows_that_went(tmp_path: Path) -> None:
    tables = trained(cached(45, max_rows=60), range(4))
    tables.store.save(tmp_path / "base")
    trained(tables, range(4, 8))
    tables.store.save(tmp_path / "changes", base=tmp_path / "base")
    with Store.open(tmp_path / "changes") as opened:
        assert opened.tables.eviction == Eviction("lru", max_rows=60)
        assert_same(last_used(opened), last_used(tables.store))
        same_rows(tables, opened, range(9))


@pytest.mark.parametrize("pooling", ["mean", "sqrt_n"])
def test_lists_are_pooled_as_in_a_store(pooling: str) -> None:
    tables = cached(pooling=pooling)
    with store_like(tables, pooling) as store:
        for seed in range(3):
            found, wanted = tables(tensors(batch(seed))), store.lookup(batch(seed))
            close(found.detach().reshape(ROWS, -1).numpy(), wanted.packed)
            found.square().sum().backward()
            store.update(wanted, {name: 2 * np.asarray(wanted[name]) for name in NAMES})


def trained(tables: Any, seeds: range) -> Any:
    for seed in seeds:
        tables(tensors(batch(seed))).square().sum().backward()
    return tables


def test_looking_inserts_nothing() -> None:
    tables = trained(cached(), range(3))
    before = tables.stats()["rows"]
    unseen = tensors(batch(50))
    unseen["user"] = unseen["user"] + 2**40
    with torch.no_grad():
        assert (tables(unseen)[:, 0] == 0).all()
    tables.eval()
    tables.prefetch(unseen)
    with torch.no_grad():
        assert (tables(unseen)[:, 0] == 0).all()
    tables.train()
    assert tables.stats()["rows"] == before == tables.store.stats()["rows"]
    tables.prefetch(None)
    assert (tables(unseen)[:, 0] != 0).any()  # trained on after all
    assert tables.stats()["rows"] > before


def test_the_index_is_built_anew_as_ids_come_and_go() -> None:
    """Ids that left keep their entries for a while; small tables then take place from large ones."""
    tables = CachedEmbeddings(["a", "b"], DIM, cache_rows=300, hashed=True, optimizer="sgd", lr=1.0, scale=0.0)
    places = tables.homes[0].cache.places
    entries, address = len(places.index.entries), places.index.entries.data_ptr()
    for step in range(250):
        ids = torch.arange(2 * step, 2 * step + 10)
        tables(torch.stack([ids, ids % 3], 1)).sum().backward()
    assert tables.stats()["written_back"] > 200  # more than there were empty entries
    assert (len(places.index.entries), places.index.entries.data_ptr()) == (entries, address)
    assert not tables.make_room()
    wide = torch.arange(10**6, 10**6 + 280)
    tables(torch.stack([wide, wide % 3], 1)).sum().backward()
    assert len(places.index.entries) > entries and tables.make_room() and not tables.make_room()
    with torch.no_grad():
        assert (tables(torch.tensor([[400, 0]]))[0, 0] == -5.0).all()  # in five batches, through all of that


def test_any_id_but_minus_one() -> None:
    tables = cached()
    ids = {"user": torch.tensor([2**63 - 1, -(2**63)]), "item": torch.tensor([-2, 0]), "tags": torch.tensor([5, 6])}
    tables(ids).sum().backward()
    assert tables.stats()["rows"] == 6
    with torch.no_grad():
        assert (tables(ids) != 0).all()
    with pytest.raises(DataError, match="'item' was asked for the id -1"):
        tables({**ids, "item": torch.tensor([-1, 4])})
    tables.check_ids()  # said once


def assert_same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for key in left:
        assert torch.equal(left[key], right[key]), key


@pytest.mark.parametrize("settings", [{"optimizer": "adam"}, {}, {"optimizer": "sgd"}, {"max_rows": 50}])
def test_what_is_saved_goes_on_with_the_same_bits(settings: dict[str, Any], tmp_path: Path) -> None:
    whole = trained(cached(**settings), range(5))
    whole.save(tmp_path / "saved")
    resumed = trained(cached(90, **settings), range(30, 33))  # what is there is replaced
    resumed.load(tmp_path / "saved")
    assert_same(resumed.state_dict(), whole.state_dict())
    assert_same(trained(resumed, range(5, 9)).state_dict(), trained(whole, range(5, 9)).state_dict())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_either_kind_of_hashed_tables_loads_the_others_state(dtype: str) -> None:
    plain = HashedEmbeddings(NAMES, DIM, optimizer="adam", lr=0.1, scale=SCALE, seed=3, dtype=dtype)
    behind = cached(optimizer="adam", dtype=dtype)
    trained(plain, range(4))
    behind.load_state_dict(plain.state_dict())
    back = HashedEmbeddings(NAMES, DIM, optimizer="adam", lr=0.1, scale=SCALE, seed=3, dtype=dtype)
    back.load_state_dict(behind.state_dict())
    for tables in (behind, back):
        with torch.no_grad():
            for seed in range(6):
                assert torch.equal(tables(tensors(batch(seed))), plain(tensors(batch(seed))))


def test_another_state_is_refused(tmp_path: Path) -> None:
    trained(cached(), range(1)).save(tmp_path / "saved")
    kept = trained(cached(optimizer="adam"), range(2))
    before = kept.stats()["rows"]
    with pytest.raises(ArtefactError, match="not the state of hashed tables"):
        kept.load(tmp_path / "saved")
    assert kept.stats()["rows"] == before


def test_a_store_trained_by_itself_goes_behind_the_cache() -> None:
    with store_like(cached()) as store:
        store.update(store.lookup(batch(0)), {name: np.ones((ROWS, DIM)) for name in NAMES})
        wanted = store.lookup(batch(0), train=False).packed.copy()
        tables = cached(store=store)
        with torch.no_grad():
            close(tables(tensors(batch(0))).reshape(ROWS, -1).numpy(), wanted)


def test_stores_and_settings_that_do_not_fit() -> None:
    slots = [SlotConfig(name, DIM) for name in NAMES]
    with pytest.raises(ParameterError, match="prefix_bits=8"):
        cached(store=Store(EmbeddingConfig(slots, 8), cached().optimizer))
    with pytest.raises(ParameterError, match="pooling='sum', the tables 'mean'"):
        cached(store=Store(slots, cached().optimizer), pooling="mean")
    evicting = Store(slots, cached().optimizer, eviction=Eviction("lru", max_rows=9))
    with pytest.raises(ParameterError, match=r"max_rows=8 and the bound .*max_rows=9.* differ"):
        cached(store=evicting, max_rows=8)
    assert cached(store=evicting).max_rows == cached(store=evicting, max_rows=9).max_rows == 9
    with pytest.raises(ParameterError, match="policy='lru' and max_rows alone"):
        cached(store=Store(slots, cached().optimizer, eviction=Eviction("lfu", max_rows=9)))
    with pytest.raises(ParameterError, match="is for hashed=True"):
        CachedEmbeddings([10, 20], 4, cache_rows=9, max_rows=9)
    with pytest.raises(ParameterError, match="dim"):
        CachedEmbeddings(NAMES, [4, 4, 8], cache_rows=9, hashed=True)
    with pytest.raises(ParameterError, match="different names"):
        CachedEmbeddings([10, 20], 4, cache_rows=9, hashed=True)
    with pytest.raises(ParameterError, match="share"):
        CachedEmbeddings(NAMES, 4, cache_rows=9, hashed=True, share=True)
    with pytest.raises(ParameterError, match=r"\.store"):
        cached().tables()
    with pytest.raises(ParameterError, match="cache_rows=4 does not hold"):
        cached(4)(tensors(batch(0)))


def test_a_saved_model_predicts_with_the_rows_that_there_are(tmp_path: Path) -> None:
    from penstock.nn import MLP
    from penstock.serve import Predictor, save_model

    schema = Schema([ColumnSchema(name, "int64", role="categorical") for name in NAMES[:2]])
    tables = CachedEmbeddings(schema, DIM, cache_rows=30, hashed=True, lr=0.5)
    for seed in range(3):
        tables({name: tensors(batch(seed))[name] for name in NAMES[:2]}).square().sum().backward()
    model = MLP(schema, DIM, hidden=())
    save_model(tmp_path / "saved", None, model, tables)
    ids = {"user": np.append(batch(1)["user"][:3], 5), "item": np.array([3, 4, 5, 2**62])}
    with torch.no_grad():
        wanted = torch.sigmoid(model(torch.empty(4, 0), tables(tensors(ids)))).flatten()
    with Predictor(tmp_path / "saved") as predictor:
        close(np.asarray(predictor.predict_features(pl.DataFrame(ids))).reshape(-1), wanted.numpy())
    trained_again = tables({name: tensors(batch(9))[name] for name in NAMES[:2]})  # its store is still open
    trained_again.sum().backward()


def test_triton_trains_the_same(on_triton: Callable[..., str]) -> None:
    """The module on Triton's interpreter: the numbers of the CPU's index."""
    assert "trained alike" in on_triton(__file__)


if __name__ == "__main__":
    from on_both import train_on_both

    train_on_both(lambda: trained(cached(max_rows=50), range(4)))
