"""The index of a row cache: Triton in its interpreter (in a process of its own) and the CPU's calls, by the oracle."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from penstock.embedding.cached import cpu_index
from penstock.kernels import reference_cache
from penstock.kernels.cache_contract import CLAIMED, stored

SCRIPT = Path(__file__).with_name("cache_cases.py")
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
    features = np.array([[0, 10, 0], [10, 5, 1]])
    ids = np.array([[3, 1], [3, 4], [9, 5]])
    keys, codes = reference_cache.find_keys(features, ids, np.empty(0, np.int64), np.empty(0, np.int64), 15)
    assert keys.tolist() == [3, 3, 9, 11, 14, 15]  # the last id is outside its table
    assert codes[-1] == (2 << 40) | 5
    slot_of, used = np.full(16, -1, np.int32), np.zeros(4, np.int32)
    slot_of[3], slot_of[9] = 2, stored(77)
    missing, was = reference_cache.claim(keys, slot_of, used, 5)
    assert missing.tolist() == [9, 11, 14] and was.tolist() == [-79, -1, -1]
    assert used.tolist() == [0, 0, 5, 0] and (slot_of[missing] == CLAIMED).all()
    assert reference_cache.find_slots(keys, slot_of, 4).tolist() == [2, 2, 4, 4, 4, 4]
