"""Fused embeddings against plain torch tables: forward, every optimizer over several steps, saved state, bad input."""

from __future__ import annotations

import copy
import gc
import itertools
import os
import subprocess
import sys
import weakref

import pytest
import torch
from torch import nn

from penstock import ColumnSchema, Schema
from penstock.core.errors import ColumnNotFoundError, DataError, ParameterError, SchemaError
from penstock.embedding import SGD, Adam, DecayedAdagrad, FusedEmbeddings
from penstock.loader.torch import Loader
from penstock.nn import MLP
from penstock.train import fit

SIZES = {"user": 50, "item": 9, "tags": 20}
OPTIMIZERS = ["sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam"]


def batch(seed: int, rows: int = 40) -> dict:
    torch.manual_seed(seed)
    lengths = torch.randint(0, 4, (rows,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return {
        "user": torch.randint(0, 50, (rows,), dtype=torch.int32),
        "item": torch.full((rows,), 4, dtype=torch.int8),
        "tags": (torch.randint(0, 20, (int(offsets[-1]),)), offsets),
    }


class Plain(nn.Module):
    """The same tables as separate parameters of torch."""

    def __init__(self, fused: FusedEmbeddings, sparse: bool) -> None:
        super().__init__()
        parts = fused.weight.float().split(list(SIZES.values()))
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(*part.shape, _weight=part.clone(), mode="mean", sparse=sparse, include_last_offset=True)
            for part in parts
        )

    def forward(self, ids: dict) -> torch.Tensor:
        user, item, tags = self.tables
        single = [user(ids["user"].long()[:, None]), item(ids["item"].long()[:, None])]
        return torch.stack([*single, tags(*ids["tags"])], 1)

    @property
    def weight(self) -> torch.Tensor:
        return torch.cat([table.weight for table in self.tables])


class RowWise(torch.optim.Optimizer):
    """Row-wise Adagrad and row-wise Adam on the rows with a gradient, spelled out."""

    def __init__(self, parameters, lr: float, adam: bool) -> None:
        super().__init__(parameters, {"lr": lr, "adam": adam})
        self.count = 0

    @torch.no_grad()
    def step(self) -> None:
        self.count += 1
        for group in self.param_groups:
            for weight in group["params"]:
                rows = (weight.grad != 0).any(1)
                g, state, square = weight.grad[rows], self.state[weight], (weight.grad[rows] ** 2).mean(1)
                v = state.setdefault("v", torch.zeros(len(weight)))
                if not group["adam"]:
                    v[rows] += square
                    weight[rows] -= group["lr"] * g / (v[rows].sqrt() + 1e-10)[:, None]
                    continue
                m = state.setdefault("m", torch.zeros_like(weight))
                m[rows], v[rows] = 0.9 * m[rows] + 0.1 * g, 0.999 * v[rows] + 0.001 * square
                first, second = 1 - 0.9**self.count, 1 - 0.999**self.count
                weight[rows] -= group["lr"] / first * m[rows] / ((v[rows] / second).sqrt() + 1e-8)[:, None]


def torch_optimizer(name: str, plain: Plain, lr: float) -> torch.optim.Optimizer:
    return {
        "sgd": lambda: torch.optim.SGD(plain.parameters(), lr),
        "adagrad": lambda: torch.optim.Adagrad(plain.parameters(), lr),
        "rowwise_adagrad": lambda: RowWise(plain.parameters(), lr, adam=False),
        "adam": lambda: torch.optim.SparseAdam(plain.parameters(), lr),
        "rowwise_adam": lambda: RowWise(plain.parameters(), lr, adam=True),
    }[name]()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_equals_torch(name: str) -> None:
    fused = FusedEmbeddings(SIZES, 6, optimizer=name, lr=0.05, pooling="mean", scale=0.5)
    plain = Plain(fused, sparse=name == "adam")
    optimizer = torch_optimizer(name, plain, 0.05)
    target = torch.randn(40, 3, 6)
    for seed in range(4):
        ids = batch(seed)
        found, wanted = fused(ids), plain(ids)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
        optimizer.zero_grad()
        for out in (found, wanted):
            ((out - target) ** 2).sum().backward()
        optimizer.step()
        torch.testing.assert_close(fused.weight, plain.weight.detach(), rtol=1e-5, atol=1e-5)


def test_every_form_of_ids_gives_the_same() -> None:
    fused = FusedEmbeddings([30, 5], 4)
    matrix = torch.tensor([[29, 1], [0, 4], [3, 3]])
    columns = {"table_0": matrix[:, 0], "table_1": matrix[:, 1].int()}
    as_lists = {**columns, "table_1": (matrix[:, 1], torch.arange(4))}
    wanted = torch.stack([fused.weight[matrix[:, 0]], fused.weight[30 + matrix[:, 1]]], 1)
    packed = matrix.int().t().contiguous().t()
    padded = {**columns, "table_0": matrix[:, :1]}
    mixed = (matrix[:, :1], {"table_1": as_lists["table_1"]})
    for ids in (matrix, packed, columns, as_lists, padded, mixed):
        torch.testing.assert_close(fused(ids), wanted)
    halved = fused(as_lists, sample_weights={"table_1": torch.full((3,), 0.5)})
    torch.testing.assert_close(halved[:, 1], wanted[:, 1] / 2)


def test_numbers_are_written_beside_the_embeddings() -> None:
    fused = FusedEmbeddings([7, 8], 3, output="concat", align=8, lr=0.1)
    dense = torch.randn(5, 4, requires_grad=True)
    out = fused(torch.zeros(5, 2, dtype=torch.int64), dense)
    assert out.shape == (5, 16) == (5, fused.width(4))
    torch.testing.assert_close(out[:, 6:10], dense)
    assert not out[:, 10:].any()
    (out * torch.arange(16.0)).sum().backward()
    torch.testing.assert_close(dense.grad, torch.arange(6.0, 10).expand(5, 4))


def test_nothing_is_trained_without_gradients() -> None:
    fused = FusedEmbeddings([4], 2)
    before = fused.weight.clone()
    with torch.no_grad():
        fused(torch.tensor([[1]]))
    fused(torch.tensor([[1]]))
    assert torch.equal(before, fused.weight) and int(fused.steps) == 0
    fused(torch.empty((0, 1), dtype=torch.int64)).sum().backward()
    assert torch.equal(before, fused.weight)


def test_autocast_and_bfloat16() -> None:
    fused = FusedEmbeddings([40], 8, dtype=torch.bfloat16, lr=1e-3, optimizer="sgd", scale=1.0)
    start = fused.weight.float()
    with torch.autocast("cpu", torch.bfloat16):
        assert fused(torch.tensor([[1]])).dtype == torch.bfloat16
    everywhere = torch.arange(40)[:, None]
    for _ in range(200):  # steps far smaller than half a step of bfloat16's grid: nearest would lose them all
        fused(everywhere).sum().backward()
    assert abs(float((fused.weight.float() - start).mean()) + 0.2) < 0.02


@pytest.mark.parametrize("name", ["rowwise_adagrad", "adam"])
def test_state_dict_resumes(name: str) -> None:
    first, second = (FusedEmbeddings(SIZES, 4, optimizer=name, lr=0.1) for _ in range(2))
    for seed in range(2):
        first(batch(seed)).square().sum().backward()
    first.lr = 0.025
    second.load_state_dict(first.state_dict())
    assert second.lr == first.lr
    for tables in (first, second):
        tables(batch(5)).square().sum().backward()
    assert all(torch.equal(first.state_dict()[k], second.state_dict()[k]) for k in first.state_dict())
    assert not list(first.parameters())


def test_rates_can_be_scheduled() -> None:
    fused = FusedEmbeddings([3], 2, optimizer=SGD(lr=lambda step: 0.5**step))
    weights = [fused.weight[1, 0].item()]
    for _ in range(3):
        fused(torch.tensor([[1]])).sum().backward()
        weights.append(fused.weight[1, 0].item())
    assert [round(a - b, 4) for a, b in itertools.pairwise(weights)] == [1.0, 0.5, 0.25]


def test_bad_input() -> None:
    fused = FusedEmbeddings(SIZES, 4)
    good = batch(0)
    with pytest.raises(DataError, match=r"id 9 is outside table 'item', which has rows 0 to 8"):
        fused({**good, "item": torch.full((40,), 9)})
    with pytest.raises(DataError, match=r"id -1 is outside table 'tags'"):
        fused({**good, "tags": (torch.tensor([-1]), torch.tensor([0] * 40 + [1]))})
    with pytest.raises(DataError, match="signed integers"):
        fused({**good, "user": torch.zeros(40)})
    with pytest.raises(DataError, match="offsets of 'tags' must rise from 0"):
        fused({**good, "tags": (torch.tensor([1, 2]), torch.tensor([0] * 40 + [1]))})
    with pytest.raises(DataError, match="the batch has 40 rows"):
        fused({**good, "tags": (torch.tensor([1]), torch.tensor([0, 1]))})
    with pytest.raises(ColumnNotFoundError, match="'tags'"):
        fused({"user": good["user"], "item": good["item"]})
    with pytest.raises(DataError, match=r"\(B, 3\)"):
        fused(torch.zeros((2, 2), dtype=torch.int64))
    with pytest.raises(ParameterError, match="rowwise_adagrad"):
        FusedEmbeddings(SIZES, 4, optimizer="rowwise_adagrat")
    for wrong in (Adam(), SGD(momentum=0.9), DecayedAdagrad()):
        with pytest.raises(ParameterError, match="take SGD, Adagrad, LazyAdam, RowWiseAdam in their plain form"):
            FusedEmbeddings(SIZES, 4, optimizer=wrong)
    with pytest.raises(ParameterError, match="one of float32, bfloat16"):
        FusedEmbeddings(SIZES, 4, dtype=torch.float16)
    with pytest.raises(SchemaError, match="no cardinality"):
        FusedEmbeddings(Schema([ColumnSchema("user", "int64", role="categorical")]))


def test_fit_trains_them() -> None:
    schema = Schema([
        ColumnSchema("user", "int64", role="categorical", cardinality=5), ColumnSchema("click", "int64", role="label"),
    ])  # fmt: skip
    data = {"user": [1, 2, 3, 4] * 50, "click": [0, 1, 0, 1] * 50}
    loader = Loader(data, 20, categorical=["user"], labels=["click"], shuffle=True)
    tables = FusedEmbeddings(schema, 4, optimizer="adagrad", lr=0.5)
    history = fit(MLP(schema, 4, hidden=()), loader, tables, epochs=3, valid=loader)
    assert history.last("valid").metrics["auc"] == 1.0
    plain = tables.tables()
    ids = {"user": torch.tensor([1, 4])}
    torch.testing.assert_close(plain(ids).detach(), tables(ids).detach())


def test_gradients_that_are_not_finite_touch_their_own_row_only() -> None:
    fused = FusedEmbeddings([50], 4, optimizer="sgd", lr=1.0)
    before = fused.weight.clone()
    factor = torch.ones(10, 1, 4)
    factor[3, 0, 1], factor[7, 0, 0] = float("nan"), float("inf")
    (fused(torch.arange(10)[:, None] % 8) * factor).sum().backward()
    changed = (fused.weight != before).any(1).nonzero().flatten().tolist()
    assert changed == [0, 1, 2, 4, 5, 6] and fused.skipped_rows == 2
    assert fused.weight.isfinite().all()


def test_scaled_losses() -> None:
    plain, scaled = (FusedEmbeddings(SIZES, 4, optimizer="adagrad", lr=0.1) for _ in range(2))
    scaled.load_state_dict(plain.state_dict())
    scaled.loss_scale = 256
    plain(batch(0)).square().sum().backward()
    (scaled(batch(0)).square().sum() * 256).backward()
    torch.testing.assert_close(scaled.weight, plain.weight)
    scaled.loss_scale = torch.tensor(0.5)
    assert scaled.loss_scale == 0.5
    for wrong in (0, -1.0, float("inf"), "2"):
        with pytest.raises(ParameterError, match="loss_scale must be a number above 0"):
            scaled.loss_scale = wrong


def test_dtypes_the_kernels_do_not_take() -> None:
    for change in (nn.Module.half, nn.Module.double, nn.Module.bfloat16):
        with pytest.raises(ParameterError, match="weights in float32 or bfloat16 and state in float32"):
            change(FusedEmbeddings([5], 4))(torch.tensor([[1]]))
    with pytest.raises(DataError, match=r"signed integers \(or uint8\), got torch.uint16"):
        FusedEmbeddings([5], 4)(torch.tensor([[1]], dtype=torch.uint16))


def test_a_bag_may_be_as_long_as_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = FusedEmbeddings({"tags": 100}, 4, optimizer="sgd", lr=1.0, pooling="mean")
    before = fused.weight.clone()
    values = torch.arange(500_000) % 100
    found = fused({"tags": (values, torch.tensor([0, 500_000, 500_000]))})
    torch.testing.assert_close(found[0, 0], before.mean(0), rtol=1e-3, atol=1e-5)
    found.sum().backward()
    torch.testing.assert_close(fused.weight, before - 0.01, rtol=1e-3, atol=1e-5)
    monkeypatch.setattr("penstock.embedding.fused.ids._MOST", 10)
    with pytest.raises(DataError, match="a batch may hold 10 ids, this one has 12; use smaller batches"):
        fused(torch.zeros((12, 1), dtype=torch.int64))


WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None
import torch
from penstock.embedding import FusedEmbeddings
tables = FusedEmbeddings([5], 4)
import os
os.environ.pop("TRITON_INTERPRET")
print(tables(torch.tensor([[1]])).shape)  # the CPU needs none
os.environ["TRITON_INTERPRET"] = "1"  # the kernels of a GPU do
try:
    tables(torch.tensor([[1]]))
except Exception as error:
    print(type(error).__name__, error)
"""


def test_triton_missing_is_said_clearly() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TRITON], capture_output=True, text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "torch.Size([1, 1, 4])" in done.stdout
    assert "PenstockError kernels for a GPU are written in Triton, which is not installed" in done.stdout


def test_memory_goes_with_the_tables() -> None:
    """A GPU has no room for tables that wait to be found by the garbage collector."""
    ids = {"user": torch.tensor([1, 2]), "item": torch.tensor([0, 3])}
    FusedEmbeddings({"user": 10, "item": 5}, 4)(ids).sum().backward()  # what is imported on the way holds frames
    gc.disable()
    try:
        tables = FusedEmbeddings({"user": 10, "item": 5}, {"user": 4, "item": 8})
        tables(ids).sum().backward()
        again = copy.deepcopy(tables)
        before = again(ids).detach().clone()
        weight = weakref.ref(tables.groups[0].weight)
        del tables
        assert weight() is None
        torch.testing.assert_close(again(ids), before)
    finally:
        gc.enable()
