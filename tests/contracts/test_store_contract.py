"""Contract 5: every home of a store gives the numbers of a dense torch table, whatever the number of shards."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from penstock.core.errors import DataError, PenstockError
from penstock.embedding import (
    FTRL,
    SGD,
    Adagrad,
    Adam,
    Admission,
    DecayedAdagrad,
    EmbeddingConfig,
    Eviction,
    HashStack,
    Init,
    LazyAdam,
    RayStore,
    RowWiseAdam,
    SecondWriterError,
    SlotConfig,
    Store,
)
from penstock.embedding.ray_actors import share_of

SLOTS = [
    SlotConfig("user", 8, init=Init("normal", 0, 0.1)),
    SlotConfig("tags", 16, pooling="mean", init=Init("uniform", -0.5, 0.5)),
    SlotConfig("seen", 8, pooling="raw", length=3, group="user", init=Init("normal", 0, 0.1)),
    SlotConfig("stack", 4, pooling="sqrt_n", hash_stack=HashStack(2, 50)),
]
OPTIMIZERS = [
    SGD(lr=0.1, momentum=0.9, weight_decay=0.01),
    Adagrad(lr=0.1),
    Adagrad(lr=0.1, row_wise=True),
    DecayedAdagrad(lr=0.1, initial_accumulator=0.01),
    Adam(lr=0.05),
    LazyAdam(lr=0.05),
    RowWiseAdam(lr=0.05),
    FTRL(lr=0.1, l1=0.01),
]


@pytest.fixture(scope="module")
def idle_actors():
    """Actors that a test is done with, by number of shards: a process takes seconds to start."""
    stores = {}
    yield stores
    for kept in stores.values():
        for store in kept:
            store.close()


def on_actors_of(store, config, optimizer, **given):
    """A store of other slots and settings on the actors of one that is not in use."""
    import ray

    plain = {"storage": "float32", "admission": None, "num_threads": 1, "seed": 0}
    eviction = share_of(given.pop("eviction", None), store.num_shards)
    settings = {**plain, "config": EmbeddingConfig(config), "optimizer": optimizer, "eviction": eviction, **given}
    calls, again = store._calls, lambda self, *given: self.__init__(*given)
    ray.get([s.__ray_call__.remote(again, k, store.num_shards, settings) for k, s in enumerate(calls.shards)])
    other = RayStore.__new__(RayStore)
    other._connect(ray, store.name, calls.coordinator, [(shard,) for shard in calls.shards], settings, 120.0)
    other.clear()
    return other


@pytest.fixture(params=["process", pytest.param("ray-1", marks=pytest.mark.slow), "ray-2"])
def make(request):
    """Creates a store in one of its homes; all are closed at the end."""
    stores, taken = [], []
    if request.param != "process":
        request.getfixturevalue("ray")
        idle = request.getfixturevalue("idle_actors").setdefault(request.param, [])

    def create(config, optimizer=None, **settings):
        if request.param == "process":
            stores.append(Store(config, optimizer, **settings))
        else:
            taken.append(idle.pop() if idle else RayStore(SLOTS, SGD(), num_shards=int(request.param[-1])))
            stores.append(on_actors_of(taken[-1], config, optimizer, **settings))
        return stores[-1]

    create.home = request.param
    yield create
    for store in stores:
        store.close()
    if taken:
        idle.extend(taken)


def some_batch(rng, samples=23):
    def lists(top):
        lengths = rng.integers(0, 4, samples)
        return rng.integers(0, top, lengths.sum()), np.concatenate([[0], np.cumsum(lengths)])

    return {
        "user": rng.integers(0, 30, samples),
        "tags": lists(40),
        "seen": lists(30),
        "stack": lists(2**40),
    }


def train(store, batches, seed=0):
    rng, outputs = np.random.default_rng(seed), []
    for batch in batches:
        found = store.lookup(batch)
        outputs.append({name: array.copy() for name, array in found.items()})
        store.update(found, {n: rng.normal(size=a.shape).astype(np.float32) for n, a in found.items()})
    return outputs


def test_all_homes_agree_for_every_optimizer(make):
    rng = np.random.default_rng(1)
    batches = [some_batch(rng) for _ in range(4)]
    store = None
    for optimizer in OPTIMIZERS:
        if store is None or make.home == "process":
            store = make(SLOTS, optimizer)
        else:
            before, store = store, on_actors_of(store, SLOTS, optimizer)
            before.close()
        with Store(SLOTS, optimizer, num_threads=1) as reference:
            for got, expected in zip(train(store, batches), train(reference, batches), strict=True):
                for name in expected:
                    np.testing.assert_array_equal(got[name], expected[name], err_msg=f"{optimizer} {name}")
            assert store.stats()["rows"] == reference.stats()["rows"]
            assert store.stats()["steps"] == reference.stats()["steps"]
            tables, expected_tables = store.stats()["tables"], reference.stats()["tables"]
            for group, table in expected_tables.items():
                for figure in ("rows", "dim", "payload_bytes", "distinct", "inserted"):
                    assert tables[group][figure] == table[figure], f"{group} {figure}"


@pytest.mark.parametrize(
    ("optimizer", "dense"),
    [
        (SGD(lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
        (Adagrad(lr=0.1), lambda p: torch.optim.Adagrad(p, lr=0.1)),
        (Adam(lr=0.1), lambda p: torch.optim.Adam(p, lr=0.1)),
    ],
    ids=["sgd", "adagrad", "adam"],
)
def test_it_trains_as_a_dense_table_does(make, optimizer, dense):
    if make.home != "process" and not isinstance(optimizer, Adam):
        pytest.skip("the homes agree with one another; the most intricate optimizer stands for all")
    rng = np.random.default_rng(2)
    store = make([SlotConfig("c", 16, init=Init("normal", 0, 0.1))], optimizer)
    table = torch.nn.Embedding(40, 16)
    table.weight.data.copy_(torch.from_numpy(store.lookup({"c": np.arange(40)})["c"].copy()))
    torch_optimizer = dense(table.parameters())
    for _ in range(15):
        ids, target = rng.integers(0, 40, 10), torch.from_numpy(rng.normal(size=(10, 16)).astype(np.float32))
        found = store.lookup({"c": ids})
        ((found.tensors()["c"] - target) ** 2).sum().backward()
        store.update(found)
        torch_optimizer.zero_grad()
        ((table(torch.from_numpy(ids)) - target) ** 2).sum().backward()
        torch_optimizer.step()
    last = store.lookup({"c": np.arange(40)}, train=False)["c"]
    np.testing.assert_allclose(last, table.weight.detach().numpy(), rtol=1e-4, atol=5e-6)


def test_masks_evaluation_clear_and_half_precision(make):
    store = make(SLOTS, Adagrad(), storage="bfloat16", admission=Admission(probability=1.0))
    batch = some_batch(np.random.default_rng(3))
    assert not store.lookup(batch, train=False).packed.any()
    assert store.stats()["rows"] == 0
    first = store.lookup(batch)
    with Store(SLOTS, Adagrad(), storage="bfloat16") as reference:
        expected = reference.lookup(batch)
        np.testing.assert_array_equal(first.packed, expected.packed)
        np.testing.assert_array_equal(first.masks["seen"], expected.masks["seen"])
    assert store.stats()["rows"] > 0
    store.clear()
    assert store.stats()["rows"] == 0


def test_bad_gradients_and_ids(make):
    store = make([SlotConfig("a", 4), SlotConfig("b", 4)], SGD(lr=1.0))
    with pytest.raises(DataError, match="slot 'a'"):
        store.lookup({"a": [0.5], "b": [1]})
    found = store.lookup({"a": [1], "b": [1]})
    before = found.packed.copy()
    store.update(found, {"a": np.full((1, 4), np.inf), "b": np.ones((1, 4))})
    after = store.lookup({"a": [1], "b": [1]}, train=False).packed
    np.testing.assert_array_equal(after[:, :4], before[:, :4])
    np.testing.assert_allclose(after[:, 4:], before[:, 4:] - 1)
    assert store.stats()["dropped_gradients"] == {"a": 1}
    assert store.stats()["steps"] == {"a": 0, "b": 1}


@pytest.mark.parametrize("optimizer", [Adagrad(lr=0.1), Adam(lr=0.05), RowWiseAdam()], ids=["adagrad", "adam", "row"])
def test_checkpoints_move_between_homes(make, tmp_path, optimizer):
    """Train, save, load into an in-process store and back into this home, train on: the same numbers."""
    if make.home == "ray-1" or (make.home == "ray-2" and not isinstance(optimizer, Adam)):
        pytest.skip("two shards and the most intricate optimizer stand for all")
    rng = np.random.default_rng(4)
    batches = [some_batch(rng) for _ in range(6)]
    with Store(SLOTS, optimizer) as straight:
        expected = train(straight, batches[:3], 5) + train(straight, batches[3:], 6)
    store = make(SLOTS, optimizer)
    train(store, batches[:3], 5)
    store.save(tmp_path / "one")
    with Store.open(tmp_path / "one") as moved:
        moved.save(tmp_path / "two")
    store.clear()
    store.load(tmp_path / "two")
    for got, want in zip(train(store, batches[3:], 6), expected[3:], strict=True):
        for name in want:
            np.testing.assert_array_equal(got[name], want[name])


def test_incremental_checkpoints(make, tmp_path):
    rng = np.random.default_rng(7)
    batches = [some_batch(rng) for _ in range(6)]
    eviction = Eviction("lru", max_rows=600)
    store = make(SLOTS, Adagrad(), eviction=eviction)
    train(store, batches[:2], 1)
    store.save(tmp_path / "base")
    train(store, batches[2:4], 2)
    store.save(tmp_path / "first", base=tmp_path / "base")
    train(store, batches[4:], 3)
    store.save(tmp_path / "second", base=tmp_path / "first")
    with pytest.raises(PenstockError, match="builds on the last one"):
        store.save(tmp_path / "third", base=tmp_path / "base")
    expected = store.lookup(batches[0], train=False).packed.copy()
    rows = store.stats()["rows"]
    with Store.open(tmp_path / "second") as loaded:
        np.testing.assert_array_equal(loaded.lookup(batches[0], train=False).packed, expected)
        assert loaded.stats()["rows"] == rows


def test_clients_share_a_store_by_name(ray):
    with RayStore([SlotConfig("c", 4)], SGD(lr=1.0), num_shards=2, name="shared") as store:
        other = RayStore.attach("shared")
        found = other.lookup({"c": [1, 2]})
        before = found["c"].copy()
        other.update(found, {"c": np.ones((2, 4), np.float32)})
        np.testing.assert_allclose(store.lookup({"c": [1, 2]})["c"], before - 1)
        with pytest.raises(SecondWriterError, match="a store named 'shared' exists already"):
            RayStore([SlotConfig("c", 4)], SGD(), name="shared")
        other.close()
        assert store.stats()["rows"] == 2
    with pytest.raises(PenstockError, match="no store named 'gone'"):
        RayStore.attach("gone")
