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

    def __init__(self, seeds: Sequence[int], capacity: int, device: Any, region: int = _LEAST_REGION) -> None:
        super().__init__()
        self._least = _power_of_two(max(region, _LEAST_REGION))  # entries of a region to begin with
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
        self.sizes: list[int] = []
        self._lay_out([self._least] * self.num_tables)

    def _lay_out(self, sizes: list[int]) -> None:
        """Empty regions of these sizes, in the same memory where they are as they were."""
        device, total = self.counters.device, sum(sizes)
        if sizes != self.sizes:
            self.sizes, self._places, self._starts = sizes, self._regions(sizes), dict[torch.device, Tensor]()
            self.entries = torch.empty((total + GUARDS, 2), dtype=torch.int64, device=device)
        self.entries[:, 0], self.entries[:, 1] = 0, NO_ROW
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

    def rebuild(self, kernels: Any, wanted: np.ndarray) -> bool:
        """Forget signs without a row; regions without place for so many more grow. Whether memory has moved."""
        listed = self.listed()
        signs = torch.bincount(listed[1], minlength=self.num_tables).cpu().numpy() + wanted
        needed = [_power_of_two(2 * int(count)) for count in signs]
        fits = signs <= LOAD * np.array(self.sizes)
        before = self.sizes
        self._lay_out([size if ok else more for size, more, ok in zip(before, needed, fits, strict=True)])
        self.enter(kernels, *listed)
        return self.sizes != before

    def listed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Signs, their tables and their values, of all that have a row."""
        at = (self.entries[: sum(self.sizes), 1] >= 0).nonzero().flatten()
        tables = torch.searchsorted(self.starts, at, right=True) - 1
        signs, values = self.entries[at].unbind(1)
        return signs.contiguous(), tables, values.contiguous()

    def enter(self, kernels: Any, signs: Tensor, tables: Tensor, values: Tensor) -> None:
        """Put signs in that are not there."""
        features = self.features(())
        kernels.enter(self.entries, features, signs, tables, values, self.counters, self.salt)

    def find(self, kernels: Any, ids: Ids, nothing: int, rows: NewRows | None) -> Ids:
        """The ids as rows of the weight; with `rows`, new ones get theirs. Waits for nothing, so it can be captured."""
        return ids.replaced(self.rows_of(kernels, ids, nothing, rows))

    def rows_of(self, kernels: Any, ids: Ids, nothing: int, rows: NewRows | None = None) -> Tensor:
        """`find`, as a row for each occurrence."""
        kind = torch.int32 if len(self.entries) < 2**31 - 2 and nothing < 2**31 - 2 else torch.int64
        out = torch.empty(ids.num_occurrences, dtype=kind, device=self.entries.device)
        features = self.features(ids.bags)
        lists = None if ids.lists is None else ids.lists[:2]
        common = self.counters, self.num_tables, self.salt, nothing, out, self.wrong, rows
        kernels.find(self.entries, features, ids.singles, lists, *common)
        return out

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
        self._lay_out([self._least] * self.num_tables)

    @property
    def starts(self) -> Tensor:
        """The first entry of each region."""
        device = self.entries.device
        if device not in self._starts:
            self._starts[device] = self.features(())[:, 0].contiguous()
        return self._starts[device]

    def features(self, bags: tuple[int, ...]) -> Tensor:
        """`hashed_contract`'s features, for a batch in which these tables have lists."""
        return self._places.tables(bags, self.entries.device)


def ids_by_table(ids: Ids, num_tables: int) -> np.ndarray:
    """How many ids of each table a batch has, at most (how long lists are, the host does not know), and of all."""
    found = np.full(num_tables + 1, len(ids.singles), np.int64)
    if ids.lists is not None:
        found[list(ids.bags)] = len(ids.lists[0])
    found[-1] = ids.num_occurrences
    return found


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
