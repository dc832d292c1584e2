"""Stores, their checkpoints and their feeds against a dictionary of rows, over any sequence of calls.

Rows begin at zero and gradients are small whole numbers: every sum is exact, and rows are compared bit by bit.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.embedding import SGD, EmbeddingConfig, FeedReader, FeedWriter, Init, SlotConfig, Store

EDGES = [0, 1, 2, 3, 255, 2**32, 2**56 - 1, 2**56, 2**63, 2**64 - 2]
IDS = st.lists(st.sampled_from(EDGES), min_size=1, max_size=6)
SLOTS = [SlotConfig("user", 2, init=Init("zeros")), SlotConfig("item", 3, init=Init("zeros")),
         SlotConfig("seen", 3, group="item", init=Init("zeros"))]  # fmt: skip
CALLS = st.one_of(
    st.tuples(st.just("step"), IDS, st.integers(-3, 3), st.sampled_from(["plain", "reversed", "wide", "column"])),
    st.tuples(st.just("look up"), IDS),
    st.tuples(st.just("update"), st.integers(-3, 3)),
    st.tuples(st.sampled_from(["evaluate", "save", "save more", "publish"])),
)
OPTIONS = {"max_examples": 15, "deadline": None, "suppress_health_check": list(HealthCheck)}


class Model:
    """What a store should hold: for each group a row an id, after `row -= Σ gradients`."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], np.ndarray] = {}

    def insert(self, batch: dict[str, np.ndarray]) -> None:
        for slot in SLOTS:
            for identity in batch[slot.name].tolist():
                self.rows.setdefault((slot.group, identity), np.zeros(slot.dim, np.float32))

    def update(self, batch: dict[str, np.ndarray], gradients: dict[str, np.ndarray]) -> None:
        for slot in SLOTS:
            for identity, gradient in zip(batch[slot.name].tolist(), gradients[slot.name], strict=True):
                self.rows[slot.group, identity] = self.rows[slot.group, identity] - gradient


def batch_of(ids: list[int]) -> dict[str, np.ndarray]:
    array = np.array(ids, np.uint64)
    return {"user": array, "item": array[::-1], "seen": np.roll(array, 1)}


def gradients_of(batch: dict[str, np.ndarray], base: int, shape: str) -> dict[str, np.ndarray]:
    made = {}
    for slot in SLOTS:
        rows = len(batch[slot.name])
        plain = (np.arange(rows * slot.dim, dtype=np.float32).reshape(rows, slot.dim) % 5) + base
        wide = np.full((rows, 2 * slot.dim), 99, np.float32)
        wide[:, ::2] = plain
        made[slot.name] = {
            "plain": plain,
            "reversed": plain[::-1].copy()[::-1],
            "wide": wide[:, ::2],
            "column": np.asfortranarray(plain),
        }[shape]
    return made


def require_equal(store: Store, model: Model) -> None:
    found = store.lookup(batch_of(EDGES), train=False)
    for slot in SLOTS:
        for identity, row in zip(batch_of(EDGES)[slot.name].tolist(), found[slot.name], strict=True):
            expected = model.rows.get((slot.group, identity), np.zeros(slot.dim, np.float32))
            assert np.array_equal(row, expected), (slot.name, identity)
    assert store.stats()["rows"] == len(model.rows)


@contextmanager
def world(folder: Path) -> Iterator[tuple[Store, FeedWriter, FeedReader]]:
    config = EmbeddingConfig(SLOTS)
    with Store(config, SGD(lr=1.0), num_threads=1) as store, Store(config, num_threads=1) as serving:
        writer = FeedWriter(store, folder / "feed", whole_every=5)
        try:
            yield store, writer, FeedReader(folder / "feed", serving)
        finally:
            writer.close()


def check(calls: list[tuple[Any, ...]]) -> None:
    model, waiting, saved = Model(), [], 0
    with tempfile.TemporaryDirectory() as place, world(Path(place)) as (store, writer, reader):
        for name, *rest in calls:
            if name == "look up":
                model.insert(batch := batch_of(rest[0]))
                waiting.append((batch, store.lookup(batch)))
            elif name == "step" or (name == "update" and waiting):
                batch, found = (batch_of(rest[0]), None) if name == "step" else waiting.pop(0)
                model.insert(batch)
                base_value, shape = rest[1:] if name == "step" else (rest[0], "plain")
                gradients = gradients_of(batch, base_value, shape)
                store.update(found or store.lookup(batch), gradients)
                model.update(batch, gradients)
            elif name == "evaluate":
                require_equal(store, model)
            elif name.startswith("save"):
                base = Path(place, f"checkpoint-{saved}") if saved and name == "save more" else None
                saved += 1
                store.save(Path(place, f"checkpoint-{saved}"), base=base)
                with Store.open(Path(place, f"checkpoint-{saved}"), num_threads=1) as opened:
                    require_equal(opened, model)
            elif name == "publish":
                writer.publish()
                reader.poll()
                require_equal(reader.embeddings, model)
        require_equal(store, model)


@settings(**OPTIONS)
@given(st.lists(CALLS, max_size=14))
def test_a_few(calls):
    check(calls)


@pytest.mark.slow
@settings(**{**OPTIONS, "max_examples": 1000})
@given(st.lists(CALLS, max_size=40))
def test_many(calls):
    check(calls)
