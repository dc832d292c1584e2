"""Optimizers without torch's compiler: the same steps, and nothing of it is imported."""

import pytest
import torch

from penstock.jobs.dense_optimizers import DENSE_OPTIMIZERS
from penstock.nn.torch_optimizers import without_compiler


def _trained(optimizer_class, continued=None):
    """Weights after some steps with a schedule; from the state of another optimizer where one is given."""
    weights = [torch.nn.Parameter(torch.linspace(-1, 1, 5)), torch.nn.Parameter(torch.ones(2, 3))]
    optimizer = optimizer_class(weights, lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    if continued is not None:
        optimizer.load_state_dict(continued.state_dict())
    for step in range(4):
        optimizer.zero_grad()
        sum((weight * weight).sum() * (step + 1) for weight in weights).backward()
        optimizer.step()
        schedule.step()
    return optimizer, [weight.detach().clone() for weight in weights]


@pytest.mark.parametrize("name", sorted(DENSE_OPTIMIZERS))
def test_steps_and_state_are_those_of_torch(name):
    torchs = getattr(torch.optim, name)
    theirs, expected = _trained(torchs)
    ours, found = _trained(without_compiler(torchs))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    _, expected = _trained(torchs, theirs)
    _, found = _trained(without_compiler(torchs), ours)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_hooks_of_a_step_are_called():
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = without_compiler(torch.optim.SGD)([weight], lr=1.0)
    called = []
    optimizer.register_step_pre_hook(lambda *_: called.append("before"))
    optimizer.register_step_post_hook(lambda *_: called.append("after"))
    weight.grad = torch.ones(1)
    optimizer.step()
    assert called == ["before", "after"]
