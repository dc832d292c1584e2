"""Fused embeddings and the captured training step on a real GPU."""

from __future__ import annotations

import copy
import runpy
from pathlib import Path

import pytest
import torch
from torch import nn

from penstock.core.errors import DataError, PenstockError
from penstock.embedding import CachedEmbeddings, FusedEmbeddings
from penstock.embedding.fused import replayed_update
from penstock.train import DeviceStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CASES = Path(__file__).parents[1] / "kernels" / "fused_cases.py"
OPTIMIZERS = ["sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam"]


def test_kernels_agree_with_the_oracle(capsys: pytest.CaptureFixture[str]) -> None:
    names = runpy.run_path(str(CASES))
    names["main"]("cuda")
    assert capsys.readouterr().out.count("agrees") >= len(names["CASES"])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_cpu_and_gpu_train_alike(name: str) -> None:
    torch.manual_seed(0)
    sizes = [3, 40_000, 700]
    host = FusedEmbeddings(sizes, 16, optimizer=name, lr=0.05)
    device = FusedEmbeddings(sizes, 16, optimizer=name, lr=0.05, device="cuda")
    device.load_state_dict(host.state_dict())
    for _ in range(3):
        ids = torch.stack([torch.randint(0, size, (5000,)) for size in sizes], 1)
        factor = torch.randn(5000, 3, 16)
        (host(ids) * factor).sum().backward()
        (device(ids.cuda()) * factor.cuda()).sum().backward()
    torch.testing.assert_close(device.weight.cpu(), host.weight, rtol=1e-4, atol=1e-4)


DIMS = [16, 128, 7, 16, 64]  # of tables with these rows
ROWS = [3, 40_000, 700, 9, 5000]


def several(rows: int, device: str = "cuda") -> dict:
    """A batch of single ids and lists."""
    ids = {f"table_{i}": torch.randint(0, n, (rows,)) for i, n in enumerate(ROWS)}
    for number in (1, 3):
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.randint(0, 6, (rows,)).cumsum(0)])
        ids[f"table_{number}"] = torch.randint(0, ROWS[number], (int(offsets[-1]),)).to(device), offsets.to(device)
    return {name: ids_of if isinstance(ids_of, tuple) else ids_of.to(device) for name, ids_of in ids.items()}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_tables_of_several_dims_train_as_those_of_one(name: str) -> None:
    torch.manual_seed(0)
    settings = {"optimizer": name, "lr": 0.05, "pooling": "mean", "device": "cuda"}
    tables = FusedEmbeddings(ROWS, DIMS, **settings)
    cached = CachedEmbeddings(ROWS, DIMS, cache_rows=40_000, **settings)
    cached.load_state_dict(tables.state_dict())
    alone = [FusedEmbeddings(group.sizes, group.dim, output="concat", **settings) for group in tables.groups]
    for group, other in zip(tables.groups, alone, strict=True):
        other.weight.copy_(group.weight)
    for _ in range(3):
        ids, factor = several(3000), torch.randn(3000, sum(DIMS), device="cuda")
        found = [tables(ids), cached(ids)]
        torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-5)  # sums go in the order of slots
        for out in found:
            (out * factor).sum().backward()
        parts = dict(zip(tables.names, factor.split(DIMS, 1), strict=True))
        for other in alone:
            (other(ids) * torch.cat([parts[name] for name in other.names], 1)).sum().backward()
    rows = cached.state_dict()
    for group, other in zip(tables.groups, alone, strict=True):
        assert torch.equal(group.weight, other.weight)
        torch.testing.assert_close(rows[group.key("weight")].cpu(), group.weight.cpu(), rtol=1e-5, atol=1e-5)


class Lists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tables = FusedEmbeddings(ROWS, DIMS, lr=0.05, align=8, device="cuda")
        # Smooth: where a ReLU turns by a rounding, both models are right and go apart from then on.
        self.layers = nn.Sequential(nn.Linear(self.tables.width(4), 32), nn.Tanh(), nn.Linear(32, 1)).cuda()

    def forward(self, ids, numbers: torch.Tensor) -> torch.Tensor:
        return self.layers(self.tables(ids, numbers)).squeeze(1)


@pytest.mark.filterwarnings("ignore:TensorFloat32", "ignore:The .grad attribute")  # said by torch's compiler
@pytest.mark.parametrize("compile", [False, True])
def test_a_captured_step_with_lists_equals_an_eager_one(compile: bool) -> None:
    models = [Lists(), Lists()]
    steps = [DeviceStep(models[0], graph=True, compile=compile), DeviceStep(models[1], graph=False, compile=False)]
    for number in range(16):
        ids = several(2048)
        if number in (10, 11):  # more values than there is room for
            values, offsets = ids["table_1"]
            ids["table_1"] = torch.cat([values, values, values]), offsets * 3
        lists = {name: ids.pop(name) for name in ("table_1", "table_3")}
        batch = torch.stack(list(ids.values()), 1), lists
        numbers, labels = torch.randn(2048, 4, device="cuda"), torch.randint(0, 2, (2048,), device="cuda")
        for step in steps:
            step(batch, numbers, labels)
    assert steps[0].captured and steps[0].captures >= 2
    for mine, theirs in zip(models[0].tables.groups, models[1].tables.groups, strict=True):
        torch.testing.assert_close(mine.weight, theirs.weight, rtol=1e-3, atol=1e-4)
    first, second = (step.metrics.collect() for step in steps)
    assert first["rows"] == second["rows"] == 16 * 2048 and abs(first["loss"] - second["loss"]) < 1e-4
    for model in models:
        model.tables.check_ids()


