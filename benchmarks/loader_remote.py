"""Claim `loader/remote`: batches from parquet on a file system that answers late, as an object store does.

The store is simulated: each request waits `--delay` milliseconds and then brings `--megabytes` a second, any number of
requests side by side. The peers are the general reader (pyarrow over fsspec's files), which remote files went
through before, and `pyarrow`, its own data set over the same store, which only decodes: no shuffle, no batches. `local`
reads the same files from the disk. `--pieces` tries several sizes of a request.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import numpy as np
import polars as pl
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractBufferedFile
from harness import Claim, report

ROW_GROUP = 100_000


class LateFiles(LocalFileSystem):
    """Local files behind a delay and a bandwidth for each request."""

    protocol = "late"
    delay, bytes_per_second = 0.03, 80e6
    pool = ThreadPoolExecutor(64)

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("late://"))

    def _late(self, path, start, end):
        with Path(self._strip_protocol(path)).open("rb") as file:
            file.seek(start)
            content = file.read(end - start)
        time.sleep(self.delay + len(content) / self.bytes_per_second)
        return content

    def cat_ranges(self, paths, starts, ends, max_gap=None, on_error="return", **options):
        return list(self.pool.map(self._late, paths, starts, ends))

    def _open(self, path, mode="rb", **options):
        return _LateFile(self, path, mode)


class _LateFile(AbstractBufferedFile):
    def _fetch_range(self, start, end):
        return self.fs._late(self.path, start, end)


fsspec.register_implementation("late", LateFiles, clobber=True)


def write(folder: Path, rows: int, files: int) -> None:
    random = np.random.default_rng(0)
    for number in range(files):
        count = rows // files
        columns: dict[str, np.ndarray] = {"label": random.integers(0, 2, count).astype(np.int8)}
        columns |= {f"C{i}": random.integers(0, 50_000, count).astype(np.int32) for i in range(26)}
        columns |= {f"I{i}": random.random(count).astype(np.float32) for i in range(13)}
        pl.DataFrame(columns).write_parquet(folder / f"{number}.parquet", row_group_size=ROW_GROUP)


def epoch(source: str, general: bool = False) -> float:
    """Seconds of an epoch."""
    from penstock import Dataset
    from penstock.loader import Loader

    names = {"categorical": [f"C{i}" for i in range(26)], "continuous": [f"I{i}" for i in range(13)]}
    loader = Loader(Dataset(source), 16_384, shuffle=True, labels=["label"], chunk_rows=200_000, **names)
    loader.peek()
    if general:
        loader._running().source._native = lambda partition, column: None  # as where only the general reader can
    start = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - start


def pyarrow_decode(source: str) -> float:
    """Seconds in which pyarrow reads everything by itself, several files and columns at a time."""
    import pyarrow.dataset as ds
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    system, paths = fsspec.core.url_to_fs(source)[0], fsspec.core.get_fs_token_paths(source)[2]
    start = time.perf_counter()
    ds.dataset(paths, filesystem=PyFileSystem(FSSpecHandler(system)), format="parquet").to_table()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_600_000)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--delay", type=float, default=30.0, help="milliseconds before a request is answered")
    parser.add_argument("--megabytes", type=float, default=80.0, help="a second, that a request brings")
    parser.add_argument("--pieces", default="", help="sizes of a request to try, in MB: 1,2,4,8,16")
    options = parser.parse_args()
    LateFiles.delay, LateFiles.bytes_per_second = options.delay / 1e3, options.megabytes * 1e6
    from penstock.loader import remote_file

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, options.rows, options.files)
        late, local = f"late://{folder}/*.parquet", str(folder / "*.parquet")
        epoch(local)  # compiles
        for size in filter(None, options.pieces.split(",")):
            remote_file.PIECE = int(float(size) * 1e6)
            print(
                f"requests of {size} MB: {options.rows / min(epoch(late) for _ in range(2)) / 1e6:.2f} M rows/s",
                flush=True,
            )
        seconds = {"penstock": [], "general_reader": [], "pyarrow": [], "local": []}
        for _ in range(2):
            seconds["penstock"].append(epoch(late))
            seconds["general_reader"].append(epoch(late, general=True))
            seconds["pyarrow"].append(pyarrow_decode(late))
            seconds["local"].append(epoch(local))
    rates = {name: options.rows / min(found) for name, found in seconds.items()}
    extra = {"delay_ms": options.delay, "megabytes_a_request": options.megabytes}
    peers = {name: rate for name, rate in rates.items() if name != "penstock"}
    report(
        "Loader from a simulated object store",
        [Claim("loader/remote", "rows/s", rates["penstock"], peers, extra=extra)],
    )


if __name__ == "__main__":
    main()
