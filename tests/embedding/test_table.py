"""Tables under admission, eviction and growth, against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import ParameterError
from penstock.embedding.optimizers import SGD, Adagrad, RowWiseAdam
from penstock.embedding.policies import Admission, Eviction, MemoryBudgetError
from penstock.embedding.slots import SlotConfig
from penstock.embedding.store import Store

ONE = np.ones


def ids_of(store):
    """The ids whose rows are in the store's first table."""
    table = store.tables.tables[0]
    signs = table.read(0, table.num_segments()).signs
    return set((signs - np.uint64(1)).tolist())  # no sign is 0


def move(store, ids, amount=1.0):
    found = store.lookup({"c": np.asarray(ids, np.int64)})
    store.update(found, {"c": np.full(found["c"].shape, amount, np.float32)})


class Model:
    """What an LRU or LFU table with a row budget holds: id → [weight moved so far, last touched, touches]."""

    def __init__(self, policy, budget):
        self.policy, self.budget, self.rows, self.clock = policy, budget, {}, 0

    def train(self, ids):
        self.clock += 1
        for i in set(ids):
            row = self.rows.setdefault(i, [0, 0, 0])
            row[1], row[2] = self.clock, row[2] + 1

    def rank(self, i):
        return self.rows[i][1 if self.policy == "lru" else 2]

    def evicted(self, survivors):
        gone = set(self.rows) - survivors
        if gone:
            evictable = [i for i in self.rows if self.rows[i][1] < self.clock]
            assert gone <= set(evictable)
            kept = [i for i in evictable if i in survivors]
            assert max(map(self.rank, gone)) <= min(map(self.rank, kept), default=10**9)
        for i in gone:
            del self.rows[i]


@settings(max_examples=60, deadline=None)
@given(
    policy=st.sampled_from(["lru", "lfu"]),
    batches=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=12), min_size=1, max_size=25),
)
def test_eviction_keeps_what_the_policy_says(policy, batches):
    budget = 16
    model = Model(policy, budget)
    with Store([SlotConfig("c", 3)], SGD(lr=1.0), eviction=Eviction(policy, max_rows=budget), num_threads=1) as store:
        fresh = Store([SlotConfig("c", 3)], SGD(lr=1.0), num_threads=1)
        for ids in batches:
            found = store.lookup({"c": np.array(ids)})
            model.train(ids)
            survivors = ids_of(store)
            assert store.stats()["rows"] == len(survivors) <= budget
            model.evicted(survivors)
            assert survivors == set(model.rows)
            store.update(found, {"c": ONE((len(ids), 3), np.float32)})
            for i in ids:
                model.rows[i][0] += 1
            everything = np.array(sorted(model.rows))
            initial = fresh.lookup({"c": everything})["c"]
            moved = np.array([model.rows[i][0] for i in everything.tolist()], np.float32)[:, None]
            np.testing.assert_allclose(store.lookup({"c": everything}, train=False)["c"], initial - moved, atol=1e-4)


@pytest.mark.parametrize("optimizer", [SGD(lr=1.0), Adagrad(), RowWiseAdam()], ids=["none", "vector", "both"])
def test_updates_to_evicted_rows_are_ignored_and_shift_nothing(optimizer):
    with Store([SlotConfig("c", 4)], optimizer, eviction=Eviction("lru", max_rows=4)) as store:
        stale = store.lookup({"c": [1, 2, 3, 4]})
        store.lookup({"c": [3, 4, 5, 6]})  # 1 and 2 go; their places are given to 5 and 6
        assert ids_of(store) == {3, 4, 5, 6}
        before = store.lookup({"c": [3, 4, 5, 6]}, train=False)["c"].copy()
        store.update(stale, {"c": np.ones((4, 4), np.float32)})
        after = store.lookup({"c": [3, 4, 5, 6]}, train=False)["c"]
        assert (after[:2] < before[:2]).all()
        np.testing.assert_array_equal(after[2:], before[2:])
        assert store.stats()["updates_to_evicted_rows"] == 2


def test_rows_expire_to_the_step():
    with Store([SlotConfig("c", 2)], SGD(lr=1.0), eviction=Eviction("ttl", steps=3)) as store:
        initial = store.lookup({"c": [1]})["c"].copy()
        move(store, [1])  # step 2
        for _ in range(3):
            store.lookup({"c": [9]})  # steps 3 to 5: row 1 was touched at step 2
        assert not store.lookup({"c": [1]}, train=False)["c"].any()  # the next step is 6: more than 3 ago
        np.testing.assert_array_equal(store.lookup({"c": [1]})["c"], initial)
        for _ in range(4):
            store.lookup({"c": [9]})
        assert ids_of(store) == {9}


