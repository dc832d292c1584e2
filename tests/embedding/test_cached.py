"""Tables behind a cache train as tables without one, whatever is evicted and however batches are announced."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from penstock.core.errors import DataError, ParameterError, PenstockError
from penstock.embedding import (
    SGD,
    Adagrad,
    CachedEmbeddings,
    Eviction,
    FusedEmbeddings,
    LazyAdam,
    SlotConfig,
    Store,
    prefetched,
)
from penstock.embedding.numbered_rows import NumberedRows

SIZES = {"user": 300, "item": 9, "tags": 40}
OPTIMIZERS = ["sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam"]


def batch(seed: int, rows: int = 12) -> dict:
    torch.manual_seed(seed)
    lengths = torch.randint(0, 4, (rows,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    user = (300 ** torch.rand(rows)).long().clamp(max=299)  # some come again and again
    return {
        "user": user,
        "item": torch.randint(0, 9, (rows,), dtype=torch.int8),
        "tags": (torch.randint(0, 40, (int(offsets[-1]),)), offsets),
    }


def pair(sizes, cache_rows: int, dim: int = 6, **settings) -> tuple[CachedEmbeddings, FusedEmbeddings]:
    """Tables with a cache and without, with the same weights."""
    cached = CachedEmbeddings(sizes, dim, cache_rows=cache_rows, **settings)
    plain = FusedEmbeddings(sizes, dim, **settings)
    plain.load_state_dict(cached.state_dict())
    return cached, plain


def train_on(ids, *modules) -> None:
    """A step of each on the same gradient; the look-ups must be the same bits."""
    outputs = [module(ids) for module in modules]
    factor = torch.randn_like(outputs[0])
    for out in outputs:
        torch.testing.assert_close(out, outputs[0], rtol=0, atol=0)
        (out * factor).sum().backward()


def assert_same(cached: CachedEmbeddings, plain: FusedEmbeddings) -> None:
    mine, theirs = cached.state_dict(), plain.state_dict()
    assert mine.keys() == theirs.keys()
    for key in mine:
        torch.testing.assert_close(mine[key], theirs[key], rtol=0, atol=0)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("cache_rows", [60, 400])  # the smaller holds one batch and hardly more
@pytest.mark.parametrize("together", [0, 1, 3])
def test_training_equals_tables_without_a_cache(name: str, cache_rows: int, together: int) -> None:
    cached, plain = pair(SIZES, cache_rows * max(together, 1), optimizer=name, lr=0.1, pooling="mean")
    cached.prefetch_batches = together
    batches = [batch(seed) for seed in range(25)]
    for seed, ids in enumerate(prefetched(batches, cached, ids=lambda b: b) if together else batches):
        train_on(ids, cached, plain)
        if seed % 7 == 0:  # looking without training moves rows, too
            with torch.no_grad():
                torch.testing.assert_close(cached(batch(seed + 100)), plain(batch(seed + 100)), rtol=0, atol=0)
    assert_same(cached, plain)


def patterns() -> dict[str, list[torch.Tensor]]:
    """Ids of steps that are hard on a cache of ten rows."""
    first, second = torch.arange(6), torch.arange(6, 12)
    scan = [torch.arange(i * 5, i * 5 + 8) % 50 for i in range(40)]
    turns = [(first, second)[i % 2] for i in range(40)]  # together more than the cache, and each comes back at once
    hot = [torch.cat([torch.zeros(3, dtype=torch.int64), torch.randint(0, 50, (5,))]) for _ in range(40)]
    grows = [torch.arange(i % 11) for i in range(40)]
    full = [torch.arange(10) + 10 * (i % 5) for i in range(40)]  # nothing of a batch can stay for the next
    return {"scan": scan, "turns": turns, "hot": hot, "grows": grows, "full": full}


@pytest.mark.parametrize("name", patterns())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_hard_patterns(name: str, dtype: str) -> None:
    torch.manual_seed(0)
    cached, plain = pair([50], 10, optimizer="adagrad", lr=0.1, dtype="float32")
    if dtype == "bfloat16":  # rounding depends on the slot, so weights are compared in float32 only
        cached = CachedEmbeddings([50], 6, cache_rows=10, optimizer="adagrad", lr=0.1, dtype=dtype)
    for step, ids in enumerate(prefetched([ids[:, None] for ids in patterns()[name]], cached, ids=lambda b: b)):
        if dtype == "float32":
            train_on(ids, cached, plain)
        else:
            before = cached(ids).detach().clone()
            cached(ids).sum().backward()
            with torch.no_grad():
                assert (cached(ids) != before).all(), step  # what was trained is what comes back
    if dtype == "float32":
        assert_same(cached, plain)


def test_an_update_that_is_pending_comes_back_with_its_row() -> None:
    """Rows leave the cache while the next batch is fetched, and return: every step's update must be in them."""
    cached = CachedEmbeddings([100], 4, cache_rows=4, optimizer="sgd", lr=1.0, scale=0.0)
    steps = [torch.tensor([[2 * (i % 3)], [2 * (i % 3) + 1]]) for i in range(60)]
    for ids in prefetched(steps, cached, ids=lambda b: b):
        cached(ids).sum().backward()
    assert cached.stats()["written_back"] >= 100
    torch.testing.assert_close(cached.state_dict()["weight"][:6], torch.full((6, 4), -20.0))


