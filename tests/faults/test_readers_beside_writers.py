"""A reader beside a writer that hardly rests gets one version, whole."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.writers import WRITERS, Writer

LOADS, LARGE = 15, 1250
PAUSE = 0.01  # seconds: about what a load takes, so that some meet a writer and some do not
# Writes what the last line that it was given names, one version after the other.
SCRIPT = """
import select, sys, time
from pathlib import Path
from tests.faults.writers import WRITERS
writer, version = None, 1
while True:
    if select.select([sys.stdin], [], [], 0 if writer else None)[0]:
        name, place = sys.stdin.readline().rstrip("\\n").split(" ", 1)
        [writer], version = [w for w in WRITERS if w.name == name], 1
    writer.write(Path(place), version)
    print(writer.name, version, flush=True)
    version = 1 - version
    time.sleep(PAUSE)
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def beside() -> Iterator[subprocess.Popen[str]]:
    """A process that writes: one for all of them, since it takes long to start."""
    pipe, script = subprocess.PIPE, f"PAUSE = {PAUSE}\n{SCRIPT}"
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.kill()


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not below `tmp_path`, which goes when its test has passed: the process writes on until the next test begins."""
    return tmp_path_factory.mktemp("beside") / "place"


def _wait_for_write(beside: subprocess.Popen[str], writer: Writer) -> None:
    for line in beside.stdout:
        if line.split()[0] == writer.name:
            return
    raise AssertionError("the writer has ended")


def _load_beside(beside: subprocess.Popen[str], writer: Writer, place: Path, loads: int) -> None:
    """Loads that each find one version, while the other process writes."""
    writer.write(place, 0)
    beside.stdin.write(f"{writer.name} {place}\n")
    beside.stdin.flush()
    _wait_for_write(beside, writer)
    for _ in range(loads):
        found = writer.read(place)
        assert len(found) == 1, f"{writer.name}: a load mixed the versions {found}"
    _wait_for_write(beside, writer)  # it has not ended meanwhile


CHOSEN = [w for w in WRITERS if w.name in ("data", "workflow", "store", "model")]


@pytest.mark.parametrize("writer", CHOSEN, ids=lambda writer: writer.name)
def test_one_version(beside, writer, place):
    _load_beside(beside, writer, place, LOADS)


@pytest.mark.slow
@pytest.mark.parametrize("writer", CHOSEN, ids=lambda writer: writer.name)
def test_one_version_in_many_loads(beside, writer, place):
    _load_beside(beside, writer, place, LARGE)