def test_a_batch_beyond_the_budget_is_refused():
    with (
        Store([SlotConfig("c", 2)], SGD(), eviction=Eviction("lru", max_rows=5)) as store,
        pytest.raises(MemoryBudgetError, match=r"one batch needs 6 rows.*max_rows=5"),
    ):
        store.lookup({"c": [1, 2, 3, 4, 5, 6]})
    with (
        Store([SlotConfig("c", 2)], SGD(), eviction=Eviction("lru", max_bytes=100)) as store,
        pytest.raises(MemoryBudgetError, match="max_bytes=100"),
    ):
        store.lookup({"c": [1]})


def test_a_byte_budget_holds():
    budget = 8 << 20
    with Store(
        [SlotConfig("a", 16), SlotConfig("b", 64)], Adagrad(), eviction=Eviction("lru", max_bytes=budget)
    ) as store:
        most = 0
        for step in range(30):
            first = step * 2000
            store.lookup({"a": np.arange(first, first + 2000), "b": np.arange(first, first + 2000)})
            stats = store.stats()
            most = max(most, stats["bytes"])
            assert stats["bytes"] <= budget
        assert stats["evicted"] > 0
        assert stats["rows"] * 300 > budget / 3  # the budget is used, too
        assert most > budget / 2


def test_admission_by_probability_is_a_property_of_the_id():
    ids = np.arange(4000)
    with Store([SlotConfig("c", 2)], SGD(), admission=Admission(probability=0.25)) as store:
        first = store.lookup({"c": ids})["c"].any(axis=1)
        again = store.lookup({"c": ids})["c"].any(axis=1)
        np.testing.assert_array_equal(first, again)
        assert 0.2 < first.mean() < 0.3
        assert store.stats()["rows"] == first.sum()


def test_admission_by_count():
    with Store([SlotConfig("c", 2)], SGD(), admission=Admission(min_count=3, remember=100)) as store:
        for seen in range(3):
            found = store.lookup({"c": [1, 1, 2 + seen]})
            assert found["c"][0].any() == (seen == 2)
            store.update(found, {"c": np.ones((3, 2), np.float32)})
        stats = store.stats()
        assert (stats["rows"], stats["waiting"]) == (1, 3)
        store.lookup({"c": np.arange(1000, 1101)})  # too many wait: those seen once are forgotten
        assert store.stats()["waiting"] <= 50
        assert store.stats()["rows"] == 1


def test_growth_keeps_every_row():
    """Past one segment of the index, with rows found again in any order."""
    with Store([SlotConfig("c", 4)], SGD(lr=1.0), num_threads=1) as store:
        ids = np.random.default_rng(0).permutation(120_000).astype(np.int64) * 1_000_003
        for part in np.array_split(ids, 7):
            move(store, part)
        assert store.stats()["rows"] == len(ids)
        assert store.tables.tables[0].num_segments() > 4
        moved = store.lookup({"c": ids}, train=False)["c"]
        assert moved.shape == (120_000, 4)
        assert (np.abs(moved + 1) <= 0.01001).all()
        store.clear()
        assert store.stats()["rows"] == 0
        assert store.stats()["bytes"] < 10_000


def test_bytes_per_row():
    with Store([SlotConfig("c", 16)], Adagrad(), num_threads=1) as store:
        for first in range(0, 600_000, 100_000):
            store.lookup({"c": np.arange(first, first + 100_000)})
        stats = store.stats()
        assert stats["payload_bytes"] == 600_000 * 128
        assert stats["bytes"] / stats["payload_bytes"] < 1.6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Eviction("lru"), "needs max_rows or max_bytes"),
        (lambda: Eviction("lfu", max_rows=0), "Eviction.max_rows must be"),
        (lambda: Eviction("lru", max_rows=1, steps=2), "steps is for policy='ttl'"),
        (lambda: Admission(probability=1.5), "Admission.probability"),
        (lambda: Store([SlotConfig("c", 2)], "adam"), "Store.optimizer must be"),
        (lambda: Store([SlotConfig("c", 2)], SGD(), storage="int8"), "Store.storage must be one of"),
    ],
)
def test_bad_settings_are_refused_by_name(make, message):
    with pytest.raises(ParameterError, match=message):
        make()
