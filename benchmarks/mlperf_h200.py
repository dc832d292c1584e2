"""MLPerf's DLRM-dcnv2 on one GPU: python benchmarks/mlperf_h200.py [--batch 65536] [--steps 20] [--most-rows 40000000]

Claim `gpu/mlperf`: rows a second of whole training steps, batches already on the GPU. The model is that of MLPerf
Training's recommendation benchmark: 26 tables of dim 128 with up to 40 M rows (204 M in all, 104 GB in float32),
214 ids a row in lists of fixed lengths, 13 numbers through layers of 512, 256 and 128, three cross layers of rank 512,
then layers of 1024, 1024, 512, 256 and 1; Adagrad, row-wise on the tables; bfloat16 autocast. Ids are drawn
log-uniform, so there is nothing to learn: it measures speed alone.

`fbgemm_cuda` is the same model, compiled the same way, over FBGEMM's CUDA tables where `fbgemm_gpu` is installed. Both
do not fit side by side at full size, so they run one after the other. `tensor_cores` is the least that the products
allow: 96 MFLOP a row at 790 TFLOP/s.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
import time

from criteo_model import fbgemm_tables
from gpu_tables import HOTS
from harness import Claim, report

SIZES = [
    40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282, 10, 2_209, 11_938,
    155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108, 36,
]  # fmt: skip
DIM, NUMBERS, RANK, CROSSES = 128, 13, 512, 3
BOTTOM, TOP = (512, 256, 128), (1024, 1024, 512, 256)
NAMES = [f"c{i}" for i in range(len(SIZES))]
TENSOR_CORES = 790e12  # bfloat16 operations a second, measured on an H200


def layers(nn, width: int, sizes: tuple[int, ...]):
    """Linear layers with ReLU between and behind them."""
    made = []
    for size in sizes:
        made += [nn.Linear(width, size), nn.ReLU()]
        width = size
    return nn.Sequential(*made)


def operations_a_row() -> float:
    """Floating-point operations of the products, forward and backward."""
    width = (len(SIZES) + 1) * DIM
    chains = [(NUMBERS, *BOTTOM), (width, *TOP, 1)]
    products = sum(a * b for chain in chains for a, b in itertools.pairwise(chain))
    return 6 * (products + 2 * CROSSES * width * RANK)


def model_over(torch, tables, beside: bool):
    """The model; `beside`: the tables write the bottom layers' output beside the embeddings, else it is joined."""
    nn, width = torch.nn, (len(SIZES) + 1) * DIM

    class DLRMdcnv2(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = tables
            self.bottom = layers(nn, NUMBERS, BOTTOM)
            self.narrow = nn.ModuleList(nn.Linear(width, RANK, bias=False) for _ in range(CROSSES))
            self.wide = nn.ModuleList(nn.Linear(RANK, width) for _ in range(CROSSES))
            self.top = nn.Sequential(layers(nn, width, TOP), nn.Linear(TOP[-1], 1))

        def forward(self, ids, numbers):
            dense = self.bottom(numbers)
            first = self.tables(ids, dense) if beside else self.joined(dense, ids)
            crossed = first
            for narrow, wide in zip(self.narrow, self.wide, strict=True):
                crossed = first * wide(narrow(crossed)) + crossed
            return self.top(crossed).squeeze(1)

        def joined(self, dense, ids):
            return torch.cat([self.tables(*ids).to(dense.dtype), dense], 1)

    return DLRMdcnv2().to("cuda")


def draw(torch, sizes: list[int], rows: int) -> tuple:
    """`{name: (rows, hot)}`, numbers and labels."""
    columns = {}
    for name, size, hot in zip(NAMES, sizes, HOTS, strict=True):
        drawn = torch.rand(rows, hot, device="cuda", dtype=torch.float64)
        columns[name] = (float(size) ** drawn - 1).long().clamp_(0, size - 1).int()
    return columns, torch.randn(rows, NUMBERS, device="cuda"), (torch.rand(rows, device="cuda") < 0.25).float()


def penstock_tables(torch, sizes: list[int]):
    from penstock.embedding import FusedEmbeddings

    return FusedEmbeddings(dict(zip(NAMES, sizes, strict=True)), DIM, lr=0.005, output="concat", device="cuda")


def penstock_ids(torch, columns: dict) -> tuple:
    """As a packed batch with lists lies."""
    singles = torch.stack([c[:, 0] for c in columns.values() if c.shape[1] == 1]).t()
    return singles, {name: c for name, c in columns.items() if c.shape[1] > 1}


def fbgemm_ids(torch, columns: dict) -> tuple:
    lengths = torch.tensor([c.shape[1] for c in columns.values() for _ in range(len(c))], dtype=torch.int64)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).cuda()
    return torch.cat([c.reshape(-1) for c in columns.values()]).long(), offsets


