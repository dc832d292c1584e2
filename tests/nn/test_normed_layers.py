"""NormedLayers are nn.Sequential with other arithmetic: outputs, gradients, buffers and names must agree."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn

from penstock.core.errors import ParameterError
from penstock.nn import NormedLayers


def _layers(widths, momentum=0.1, bias=True, eps=1e-5):
    made = []
    for width, following in pairwise(widths[:-1]):
        made += [nn.Linear(width, following, bias=bias), nn.ReLU()]
        made.append(nn.BatchNorm1d(following, momentum=momentum, eps=eps))
    return [*made, nn.Linear(widths[-2], widths[-1], bias=bias)]


def _pair(layers, kind=torch.float64):
    plain = nn.Sequential(*layers).to(kind)
    with torch.no_grad():
        for weight in plain.parameters():
            weight += 0.3 * torch.randn_like(weight)
    return plain, NormedLayers(*copy.deepcopy(list(plain)))


@pytest.mark.parametrize(
    ("widths", "settings"),
    [
        ((7, 12, 5, 1), {}),
        ((3, 8, 2), {"momentum": None}),
        ((4, 6, 6, 6, 3), {"bias": False, "eps": 1e-2}),
        ((5, 1), {}),
    ],
)
def test_training_gives_the_numbers_of_sequential(widths, settings):
    torch.manual_seed(1)
    plain, normed = _pair(_layers(widths, **settings))
    assert list(plain.state_dict()) == list(normed.state_dict())
    for rows in (50, 2, 17):
        x = torch.randn(rows, widths[0], dtype=torch.float64) * 3 + 1
        found = []
        weights = torch.randn(rows, widths[-1], dtype=torch.float64)
        for layers in (plain, normed):
            layers.zero_grad()
            given = x.clone().requires_grad_()
            out = layers(given)
            out.backward(weights)
            found.append([out.detach(), given.grad, *(p.grad for p in layers.parameters()), *layers.buffers()])
        for ours, theirs in zip(found[1], found[0], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)
    plain.eval(), normed.eval()
    torch.testing.assert_close(normed(x), plain(x), rtol=1e-6, atol=1e-9)


def _frozen(layers):
    layers[2].eval()


def _shared_by_workers(layers):
    layers[2] = nn.SyncBatchNorm.convert_sync_batchnorm(layers[2]).eval()  # in training it needs a GPU


def _with_other_weights(layers):
    torch.nn.utils.parametrizations.weight_norm(layers[0])


@pytest.mark.parametrize("change", [_frozen, _shared_by_workers, _with_other_weights])
def test_layers_that_were_changed_do_what_they_do(change):
    torch.manual_seed(3)
    plain, normed = _pair(_layers((4, 6, 6, 1)))
    x = torch.randn(30, 4, dtype=torch.float64)
    plain(x), normed(x)
    for layers in (plain, normed):
        change(layers)
    torch.testing.assert_close(normed(x), plain(x), rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(normed.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


def test_the_compiler_sees_through_it_and_gradients_of_gradients_are_refused():
    torch.manual_seed(4)
    plain, normed = _pair(_layers((4, 6, 1)))
    x = torch.randn(30, 4, dtype=torch.float64, requires_grad=True)
    compiled = torch.compile(normed, backend="aot_eager", fullgraph=True)
    for layers in (compiled, plain):
        layers(x).sum().backward()
    for ours, theirs in zip(normed.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-6, atol=1e-9)
    (first,) = torch.autograd.grad(normed(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_bfloat16_autocast_trains_as_well_as_float32():
    torch.manual_seed(2)
    start = _layers((6, 32, 16, 1))
    x = torch.randn(4000, 6)
    labels = ((x[:, 0] * x[:, 1] + x[:, 2]) > 0).float()
    losses = {}
    for name, layers in {
        "plain": nn.Sequential(*copy.deepcopy(start)),
        "normed": NormedLayers(*copy.deepcopy(start)),
    }.items():
        optimizer = torch.optim.Adam(layers.parameters(), 0.01)
        for _ in range(60):
            with torch.autocast("cpu", torch.bfloat16, enabled=name == "normed"):
                logits = layers(x).squeeze(1).float()
            loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses[name] = float(loss.detach())
    assert losses["plain"] < 0.35
    assert losses["normed"] == pytest.approx(losses["plain"], abs=0.02)


@pytest.mark.parametrize(
    "layers",
    [
        (),
        (nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1)),
        (nn.Linear(2, 3), nn.ReLU(), nn.BatchNorm1d(3)),
        (nn.Linear(2, 3), nn.ReLU(), nn.BatchNorm1d(3, affine=False), nn.Linear(3, 1)),
    ],
)
def test_other_orders_are_refused(layers):
    with pytest.raises(ParameterError, match=r"nn\.Sequential"):
        NormedLayers(*layers)
