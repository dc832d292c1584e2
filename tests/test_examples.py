"""Every example runs as a user runs it: a fresh process, on a small log of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs(example: Path, tmp_path: Path) -> None:
    if "[DAY.tsv]" in example.read_text():
        from penstock.data.synthetic import criteo

        argument = str(criteo(tmp_path / "day.tsv", 20_000, cardinalities=1_000).path)
    else:
        argument = "20000"
    done = subprocess.run(
        [sys.executable, str(example), argument], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip(), "an example says what it found"
