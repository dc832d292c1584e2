"""Hashed tables behind a cache on a real GPU: the numbers of hashed tables without one, captured or not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from penstock.embedding import CachedEmbeddings, HashedEmbeddings, prefetched
from penstock.train.executors.device_step import DeviceStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:TensorFloat32", "ignore:The .grad attribute"),
]
NAMES = ["user", "item"]


def pair(cache_rows: int, **settings) -> tuple[CachedEmbeddings, HashedEmbeddings]:
    common = {"lr": 0.05, "seed": 3, "device": "cuda", **settings}
    cached = CachedEmbeddings(NAMES, 16, cache_rows=cache_rows, hashed=True, **common)
    return cached, HashedEmbeddings(NAMES, 16, **common)


def batches(rows: int, count: int) -> list[torch.Tensor]:
    """Ids of which some come again, and of which there are more as time goes on."""
    torch.manual_seed(0)
    users = [torch.randint(0, 20_000 + 500 * i, (rows,), device="cuda") * 2**44 for i in range(count)]
    return [torch.stack([user, torch.randint(-9, -2, (rows,), device="cuda")], 1) for user in users]


def by_id(tables: nn.Module) -> dict[str, torch.Tensor]:
    """Rows and state in the order of tables and ids."""
    state = {key: tensor.cpu() for key, tensor in tables.state_dict().items()}
    taken = (state["tables"] >= 0).nonzero().flatten()  # hashed tables list rows that were evicted, too
    order = taken[state["ids"][taken].argsort()]
    order = order[state["tables"][order].argsort(stable=True)]
    return {key: state[key][order] for key in ("tables", "ids", "weight", "first_state")}


def assert_same(cached: CachedEmbeddings, plain: HashedEmbeddings) -> None:
    cached.check_ids()
    plain.check_ids()
    mine, theirs = by_id(cached), by_id(plain)
    for key in mine:
        torch.testing.assert_close(mine[key], theirs[key], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["rowwise_adagrad", "adam"])
@pytest.mark.parametrize(("cache_rows", "together"), [(2600, 1), (6000, 1), (16_000, 3)])
def test_a_cache_changes_nothing(optimizer: str, cache_rows: int, together: int) -> None:
    cached, plain = pair(cache_rows, optimizer=optimizer)
    cached.prefetch_batches = together
    for ids in prefetched(batches(2500, 30), cached, ids=lambda b: b):
        factor = torch.randn(2500, 2, 16, device="cuda")
        for tables in (cached, plain):
            (tables(ids) * factor).sum().backward()
    assert_same(cached, plain)
    assert cached.stats()["written_back"] > 20_000
    unseen = torch.tensor([[5, 5]], device="cuda")
    with torch.no_grad():
        assert not cached(unseen).any()


@pytest.mark.parametrize(
    ("cache_rows", "together", "max_rows"), [(6000, 1, 4000), (6000, 1, 9000), (16_000, 3, 20_000)]
)
def test_a_bound_holds_as_without_a_cache(cache_rows: int, together: int, max_rows: int) -> None:
    states = []
    for _ in range(2):  # the second time for the bits
        cached, plain = pair(cache_rows, max_rows=max_rows)
        cached.prefetch_batches = together
        torch.manual_seed(1)
        for ids in prefetched(batches(2500, 30), cached, ids=lambda b: b):
            factor = torch.randn(2500, 2, 16, device="cuda")
            for tables in (cached, plain):
                (tables(ids) * factor).sum().backward()
        assert_same(cached, plain)
        assert cached.stats()["evicted"] == plain.stats()["evicted"] > 10_000
        states.append(cached.state_dict())
    for key, tensor in states[0].items():
        assert torch.equal(tensor, states[1][key]), key


class Clicks(nn.Module):
    def __init__(self, tables) -> None:
        super().__init__()
        self.tables = tables
        self.layers = nn.Sequential(nn.Linear(tables.width(0), 32), nn.ReLU(), nn.Linear(32, 1)).cuda()

    def forward(self, ids: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return self.layers(self.tables(ids)).squeeze(1)


@pytest.mark.parametrize("max_rows", [None, 15_000])
@pytest.mark.parametrize(("cache_rows", "together"), [(4200, 1), (20_000, 3)])
def test_captured_steps(cache_rows: int, together: int, max_rows: int | None) -> None:
    cached, plain = pair(cache_rows, output="concat", max_rows=max_rows)
    cached.prefetch_batches = together
    models = [Clicks(cached), Clicks(plain)]
    models[1].layers.load_state_dict(models[0].layers.state_dict())
    steps = [DeviceStep(models[0], graph=True, compile=False), DeviceStep(models[1], graph=False, compile=False)]
    numbers, labels = torch.empty(2048, 0, device="cuda"), torch.randint(0, 2, (2048,), device="cuda")
    for ids in prefetched(batches(2048, 40), cached, ids=lambda b: b):
        for step in steps:
            step(ids, numbers, labels)
    assert cached.stats()["batches"] >= 40
    cached.check_ids()
    mine, theirs = by_id(cached), by_id(plain)
    assert torch.equal(mine["ids"], theirs["ids"])
    torch.testing.assert_close(mine["weight"], theirs["weight"], rtol=1e-3, atol=1e-4)