@pytest.mark.parametrize("name", patterns())
def test_hard_patterns_announced_together(name: str) -> None:
    torch.manual_seed(0)
    cached, plain = pair([50], 24, optimizer="adagrad", lr=0.1)  # three batches, and rarely six
    cached.prefetch_batches = 3
    steps = [ids[:, None] for ids in patterns()[name] if name != "full"] or [torch.arange(8)[:, None]] * 40
    for ids in prefetched(steps, cached, ids=lambda b: b):
        train_on(ids, cached, plain)
    assert_same(cached, plain)
    assert cached.stats()["batches"] >= 40


def test_batches_announced_together_are_looked_up_in_any_order() -> None:
    torch.manual_seed(0)
    cached, plain = pair([400], 100, lr=0.1)
    for _ in range(12):
        together = [torch.randint(0, 400, (9, 1)) for _ in range(4)]
        cached.prefetch(*together)
        for place in (2, 0, 3):  # the other one never comes
            train_on(together[place], cached, plain)
        if not torch.randint(0, 3, ()):
            train_on(torch.randint(0, 400, (9, 1)), cached, plain)
    assert_same(cached, plain)
    assert cached.stats()["batches"] > 48


def test_a_checkpoint_between_batches_announced_together() -> None:
    cached, plain = pair([60], 40, optimizer="sgd", lr=1.0)
    first, second, third = (torch.arange(i, i + 10)[:, None] for i in (0, 5, 30))
    cached.prefetch(first, second, third)
    train_on(first, cached, plain)
    assert_same(cached, plain)
    train_on(second, cached, plain)  # rows 5 to 9 change once more, in the same group
    assert_same(cached, plain)
    saved = cached.state_dict()
    train_on(third, cached, plain)
    cached.load_state_dict(saved)  # the rest of the group is brought in again
    plain.load_state_dict(saved)
    train_on(third, cached, plain)
    assert_same(cached, plain)


def test_how_many_batches_are_announced_together() -> None:
    ids = torch.zeros((1000, 2), dtype=torch.int64)
    large = [100_000, 100_000]
    assert CachedEmbeddings(large, 4, cache_rows=3999).batches_to_prefetch(ids) == 1
    assert CachedEmbeddings(large, 4, cache_rows=12_000).batches_to_prefetch(ids) == 3  # two groups fit
    assert CachedEmbeddings(large, 4, cache_rows=200_000).batches_to_prefetch(ids) == 32
    small = [50, 100_000]  # one table has no more rows than that, however many ids there are
    assert CachedEmbeddings(small, 4, cache_rows=12_050).batches_to_prefetch(ids) == 6
    lists = {"table_0": ids[:, 0], "table_1": (torch.zeros(3000, dtype=torch.int64), torch.arange(1001) * 3)}
    assert CachedEmbeddings(small, 4, cache_rows=12_050).batches_to_prefetch(lists) == 2
    assert CachedEmbeddings([50, 50], 4, cache_rows=9, prefetch_batches=5).batches_to_prefetch(ids) == 5
    with pytest.raises(ParameterError, match="prefetch_batches"):
        CachedEmbeddings([50], 4, cache_rows=9, prefetch_batches=0)
    cached = CachedEmbeddings([50], 4, cache_rows=9)
    cached.prefetch(torch.arange(6)[:, None], torch.arange(6, 12)[:, None])
    with pytest.raises(ParameterError, match=r"12 distinct rows of 2 batches announced together; .*prefetch_batches"):
        cached.prefetch(None)


