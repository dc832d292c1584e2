"""From parquet in the page cache to batches on a GPU, shuffled; from the memory cache; and beside a model.

    python benchmarks/loader_gpu.py [--rows 16000000] [--batch 400000] [--folder /dev/shm]

Times are taken with CUDA events on the training stream, so they hold the copies and shuffles that batches wait for. The
last part trains a stand-in of 5 ms a step on every batch and states how long the training stream was idle between
steps. Without a GPU it says so and ends.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import polars as pl
from harness import Claim, best_of, report

from loader import dataset, write_file

ROW_BYTES = 160


def measure(torch, loader) -> float:
    """Seconds from the first request to the last batch's arrival on the training stream."""
    stream = torch.cuda.current_stream()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record(stream)
    total = torch.zeros((), device="cuda", dtype=torch.int64)
    for cats, _, _ in loader:
        total += cats[-1, 0]  # something that has to wait for the batch
    end.record(stream)
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def busy_step(torch, milliseconds: float):
    """Work of a known length on the training stream: matrix products, calibrated once."""
    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

    def products(count: int) -> None:
        for _ in range(count):
            torch.mm(matrix, matrix)

    for count in (10, 200):  # the first run warms up
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        products(count)
        end.record()
        end.synchronize()
    repeats = max(1, round(milliseconds / (start.elapsed_time(end) / 200)))
    return lambda: products(repeats)


def idle_share(torch, loader, milliseconds: float = 5.0) -> dict[str, float]:
    """How long the training stream waits between steps of a model, as a share of the whole."""
    step = busy_step(torch, milliseconds)
    marks = []
    for cats, _, _ in loader:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        cats.sum()
        begin.record()
        step()
        end.record()
        marks.append((begin, end))
    torch.cuda.synchronize()
    marks = marks[2:]  # filling the pipe
    whole = marks[0][0].elapsed_time(marks[-1][1])
    working = sum(begin.elapsed_time(end) for begin, end in marks)
    return {"idle_share": round(1 - working / whole, 4), "milliseconds_per_step": round(whole / len(marks), 3)}


def copy_limit(torch) -> float:
    """Rows per second that the bus carries from pinned memory."""
    host = torch.empty(512 << 20, dtype=torch.uint8, pin_memory=True)
    device = torch.empty_like(host, device="cuda")
    best = 0.0
    for _ in range(5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        device.copy_(host, non_blocking=True)
        end.record()
        end.synchronize()
        best = max(best, host.numel() / (start.elapsed_time(end) / 1e3))
    return best / ROW_BYTES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=16_000_000)
    parser.add_argument("--batch", type=int, default=400_000)
    parser.add_argument("--chunk-rows", type=int, default=2_000_000)
    parser.add_argument("--folder", default=None, help="where the file is written; /dev/shm keeps it in memory")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("benchmarks/loader_gpu.py needs a CUDA device; there is none here")
        sys.exit(0)
    from penstock.loader.torch import Loader

    folder = Path(tempfile.mkdtemp(prefix="penstock-benchmark-", dir=options.folder))
    try:
        path = folder / "clicks.parquet"
        write_file(path, options.rows)
        decode = options.rows / best_of({"polars": lambda: pl.read_parquet(path)}, 3)["polars"]
        settings = {"shuffle": True, "layout": "packed", "device": "cuda", "chunk_rows": options.chunk_rows}
        streamed = Loader(dataset(path), options.batch, **settings)
        cached = Loader(dataset(path), options.batch, cache="memory", **settings)
        on_host = Loader(dataset(path), options.batch, **{**settings, "device": "cpu"})
        times = {"streamed": [], "cached": []}
        for _ in range(4):
            times["streamed"].append(measure(torch, streamed))
            times["cached"].append(measure(torch, cached))
        rate = {name: options.rows / min(seconds[1:]) for name, seconds in times.items()}
        rate["host"] = options.rows / best_of({"host": lambda: [None for _ in on_host]}, 3)["host"]
        beside = idle_share(torch, streamed)
        beside_cached = idle_share(torch, cached)
        print(streamed.stats())
        print(cached.stats())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    bus = copy_limit(torch)
    report(
        f"Loader to {torch.cuda.get_device_name()}, {options.rows:,} rows × 40 columns, batch {options.batch:,}",
        [
            Claim("gpu/loader", "rows/s", rate["streamed"], {"polars_decode": decode, "limit": bus, "nvtabular": None},
                  extra={"cached": round(rate["cached"]), "host_only": round(rate["host"])}),
            Claim("gpu/loader_cached", "rows/s", rate["cached"], {"polars_decode": decode, "limit": bus}),
            Claim("gpu/loader_beside_model", "share idle", beside["idle_share"] or 1e-6, {}, higher_is_better=False,
                  extra={"streamed": beside, "cached": beside_cached}),
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
