"""Dense layers through the quicker product, held against PyTorch's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from penstock.nn import products
from penstock.nn.dense import Linear

needs_onednn = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this PyTorch comes without oneDNN's product"
)


@pytest.fixture
def quicker(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A processor on which oneDNN is quicker, and a list with an entry for each product through it."""
    taken: list[int] = []
    own = products._times

    def counted(*arguments: torch.Tensor | None) -> torch.Tensor:
        taken.append(1)
        return own(*arguments)

    monkeypatch.setattr(products, "is_quicker", lambda: True)
    monkeypatch.setattr(products, "_times", counted)
    return taken


def _layers(bias: bool) -> tuple[Linear, nn.Linear]:
    torch.manual_seed(0)
    ours, theirs = Linear(70, 90, bias=bias), nn.Linear(70, 90, bias=bias)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_and_gradients_are_the_same(quicker: list[int], bias: bool) -> None:
    ours, theirs = _layers(bias)
    torch.manual_seed(1)
    x, weights = torch.randn(400, 70), torch.randn(400, 90)
    found = []
    for layer in (ours, theirs):
        given = x.clone().requires_grad_()
        out = layer(given)
        (out * weights).sum().backward()
        found.append([out, given.grad, *(p.grad for p in layer.parameters())])
    assert len(quicker) == 3
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@needs_onednn
def test_a_relu_behind_is_part_of_a_product_without_gradients(quicker: list[int]) -> None:
    layer, plain = _layers(bias=True)
    x = torch.randn(400, 70)
    with torch.no_grad():
        found = layer.followed(x, by_relu=True)
        assert torch.equal(found, layer(x).relu())
        torch.testing.assert_close(found, plain(x).relu(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(layer.followed(x, by_relu=True), found)
    assert len(quicker) == 3


@needs_onednn
def test_frozen_weights_need_no_product(quicker: list[int]) -> None:
    layer, _ = _layers(bias=True)
    layer.requires_grad_(False)
    given = torch.randn(400, 70, requires_grad=True)
    layer(given).sum().backward()
    assert len(quicker) == 2 and layer.weight.grad is None and given.grad is not None


@needs_onednn
def test_gradients_of_gradients(quicker: list[int]) -> None:
    layer, plain = _layers(bias=True)
    x = torch.randn(400, 70)
    found = []
    for one in (layer, plain):
        given = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(one(given).square().sum(), given, create_graph=True)
        slope.square().sum().backward()
        found.append(one.weight.grad)
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-1)


def test_small_and_other_products_stay_with_torch(quicker: list[int]) -> None:
    layer, plain = _layers(bias=True)
    for x in (torch.randn(100, 70), torch.randn(2, 300, 70)):
        assert torch.equal(layer(x), plain(x))
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(400, 70)).dtype == torch.bfloat16
    traced = torch.jit.trace(layer, torch.randn(400, 70), check_trace=False)
    assert "linear" in str(traced.graph)
    assert not quicker


def test_processors_whose_width_is_used_keep_their_product(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    told = tmp_path / "cpuinfo"
    monkeypatch.setattr(products, "_PROCESSORS", told)
    assert products._is_by_intel()  # nobody tells
    told.write_text("vendor_id : AuthenticAMD\n")
    assert not products._is_by_intel()
    told.write_text("vendor_id : GenuineIntel\n")
    assert products._is_by_intel()
