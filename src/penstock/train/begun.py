"""Calls of embeddings that are begun now and finished later, where their rows are elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from penstock.embedding.protocol import BeginsCalls, Begun, Embeddings

Result = TypeVar("Result")
Use: TypeAlias = Callable[[Callable[[], Any]], Result]  # is given what waits for the answer
Clock: TypeAlias = Callable[[], AbstractContextManager[None]]


class Later(Generic[Result]):
    """What is made of a call's answer when that has come.

    Args:
        begun: the call.
        use: makes something of its answer.
    """

    def __init__(self, begun: Begun, use: Use[Result]) -> None:
        self._begun, self._use = begun, use

    def is_ready(self) -> bool:
        """Whether the answer has come."""
        return self._begun.is_ready()

    def finish(self) -> Result:
        """Wait for the answer."""
        return self._use(self._begun.finish)


def look_up(
    home: Embeddings, ids: Mapping[str, Any], train: bool, use: Use[Result], clock: Clock
) -> Result | Later[Result]:
    """Look ids up, and use what is found: now, or later where the rows are elsewhere; `clock` times what is begun."""
    if not isinstance(home, BeginsCalls):
        return use(partial(home.lookup, ids, train=train))
    with clock():
        begun = home.begin_lookup(ids, train=train)
    return Later(begun, use)


def update(
    home: Embeddings, lookup: Any, gradients: Any, scale: float, use: Use[None], clock: Clock
) -> Later[None] | None:
    """Update rows: now, or later where the rows are elsewhere; `use` is given what waits for that."""
    if not isinstance(home, BeginsCalls):
        use(partial(home.update, lookup, gradients, scale=scale))
        return None
    with clock():
        begun = home.begin_update(lookup, gradients, scale=scale)
    return Later(begun, use)
