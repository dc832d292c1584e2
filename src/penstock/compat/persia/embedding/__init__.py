"""How embeddings begin and what bounds them."""

from __future__ import annotations

from penstock.core.errors import ParameterError
from penstock.core.params import Real, check_all
from penstock.embedding.slots import Init

__all__ = ["EmbeddingConfig", "get_default_embedding_config"]


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
