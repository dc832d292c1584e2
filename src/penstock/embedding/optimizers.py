"""Sparse optimizers: settings only; the arithmetic is in the kernels (`kernels.optimizer_formulas` lists it).

A row is updated in the steps whose batch contains it, with torch's arithmetic (`Adagrad`, `SGD`, `LazyAdam` are
`torch.optim.Adagrad`, `SGD`, `SparseAdam` on those rows). `Adam` alone also moves absent rows, as a dense Adam does:
the steps a row has missed are replayed when it is next read. Weight decay (L2, added to the gradient) acts on the rows
of the batch. Steps are counted per table: a table whose slots got no gradient has taken no step.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.core.errors import ArtefactError, ParameterError, suggest
from penstock.core.params import BOOL, CALLABLE, NONE, Constraint, Real, Satisfies, check_all
from penstock.embedding.schedules import from_data, rate_at, to_data
from penstock.kernels.optimizer_formulas import FORMULAS, Formula

Rate = float | Callable[[int], float]
_RATE = Real(min=0) | CALLABLE
_NOT_NEGATIVE, _UNIT = Real(min=0), Satisfies(lambda v: Real(min=0).accepts(v) and v < 1, "a number in [0, 1)")
_BOUND = NONE | Satisfies(lambda v: Real(min=0).accepts(v) and v > 0, "a number > 0")


@dataclass(frozen=True)
class Optimizer:
    """What every optimizer says to the kernels; use one of the classes below.

    `lr` is a number or a callable `step → rate` (see `penstock.embedding.schedules`). With `weight_bound` weights are
    clipped to ±bound after each update.

    Args:
        lr: the learning rate, or a schedule of it.
        weight_decay: times the weight, added to its gradient.
        weight_bound: what weights are clipped to.
    """

    lr: Rate = 0.01
    weight_decay: float = 0.0
    weight_bound: float | None = None

    kernel: ClassVar[str] = ""  # a key of `kernels.optimizer_formulas.FORMULAS`
    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # what tables on a device call it, and the arguments
    constraints: ClassVar[Mapping[str, Constraint]] = {}

    def __post_init__(self) -> None:
        common = {"lr": _RATE, "weight_decay": _NOT_NEGATIVE, "weight_bound": _BOUND}
        check_all(vars(self), {**common, **self.constraints}, type(self).__name__)

    @property
    def formula(self) -> Formula:
        """The formula to run, with the state it keeps and the kernels that know it."""
        return FORMULAS[self.kernel]

    @property
    def initial_state(self) -> tuple[float, float, float]:
        """Where the two state vectors and the scalar start."""
        return 0.0, 0.0, 0.0

    @property
    def closed_form(self) -> tuple[float, float]:
        """`(divisor, λ₁)` of a formula whose weights follow from its state: a new row's second vector is worked out
        with them. A divisor of 0 stands for none."""
        return 0.0, 0.0

    def own_hyper(self, rate: float, step: int) -> tuple[float, ...]:
        """The formula's own numbers (P0, P1, …) for the step numbered `step`, counted from 1.

        Args:
            rate: of this step.
            step: its number.

        Returns:
            At most six numbers.
        """
        return ()

    def hyper(self, step: int, scale: float = 1.0) -> list[float]:
        """All numbers a kernel needs for the step numbered `step` (from 1); gradients are divided by `scale`.

        Args:
            step: its number.
            scale: what the loss was multiplied by.

        Returns:
            Ten numbers, in the order that the kernels read.
        """
        rate = rate_at(self.lr, step - 1)
        own = self.own_hyper(rate, step)
        return [rate, self.weight_decay, self.weight_bound or 0.0, 1.0 / scale, *own, *[0.0] * (6 - len(own))]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the checkpoint.

        Returns:
            The name of the class and its fields.
        """
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {"name": type(self).__name__, **fields, "lr": to_data(self.lr)}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Optimizer:
        """The optimizer with the fields of `to_dict`; a class whose fields have changed reads the old ones here.

        Args:
            fields: by name, the rate as a number or schedule.

        Returns:
            The optimizer.
        """
        return cls(**fields)

    def layout(self) -> dict[str, Any]:
        """What must agree for saved state to be usable: the formula and its shape, not the learning rate.

        Returns:
            Plain data to compare.
        """
        formula = self.formula
        return {"kernel": formula.name, "states": formula.num_vectors, "scalar": formula.has_number}


