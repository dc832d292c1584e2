"""Tables behind a cache on a real GPU: in a captured step, with rows coming in beside it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from torch import nn

from penstock.core.errors import DataError, ParameterError
from penstock.embedding import CachedEmbeddings, FusedEmbeddings, prefetched
from penstock.train.executors.device_step import DeviceStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CASES = Path(__file__).parents[1] / "kernels" / "cache_cases.py"
OPTIMIZERS = ["sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam"]


def test_kernels_agree_with_the_oracle(capsys: pytest.CaptureFixture[str]) -> None:
    names = runpy.run_path(str(CASES))
    names["main"]("cuda")
    assert capsys.readouterr().out.count("agrees") == len(names["CASES"])


def pair(sizes, cache_rows: int, **settings) -> tuple[CachedEmbeddings, FusedEmbeddings]:
    cached = CachedEmbeddings(sizes, 16, cache_rows=cache_rows, device="cuda", **settings)
    plain = FusedEmbeddings(sizes, 16, device="cuda", **settings)
    plain.load_state_dict(cached.state_dict())
    return cached, plain


def assert_same(cached, plain) -> None:
    cached.check_ids()
    mine, theirs = cached.state_dict(), plain.state_dict()
    for key in mine:
        torch.testing.assert_close(mine[key].cpu(), theirs[key].cpu(), rtol=1e-5, atol=1e-5)


def batches(sizes, rows: int, count: int) -> list:
    torch.manual_seed(0)
    return [torch.stack([torch.randint(0, n, (rows,), device="cuda") for n in sizes], 1) for _ in range(count)]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(("cache_rows", "together"), [(2600, 1), (6000, 1), (16_000, 3)])  # one batch fits, two, six
def test_a_cache_changes_nothing(name: str, cache_rows: int, together: int) -> None:
    sizes = [30_000, 5]
    cached, plain = pair(sizes, cache_rows, optimizer=name, lr=0.1)
    cached.prefetch_batches = together
    for ids in prefetched(batches(sizes, 2500, 30), cached, ids=lambda b: b):
        factor = torch.randn(2500, 2, 16, device="cuda")
        for tables in (cached, plain):
            (tables(ids) * factor).sum().backward()
    assert_same(cached, plain)
    assert cached.stats()["written_back"] > 30_000


def test_moving_to_another_device_keeps_what_is_cached() -> None:
    cached = CachedEmbeddings([2000], 16, cache_rows=300, optimizer="adagrad", lr=0.1)
    plain = FusedEmbeddings([2000], 16, optimizer="adagrad", lr=0.1)
    plain.load_state_dict(cached.state_dict())
    for number, ids in enumerate(batches([2000], 200, 12)):
        device = "cuda" if number // 3 % 2 else "cpu"
        for tables in (cached, plain):
            tables.to(device)(ids.to(device)).square().sum().backward()
    assert_same(cached.cpu(), plain.cpu())


def test_a_store_that_is_loaded_replaces_the_cache(tmp_path: Path) -> None:
    cached = CachedEmbeddings([20_000], 16, cache_rows=5000, scale=1.0, device="cuda")
    ids = batches([20_000], 3000, 1)[0]
    before = cached(ids).detach().clone()
    cached.store.save(tmp_path / "rows")
    for other in batches([20_000], 3000, 6):
        cached(other).sum().backward()
    cached.store.load(tmp_path / "rows")
    torch.testing.assert_close(cached(ids), before)
    cached(ids).sum().backward()
    assert_same(cached, cached)


def test_bags_and_batches_not_announced() -> None:
    sizes = {"user": 5000, "tags": 800}
    cached, plain = pair(sizes, 1500, lr=0.1)
    torch.manual_seed(0)
    for step in range(20):
        lengths = torch.randint(0, 5, (300,))
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        tags = torch.randint(0, 800, (int(offsets[-1]),))
        ids = {"user": torch.randint(0, 5000, (300,)).cuda(), "tags": (tags.cuda(), offsets.cuda())}
        if step % 2:
            cached.prefetch(ids)
        for tables in (cached, plain):
            tables(ids).square().sum().backward()
    assert_same(cached, plain)


class Clicks(nn.Module):
    def __init__(self, tables) -> None:
        super().__init__()
        self.tables = tables
        self.layers = nn.Sequential(nn.Linear(tables.width(0), 32), nn.ReLU(), nn.Linear(32, 1)).cuda()

    def forward(self, ids: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return self.layers(self.tables(ids)).squeeze(1)


@pytest.mark.filterwarnings("ignore:TensorFloat32", "ignore:The .grad attribute")  # said by torch's compiler
@pytest.mark.parametrize(
    ("cache_rows", "together"), [(4200, 1), (20_000, 1), (20_000, 3)]
)  # the smallest postpones every batch it is told of
def test_a_captured_step_with_a_cache(cache_rows: int, together: int) -> None:
    sizes = [40_000, 3000]
    cached, plain = pair(sizes, cache_rows, lr=0.05, output="concat")
    cached.prefetch_batches = together
    models = [Clicks(cached), Clicks(plain)]
    models[1].layers.load_state_dict(models[0].layers.state_dict())
    steps = [DeviceStep(models[0], graph=True, compile=False), DeviceStep(models[1], graph=False, compile=False)]
    numbers, labels = torch.empty(2048, 0, device="cuda"), torch.randint(0, 2, (2048,), device="cuda")
    for number, ids in enumerate(prefetched(batches(sizes, 2048, 40), cached, ids=lambda b: b)):
        for step in steps:
            step(ids, numbers, labels)
        if number == 25:  # evaluated in between, unannounced
            other = batches(sizes, 300, 1)[0]
            with torch.no_grad():
                torch.testing.assert_close(cached(other), plain(other), rtol=1e-4, atol=1e-5)
    assert cached.stats()["batches"] >= 40
    cached.check_ids()
    mine, theirs = cached.state_dict(), plain.state_dict()
    torch.testing.assert_close(mine["weight"].cpu(), theirs["weight"].cpu(), rtol=1e-3, atol=1e-4)


def test_a_captured_step_that_was_not_announced_is_reported() -> None:
    cached = CachedEmbeddings({"user": 1000}, 16, cache_rows=100, output="concat", device="cuda")
    step = DeviceStep(Clicks(cached), graph=True, compile=False)
    numbers, labels = torch.empty(8, 0, device="cuda"), torch.zeros(8, device="cuda")
    for first in range(5):
        step(torch.arange(first, first + 8, device="cuda")[:, None], numbers, labels)
    step(torch.arange(500, 508, device="cuda")[:, None], numbers, labels)
    with pytest.raises(DataError, match="id 507 of table 'user' was looked up and is not in the cache"):
        cached.check_ids()


def test_bad_input() -> None:
    cached = CachedEmbeddings({"user": 50}, 16, cache_rows=8, device="cuda")
    found = cached(torch.tensor([[1], [50]], device="cuda"))
    assert not found[1].any()
    with pytest.raises(DataError, match="id 50 is outside table 'user'"):
        cached.check_ids()
    with pytest.raises(ParameterError, match="cache_rows=8 does not hold the 9 distinct rows"):
        cached(torch.arange(9, device="cuda")[:, None])
    assert cached(torch.empty((0, 1), dtype=torch.int64, device="cuda")).shape == (0, 1, 16)


def test_two_runs_give_the_same_bits() -> None:
    def run() -> torch.Tensor:
        torch.manual_seed(0)
        tables = CachedEmbeddings([5, 100_000], 16, cache_rows=60_000, lr=0.1, device="cuda")
        for ids in prefetched(batches([5, 100_000], 20_000, 12), tables, ids=lambda b: b):
            tables(ids).square().sum().backward()
        return tables.state_dict()["weight"]

    assert torch.equal(run(), run())
