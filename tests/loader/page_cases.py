"""Parquet pages decoded by a device beside the host; run alone: TRITON_INTERPRET=1 python page_cases.py cpu"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import warnings
import weakref
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import penstock.loader.device_chunks as device_chunks
from penstock.core.errors import DataError
from penstock.data import Dataset
from penstock.loader import kept_pages
from penstock.loader.kept_pages import KeptPages
from penstock.loader.torch import Loader

ROWS, GROUP, BATCH = 100, 60, 40
CATEGORICAL, CONTINUOUS = ["few", "many", "one", "long", "narrow", "huge"], ["real", "wide"]
WRITERS = {
    "pages of version 1": {"compression": "none"},
    "pages of version 2, all of them dictionaries": {"compression": "none", "data_page_version": "2.0"},
    "plain, with checksums": {"compression": "none", "use_dictionary": False, "write_page_checksum": True},
    "one column in Snappy": {"compression": {"few": "snappy"}},
    "small pages": {"compression": "none", "data_page_size": 64},
}


class Staged(Loader):
    """The road to a device, whatever the device is."""

    _staged = property(lambda self: True)  # type: ignore[assignment]


def table(rows: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(0)
    columns = {
        "few": rng.integers(0, 5, rows).astype(np.int32),
        "many": rng.integers(0, 10**6, rows),
        "one": np.full(rows, 3, np.int32),
        "long": np.repeat(rng.integers(0, 9, rows // 20 + 1), 20)[:rows].astype(np.int32),
        "narrow": rng.integers(-100, 100, rows).astype(np.int8),
        "huge": rng.integers(-(2**62), 2**62, rows),
        "real": rng.standard_normal(rows).astype(np.float32),
        "wide": rng.standard_normal(rows),
        "click": (rng.random(rows) < 0.3).astype(np.float32),
    }
    return pa.table(columns)


def batches(kind: type[Loader], path: Path, device: str, **settings):
    data = Dataset(str(path), part_size=1)
    schema = data.schema.with_roles(categorical=CATEGORICAL, continuous=CONTINUOUS, label=["click"])
    schema = schema.with_column(schema["few"].with_(cardinality=5))
    return list(kind(data.with_schema(schema), BATCH, chunk_rows=GROUP, device=device, **settings))


def same_everywhere(path: Path, device: str, **settings) -> None:
    """Batches from the device are those of the host."""
    wanted, found = batches(Loader, path, "cpu", **settings), batches(Staged, path, device, **settings)
    assert len(wanted) == len(found)
    for (features, labels), (theirs, their_labels) in zip(wanted, found, strict=True):
        assert torch.equal(labels, their_labels.cpu())
        for name, column in features.items():
            assert column.dtype == theirs[name].dtype, name
            assert torch.equal(column, theirs[name].cpu()), name


def errors(path: Path, device: str) -> list[str]:
    """What host and device say of a file."""
    said = []
    for kind, where in ((Loader, "cpu"), (Staged, device)):
        try:
            batches(kind, path, where)
            said.append("nothing")
        except DataError as error:
            said.append(str(error))
    return said


def check_writers(folder: Path, device: str) -> None:
    writers = list(WRITERS.items())[: 4 if device == "cpu" else None]  # an interpreter takes its time for each page
    decoded = list[set[str]]()
    own = device_chunks.PageDecoder.decode

    def watched(self, encoded, num_rows):
        decoded.append(set(encoded.found))
        return own(self, encoded, num_rows)

    device_chunks.PageDecoder.decode = watched  # type: ignore[method-assign]
    try:
        for number, (name, options) in enumerate(writers):
            decoded.clear()
            path = folder / f"{number}.parquet"
            pq.write_table(table(), path, row_group_size=GROUP, **options)
            same_everywhere(path, device, shuffle=number % 2 == 0, seed=number)
            by_host = {"few"} if "Snappy" in name else set[str]()
            assert decoded and all(found == set(table().column_names) - by_host for found in decoded), name
            print(f"{name}: the same")
    finally:
        device_chunks.PageDecoder.decode = own  # type: ignore[method-assign]


def check_nulls(folder: Path, device: str) -> None:
    """Columns with nulls are the host's; a column that has none beside them is the device's."""
    holes = table().set_column(
        6, "real", pa.array([None if i % 7 == 0 else float(i) for i in range(ROWS)], pa.float32())
    )
    path = folder / "holes.parquet"
    pq.write_table(holes, path, row_group_size=GROUP, compression="none")
    same_everywhere(path, device, fill=-1.0)
    there, here = errors(path, device)
    assert there == here and "real" in there


def check_wrong_values(folder: Path, device: str) -> None:
    """A NaN label, an id beyond its cardinality, a code beyond its dictionary: refused in the host's own words."""
    plain = table()
    labels = plain["click"].to_numpy().copy()
    labels[80] = np.nan
    beyond = plain["few"].to_numpy().copy()
    beyond[70] = 5
    cases = {"click": pa.array(labels), "few": pa.array(beyond)}
    for name, values in cases.items():
        path = folder / f"wrong-{name}.parquet"
        wrong = plain.set_column(plain.column_names.index(name), name, values)
        pq.write_table(wrong, path, row_group_size=GROUP, compression="none")
        there, here = errors(path, device)
        assert there == here and name in there, (there, here)
    path = folder / "codes.parquet"
    pq.write_table(plain, path, row_group_size=GROUP, compression="none")
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(plain.column_names.index("few"))
    content = bytearray(path.read_bytes())
    end = chunk.dictionary_page_offset + chunk.total_compressed_size
    content[end - 20 : end - 12] = b"\xff" * 8  # codes of three bits, 7 where there are five
    path.write_bytes(content)
    there, here = errors(path, device)
    assert there == here and "damaged" in there, (there, here)
    print("what is wrong is refused")


