"""List columns: batches of ragged values from one parquet file, against bare readers of the same file.

    python benchmarks/loader_multihot.py [--rows 2000000] [--batch 65536] [--rounds 5]

The file has two list columns of mean length 5, eight ids, eight numbers and a label; Snappy, row groups of 250,000.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from harness import Claim, best_of, report

from penstock.data import Dataset
from penstock.loader import Loader, Pad

ROW_GROUP = 250_000


def lists(rng: np.random.Generator, rows: int, cardinality: int) -> pa.Array:
    """Lists of Poisson length 5 of skewed ids."""
    offsets = np.concatenate([[0], np.cumsum(rng.poisson(5, rows))]).astype(np.int32)
    values = np.minimum(cardinality ** rng.random(offsets[-1]) - 1, cardinality - 1).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, values)


def write_file(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    columns = {"label": pa.array((rng.random(rows) < 0.25).astype(np.float32))}
    columns |= {f"I{i}": pa.array(rng.standard_normal(rows).astype(np.float32)) for i in range(8)}
    columns |= {f"C{i}": pa.array((100_000 ** rng.random(rows)).astype(np.int32)) for i in range(8)}
    columns |= {"genres": lists(rng, rows, 1_000), "history": lists(rng, rows, 100_000)}
    pq.write_table(pa.table(columns), path, row_group_size=ROW_GROUP)


def pyarrow_decode(path: Path) -> None:
    groups = range(pq.read_metadata(path).num_row_groups)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda g: pq.ParquetFile(path).read_row_group(g, use_threads=False).num_rows, groups))


def drain(loader: Loader) -> None:
    for _ in loader:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-benchmark-"))
    try:
        path = folder / "lists.parquet"
        write_file(path, options.rows)
        data = Dataset(str(path), part_size=1)
        shuffled = Loader(data, options.batch, shuffle=True)
        plain = Loader(data, options.batch)
        padded = Loader(data, options.batch, shuffle=True, lists=Pad(8))
        for loader in (shuffled, plain, padded):
            drain(loader)
        times = best_of(
            {
                "shuffled": lambda: drain(shuffled),
                "pyarrow_decode": lambda: pyarrow_decode(path),
                "plain": lambda: drain(plain),
                "polars_decode": lambda: pl.read_parquet(path),
                "padded": lambda: drain(padded),
            },
            options.rounds,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rate = {name: options.rows / seconds for name, seconds in times.items()}
    peers = {"pyarrow_decode": rate["pyarrow_decode"], "polars_decode": rate["polars_decode"], "nvtabular": None}
    extra = {"unshuffled": round(rate["plain"]), "padded": round(rate["padded"])}
    report(
        f"Loader with two list columns, {options.rows:,} rows, batch {options.batch:,}",
        [Claim("loader/multihot", "rows/s", rate["shuffled"], peers, extra=extra)],
    )


if __name__ == "__main__":
    main()
