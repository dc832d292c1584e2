"""Text that is parsed once: the same rows from scratch, bounded, gone at the end, and never needed."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from penstock import Dataset
from penstock.core.errors import DataError
from penstock.data import scratch, spill
from penstock.data.bad_lines import collecting
from penstock.data.formats.text_partition import TextPartition
from penstock.data.reading_ahead import ReadingAhead
from penstock.data.spill import SpilledPartition, spilling
from penstock.engine import resolve
from penstock.engine.local import LocalEngine

LINES = "click,user,price,day,word\n" + "".join(
    f"{i % 2},{i * 7919 % 100},{'' if i % 5 == 0 else i / 4},2024-01-{i % 28 + 1:02d},w{i % 9}\n" for i in range(300)
)
COLUMNS = ["click", "user", "price", "day", "word"]


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """Where scratch folders go; memory is for those who ask for it."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(spill, "_SHARE_OF_MEMORY", 0)
    monkeypatch.setenv("PENSTOCK_SCRATCH", str(folder))
    return folder


@pytest.fixture
def text(tmp_path) -> Path:
    file = tmp_path / "clicks.csv"
    file.write_text(LINES)
    return file


@pytest.fixture
def parses(monkeypatch) -> list[int]:
    """Where the parts begin that were parsed, in order."""
    found: list[int] = []
    read = TextPartition.read

    def counted(part, columns=None):
        found.append(part.start)
        return read(part, columns)

    monkeypatch.setattr(TextPartition, "read", counted)
    return found


def opened(text: Path, **options) -> Dataset:
    return Dataset(text, part_size=1500, **options)


@pytest.mark.parametrize("share", [0, 0.125])
def test_every_part_is_parsed_once_and_gives_the_same_rows(text, place, parses, monkeypatch, share):
    monkeypatch.setattr(spill, "_SHARE_OF_MEMORY", share)
    expected = opened(text).to_polars(COLUMNS)
    parses.clear()
    with spilling(opened(text), COLUMNS, resolve("local:2")) as data:
        assert data.num_partitions > 4
        for columns in (COLUMNS, ["user"], ["word", "click"], COLUMNS):
            assert data.to_polars(columns).equals(expected.select(columns))
        assert data.num_rows == 300
        assert len(parses) == len(set(parses)) == data.num_partitions
        assert bool(list(place.glob("*/*.arrow"))) == (share == 0), "what memory holds is not written"


def test_what_memory_has_no_room_for_goes_to_scratch(text, place, parses, monkeypatch):
    monkeypatch.setattr(spill, "_SHARE_OF_MEMORY", 0.125)
    one = opened(text).partitions[0].read(COLUMNS).estimated_size()
    monkeypatch.setattr(spill, "available_memory", lambda: int(2.5 * one / 0.125))
    with spilling(opened(text), COLUMNS, LocalEngine(1)) as data:
        parses.clear()
        expected = data.to_polars()
        assert data.to_polars().equals(expected)
        assert len(list(place.glob("*/*.arrow"))) == data.num_partitions - 2
    assert len(parses) == len(set(parses))


def test_counting_parses_and_nothing_is_parsed_after(text, place, parses):
    with spilling(opened(text), ["click", "user"], resolve("local:2")) as data:
        reading = ReadingAhead(data, resolve("local:2"))
        reading.begin()
        reading.wait(False)
        train, valid = data.split([0.8, 0.2], seed=3)
        first, second = train.to_polars(["user"]), valid.to_polars(["user"])
        assert len(parses) == data.num_partitions
    plain = opened(text).split([0.8, 0.2], seed=3)
    assert first.equals(plain[0].to_polars(["user"])) and second.equals(plain[1].to_polars(["user"]))


def test_a_column_that_is_not_kept_comes_from_the_text(text, place):
    with spilling(opened(text), ["click"], LocalEngine(1)) as data:
        assert data.to_polars().equals(opened(text).to_polars())


def test_nothing_is_left_at_the_end_and_rows_can_still_be_read(text, place):
    with spilling(opened(text), COLUMNS, LocalEngine(1)) as data:
        data.to_polars()
        assert list(place.iterdir())
    assert not list(place.iterdir())
    assert data.to_polars().equals(opened(text).to_polars())


def test_nothing_is_left_after_an_error(text, place):
    with pytest.raises(KeyboardInterrupt), spilling(opened(text), COLUMNS, LocalEngine(1)) as data:
        data.head()
        raise KeyboardInterrupt
    del data
    assert not list(place.iterdir())


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_disk_that_is_full_at_some_point(text, place, parses, monkeypatch, partitions):
    write, done = pl.DataFrame.write_ipc, []

    def full(frame, path, **options):
        done.append(path)
        if len(done) > partitions:
            Path(path).write_bytes(b"half of it")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return write(frame, path, **options)

    monkeypatch.setattr(pl.DataFrame, "write_ipc", full)
    expected = opened(text).to_polars()
    parses.clear()
    with spilling(opened(text), COLUMNS, LocalEngine(1)) as data:
        for _ in range(2):  # one part after the other: two at once would both find the disk full
            assert pl.concat([part.read(COLUMNS) for part in data.partitions]).equals(expected)
        assert len(done) == partitions + 1, "nothing is tried again"
        assert len(list(place.rglob("*.arrow"))) == partitions
        assert len(parses) == 2 * data.num_partitions - partitions
    assert not list(place.iterdir())


