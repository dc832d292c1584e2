"""Claims `checks/*`: what it costs to look before reading, and to sync before a save counts.

    python benchmarks/checks.py [--rows 400000] [--repeats 7]

Each is measured with and without, in turns; the peer is Penstock without the check, on the same bytes, and where memory
is used again since there are checks, also Penstock as it was `before`.
`text` parses click logs copied into memory of their own, beside the file mapped into memory (which others can cut off,
and end the process). `loader` and `frames` read features with their pages' checksums, and the same files with the
checksums marked as something that readers pass over. `etl` takes click logs to features with all of it (text copied,
checksums written, output synced to the disk) and with nothing of it, `etl_unsynced` without the sync on both sides;
`etl_parquet` does the same from parquet. `opening` opens a data set with and without its manifest; `fsync` saves a
workflow with and without. `cpu_by_turn` compares the processor time of all threads, which other programs on the machine
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
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from harness import Claim, report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", default="", help="claims whose names begin so, such as loader,frames; by default all")
    args = parser.parse_args()
    wanted = tuple(args.only.split(","))
    with tempfile.TemporaryDirectory() as folder:
        made = Made(Path(folder), args.rows)
        claims = [measure(args.repeats) for name, measure in measures(made).items() if name.startswith(wanted)]
    report("What checks cost", claims)


def compare(
    name: str, rows: int, repeats: int, checked: Callable[[], object], bare: Callable[[], object],
    before: Callable[[], object] | None = None,
) -> Claim:  # fmt: skip
    """The claim that compares `checked` with `bare` (and with what was `before`), by the clock and by processor time.

    All run in every turn, each turn in another order. The rates are the best turns'; `by_turn` and `cpu_by_turn`
    are the medians of the ratios inside a turn, which a machine that others use disturbs least.
    """
    contestants = {"penstock": checked, "unchecked": bare} | ({"before": before} if before else {})
    wall, cpu = ({side: np.empty(repeats) for side in contestants} for _ in range(2))
    for run in contestants.values():
        run()  # compile what is not compiled yet
    order = list(contestants)
    for turn in range(repeats):
        order = order[1:] + order[:1] if turn % 2 else order[::-1]
        for side in order:
            start, used = time.perf_counter(), time.process_time()
            contestants[side]()
            wall[side][turn] = time.perf_counter() - start
            cpu[side][turn] = time.process_time() - used
    rates = {side: rows / float(took.min()) for side, took in wall.items()}
    peers = list(contestants)[1:]
    extra: dict[str, object] = {
        label: {peer: round(float(np.median(took[peer] / took["penstock"])), 3) for peer in peers}
        for label, took in (("by_turn", wall), ("cpu_by_turn", cpu))
    }
    return Claim(f"checks/{name}", "rows/s", rates["penstock"], {peer: rates[peer] for peer in peers}, extra=extra)


def parse_mapped(path: str, start: int, end: int, layout: Any, wanted: list[str], num_rows: int) -> Any:
    """What `parse_range` was when files were mapped into memory."""
    from penstock.data.formats.text_kernel import parse

    with Path(path).open("rb") as file:
        whole = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        return parse(whole[start:end], layout, wanted)


@contextmanager
def unsynced() -> Iterator[None]:
    with mock.patch("os.fsync", lambda file: None):
        yield


@contextmanager
def unchecked() -> Iterator[None]:
    """Text mapped instead of copied, and parquet written without checksums; all else as it is."""
    from penstock.data import writer
    from penstock.data.formats import text_kernel

    real = pq.ParquetWriter

    def without(*args: object, **options: object) -> pq.ParquetWriter:
        return real(*args, **{**options, "write_page_checksum": False})

    with (
        mock.patch.object(text_kernel, "parse_range", parse_mapped),
        mock.patch.object(writer.pq, "ParquetWriter", without),
    ):
        yield


class _FreshMemory:
    def acquire(self, size: int) -> np.ndarray:
        return np.empty(size, np.uint8)


@contextmanager
def as_before() -> Iterator[None]:
    """Unchecked, and every frame of text in fresh memory, as all of them were when nothing was checked."""
    from penstock.kernels import cpu_text_columns

    with unchecked(), mock.patch.object(cpu_text_columns, "_blocks", _FreshMemory()):
        yield


class Made:
    """The data of all claims: click logs as text and as parquet, and features; the latter two without checksums too."""

    def __init__(self, place: Path, rows: int) -> None:
        from penstock.data import Dataset
        from penstock.data.synthetic import CRITEO_DTYPES, CRITEO_NAMES, criteo

        self.place, self.rows = place, rows
        criteo(place / "clicks.tsv", rows, progress=False)
        self.text = Dataset(place / "clicks.tsv", names=CRITEO_NAMES, dtypes=CRITEO_DTYPES)
        self.text.to_parquet(place / "raw-written", progress=False)
        rng = np.random.default_rng(0)
        columns = {f"C{i}": rng.integers(0, 10 ** (1 + i % 6), rows).astype(np.int32) for i in range(26)}
        columns |= {f"I{i}": rng.standard_normal(rows).astype(np.float32) for i in range(13)}
        Dataset(pl.DataFrame(columns)).to_parquet(place / "features-written", num_files=2, progress=False)
        for name in ("raw", "features"):
            rewrite(place / f"{name}-written", place / name, with_checksums=True)
            rewrite(place / f"{name}-written", place / f"bare-{name}", with_checksums=False)


def measures(made: Made) -> dict[str, Callable[[int], Claim]]:
    """What each claim takes, by its name: how often it is repeated."""
    from penstock.data import Dataset

    place, rows = made.place, made.rows
    raw, bare = Dataset(place / "raw"), Dataset(place / "bare-raw")
    return {
        "text": lambda repeats: parsing(made, repeats),
        "etl": lambda repeats: etl("etl", made, made.text, made.text, repeats),
        "etl_unsynced": lambda repeats: etl("etl_unsynced", made, made.text, made.text, repeats, unsynced),
        "etl_parquet": lambda repeats: etl("etl_parquet", made, raw, bare, repeats),
        "etl_parquet_unsynced": lambda repeats: etl("etl_parquet_unsynced", made, raw, bare, repeats, unsynced),
        "loader": lambda repeats: compare(
            "loader", rows, repeats, lambda: load(place / "features"), lambda: load(place / "bare-features")
        ),
        "frames": lambda repeats: compare(
            "frames", rows, repeats, lambda: read(place / "features"), lambda: read(place / "bare-features")
        ),
        "opening": lambda repeats: opening(place, repeats),
        "fsync": lambda repeats: fsync(place, repeats),
    }


def parsing(made: Made, repeats: int) -> Claim:
    from penstock.data.formats.text_kernel import parse_range

    path, layout = made.place / "clicks.tsv", made.text.partitions[0].layout
    wanted, size = list(layout.names), path.stat().st_size

    def mapped() -> object:
        return parse_mapped(str(path), 0, size, layout, wanted, made.rows)

    def before() -> None:
        with as_before():
            mapped()

    return compare(
        "text", made.rows, repeats,
        lambda: parse_range(str(path), 0, size, layout, wanted, made.rows), mapped, before,
    )  # fmt: skip


def job(data: object, target: Path, *settings: Callable[[], object]) -> None:
    from penstock import Workflow, ops

    numbers = [f"I{i}" for i in range(1, 14)] >> ops.FillMissing() >> ops.Clip(min_value=0) >> ops.LogOp()
    codes = [f"C{i}" for i in range(1, 27)] >> ops.Categorify(freq_threshold=6)
    with ExitStack() as stack:
        for setting in settings:
            stack.enter_context(setting())  # type: ignore[arg-type]
        flow = Workflow(codes + (numbers >> ops.Normalize()) + ["label"])
        flow.fit(data).transform(data).to_parquet(target, overwrite=True, progress=False)


def etl(name: str, made: Made, checked: object, bare: object, repeats: int, *settings: Callable[[], object]) -> Claim:
    out, other = made.place / "out", made.place / "bare-out"
    job(checked, out)
    return compare(
        name, made.rows, repeats,
        lambda: job(checked, out, *settings),
        lambda: job(bare, other, unchecked, unsynced),
        lambda: job(bare, other, as_before, unsynced),
    )  # fmt: skip


def load(place: Path) -> None:
    from penstock.loader import Loader

    for _ in Loader(place, 65_536, shuffle=True, seed=0):
        pass


def read(place: Path) -> None:
    from penstock.data import Dataset

    Dataset(place).to_polars()


def opening(place: Path, repeats: int) -> Claim:
    from penstock.data import Dataset

    shutil.copytree(place / "features", place / "no-manifest", dirs_exist_ok=True)
    (place / "no-manifest" / "_manifest.json").unlink()
    return in_milliseconds(
        compare("opening", 1, 5 * repeats, lambda: Dataset(place / "features"), lambda: Dataset(place / "no-manifest"))
    )


def rewrite(source: Path, target: Path, with_checksums: bool) -> None:
    """A copy of a data set with the same bytes in the same places, but for checksums that nobody reads.

    Both sides of a comparison are such copies: how a file was written decides how fast the system reads it.
    """
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
                    if not with_checksums:
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
