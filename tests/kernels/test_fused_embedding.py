"""Fused embedding kernels against the oracle: numba here, Triton in its interpreter (in a process of its own)."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from penstock.embedding.fused import cpu_kernels
from penstock.kernels.optimizer_formulas import FUSED
from penstock.kernels.reference_fused import noise, rounded_to_bfloat

SCRIPT = Path(__file__).with_name("fused_cases.py")
names = runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize("rule", FUSED)
@pytest.mark.parametrize("case", [c for c in names["CASES"] if not c.wrong], ids=lambda c: c.name)
def test_numba_agrees(case, rule: str) -> None:
    names["check"](cpu_kernels, case, names["RULES"][rule], "cpu")


def test_several_threads_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_kernels, "_ROWS_PER_THREAD", 3)
    monkeypatch.setattr("torch.get_num_threads", lambda: 5)
    for name in ("hot", "weighted"):
        case = next(c for c in names["CASES"] if c.name == name)
        names["check"](cpu_kernels, case, names["RULES"]["adagrad_row"], "cpu")


def test_triton_agrees(on_triton: Callable[..., str]) -> None:
    printed = on_triton(SCRIPT, "cpu")
    assert printed.count("agrees") == len(names["CASES"])
    assert all(f": {rule} agrees" in printed for rule in FUSED)


def test_rounding_is_fair() -> None:
    """The mean of many roundings is the value, and infinity is never made."""
    value = np.full((4000, 16), 1.0 + 2.0**-9, np.float32)
    row, column = np.meshgrid(np.arange(4000), np.arange(16), indexing="ij")
    bits = rounded_to_bfloat(value, noise(row, column, 7)).astype(np.uint32) << 16
    assert abs(bits.view(np.float32).mean() - value[0, 0]) < 1e-4
    largest = np.full(3, np.finfo(np.float32).max, np.float32)
    bits = rounded_to_bfloat(largest, np.full(3, 0xFFFF, np.uint32)).astype(np.uint32) << 16
    assert np.isfinite(bits.view(np.float32)).all()
