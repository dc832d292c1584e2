"""Dense batches from one parquet file: shuffled, unshuffled, cached, in small batches; against decoders and loaders.

    python benchmarks/loader.py [--rows 4000000] [--batch 65536] [--rounds 4]

Writes a Criteo-like file (26 int32 ids, 13 float32 numbers, a float32 label, Snappy, row groups of 250,000 rows) to a
temporary folder and reads it from a warm page cache. Peers that deliver only a fraction of the rows per second get a
fraction of the rows.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from harness import Claim, best_of, report

from penstock.data import Dataset
from penstock.loader import Loader

# The cardinalities of the Criteo click logs, capped at ten million.
CARDINALITIES = [
    10_000_000, 10_000_000, 707_291, 218_510, 11, 2_209, 9_798, 72, 4, 954, 15, 29_612, 10_000_000, 4_553_157,
    10_000_000, 291_641, 10_904, 91, 35, 15_050, 7_190, 19_547, 4, 6_492, 1_317, 63,
]  # fmt: skip
CATEGORICAL = [f"C{i + 1}" for i in range(26)]
CONTINUOUS = [f"I{i + 1}" for i in range(13)]
ROW_GROUP = 250_000


def write_file(path: Path, rows: int) -> None:
    """Rows as they leave the ETL: encoded ids, skewed to small codes, and normalized numbers."""
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(path, schema(), compression="snappy") as writer:
        for start in range(0, rows, ROW_GROUP):
            count = min(ROW_GROUP, rows - start)
            columns: dict[str, np.ndarray] = {"label": (rng.random(count) < 0.25).astype(np.float32)}
            columns |= {name: rng.standard_normal(count).astype(np.float32) for name in CONTINUOUS}
            for name, size in zip(CATEGORICAL, CARDINALITIES, strict=True):
                columns[name] = np.minimum(size ** rng.random(count) - 1, size - 1).astype(np.int32)
            writer.write_table(pa.table(columns))


def schema() -> pa.Schema:
    kinds = {"label": pa.float32()} | dict.fromkeys(CONTINUOUS, pa.float32()) | dict.fromkeys(CATEGORICAL, pa.int32())
    return pa.schema(kinds.items())


def dataset(path: Path) -> Dataset:
    """The file with roles and cardinalities, so that Penstock's checks are part of what is measured."""
    data = Dataset(str(path), part_size=1)
    roles = data.schema.with_roles(categorical=CATEGORICAL, continuous=CONTINUOUS, label=["label"])
    for name, size in zip(CATEGORICAL, CARDINALITIES, strict=True):
        roles = roles.with_column(roles[name].with_(cardinality=size))
    return data.with_schema(roles)


def drain(batches: Iterable) -> None:
    for _ in batches:
        pass


def pyarrow_decode(path: Path) -> None:
    """Every row group on a thread of its own, which is faster than pyarrow's own threads."""
    groups = range(pq.read_metadata(path).num_row_groups)
    with ThreadPoolExecutor() as pool:
        drain(pool.map(lambda g: pq.ParquetFile(path).read_row_group(g, use_threads=False).num_rows, groups))


