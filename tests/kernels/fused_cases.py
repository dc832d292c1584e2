"""Fused embeddings on one back end against the oracle; run alone: TRITON_INTERPRET=1 python fused_cases.py cpu"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np
import torch

from penstock.kernels import reference_fused as oracle
from penstock.kernels.optimizer_formulas import Rule

RULES = {
    "sgd": Rule("sgd", decay=0.1),
    "adagrad": Rule("adagrad"),
    "adagrad_row": Rule("adagrad_row", eps=1e-3, bound=0.8),
    "lazy_adam": Rule("lazy_adam", eps=1e-8, beta2=0.99999),  # 1 - beta2 is off by a thousandth in float32
    "row_adam": Rule("row_adam", eps=1e-8, beta2=0.99999, decay=0.01),
}


@dataclass
class Case:
    """A batch: its sizes, the features that are bags, and what is odd about it."""

    name: str
    rows: int
    sizes: tuple[int, ...]
    dim: int
    bags: int = 0
    pooling: str = "sum"
    weighted: bool = False
    hot: bool = False  # the first feature has one id in every sample
    wrong: bool = False  # some ids lie outside their table (back ends that refuse skip this)
    longest: int = 4
    gradient: str = "float32"
    weight: str = "float32"
    broken: int = 0  # so many samples have a gradient that is not finite
    loss_scale: float = 1.0  # what the gradient arrives multiplied by
    between: int = 0  # columns of other tables between those of the features
    spare: int = 0  # values behind each feature's bags that belong to none


CASES = [
    Case("one", 1, (3,), 16),
    Case("odd", 37, (5, 1, 100), 7),
    Case("hot", 700, (9, 4), 16, hot=True),
    Case("many", 400, (3, 150), 16),
    Case("wide", 33, (50, 7), 40, gradient="bfloat16"),
    Case("bags", 23, (11, 30, 4), 5, bags=2),
    Case("only bags", 19, (8,), 16, bags=1, pooling="mean", longest=70),
    Case("weighted", 21, (8, 90), 16, bags=1, pooling="sqrt_n", weighted=True, hot=True),
    Case("narrow", 90, (12, 40), 16, weight="bfloat16"),
    Case("empty", 0, (3, 4), 16),
    Case("empty bags", 6, (3, 4), 16, bags=1, longest=0),
    Case("wrong", 80, (6, 9), 16, bags=1, wrong=True),
    Case("broken", 150, (40, 9), 16, broken=3),
    Case("broken narrow", 150, (40, 200), 16, broken=4, gradient="bfloat16", weight="bfloat16"),
    Case("broken hot", 300, (9, 120), 8, broken=2, hot=True),
    Case("broken bags", 40, (11, 30), 5, bags=1, broken=2),
    Case("scaled", 60, (30, 8), 16, loss_scale=1024.0),
    Case("long bag", 2, (50, 7), 16, bags=1, pooling="mean", longest=2000),
    # Rows of 64 columns and more are taken one at a time.
    Case("by row", 30, (9, 40), 96),
    Case("by row, hot", 700, (9, 4), 64, hot=True),
    Case("by row, bags", 20, (11, 30, 4), 128, bags=2, hot=True),
    Case("by row, weighted", 12, (8, 20), 70, bags=1, pooling="mean", weighted=True, wrong=True),
    Case("by row, broken", 40, (40, 9), 64, broken=3, hot=True, gradient="bfloat16", weight="bfloat16"),
    Case("widest", 5, (7, 3), 512),
    Case("among others", 30, (9, 40, 3), 7, bags=1, between=5),
    Case("by row, among others", 20, (9, 40), 64, between=3, gradient="bfloat16"),
    Case("room to spare", 18, (9, 12, 30), 16, bags=2, pooling="mean", spare=37),
    Case("by row, room to spare", 12, (40, 9), 64, bags=2, weighted=True, spare=21),
    Case("wrong, room to spare", 14, (6, 9), 16, bags=1, wrong=True, spare=9),
]


class Batch:
    """A case's tensors and the oracle's arrays."""

    def __init__(self, case: Case, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.case = case
        number, singles = len(case.sizes), len(case.sizes) - case.bags
        starts = np.cumsum([0, *case.sizes[:-1]])
        place = rng.permutation(number)
        self.features = np.stack([starts, case.sizes, place, place * (case.dim + case.between)], 1).astype(np.int64)
        self.width = number * (case.dim + case.between)
        self.unit = gcd(16, *self.features[:, 3].tolist())
        low, more = (-2, 3) if case.wrong else (0, 0)
        self.ids = np.empty((case.rows, singles), np.int32, order="F")  # as a packed batch lies
        for f in range(singles):
            self.ids[:, f] = rng.integers(low, case.sizes[f] + more, case.rows)
        if case.hot:
            self.ids[:, 0] = 2
        lengths = rng.integers(0, case.longest + 1, (case.bags, case.rows))
        self.offsets = np.zeros((case.bags, case.rows + 1), np.int64)
        np.cumsum(lengths, 1, out=self.offsets[:, 1:])
        counts = self.offsets[:, -1] + case.spare  # of the values that each feature has room for
        self.offsets = (self.offsets + (np.cumsum(counts) - counts)[:, None]).reshape(-1)
        feature = np.repeat(np.arange(singles, number), counts)
        self.values = rng.integers(low, self.features[feature, 1] + more).astype(np.int64)
        for end, count in zip(np.cumsum(counts), counts, strict=True):
            self.values[end - min(case.spare, count) : end] = 10**12  # whoever reads these says so
        self.weights = rng.standard_normal(len(self.values)).astype(np.float32) if case.weighted else None
        self.gradient = torch.from_numpy(rng.standard_normal((case.rows, self.width)).astype(np.float32))
        for number, sample in enumerate(rng.choice(case.rows, case.broken, replace=False)):
            at = sample, rng.integers(self.gradient.shape[1])
            self.gradient[at] = [float("nan"), float("inf"), -float("inf")][number % 3]
        self.gradient = self.gradient.to(getattr(torch, case.gradient))
        self.weight = torch.from_numpy(rng.standard_normal((sum(case.sizes), case.dim)).astype(np.float32))
        self.weight = self.weight.to(getattr(torch, case.weight))
        self.arguments = self.features, self.ids, self.values, self.offsets, self.weights, case.pooling


def check(backend, case: Case, rule: Rule, device: str, steps: int = 2) -> None:
    """Look-ups and `steps` updates of a back end equal the oracle's."""
    batch = Batch(case)
    weight, shapes = batch.weight.clone().to(device), rule.states(case.dim)
    states = [None if s is None else torch.zeros((len(weight), *s), device=device) for s in shapes]
    exact, skipped, lost = weight.cpu().double().numpy(), torch.zeros(1, dtype=torch.int64, device=device), 0
    exact_states = [None if s is None else s.cpu().double().numpy() for s in states]
    for step in range(1, steps + 1):
        wanted = oracle.look_up(exact, *batch.arguments, batch.width)
        found = run_step(backend, batch, rule, weight, states, step, skipped)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
        by_row = oracle.row_gradients(batch.gradient.double().numpy(), *batch.arguments, case.dim)
        for row, g in by_row.items():
            oracle.apply(rule, exact, *exact_states, row, g, 0.1, step)
        lost += sum(not np.isfinite(g).all() for g in by_row.values())
        assert int(skipped) == lost and (lost > 0) == (case.broken > 0)
        if case.weight == "bfloat16":
            touched = [row for row, g in by_row.items() if np.isfinite(g).all()]
            _check_rounding(weight.cpu(), exact, touched, step)
            exact = weight.cpu().double().numpy()
            continue
        np.testing.assert_allclose(weight.cpu(), exact, rtol=1e-4, atol=1e-5)
        for state, wanted_state in zip(states, exact_states, strict=True):
            if state is not None:
                np.testing.assert_allclose(state.cpu(), wanted_state, rtol=1e-4, atol=1e-5)


