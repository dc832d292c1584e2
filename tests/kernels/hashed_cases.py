"""Hashed tables on one back end against the oracle; run alone: TRITON_INTERPRET=1 python hashed_cases.py cpu"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import torch

from penstock.embedding.fused.ids import Ids
from penstock.embedding.hashed.hash_index import HashIndex
from penstock.kernels import reference_hashed as oracle
from penstock.kernels.fused_contract import table_and_id
from penstock.kernels.hashed_contract import BY_TABLE, CLOCK, FREE, NewRows

SEEDS = (0, 2**64 - 12345, 0x9E3779B97F4A7C15)
LOW, WIDTH = -0.05, float(np.float32(0.05) - np.float32(-0.05))


@dataclass
class Case:
    """Batches of `rows` over tables of `ids` different ids, the last `bags` of them with lists."""

    name: str
    rows: int
    ids: tuple[int, ...]
    bags: int = 0
    longest: int = 4
    capacity: int = 4000
    wrong: bool = False
    cut: bool = False  # offsets that leave values at both ends to no bag
    dim: int = 5
    weight: torch.dtype = torch.float32
    states: tuple[int, int] = (0, 0)  # dimensions of each
    crowded: bool = False  # regions as small as may be
    steps: int = 3


CASES = [
    Case("one", 1, (1,)),
    Case("several programs", 1300, (700, 9, 5000), dim=2, steps=2),
    Case("bags", 40, (30, 8, 200), bags=2, states=(1, 0)),
    Case("only bags", 25, (60,), bags=1, longest=90, states=(2, 2)),
    Case("wrong", 50, (6, 9, 4), bags=1, wrong=True, states=(2, 1)),
    Case("cut", 30, (6, 90, 20), bags=2, cut=True),
    Case("full", 60, (40, 50), capacity=30),
    Case("crowded", 100, (150, 40), crowded=True),
    Case("narrow", 40, (50, 8), weight=torch.bfloat16, dim=18, states=(1, 0)),
    Case("empty", 0, (6, 9), bags=1),
]


class Batch:
    """One batch of a case: tensors, and its occurrences as the oracle reads them."""

    def __init__(self, case: Case, rng: np.random.Generator, names: list[np.ndarray], device: str) -> None:
        singles = len(case.ids) - case.bags
        drawn = [names[t][rng.integers(0, len(names[t]), case.rows)] for t in range(singles)]
        matrix = np.stack(drawn, 1) if drawn else np.empty((case.rows, 0), np.int64)
        lengths = rng.integers(0, case.longest + 1, case.bags * case.rows)
        ends = np.cumsum([0, *lengths]) if case.bags else np.empty(0, np.int64)
        each = [ends[bag * case.rows : (bag + 1) * case.rows + 1] for bag in range(case.bags)]
        offsets = np.concatenate([np.empty(0, np.int64), *each])
        owner = np.repeat(np.repeat(np.arange(singles, len(case.ids)), case.rows), lengths)
        values = np.array([names[t][rng.integers(0, len(names[t]))] for t in owner], np.int64)
        if case.wrong:
            matrix[::7] = -1
            values[::5] = -1
        position, inside = np.arange(len(values)), np.ones(len(values), bool)
        if case.cut:  # some values at both ends of each feature belong to no bag
            each = [np.clip(own, own[0] + 5, own[-1] - 7) for own in each]
            offsets = np.concatenate(each)
            inside = np.any([(position >= own[0]) & (position < own[-1]) for own in each], 0)
        self.occurrences = [(t, int(i)) for t in range(singles) for i in matrix[:, t]]
        self.occurrences += [(int(t), int(i)) if x else None for t, i, x in zip(owner, values, inside, strict=True)]
        lists = (torch.from_numpy(values).to(device), torch.from_numpy(offsets).to(device), None) if case.bags else None
        bags = tuple(range(singles, len(case.ids)))
        self.ids = Ids(torch.from_numpy(np.asfortranarray(matrix)).to(device), lists, bags)


def check(backend, case: Case, device: str) -> None:
    """Rows, their first values and what is refused are the oracle's, over several steps and a larger index."""
    rng, dim = np.random.default_rng(7), case.dim
    names = [rng.integers(-(2**63), 2**63 - 1, count) for count in case.ids]
    names[0][:1] = 2**63 - 1  # whose sign is the least number
    seeds = SEEDS[: len(names)]
    index = HashIndex(seeds, case.capacity, device)
    index._lay_out([256 if case.crowded else 8192] * len(names))
    kind = {"dtype": torch.float32, "device": device}
    shapes = [None, (case.capacity + 1,), (case.capacity + 1, dim)]
    states = tuple(None if n == 0 else torch.full(shapes[n], -1.0, **kind) for n in case.states)
    weight = torch.full((case.capacity + 1, dim), 9.0, dtype=case.weight, device=device)
    rows = NewRows(
        index.starts, index.seeds, index.free, case.capacity, True, weight, states, LOW, WIDTH, (0.25, 0.5)
    )  # fmt: skip
    wanted = oracle.Rows(case.capacity)
    for step in range(case.steps):
        batch = Batch(case, rng, names, device)
        for train in (False, True, False):
            found = index.find(backend, batch.ids, case.capacity, rows if train else None)
            _same_rows(found, wanted.find(batch.occurrences, train), batch)
        assert int(index.counters[CLOCK]) == wanted.clock == step + 2
        refused = index.counters[BY_TABLE + len(names) :] > 0
        assert refused.tolist() == [wanted.refused.get(t, 0) > 0 for t in range(len(names))]
        assert (int(index.wrong) > 0) == case.wrong and (not case.wrong or table_and_id(int(index.wrong))[1] == -1)
        _same_values(wanted, weight, states, seeds)
        if step == 0 and case.rows:  # some ids lose their rows, and the index is laid out anew
            _drop(index, wanted)
            index.grow(backend, np.full(len(names), 3000))
            rows = rows._replace(starts=index.starts)
    signs, tables, values = (tensor.tolist() for tensor in index.listed())
    held = {(t, s - 1 if s > -(2**63) else 2**63 - 1): v for s, t, v in zip(signs, tables, values, strict=True)}
    assert held == {key: row | (wanted.touched[key] << 32) for key, row in wanted.rows.items()}
    assert int(index.counters[FREE]) == len(wanted.free)


