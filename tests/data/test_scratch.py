"""Scratch folders: for their owner alone, and gone with it, however it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.core.errors import ParameterError
from penstock.data import scratch
from penstock.data.scratch import Scratch

KILLED = """
import os
from penstock.data.scratch import Scratch
made = Scratch()
print(made.path, flush=True)
os.kill(os.getpid(), 9)
"""


def test_nobody_else_reads_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_SCRATCH", str(tmp_path / "new" / "place"))
    made = Scratch()
    assert made.path.stat().st_mode & 0o777 == 0o700
    assert made.path.parent.stat().st_mode & 0o077 == 0


def test_what_killed_processes_left_is_swept_and_what_lives_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_SCRATCH", str(tmp_path))
    monkeypatch.setattr(scratch, "_swept", set())
    mine = Scratch()
    killed = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, env=os.environ, check=False)
    left = Path(killed.stdout.strip())
    assert left.is_dir()
    (tmp_path / "penstock-notes").mkdir()
    monkeypatch.setattr(scratch, "_swept", set())
    later = Scratch()
    assert not left.exists()
    assert mine.path.is_dir()
    assert later.path.is_dir()
    assert (tmp_path / "penstock-notes").is_dir()


def test_a_place_that_is_no_folder(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PENSTOCK_SCRATCH", str(tmp_path / "file"))
    with pytest.raises(ParameterError, match="PENSTOCK_SCRATCH"):
        Scratch()


def test_a_folder_that_is_swept_before_it_is_claimed_is_made_anew(tmp_path, monkeypatch):
    """Two processes start at once: one makes its folder, the other finds nobody who claims it."""
    make, made = scratch.tempfile.mkdtemp, []

    def swept_once(**arguments):
        made.append(make(**arguments))
        if len(made) == 1:
            Path(made[0]).rmdir()
        return made[-1]

    monkeypatch.setattr(scratch.tempfile, "mkdtemp", swept_once)
    kept = Scratch(tmp_path)
    assert str(kept.path) == made[1] and kept.path.is_dir()
