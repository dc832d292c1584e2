"""Claims `checks/*`: what it costs to look before reading, and to sync before a save counts.

    python benchmarks/checks.py [--rows 400000] [--repeats 7]

Each is measured with and without, in turns, best of several; the peer is Penstock without the check, on the same bytes.
`text` parses click logs copied into memory of their own, beside the file mapped into memory (which others can cut off,
and end the process). `loader` and `frames` read features with their pages' checksums, and the same files with the
checksums marked as something that readers pass over. `etl` takes click logs to features with all of it (text copied,
checksums written, output synced to the disk) and with nothing of it, `etl_unsynced` without the sync on both sides;
`etl_parquet` does the same from parquet. `opening` opens a data set with and without its manifest; `fsync` saves a
workflow with and without. `cpu_ratio` compares the processor time of all threads, which other programs on the machine
disturb less than the clock.
"""

from __future__ import annotations

import argparse
import mmap
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from harness import Claim, report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        claims = [*text(place, args.rows, args.repeats), *features(place, args.rows, args.repeats)]
        claims.append(fsync(place, args.repeats))
    report("What checks cost", claims)


def compare(name: str, rows: int, repeats: int, checked: Callable[[], object], bare: Callable[[], object]) -> Claim:
    """The claim that compares `checked` with `bare`, run in turns, by the clock and by processor time."""
    wall, cpu = [[], []], [[], []]  # type: ignore[var-annotated]
    for turn in range(repeats):
        for side in (0, 1) if turn % 2 else (1, 0):
            start, used = time.perf_counter(), time.process_time()
            (checked, bare)[side]()
            wall[side].append(time.perf_counter() - start)
            cpu[side].append(time.process_time() - used)
    rates = [rows / min(took) for took in wall]
    extra = {"cpu_ratio": round(min(cpu[1]) / min(cpu[0]), 3)}
    return Claim(f"checks/{name}", "rows/s", rates[0], {"unchecked": rates[1]}, extra=extra)  # type: ignore[arg-type]


def mapped(path: str, start: int, end: int, storage_options: object = None) -> np.ndarray:
    """What `read_bytes` was when it mapped the file into memory."""
    with Path(path).open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)[start:end]


@contextmanager
def unsynced() -> Iterator[None]:
    with mock.patch("os.fsync", lambda file: None):
        yield


@contextmanager
def unchecked() -> Iterator[None]:
    """Text mapped instead of copied, and parquet written without checksums."""
    from penstock.data import writer
    from penstock.data.formats import text_partition

    real = pq.ParquetWriter

    def without(*args: object, **options: object) -> pq.ParquetWriter:
        return real(*args, **{**options, "write_page_checksum": False})

    with (
        mock.patch.object(text_partition, "read_bytes", mapped),
        mock.patch.object(writer.pq, "ParquetWriter", without),
    ):
        yield


def text(place: Path, rows: int, repeats: int) -> list[Claim]:
    from penstock.data import Dataset
    from penstock.data.formats.text_bytes import read_bytes
    from penstock.data.formats.text_kernel import parse
    from penstock.data.synthetic import CRITEO_DTYPES, CRITEO_NAMES, criteo

    path = place / "clicks.tsv"
    criteo(path, rows, progress=False)
    [part, *_] = Dataset(path, names=CRITEO_NAMES, dtypes=CRITEO_DTYPES, part_size="1GB").partitions
    layout, wanted, size = part.layout, list(part.layout.names), path.stat().st_size
    data = Dataset(path, names=CRITEO_NAMES, dtypes=CRITEO_DTYPES)
    job(data, place / "warm")
    return [
        compare(
            "text", rows, repeats,
            lambda: parse(read_bytes(str(path), 0, size), layout, wanted),
            lambda: parse(mapped(str(path), 0, size), layout, wanted),
        ),
        *etl("etl", data, data, place, rows, repeats),
    ]  # fmt: skip


def job(data: object, target: Path, *settings: Callable[[], object]) -> None:
    from penstock import Workflow, ops

    numbers = [f"I{i}" for i in range(1, 14)] >> ops.FillMissing() >> ops.Clip(min_value=0) >> ops.LogOp()
    codes = [f"C{i}" for i in range(1, 27)] >> ops.Categorify(freq_threshold=6)
    with ExitStack() as stack:
        for setting in settings:
            stack.enter_context(setting())  # type: ignore[arg-type]
        flow = Workflow(codes + (numbers >> ops.Normalize()) + ["label"])
        flow.fit(data).transform(data).to_parquet(target, overwrite=True, progress=False)


