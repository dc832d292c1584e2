"""Pages that stay pinned: what is pinned, when it is let go of, and what is read where something cannot be pinned."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from penstock import Dataset
from penstock.loader import kept_pages
from penstock.loader.device_chunks import wire_layout
from penstock.loader.kept_pages import KeptPages, PinnedRoom
from penstock.loader.torch import Loader

ROWS, FILES, GROUP = 400, 3, 100


class Watched:
    """Pins nothing, and notes what it was asked; from `most` on it refuses, as a driver may."""

    def __init__(self, most: int = 10**6) -> None:
        self.most, self.pinned, self.unpinned = most, list[int](), list[int]()

    def pin(self, address: int, size: int, writable: bool = False) -> bool:
        if len(self.pinned) >= self.most:
            return False
        self.pinned.append(address)
        return True

    def unpin(self, address: int, owner: object) -> None:
        assert is_mapped(address), "unpinned behind its mapping: the driver would take what comes there for pinned"
        self.unpinned.append(address)


def num_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def is_mapped(address: int) -> bool:
    return is_mapped_file(address, Path())


def is_mapped_file(address: int, place: Path) -> bool:
    """Whether something is mapped there: a file below the place, unless that is nowhere."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(number, 16) for number in line.split()[0].split("-"))
        if low <= address < high and (place == Path() or str(place) in line):
            return True
    return False


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> PinnedRoom:
    found = PinnedRoom(1 << 30)
    monkeypatch.setattr(kept_pages, "ROOM", found)
    return found


def loader_over(place: Path) -> Loader:
    rng = np.random.default_rng(0)
    for number in range(FILES):
        columns = {"id": rng.integers(0, 9, ROWS).astype(np.int32), "price": rng.normal(size=ROWS).astype(np.float32)}
        pl.DataFrame(columns).write_parquet(
            place / f"{number}.parquet", row_group_size=GROUP, compression="uncompressed"
        )
    data = Dataset(place, part_size=1)
    schema = data.schema.with_roles(categorical=["id"], continuous=["price"])
    return Loader(data.with_schema(schema), 50, shuffle=True, chunk_rows=200)


def bytes_read(loader: Loader, epoch: int, pins: Watched, processes: int = 1) -> int:
    """Those of an epoch as a device would have it, once what was to be pinned before it is."""
    runtime = loader._running()
    runtime.source.for_device.keep_pages(pins, processes)  # type: ignore[arg-type]
    kept_of(loader).wait()
    read, plan = runtime.source.stats.stages["read"], loader.plan(epoch)
    before, rows = read.num_bytes, 0
    reader = runtime.reader(plan, wire_layout(loader), None, 0, plan.num_batches, carry=False, device_decodes=True)
    while (slabs := reader.next_slabs()) is not None:
        encoded = slabs[0].encoded
        assert encoded is not None and set(encoded.found) == {"id", "price"}
        for column in encoded.found.values():
            assert sum(piece.num_rows for piece in column.pieces) == slabs[0].num_rows
        rows += slabs[0].num_rows
    reader.close()
    assert rows == ROWS * FILES
    return read.num_bytes - before


def kept_of(loader: Loader) -> KeptPages:
    kept = loader._running().source.for_device._kept
    assert kept is not None
    return kept


def test_what_was_pinned_is_unpinned_while_it_is_mapped(tmp_path: Path, room: PinnedRoom) -> None:
    pins, loader = Watched(), loader_over(tmp_path)
    assert bytes_read(loader, 0, pins) > 0 and not pins.pinned
    open_files = num_open()
    assert bytes_read(loader, 1, pins) == 0
    assert len(pins.pinned) == FILES * ROWS // GROUP and not pins.unpinned
    assert num_open() <= open_files, "a system allows a process a thousand open files"
    assert all(is_mapped(address) for address in pins.pinned)
    del loader
    gc.collect()
    assert sorted(pins.unpinned) == sorted(pins.pinned)
    assert not any(is_mapped_file(address, tmp_path) for address in pins.pinned)
    assert room.take(1 << 30), "its room is given back"


def test_what_the_driver_refuses_is_read(tmp_path: Path, room: PinnedRoom) -> None:
    pins, loader = Watched(most=5), loader_over(tmp_path)
    whole = bytes_read(loader, 0, pins)
    left = room._left
    for epoch in (1, 2, 3):
        assert 0 < bytes_read(loader, epoch, pins) < whole
    assert room._left == left, "what was refused takes no more room in each epoch"


@pytest.mark.parametrize(("processes", "is_enough"), [(1, True), (8, False)])
def test_processes_share_the_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int, is_enough: bool
) -> None:
    pins, loader = Watched(), loader_over(tmp_path)
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    monkeypatch.setattr(kept_pages, "ROOM", PinnedRoom(4 * size))
    whole = bytes_read(loader, 0, pins, processes)
    assert bytes_read(loader, 1, pins, processes) == (0 if is_enough else pytest.approx(whole / 2, rel=0.5))


def test_there_are_so_many_ranges_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pins, loader, room = Watched(), loader_over(tmp_path), PinnedRoom(1 << 30, ranges=7)
    monkeypatch.setattr(kept_pages, "ROOM", room)
    whole = bytes_read(loader, 0, pins)
    assert 0 < bytes_read(loader, 1, pins) < whole and len(pins.pinned) == 7
    del loader
    gc.collect()
    assert len(pins.unpinned) == 7 and room.take(1 << 30, ranges=7)


def test_rows_that_are_read_once_pin_nothing(tmp_path: Path, room: PinnedRoom) -> None:
    pins, loader = Watched(), loader_over(tmp_path)
    bytes_read(loader, 0, pins)
    kept_of(loader).wait()
    assert not pins.pinned
