"""What tests of tables share: a run of a test file on Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest


@pytest.fixture
def trains_alike_on_triton() -> Callable[[str], None]:
    """Run a file as a program with the kernels of a GPU, in a process of its own; it says whether all went well."""
    pytest.importorskip("triton")

    def run(file: str) -> None:
        environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, file], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr[-3000:]
        assert "trained alike" in done.stdout

    return run
