"""The index of hashed tables, on their device: a region for each table, which grows by doubling."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from penstock.embedding.fused.feature_places import FeaturePlaces
from penstock.embedding.fused.ids import Ids
from penstock.kernels.hashed_contract import (
    BY_TABLE,
    CLOCK,
    FREE,
    GUARD_SIGN,
    GUARDS,
    LOAD,
    NO_ROW,
    USED,
    NewRows,
    num_counters,
)

_LOW32 = 0xFFFFFFFF
_LEAST_REGION = 64


class HashIndex(nn.Module):
    """Where the rows of ids are (`penstock.kernels.hashed_contract`), and how many there are.

    What it holds is not in `state_dict()`: where a sign lies is a matter of chance. `listed` gives what counts.
    """

    entries: Tensor
    counters: Tensor
    free: Tensor
    wrong: Tensor
    seeds: Tensor

    def __init__(self, seeds: Sequence[int], capacity: int, device: Any) -> None:
        super().__init__()
        self.num_tables = len(seeds)
        # Nobody can choose ids that collide: the salt is of this process alone, and no number depends on it.
        self.salt = secrets.randbits(62)
        signed = torch.from_numpy(np.array(seeds, np.uint64).view(np.int64).copy())
        counters = torch.zeros(num_counters(self.num_tables), dtype=torch.int64)
        counters[CLOCK] = 1
        self.register_buffer("seeds", signed.to(device), persistent=False)
        self.register_buffer("counters", counters.to(device), persistent=False)
        self.register_buffer("wrong", torch.zeros(1, dtype=torch.int64, device=device), persistent=False)
        self.register_buffer("free", torch.empty(capacity, dtype=torch.int64, device=device), persistent=False)
        self.register_buffer("entries", torch.empty((0, 2), dtype=torch.int64, device=device), persistent=False)
        self._lay_out([_LEAST_REGION] * self.num_tables)

    def _lay_out(self, sizes: list[int]) -> None:
        """Empty regions of these sizes."""
        self.sizes, self._places, self._starts = sizes, self._regions(sizes), dict[torch.device, Tensor]()
        device, total = self.counters.device, sum(sizes)
        self.entries = torch.zeros((total + GUARDS, 2), dtype=torch.int64, device=device)
        self.entries[:, 1] = NO_ROW
        self.entries[total:, 0] = GUARD_SIGN
        self.counters[BY_TABLE : BY_TABLE + self.num_tables] = 0

    def _regions(self, sizes: list[int]) -> FeaturePlaces:
        return FeaturePlaces(sizes, range(self.num_tables), [0] * self.num_tables)

    def has_place_for(self, signs: np.ndarray) -> bool:
        """Whether the regions could hold so many signs a table."""
        return bool((signs <= LOAD * np.array(self.sizes)).all())

    def grow(self, kernels: Any, signs: np.ndarray) -> None:
        """Regions for twice as many signs a table; those that have lost their row are forgotten."""
        listed = self.listed()
        self._lay_out([_power_of_two(max(2 * int(count), _LEAST_REGION)) for count in signs])
        self.enter(kernels, *listed)

    def listed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Signs, their tables and their values, of all that have a row."""
        at = (self.entries[: sum(self.sizes), 1] >= 0).nonzero().flatten()
        tables = torch.searchsorted(self.starts, at, right=True) - 1
        signs, values = self.entries[at].unbind(1)
        return signs.contiguous(), tables, values.contiguous()

    def enter(self, kernels: Any, signs: Tensor, tables: Tensor, values: Tensor) -> None:
        """Put signs in that are not there."""
        features = self._features((), self.entries.device)
        kernels.enter(self.entries, features, signs, tables, values, self.counters, self.salt)

    def find(self, kernels: Any, ids: Ids, nothing: int, rows: NewRows | None) -> Ids:
        """The ids as rows of the weight; with `rows`, new ones get theirs. Waits for nothing, so it can be captured."""
        kind = torch.int32 if len(self.entries) < 2**31 - 2 and nothing < 2**31 - 2 else torch.int64
        out = torch.empty(ids.num_occurrences, dtype=kind, device=self.entries.device)
        features = self._features(ids.bags, self.entries.device)
        lists = None if ids.lists is None else ids.lists[:2]
        common = self.counters, self.num_tables, self.salt, nothing, out, self.wrong, rows
        kernels.find(self.entries, features, ids.singles, lists, *common)
        (num_rows, singles), count = ids.singles.shape, ids.singles.numel()
        packed = None if ids.lists is None else (out[count:].long(), *ids.lists[1:])
        return Ids(out[:count].view(singles, num_rows).t(), packed, ids.bags)

    def release(self, doomed: Tensor) -> None:
        """Take the rows of some entries away; their signs stay until the region grows."""
        rows = (self.entries[doomed, 1] & _LOW32).sort(descending=True).values  # the lowest is given out first
        begin = int(self.counters[FREE])
        self.free[begin : begin + len(rows)] = rows
        self.entries[doomed, 1] = NO_ROW
        self.counters[FREE] += len(rows)

    def clear(self) -> None:
        """Forget every id."""
        self.counters[USED] = self.counters[FREE] = 0
        self._lay_out([_LEAST_REGION] * self.num_tables)

    @property
    def starts(self) -> Tensor:
        """The first entry of each region."""
        device = self.entries.device
        if device not in self._starts:
            self._starts[device] = self._features((), device)[:, 0].contiguous()
        return self._starts[device]

    def _features(self, bags: tuple[int, ...], device: torch.device) -> Tensor:
        return self._places.tables(bags, device)


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
