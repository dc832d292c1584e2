"""Steps of tables on a device: how many there were, at which rate, and what gradients are divided by."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from penstock.core.params import Real, Satisfies, check_all
from penstock.embedding.fused.step_rates import correct_rates
from penstock.embedding.optimizers import Optimizer
from penstock.embedding.schedules import rate_at
from penstock.kernels.optimizer_formulas import Rule


class TableSteps(nn.Module):
    """What tables know of their steps, on the device; `register_steps` makes it once there is an optimizer."""

    optimizer: Optimizer
    rule: Rule
    steps: Tensor
    rates: Tensor
    unscale: Tensor
    skipped: Tensor

    def register_steps(self, device: torch.device | str | int | None) -> None:
        """Begin before the first step.

        Args:
            device: of the tables.
        """
        self._taken: int | None = 0  # steps, as far as the host knows
        rate = rate_at(self.optimizer.lr, 0)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64, device=device))
        self.register_buffer("rates", torch.tensor([rate, rate, 1.0], dtype=torch.float32, device=device))
        self.register_buffer("unscale", torch.ones(1, dtype=torch.float32, device=device), persistent=False)
        self.register_buffer("skipped", torch.zeros(1, dtype=torch.int64, device=device), persistent=False)

    @property
    def lr(self) -> float:
        """The rate. Setting it takes effect at the next step, in captured CUDA graphs too; reading it waits."""
        return float(self.rates[0])

    @lr.setter
    def lr(self, rate: float) -> None:
        check_all({"lr": rate}, {"lr": Real(min=0)}, type(self).__name__)
        self.rates[0].fill_(rate)

    @property
    def loss_scale(self) -> float:
        """What losses are multiplied by before `backward()`; gradients are divided by it. Reading it waits.

        It can be a tensor on the device; setting it waits for nothing, and works between replays of captured graphs.
        """
        return 1.0 / float(self.unscale)

    @loss_scale.setter
    def loss_scale(self, scale: float | Tensor) -> None:
        if isinstance(scale, Tensor):
            self.unscale.copy_(scale.detach().reshape(1).reciprocal())
        else:
            above_zero = Satisfies(lambda v: Real(min=0).accepts(v) and v > 0, "a number above 0")
            check_all({"loss_scale": scale}, {"loss_scale": above_zero}, type(self).__name__)
            self.unscale.fill_(1.0 / scale)

    @property
    def skipped_rows(self) -> int:
        """How often a row was left alone because its gradient was not finite. Waits for the GPU."""
        return int(self.skipped)

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can hold a step: a rate that is a function of the step is worked out on the host."""
        return not callable(self.optimizer.lr)

    def advance(self) -> None:
        """Count the step and work out its rates, on the device."""
        self.steps.add_(1)
        if callable(self.optimizer.lr):
            taken = int(self.steps) - 1 if self._taken is None else self._taken
            self.rates[0].fill_(rate_at(self.optimizer.lr, taken))
            self._taken = taken + 1
        correct_rates(self.rule, self.rates, self.steps)

    def _load_from_state_dict(self, *arguments: Any, **named: Any) -> None:
        super()._load_from_state_dict(*arguments, **named)
        self._taken = None
