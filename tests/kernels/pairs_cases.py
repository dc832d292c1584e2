"""Products of pairs on one back end against the oracle; run alone: TRITON_INTERPRET=1 python pairs_cases.py"""

from __future__ import annotations

import sys

import numpy as np
import torch

from penstock.kernels import reference_pairs as oracle

# Rows, vectors beside the first, dim: fewer than a block has, as many, one more, many.
SHAPES = [(0, 3, 4), (1, 1, 1), (5, 2, 3), (7, 4, 16), (3, 15, 8), (4, 16, 17), (6, 26, 16), (2, 33, 5), (2, 70, 64)]
_ALL = [(*shape, first, share) for shape in SHAPES for first in ("beside", "among", "") for share in (0, 1)]
CASES = [(0, 3, 4, "", 1), *_ALL[6::5], (6, 26, 16, "beside", 1), (3, 15, 8, "", 1), (5, 2, 3, "among", 0)]


def check(backend, case, device: str, dtype: torch.dtype = torch.float32, tolerance: float = 1e-5) -> None:
    """Products, sums and gradients of a back end are the oracle's."""
    rows, others, dim, kind, has_share = case
    draw = np.random.default_rng(rows + others)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.from_numpy(draw.normal(size=shape).astype(np.float32)).to(device).to(dtype)

    first, stacked = drawn(rows, dim) if kind else None, drawn(rows, others, dim)
    share = torch.from_numpy(draw.random(dim).astype(np.float32)).to(device) if has_share else None
    beside, num = kind == "beside", others + bool(kind)
    width = num * (num - 1) // 2 + dim * beside

    def blank(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
        return torch.full(shape, torch.nan, dtype=dtype, device=device)

    out, sums = blank(rows, width), blank(rows, dtype=torch.float32) if has_share else None
    backend.multiply(first, stacked, share, beside, out, sums)
    arrays = [np.empty((0, dim), np.float32) if first is None else _numpy(first), _numpy(stacked)]
    arrays.append(np.empty(0, np.float32) if share is None else _numpy(share))
    products, added = oracle.multiply(*arrays, beside)
    np.testing.assert_allclose(_numpy(out), products, rtol=tolerance, atol=tolerance * dim)
    if sums is not None:
        np.testing.assert_allclose(_numpy(sums), added, rtol=tolerance, atol=tolerance * others)

    gradient, of_sums = drawn(rows, width), drawn(rows).float() if has_share else None
    to_first, to_others = None if first is None else blank(rows, dim), blank(rows, others, dim)
    backend.gradients(first, stacked, share, beside, gradient, of_sums, to_first, to_others)
    wanted = oracle.gradients(*arrays, beside, _numpy(gradient), np.empty(0) if of_sums is None else _numpy(of_sums))
    found = oracle.joined(np.empty((0, dim)) if to_first is None else _numpy(to_first), _numpy(to_others))
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * num)


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    found: np.ndarray = tensor.float().cpu().numpy()
    return found


def main(device: str) -> None:
    from penstock.kernels import gpu_pairs

    for case in CASES:
        check(gpu_pairs, case, device)
        if device == "cuda":
            check(gpu_pairs, case, device, torch.bfloat16, 2e-2)
        print(f"{case} agrees")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cpu")
