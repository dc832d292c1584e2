"""From parquet in the page cache to batches on a GPU, shuffled; from the memory cache; and beside a model.

    python benchmarks/loader_gpu.py [--rows 16000000] [--batch 400000] [--codec none] [--threads 4] [--folder /dev/shm]

Claim `gpu/loader`: rows/s of shuffled batches in the best epoch, and `first_epoch`: those of a loader's first one,
which reads the files; from the second one on it has their pages pinned where the system keeps them. The files are as
the ETL leaves them (`--codec none`: plain pages and dictionaries, with checksums), whose pages the GPU decodes;
`decoded_by_host` is the same loader with that switched off.
The cores that each kept busy are stated. With `--codec snappy` the host decodes in any case.

Times are taken with CUDA events on the training stream, so they hold the copies and shuffles that batches wait for. The
last part trains a stand-in of 5 ms a step on every batch and states how long the training stream was idle between
steps. Without a GPU it says so and ends.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import polars as pl
from criteo_model import dataset, write_files
from harness import Claim, best_of, report

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


def timed(torch, loader) -> tuple[float, float]:
    """Seconds of an epoch, and how many cores it kept busy."""
    processor, clock = time.process_time(), time.perf_counter()
    seconds = measure(torch, loader)
    return seconds, (time.process_time() - processor) / (time.perf_counter() - clock)


@contextmanager
def host_decodes():
    """As if the device could not decode parquet pages."""
    from penstock.loader import device_chunks

    own, device_chunks.can_decode = device_chunks.can_decode, lambda device: False
    try:
        yield
    finally:
        device_chunks.can_decode = own


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
    parser.add_argument("--codec", default="none", help="of the files: none, as to_parquet writes them, or snappy")
    parser.add_argument("--threads", type=int, default=None, help="that read; by default all but two cores")
    parser.add_argument("--folder", default=None, help="where the file is written; /dev/shm keeps it in memory")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("benchmarks/loader_gpu.py needs a CUDA device; there is none here")
        sys.exit(0)
    from penstock.loader.torch import Loader

    folder = Path(tempfile.mkdtemp(prefix="penstock-benchmark-", dir=options.folder))
    try:
        write_files(folder, options.rows, codec=options.codec)
        decode = options.rows / best_of({"polars": lambda: pl.read_parquet(folder)}, 3)["polars"]
        settings = {"shuffle": True, "layout": "packed", "device": "cuda", "chunk_rows": options.chunk_rows}
        settings["num_threads"] = options.threads
        streamed = Loader(dataset(folder), options.batch, **settings)
        by_host = Loader(dataset(folder), options.batch, **settings)
        cached = Loader(dataset(folder), options.batch, cache="memory", **settings)
        on_host = Loader(dataset(folder), options.batch, **{**settings, "device": "cpu"})
        times = {"streamed": [], "decoded_by_host": [], "cached": []}
        for _ in range(4):
            times["streamed"].append(timed(torch, streamed))
            with host_decodes():
                times["decoded_by_host"].append(timed(torch, by_host))
            times["cached"].append(timed(torch, cached))
        best = {name: min(found[1:]) for name, found in times.items()}
        rate = {name: options.rows / seconds for name, (seconds, _) in best.items()}
        fresh = Loader(dataset(folder), options.batch, **settings)
        epochs = [timed(torch, fresh) for _ in range(4)]
        shown = [f"{options.rows / seconds / 1e6:.1f} M rows/s, {busy:.1f} cores" for seconds, busy in epochs]
        print("epochs of a loader: " + "; ".join(shown))
        cores = {name: round(busy, 1) for name, (_, busy) in best.items()}
        rate["host"] = options.rows / best_of({"host": lambda: [None for _ in on_host]}, 3)["host"]
        beside = idle_share(torch, streamed)
        beside_cached = idle_share(torch, cached)
        print(streamed.stats())
        print(cached.stats())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    bus = copy_limit(torch)
    peers = {"decoded_by_host": rate["decoded_by_host"], "polars_decode": decode, "limit": bus, "nvtabular": None}
    report(
        f"Loader to {torch.cuda.get_device_name()}, {options.rows:,} rows × 40 columns, batch {options.batch:,}",
        [
            Claim("gpu/loader", "rows/s", rate["streamed"], peers,
                  extra={"first_epoch": round(options.rows / epochs[0][0]), "cached": round(rate["cached"]),
                         "host_only": round(rate["host"]), "cores": cores}),
            Claim("gpu/loader_cached", "rows/s", rate["cached"], {"polars_decode": decode, "limit": bus}),
            Claim("gpu/loader_beside_model", "share idle", beside["idle_share"] or 1e-6, {}, higher_is_better=False,
                  extra={"streamed": beside, "cached": beside_cached}),
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
