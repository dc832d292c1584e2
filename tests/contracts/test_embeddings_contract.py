"""The contract of `Embeddings`: every home of rows looks up, trains, saves and says of itself the same way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from penstock import ColumnSchema, Schema
from penstock.core.errors import PenstockError
from penstock.embedding import (
    SGD,
    CachedEmbeddings,
    Embeddings,
    EmbeddingTables,
    FrozenEmbeddings,
    FusedEmbeddings,
    HashedEmbeddings,
    Init,
    RayStore,
    SlotConfig,
    Store,
)
from penstock.loader.torch import Loader
from penstock.nn import MLP, from_config
from penstock.train import Checkpointer, fit

DIM, RATE = 4, 0.5
SIZES = {"user": 20, "item": 10}
SCHEMA = Schema([ColumnSchema(n, "int64", role="categorical", cardinality=size) for n, size in SIZES.items()])
BATCH = {"user": torch.tensor([3, 7, 3]), "item": torch.tensor([1, 2, 9])}


class DictEmbeddings:
    """The least that anybody's own home has: rows in a dict, stepped by SGD. It inherits nothing."""

    on_host, updates_in_backward, capturable = True, False, False

    def __init__(self) -> None:
        self.names, self.dims = list(SIZES), dict.fromkeys(SIZES, DIM)
        self.rows: dict[tuple[str, int], np.ndarray] = {}
        self.closed = False

    def lookup(self, batch: Mapping[str, Any], train: bool = True) -> dict[str, np.ndarray]:
        self._last = {name: [int(i) for i in batch[name]] for name in self.names}
        found = {}
        for name, ids in self._last.items():
            if train:
                for i in ids:
                    self.rows.setdefault((name, i), np.full(DIM, 0.01 * (1 + i % 3), np.float32))
            found[name] = np.stack([self.rows.get((name, i), np.zeros(DIM, np.float32)) for i in ids])
        return Found(found, self._last)

    def update(self, lookup: Any, gradients: Mapping[str, Any], scale: float = 1.0) -> None:
        for name, gradient in gradients.items():
            for i, row in zip(lookup.ids[name], np.asarray(gradient), strict=True):
                self.rows[name, i] = self.rows[name, i] - RATE * row / scale

    def save(self, path: str | Path, overwrite: bool = False, base: str | Path | None = None) -> None:
        Path(path).write_text(json.dumps([[name, i, row.tolist()] for (name, i), row in self.rows.items()]))

    def load(self, path: str | Path) -> None:
        self.rows = {(n, i): np.array(row, np.float32) for n, i, row in json.loads(Path(path).read_text())}

    def stats(self) -> dict[str, Any]:
        return {"rows": len(self.rows)}

    def close(self) -> None:
        self.closed = True


class Found(dict):
    def __init__(self, arrays: dict[str, np.ndarray], ids: dict[str, list[int]]) -> None:
        super().__init__(arrays)
        self.ids = ids


def slots() -> list[SlotConfig]:
    return [SlotConfig(name, DIM, init=Init("uniform", -0.1, 0.1)) for name in SIZES]


def frozen() -> FrozenEmbeddings:
    description, weights = FusedEmbeddings(SCHEMA, DIM).for_serving(SCHEMA)
    tables = from_config(description)
    tables.load_state_dict(weights)
    return tables


HOMES: dict[str, Callable[[], Any]] = {
    "store": lambda: Store(slots(), SGD(lr=RATE)),
    "ray": lambda: RayStore(slots(), SGD(lr=RATE), num_shards=2),
    "fused": lambda: FusedEmbeddings(SCHEMA, DIM, optimizer="sgd", lr=RATE),
    "cached": lambda: CachedEmbeddings(SCHEMA, DIM, cache_rows=24, optimizer="sgd", lr=RATE),
    "cached, hashed": lambda: CachedEmbeddings(
        SCHEMA, DIM, cache_rows=24, hashed=True, optimizer="sgd", lr=RATE, scale=0.1
    ),
    "cached, hashed, bounded": lambda: CachedEmbeddings(
        SCHEMA, DIM, cache_rows=24, hashed=True, max_rows=64, optimizer="sgd", lr=RATE, scale=0.1
    ),
    "hashed": lambda: HashedEmbeddings(SCHEMA, DIM, capacity=8, optimizer="sgd", lr=RATE, scale=0.1),
    "parameter": lambda: EmbeddingTables(SCHEMA, DIM),
    "frozen": frozen,
    "own": DictEmbeddings,
}
TRAINED = [name for name in HOMES if name != "frozen"]


@pytest.fixture(scope="module")
def idle_ray_stores() -> Iterator[list[RayStore]]:
    """Stores that a test is done with, cleared for the next: each is three processes, which take seconds to start."""
    stores: list[RayStore] = []
    yield stores
    for store in stores:
        store.close()


@pytest.fixture
def make(idle_ray_stores: list[RayStore], request: pytest.FixtureRequest) -> Iterator[Callable[[str], Any]]:
    made: list[Any] = []

    def build(name: str) -> Any:
        if name == "ray":
            request.getfixturevalue("ray")
        made.append(idle_ray_stores.pop() if name == "ray" and idle_ray_stores else HOMES[name]())
        return made[-1]

    yield build
    for home in made:
        if isinstance(home, RayStore):
            home.clear()
            idle_ray_stores.append(home)
        else:
            home.close()


def values(home: Any, batch: Mapping[str, Any] = BATCH) -> np.ndarray:
    found = home.lookup(batch, train=False)
    return np.concatenate([np.asarray(torch.as_tensor(found[name]).detach()) for name in home.names], 1)