def etl(name: str, checked: object, bare: object, place: Path, rows: int, repeats: int) -> list[Claim]:
    out, other = place / "checked", place / "bare"
    return [
        compare(name, rows, repeats, lambda: job(checked, out), lambda: job(bare, other, unchecked, unsynced)),
        compare(
            f"{name}_unsynced", rows, repeats,
            lambda: job(checked, out, unsynced), lambda: job(bare, other, unchecked, unsynced),
        ),
    ]  # fmt: skip


def without_checksums(source: Path, target: Path) -> None:
    """A copy of a data set whose pages have the same bytes in the same places, and checksums that nobody reads."""
    from penstock.kernels.cpu_parquet_pages import PAGE_FIELDS, SIZE, START, scan_pages

    shutil.copytree(source, target)
    pages = np.empty((4096, PAGE_FIELDS), np.int64)
    for path in sorted(target.glob("*.parquet")):
        data, footer = np.fromfile(path, np.uint8), pq.read_metadata(path)
        for group in range(footer.num_row_groups):
            for column in range(footer.num_columns):
                chunk = footer.row_group(group).column(column)
                start = chunk.dictionary_page_offset or chunk.data_page_offset
                body = data[start : start + chunk.total_compressed_size]
                at = 0
                for page in pages[: scan_pages(body, len(body), pages)].copy():
                    _hide_checksum(body, at)
                    at = page[START] + page[SIZE]
        data.tofile(path)


def _hide_checksum(body: np.ndarray, at: int) -> None:
    """Say of the fourth number of a page's header that it is one of 64 bits, which no checksum is."""
    for number in range(4):
        assert body[at] == 0x15, f"number {number} of a page's header is not where it was expected"
        if number == 3:
            body[at] = 0x16
        at += 1
        while body[at] & 128:
            at += 1
        at += 1


def features(place: Path, rows: int, repeats: int) -> list[Claim]:
    from penstock.data import Dataset
    from penstock.data.synthetic import CRITEO_DTYPES, CRITEO_NAMES
    from penstock.loader import Loader

    rng = np.random.default_rng(0)
    columns = {f"C{i}": rng.integers(0, 10 ** (1 + i % 6), rows).astype(np.int32) for i in range(26)}
    columns |= {f"I{i}": rng.standard_normal(rows).astype(np.float32) for i in range(13)}
    Dataset(pl.DataFrame(columns)).to_parquet(place / "with", num_files=2, progress=False)
    without_checksums(place / "with", place / "without")

    def load(name: str) -> None:
        for _ in Loader(place / name, 65_536, shuffle=True, seed=0):
            pass

    def read(name: str) -> None:
        Dataset(place / name).to_polars()

    raw = Dataset(place / "clicks.tsv", names=CRITEO_NAMES, dtypes=CRITEO_DTYPES)
    raw.to_parquet(place / "raw", progress=False)
    without_checksums(place / "raw", place / "raw_without")
    shutil.copytree(place / "without", place / "no_manifest")
    (place / "no_manifest" / "_manifest.json").unlink()
    for name in ("with", "without"):
        load(name), read(name)
    opened = compare("opening", 1, 5 * repeats, lambda: Dataset(place / "with"), lambda: Dataset(place / "no_manifest"))
    return [
        compare("loader", rows, repeats, lambda: load("with"), lambda: load("without")),
        compare("frames", rows, repeats, lambda: read("with"), lambda: read("without")),
        *etl("etl_parquet", Dataset(place / "raw"), Dataset(place / "raw_without"), place, rows, repeats),
        in_milliseconds(opened),
    ]


def in_milliseconds(claim: Claim) -> Claim:
    peers = {name: 1e3 / rate for name, rate in claim.peers.items() if rate}
    return Claim(claim.name, "ms", 1e3 / claim.penstock, dict(peers), higher_is_better=False, extra=claim.extra)


def fsync(place: Path, repeats: int) -> Claim:
    from penstock import Workflow, ops

    flow = Workflow(["x"] >> ops.Categorify()).fit(pl.DataFrame({"x": np.arange(1000)}))

    def bare() -> None:
        with unsynced():
            flow.save(place / "flow", overwrite=True)

    return in_milliseconds(compare("fsync", 1, 3 * repeats, lambda: flow.save(place / "flow", overwrite=True), bare))


if __name__ == "__main__":
    main()
