"""The index of a row cache on one back end against the oracle; run alone: TRITON_INTERPRET=1 python cache_cases.py"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import torch

from penstock.kernels import reference_cache as oracle
from penstock.kernels.cache_contract import UNSEEN, stored


@dataclass
class Case:
    """A batch of `rows` over tables of these sizes, the last `bags` of them with lists."""

    name: str
    rows: int
    sizes: tuple[int, ...]
    bags: int = 0
    longest: int = 4
    wrong: bool = False
    cut: bool = False  # offsets that leave values at both ends to no bag
    spare: int = 0  # values behind each feature's bags that belong to none


CASES = [
    Case("one", 1, (3,)),
    Case("several programs", 1500, (700, 9, 5000)),
    Case("bags", 40, (30, 8, 200), bags=2),
    Case("only bags", 25, (60,), bags=1, longest=90),
    Case("wrong", 50, (6, 9, 4), bags=1, wrong=True),
    Case("cut", 30, (6, 90), bags=1, cut=True),
    Case("room to spare", 20, (30, 8, 200, 9), bags=3, spare=11),
    Case("empty", 0, (6, 9), bags=1),
]


class Batch:
    """A case's arrays, and an index in which about a third of the rows is cached and a third known to the store."""

    def __init__(self, case: Case, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        number, singles = len(case.sizes), len(case.sizes) - case.bags
        starts = np.cumsum([0, *case.sizes[:-1]])
        place = rng.permutation(number)
        self.features = np.stack([starts, case.sizes, place, 16 * place], 1).astype(np.int64)
        low, more = (-2, 3) if case.wrong else (0, 0)
        self.ids = np.empty((case.rows, singles), np.int32, order="F")
        for f in range(singles):
            self.ids[:, f] = rng.integers(low, case.sizes[f] + more, case.rows)
        lengths = rng.integers(0, case.longest + 1, (case.bags, case.rows))
        self.offsets = np.zeros((case.bags, case.rows + 1), np.int64)
        np.cumsum(lengths, 1, out=self.offsets[:, 1:])
        counts = self.offsets[:, -1] + case.spare
        self.offsets = (self.offsets + (np.cumsum(counts) - counts)[:, None]).reshape(-1)
        feature = np.repeat(np.arange(singles, number), counts)
        self.values = rng.integers(low, self.features[feature, 1] + more).astype(np.int64)
        if case.cut:
            self.offsets = np.clip(self.offsets, 5, len(self.values) - 7)
        self.total = sum(case.sizes)
        state = rng.integers(0, 3, self.total + 1)
        state[-1] = 1
        self.capacity = int((state == 0).sum()) + 4
        self.slot_of = np.full(self.total + 1, UNSEEN, np.int32)
        cached = np.flatnonzero(state == 0)
        self.slot_of[cached] = rng.permutation(self.capacity)[: len(cached)]
        self.slot_of[state == 2] = stored(rng.integers(0, 1000, int((state == 2).sum())))
        self.used = rng.integers(-1, 6, self.capacity).astype(np.int32)


def check(backend, case: Case, device: str) -> None:
    """Keys, slots and claims of a back end are the oracle's."""
    batch = Batch(case)

    def on_device(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array.copy(order="K")).to(device)

    arguments = batch.features, batch.ids, batch.values, batch.offsets
    wanted, codes = oracle.find_keys(*arguments, batch.total)
    features, ids, values, offsets = (on_device(array) for array in arguments)
    bags = (values, offsets) if case.bags else None
    keys = torch.full((len(wanted),), -9, dtype=torch.int32, device=device)
    backend.read(features, ids, bags, batch.total, keys)
    np.testing.assert_array_equal(keys.cpu(), wanted)
    slot_of, used = on_device(batch.slot_of), on_device(batch.used)
    slots = torch.full_like(keys, -9)
    errors, absent = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
    backend.read(features, ids, bags, batch.total, slots, (slot_of, batch.capacity, errors, absent))
    found = oracle.find_slots(wanted, batch.slot_of, batch.capacity)
    np.testing.assert_array_equal(slots.cpu(), found)
    assert int(errors) == codes[wanted == batch.total].max(initial=0)
    assert int(absent) == codes[(wanted < batch.total) & (found == batch.capacity)].max(initial=0)
    missing, was = backend.claim(keys, slot_of, used, 7)
    results = oracle.claim(wanted, batch.slot_of, batch.used, 7)
    for mine, theirs in zip((missing, was, slot_of, used), (*results, batch.slot_of, batch.used), strict=True):
        np.testing.assert_array_equal(mine.cpu(), theirs)
    again, _ = backend.claim(keys, slot_of, used, 8)
    assert not len(again)  # all are on their way


def main(device: str) -> None:
    from penstock.kernels import gpu_cache

    for case in CASES:
        check(gpu_cache, case, device)
        print(f"{case.name} agrees")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cpu")
