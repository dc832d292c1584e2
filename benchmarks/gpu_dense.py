"""Claim `gpu/dense`: a training step of the default models at small batches, on a GPU.

Ours is `penstock.train.DeviceStep` as `penstock train` makes it: fused tables, captured, products in TF32. The peers
have the same fused tables and are captured by the same step, so that what is compared is the dense model: DLRM of
PyTorch's modules (`torch_layers`, in float32 and in TF32), with PyTorch's loss and its fused Adam. `limit` is the least
time of that step's matrix products alone, in TF32. Other models are measured by themselves.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from harness import Claim, report

from penstock import ColumnSchema, Schema
from penstock.data.synthetic import CARDINALITIES

SIZES = [min(size, 200_000) for size in CARDINALITIES["kaggle"]]
NUMBERS, DIM = 13, 16
BATCHES = (256, 1024, 4096, 16_384, 65_536)


def schema() -> Schema:
    numbers = [ColumnSchema(f"I{i}", "float32", role="continuous") for i in range(NUMBERS)]
    ids = [ColumnSchema(f"C{i}", "int32", role="categorical", cardinality=size) for i, size in enumerate(SIZES)]
    return Schema([*numbers, *ids])


def batches(torch: Any, rows: int) -> list[tuple[Any, Any, Any]]:
    """Four batches as a loader delivers them packed: columns lie together."""
    draw = torch.Generator(device="cuda").manual_seed(1)
    sizes = torch.tensor(SIZES, device="cuda")[:, None]
    found = []
    for _ in range(4):
        share = torch.rand(len(SIZES), rows, device="cuda", generator=draw, dtype=torch.float64)
        ids = (sizes.double() ** share - 1).long().clamp_(max=sizes - 1).int()
        numbers = torch.randn(NUMBERS, rows, device="cuda", generator=draw)
        labels = (torch.rand(rows, device="cuda", generator=draw) < 0.25).float()
        found.append((ids.t(), numbers.t(), labels))
    return found


def torch_dlrm(torch: Any) -> Any:
    """The default DLRM, its linear part included, of PyTorch's modules."""
    nn, count = torch.nn, len(SIZES) + 1

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bottom = nn.Sequential(nn.Linear(NUMBERS, 64), nn.ReLU(), nn.Linear(64, DIM))
            width = DIM + count * (count - 1) // 2
            self.top = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))
            self.linear = nn.Linear(NUMBERS, 1)
            places = torch.tril_indices(count, count, -1)
            self.register_buffer("pairs", places[0] * count + places[1])

        def forward(self, numbers: Any, embeddings: Any) -> Any:
            projected = self.bottom(numbers)
            vectors = torch.cat([projected.unsqueeze(1), embeddings], 1)
            products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
            logits = self.top(torch.cat([projected, products], 1)) + self.linear(numbers)
            return logits.squeeze(1) + embeddings[:, :, 0].sum(1)

    return Plain()


def step_of(torch: Any, name: str, tf32: bool) -> Any:
    """A captured step over fused tables; `name` is a model of ours, or "torch_layers"."""
    from penstock.embedding import FusedEmbeddings
    from penstock.nn import MODELS
    from penstock.train import DeviceStep

    torch.manual_seed(0)
    tables = FusedEmbeddings({f"C{i}": size for i, size in enumerate(SIZES)}, DIM, lr=0.05, device="cuda")
    if name != "torch_layers":
        return DeviceStep(MODELS[name](schema(), DIM, linear=True).cuda(), tables=tables, compile=False, tf32=tf32)
    model = torch_dlrm(torch).cuda()
    loss, adam = torch.nn.functional.binary_cross_entropy_with_logits, torch.optim.Adam
    own = DeviceStep(
        model, adam(model.parameters(), 1e-3, fused=True, capturable=True), tables=tables, compile=False, tf32=tf32,
        loss_fn=lambda logits, labels: loss(logits, labels),
    )  # fmt: skip
    own._adam = None  # its step is torch's
    return own


def microseconds(torch: Any, step: Any, given: list[Any], steps: int = 200) -> float:
    """A step's least mean time over four stretches, batches in turns."""
    for number in range(8):
        step(*given[number % 4])
    assert step.captured
    best = float("inf")
    for _ in range(4):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for number in range(steps):
            step(*given[number % 4])
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) / steps * 1e3)
        step.metrics.collect()
    return best


def products_alone(torch: Any, rows: int) -> float:
    """Microseconds of the products of matrices of a DLRM's step, forward and backward, captured, in TF32."""
    width = -(-(DIM + (len(SIZES) + 1) * len(SIZES) // 2) // 4) * 4
    shapes = [(NUMBERS + 3, 64), (64, DIM), (width, 128), (128, 64)]
    made = [tuple(torch.randn(size, device="cuda") for size in ((rows, n), (n, m), (rows, m))) for n, m in shapes]

    def work() -> None:
        for x, weight, gradient in made:
            _ = x @ weight, gradient @ weight.t(), x.t() @ gradient

    torch.set_float32_matmul_precision("high")
    work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    torch.set_float32_matmul_precision("highest")
    best = float("inf")
    for _ in range(20):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) * 1e3)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="*", default=BATCHES)
    arguments = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a GPU")
    claims = []
    for rows in arguments.batch:
        given = batches(torch, rows)
        kinds = [("DLRM", "DLRM", True), ("float32", "DLRM", False), ("torch_layers", "torch_layers", False)]
        kinds += [("torch_layers_tf32", "torch_layers", True)]
        kinds += [(name, name, True) for name in ("DCNv2", "DeepFM", "MLP")] if rows == 4096 else []
        taken = {}
        for key, name, tf32 in kinds:
            taken[key] = microseconds(torch, step_of(torch, name, tf32), given)
            torch.cuda.empty_cache()
        peers = {key: rows / taken[key] * 1e6 for key in ("torch_layers", "torch_layers_tf32")}
        peers["limit"] = rows / products_alone(torch, rows) * 1e6
        extra: dict[str, object] = {f"{key}_us": round(value, 1) for key, value in taken.items()}
        claims.append(Claim(f"gpu/dense, {rows:,}", "rows/s", rows / taken["DLRM"] * 1e6, peers, extra=extra))
    report("A step of the default models on a GPU", claims)


if __name__ == "__main__":
    main()
