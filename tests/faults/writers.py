"""Everything that writes artefacts, in two versions that readers can tell apart, part by part."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from penstock import Dataset, Workflow
from penstock.core import artefact
from penstock.core.errors import DataError
from penstock.embedding import SGD, EmbeddingConfig, SlotConfig, Store
from penstock.embedding.feed import FeedWriter
from penstock.embedding.feed_reader import FeedReader
from penstock.jobs.etl import EtlJob
from penstock.nn import MLP
from penstock.serve import Predictor, save_model
from penstock.train import Checkpointer, TrainContext

RECIPE = {
    "recipe": 1,
    "nodes": {
        "cats": {"columns": ["user"], "ops": ["Categorify"]},
        "conts": {"columns": ["price"], "ops": ["FillMedian"]},
        "rest": {"columns": ["click"], "ops": [{"AddMetadata": {"role": "label"}}]},
    },
}


def frame(version: int) -> pl.DataFrame:
    """Rows that differ in every statistic from those of the other version."""
    users = [f"v{version}-{i % 4}" for i in range(12)]
    return pl.DataFrame({"user": users, "price": [float(version + 1)] * 11 + [None], "click": [0, 1] * 6})


def fitted(version: int) -> Workflow:
    return Workflow.from_recipe(RECIPE).fit(frame(version))


def version_of(workflow: Workflow) -> set[int]:
    """The versions that the parts of a workflow have."""
    found = [v for op in _ops(workflow, "vocabularies_") for v in op.vocabularies_.values()]
    known = {int(name[1]) for vocabulary in found for name in vocabulary.values}
    return known | {int(value) - 1 for op in _ops(workflow, "medians_") for value in op.medians_.values()}


def _ops(workflow: Workflow, learned: str) -> list[Any]:
    return [n.operator for n in workflow._plan.nodes if n.operator is not None and hasattr(n.operator, learned)]


def store(version: int) -> Store:
    made = Store(EmbeddingConfig([SlotConfig("user", dim=2), SlotConfig("ad", dim=3)]), SGD(lr=1.0), seed=0)
    found = made.lookup({"user": np.arange(8), "ad": np.arange(8)})
    made.update(found, {name: np.full((8, dim), float(version)) for name, dim in (("user", 2), ("ad", 3))})
    return made


_IDS = {"user": np.arange(8), "ad": np.arange(8)}


@cache  # and not on import: whoever collects tests should not compile kernels
def _initial() -> dict[str, np.ndarray]:
    return {name: rows.copy() for name, rows in store(0).lookup(_IDS, train=False).items()}


def versions_of_store(found: Store) -> set[int]:
    rows = found.lookup(_IDS, train=False)
    return {int(v) for name, initial in _initial().items() for v in np.unique(np.round(initial - rows[name]))}


def model(version: int) -> tuple[Workflow, MLP, Store]:
    flow = fitted(version)
    torch.manual_seed(version)
    network = MLP(flow.output_schema, 2, hidden=())
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(float(version))
    rows = Store(EmbeddingConfig([SlotConfig("user", dim=2)]), SGD(lr=1.0), seed=0)
    found = rows.lookup({"user": np.arange(8)})
    rows.update(found, {"user": np.full((8, 2), float(version))})
    return flow, network, rows


def versions_of_model(place: Path) -> set[int]:
    with Predictor(place) as predictor:
        weights = {int(v) for p in predictor.model.parameters() for v in p.detach().unique().tolist()}
        rows = predictor.store.lookup({"user": np.arange(8)}, train=False)["user"]
        moved = {int(v) for v in np.unique(np.round(_initial()["user"] - rows))}
        return weights | moved | version_of(predictor.saved.fitted)


def training(version: int) -> TrainContext:
    network = torch.nn.Linear(2, 1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(float(version))
    context = TrainContext(network, store(version), torch.optim.SGD(network.parameters(), lr=0.1))
    context.steps = version + 1
    return context


def versions_of_training(place: Path) -> set[int]:
    context = training(0)
    Checkpointer(place).load(context)
    weights = {int(v) for p in context.module.parameters() for v in p.detach().unique().tolist()}
    return weights | versions_of_store(context.embeddings) | {context.steps - 1}


def write_etl(place: Path, version: int) -> None:
    EtlJob(Dataset(frame(version)), str(place), recipe=RECIPE, engine="local:1", num_files=2, overwrite=True,
           progress=False).run()  # fmt: skip


def versions_of_etl(place: Path) -> set[int]:
    rows, flow = Dataset(place).to_polars(), Workflow.load(f"{place}-workflow")
    assert rows.height == 12
    return version_of(flow) | {int(v) - 1 for v in rows["price"].unique()}


def write_data(place: Path, version: int) -> None:
    parts = pl.DataFrame({"x": np.full(40, version)})
    Dataset(parts, part_size=80).to_parquet(place, num_files=3, overwrite=True, engine="local:1", progress=False)


def versions_of_data(place: Path) -> set[int]:
    """A data set that is replaced while it is opened or read says so, and is opened again."""
    for _ in range(200):
        try:
            return set(Dataset(place).to_polars()["x"].unique().to_list())
        except DataError as error:
            last = error
    raise last


def write_packets(place: Path, version: int) -> None:
    writer = FeedWriter(store(version), place, whole_every=1)
    try:
        writer.publish()
    finally:
        writer.close()


def versions_of_packets(place: Path) -> set[int]:
    following = Store(EmbeddingConfig([SlotConfig("user", dim=2), SlotConfig("ad", dim=3)]), seed=0)
    FeedReader(place, following, patience=0).poll()
    return versions_of_store(following)


def write_file(place: Path, version: int) -> None:
    place.parent.mkdir(exist_ok=True)
    with artefact.replacing(place) as partial:
        partial.write_text(json.dumps([version] * 100))


@dataclass(frozen=True)
class Writer:
    """Writes a version to a place; reads which versions are there, which must be one."""

    name: str
    write: Callable[[Path, int], Any]
    read: Callable[[Path], set[int]]


def _save_model(place: Path, version: int) -> None:
    flow, network, rows = model(version)
    save_model(place, flow, network, rows, overwrite=True)


WRITERS = [
    Writer("file", write_file, lambda place: set(json.loads(place.read_text()))),
    Writer("data", write_data, versions_of_data),
    Writer("workflow", lambda p, v: fitted(v).save(p, overwrite=True), lambda place: version_of(Workflow.load(place))),
    Writer("store", lambda p, v: store(v).save(p, overwrite=True), lambda place: versions_of_store(Store.open(place))),
    Writer("packets", write_packets, versions_of_packets),
    Writer("model", _save_model, versions_of_model),
    Writer("training", lambda p, v: Checkpointer(p).save(training(v)), versions_of_training),
    Writer("etl", write_etl, versions_of_etl),
]
