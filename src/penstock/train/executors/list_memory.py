"""Memory of fixed size for list columns: a captured step reads every batch from the same place, in the same shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from penstock.embedding.fused.ids import BoundedLists

_SLACK = 8  # of the most values seen so far, an eighth more has room


class ListMemory:
    """Where the lists of batches are put.

    Padded lists `(B, n)` are copied as they are. Ragged ones, `(values, offsets)`, have room for a bound on their
    values: exactly the number of values where all batches watched had as many (lists of fixed length), an eighth more
    than the most otherwise. Where a batch has more, the bound doubles, and whoever relies on the memory is told by
    `growths`.

    >>> memory = ListMemory()
    >>> memory.watch({"tags": (torch.tensor([7, 8]), torch.tensor([0, 2]))})
    >>> filled = memory.filled({"tags": (torch.tensor([7, 8, 9]), torch.tensor([0, 3]))})
    >>> memory.bounds, memory.growths, filled["tags"].parts()[1].tolist()
    ({'tags': 4}, 1, [0, 3])
    """

    def __init__(self) -> None:
        self.bounds: dict[str, int] = {}
        self.growths = 0
        self._most: dict[str, int] = {}
        self._least: dict[str, int] = {}
        self._form: Any = None
        self._held: dict[str, Any] = {}

    def watch(self, lists: Mapping[str, Any]) -> None:
        """Take note of a batch's lists, before there is memory for them."""
        if self._form is None:
            self._form = _form_of(lists)
        for name, value in lists.items():
            if isinstance(value, tuple):
                size = len(value[0])
                self._most[name] = max(size, self._most.get(name, size))
                self._least[name] = min(size, self._least.get(name, size))

    def filled(self, lists: Mapping[str, Any]) -> dict[str, Any] | None:
        """A batch's lists in the memory; None where they have another form than those watched."""
        if self._form is None or _form_of(lists) != self._form:
            return None
        targets, sources = [], []
        for name, value in lists.items():
            held = self._room(name, value)
            if isinstance(value, tuple):
                values, offsets = held.parts()
                targets += [values[: len(value[0])], offsets]
                sources += [value[0], value[1]]
            else:
                targets.append(held)
                sources.append(value)
        torch._foreach_copy_(targets, sources, non_blocking=True)  # one launch for many columns
        return {name: self._held[name] for name in lists}

    def _room(self, name: str, value: Any) -> Any:
        """The memory of a column, as large as it must be."""
        if not isinstance(value, tuple):
            if name not in self._held:
                self._held[name] = torch.empty_like(value)
            return self._held[name]
        values, offsets = value
        if name not in self._held:
            most = self._most.get(name, len(values))
            self.bounds[name] = most if most == self._least.get(name, most) else most + most // _SLACK + 1
        elif len(values) <= self.bounds[name]:
            return self._held[name]
        if len(values) > self.bounds[name]:
            self.bounds[name] = max(2 * self.bounds[name], len(values))
            self.growths += 1
        # Zeros: what is behind a batch's values is no id of a table, whatever it was, and nobody reads it.
        room = torch.zeros(self.bounds[name], dtype=values.dtype, device=values.device)
        self._held[name] = BoundedLists(room, torch.empty_like(offsets))
        return self._held[name]


def _form_of(lists: Mapping[str, Any]) -> Any:
    """Equal for batches that the same memory can hold, as far as that has room; None for what it cannot hold at all."""
    found: list[Any] = []
    for name, value in lists.items():
        if isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, Tensor) for part in value):
            found.append((name, value[0].dtype, value[1].dtype, value[1].shape))
        elif isinstance(value, Tensor) and not value.is_nested:
            found.append((name, value.dtype, value.shape))
        else:
            return None
    return found