def run_step(backend, batch: Batch, rule: Rule, weight, states, step: int, skipped: torch.Tensor) -> np.ndarray:
    """One look-up and one update; what was looked up."""
    case, device = batch.case, skipped.device
    singles, num = batch.ids.shape[1], batch.ids.size + len(batch.values)
    out = torch.zeros((case.rows, batch.width + 3), device=device)
    keys = torch.full((num,), len(weight), dtype=torch.int32, device=device)  # those of values that no bag claims
    sources = torch.full((len(batch.values),), 2**31 - 1, dtype=torch.int32, device=device)  # as memory may hold
    scales = torch.empty(len(batch.values), device=device)
    errors = torch.zeros(1, dtype=torch.int64, device=device)
    features = torch.from_numpy(batch.features).to(device)
    bags = None
    if case.bags:
        weights = None if batch.weights is None else torch.from_numpy(batch.weights).to(device)
        bags = torch.from_numpy(batch.values).to(device), torch.from_numpy(batch.offsets).to(device), weights
    ids = torch.from_numpy(batch.ids).to(device)
    backend.look_up(weight, features, ids, bags, case.pooling, out, errors, (keys, sources, scales), batch.unit)
    assert (int(errors) != 0) == case.wrong
    rates = torch.tensor([0.1, *oracle.rates_at(rule, 0.1, step)], device=device)
    backend.update(
        rule, weight, tuple(states), features, backend.sort(keys), (sources, scales) if case.bags else None,
        batch.gradient.to(device) * case.loss_scale, singles, rates, torch.tensor(step, device=device),
        torch.tensor([1 / case.loss_scale], device=device), skipped, batch.unit,
    )  # fmt: skip
    return out[:, :-3].cpu().numpy()


