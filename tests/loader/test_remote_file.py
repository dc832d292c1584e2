"""Parquet of other file systems through the decoder of local files."""

from itertools import pairwise

import fsspec
import numpy as np
import polars as pl
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from penstock import Dataset
from penstock.core.errors import DataError
from penstock.loader import Loader
from penstock.loader.parquet import ParquetColumns
from penstock.loader.remote_file import GAP, PIECE, joined, pieces

ROWS = 30_000


class Counted(MemoryFileSystem):
    """A file system in memory that says what was asked of it."""

    protocol = "counted"
    store, pseudo_dirs = {}, [""]
    requests: list[tuple[int, int]] = []
    broken = False

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("counted://", "memory://"))

    def cat_file(self, path, start=None, end=None, **options):
        Counted.requests.append((start, end))
        if Counted.broken:
            raise PermissionError("the key is no longer good")
        return super().cat_file(path, start=start, end=end, **options)


fsspec.register_implementation("counted", Counted, clobber=True)


def frame(seed: int = 0) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    lists = [random.integers(0, 9, n).tolist() for n in random.integers(0, 4, ROWS)]
    return pl.DataFrame(
        {
            "row": np.arange(ROWS),
            "user": random.integers(0, 1000, ROWS).astype(np.int32),
            "price": random.random(ROWS).astype(np.float32),
            "genres": pl.Series(lists, dtype=pl.List(pl.Int64)),
        }
    )


@pytest.fixture
def written(tmp_path):
    """The same files here and there."""
    Counted.store.clear()
    Counted.requests.clear()
    Counted.broken = False
    system = Counted()
    for number in range(2):
        local = tmp_path / f"part-{number}.parquet"
        frame(number).write_parquet(local, row_group_size=10_000, compression=["uncompressed", "zstd"][number])
        system.pipe_file(f"/data/part-{number}.parquet", local.read_bytes())
    return tmp_path, "counted://data"


def taken(loader) -> list[tuple]:
    return [
        (batch["row"].tolist(), batch["user"].tolist(), batch["price"].tolist(), batch["genres"].values.tolist())
        for batch, _ in loader
    ]


NAMES = {"categorical": ["row", "user", "genres"], "continuous": ["price"], "labels": []}


@pytest.mark.parametrize("settings", [{"shuffle": True}, {}, {"cache": "memory"}])
def test_batches_are_those_of_local_files(written, settings):
    local, remote = written
    here = Loader(Dataset(str(local / "*.parquet")), 1000, chunk_rows=20_000, **NAMES, **settings)
    there = Loader(Dataset(f"{remote}/*.parquet"), 1000, chunk_rows=20_000, **NAMES, **settings)
    assert taken(there) == taken(here)
    source = there._running().source
    assert not any(source.frame_columns(number) for number in range(len(source.partitions)))  # no frame in between
    assert taken(there) == taken(here)


def test_a_partition_is_a_request_or_two(written, monkeypatch):
    _, remote = written
    loader = Loader(Dataset(f"{remote}/*.parquet"), 1000, chunk_rows=20_000, **NAMES)
    loader.peek()
    Counted.requests.clear()
    taken(loader)
    assert 1 <= len(Counted.requests) <= 6  # as many partitions; four columns each
    Counted.requests.clear()
    monkeypatch.setattr("penstock.loader.remote_file.GAP", 0)
    some = Loader(Dataset(f"{remote}/*.parquet"), 1000, categorical=["user"], continuous=[], labels=[])
    some.peek()
    Counted.requests.clear()
    list(some)
    assert 0 < sum(end - start for start, end in Counted.requests) < 2 * ROWS * 4


def test_a_cached_epoch_asks_for_nothing(written):
    loader = Loader(Dataset(f"{written[1]}/*.parquet"), 1000, cache="memory", **NAMES)
    first = taken(loader)
    Counted.requests.clear()
    assert taken(loader) == first and not Counted.requests


def test_a_file_that_was_written_again_is_refused(written):
    _, remote = written
    loader = Loader(Dataset(f"{remote}/*.parquet"), 1000, **NAMES)
    loader.peek()
    other = Counted().cat_file("/data/part-1.parquet")
    Counted().pipe_file("/data/part-0.parquet", other)
    with pytest.raises(DataError, match=r"part-0\.parquet was changed after the loader had opened it"):
        list(loader)
    Counted().rm_file("/data/part-1.parquet")
    Counted().pipe_file("/data/part-0.parquet", b"")
    with pytest.raises(DataError, match=r"part-\d\.parquet (was changed|cannot be opened)"):
        list(loader)


def test_requests_that_fail_name_the_file_and_its_bytes(written):
    loader = Loader(Dataset(f"{written[1]}/*.parquet"), 1000, **NAMES)
    loader.peek()
    Counted.broken = True
    with pytest.raises(DataError, match=r"part-\d\.parquet: bytes \d+ to \d+ could not be read .*no longer good"):
        list(loader)


def test_an_answer_that_is_too_short(written, monkeypatch):
    loader = Loader(Dataset(f"{written[1]}/*.parquet"), 1000, **NAMES)
    loader.peek()
    whole = MemoryFileSystem.cat_file
    monkeypatch.setattr(
        Counted, "cat_file", lambda self, path, start=None, end=None: whole(self, path, start, end)[:-1]
    )
    with pytest.raises(DataError, match=r"ends at byte \d+, inside its data"):
        list(loader)


def test_damaged_pages_are_refused_as_local_ones_are(written):
    local, remote = written
    path = "/data/part-0.parquet"
    data = bytearray(Counted().cat_file(path))
    chunk = ParquetColumns().chunks(Dataset(f"{remote}/part-0.parquet").partitions[0], "user")[0]
    data[chunk.offset : chunk.offset + 12] = bytes([255] * 12)
    Counted().pipe_file(path, bytes(data))
    (local / "part-0.parquet").write_bytes(bytes(data))
    found = []
    for source in (f"{remote}/part-0.parquet", str(local / "part-0.parquet")):
        with pytest.raises(DataError, match="damaged") as refused:
            list(Loader(Dataset(source), 1000, **NAMES))
        found.append(str(refused.value).rsplit("part-0.parquet", 1)[1])
    assert found[0] == found[1]


def test_ranges_far_apart_stay_apart():
    assert joined([(0, 10), (10 + GAP, 20 + GAP), (21 + 2 * GAP, 30 + 2 * GAP)]) == [
        (0, 20 + GAP),
        (21 + 2 * GAP, 30 + 2 * GAP),
    ]
    for size in (1, PIECE - 1, PIECE, PIECE + 1, 10 * PIECE + 7):
        cut = pieces((3, 3 + size))
        assert cut[0][0] == 3 and cut[-1][1] == 3 + size and max(b - a for a, b in cut) <= PIECE
        assert all(a[1] == b[0] for a, b in pairwise(cut))
