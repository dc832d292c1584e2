"""The index of hashed tables: Triton in its interpreter (a process of its own) and the CPU's calls, by the oracle."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from penstock.embedding.hashed import cpu_index
from penstock.kernels import reference_hashed

SCRIPT = Path(__file__).with_name("hashed_cases.py")
names = runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize("case", names["CASES"], ids=lambda case: case.name)
def test_cpu_agrees(case) -> None:
    names["check"](cpu_index, case, "cpu")


def test_triton_agrees() -> None:
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}  # must be set before the kernels are imported
    done = subprocess.run([sys.executable, str(SCRIPT), "cpu"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("agrees") == len(names["CASES"])


def test_the_oracle_by_hand() -> None:
    rows = reference_hashed.Rows(3)
    assert rows.find([(0, 5), (1, 5), (0, 5), (0, -1), None], train=True) == [0, 1, 0, 4, 4]
    assert rows.find([(1, 5), (1, 6)], train=False) == [1, 3]
    rows.drop((0, 5))
    assert rows.find([(0, 8), (0, 9), (0, 10)], train=True) == [0, 2, 4]  # freed rows first, then no room
    assert rows.refused == {0: 1} and rows.touched[1, 5] == 1 and rows.touched[0, 8] == 2
    first = reference_hashed.first_weights(6, 0, 3, -1.0, 2.0)
    assert first.dtype == np.float32 and (np.abs(first) <= 1).all() and len(set(first.tolist())) == 3
