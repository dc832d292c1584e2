"""Products of pairs and their gradients against the oracle: numba here, Triton in its interpreter."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.kernels import cpu_pairs

SCRIPT = Path(__file__).with_name("pairs_cases.py")
names: dict[str, Any] = runpy.run_path(str(SCRIPT))


class _OnCpu:
    """The kernels called as those of a GPU are, in two stretches, as two threads would."""

    @staticmethod
    def multiply(first, others, share, beside, out, sums) -> None:
        arrays = _arrays(first, others, share)
        for begin, end in _halves(others):
            cpu_pairs.multiply(*arrays, beside, out.numpy(), _array(sums, (0,)), begin, end)

    @staticmethod
    def gradients(first, others, share, beside, gradient, of_sums, to_first, to_others) -> None:
        arrays = _arrays(first, others, share)
        target = _array(to_first, (0, others.shape[2]))
        given = gradient.numpy(), _array(of_sums, (0,)), target, to_others.numpy()
        for begin, end in _halves(others):
            cpu_pairs.gradients(*arrays, beside, *given, begin, end)


def _arrays(first, others, share) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return _array(first, (0, others.shape[2])), others.numpy(), _array(share, (0,))


def _array(tensor, shape: tuple[int, ...]) -> np.ndarray:
    return np.empty(shape, np.float32) if tensor is None else tensor.numpy()


def _halves(others) -> list[tuple[int, int]]:
    return [(0, len(others) // 2), (len(others) // 2, len(others))]


@pytest.mark.parametrize("case", names["CASES"], ids=str)
def test_numba_agrees(case: Any) -> None:
    names["check"](_OnCpu, case, "cpu")


def test_triton_agrees(on_triton: Callable[..., str]) -> None:
    assert on_triton(SCRIPT, "cpu").count("agrees") == len(names["CASES"])
