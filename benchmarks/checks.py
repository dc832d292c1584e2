"""Claims `checks/*`: what it costs to look before reading, and to sync before a save counts.

Each is measured with and without, in turns, best of several; the peer is Penstock without the check. `text` reads a
file of click logs into memory of its own, beside the file mapped into memory (which others can cut off, and end the
process). `loader` and `frames` read features with and without checksums in
their pages; `opening` opens a data set with and without its manifest; `fsync` saves a workflow with and without.
"""

from __future__ import annotations

import argparse
import mmap
import os
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from harness import Claim, best_of, report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        claims = [text(place, args.rows, args.repeats), *features(place, args.rows, args.repeats)]
        claims.append(fsync(place, args.repeats))
    report("What checks cost", claims)


def text(place: Path, rows: int, repeats: int) -> Claim:
    from penstock.data import Dataset
    from penstock.data.formats.text_bytes import read_bytes
    from penstock.data.formats.text_kernel import parse
    from penstock.data.synthetic import CRITEO_DTYPES, CRITEO_NAMES, criteo

    path = place / "clicks.tsv"
    criteo(path, rows, progress=False)
    [part, *_] = Dataset(path, names=CRITEO_NAMES, dtypes=CRITEO_DTYPES, part_size="1GB").partitions
    layout, wanted, size = part.layout, list(part.layout.names), path.stat().st_size

    def mapped() -> None:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
            found = parse(np.frombuffer(whole, np.uint8), layout, wanted)
            assert found[0].height == rows
            del found

    seconds = best_of(
        {
            "copied": lambda: parse(read_bytes(str(path), 0, size), layout, wanted),
            "mapped": mapped,
        },
        repeats,
    )
    rates = {name: rows / took for name, took in seconds.items()}
    return Claim("checks/text", "rows/s", rates.pop("copied"), rates)


def features(place: Path, rows: int, repeats: int) -> list[Claim]:
    from penstock.data import Dataset
    from penstock.loader import Loader

    rng = np.random.default_rng(0)
    columns = {f"C{i}": rng.integers(0, 10 ** (1 + i % 6), rows).astype(np.int32) for i in range(26)}
    columns |= {f"I{i}": rng.standard_normal(rows).astype(np.float32) for i in range(13)}
    Dataset(pl.DataFrame(columns)).to_parquet(place / "with", num_files=2, progress=False)
    (place / "without").mkdir()
    for file in sorted((place / "with").glob("*.parquet")):
        with pq.ParquetFile(file) as source:
            dictionaries = [
                source.metadata.row_group(0).column(c).path_in_schema
                for c in range(source.metadata.num_columns)
                if source.metadata.row_group(0).column(c).has_dictionary_page
            ]
            pq.write_table(
                source.read(), place / "without" / file.name, compression="none", use_dictionary=dictionaries,
                write_statistics=False, row_group_size=source.metadata.row_group(0).num_rows,
            )  # fmt: skip

    def load(name: str) -> None:
        for _ in Loader(place / name, 65_536, shuffle=True, seed=0):
            pass

    loading = best_of({name: lambda name=name: load(name) for name in ("with", "without")}, repeats)
    frames = best_of(
        {name: lambda name=name: Dataset(place / name).to_polars() for name in ("with", "without")}, repeats
    )
    opening = best_of({name: lambda name=name: Dataset(place / name) for name in ("with", "without")}, 5 * repeats)
    return [
        Claim("checks/loader", "rows/s", rows / loading["with"], {"without_checksums": rows / loading["without"]}),
        Claim("checks/frames", "rows/s", rows / frames["with"], {"without_checksums": rows / frames["without"]}),
        Claim(
            "checks/opening", "ms", opening["with"] * 1e3, {"without_manifest": opening["without"] * 1e3},
            higher_is_better=False,
        ),
    ]  # fmt: skip


def fsync(place: Path, repeats: int) -> Claim:
    from penstock import Workflow, ops

    flow = Workflow(["x"] >> ops.Categorify()).fit(pl.DataFrame({"x": np.arange(1000)}))
    real = os.fsync

    def unsynced() -> None:
        os.fsync = lambda file: None  # type: ignore[assignment]
        try:
            flow.save(place / "flow", overwrite=True)
        finally:
            os.fsync = real

    took = best_of({"synced": lambda: flow.save(place / "flow", overwrite=True), "unsynced": unsynced}, repeats)
    return Claim(
        "checks/fsync", "ms", took["synced"] * 1e3, {"unsynced": took["unsynced"] * 1e3}, higher_is_better=False
    )


if __name__ == "__main__":
    main()