def _same_rows(found: Ids, wanted: list[int], batch: Batch) -> None:
    rows = found.singles.t().reshape(-1).tolist()
    if found.lists is not None:
        rows += found.lists[0].tolist()
    asked = [i for i, occurrence in enumerate(batch.occurrences) if occurrence is not None]
    assert [rows[i] for i in asked] == [wanted[i] for i in asked]


def _same_values(wanted: oracle.Rows, weight: torch.Tensor, states: tuple, seeds: tuple[int, ...]) -> None:
    numbers = list(wanted.rows.values())
    mine = weight.float().cpu()[numbers].numpy()
    dim = weight.shape[1]
    theirs = [oracle.first_weights(identity, seeds[t], dim, LOW, WIDTH) for t, identity in wanted.rows]
    if weight.dtype == torch.float32:
        np.testing.assert_array_equal(mine, np.array(theirs, np.float32).reshape(-1, dim))
    elif numbers:  # up or down to a neighbour
        np.testing.assert_allclose(mine, np.array(theirs), rtol=2.0**-7, atol=1e-30)
        assert 0 < (mine > np.array(theirs)).mean() < 1
    for state, start in zip(states, (0.25, 0.5), strict=True):
        assert state is None or (state.cpu()[numbers] == start).all()


def _drop(index: HashIndex, wanted: oracle.Rows) -> None:
    gone = sorted(wanted.rows, key=wanted.rows.__getitem__)[::3]
    rows = torch.tensor([wanted.rows[key] for key in gone], device=index.entries.device)
    held = index.entries[: sum(index.sizes), 1]
    index.release(((held >= 0) & torch.isin(held & 0xFFFFFFFF, rows)).nonzero().flatten())
    for key in reversed(gone):
        wanted.drop(key)


def main(device: str) -> None:
    from penstock.kernels import gpu_hashed

    for case in CASES:
        check(gpu_hashed, case, device)
        print(f"{case.name} agrees")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cpu")
