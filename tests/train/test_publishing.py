"""A training publishes what it learns; who follows it predicts what its model predicts, bit for bit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from penstock import Dataset
from penstock.core.errors import ArtefactError, ParameterError
from penstock.embedding import (
    Adagrad,
    CachedEmbeddings,
    EmbeddingTables,
    FeedWriter,
    FusedEmbeddings,
    HashedEmbeddings,
    Store,
    slots_from_schema,
)
from penstock.embedding.feed_packets import TABLES, packet_numbers, packet_path
from penstock.loader.torch import Loader
from penstock.nn import MLP
from penstock.serve import Predictor, save_model
from penstock.train import Checkpointer, Feed, TrainRecord, fit

ROWS = pl.DataFrame(
    {
        "user": np.random.default_rng(0).integers(0, 30, 240),
        "item": np.random.default_rng(1).integers(0, 50, 240),
        "price": np.random.default_rng(2).normal(size=240).astype(np.float32),
        "click": (np.random.default_rng(0).integers(0, 30, 240) % 2).astype(np.float32),
    }
)
EVERYTHING = ROWS.drop("click")


def features() -> Dataset:
    data = Dataset(ROWS).with_roles(categorical=["user", "item"], continuous=["price"], label=["click"])
    schema = data.schema
    for name, size in (("user", 30), ("item", 50)):
        schema = schema.with_column(schema[name].with_(cardinality=size))
    return Dataset(ROWS, schema=schema)


HOMES: dict[str, Any] = {
    "store": lambda schema: Store(slots_from_schema(schema, 4), Adagrad(lr=0.3)),
    "fused": lambda schema: FusedEmbeddings(schema.select(roles="categorical"), 4, optimizer="adagrad", lr=0.3),
    "cached": lambda schema: CachedEmbeddings(
        schema.select(roles="categorical"), 4, cache_rows=70, optimizer="adagrad", lr=0.3
    ),
    "hashed": lambda schema: HashedEmbeddings(["user", "item"], 4, optimizer="adagrad", lr=0.3),
    "parameters": lambda schema: EmbeddingTables(schema.select(roles="categorical"), 4),
    "nothing": lambda schema: None,
}


class Training:
    """A model in training, and the folder that it is published to."""

    def __init__(self, home: str, place: Path) -> None:
        torch.manual_seed(0)
        data = features()
        if home == "nothing":
            data = data.with_roles(other=["user", "item"])
        self.loader = Loader(data, 24, shuffle=True, seed=3)
        self.model = MLP(self.loader.schema, 4, hidden=(8,))
        self.embeddings = HOMES[home](self.loader.schema)
        self.place, self.feed = place, place / "feed"
        save_model(self.feed, None, self.model, self.embeddings)

    def train(self, steps: int, **more: Any) -> None:
        self.model.train()
        fit(
            self.model, self.loader, self.embeddings, max_steps=steps, epochs=9, log_every=2,
            **{"feed": Feed(self.feed, seconds=0.0), "staleness": 2, **more},
        )  # fmt: skip

    def predictions(self) -> np.ndarray:
        """Of the model as it is now, saved and opened."""
        save_model(self.place / "now", None, self.model, self.embeddings, overwrite=True)
        with Predictor(self.place / "now") as own:
            return own.predict(EVERYTHING)


@pytest.mark.parametrize("home", HOMES)
def test_who_follows_predicts_what_the_trainer_predicts(home: str, tmp_path: Path) -> None:
    training = Training(home, tmp_path)
    with Predictor(training.feed, feed=training.feed) as service:
        before = service.predict(EVERYTHING)
        for steps in (3, 2):
            training.train(steps)
            assert service.refresh() >= 1 and service.step == steps
            now = service.predict(EVERYTHING)
            assert np.array_equal(now, training.predictions()) and not np.array_equal(now, before)
    numbers = packet_numbers(training.feed)
    whole = [json.loads((packet_path(training.feed, n) / "packet.json").read_text())["whole"] for n in numbers]
    assert home == "nothing" or whole == [True] + [False] * (len(numbers) - 1)
    with Predictor(training.feed, feed=training.feed) as late:  # it was not there when they were published
        late.refresh()
        assert np.array_equal(late.predict(EVERYTHING), now)


def test_publishing_does_not_change_what_is_learned(tmp_path: Path) -> None:
    found = []
    for name, feed in (("with", True), ("without", False)):
        training = Training("store", tmp_path / name)
        training.train(7, staleness=3, **({} if feed else {"feed": None}))
        found.append(training.predictions())
    assert np.array_equal(*found)


def test_packets_come_by_the_clock_and_at_both_ends(tmp_path: Path) -> None:
    training = Training("store", tmp_path)
    training.train(8, feed=Feed(training.feed, seconds=1e9))
    assert packet_numbers(training.feed) == [1, 2]
    packets = [json.loads((packet_path(training.feed, n) / "packet.json").read_text()) for n in (1, 2)]
    assert [packet["step"] for packet in packets] == [0, 8]


def test_the_last_packet_is_of_the_weights_that_were_selected(tmp_path: Path) -> None:
    training = Training("store", tmp_path)
    valid = Loader(features(), 240)
    seen: list[Any] = []
    training.train(
        8, valid=valid, eval_every=2, select_by="loss", checkpoint_dir=Checkpointer(tmp_path / "saved", keep=9),
        callbacks=[seen.append],
    )  # fmt: skip
    with Predictor(training.feed, feed=training.feed) as service:
        service.refresh()
        assert np.array_equal(service.predict(EVERYTHING), training.predictions())
    assert any(isinstance(record, TrainRecord) for record in seen)


def forged(packet: Path, tensors: dict[str, torch.Tensor], name: str) -> None:
    from safetensors.torch import save_file

    from penstock.core import artefact

    save_file(tensors, packet / name)
    manifest = json.loads((packet / artefact.MANIFEST).read_text())
    size, checksum = (packet / name).stat().st_size, artefact.checksum(packet / name)
    manifest["files"][name] = {"bytes": size, "sha256": checksum}
    (packet / artefact.MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("name", "tensors"),
    [
        ("dense.safetensors", {"other": torch.zeros(3)}),
        (TABLES, {"weight": torch.zeros(2, 4), "weight.rows": torch.tensor([0, 80])}),
        (TABLES, {"weight": torch.zeros(2, 4), "weight.rows": torch.tensor([-1, 3])}),
        (TABLES, {"weight": torch.zeros(2, 5), "weight.rows": torch.tensor([1, 3])}),
        (TABLES, {"weight": torch.zeros(2, 4, dtype=torch.float64), "weight.rows": torch.tensor([1, 3])}),
        (TABLES, {"weight": torch.zeros(3, 4), "weight.rows": torch.tensor([1, 3])}),
        (TABLES, {"weight": torch.zeros(80, 4)}),
        (TABLES, {"other": torch.zeros(2, 4)}),
    ],
)
def test_a_packet_that_does_not_fit_changes_nothing_and_the_next_one_is_applied(
    name: str, tensors: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    training = Training("fused", tmp_path)
    writer = FeedWriter(training.embeddings, training.feed, model=training.model)
    with Predictor(training.feed, feed=training.feed) as service:
        writer.publish()
        assert service.refresh() == 1
        before = service.predict(EVERYTHING)
        training.train(2, feed=None)
        forged(writer.publish(), tensors, name)
        with pytest.raises(ArtefactError, match=name):
            service.refresh()
        assert np.array_equal(service.predict(EVERYTHING), before) and service.feed_problem is not None
        writer._since_whole = -1  # the next one holds everything
        writer.publish()
        assert service.refresh() == 1 and service.feed_problem is None
        assert np.array_equal(service.predict(EVERYTHING), training.predictions())
    writer.close()


def test_a_feed_of_another_kind_of_embeddings_is_refused(tmp_path: Path) -> None:
    store, fused = Training("store", tmp_path / "a"), Training("fused", tmp_path / "b")
    for one, other in ((store, fused), (fused, store)):
        shutil.rmtree(tmp_path / "feed", ignore_errors=True)
        writer = FeedWriter(one.embeddings, tmp_path / "feed", model=one.model)
        writer.publish()
        writer.close()
        with Predictor(other.feed, feed=tmp_path / "feed") as service:
            service._feed.patience = 0.0  # type: ignore[union-attr]
            assert service.refresh() == 0
            with pytest.raises(ArtefactError, match="published by"):
                while service.refresh() == 0:
                    pass


def test_what_a_feed_cannot_carry_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="a feed publishes a store or tables"):
        FeedWriter(object(), tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="seconds"):
        Feed(tmp_path, seconds=-1)
