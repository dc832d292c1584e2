"""Products of pairs and their gradients against the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.kernels import cpu_pairs, reference_pairs

# rows, vectors beside the first, dim: fewer than a block has, as many, one more, many.
SHAPES = [(0, 3, 4), (1, 1, 1), (5, 2, 3), (7, 4, 16), (3, 15, 8), (4, 16, 17), (6, 26, 16), (2, 33, 5), (3, 70, 64)]


def _drawn(rows: int, others: int, dim: int, has_first: bool) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(rows + others)
    first = draw.normal(size=(rows if has_first else 0, dim)).astype(np.float32)
    return first, draw.normal(size=(rows, others, dim)).astype(np.float32)


@pytest.mark.parametrize("kind", ["beside", "among", "without"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_and_gradients_are_the_oracles(shape: tuple[int, int, int], kind: str) -> None:
    rows, others, dim = shape
    first, stacked = _drawn(*shape, has_first=kind != "without")
    beside, num = kind == "beside" and len(first) > 0, others + (len(first) > 0)
    width = num * (num - 1) // 2 + (dim if beside else 0)
    out = np.full((rows, width), np.nan, np.float32)
    middle = rows // 2  # in two stretches, as two threads would
    for begin, end in ((0, middle), (middle, rows)):
        cpu_pairs.multiply(first, stacked, beside, out, begin, end)
    expected = reference_pairs.multiply(first, stacked, beside)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5 * dim)

    gradient = np.random.default_rng(1).normal(size=out.shape).astype(np.float32)
    found = np.full_like(first, np.nan), np.full_like(stacked, np.nan)
    for begin, end in ((0, middle), (middle, rows)):
        cpu_pairs.gradients(first, stacked, beside, gradient, *found, begin, end)
    wanted = reference_pairs.gradients(first, stacked, beside, gradient)
    np.testing.assert_allclose(reference_pairs.joined(*found), wanted, rtol=1e-5, atol=1e-5 * num)