@dataclass(frozen=True)
class SGD(Optimizer):
    """`w -= lr (g + weight_decay w)`, with optional (Nesterov) momentum.

    Args:
        momentum: what is kept of the last step; none by default.
        nesterov: look ahead by it.

    >>> SGD(lr=0.1, momentum=0.9).formula.state
    ('vector',)
    """

    momentum: float = 0.0
    nesterov: bool = False
    kernel = "sgd"
    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"sgd": {}}
    constraints: ClassVar[Mapping[str, Constraint]] = {"momentum": _UNIT, "nesterov": BOOL}

    @property
    def formula(self) -> Formula:
        return FORMULAS["momentum" if self.momentum else "sgd"]

    def own_hyper(self, rate: float, step: int) -> tuple[float, ...]:
        return self.momentum, float(self.nesterov)


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """`s += g²; w -= lr g / (√s + eps)`; `row_wise` keeps one s a row, fed with the mean of g².

    Args:
        initial_accumulator: where s starts.
        eps: keeps the divisor from 0.
        row_wise: one s a row instead of one a weight.

    >>> Adagrad(row_wise=True).formula.state
    ('number',)
    >>> Adagrad(lr=-1)
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: Adagrad.lr must be a finite number ≥ 0, or callable, got -1
    """

    initial_accumulator: float = 0.0
    eps: float = 1e-10
    row_wise: bool = False
    kernel = "adagrad"
    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"adagrad": {}, "rowwise_adagrad": {"row_wise": True}}
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "initial_accumulator": _NOT_NEGATIVE,
        "eps": _NOT_NEGATIVE,
        "row_wise": BOOL,
    }

    @property
    def formula(self) -> Formula:
        return FORMULAS[f"{self.kernel}_row" if self.row_wise else self.kernel]

    @property
    def initial_state(self) -> tuple[float, float, float]:
        return self.initial_accumulator, 0.0, self.initial_accumulator

    def own_hyper(self, rate: float, step: int) -> tuple[float, ...]:
        return self.eps, 1.0

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Optimizer:
        """From saved fields; `form`, which checkpoints of 0.1 have, named what is `DecayedAdagrad` now."""
        kept = dict(fields)
        form, decay = kept.pop("form", "usual"), kept.pop("g_square_momentum", 1.0)
        return cls(**kept) if form == "usual" else DecayedAdagrad(**kept, decay=decay)


@dataclass(frozen=True)
class DecayedAdagrad(Adagrad):
    """`w -= lr g / √(s + eps)` with s before this gradient, then `s = decay s + g²`: Adagrad as PERSIA had it.

    Args:
        decay: what is kept of s in each step.

    >>> DecayedAdagrad(initial_accumulator=0.01, decay=0.9).formula.name
    'persia'
    """

    decay: float = 1.0
    kernel = "persia"
    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    constraints: ClassVar[Mapping[str, Constraint]] = {**Adagrad.constraints, "decay": Real(min=0, max=1)}

    def own_hyper(self, rate: float, step: int) -> tuple[float, ...]:
        return self.eps, self.decay

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Optimizer:
        return cls(**fields)


@dataclass(frozen=True)
class _AdamFamily(Optimizer):
    """What the kinds of Adam share.

    Args:
        lr: the learning rate, or a schedule of it.
        beta1: what is kept of the mean of gradients.
        beta2: what is kept of the mean of their squares.
        eps: keeps the divisor from 0.
    """

    lr: Rate = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    constraints: ClassVar[Mapping[str, Constraint]] = {"beta1": _UNIT, "beta2": _UNIT, "eps": _NOT_NEGATIVE}

    def own_hyper(self, rate: float, step: int) -> tuple[float, ...]:
        first, second = 1 - self.beta1**step, 1 - self.beta2**step
        # The number of replayed steps after which β₁ to that power is below float32's resolution.
        steps = math.ceil(math.log(1e-10) / math.log(self.beta1)) if self.beta1 > 0 else 1
        return 1 - self.beta1, 1 - self.beta2, self.eps, rate / first, 1 / math.sqrt(second), float(steps)


@dataclass(frozen=True)
class Adam(_AdamFamily):
    """Dense Adam: equals `torch.optim.Adam` on the whole table, rows absent from a batch included.

    >>> Adam(lr=0.01).formula.replays
    True
    """

    kernel = "adam"


