"""Whatever moment a writer is stopped at, by a kill or a power cut: old or new is there, whole, and never a mixture."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.faults.further_writers import FURTHER_WRITERS
from tests.faults.stopping import FileSystem, points
from tests.faults.writers import WRITERS, Writer

from penstock.core import durable

BUDGET, FEW, LARGE = 8, 4, 100_000  # crash points for each writer and kind of end
ENDS: dict[str, Callable[[FileSystem], None]] = {
    "kill": lambda _: None,
    "content not synced": FileSystem.lose_content,
    "names not synced": FileSystem.lose_names,
}


def _calls(writer: Writer, root: Path) -> int:
    shutil.copytree(root / "before", root / "count")
    watcher = FileSystem(root / "count")
    assert watcher.run(lambda: writer.write(root / "count" / "place", 1))
    return watcher.calls


def _check(writer: Writer, root: Path, end: str, at: int) -> None:
    folder = root / f"{at}"
    shutil.copytree(root / "before", folder)
    watcher = FileSystem(folder, stop_at=at)
    finished = watcher.run(lambda: writer.write(folder / "place", 1))
    ENDS[end](watcher)
    where = f"{writer.name} stopped before call {at} ({end})"
    found = writer.read(folder / "place")
    assert found in ({0}, {1}), f"{where}: versions {found}"
    assert not finished or found == {1}, where
    writer.write(folder / "place", 1)
    assert writer.read(folder / "place") == {1}, where
    left = [str(p) for p in folder.rglob(".*") if durable.is_leftover(p.name) or p.name.endswith(".journal")]
    assert not left, f"{where} left {left}"
    shutil.rmtree(folder)


def _stop_everywhere(writer: Writer, root: Path, end: str, most: int) -> int:
    (root / "before").mkdir()
    writer.write(root / "before" / "place", 0)
    chosen = points(_calls(writer, root), most)
    for at in chosen:
        _check(writer, root, end, at)
    return len(chosen)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
def test_old_or_new(writer, end, tmp_path):
    assert _stop_everywhere(writer, tmp_path, end, BUDGET) > 0


@pytest.mark.parametrize("writer", FURTHER_WRITERS, ids=lambda writer: writer.name)
def test_old_or_new_of_what_else_is_written(writer, tmp_path):
    for end in ENDS:
        (tmp_path / end).mkdir()
        assert _stop_everywhere(writer, tmp_path / end, end, FEW) > 0


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("writer", [*WRITERS, *FURTHER_WRITERS], ids=lambda writer: writer.name)
def test_old_or_new_at_every_call(writer, end, tmp_path):
    print(f"{writer.name}, {end}: {_stop_everywhere(writer, tmp_path, end, LARGE)} crash points")


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
def test_where_names_cannot_be_exchanged(writer, tmp_path, monkeypatch):
    """As on macOS: folders take their place by two renames, which a journal makes one."""
    monkeypatch.setattr(durable, "exchange", lambda first, second: False)
    _stop_everywhere(writer, tmp_path, "kill", BUDGET)


def test_a_live_writer_is_not_swept(tmp_path):
    from penstock.core import artefact

    with artefact.writing(tmp_path / "a", "demo", 1) as first:
        (first / "x.json").write_text("{}")
        with artefact.writing(tmp_path / "b", "demo", 1) as second:
            (second / "x.json").write_text("{}")
        assert first.is_dir()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def test_a_forged_journal_moves_nothing(tmp_path):
    """A journal that came with a download must not rename what its reader owns."""
    import json

    from penstock.core import artefact
    from penstock.core.errors import ArtefactError

    (tmp_path / "mine").mkdir()
    (tmp_path / "download").mkdir()
    inode = (tmp_path / "mine").stat().st_ino
    for staging, place in (("../mine", "../gone"), ("../mine", "flow"), ("../.mine.0123abcd.partial", "../mine")):
        moves = [{"staging": staging, "place": place, "inode": inode}]
        (tmp_path / "download" / ".flow.journal").write_text(json.dumps({"journal": 1, "moves": moves}))
        with pytest.raises(ArtefactError):
            artefact.read(tmp_path / "download" / "flow", "workflow", 1, lambda folder: None)
        assert (tmp_path / "mine").is_dir()
    (tmp_path / "download" / ".flow.journal").write_text("[" * 100_000)
    with pytest.raises(ArtefactError):
        artefact.read(tmp_path / "download" / "flow", "workflow", 1, lambda folder: None)
