"""Learning-rate schedules: the rate as a pure function of the number of steps taken so far.

Any callable `step → rate` will do; those below are plain data as well, so that a checkpoint can name them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.core.errors import ArtefactError, ParameterError
from penstock.core.params import Constraint, Int, Real, check_all

_POSITIVE, _STEPS = Real(min=0), Int(min=1)


class _Checked:
    _constraints: ClassVar[dict[str, Constraint]] = {}

    def __post_init__(self) -> None:
        check_all(vars(self), self._constraints, type(self).__name__)


@dataclass(frozen=True)
class Warmup(_Checked):
    """Linear from 0 to `lr` over `steps`, then constant.

    Args:
        lr: where it ends.
        steps: until then.

    >>> [round(Warmup(0.1, 4)(step), 3) for step in range(6)]
    [0.025, 0.05, 0.075, 0.1, 0.1, 0.1]
    """

    lr: float
    steps: int
    _constraints: ClassVar = {"lr": _POSITIVE, "steps": _STEPS}

    def __call__(self, step: int) -> float:
        return self.lr * min(1.0, (step + 1) / self.steps)


@dataclass(frozen=True)
class ExponentialDecay(_Checked):
    """`lr · rate^(step / steps)`.

    Args:
        lr: where it starts.
        rate: what is left of it after `steps`.
        steps: between one such decay and the next.

    >>> ExponentialDecay(0.1, rate=0.5, steps=10)(20)
    0.025
    """

    lr: float
    rate: float
    steps: int
    _constraints: ClassVar = {"lr": _POSITIVE, "rate": Real(min=0, max=1), "steps": _STEPS}

    def __call__(self, step: int) -> float:
        return self.lr * float(self.rate ** (step / self.steps))


@dataclass(frozen=True)
class CosineDecay(_Checked):
    """From `lr` to `final` along half a cosine over `steps`, then `final`.

    Args:
        lr: where it starts.
        steps: until it ends.
        final: where it ends.

    >>> schedule = CosineDecay(0.2, steps=10)
    >>> schedule(0), round(schedule(5), 6), schedule(100)
    (0.2, 0.1, 0.0)
    """

    lr: float
    steps: int
    final: float = 0.0
    _constraints: ClassVar = {"lr": _POSITIVE, "steps": _STEPS, "final": _POSITIVE}

    def __call__(self, step: int) -> float:
        done = min(1.0, step / self.steps)
        return self.final + (self.lr - self.final) * 0.5 * (1 + math.cos(math.pi * done))


Schedule = Callable[[int], float]
SCHEDULES: dict[str, Callable[..., Schedule]] = {c.__name__: c for c in (Warmup, ExponentialDecay, CosineDecay)}


def rate_at(lr: float | Schedule, step: int) -> float:
    """The learning rate of the step that follows `step` steps."""
    rate = float(lr(step)) if callable(lr) else float(lr)
    if not math.isfinite(rate) or rate < 0:
        raise ParameterError(f"the learning-rate schedule gave {rate!r} at step {step}; it must be finite and ≥ 0")
    return rate


def to_data(lr: float | Schedule) -> Any:
    """A JSON form of a rate: the number, the named schedule, or only the name of a foreign callable."""
    if not callable(lr):
        return float(lr)
    if type(lr).__name__ in SCHEDULES and dataclasses.is_dataclass(lr):
        return {"schedule": type(lr).__name__, **dataclasses.asdict(lr)}
    return {"callable": getattr(lr, "__qualname__", type(lr).__qualname__)}


def from_data(data: Any) -> float | Schedule:
    """The rate that `to_data` described; a foreign callable cannot be rebuilt from its name."""
    if not isinstance(data, Mapping):
        return float(data)
    if data.get("schedule") in SCHEDULES:
        return SCHEDULES[data["schedule"]](**{k: v for k, v in data.items() if k != "schedule"})
    raise ArtefactError(
        f"the checkpoint's learning rate is {dict(data)!r}, which cannot be rebuilt; pass optimizer=… with its schedule"
    )
