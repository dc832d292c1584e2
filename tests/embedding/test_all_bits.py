"""Ids take all 64 bits; the group is no part of them; stores that were saved with a prefix still load."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.core.errors import ArtefactError, DataError
from penstock.embedding import SGD, Admission, EmbeddingConfig, HashStack, SlotConfig, Store

SLOTS = [SlotConfig("user", dim=4), SlotConfig("item", dim=4), SlotConfig("seen", dim=4, group="item")]
EDGES = [0, 1, 2**32, 2**55, 2**56 - 2, 2**56 - 1, 2**56, 2**57 - 2, 2**63 - 1, 2**63, 2**64 - 2]


def batch(ids):
    ids = np.array(ids, np.uint64)
    return {"user": ids, "item": ids, "seen": ids[::-1]}


def train(store, ids, gradient=1.0):
    found = store.lookup(batch(ids))
    store.update(found, {name: np.full((len(ids), 4), gradient, np.float32) for name in found})


def test_ids_of_all_64_bits_have_rows_of_their_own():
    with Store(SLOTS, SGD(lr=1.0)) as store:
        train(store, EDGES)
        assert store.stats()["rows_by_group"] == {"user": len(EDGES), "item": len(EDGES)}
        before = store.lookup(batch(EDGES), train=False)["user"].copy()
        train(store, [2**56 - 1])
        after = store.lookup(batch(EDGES), train=False)["user"]
        changed = np.flatnonzero((before != after).any(axis=1))
        assert [EDGES[i] for i in changed] == [2**56 - 1], "0 and 2^56 - 1 shared a row"


def test_two_groups_begin_with_other_values_and_slots_of_one_group_share_rows():
    with Store(SLOTS, SGD()) as store:
        found = store.lookup(batch(EDGES))
        assert not (found["user"] == found["item"]).all(axis=1).any()
        assert np.array_equal(found["item"], found["seen"][::-1])


def test_the_one_id_without_a_sign_is_refused():
    with Store(SLOTS, SGD()) as store:
        with pytest.raises(DataError, match=r"slot 'user': ids go from 0 to 2\^64 - 2, got 18446744073709551615"):
            store.lookup(batch([2**64 - 1]))
        assert store.stats()["rows"] == 0
    with Store([SlotConfig("user", 4, hash_stack=HashStack(2, 100))], SGD()) as store:
        assert store.lookup({"user": np.array([2**64 - 1, 2**63], np.uint64)})["user"].shape == (2, 4)
    with Store(EmbeddingConfig(SLOTS, prefix_bits=8), SGD()) as store:
        train(store, [2**64 - 1])


def test_prefix_bits_fold_as_they_did():
    config = EmbeddingConfig(SLOTS, prefix_bits=8)
    with Store(config, SGD()) as store:
        found = store.lookup(batch([0, 2**56 - 1]))
        assert np.array_equal(found["user"][0], found["user"][1])
        signs, _ = store.tables.tables[0].entries()
        assert signs.tolist() == [1 << 56]


@pytest.mark.parametrize("admission", [None, Admission(min_count=2)])
def test_a_store_saved_with_prefixes_loads_without(tmp_path, admission):
    ids = [0, 5, 2**40, 2**56 - 2]
    with Store(EmbeddingConfig(SLOTS, prefix_bits=8), SGD(lr=0.5), admission=admission) as old:
        train(old, ids)
        train(old, ids)
        old.save(tmp_path / "base")
        train(old, ids[:2])
        train(old, [77])
        old.save(tmp_path / "next", base=tmp_path / "base")
        expected = old.lookup(batch(ids), train=False)["seen"].copy()
    with Store.open(tmp_path / "next") as opened:
        assert opened.config.prefix_bits == 8
        assert np.array_equal(opened.lookup(batch(ids), train=False)["seen"], expected)
    with Store(SLOTS, SGD(lr=0.5), admission=admission) as native:
        native.load(tmp_path / "next")
        assert np.array_equal(native.lookup(batch(ids), train=False)["seen"], expected)
        train(native, [77])
        assert native.stats()["rows_by_group"]["user"] == len(ids) + 1
        native.save(tmp_path / "native")
    with Store(EmbeddingConfig(SLOTS, prefix_bits=8), SGD()) as back, pytest.raises(ArtefactError, match="prefix_bits"):
        back.load(tmp_path / "native")