def _check_rounding(weight: torch.Tensor, exact: np.ndarray, touched: list[int], step: int) -> None:
    """Each element is rounded as the hash says, but for those whose last float32 bit decides."""
    row, column = np.meshgrid(np.arange(len(exact)), np.arange(exact.shape[1]), indexing="ij")
    bits = oracle.rounded_to_bfloat(exact.astype(np.float32), oracle.noise(row, column, step))
    same = weight.view(torch.uint16).numpy() == bits
    assert same[touched].mean() > 0.97
    np.testing.assert_allclose(weight.float(), exact, rtol=2**-7, atol=1e-6)


def main(device: str) -> None:
    from penstock.kernels import gpu_embedding

    own = gpu_embedding.tiles_for
    try:
        for number, case in enumerate(CASES):
            # Small chunks cut the hot row into more pieces than one pass adds up.
            small = {"chunk": 8, "group": 2, "finish": 4} if case.hot else {}
            gpu_embedding.tiles_for = lambda width, num, small=small: own(width, num)._replace(**small)
            _check_rules(gpu_embedding, number, case, device)
    finally:
        gpu_embedding.tiles_for = own


def _check_rules(kernels: Any, number: int, case: Case, device: str) -> None:
    # An interpreter takes its time for each row; a hot one needs some to be cut into pieces.
    rows = min(case.rows, 9 if case.hot else 5)
    shown = replace(case, rows=rows, longest=min(case.longest, 40)) if device == "cpu" else case
    # Every formula on the cases with everything in them; elsewhere, and in an interpreter, they take turns.
    every = device != "cpu" and case.name in ("bags", "hot", "by row, hot")
    for name in list(RULES) if every else [list(RULES)[number % len(RULES)]]:
        try:
            check(kernels, shown, RULES[name], device)
        except Exception as error:
            raise AssertionError(f"case {case.name!r}, {name}: {error}") from error
        print(f"{case.name}: {name} agrees", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