def test_batches_that_were_not_announced_or_never_come() -> None:
    torch.manual_seed(0)
    cached, plain = pair([200], 30, lr=0.1)
    for step in range(40):
        ids = torch.randint(0, 200, (9, 1))
        if step % 3 == 0:
            cached.prefetch(torch.randint(0, 200, (9, 1)))  # another batch than the one that follows
        if step % 5 == 0:
            cached.prefetch(ids)
            cached.prefetch(torch.randint(0, 200, (9, 1)))
        if step % 4 == 0:
            cached.prefetch(None)
        if step % 11 == 0:
            ids += 0  # announced, then written to
        train_on(ids, cached, plain)
    assert_same(cached, plain)


def test_several_look_ups_before_their_backward_passes() -> None:
    cached, plain = pair([100], 24, lr=0.1)
    for step in range(20):
        parts = [torch.arange(8)[:, None] * (step + 1) % 100, torch.arange(8)[:, None] + 5 * step % 90]
        for tables in (cached, plain):
            first, second = (tables(ids) for ids in parts)
            (first * second).sum().backward()
    assert_same(cached, plain)


def test_announcing_does_not_wait_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    cached = CachedEmbeddings([100], 4, cache_rows=20)
    reading, go_on, read = threading.Event(), threading.Event(), NumberedRows.read

    def slow(self, *arguments) -> None:
        reading.set()
        assert go_on.wait(300)
        read(self, *arguments)

    monkeypatch.setattr(NumberedRows, "read", slow)
    ids = torch.tensor([[1], [2]])
    cached.prefetch(ids)
    assert reading.wait(300)  # elsewhere, while we are here
    threading.Timer(0.2, go_on.set).start()
    cached(ids)
    assert go_on.is_set()


def test_a_failure_on_the_way_is_raised_where_the_batch_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cached, plain = pair([100], 6, lr=0.1)
    with monkeypatch.context() as broken:
        broken.setattr(NumberedRows, "read", lambda *_: 1 / 0)
        cached.prefetch(torch.tensor([[1], [2]]))
        with pytest.raises(ZeroDivisionError):
            cached(cached.homes[0].in_flight.coming[0].batches[0].given)
    for low in (0, 3, 6, 0):
        train_on(torch.arange(low, low + 5)[:, None], cached, plain)
    cached.homes[0].rest()  # rows of the batches above may still be on their way to the store
    with monkeypatch.context() as broken:
        broken.setattr(NumberedRows, "write", lambda *_: 1 / 0)
        cached(torch.arange(20, 25)[:, None])
        with pytest.raises(ZeroDivisionError):  # rows were lost, and that must not go unseen
            cached(torch.arange(30, 35)[:, None])


def test_rows_are_really_evicted() -> None:
    cached = CachedEmbeddings([1000], 4, cache_rows=10, optimizer="sgd", lr=1.0)
    start = cached.state_dict()["weight"].clone()
    for low in range(0, 1000, 10):
        cached(torch.arange(low, low + 10)[:, None]).sum().backward()
    assert len(cached.weight) == 10
    torch.testing.assert_close(cached.state_dict()["weight"], start - 1)


def test_hot_rows_stay() -> None:
    """Rows leave in about the order of their last use: what is in every batch is fetched once."""
    cached = CachedEmbeddings([100_000], 4, cache_rows=1000)
    torch.manual_seed(0)
    hot = torch.arange(100)
    for _ in range(60):
        cached(torch.cat([hot, torch.randint(100, 100_000, (100,))])[:, None])
    figures = cached.stats()
    assert figures["brought_in"] <= 100 + 60 * 100 and figures["ids"] == 60 * 200


def test_loading_forgets_what_was_cached() -> None:
    first, second = (CachedEmbeddings([50], 4, cache_rows=8, scale=1.0) for _ in range(2))
    ids = torch.tensor([[1], [2]])
    second(ids)
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(second(ids), first(ids))


def test_the_store_behind_is_current_and_can_be_saved(tmp_path: Path) -> None:
    cached = CachedEmbeddings(SIZES, 6, cache_rows=64, optimizer="adam", lr=0.1)
    for seed in range(5):
        cached(batch(seed)).square().sum().backward()
    cached.store.save(tmp_path / "rows")
    ids = batch(3)
    with torch.no_grad():
        wanted = cached(ids)
    with Store.open(tmp_path / "rows", serving=True) as served:
        found = served.lookup({name: _plain(column) for name, column in ids.items()}, train=False)
        np.testing.assert_array_equal(found["user"], wanted[:, 0])
    with Store.open(tmp_path / "rows") as store:  # training goes on where it was, the step's number included
        again = CachedEmbeddings(SIZES, 6, cache_rows=64, optimizer="adam", lr=0.1, store=store)
        assert int(again.steps) == 5
        train_on(ids, cached, again)
        with torch.no_grad():
            torch.testing.assert_close(again(ids), cached(ids), rtol=0, atol=0)


