"""The indexes of cached and of hashed tables: the CPU's calls and Triton in its interpreter, each by its oracle."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from penstock.embedding.cached import cpu_index as cached
from penstock.embedding.hashed import cpu_index as hashed
from penstock.kernels import reference_cache, reference_hashed
from penstock.kernels.cache_contract import CLAIMED, stored

SCRIPTS = {name: Path(__file__).with_name(f"{name}_cases.py") for name in ("cache", "hashed")}
NAMES = {name: runpy.run_path(str(script)) for name, script in SCRIPTS.items()}
ON_CPU = {"cache": cached, "hashed": hashed}
CASES = [(name, case) for name, own in NAMES.items() for case in own["CASES"]]


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{name}-{case.name}" for name, case in CASES])
def test_cpu_agrees(name, case) -> None:
    NAMES[name]["check"](ON_CPU[name], case, "cpu")


@pytest.mark.parametrize("name", SCRIPTS)
def test_triton_agrees(name: str, on_triton: Callable[..., str]) -> None:
    assert on_triton(SCRIPTS[name], "cpu").count("agrees") == len(NAMES[name]["CASES"])


def test_the_oracle_of_a_cache_by_hand() -> None:
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


def test_the_oracle_of_hashed_tables_by_hand() -> None:
    rows = reference_hashed.Rows(3)
    assert rows.find([(0, 5), (1, 5), (0, 5), (0, -1), None], train=True) == [0, 1, 0, 4, 4]
    assert rows.find([(1, 5), (1, 6)], train=False) == [1, 3]
    rows.drop((0, 5))
    assert rows.find([(0, 8), (0, 9), (0, 10)], train=True) == [0, 2, 4]  # freed rows first, then no room
    assert rows.refused == {0: 1} and rows.touched[1, 5] == 1 and rows.touched[0, 8] == 2
    first = reference_hashed.first_weights(6, 0, 3, -1.0, 2.0)
    assert first.dtype == np.float32 and (np.abs(first) <= 1).all() and len(set(first.tolist())) == 3
