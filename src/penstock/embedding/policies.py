"""Which ids get a row (admission), and which rows go when memory is short (eviction)."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.errors import ParameterError, PenstockError
from penstock.core.params import NONE, Int, OneOf, Real, check_all


class MemoryBudgetError(PenstockError, MemoryError):
    """The rows of a single batch do not fit in the store's budget."""


@dataclass(frozen=True)
class Admission:
    """Who gets a row: ids drawn with `probability` (by their sign: always or never), seen in `min_count` batches.

    Ids that wait for their count take 16 to 40 bytes each; when more than `remember` wait, those seen least are
    forgotten until half of them remain.

    Args:
        probability: the share of ids that may ever have a row.
        min_count: batches in which an id must have been seen.
        remember: ids that may wait for their count.

    >>> Admission(probability=0.5, min_count=2)
    Admission(probability=0.5, min_count=2, remember=10000000)
    """

    probability: float = 1.0
    min_count: int = 1
    remember: int = 10_000_000

    def __post_init__(self) -> None:
        constraints = {"probability": Real(0, 1), "min_count": Int(1, 2**31), "remember": Int(min=1)}
        check_all(vars(self), constraints, "Admission")

    @property
    def below(self) -> int:
        """The probability as a bound on a 64-bit hash; all ones mean every sign."""
        return 2**64 - 1 if self.probability >= 1 else int(self.probability * 2**64)


@dataclass(frozen=True)
class Eviction:
    """Which rows go first: the least recently used (`lru`), the least frequent (`lfu`), or those untouched for
    `steps` training look-ups (`ttl`, exact to the step).

    A budget in rows or bytes holds after every look-up; while a batch comes in, its own new rows may exceed it. Rows of
    the batch itself are never evicted. Evicting makes a little room (1/16 of the rows), so it happens seldom.

    Args:
        policy: `"lru"`, `"lfu"` or `"ttl"`.
        max_rows: the budget in rows.
        max_bytes: the budget in bytes.
        steps: how long a row may stay untouched, for `"ttl"`.

    Raises:
        ParameterError: the policy lacks its budget, or has one that is not its own.

    >>> Eviction("lru", max_rows=1_000_000).max_rows
    1000000
    >>> Eviction("ttl")
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: Eviction: policy='ttl' needs steps, the number of steps a row may stay...
    """

    policy: str = "lru"
    max_rows: int | None = None
    max_bytes: int | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        positive = NONE | Int(min=1)
        constraints = {"policy": OneOf(("lru", "lfu", "ttl")), "max_rows": positive, "max_bytes": positive}
        check_all(vars(self), {**constraints, "steps": positive}, "Eviction")
        if self.policy == "ttl" and self.steps is None:
            raise ParameterError("Eviction: policy='ttl' needs steps, the number of steps a row may stay untouched")
        if self.policy != "ttl" and self.steps is not None:
            raise ParameterError(f"Eviction: steps is for policy='ttl', not {self.policy!r}")
        if self.policy != "ttl" and self.max_rows is None and self.max_bytes is None:
            raise ParameterError(f"Eviction: policy={self.policy!r} needs max_rows or max_bytes")
