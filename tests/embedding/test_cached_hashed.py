"""Hashed tables behind a cache: a store's numbers for any ids, whatever leaves the cache and comes back."""

from __future__ import annotations

import os
import subprocess
import sys
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
    HashedEmbeddings,
    Init,
    SlotConfig,
    Store,
    prefetched,
)

NAMES, DIM, SCALE, ROWS = ["user", "item", "tags"], 6, 0.05, 11
OPTIMIZERS = ["sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam"]


def cached(cache_rows: int = 60, **settings: Any) -> CachedEmbeddings:
    given = {"optimizer": "rowwise_adagrad", "lr": 0.1, "scale": SCALE, "seed": 3, **settings}
    return CachedEmbeddings(NAMES, DIM, cache_rows=cache_rows, hashed=True, **given)


def store_like(tables: CachedEmbeddings, pooling: str = "sum") -> Store:
    slots = [SlotConfig(name, DIM, pooling, init=Init("uniform", -SCALE, SCALE)) for name in NAMES]
    return Store(slots, tables.optimizer, seed=3, num_threads=1)


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


@pytest.mark.parametrize("together", [0, 1, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_numbers_are_a_stores(optimizer: str, together: int) -> None:
    tables = cached(60 * max(together, 1), optimizer=optimizer)
    tables.prefetch_batches = max(together, 1)
    batches = [tensors(batch(seed)) for seed in range(20)]
    with store_like(tables) as store:
        coming = prefetched(batches, tables, ids=lambda ids: ids) if together else iter(batches)
        for seed, ids in enumerate(coming):
            found, wanted = tables(ids), store.lookup(batch(seed))
            close(found.detach().reshape(ROWS, -1).numpy(), wanted.packed)
            gradient = np.random.default_rng(seed).standard_normal((ROWS, 3, DIM)).astype(np.float32)
            found.backward(torch.from_numpy(gradient))
            store.update(wanted, {name: gradient[:, i] for i, name in enumerate(NAMES)})
            if seed % 6 == 5:
                same_rows(tables, store, range(seed - 2, seed + 1))
        same_rows(tables, store, range(25))
        figures = tables.stats()
        assert figures["rows"] == store.stats()["rows"] == tables.store.stats()["rows"]
        assert figures["written_back"] > 0 and set(tables.store.stats()["steps"].values()) == {20}


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


@pytest.mark.parametrize("optimizer", ["adam", "rowwise_adagrad", "sgd"])
def test_what_is_saved_goes_on_with_the_same_bits(optimizer: str, tmp_path: Path) -> None:
    whole = trained(cached(optimizer=optimizer), range(5))
    whole.save(tmp_path / "saved")
    resumed = trained(cached(90, optimizer=optimizer), range(30, 33))  # what is there is replaced
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


def test_triton_trains_the_same() -> None:
    """The module on Triton's interpreter, in a process of its own: the numbers of the CPU's index."""
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, env={**os.environ, "TRITON_INTERPRET": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "trained alike" in done.stdout


def _interpreted() -> None:
    states = []
    for interpreted in ("1", "0"):
        os.environ["TRITON_INTERPRET"] = interpreted
        states.append(trained(cached(), range(3)).state_dict())
    mine, theirs = states
    for key in mine:
        if mine[key].is_floating_point():
            torch.testing.assert_close(mine[key], theirs[key], rtol=1e-5, atol=1e-6)
        else:
            assert torch.equal(mine[key], theirs[key]), key
    print("trained alike")


if __name__ == "__main__":
    _interpreted()