def rows_a_second(torch, model, batches: list[tuple], options) -> float:
    """The best of several rounds, the first steps (compiling) left out."""
    from penstock.train import DeviceStep

    dense = [weight for name, weight in model.named_parameters() if not name.startswith("tables.")]
    optimizer = torch.optim.Adagrad(dense, 0.005)
    step = DeviceStep(model, optimizer, autocast=torch.bfloat16, graph=None if options.capture else False)
    for i in range(6):
        step(*batches[i % len(batches)])
    best = 0.0
    for _ in range(options.rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for i in range(options.steps):
            step(*batches[i % len(batches)])
        torch.cuda.synchronize()
        best = max(best, options.steps * options.batch / (time.perf_counter() - start))
    print(f"{best / 1e6:.2f} M rows/s, captured: {step.captured}", flush=True)
    if options.stages:
        show_stages(torch, step, batches)
    return best


def show_stages(torch, step, batches: list[tuple]) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for batch in batches:
            step(*batch)
        torch.cuda.synchronize()
    for event in sorted(profile.key_averages(), key=lambda e: -e.device_time_total)[:25]:
        taken = event.device_time_total / len(batches) / 1e3
        print(f"  {taken:7.3f} ms {event.count // len(batches):4d} × {event.key[:100]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most-rows", type=int, default=40_000_000, help="rows of the largest tables")
    parser.add_argument(
        "--capture", action="store_true", help="capture the step as a CUDA graph where that is possible"
    )
    parser.add_argument("--stages", action="store_true", help="print the kernels that take most of the time")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("benchmarks/mlperf_h200.py needs a CUDA device; there is none here")
        sys.exit(0)
    torch.manual_seed(0)
    sizes = [min(size, options.most_rows) for size in SIZES]
    drawn = [draw(torch, sizes, options.batch) for _ in range(3)]
    batches = [(penstock_ids(torch, columns), *rest) for columns, *rest in drawn]
    rate = rows_a_second(torch, model_over(torch, penstock_tables(torch, sizes), True), batches, options)
    gc.collect()
    torch.compiler.reset()  # what it compiled holds the first model, and both do not fit
    torch.cuda.empty_cache()
    peers = {"tensor_cores": TENSOR_CORES / operations_a_row(), "fbgemm_cuda": None}
    if (tables := fbgemm_tables(torch, sizes, DIM, "BF16", lr=0.005)) is None:
        print("fbgemm_gpu is not installed here, so its figure is missing: pip install fbgemm-gpu")
    else:
        model = model_over(torch, tables, False)
        model.joined = torch.compiler.disable(model.joined)
        batches = [(fbgemm_ids(torch, columns), *rest) for columns, *rest in drawn]
        peers["fbgemm_cuda"] = rows_a_second(torch, model, batches, options)
    extra = {"batch": options.batch, "rows": sum(sizes), "ids_a_row": sum(HOTS)}
    report(f"MLPerf's DLRM-dcnv2 on {torch.cuda.get_device_name()}",
           [Claim("gpu/mlperf", "rows/s", rate, peers, extra=extra)])  # fmt: skip


if __name__ == "__main__":
    main()
