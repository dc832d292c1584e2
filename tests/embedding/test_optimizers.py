"""Optimizer settings: checks, schedules, plain data. Their arithmetic is checked in test_store.py."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.core.errors import ArtefactError, ParameterError
from penstock.embedding.optimizers import FTRL, SGD, Adagrad, Adam, DecayedAdagrad, LazyAdam, optimizer_from_dict
from penstock.embedding.schedules import CosineDecay, ExponentialDecay, Warmup
from penstock.embedding.slots import SlotConfig
from penstock.embedding.store import Store


@pytest.mark.parametrize(
    "schedule", [Warmup(0.5, 3), ExponentialDecay(1.0, 0.5, 1), CosineDecay(1.0, 4), lambda s: s + 1]
)
def test_schedules_drive_the_rate(schedule):
    with Store([SlotConfig("c", 4)], SGD(lr=schedule)) as store:
        for step in range(4):
            found = store.lookup({"c": [1]})
            before = found["c"].copy()
            store.update(found, {"c": np.ones((1, 4))})
            after = store.lookup({"c": [1]}, train=False)["c"]
            np.testing.assert_allclose(before - after, schedule(step), rtol=1e-4, atol=1e-6)


def test_a_schedule_out_of_its_domain_is_refused():
    with Store([SlotConfig("c", 4)], SGD(lr=lambda step: -1.0)) as store:
        found = store.lookup({"c": [1]})
        with pytest.raises(ParameterError, match=r"gave -1\.0 at step 0"):
            store.update(found, {"c": np.ones((1, 4))})


@pytest.mark.parametrize(
    "optimizer", [SGD(0.1, momentum=0.5), Adagrad(Warmup(0.1, 5)), Adam(), LazyAdam(beta1=0.5), FTRL(l1=0.1)]
)
def test_optimizers_survive_as_plain_data(optimizer):
    assert optimizer_from_dict(optimizer.to_dict()) == optimizer


def test_what_cannot_be_rebuilt_says_so():
    with pytest.raises(ArtefactError, match="pass optimizer="):
        optimizer_from_dict(SGD(lr=lambda step: 0.1).to_dict())
    with pytest.raises(ArtefactError, match="unknown optimizer 'Lion'"):
        optimizer_from_dict({"name": "Lion"})


def test_adagrad_of_checkpoints_that_name_a_form():
    old = {"name": "Adagrad", "lr": 0.1, "eps": 1e-3, "form": "persia", "g_square_momentum": 0.9}
    assert optimizer_from_dict(old) == DecayedAdagrad(lr=0.1, eps=1e-3, decay=0.9)
    usual = optimizer_from_dict({**old, "form": "usual", "g_square_momentum": 1.0})
    assert (type(usual), usual) == (Adagrad, Adagrad(lr=0.1, eps=1e-3))
    again = optimizer_from_dict(DecayedAdagrad(decay=0.5).to_dict())
    assert again == DecayedAdagrad(decay=0.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(momentum=1.0), r"SGD.momentum must be a number in \[0, 1\)"),
        (lambda: DecayedAdagrad(decay=2), "DecayedAdagrad.decay must be"),
        (lambda: Adam(beta2=1), "Adam.beta2"),
        (lambda: FTRL(lr=0), "FTRL.lr"),
        (lambda: SGD(weight_bound=0), "SGD.weight_bound"),
        (lambda: SGD(weight_decay=-1), "SGD.weight_decay"),
    ],
)
def test_bad_settings_are_refused_by_name(make, message):
    with pytest.raises(ParameterError, match=message):
        make()