def test_a_cache_changes_nothing() -> None:
    torch.manual_seed(0)
    sizes = [30_000, 5]
    cached = CachedEmbeddings(sizes, 16, cache_rows=6000, lr=0.1, device="cuda")
    plain = FusedEmbeddings(sizes, 16, lr=0.1, device="cuda")
    plain.load_state_dict(cached.state_dict())
    for _ in range(12):
        ids = torch.stack([torch.randint(0, size, (2500,), device="cuda") for size in sizes], 1)
        factor = torch.randn(2500, 2, 16, device="cuda")
        for tables in (cached, plain):
            (tables(ids) * factor).sum().backward()
    mine, theirs = cached.state_dict(), plain.state_dict()
    for key in mine:
        torch.testing.assert_close(mine[key].cpu(), theirs[key].cpu(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["rowwise_adagrad", "adam"])
def test_a_replayed_update_is_the_update(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(most: int) -> tuple[torch.Tensor, bool]:
        monkeypatch.setattr(replayed_update, "_MOST", most)
        torch.manual_seed(0)
        tables = FusedEmbeddings([5, 10_000], 16, optimizer=name, lr=0.1, device="cuda")
        replayed = False
        for rows in [300] * 14 + [200] * 12 + [300] * 2:
            ids = torch.stack([torch.randint(0, n, (rows,), device="cuda") for n in (5, 10_000)], 1)
            first, second = tables(ids), tables(ids.flip(0))  # the second is looked up before the first is updated
            factor = torch.randn(rows, 2, 16, device="cuda")
            (first * factor).sum().backward()
            (second.sum() / 8).backward()
            tables.lr = 0.1 / (1 + int(tables.steps))
            room = tables.groups[0]._replayed._room
            replayed |= room is not None and room._graph is not None
        tables(ids)  # never updated
        again = copy.deepcopy(tables)
        for _ in range(12):
            again(ids).sum().backward()
        return torch.cat([tables.weight, again.weight]), replayed

    (with_graph, replayed), (without, never) = run(1 << 22), run(0)
    assert replayed and not never
    assert torch.equal(with_graph, without)


def test_a_second_backward_pass_of_a_replayed_update_is_refused_once_its_keys_are_gone() -> None:
    tables = FusedEmbeddings([50], 16, device="cuda")
    ids = torch.arange(40, device="cuda")[:, None]
    for _ in range(12):
        found = tables(ids)
        found.sum().backward(retain_graph=True)
    found.sum().backward(retain_graph=True)
    tables(ids).sum().backward()
    with pytest.raises(PenstockError, match="look the batch up again"):
        found.sum().backward()


def test_two_runs_give_the_same_bits() -> None:
    def run() -> torch.Tensor:
        torch.manual_seed(0)
        tables = FusedEmbeddings([5, 100_000], 16, dtype="bfloat16", lr=0.1, device="cuda")
        for _ in range(3):
            ids = torch.stack([torch.randint(0, n, (50_000,), device="cuda") for n in (5, 100_000)], 1)
            tables(ids).square().sum().backward()
        return tables.weight

    assert torch.equal(run(), run())


def test_rows_beyond_two_to_the_31_elements() -> None:
    rows = 140_000_000  # × 16 = 2.24e9 elements
    tables = FusedEmbeddings([7, rows], 16, optimizer="sgd", lr=1.0, dtype="bfloat16", device="cuda")
    ids = torch.tensor([[0, rows - 1], [6, 0], [3, rows - 1]], device="cuda")
    before = tables.weight[7 + rows - 1].float()
    found = tables(ids)
    torch.testing.assert_close(found[0, 1], before)
    found.sum().backward()
    torch.testing.assert_close(tables.weight[7 + rows - 1].float(), before - 2, rtol=0.02, atol=0.02)


def test_a_wrong_id_is_reported_and_harmless() -> None:
    tables = FusedEmbeddings({"user": 5, "item": 6}, 4, device="cuda")
    found = tables(torch.tensor([[1, 2], [5, 3]], device="cuda"))
    assert not found[1, 0].any()
    with pytest.raises(DataError, match="id 5 is outside table 'user'"):
        tables.check_ids()
    tables.check_ids()


class Clicks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = FusedEmbeddings([50, 3000], 16, output="concat", align=8, lr=0.05, device="cuda")
        self.layers = nn.Sequential(nn.Linear(self.tables.width(4), 32), nn.ReLU(), nn.Linear(32, 1)).cuda()

    def forward(self, ids: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return self.layers(self.tables(ids, numbers)).squeeze(1)


@pytest.mark.filterwarnings("ignore:TensorFloat32", "ignore:The .grad attribute")  # said by torch's compiler
def test_a_captured_step_equals_an_eager_one() -> None:
    models = [Clicks(), Clicks()]
    models[1].load_state_dict(models[0].state_dict())
    steps = [DeviceStep(models[0], graph=True, compile=True), DeviceStep(models[1], graph=False, compile=False)]
    for number in range(8):
        rows = 500 if number == 5 else 2048  # a batch of another size in between
        ids = torch.stack([torch.randint(0, n, (rows,), device="cuda") for n in (50, 3000)], 1)
        numbers, labels = torch.randn(rows, 4, device="cuda"), torch.randint(0, 2, (rows,), device="cuda")
        if number == 6:
            for model in models:
                model.tables.lr = 0.01
        for step in steps:
            step(ids, numbers, labels)
    torch.testing.assert_close(models[0].tables.weight, models[1].tables.weight, rtol=1e-3, atol=1e-4)
    first, second = (step.metrics.collect() for step in steps)
    assert first["rows"] == second["rows"] == 7 * 2048 + 500
    assert abs(first["loss"] - second["loss"]) < 1e-4 and abs(first["auc"] - second["auc"]) < 1e-3
