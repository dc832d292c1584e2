"""Hashed tables on a real GPU: rows given in the step, captured or not, with the numbers of the CPU."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from torch import nn

from penstock.core.errors import DataError
from penstock.embedding import HashedEmbeddings
from penstock.train import DeviceStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:TensorFloat32", "ignore:The .grad attribute"),
]
CASES = Path(__file__).parents[1] / "kernels" / "hashed_cases.py"
NAMES = ["user", "item", "shop"]


def test_kernels_agree_with_the_oracle(capsys: pytest.CaptureFixture[str]) -> None:
    names = runpy.run_path(str(CASES))
    names["main"]("cuda")
    assert capsys.readouterr().out.count("agrees") == len(names["CASES"])


def batch(step: int, rows: int = 5000) -> torch.Tensor:
    """Ids of which most are new, and of which some are in every row."""
    generator = torch.Generator().manual_seed(step)
    most = torch.tensor([3, 4000 * (step + 1), 2**62])
    return (torch.rand(rows, 3, generator=generator, dtype=torch.float64) ** 3 * most).long()


def trained(device: str, steps: int = 6, **settings) -> dict[str, torch.Tensor]:
    tables = HashedEmbeddings(NAMES, 16, capacity=100, optimizer="adam", lr=0.05, device=device, **settings)
    for step in range(steps):
        tables(batch(step).to(device)).square().sum().backward()
        tables.check_ids()
    return {key: tensor.cpu() for key, tensor in tables.state_dict().items()}


@pytest.mark.parametrize("settings", [{}, {"max_rows": 16_000}, {"dtype": "bfloat16"}])
def test_cpu_and_gpu_train_alike(settings: dict) -> None:
    mine, theirs = trained("cuda", **settings), trained("cpu", **settings)
    for key in ("ids", "tables", "touched", "free", "clock"):
        assert torch.equal(mine[key], theirs[key]), key
    close = {"rtol": 1e-2, "atol": 1e-2} if settings.get("dtype") else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(mine["weight"], theirs["weight"], **close)


def test_runs_repeat_bit_for_bit() -> None:
    first, second = (trained("cuda", max_rows=16_000) for _ in range(2))
    for key in first:
        assert torch.equal(first[key], second[key]), key


class Clicks(nn.Module):
    def __init__(self, device: str, **settings) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tables = HashedEmbeddings(NAMES, 16, lr=0.1, output="concat", **settings)
        self.layer = nn.Linear(self.tables.width(), 1)
        self.to(device)

    def forward(self, ids: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return self.layer(self.tables(ids)).squeeze(1)


@pytest.mark.parametrize("settings", [{"capacity": 64}, {"capacity": 1_000_000}, {"capacity": 64, "max_rows": 16_000}])
def test_a_captured_step_inserts_grows_and_evicts(settings: dict) -> None:
    found = []
    for device in ("cuda", "cpu"):
        model = Clicks(device, **settings)
        step = DeviceStep(model, torch.optim.SGD(model.layer.parameters(), lr=0.01))
        for number in range(12):
            ids = batch(number).to(device)
            step(ids, torch.empty(len(ids), 0, device=device), (ids[:, 0] % 2).float())
            model.tables.check_ids()
        assert step.captured == (device == "cuda")
        found.append({key: tensor.cpu() for key, tensor in model.tables.state_dict().items()})
    mine, theirs = found
    for key in ("ids", "tables", "touched", "free", "clock"):
        assert torch.equal(mine[key], theirs[key]), key
    torch.testing.assert_close(mine["weight"], theirs["weight"], rtol=1e-3, atol=1e-3)


def test_a_graph_of_ones_own_says_when_there_was_no_room() -> None:
    tables = HashedEmbeddings(NAMES, 16, capacity=20_000, device="cuda")
    ids = batch(0).cuda()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        tables(ids).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tables(ids).sum().backward()
    for number in range(8):
        ids.copy_(batch(number))
        graph.replay()
    with pytest.raises(DataError, match="had no room for new ids in a captured step"):
        tables.check_ids()
    while not tables.make_room():
        graph.replay()
    assert tables.home.capacity > 20_000
