"""Dot products of all pairs of a row's vectors: one kernel on CPUs and GPUs, a product of small matrices elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.core.runtime.kernel_threads import in_stretches
from penstock.kernels.gpu_triton import has_triton
from penstock.nn.plain import are_plain, is_watched

_ROWS_PER_THREAD = 512
Made = tuple[Tensor, Tensor | None]  # products, and sums where there is a share
_ON_GPU = (torch.float32, torch.bfloat16, torch.float16)


def pair_products(first: Tensor | None, others: Tensor, pairs: Tensor, beside: bool = False) -> Tensor:
    """The product of each vector of a row with those before it, vector after vector.

    Args:
        first: a vector a row, `(B, dim)`, that comes before the others; or None.
        others: `(B, n, dim)`.
        pairs: row and column of each pair as one index into the flat matrix of all products.
        beside: whether `first` itself stands before the products.

    Returns:
        `(B, pairs)`, or `(B, dim + pairs)`.

    >>> pairs = torch.tensor([3, 6, 7])
    >>> pair_products(torch.ones(1, 2), torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), pairs, beside=True)
    tensor([[ 1.,  1.,  3.,  7., 11.]])
    """
    return _made(first, others, None, pairs, beside)[0]


def pairs_and_sums(
    first: Tensor | None, others: Tensor, share: Tensor, pairs: Tensor, beside: bool = False
) -> tuple[Tensor, Tensor]:
    """The same of `others * share`, and the sum of the first numbers of `others`, which `share` may hide.

    Args:
        first, others, pairs, beside: as above.
        share: `(dim,)`.

    Returns:
        The products, and `(B,)`.

    >>> others = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    >>> pairs_and_sums(None, others, torch.tensor([0.0, 1.0]), torch.tensor([2]))
    (tensor([[8.]]), tensor([4.]))
    """
    products, sums = _made(first, others, share, pairs, beside)
    assert sums is not None
    return products, sums


def _made(first: Tensor | None, others: Tensor, share: Tensor | None, pairs: Tensor, beside: bool) -> Made:
    given = [others] if first is None else [first, others]
    kernel = _kernel_of(*given)
    if kernel is None:
        return _by_torch(first, others, share, pairs, beside)
    if torch.is_grad_enabled() and any(part.requires_grad for part in given):
        found: Made = _Pairs.apply(first, others, share, pairs, beside, kernel)  # type: ignore[no-untyped-call]
        return found
    return kernel.multiply(first, others, share, len(pairs), beside)


def _by_torch(first: Tensor | None, others: Tensor, share: Tensor | None, pairs: Tensor, beside: bool) -> Made:
    seen = others if share is None else others * share.to(others.dtype)
    sums = None if share is None else others[:, :, 0].sum(1)
    stacked = seen if first is None else torch.cat([first.unsqueeze(1), seen.to(first.dtype)], 1)
    products = torch.bmm(stacked, stacked.transpose(1, 2)).flatten(1).index_select(1, pairs)
    return (torch.cat([first, products], 1) if beside and first is not None else products), sums


class _Pairs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, first: Tensor | None, others: Tensor, share: Tensor | None, pairs: Tensor, beside: bool, kernel: Any
    ) -> Made:
        ctx.save_for_backward(first, others, share, pairs)
        ctx.beside, ctx.kernel = beside, kernel
        ctx.set_materialize_grads(False)
        found: Made = kernel.multiply(first, others, share, len(pairs), beside)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        (first, others, share, pairs), (of_out, of_sums) = ctx.saved_tensors, gradients
        wanted = ctx.needs_input_grad[:2]
        nothing: tuple[None, ...] = (None,) * 4
        if of_out is None:
            of_out = others.new_zeros(len(others), len(pairs) + (others.shape[2] if ctx.beside else 0))
        if torch.is_grad_enabled():  # gradients of gradients are PyTorch's
            inputs = [part for part, is_one in zip((first, others), wanted, strict=True) if is_one]
            made, sums = _by_torch(first, others, share, pairs, ctx.beside)
            outputs, seeds = [made], [of_out]
            if of_sums is not None and sums is not None:
                outputs, seeds = [made, sums], [of_out, of_sums]
            found = iter(torch.autograd.grad(outputs, inputs, seeds, create_graph=True))
            to_first, to_others = (next(found) if is_one else None for is_one in wanted)
            return to_first, to_others, *nothing
        to_first, to_others = ctx.kernel.gradients(first, others, share, ctx.beside, of_out, of_sums)
        return to_first, to_others, *nothing


class _OnCpu:
    """The kernel of numba, on torch's number of threads."""

    @staticmethod
    def multiply(first: Tensor | None, others: Tensor, share: Tensor | None, num_pairs: int, beside: bool) -> Made:
        from penstock.kernels.cpu_pairs import multiply

        out = torch.empty(len(others), num_pairs + (others.shape[2] if beside else 0))
        sums = torch.empty(0 if share is None else len(others))
        arrays, targets = _arrays(first, others, share), (out.numpy(), sums.numpy())
        _shared(lambda begin, end: multiply(*arrays, beside, *targets, begin, end), len(out))
        return out, None if share is None else sums

    @staticmethod
    def gradients(
        first: Tensor | None, others: Tensor, share: Tensor | None, beside: bool, of_out: Tensor, of_sums: Tensor | None
    ) -> tuple[Tensor | None, Tensor]:
        from penstock.kernels.cpu_pairs import gradients

        arrays = _arrays(first, others, share)
        seen = _array(of_out, others), _array(of_sums, others.new_empty(0))
        targets = np.empty_like(arrays[0]), np.empty_like(arrays[1])
        _shared(lambda begin, end: gradients(*arrays, beside, *seen, *targets, begin, end), len(others))
        to_first, to_others = map(torch.from_numpy, targets)
        return None if first is None else to_first, to_others


