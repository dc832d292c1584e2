"""A machine of a cluster that is lost, with the shards and standbys on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_standbys_lie_on_other_machines_and_take_over_when_one_is_lost() -> None:
    """In a process of its own: the Ray of these tests has one machine."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.faults.lost_machine"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "placed [2, 2, 2] True" in ended.stdout and "lost 0" in ended.stdout
    print(next(line for line in ended.stdout.splitlines() if line.startswith("paused")))