def _plain(column):
    return tuple(part.numpy() for part in column) if isinstance(column, tuple) else column.numpy()


def test_a_checkpoint_of_changes_has_evicted_rows(tmp_path: Path) -> None:
    cached = CachedEmbeddings([100], 4, cache_rows=4, optimizer="sgd", lr=1.0, scale=0.0)
    for user in range(10):
        cached(torch.tensor([[user]])).sum().backward()
    cached.store.save(tmp_path / "base")
    for user in (1, 5, 50, 51, 52, 53):  # 1 and 5 change, then leave the cache
        cached(torch.tensor([[user]])).sum().backward()
    cached.store.save(tmp_path / "more", base=tmp_path / "base")
    with Store.open(tmp_path / "more", serving=True) as served:
        found = served.lookup({"table_0": np.array([0, 1, 5, 50])}, train=False)["table_0"]
    assert found[:, 0].tolist() == [-1, -2, -2, -1]


def test_a_store_that_is_loaded_replaces_the_cache(tmp_path: Path) -> None:
    cached = CachedEmbeddings([20], 4, cache_rows=8, scale=1.0)
    ids = torch.tensor([[3], [4]])
    before = cached(ids).detach().clone()
    cached.store.save(tmp_path / "rows")
    cached(ids).sum().backward()
    cached.store.load(tmp_path / "rows")
    torch.testing.assert_close(cached(ids), before)


def test_rows_replaced_behind_an_announced_batch(tmp_path: Path) -> None:
    cached = CachedEmbeddings([20], 4, cache_rows=8, scale=1.0)
    ids, following = torch.tensor([[3], [4]]), torch.tensor([[5], [6]])
    before = cached(ids).detach().clone()
    saved = {key: value.clone() for key, value in cached.state_dict().items()}
    cached.store.save(tmp_path / "rows")
    for restore in (lambda: cached.load_state_dict(saved), lambda: cached.store.load(tmp_path / "rows")):
        cached(ids).sum().backward()
        cached.prefetch(ids)
        restore()
        cached.prefetch(following)
        torch.testing.assert_close(cached(ids), before)


def test_a_store_that_is_cleared_is_not_written_to() -> None:
    cached = CachedEmbeddings([5000], 4, cache_rows=600, optimizer="sgd", lr=1.0, scale=1.0)
    store, ids = cached.store, torch.arange(500)[:, None]
    before = cached(ids).detach().clone()
    for low in range(0, 5000, 500):
        cached(torch.arange(low, low + 500)[:, None]).sum().backward()
    cached.prefetch(ids)
    store.clear()
    assert cached.store.stats()["rows"] == 0  # what was cached does not come back
    torch.testing.assert_close(cached(ids), before)
    assert cached.store.stats()["rows"] == 500


def test_a_batch_that_does_not_fit_spoils_nothing_else() -> None:
    cached = CachedEmbeddings([50], 4, cache_rows=4, optimizer="sgd", lr=1.0, scale=0.0)
    cached(torch.tensor([[1]])).sum().backward()
    cached.prefetch(torch.arange(6)[:, None])
    assert cached.state_dict()["weight"][1].tolist() == [-1] * 4
    with pytest.raises(ParameterError, match="does not hold the 6 distinct rows"):
        cached(cached.homes[0].in_flight.coming[0].batches[0].given)
    cached(torch.tensor([[1]])).sum().backward()
    assert cached.state_dict()["weight"][1].tolist() == [-2] * 4


def test_leaving_training_flushes() -> None:
    cached = CachedEmbeddings([20], 4, cache_rows=8, optimizer="sgd", lr=1.0, scale=0.0)
    cached(torch.tensor([[3]])).sum().backward()
    assert not cached.homes[0].store.lookup({"table_0": [3]}, train=False).packed.any()
    cached.eval()
    assert (cached.homes[0].store.lookup({"table_0": [3]}, train=False).packed == -1).all()