class _OnGpu:
    """The kernel of Triton."""

    @staticmethod
    def multiply(first: Tensor | None, others: Tensor, share: Tensor | None, num_pairs: int, beside: bool) -> Made:
        from penstock.kernels.gpu_pairs import multiply

        width, dtype = num_pairs + (others.shape[2] if beside else 0), others.dtype if first is None else first.dtype
        out = others.new_empty(len(others), width, dtype=dtype)
        sums = None if share is None else others.new_empty(len(others))
        multiply(None if first is None else first.contiguous(), others.contiguous(), share, beside, out, sums)
        return out, sums

    @staticmethod
    def gradients(
        first: Tensor | None, others: Tensor, share: Tensor | None, beside: bool, of_out: Tensor, of_sums: Tensor | None
    ) -> tuple[Tensor | None, Tensor]:
        from penstock.kernels.gpu_pairs import gradients

        held, others = None if first is None else first.contiguous(), others.contiguous()
        to_first, to_others = None if held is None else torch.empty_like(held), torch.empty_like(others)
        of_sums = None if of_sums is None else of_sums.contiguous()
        of_out = of_out if of_out.stride(1) == 1 else of_out.contiguous()
        gradients(held, others, share, beside, of_out, of_sums, to_first, to_others)
        return to_first, to_others


def _kernel_of(*given: Tensor) -> type[_OnCpu | _OnGpu] | None:
    """The kernel for these tensors; None where PyTorch's operations must be seen, or there is none."""
    if are_plain(*given):
        return _OnCpu
    others, devices = given[-1], {tensor.device for tensor in given}
    if others.device.type != "cuda" or len(devices) > 1 or is_watched() or not has_triton():
        return None
    from penstock.kernels.gpu_pairs import MOST, WIDEST

    fits = others.shape[1] + len(given) - 1 <= MOST and others.shape[2] <= WIDEST
    return _OnGpu if fits and all(tensor.dtype in _ON_GPU for tensor in given) else None


def _arrays(first: Tensor | None, others: Tensor, share: Tensor | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        _array(first, others.new_empty(0, others.shape[2])),
        _array(others, others),
        _array(share, others.new_empty(0)),
    )


def _array(tensor: Tensor | None, other: Tensor) -> np.ndarray:
    found: np.ndarray = (other if tensor is None else tensor).detach().contiguous().numpy()
    return found


def _shared(work: Callable[[int, int], Any], count: int) -> None:
    in_stretches(work, count, torch.get_num_threads(), _ROWS_PER_THREAD)