def test_no_more_than_half_of_what_is_free(text, place, monkeypatch):
    free = shutil.disk_usage(place)
    monkeypatch.setattr(spill.shutil, "disk_usage", lambda _: free._replace(free=8_000))
    given = opened(text)
    with spilling(given, COLUMNS, LocalEngine(1)) as data:
        assert data is given, "all of it would not fit"
    with spilling(given, ["click"], LocalEngine(1)) as data:
        assert isinstance(data.partitions[0], SpilledPartition)
        data.to_polars(["click"])
        assert sum(file.stat().st_size for file in place.rglob("*.arrow")) <= 8_000


def test_no_scratch_is_no_error(text, place, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(scratch.tempfile, "mkdtemp", refused)
    given = opened(text)
    with spilling(given, COLUMNS, LocalEngine(1)) as data:
        assert data is given


def change(file: Path, how: str, outside: Path) -> None:
    """Do to a file in scratch what others could."""
    content = bytearray(file.read_bytes())
    if how == "zeros":
        file.write_bytes(bytes(len(content)))
    elif how == "short":
        file.write_bytes(content[: len(content) // 2])
    elif how == "one bit":  # of the values, which nothing in the format guards
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    else:
        file.unlink()
        if how == "another partition":
            shutil.copy(outside / "other.arrow", file)
        elif how == "link":
            file.symlink_to(outside / "precious")
        elif how == "dangling link":
            file.symlink_to(outside / "nobody-made-this")
        elif how == "pipe":
            os.mkfifo(file)
        elif how == "folder":
            file.mkdir()


WAYS = ["missing", "short", "zeros", "one bit", "another partition", "link", "dangling link", "pipe", "folder"]


@pytest.mark.parametrize("how", WAYS)
def test_a_folder_that_somebody_has_been_in(tmp_path, place, parses, how):
    """Rows are those of the text, and nothing is written to where a link leads."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    text = tmp_path / "numbers.csv"
    text.write_text("click,user\n" + "".join(f"{i % 2},{1000 + i}\n" for i in range(900)))
    with spilling(Dataset(text, part_size=1400), ["click", "user"], LocalEngine(1)) as data:
        expected = data.to_polars()
        files = sorted(place.rglob("*.arrow"))
        assert len(files) == data.num_partitions > 4
        shutil.copy(files[1], outside / "other.arrow")
        for file in (files[0], files[2]):
            change(file, how, outside)
        for _ in range(3):
            assert data.to_polars().equals(expected)
        assert len(parses) == data.num_partitions + 2, "what was lost is parsed once more, and kept"
    assert (outside / "precious").read_text() == "mine"
    assert not (outside / "nobody-made-this").exists()


def test_other_data_and_other_engines_are_left_alone(text, place, tmp_path):
    frame = Dataset({"x": [1, 2]})
    opened(text).to_parquet(tmp_path / "parquet")
    for data in (frame, Dataset(tmp_path / "parquet")):
        with spilling(data, data.schema.names, LocalEngine(2)) as same:
            assert same is data

    class Elsewhere:
        num_workers = 2
        map = reduce = None

    with spilling(opened(text), COLUMNS, Elsewhere()) as same:  # type: ignore[arg-type]
        assert type(same.partitions[0]) is TextPartition


@pytest.mark.parametrize("share", [0, 0.125])
def test_malformed_lines_are_told_every_time(tmp_path, place, monkeypatch, share):
    monkeypatch.setattr(spill, "_SHARE_OF_MEMORY", share)
    file = tmp_path / "bad.csv"
    file.write_text("click,user\n1,2\n0\n1,3\n")
    with spilling(Dataset(file, on_error="skip"), ["click", "user"], LocalEngine(1)) as data:
        for _ in range(2):
            with collecting() as found:
                assert data.to_polars().height == 2
            assert found.count == 1 and "line 3" in found.first


def test_a_malformed_line_is_an_error_with_its_line(tmp_path, place):
    file = tmp_path / "bad.csv"
    file.write_text("click,user\n1,2\n0\n1,3\n")
    with (
        spilling(Dataset(file), ["click", "user"], LocalEngine(1)) as data,
        pytest.raises(DataError, match=r"bad\.csv, line 3"),
    ):
        data.to_polars()


def test_other_processes_get_the_text(text, place):
    with spilling(opened(text), COLUMNS, LocalEngine(1)) as data:
        part = pickle.loads(pickle.dumps(data.partitions[0]))
    assert type(part) is TextPartition
    assert part.read().equals(opened(text).partitions[0].read())


def test_the_layout_is_still_known(text, place):
    with spilling(opened(text), COLUMNS, LocalEngine(1)) as data:
        assert data.layout == opened(text).layout


KILLED = """
import os, sys
from penstock import Dataset
from penstock.data import spill
from penstock.data.spill import spilling
from penstock.engine.local import LocalEngine
spill._SHARE_OF_MEMORY = 0
with spilling(Dataset(sys.argv[1]), ["click", "user"], LocalEngine(1)) as data:
    data.to_polars(["click"])
    os.kill(os.getpid(), 9)
"""


def test_what_a_killed_process_leaves_is_swept(text, place, monkeypatch):
    subprocess.run([sys.executable, "-c", KILLED, str(text)], check=False, env=os.environ)
    left = list(place.rglob("*.arrow"))
    assert left
    monkeypatch.setattr(scratch, "_swept", set())
    with spilling(opened(text), COLUMNS, LocalEngine(1)) as data:
        data.to_polars()
        assert not any(file.exists() for file in left)