def test_plain_tables_for_serving() -> None:
    from penstock import ColumnSchema, Schema

    schema = Schema([ColumnSchema("user", "int64", role="categorical", cardinality=30)])
    cached = CachedEmbeddings(schema, 4, cache_rows=4, lr=0.1)
    for user in range(12):
        cached(torch.tensor([[user]])).sum().backward()
    with torch.no_grad():
        for user in range(12):
            torch.testing.assert_close(
                cached.tables()({"user": torch.tensor([user])}), cached(torch.tensor([[user]])), rtol=0, atol=0
            )


def test_too_many_rows_for_the_cache() -> None:
    cached = CachedEmbeddings({"user": 50}, 4, cache_rows=4)
    with pytest.raises(ParameterError, match="cache_rows=4 does not hold the 5 distinct rows of this batch"):
        cached(torch.arange(5)[:, None])
    cached(torch.tensor([[1], [2], [3], [1], [2], [3], [4], [4]]))  # four distinct ones fit
    cached.prefetch(torch.arange(6)[:, None])
    with pytest.raises(ParameterError, match="cache_rows=4 does not hold the 6 distinct rows"):
        cached.prefetch(torch.arange(2)[:, None])
    kept = [cached(torch.tensor([[i], [i + 1]])) for i in (10, 12)]
    with pytest.raises(ParameterError, match=r"beside those of batches whose backward pass .*no_grad"):
        cached(torch.tensor([[20]]))
    kept[0].sum().backward()
    cached(torch.tensor([[20]])).sum().backward()


def test_bad_input() -> None:
    cached = CachedEmbeddings({"user": 20, "item": 5}, 4, cache_rows=4)
    for wrong in (20, -1, 2**40):
        with pytest.raises(DataError, match=rf"id {wrong % 2**40 if wrong > 0 else wrong} is outside table 'user'"):
            cached(torch.tensor([[3, 1], [wrong, 2]]))
    cached.prefetch(torch.tensor([[99, 1]]))  # reported when it is looked up
    cached.prefetch(None)
    with pytest.raises(DataError, match="outside table 'user', which has rows 0 to 19"):
        cached(torch.tensor([[99, 1]]))
    with pytest.raises(DataError, match="must be"):
        cached.prefetch(torch.tensor([[1.5, 2.0]]))
    out = cached(torch.tensor([[1, 1]]))
    out.sum().backward(retain_graph=True)
    with pytest.raises(ParameterError, match="has had its backward pass"):
        out.sum().backward()
    empty = torch.empty((0, 2), dtype=torch.int64)
    cached.prefetch(empty)
    assert cached(empty).shape == (0, 2, 4)
    with pytest.raises(ParameterError, match="cache_rows"):
        CachedEmbeddings([3], 4, cache_rows=0)


def test_copies_are_refused_and_say_what_to_do() -> None:
    cached = CachedEmbeddings([30], 4, cache_rows=5)
    assert "30 rows of which 5 cached" in repr(cached)
    for attempt in (copy.deepcopy, pickle.dumps):
        with pytest.raises(PenstockError, match="state_dict"):
            attempt(cached)


def test_stores_that_do_not_fit() -> None:
    def refused(message: str, store: Store, **settings) -> None:
        with store, pytest.raises(ParameterError, match=message):
            CachedEmbeddings({"user": 20}, 4, cache_rows=4, store=store, optimizer="sgd", **settings)

    refused("made for Adagrad", Store([SlotConfig("user", 4)], Adagrad()))
    refused("made for None", Store([SlotConfig("user", 4)]))
    refused("keeps float16 rows", Store([SlotConfig("user", 4)], SGD(), storage="float16"))
    refused("no slot 'user'", Store([SlotConfig("users", 4)], SGD()))
    refused("dim=4", Store([SlotConfig("user", 8)], SGD()))
    refused("no eviction", Store([SlotConfig("user", 4)], SGD(), eviction=Eviction(max_rows=10)))
    with pytest.raises(ParameterError, match="store"):
        CachedEmbeddings([3], 4, cache_rows=1, store="store")


def test_a_store_trained_by_itself_goes_behind_a_cache() -> None:
    config, optimizer = [SlotConfig("user", 4), SlotConfig("other", 8)], LazyAdam(lr=0.1)
    with Store(config, optimizer) as store, Store(config, optimizer) as alone:
        for home in (store, alone):
            found = home.lookup({"user": [1, 2], "other": [1, 1]})
            home.update(found, {"user": np.ones((2, 4)), "other": np.ones((2, 8))})
        cached = CachedEmbeddings({"user": 9}, 4, cache_rows=3, optimizer=optimizer, store=store)
        (cached(torch.tensor([[1], [2]])) * 2).sum().backward()
        found = alone.lookup({"user": [1, 2], "other": [1, 1]})
        alone.update(found, {"user": np.full((2, 4), 2.0), "other": None})
        mine, theirs = (s.lookup({"user": [1, 2], "other": [1, 1]}, train=False) for s in (cached.store, alone))
        np.testing.assert_allclose(mine["user"], theirs["user"], rtol=1e-6)
        np.testing.assert_array_equal(mine["other"], theirs["other"])


