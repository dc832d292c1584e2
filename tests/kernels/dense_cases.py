"""What lies between dense layers, and Adam, on a GPU's kernels against PyTorch; alone: TRITON_INTERPRET=1 python …"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.nn import functional

_LAYERS = [(1, 1), (5, 3), (32, 64), (33, 65), (200, 130)]
_ROWS = [1, 2, 31, 1000, 9000]  # of a loss: one program, several
_SIZES = [(1,), (7, 3), (1024,), (1025,), (40, 50), ()]


def relu_gradients(device: str) -> None:
    """The masked gradient and its sums."""
    from penstock.kernels.gpu_dense import relu_gradients as made

    for shape in _LAYERS:
        gradient, output = torch.randn(shape, device=device), torch.randn(shape, device=device)
        masked, sums = made(gradient, output)
        wanted = gradient * (output > 0)
        assert torch.equal(masked, wanted)
        torch.testing.assert_close(sums, wanted.sum(0), rtol=1e-5, atol=1e-4)
        same, sums = made(gradient, None)
        assert same is gradient
        torch.testing.assert_close(sums, gradient.sum(0), rtol=1e-5, atol=1e-4)


def head(device: str) -> None:
    """A layer with one output."""
    from penstock.kernels.gpu_dense import head as made
    from penstock.kernels.gpu_dense import head_gradients

    for rows, width in [(1, 1), (5, 3), (33, 64), (4100, 13), (70, 300)]:
        x, weight, bias = (torch.randn(size, device=device) for size in ((rows, width), (width,), ()))
        torch.testing.assert_close(made(x, weight, bias), x @ weight + bias, rtol=1e-5, atol=1e-4)
        gradient = torch.randn(rows, device=device)
        to_x, rest = head_gradients(x, weight, gradient)
        assert torch.equal(to_x, gradient[:, None] * weight)
        wanted = torch.cat([gradient @ x, gradient.sum()[None]])
        torch.testing.assert_close(rest, wanted, rtol=1e-5, atol=1e-3)


def log_loss(device: str) -> None:
    """Losses and gradients, those of sure predictions too."""
    from penstock.kernels.gpu_dense import log_loss as made

    for rows in _ROWS:
        logits = torch.randn(rows, device=device) * 8
        logits[: rows // 4] *= 10
        labels = torch.rand(rows, device=device).round() if rows > 2 else torch.rand(rows, device=device)
        loss, gradient = made(logits, labels)
        exact = logits.double().requires_grad_()
        wanted = functional.binary_cross_entropy_with_logits(exact, labels.double())
        wanted.backward()
        assert exact.grad is not None
        torch.testing.assert_close(loss.double(), wanted.detach(), rtol=2e-6, atol=1e-9)
        torch.testing.assert_close(gradient.double(), exact.grad, rtol=2e-5, atol=1e-8 / rows)


def append_rows(device: str) -> None:
    """Rows behind those that are there, and sums."""
    from penstock.kernels.gpu_dense import append_rows as append

    scores, labels = torch.full((3000,), -1.0, device=device), torch.full((3000,), -1.0, device=device)
    filled, sums = torch.tensor(5, device=device), torch.tensor([1.5, 2.0], dtype=torch.float64, device=device)
    given, truth = torch.randn(1500, device=device), torch.randint(0, 2, (1500,), device=device)
    append(given, truth, torch.tensor(0.25, device=device), scores, labels, filled, sums)
    assert torch.equal(scores[5:1505], given) and torch.equal(labels[5:1505], truth.float())
    assert (scores[:5] == -1).all() and (scores[1505:] == -1).all() and int(filled) == 5
    assert sums.tolist() == [1.5 + 1500 * 0.25, 1502.0]


def adam(device: str) -> None:
    """Steps as torch takes them, in groups, with decay, a broken gradient among them."""
    from penstock.train.executors.adam_step import AdamStep

    kinds: list[tuple[Any, dict[str, Any]]] = [
        (torch.optim.Adam, {"lr": 0.1}),
        (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.99), "eps": 1e-3}),
        (torch.optim.AdamW, {"lr": 0.1, "weight_decay": 0.2}),
    ]
    for kind, arguments in kinds:
        torch.manual_seed(0)
        drawn = [torch.randn(size) for size in _SIZES]
        ours, theirs = ([torch.nn.Parameter(d.to(device, copy=True)) for d in drawn] for _ in range(2))
        arguments["capturable"] = device != "cpu"
        makers = [kind([{"params": own[:2]}, {"params": own[2:], "lr": 0.03}], **arguments) for own in (ours, theirs)]
        skipped = torch.zeros((), dtype=torch.int64, device=device)
        stepper = AdamStep.of(makers[0], skipped)
        assert stepper is not None
        for number in range(12):
            gradients = [torch.randn_like(weight) * 10.0 ** (number % 5 - 3) for weight in theirs]
            is_broken = number == 7
            for weight, other, gradient in zip(ours, theirs, gradients, strict=True):
                weight.grad, other.grad = gradient.clone(), gradient
            if is_broken:
                assert ours[4].grad is not None
                ours[4].grad[3, 3] = (torch.nan, torch.inf)[len(arguments) % 2]
            assert stepper.step() == (number > 0), "the first makes the state, which is torch's"
            if number == 0:
                makers[0].step()
            if not is_broken:
                makers[1].step()
        assert int(skipped) == 1
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        states = [[maker.state[w] for w in own] for maker, own in zip(makers, (ours, theirs), strict=True)]
        torch.testing.assert_close(*states, rtol=1e-4, atol=1e-6)
    wrong: Any
    for wrong in ({"amsgrad": True}, {"maximize": True}):
        assert AdamStep.of(torch.optim.Adam(ours, **wrong), skipped) is None
    assert AdamStep.of(torch.optim.SGD(ours), skipped) is None


def layers(device: str) -> None:
    """Layers with these kernels between their products, and their gradients, second ones too."""
    from penstock.nn.gpu_layers import _Head, _Layer

    for rows, inputs, outputs, by_relu in [(40, 67, 5, True), (3, 13, 8, False), (9, 64, 1, True)]:
        drawn = [torch.randn(size, device=device) for size in ((rows, inputs), (outputs, inputs), (outputs,))]
        ours, theirs = ([d.clone().requires_grad_() for d in drawn] for _ in range(2))
        plain = functional.linear(*theirs)
        found, wanted = _Layer.apply(*ours, by_relu), plain.relu() if by_relu else plain  # type: ignore[no-untyped-call]
        _same(found, wanted, ours, theirs)
    drawn = [torch.randn(size, device=device) for size in ((21, 30), (30,), ())]
    ours, theirs = ([d.clone().requires_grad_() for d in drawn] for _ in range(2))
    _same(_Head.apply(*ours), theirs[0] @ theirs[1] + theirs[2], ours, theirs)  # type: ignore[no-untyped-call]


def pairs(device: str) -> None:
    """Products of pairs under autograd, from rows that lie apart."""
    from penstock.nn import pairs as room

    places = torch.tensor([i * 6 + j for i in range(6) for j in range(i)], device=device)
    drawn = [torch.randn(30, 8, device=device), torch.randn(30, 5, 8, device=device)]
    share = torch.rand(8, device=device)
    for beside in (True, False):
        ours, theirs = ([d.clone().requires_grad_() for d in drawn] for _ in range(2))
        made = room._Pairs.apply(*ours, share, places, beside, room._OnGpu)  # type: ignore[no-untyped-call]
        wanted = room._by_torch(*theirs, share, places, beside)
        assert wanted[1] is not None
        _same(torch.cat([made[0], made[1][:, None]], 1), torch.cat([wanted[0], wanted[1][:, None]], 1), ours, theirs)


def _same(found: torch.Tensor, wanted: torch.Tensor, ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    weights = torch.randn(*found.shape[:-1], found.shape[-1] + 3, device=found.device)[..., : found.shape[-1]]
    slopes = [
        torch.autograd.grad((made * weights).sum() + made.square().sum(), leaves, retain_graph=True)
        for made, leaves in ((found, ours), (wanted, theirs))
    ]
    torch.testing.assert_close(*slopes, rtol=1e-3, atol=1e-3)
    seconds = []
    for made, leaves in ((found, ours), (wanted, theirs)):
        (slope,) = torch.autograd.grad(made.square().sum(), leaves[:1], create_graph=True)
        seconds.append(torch.autograd.grad(slope.square().sum(), leaves[:2]))
    torch.testing.assert_close(*seconds, rtol=1e-3, atol=1e-2)


CASES = [layers, pairs, relu_gradients, head, log_loss, append_rows, adam]


def main(device: str) -> None:
    for case in CASES:
        torch.manual_seed(1)
        case(device)
        print(f"{case.__name__} agrees")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cpu")
