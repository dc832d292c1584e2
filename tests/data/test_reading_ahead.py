"""Text that threads parse ahead: all of it once, what fails is told to who waits, and what is dropped is read later."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock import Dataset
from penstock.core.errors import DataError
from penstock.data import spill
from penstock.data.formats.text_partition import TextPartition
from penstock.data.reading_ahead import ReadingAhead
from penstock.data.spill import spilling
from penstock.engine import resolve

COLUMNS = ["click", "user"]
ROWS = 900


@pytest.fixture
def text(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("PENSTOCK_SCRATCH", str(tmp_path / "scratch"))
    file = tmp_path / "clicks.csv"
    file.write_text("click,user\n" + "".join(f"{i % 2},{1000 + i}\n" for i in range(ROWS)))
    return file


def opened(text: Path) -> Dataset:
    return Dataset(text, part_size=400)


def threads() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(("penstock-read", "penstock-engine"))]


class Gate:
    """Parsing that begins, and ends when it is told to."""

    def __init__(self, monkeypatch) -> None:
        self.begun: list[int] = []
        self.first, self.open = threading.Event(), threading.Event()
        read = TextPartition.read

        def slow(part, columns=None):
            self.begun.append(part.start)
            self.first.set()
            assert self.open.wait(30)
            return read(part, columns)

        monkeypatch.setattr(TextPartition, "read", slow)


def begun(data, gate, engine):
    """A reading that parses its first partitions."""
    reading = ReadingAhead(data, engine)
    reading.begin()
    assert gate.first.wait(30)
    return reading


@pytest.mark.parametrize("workers", [1, 2])
def test_who_begins_it_goes_on_meanwhile_and_all_is_read_once(text, monkeypatch, workers):
    expected = opened(text).to_polars()
    gate, engine = Gate(monkeypatch), resolve(f"local:{workers}")
    with spilling(opened(text), COLUMNS, engine) as data:
        reading = begun(data, gate, engine)
        gate.open.set()
        reading.wait(False)
        reading.stop()
        assert threads() == []
        assert data.to_polars().equals(expected)
        assert sorted(gate.begun) == [part.source.start for part in data.partitions]
        assert len(gate.begun) > 10


@pytest.mark.parametrize("workers", [1, 2])
def test_what_has_not_begun_is_dropped(text, monkeypatch, workers):
    expected = opened(text).to_polars()
    gate, engine = Gate(monkeypatch), resolve(f"local:{workers}")
    with spilling(opened(text), COLUMNS, engine) as data:
        reading = begun(data, gate, engine)
        stopping = threading.Thread(target=reading.stop)
        stopping.start()
        assert reading._is_stopped.wait(30)
        assert len(gate.begun) <= workers
        gate.open.set()
        stopping.join(30)
        assert len(gate.begun) <= workers and threads() == []
        assert data.to_polars().equals(expected), "the others read what is missing"
    assert list((text.parent / "scratch").iterdir()) == []


def test_one_that_was_never_begun_is_stopped(text):
    with spilling(opened(text), COLUMNS, resolve("local:2")) as data:
        ReadingAhead(data, resolve("local:2")).stop()
    assert threads() == []


def test_what_cannot_be_read_is_told_to_who_waits(text):
    with text.open("a") as file:
        file.write("1,many\n")
    engine = resolve("local:2")
    with spilling(Dataset(text, part_size=400, dtypes={"user": "int64"}), COLUMNS, engine) as data:
        reading = ReadingAhead(data, engine)
        reading.begin()
        with pytest.raises(DataError, match=rf"line {ROWS + 2}: column 'user': not an integer"):
            reading.wait(False)
        reading.stop()
    assert threads() == []


def test_the_bar_counts_what_was_read_before_somebody_waited(text, capsys):
    engine = resolve("local:2")
    with spilling(opened(text), COLUMNS, engine) as data:
        reading = ReadingAhead(data, engine)
        reading.begin()
        reading._thread.join(30)
        assert capsys.readouterr().err == ""
        reading.wait(True)
        reading.stop()
    drawn = capsys.readouterr().err
    total = sum(part.estimated_rows for part in opened(text).partitions)
    assert "read" in drawn and f"{total} rows" in drawn


@pytest.mark.parametrize("rows", [{"click": [0, 1]}, None])
def test_of_other_data_nothing_is_read(text, monkeypatch, rows):
    monkeypatch.setattr(spill, "_SHARE_OF_FREE", 0)
    monkeypatch.setattr(spill, "_SHARE_OF_MEMORY", 0)  # no room: the text is as it was
    engine = resolve("local:2")
    with spilling(opened(text) if rows is None else Dataset(rows), ["click"], engine) as data:
        gate, reading = Gate(monkeypatch), ReadingAhead(data, engine)
        reading.begin()
        reading.wait(False)
        reading.stop()
        assert gate.begun == []