def stepped(home: Any, gradients: Mapping[str, Any], scale: float = 1.0) -> None:
    """One step by hand; the parameter of `EmbeddingTables` is stepped by torch."""
    home.update(home.lookup(BATCH, train=True), gradients, scale=scale)
    if not home.on_host and not home.updates_in_backward:
        optimizer = torch.optim.SGD(home.parameters(), lr=RATE)
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("name", HOMES)
def test_it_says_what_it_is(name: str, make: Callable[[str], Any]) -> None:
    home = make(name)
    assert isinstance(home, Embeddings)
    assert (home.names, home.dims) == (list(SIZES), dict.fromkeys(SIZES, DIM))
    assert home.on_host == (name in ("store", "ray", "own"))
    on_device = ("fused", "cached", "cached, hashed", "cached, hashed, bounded", "hashed")
    assert home.updates_in_backward == (name in on_device)
    assert home.capturable == (name in on_device)
    assert home.stats()["rows"] == (0 if home.on_host or "hashed" in name else sum(SIZES.values()))


@pytest.mark.parametrize("name", HOMES)
def test_evaluation_changes_nothing(name: str, make: Callable[[str], Any]) -> None:
    home = make(name)
    if name in TRAINED:
        home.lookup(BATCH, train=True)
    before, rows = values(home), home.stats()["rows"]
    unseen = {"user": torch.tensor([19]), "item": torch.tensor([0])}
    assert values(home, unseen).shape == (1, 2 * DIM)
    assert home.stats()["rows"] == rows
    np.testing.assert_array_equal(values(home), before)


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_of_a_row_are_added_and_divided_by_the_scale(name: str, make: Callable[[str], Any]) -> None:
    home = make(name)
    home.lookup(BATCH, train=True)
    before = values(home)
    gradients = {"user": torch.tensor([[1.0], [2.0], [3.0]]).expand(3, DIM).contiguous(), "item": torch.ones(3, DIM)}
    stepped(home, gradients, scale=4.0)
    users, items = before[:, :DIM] - values(home)[:, :DIM], before[:, DIM:] - values(home)[:, DIM:]
    np.testing.assert_allclose(users[:, 0], RATE * np.array([4, 2, 4]) / 4, rtol=1e-5)  # user 3 is there twice
    np.testing.assert_allclose(items, RATE / 4, rtol=1e-5)


@pytest.mark.parametrize("name", TRAINED)
def test_a_column_without_gradients_stays(name: str, make: Callable[[str], Any]) -> None:
    home = make(name)
    home.lookup(BATCH, train=True)
    before = values(home)
    stepped(home, {"item": torch.ones(3, DIM)})
    after = values(home)
    np.testing.assert_array_equal(after[:, :DIM], before[:, :DIM])
    assert (after[:, DIM:] != before[:, DIM:]).all()


@pytest.mark.parametrize("name", [name for name in TRAINED if name != "own"])
def test_a_lookup_is_updated_once(name: str, make: Callable[[str], Any]) -> None:
    home = make(name)
    found = home.lookup(BATCH, train=True)
    home.update(found, {"item": torch.ones(3, DIM)})
    with pytest.raises(PenstockError, match="again"):
        home.update(found, {"item": torch.ones(3, DIM)})


@pytest.mark.parametrize("name", HOMES)
def test_what_is_saved_is_loaded(name: str, make: Callable[[str], Any], tmp_path: Path) -> None:
    home = make(name)
    if name in TRAINED:
        stepped(home, {"user": torch.rand(3, DIM), "item": torch.rand(3, DIM)})
    wanted = values(home)
    home.save(tmp_path / "saved")
    other = make(name)
    other.load(tmp_path / "saved")
    np.testing.assert_array_equal(values(other), wanted)
    if name != "own":
        with pytest.raises(PenstockError, match="exists"):
            home.save(tmp_path / "saved")


def loader() -> Loader:
    users = np.arange(400) % 20
    data = {"user": users, "item": users % 10, "click": (users % 2).astype(np.float32)}
    return Loader(data, 8, categorical=["user", "item"], labels=["click"], shuffle=True, seed=1)


@pytest.mark.parametrize("name", TRAINED)
def test_fit_trains_it(name: str, make: Callable[[str], Any]) -> None:
    torch.manual_seed(0)
    home, batches = make(name), loader()
    model = MLP(batches.schema, DIM, hidden=())
    history = fit(model, batches, home, epochs=6, valid=batches, staleness=1, progress=False)
    assert history.stats["steps"] == 300
    assert history.last("valid").metrics["auc"] > 0.95
    assert home.stats()["rows"] == sum(SIZES.values())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "ray" else []) for name in TRAINED]
)  # on Ray, tests/jobs/test_cluster.py has the whole way of it
def test_an_interrupted_fit_goes_on_with_the_bits_it_would_have_had(
    name: str, make: Callable[[str], Any], tmp_path: Path
) -> None:
    def trained(place: Path, *limits: int | None) -> tuple[Any, Any]:
        for limit in limits:
            torch.manual_seed(0)
            home, batches = make(name), loader()
            model = MLP(batches.schema, DIM, hidden=())
            if name not in ("own", "parameter"):
                home.load(tmp_path / "start")
            saver = Checkpointer(place, keep=1)
            fit(model, batches, home, epochs=3, staleness=1, checkpoint_dir=saver, max_steps=limit, progress=False)
        return values(home), model.state_dict()

    start = make(name)
    start.save(tmp_path / "start")
    whole, weights = trained(tmp_path / "whole", None)
    rows, resumed = trained(tmp_path / "cut", 13, None)
    np.testing.assert_array_equal(rows, whole)
    for key, tensor in weights.items():
        assert torch.equal(resumed[key], tensor)


def test_frozen_tables_are_not_trained(make: Callable[[str], Any]) -> None:
    with pytest.raises(PenstockError, match="not trained"):
        make("frozen").lookup(BATCH, train=True)
