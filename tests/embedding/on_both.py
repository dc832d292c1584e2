"""Tables trained by the kernels of a GPU, on Triton's interpreter, and by the CPU's: for files run as programs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch


def train_on_both(trained: Callable[[], Any]) -> None:
    """What `trained()` gives has the same state either way."""
    states = []
    for interpreted in ("1", "0"):
        os.environ["TRITON_INTERPRET"] = interpreted
        states.append(trained().state_dict())
    mine, theirs = states
    for key in mine:
        if mine[key].is_floating_point():
            torch.testing.assert_close(mine[key], theirs[key], rtol=1e-5, atol=1e-6)
        else:
            assert torch.equal(mine[key], theirs[key]), key
    print("trained alike")
