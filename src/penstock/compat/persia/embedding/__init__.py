"""How embeddings begin and what bounds them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock.core.errors import ParameterError
from penstock.core.params import Real, check_all
from penstock.embedding import optimizers as native
from penstock.embedding.slots import Init


class EmbeddingConfig:
    """Where new embeddings start (uniform between two numbers), which are admitted, and how large they may become.

    New embeddings begin with the numbers that PERSIA drew for the same ids.
    `admit_probability` is decided by an id, once and for all, and not anew at each of its look-ups. A `weight_bound` of
    0 or less means none.

    >>> EmbeddingConfig(weight_bound=5).weight_bound
    5
    >>> EmbeddingConfig(emb_initialization=(0.1, -0.1))
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: Init.b, the upper end, must be ≥ a = 0.1, got -0.1
    """

    def __init__(
        self,
        emb_initialization: tuple[float, float] = (-0.01, 0.01),
        admit_probability: float = 1.0,
        weight_bound: float = 10,
    ) -> None:
        if len(emb_initialization) != 2:
            raise ParameterError(f"emb_initialization must be two numbers (lower, upper), got {emb_initialization!r}")
        self.emb_initialization = emb_initialization
        self.admit_probability, self.weight_bound = admit_probability, weight_bound
        bounds = {"admit_probability": Real(0, 1), "weight_bound": Real()}
        check_all(vars(self), bounds, "EmbeddingConfig")
        self.to_init()

    def to_init(self) -> Init:
        """The native form of `emb_initialization`: the numbers that PERSIA drew, from the sign alone."""
        return Init("uniform", *self.emb_initialization, generator="xoshiro256++")

    @property
    def bound(self) -> float | None:
        """The native form of `weight_bound`."""
        return self.weight_bound if self.weight_bound > 0 else None


def get_default_embedding_config() -> EmbeddingConfig:
    """Uniform in ±0.01, every id admitted, weights within ±10.

    >>> get_default_embedding_config().emb_initialization
    (-0.01, 0.01)
    """
    return EmbeddingConfig()


# Optimizers of embeddings under PERSIA's names; `to_native` makes Penstock's own.


class Optimizer(ABC):
    """What the contexts take; one of the classes below."""

    @abstractmethod
    def to_native(self, weight_bound: float | None = None) -> native.Optimizer:
        """Penstock's optimizer, which clips weights to ±`weight_bound` after each update."""

    def apply(self) -> None:  # noqa: B027 - there is nothing to override
        """Nothing to do: a context takes its optimizer over when it is entered. (PERSIA told its servers here.)"""


class SGD(Optimizer):
    """`w -= lr (g + weight_decay w)`, and momentum, which PERSIA took and ignored.

    >>> SGD(lr=0.1, momentum=0.9).to_native(10).momentum
    0.9
    """

    def __init__(self, lr: float, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self.to_native()

    def to_native(self, weight_bound: float | None = None) -> native.Optimizer:
        return native.SGD(self.lr, self.weight_decay, weight_bound, momentum=self.momentum)


class Adam(Optimizer):
    """Adam on the rows of a batch, its steps counted for each group of features; the first step is lr, as it should be.

    >>> Adam(lr=0.01, betas=(0.9, 0.99)).to_native().beta2
    0.99
    """

    def __init__(
        self,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0,
        eps: float = 1e-8,
    ) -> None:
        self.lr, self.betas, self.weight_decay, self.eps = lr, betas, weight_decay, eps
        self.to_native()

    def to_native(self, weight_bound: float | None = None) -> native.Optimizer:
        first, second = self.betas
        return native.LazyAdam(self.lr, self.weight_decay, weight_bound, beta1=first, beta2=second, eps=self.eps)


class Adagrad(Optimizer):
    """`w -= lr g / √(s + eps)` with s before this gradient, then `s = s · g_square_momentum + g²`.

    `vectorwise_shared` keeps one s for each row, fed with the mean of g².

    >>> Adagrad(vectorwise_shared=True).to_native().row_wise
    True
    """

    def __init__(
        self,
        lr: float = 1e-2,
        initial_accumulator_value: float = 1e-2,
        weight_decay: float = 0,
        g_square_momentum: float = 1,
        eps: float = 1e-10,
        vectorwise_shared: bool = False,
    ) -> None:
        self.lr, self.initial_accumulator_value, self.weight_decay = lr, initial_accumulator_value, weight_decay
        self.g_square_momentum, self.eps, self.vectorwise_shared = g_square_momentum, eps, vectorwise_shared
        self.to_native()

    def to_native(self, weight_bound: float | None = None) -> native.Optimizer:
        return native.DecayedAdagrad(
            self.lr,
            self.weight_decay,
            weight_bound,
            initial_accumulator=self.initial_accumulator_value,
            eps=self.eps,
            row_wise=self.vectorwise_shared,
            decay=self.g_square_momentum,
        )