def check_a_kernel_that_fails(folder: Path, device: str) -> None:
    """The host decodes, and says so once."""
    from penstock.kernels import gpu_parquet
    from penstock.loader import device_pages

    path = folder / "0.parquet"
    own, device_pages._decodes = gpu_parquet.decode_runs, cache(device_pages._decodes.__wrapped__)

    def broken(*arguments: object) -> None:
        raise RuntimeError("no compiler here")

    gpu_parquet.decode_runs = broken
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            same_everywhere(path, device)
        assert [str(w.message) for w in said if "no compiler here" in str(w.message)], said
    finally:
        gpu_parquet.decode_runs = own
        device_pages._decodes = cache(device_pages._decodes.__wrapped__)
    print("a kernel that fails is not needed")


def loader_of(kind: type[Loader], path: Path, device: str, **settings) -> Loader:
    data = Dataset(str(path), part_size=1)
    schema = data.schema.with_roles(categorical=CATEGORICAL, continuous=CONTINUOUS, label=["click"])
    return kind(data.with_schema(schema), BATCH, device=device, **settings)


def kept_by(loader: Loader) -> KeptPages:
    """What the loader has pinned, once it is done with pinning."""
    kept = loader._running().source.for_device._kept
    assert kept is not None
    kept.wait()
    return kept


def equal_epoch(wanted: Loader, found: Loader) -> int:
    """Hold an epoch of one against that of the other; the bytes that the second has read for it."""
    read = found._running().source.stats.stages["read"]
    before = read.num_bytes
    for (features, labels), (theirs, their_labels) in zip(wanted, found, strict=True):
        assert torch.equal(labels, their_labels.cpu())
        for name, column in features.items():
            assert torch.equal(column, theirs[name].cpu()), name
    return read.num_bytes - before


def check_kept_pages(folder: Path, device: str) -> None:
    """From the second epoch on pages are pinned where they lie, as far as there is room; the batches are the same."""
    path = folder / "kept"
    path.mkdir()
    for number in range(2):
        options = [{"use_dictionary": ["few", "long", "one"], "data_page_size": 200}, {"write_page_checksum": True}]
        part = table(ROWS - 7 * number)
        pq.write_table(part, path / f"{number}.parquet", row_group_size=30, compression="none", **options[number])
    size, own = sum(file.stat().st_size for file in path.iterdir()), kept_pages.ROOM
    for limit in (1 << 30, size // 2, 0):
        room = kept_pages.PinnedRoom(limit)
        kept_pages.ROOM = room
        wanted, found = (loader_of(k, path, d, chunk_rows=GROUP) for k, d in ((Loader, "cpu"), (Staged, device)))
        read = []
        for _ in range(4 if limit == 1 << 30 else 3):
            read.append(equal_epoch(wanted, found))
            held = len(kept_by(found)._held._ranges)
        assert read[0] > 0 and (read[-1] == 0) == (limit == 1 << 30), read
        assert (held == 0) == (limit == 0), held
        assert limit == 0 or read[-1] < read[0]
        kept = weakref.ref(kept_by(found))
        if limit == 1 << 30:
            check_a_file_under_its_copy(found, path / "0.parquet")
            check_a_file_that_changes(found, path / "1.parquet")
        del found
        gc.collect()
        assert kept() is None and room.take(limit), "what was pinned is let go of"
    kept_pages.ROOM = own
    print("kept pages: the same")


def check_a_file_under_its_copy(loader: Loader, path: Path) -> None:
    """What is written while pinned bytes travel is not delivered, not even once."""
    content, times, own = path.read_bytes(), path.stat(), device_chunks.PageDecoder.decode

    def overtaken(self, encoded, num_rows):
        with path.open("r+b") as file:
            file.write(content[:4])
        return own(self, encoded, num_rows)

    device_chunks.PageDecoder.decode = overtaken  # type: ignore[method-assign]
    try:
        next(iter(loader))
        raise AssertionError("a file that changed under its copy was delivered")
    except DataError as error:
        assert path.name in str(error) and "changed" in str(error), error
    finally:
        device_chunks.PageDecoder.decode = own  # type: ignore[method-assign]
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def check_a_file_that_changes(loader: Loader, path: Path) -> None:
    """Pinned or not: a file that was written again, or has become shorter, is refused."""
    content = path.read_bytes()
    for wrong in (content[: len(content) // 2], content[:1000] + bytes(200) + content[1200:]):
        path.write_bytes(wrong)
        try:
            list(loader)
        except DataError as error:
            assert path.name in str(error) and "changed" in str(error), error
        else:
            raise AssertionError("a changed file was read")
    path.write_bytes(content)


def main(device: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check_writers(folder, device)
        check_nulls(folder, device)
        check_wrong_values(folder, device)
        check_kept_pages(folder, device)
        check_a_kernel_that_fails(folder, device)


if __name__ == "__main__":
    main(sys.argv[1])
