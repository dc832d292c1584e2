"""A reader beside a writer that never rests gets one version, whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.writers import WRITERS, Writer

LOADS, LARGE = 15, 1250
SCRIPT = """
import sys
from pathlib import Path
from tests.faults.writers import WRITERS
name, place = sys.argv[1:]
[writer] = [w for w in WRITERS if w.name == name]
version = 1
while True:
    writer.write(Path(place), version)
    print(version, flush=True)
    version = 1 - version
"""
ROOT = Path(__file__).parents[2]


def _load_beside(writer: Writer, place: Path, loads: int) -> int:
    """How often the writer wrote while `loads` loads found one version each."""
    writer.write(place, 0)
    command = [sys.executable, "-c", SCRIPT, writer.name, str(place)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as beside:
        try:
            assert beside.stdout is not None
            assert beside.stdout.readline().strip() == "1"
            for _ in range(loads):
                found = writer.read(place)
                assert len(found) == 1, f"{writer.name}: a load mixed the versions {found}"
                assert beside.poll() is None, "the writer has ended"
        finally:
            beside.kill()
        return 1 + len(beside.stdout.read().split())


CHOSEN = [w for w in WRITERS if w.name in ("data", "workflow", "store", "model")]


@pytest.mark.parametrize("writer", CHOSEN, ids=lambda writer: writer.name)
def test_one_version(writer, tmp_path):
    assert _load_beside(writer, tmp_path / "place", LOADS) > 1


@pytest.mark.slow
@pytest.mark.parametrize("writer", CHOSEN, ids=lambda writer: writer.name)
def test_one_version_in_many_loads(writer, tmp_path):
    written = _load_beside(writer, tmp_path / "place", LARGE)
    print(f"{writer.name}: {LARGE} loads beside {written} writes")
