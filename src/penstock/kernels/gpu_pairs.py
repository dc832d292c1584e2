"""Dot products of all pairs of a row's vectors, and their gradients, on a GPU: the same as `cpu_pairs`.

A program has one row. Its vectors are a small matrix V; the lower triangle of `V Vᵀ` goes out, and of the gradient G,
as a symmetric matrix with noughts between, `G V` comes back. Nothing in between is written to memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from penstock.kernels.gpu_triton import require_triton

require_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from penstock.kernels.gpu_launch import Launch  # noqa: E402

MOST, WIDEST = 64, 128  # vectors of a row, and numbers of a vector: what a program keeps in registers
# Three products of ten bits each, by which none is lost: half the time of float32's own in `multiply`, and no less in
# `gradients`.
_PRECISION = "ieee" if torch.version.hip else "tf32x3"
_LEAST = 16  # a product of matrices has so many rows and columns


@triton.jit
def _vectors(
    first, others, share, row, num, dim, HAS_FIRST: tl.constexpr, HAS_SHARE: tl.constexpr, N: tl.constexpr,
    D: tl.constexpr,
):  # fmt: skip
    """A row's vectors, one below the other, with noughts behind."""
    vector, k = tl.arange(0, N)[:, None], tl.arange(0, D)[None, :]
    ahead = 1 if HAS_FIRST else 0
    inside = (vector >= ahead) & (vector < num) & (k < dim)
    place = row * (num - ahead) * dim + (vector - ahead) * dim + k
    values = tl.load(others + place, mask=inside, other=0)
    if HAS_SHARE:
        values = values * tl.load(share + k, mask=k < dim, other=0)
    if HAS_FIRST:
        own = tl.load(first + row * dim + k, mask=k < dim, other=0)
        seen = tl.where(vector == 0, own, values.to(own.dtype))
    else:
        seen = values.to(others.dtype.element_ty)
    return seen


@triton.jit
def _multiply(
    first, others, share, out, sums, num, dim, out_row, HAS_FIRST: tl.constexpr, HAS_SHARE: tl.constexpr,
    BESIDE: tl.constexpr, HAS_SUMS: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    values = _vectors(first, others, share, row, num, dim, HAS_FIRST, HAS_SHARE, N, D)
    products = tl.dot(values, tl.trans(values), input_precision=PRECISION)
    i, j, k = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :], tl.arange(0, D)
    place = row * out_row
    if BESIDE:
        own = tl.load(first + row * dim + k, mask=k < dim)
        tl.store(out + place + k, own.to(out.dtype.element_ty), mask=k < dim)
        place += dim
    tl.store(out + place + i * (i - 1) // 2 + j, products.to(out.dtype.element_ty), mask=(j < i) & (i < num))
    if HAS_SUMS:
        vector = tl.arange(0, N)
        count = num - 1 if HAS_FIRST else num
        weights = tl.load(others + row * count * dim + vector * dim, mask=vector < count, other=0)
        tl.store(sums + row, tl.sum(weights.to(tl.float32), 0))


@triton.jit
def _gradients(
    first, others, share, gradient, of_sums, to_first, to_others, num, dim, gradient_row, HAS_FIRST: tl.constexpr,
    HAS_SHARE: tl.constexpr, BESIDE: tl.constexpr, HAS_SUMS: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    values = _vectors(first, others, share, row, num, dim, HAS_FIRST, HAS_SHARE, N, D)
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    vector, k = i, tl.arange(0, D)[None, :]
    place = gradient + row * gradient_row
    pairs = place + dim if BESIDE else place
    high, low = tl.maximum(i, j), tl.minimum(i, j)
    factors = tl.load(pairs + high * (high - 1) // 2 + low, mask=(i != j) & (high < num), other=0)
    found = tl.dot(factors.to(values.dtype), values, input_precision="ieee")
    if HAS_FIRST:
        own = found
        if BESIDE:
            own += tl.load(place + k + tl.zeros_like(vector), mask=(vector == 0) & (k < dim), other=0).to(tl.float32)
        target = to_first + row * dim + k + tl.zeros_like(vector)
        tl.store(target, own.to(to_first.dtype.element_ty), mask=(vector == 0) & (k < dim))
    if HAS_SHARE:
        found *= tl.load(share + k, mask=k < dim, other=0)
    if HAS_SUMS:
        found += tl.where(k == 0, tl.load(of_sums + row), 0.0)
    ahead = 1 if HAS_FIRST else 0
    inside = (vector >= ahead) & (vector < num) & (k < dim)
    target = to_others + row * (num - ahead) * dim + (vector - ahead) * dim + k
    tl.store(target, found.to(to_others.dtype.element_ty), mask=inside)


_MULTIPLY, _GRADIENTS = Launch(_multiply), Launch(_gradients)


def multiply(
    first: Tensor | None, others: Tensor, share: Tensor | None, beside: bool, out: Tensor, sums: Tensor | None
) -> None:
    """Products of pairs into `out`, and sums of first numbers into `sums`; all contiguous but for rows of `out`.

    Args:
        first: `(B, dim)`, or None.
        others: `(B, n, dim)`.
        share: `(dim,)`, what `others` are multiplied by; or None.
        beside: whether `out` begins with `first` itself.
        out: `(B, [dim +] pairs)`.
        sums: `(B,)`, or None.
    """
    form, constants, warps = _form(first, others, share, beside, sums)
    if len(others):
        arguments = _or(first, others), others, _or(share, others), out, _or(sums, others), *form, out.stride(0)
        _MULTIPLY((len(others),), arguments, {**constants, "PRECISION": _PRECISION}, warps)


def gradients(
    first: Tensor | None, others: Tensor, share: Tensor | None, beside: bool, gradient: Tensor, of_sums: Tensor | None,
    to_first: Tensor | None, to_others: Tensor,
) -> None:  # fmt: skip
    """What reaches `first` and `others` of the gradients of `out` and `sums`; contiguous but for rows of `gradient`.

    Args:
        first, others, share, beside: as above.
        gradient: of `out`.
        of_sums: of `sums`, or None.
        to_first: `(B, dim)`, written; or None.
        to_others: `(B, n, dim)`, written.
    """
    form, constants, warps = _form(first, others, share, beside, of_sums)
    if len(others):
        given = _or(first, others), others, _or(share, others), gradient, _or(of_sums, others)
        arguments = *given, _or(to_first, to_others), to_others, *form, gradient.stride(0)
        _GRADIENTS((len(others),), arguments, constants, warps)


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    """A kernel is given a tensor, also where it reads none."""
    return other if tensor is None else tensor


def _form(
    first: Tensor | None, others: Tensor, share: Tensor | None, beside: bool, sums: Tensor | None
) -> tuple[tuple[int, int], dict[str, bool | int], int]:
    """Vectors and dim of a row, what the kernel is compiled for, and the warps of a program."""
    num, dim = others.shape[1] + (first is not None), others.shape[2]
    size, wide = (max(_LEAST, triton.next_power_of_2(number)) for number in (num, dim))
    has = {
        "HAS_FIRST": first is not None,
        "HAS_SHARE": share is not None,
        "BESIDE": beside,
        "HAS_SUMS": sums is not None,
    }
    return (num, dim), {**has, "N": size, "D": wide}, max(1, size * max(size, wide) // 2048)
