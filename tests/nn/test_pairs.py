"""Products of pairs as models use them: the kernel beside PyTorch's operations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from penstock.nn import pairs
from penstock.nn.pairs import pair_products


@pytest.fixture(autouse=True)
def several_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pairs, "_ROWS_PER_THREAD", 8)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def _places(num: int) -> Tensor:
    return torch.tensor([i * num + j for i in range(num) for j in range(i)], dtype=torch.int64)


def _inputs(rows: int, others: int, dim: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return (
        torch.randn(rows, dim, dtype=dtype, requires_grad=True),
        torch.randn(rows, others, dim, dtype=dtype, requires_grad=True),
    )


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("rows", [1, 50])
def test_values_and_gradients_are_those_of_torch(rows: int, beside: bool) -> None:
    first, others = _inputs(rows, 5, 6)
    found = pair_products(first, others, _places(6), beside)
    expected = pairs._by_torch(first, others, None, _places(6), beside)[0]
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(expected)
    ours = torch.autograd.grad((found * weights).sum(), (first, others))
    theirs = torch.autograd.grad((expected * weights).sum(), (first, others))
    torch.testing.assert_close(ours, theirs)


def test_without_a_first_vector_and_from_strided_memory() -> None:
    others = torch.randn(20, 7, 12)[:, ::2, 3:9].requires_grad_()
    found = pair_products(None, others, _places(4))
    torch.testing.assert_close(found, pairs._by_torch(None, others, None, _places(4), False)[0])
    found.sum().backward()
    assert others.grad is not None and others.grad.shape == others.shape


def test_second_gradients() -> None:
    first, others = _inputs(6, 3, 4)
    leaves = first.double().detach().requires_grad_(), others.double().detach().requires_grad_()
    found = []
    for one, several in ((first, others), leaves):
        made = pair_products(one, several, _places(4), beside=True)
        (slope,) = torch.autograd.grad(made.square().sum(), several, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), several)[0])
    torch.testing.assert_close(found[0].double(), found[1], rtol=1e-4, atol=1e-3)


def test_a_traced_model_holds_operations_that_others_know() -> None:
    places, (first, others) = _places(4), (given.detach() for given in _inputs(4, 3, 2))

    def made(one: Tensor, several: Tensor) -> Tensor:
        return pair_products(one, several, places, beside=True)

    traced = torch.jit.trace(made, (first, others), check_trace=False)
    assert "bmm" in str(traced.graph)
    torch.testing.assert_close(torch.func.vmap(made)(first[None], others[None])[0], made(first, others))


def test_other_dtypes_and_autocast() -> None:
    first, others = _inputs(4, 3, 2, torch.float64)
    assert pair_products(first, others, _places(4)).dtype == torch.float64
    first, others = _inputs(4, 3, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert pair_products(first, others, _places(4)).dtype == torch.bfloat16


@pytest.mark.parametrize("uses", ["both", "products", "sums"])
def test_a_share_and_sums_with_their_gradients(uses: str) -> None:
    first, others = _inputs(20, 5, 4)
    share = torch.tensor([0.0, 0.5, 2.0, 1.0])
    found = []
    for made in (
        pairs.pairs_and_sums(first, others, share, _places(6)),
        pairs._by_torch(first, others, share, _places(6), False),
    ):
        products, sums = made
        assert sums is not None
        loss = products.square().sum() * (uses != "sums") + (sums**3).sum() * (uses != "products")
        if uses == "sums":
            loss = (sums**3).sum()
        found.append([products, sums, *torch.autograd.grad(loss, (first, others), allow_unused=True)])
    if uses == "sums":  # the kernel says nought where nothing is reached
        torch.testing.assert_close(found[0][2], torch.zeros_like(first))
        del found[0][2], found[1][2]
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
