"""What a store counts by table: rows made, ids found, ids missed."""

from __future__ import annotations

import numpy as np

from penstock.embedding import Adagrad, Admission, SlotConfig, Store


def make(**settings) -> Store:
    return Store([SlotConfig("user", 4), SlotConfig("ad", 8)], Adagrad(lr=0.1), num_threads=1, **settings)


def test_training_and_evaluation_are_told_apart() -> None:
    with make() as store:
        store.lookup({"user": [1, 2, 1], "ad": [7, 7, 7]})
        store.lookup({"user": [2, 3, 4], "ad": [7, 8, 8]})
        store.lookup({"user": [1, 9, 9], "ad": [5, 6, 7]}, train=False)
        tables = store.stats()["tables"]
    user, ad = tables["user"], tables["ad"]
    assert (user["ids"], user["distinct"], user["inserted"], user["absent"]) == (6, 5, 4, 0)
    assert (user["evaluated"], user["missed"]) == (2, 1)
    assert (ad["ids"], ad["distinct"], ad["inserted"], ad["evaluated"], ad["missed"]) == (6, 3, 2, 3, 2)
    assert (ad["rows"], ad["dim"], ad["payload_bytes"]) == (2, 8, 2 * 8 * 2 * 4)
    assert ad["bytes"] > ad["payload_bytes"]


def test_ids_that_wait_for_admission_are_absent() -> None:
    with make(admission=Admission(min_count=2)) as store:
        for _ in range(2):
            store.lookup({"user": [1, 2], "ad": [1, 1]})
        user = store.stats()["tables"]["user"]
    assert (user["distinct"], user["inserted"], user["absent"]) == (4, 2, 2)


def test_growing_tables_count_every_row_once() -> None:
    with make() as store:
        for start in range(0, 100_000, 20_000):
            ids = np.arange(start, start + 20_000)
            store.lookup({"user": ids, "ad": ids % 10})
        tables = store.stats()["tables"]
        assert tables["user"]["inserted"] == tables["user"]["rows"] == 100_000
        assert tables["ad"]["inserted"] == 10
        store.clear()
        assert store.stats()["tables"]["user"]["ids"] == 0
