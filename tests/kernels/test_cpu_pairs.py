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


@pytest.mark.parametrize("others", [1, 2, 5, 16, 26, 40])
@pytest.mark.parametrize("dim", [3, 16])
@pytest.mark.parametrize("beside", [False, True])
def test_a_stretch_leaves_the_rows_behind_it_alone(others: int, dim: int, beside: bool) -> None:
    """Blocks are written beyond their row; another thread may have written the next one, or there is none."""
    draw, rows = np.random.default_rng(3), 9
    first = draw.random((rows, dim), np.float32)
    rest, share = draw.random((rows, others, dim), np.float32), np.empty(0, np.float32)
    width = others * (others + 1) // 2 + dim * beside
    whole = np.empty((rows, width), np.float32)
    cpu_pairs.multiply(first, rest, share, beside, whole, share, 0, rows)
    for end in range(1, rows):
        out = np.full((rows, width), 7, np.float32)
        cpu_pairs.multiply(first, rest, share, beside, out, share, 0, end)
        np.testing.assert_array_equal(out[:end], whole[:end])
        assert (out[end:] == 7).all()


def test_triton_agrees(on_triton: Callable[..., str]) -> None:
    assert on_triton(SCRIPT, "cpu").count("agrees") == len(names["CASES"])