def torch_dataloader(path: Path, batch: int) -> Callable[[], None] | None:
    """`torch.utils.data.DataLoader` over tensors in memory, shuffled: rows one by one."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    frame = pl.read_parquet(path)
    cats, conts = (torch.from_numpy(frame.select(n).to_numpy()) for n in (CATEGORICAL, CONTINUOUS))
    data = torch.utils.data.TensorDataset(cats, conts, torch.from_numpy(frame["label"].to_numpy().copy()))
    return lambda: drain(torch.utils.data.DataLoader(data, batch_size=batch, shuffle=True))


def hf_datasets(path: Path, batch: int) -> Callable[[], None] | None:
    """Hugging Face datasets, shuffled, as NumPy."""
    if importlib.util.find_spec("datasets") is None:
        return None
    import datasets

    data = datasets.Dataset.from_parquet(str(path)).shuffle(seed=0).with_format("numpy")
    return lambda: drain(data.iter(batch_size=batch))


def ray_data(path: Path, batch: int) -> Callable[[], None] | None:
    """Ray Data with a local shuffle buffer of a million rows."""
    if importlib.util.find_spec("ray") is None:
        return None
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    data = ray.data.read_parquet(str(path))
    return lambda: drain(data.iter_batches(batch_size=batch, local_shuffle_buffer_size=batch, batch_format="numpy"))


def other_loaders(folder: Path, path: Path, options: argparse.Namespace) -> dict[str, float | None]:
    """Rows per second of other loaders: a fraction of the rows where all of them would take minutes."""
    small = folder / "small.parquet"
    write_file(small, options.slow_rows)
    makers = {
        "torch_dataloader": (torch_dataloader, small, options.slow_rows),
        "hf_datasets": (hf_datasets, small, options.slow_rows),
        "ray_data": (ray_data, path, options.rows),  # pays for starting up, so it gets the whole file, twice
    }
    rates: dict[str, float | None] = {}
    for name, (make, source, rows) in makers.items():
        run = make(source, min(options.batch, rows)) if name in options.peers.split(",") else None
        rates[name] = None if run is None else rows / best_of({name: run}, rounds=2)[name]
    return rates


def peak_memory(folder: Path) -> dict[str, float]:
    """How many chunks the peak memory grows by while a file of twelve chunks is read, in a process of its own."""
    import multiprocessing

    path = folder / "memory.parquet"
    write_file(path, 3_000_000)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        grown, chunk = pool.apply(_grown, (str(path),))
    return {"chunks": round(grown / chunk, 2), "chunk_megabytes": round(chunk / 1e6, 1)}


def _grown(path: str) -> tuple[float, int]:
    loader = Loader(dataset(Path(path)), 16_384, shuffle=True, chunk_rows=250_000)
    warm = Loader({"x": np.arange(10, dtype=np.int32), "y": np.zeros(10, np.float32)}, 5, shuffle=True)
    drain(warm)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew (Linux)
    before = _peak_kilobytes()
    drain(loader)
    return (_peak_kilobytes() - before) * 1024.0, 250_000 * 160


def _peak_kilobytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--slow-rows", type=int, default=200_000, help="rows for the peers that take a second for these"
    )
    parser.add_argument("--peers", default="torch_dataloader,hf_datasets,ray_data")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-benchmark-"))
    try:
        run(folder, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(folder: Path, options: argparse.Namespace) -> None:
    path = folder / "clicks.parquet"
    write_file(path, options.rows)
    data = dataset(path)
    plain = Loader(data, options.batch)
    shuffled = Loader(data, options.batch, shuffle=True)
    packed = Loader(data, options.batch, shuffle=True, layout="packed")
    cached = Loader(data, options.batch, shuffle=True, cache="memory")
    small = Loader(data, 512, shuffle=True)
    for loader in (plain, shuffled, packed, cached, small):  # compile, fill the pool and the cache
        drain(loader)
    times = best_of(
        {
            "polars_warm_up": lambda: pl.read_parquet(path),  # its memory is new after a pause, and slower
            "polars_decode": lambda: pl.read_parquet(path),
            "unshuffled": lambda: drain(plain),
            "shuffled": lambda: drain(shuffled),
            "packed": lambda: drain(packed),
            "cached": lambda: drain(cached),
            "batch512": lambda: drain(small),
            "pyarrow_decode": lambda: pyarrow_decode(path),
        },
        options.rounds,
    )
    rate = {name: options.rows / seconds for name, seconds in times.items()}
    cached._runtime = None  # lets go of the memory
    peers = other_loaders(folder, path, options)
    decoders: dict[str, float | None] = {n: rate[n] for n in ("polars_decode", "pyarrow_decode")}
    everyone = {**decoders, **peers, "nvtabular": None}
    batches = -(-options.rows // 512)
    overhead = max(times["batch512"] - times["shuffled"], 0) / batches
    report(
        f"Loader, {options.rows:,} rows × 40 columns, batch {options.batch:,}",
        [
            Claim("loader/unshuffled", "rows/s", rate["unshuffled"], everyone),
            Claim("loader/shuffled", "rows/s", rate["shuffled"], everyone, extra={"packed": round(rate["packed"])}),
            Claim("loader/cached", "rows/s", rate["cached"], everyone),
            Claim(
                "loader/batch512", "rows/s", rate["batch512"], {"large_batches": rate["shuffled"]},
                extra={"microseconds_per_batch": round(overhead * 1e6, 1)},
            ),
            Claim("loader/memory", "chunks", (memory := peak_memory(folder))["chunks"], {"limit": 4.0},
                  higher_is_better=False, extra=memory),
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
