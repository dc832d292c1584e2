"""The formulas of embedding optimizers: what each is called, the state it keeps, and which kernels know it.

The one list that optimizers, oracles and kernels on every device take names, numbers and shapes from. The arithmetic
is in `cpu_embedding_optim` (stores), `cpu_fused_embedding` and `gpu_embedding_optim` (tables on a device), each held
against `reference_embedding` and `reference_fused`.

>>> FORMULAS["adagrad_row"].shapes(dim=16), FORMULAS["ftrl"].shapes(dim=16)
([()], [(16,), (16,)])
>>> sorted(FUSED)
['adagrad', 'adagrad_row', 'lazy_adam', 'row_adam', 'sgd']
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

NO_OPTIMIZER = -1  # the number of no formula


@dataclass(frozen=True)
class Formula:
    """One way to change a row by its gradient.

    Args:
        number: what kernels know it by. Compiled kernels are cached with it: never give a number to another formula.
        name: what checkpoints call it.
        state: what is kept for a row, in order: a "vector" as long as the row, or a "number".
        fused: whether the kernels of tables on a device have it.
        replays: whether rows absent from a batch move too, in steps that are replayed when they are next read.
    """

    number: int
    name: str
    state: tuple[Literal["vector", "number"], ...] = ()
    fused: bool = False
    replays: bool = False

    @property
    def num_vectors(self) -> int:
        """State vectors a row needs."""
        return self.state.count("vector")

    @property
    def has_number(self) -> bool:
        """Whether a row needs one number beside its vectors."""
        return "number" in self.state

    def shapes(self, dim: int) -> list[tuple[int, ...]]:
        """The shape of each state of a row that is `dim` long."""
        return [(dim,) if kind == "vector" else () for kind in self.state]


FORMULAS: dict[str, Formula] = {
    "sgd": Formula(0, "sgd", fused=True),
    "momentum": Formula(0, "sgd", ("vector",)),  # the kernel sees by the momentum that there is state
    "adagrad": Formula(1, "adagrad", ("vector",), fused=True),
    "adagrad_row": Formula(2, "adagrad_row", ("number",), fused=True),
    "persia": Formula(3, "persia", ("vector",)),
    "persia_row": Formula(4, "persia_row", ("number",)),
    "adam": Formula(5, "adam", ("vector", "vector", "number"), replays=True),  # the step that the row was brought to
    "lazy_adam": Formula(6, "lazy_adam", ("vector", "vector"), fused=True),
    "row_adam": Formula(7, "row_adam", ("vector", "number"), fused=True),
    "ftrl": Formula(8, "ftrl", ("vector", "vector")),
}
FUSED: dict[str, int] = {name: formula.number for name, formula in FORMULAS.items() if formula.fused}


class Rule(NamedTuple):
    """A formula of tables on a device and its constants; rates change from step to step and travel apart.

    >>> Rule("adagrad_row").states(dim=16)
    ((), None)
    """

    kind: str
    eps: float = 1e-10
    beta1: float = 0.9
    beta2: float = 0.999
    decay: float = 0.0
    bound: float = 0.0  # 0: weights are not clipped

    @property
    def taken(self) -> tuple[float, float]:
        """1-β₁ and 1-β₂, what is taken of the new: in float32 they cannot be had from β without losing digits."""
        return 1 - self.beta1, 1 - self.beta2

    def states(self, dim: int) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
        """The shapes, per row, of the two state arrays; None for one that is not needed."""
        first, second, *_ = [*FORMULAS[self.kind].shapes(dim), None, None]
        return first, second
