"""The rates of an optimizer's next step on tables, worked out on their device."""

from __future__ import annotations

from torch import Tensor

from penstock.kernels.optimizer_formulas import Rule


def correct_rates(rule: Rule, rates: Tensor, steps: Tensor) -> None:
    """Adam's corrections for the step that `steps` counts: `rates` holds the rate, what m and √v are multiplied by."""
    if rule.kind not in ("lazy_adam", "row_adam"):
        return
    number = steps.double()
    first, second = 1 - rule.beta1**number, 1 - rule.beta2**number
    if rule.kind == "lazy_adam":
        rates[1] = rates[0] * (second.sqrt() / first)
    else:
        rates[1] = rates[0] / first
        rates[2] = second.rsqrt()