class Clicks(torch.nn.Module):
    def __init__(self, tables) -> None:
        super().__init__()
        self.tables, self.layer = tables, torch.nn.Linear(8, 1)

    def forward(self, ids, numbers):
        return self.layer(self.tables(ids).flatten(1)).squeeze(1)


def click_loader():
    from penstock.loader.torch import Loader

    rng = np.random.default_rng(0)
    data = {"user": rng.integers(0, 500, 1000), "item": rng.integers(0, 40, 1000), "click": rng.integers(0, 2, 1000)}
    return Loader(data, 32, categorical=["user", "item"], labels=["click"], layout="packed")


def test_fit_announces_what_comes() -> None:
    from penstock.train import fit

    torch.manual_seed(0)
    cached, plain = pair({"user": 500, "item": 40}, 80, dim=4, lr=0.1)
    models = Clicks(cached), Clicks(plain)
    models[1].layer.load_state_dict(models[0].layer.state_dict())
    for model in models:
        fit(model, click_loader(), epochs=2, valid=click_loader(), progress=False)
    assert_same(cached, plain)
    assert cached.stats()["batches"] >= 2 * 2 * 32


def test_fit_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    from penstock.train import fit

    def trained(folder: str, *stops: int | None) -> Clicks:
        for stop in stops:
            torch.manual_seed(0)
            tables = CachedEmbeddings({"user": 500, "item": 40}, 4, cache_rows=80, optimizer="adam", lr=0.1)
            model = Clicks(tables)
            settings = {"epochs": 2, "progress": False, "checkpoint_every": 10}
            fit(model, click_loader(), checkpoint_dir=tmp_path / folder, max_steps=stop, **settings)
        return model

    whole, resumed = trained("whole", None).state_dict(), trained("resumed", 17, 41, None).state_dict()
    for key in whole:
        torch.testing.assert_close(resumed[key], whole[key], rtol=0, atol=0)


def test_triton_trains_the_same(on_triton: Callable[..., str]) -> None:
    """The kernels of a GPU on Triton's interpreter."""
    assert "trained alike" in on_triton(__file__)


def _interpreted() -> None:
    torch.manual_seed(0)
    cached, plain = pair(SIZES, 60, optimizer="rowwise_adagrad", lr=0.1)
    for ids in prefetched([batch(seed) for seed in range(4)], cached, ids=lambda b: b):
        outputs = [tables(ids) for tables in (cached, plain)]
        torch.testing.assert_close(outputs[0], outputs[1], rtol=1e-6, atol=1e-6)
        for out in outputs:
            out.square().sum().backward()
    mine, theirs = cached.state_dict(), plain.state_dict()
    for key in mine:
        torch.testing.assert_close(mine[key], theirs[key], rtol=1e-6, atol=1e-6)
    cached(torch.tensor([[300, 1, 1]]))
    try:
        cached.check_ids()
    except DataError as error:
        assert "id 300 is outside table 'user'" in str(error)
        print("trained alike")


if __name__ == "__main__":
    _interpreted()


FORGOTTEN = """
import gc, threading, time
import torch
from penstock.embedding import CachedEmbeddings, prefetched

def use():
    tables = CachedEmbeddings([20_000], 16, cache_rows=12_000)
    for ids in prefetched([torch.randint(0, 20_000, (4_000, 1)) for _ in range(3)], tables, ids=lambda b: b):
        tables(ids).sum().backward()

gc.disable()
use()
with threading._active_limbo_lock:  # held while any thread starts or ends, and the collector may run then
    gc.collect()
until = time.monotonic() + 300
while [t for t in threading.enumerate() if t.name.startswith(("penstock-cache", "penstock-store", "penstock-native"))]:
    assert time.monotonic() < until, threading.enumerate()
    time.sleep(0.01)
print("ended")
"""


def test_tables_that_are_forgotten_end_their_threads_and_wait_for_none() -> None:
    done = subprocess.run([sys.executable, "-c", FORGOTTEN], capture_output=True, text=True, timeout=600)
    assert done.stdout == "ended\n", done.stderr