@dataclass(frozen=True)
class LazyAdam(_AdamFamily):
    """Adam on the rows of the batch only, the step counted for the whole table: `torch.optim.SparseAdam`.

    >>> LazyAdam().formula.state
    ('vector', 'vector')
    """

    kernel = "lazy_adam"
    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"adam": {}}

    def own_hyper(self, rate: float, step: int) -> tuple[float, ...]:
        # SparseAdam folds both corrections into the step size and leaves eps alone.
        first, second = 1 - self.beta1**step, 1 - self.beta2**step
        return 1 - self.beta1, 1 - self.beta2, self.eps, rate * math.sqrt(second) / first, 1.0


@dataclass(frozen=True)
class RowWiseAdam(_AdamFamily):
    """Adam on the rows of the batch with one second moment a row, fed with the mean of g².

    >>> RowWiseAdam().formula.state
    ('vector', 'number')
    """

    kernel = "row_adam"
    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"rowwise_adam": {}}


@dataclass(frozen=True)
class FTRL(Optimizer):
    """FTRL-Proximal (McMahan et al. 2013): `lr` is α, with β, λ₁ and λ₂.

    A new row starts with the z for which the closed form gives its initial weights, so they are not forgotten.

    Args:
        beta: β, which keeps the first steps small.
        l1: λ₁, which makes small weights 0.
        l2: λ₂.
        initial_accumulator: where the sum of squares starts.

    >>> FTRL(lr=0.05, l1=1.0).closed_form
    (20.0, 1.0)
    """

    beta: float = 1.0
    l1: float = 0.0
    l2: float = 0.0
    initial_accumulator: float = 0.0
    kernel = "ftrl"
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "lr": Satisfies(lambda v: callable(v) or (Real(min=0).accepts(v) and v > 0), "a number > 0, or callable"),
        "beta": _NOT_NEGATIVE,
        "l1": _NOT_NEGATIVE,
        "l2": _NOT_NEGATIVE,
        "initial_accumulator": _NOT_NEGATIVE,
    }

    @property
    def initial_state(self) -> tuple[float, float, float]:
        return self.initial_accumulator, 0.0, 0.0

    def own_hyper(self, rate: float, step: int) -> tuple[float, ...]:
        return self.beta, self.l1, self.l2

    @property
    def closed_form(self) -> tuple[float, float]:
        divisor = (self.beta + math.sqrt(self.initial_accumulator)) / rate_at(self.lr, 0) + self.l2
        return divisor, self.l1


OPTIMIZERS: dict[str, type[Optimizer]] = {
    c.__name__: c for c in (SGD, Adagrad, DecayedAdagrad, Adam, LazyAdam, RowWiseAdam, FTRL)
}


def register_optimizer(optimizer: type[Optimizer]) -> type[Optimizer]:
    """Make an optimizer of one's own known by its name: to checkpoints that were saved with it, and to settings.

    Args:
        optimizer: a frozen dataclass whose `formula` is one of those that the kernels have.

    Returns:
        The class, so that this can decorate it.
    """
    OPTIMIZERS[optimizer.__name__] = optimizer
    return optimizer


def _short_names() -> dict[str, tuple[type[Optimizer], Mapping[str, Any]]]:
    return {name: (c, own) for c in OPTIMIZERS.values() for name, own in c.short_names.items()}


def fused_optimizers() -> list[str]:
    """The optimizers that tables on a device can train with.

    >>> fused_optimizers()
    ['SGD', 'Adagrad', 'LazyAdam', 'RowWiseAdam']
    """
    return [name for name, optimizer in OPTIMIZERS.items() if optimizer.short_names]


def optimizer_named(name: str, **arguments: Any) -> Optimizer:
    """The optimizer of a short name.

    >>> optimizer_named("rowwise_adagrad", lr=0.1).formula.name
    'adagrad_row'

    Raises:
        ParameterError: there is none of that name; the message lists those there are.
    """
    known = _short_names()
    if name not in known:
        raise ParameterError(f"unknown optimizer {name!r}{suggest(name, known, 'optimizers')}")
    optimizer, own = known[name]
    return optimizer(**{**own, **arguments})


def optimizer_from_dict(data: Mapping[str, Any]) -> Optimizer:
    """The optimizer that `to_dict` described."""
    name = data.get("name")
    if name not in OPTIMIZERS:
        raise ArtefactError(f"unknown optimizer {name!r}{suggest(str(name), OPTIMIZERS, 'optimizers')}")
    fields = {k: v for k, v in data.items() if k != "name"}
    try:
        return OPTIMIZERS[name].from_fields({**fields, "lr": from_data(fields["lr"])})
    except (TypeError, KeyError) as error:
        raise ArtefactError(f"the checkpoint's optimizer {name} cannot be read: {error}") from error
