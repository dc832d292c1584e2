"""Fused tables against dense tables of NumPy in float64: any dims, lists, dtypes of ids, optimizers and settings."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.embedding import SGD, Adagrad, FusedEmbeddings, LazyAdam, RowWiseAdam

IDS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
BETAS = st.sampled_from([0.0, 0.5, 0.9, 0.999, 0.99999])
RATES = st.sampled_from([0.001, 0.05])
EPS = st.just(1e-3)  # without it a step is the sign of a gradient, which rounding turns where that is nearly zero
DECAYS = st.sampled_from([0.0, 0.01])
OPTIMIZERS = st.one_of(
    st.builds(SGD, lr=RATES, weight_decay=DECAYS),
    st.builds(Adagrad, lr=RATES, eps=EPS, row_wise=st.booleans(), weight_decay=DECAYS),
    st.builds(LazyAdam, lr=RATES, eps=EPS, beta1=BETAS, beta2=BETAS, weight_decay=DECAYS),
    st.builds(RowWiseAdam, lr=RATES, eps=EPS, beta1=BETAS, beta2=BETAS, weight_decay=DECAYS),
)


class Dense:
    """One table after another in float64, and what the optimizer keeps of them."""

    def __init__(self, weight: np.ndarray, optimizer: Any) -> None:
        self.weight, self.optimizer, self.steps = weight.astype(np.float64), optimizer, 0
        self.m, self.v = np.zeros_like(self.weight), np.zeros_like(self.weight)

    def step(self, gradient: np.ndarray, rows: np.ndarray) -> None:
        """One step on the rows of the batch; `gradient` is as large as the weights."""
        o, self.steps = self.optimizer, self.steps + 1
        g = gradient[rows] + o.weight_decay * self.weight[rows]
        square = g * g
        if isinstance(o, RowWiseAdam) or getattr(o, "row_wise", False):
            square = np.broadcast_to(square.mean(1, keepdims=True), g.shape)
        if isinstance(o, SGD):
            self.weight[rows] -= o.lr * g
        elif isinstance(o, Adagrad):
            self.v[rows] += square
            self.weight[rows] -= o.lr * g / (np.sqrt(self.v[rows]) + o.eps)
        else:
            self.m[rows] += (g - self.m[rows]) * (1 - o.beta1)
            self.v[rows] = o.beta2 * self.v[rows] + (1 - o.beta2) * square
            first, second = 1 - o.beta1**self.steps, math.sqrt(1 - o.beta2**self.steps)
            v = np.sqrt(self.v[rows])
            if isinstance(o, LazyAdam):  # as torch's SparseAdam, which leaves eps alone
                self.weight[rows] -= o.lr * second / first * self.m[rows] / (v + o.eps)
            else:
                self.weight[rows] -= o.lr / first * self.m[rows] / (v / second + o.eps)


@st.composite
def cases(draw: st.DrawFn, dtypes: list[torch.dtype]) -> dict[str, Any]:
    sizes = draw(st.lists(st.integers(1, 30), min_size=1, max_size=4))
    num_rows = draw(st.integers(1, 20))
    return {
        "sizes": sizes,
        "dim": draw(st.integers(1, 40)),
        "rows": num_rows,
        "lists": [draw(st.booleans()) for _ in sizes],
        "ids": [draw(st.sampled_from(dtypes)) for _ in sizes],
        "pooling": draw(st.sampled_from(["sum", "mean", "sqrt_n"])),
        "optimizer": draw(OPTIMIZERS),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


def _batch(case: dict[str, Any], random: np.random.Generator) -> tuple[dict[str, Any], list[list[np.ndarray]]]:
    """What the tables take, and the ids of each sample by table."""
    batch: dict[str, Any] = {}
    samples = []
    for number, (size, is_list, dtype) in enumerate(zip(case["sizes"], case["lists"], case["ids"], strict=True)):
        lengths = random.integers(0, 4, case["rows"]) if is_list else np.ones(case["rows"], np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        values = random.integers(0, size, int(offsets[-1]))
        tensor = torch.from_numpy(values).to(dtype)
        batch[f"t{number}"] = (tensor, torch.from_numpy(offsets)) if is_list else tensor
        samples.append([values[a:b] for a, b in pairwise(offsets)])
    return batch, samples


def _divisor(length: int, pooling: str) -> float:
    return {"sum": 1.0, "mean": float(max(length, 1)), "sqrt_n": math.sqrt(max(length, 1))}[pooling]


def check(case: dict[str, Any]) -> None:
    random = np.random.default_rng(case["seed"])
    torch.manual_seed(case["seed"])
    sizes, dim, rows = case["sizes"], case["dim"], case["rows"]
    tables = {f"t{number}": size for number, size in enumerate(sizes)}
    fused = FusedEmbeddings(tables, dim, optimizer=case["optimizer"], pooling=case["pooling"], scale=0.5)
    dense = Dense(fused.weight.detach().numpy(), case["optimizer"])
    starts = np.cumsum([0, *sizes[:-1]])
    for _ in range(3):
        batch, samples = _batch(case, random)
        gradient = random.normal(size=(rows, len(sizes), dim)).astype(np.float32)
        expected, whole, touched = np.zeros((rows, len(sizes), dim)), np.zeros_like(dense.weight), set()
        for table, start in enumerate(starts):
            for row, ids in enumerate(samples[table]):
                divisor = _divisor(len(ids), case["pooling"])
                for place in start + ids:
                    expected[row, table] += dense.weight[place] / divisor
                    whole[place] += gradient[row, table] / divisor
                    touched.add(int(place))
        found = fused(batch)
        np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
        found.backward(torch.from_numpy(gradient))
        dense.step(whole, np.array(sorted(touched), np.int64))
        np.testing.assert_allclose(fused.weight.detach().numpy(), dense.weight, rtol=1e-4, atol=2e-5)


def budget(examples: int) -> Any:
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))


@budget(40)
@given(cases([torch.int32, torch.int64]))  # each dtype takes a kernel of its own, which takes a while
def test_a_few(case: Any) -> None:
    check(case)


@pytest.mark.slow
@budget(2000)
@given(cases(IDS))
def test_many(case: Any) -> None:
    check(case)
