"""Hybrid training: `python benchmarks/hybrid.py [--rows N] [--no-ray]`.

`hybrid/overlap`: a dense step of 20 ms that leaves the CPU free (as on a GPU; emulated by waiting) beside a store of 26
slots of dimension 16. Seconds per step at staleness 4, beside the longer of the two alone (`limit`: nothing can be
faster) and both one after the other (`synchronous`). The batch is chosen so that the store's work takes about as long
as the dense step, where there is most to gain.

`hybrid/ray`: look-up and update of the same batches by a store of two shards on Ray, beside the one in this process, at
batch 65,536; the cost of a call is stated at batch 8,192, with the stages of a step there: numbering and routing ids,
the look-up at the shards, pooling, summing gradients, the update at the shards, and `empty_call`, a call of all shards
that does nothing, which both calls contain (`empty_call_of_ray`: one that does not go on a line). `training_at_8192`
is milliseconds of a training step on Ray whose dense part takes no time, or 10 ms in which the CPU is free: with calls
in flight behind one another, and one at a time.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
import torch
from harness import Claim, best_of, report

from penstock import ColumnSchema, Schema
from penstock.embedding import Adagrad, RayStore, SlotConfig, Store
from penstock.embedding.ray_calls import ShardCalls
from penstock.embedding.ray_client import RoutedBatch
from penstock.train import TrainContext

CARDINALITIES = [
    10000000, 29612, 15050, 7190, 19547, 4, 6492, 1317, 63, 10000000, 707291, 218510, 11, 2209, 9798, 72, 4, 954, 15,
    10000000, 4553157, 10000000, 291641, 10904, 91, 35,
]  # fmt: skip
DIM, DENSE_SECONDS, STEPS = 16, 0.020, 60
NAMES = [f"C{i + 1}" for i in range(26)]


class Batches:
    """A loader's stand-in: log-uniform ids, every batch another one, made beforehand."""

    def __init__(self, batch_size: int, count: int, most_rows: int) -> None:
        rng = np.random.default_rng(5)
        tops = np.minimum(CARDINALITIES, most_rows).astype(np.float64)
        self.batch_size, self.schema = batch_size, Schema(ColumnSchema(n, "int64", role="categorical") for n in NAMES)
        self.items = []
        for _ in range(count):
            draws = rng.random((26, batch_size))
            ids = np.minimum(
                np.exp(draws * np.log(tops[:, None] + 1)).astype(np.int64) - 1, tops[:, None].astype(int) - 1
            )
            self.items.append(
                ({n: torch.from_numpy(c) for n, c in zip(NAMES, ids, strict=True)}, torch.zeros(batch_size))
            )

    def take(self, count: int) -> list[Any]:
        return [self.items[i % len(self.items)] for i in range(count)]


class Waiting(torch.nn.Module):
    """A dense model that computes elsewhere: it takes its time and gives every embedding the same gradient."""

    categorical, embedding_dim = NAMES, DIM

    def __init__(self, schema: Schema, seconds: float) -> None:
        super().__init__()
        self.schema, self.seconds = schema, seconds

    def forward(self, dense: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        return _Wait.apply(embeddings, self.seconds)


class _Wait(torch.autograd.Function):
    """A third of the time forward, two thirds backward."""

    @staticmethod
    def forward(context: Any, embeddings: torch.Tensor, seconds: float) -> torch.Tensor:
        context.seconds, context.gradient = seconds, _gradient(embeddings.shape)
        time.sleep(seconds / 3)
        return embeddings.new_zeros(())

    @staticmethod
    def backward(context: Any, *_: Any) -> tuple[torch.Tensor, None]:
        time.sleep(2 * context.seconds / 3)
        return context.gradient.view(context.gradient.shape), None  # a view is taken over, not copied


_GRADIENTS: dict[Any, torch.Tensor] = {}


def _gradient(shape: Any) -> torch.Tensor:
    """Made once: a device would write it, not this CPU."""
    if shape not in _GRADIENTS:
        _GRADIENTS[shape] = torch.full(shape, 1e-3)
    return _GRADIENTS[shape]


def run_context(store: Any, batches: Batches, staleness: int, seconds: float, steps: int) -> None:
    model = Waiting(batches.schema, seconds)
    with TrainContext(model, store, None, staleness=staleness) as ctx:
        for batch in ctx.batches(batches.take(steps)):
            output, _ = ctx.forward(batch)
            ctx.backward(output)


def run_store(store: Any, batches: Batches, steps: int) -> None:
    """The store's work by itself."""
    for ids, _ in batches.take(steps):
        found = store.lookup(ids)
        store.update(found, _gradient(found.packed.shape))


def run_dense(batches: Batches, steps: int) -> None:
    """The dense step by itself, with embeddings that are there already."""
    model = Waiting(batches.schema, DENSE_SECONDS)
    embeddings = torch.zeros(batches.batch_size, 26, DIM)
    for _ in range(steps):
        model(torch.empty(0), embeddings.detach().requires_grad_()).backward()


def new_store(make: Callable[..., Any] = Store, **settings: Any) -> Any:
    return make([SlotConfig(name, DIM) for name in NAMES], Adagrad(lr=0.01), **settings)


def overlap(batch_size: int, most_rows: int, rounds: int) -> Claim:
    with new_store() as store:
        batches = Batches(batch_size, 16, most_rows)
        for _ in range(3):
            run_store(store, batches, 16)  # all rows are there: growing tables is no part of the claim
        times = best_of(
            {
                "staleness 4": lambda: run_context(store, batches, 4, DENSE_SECONDS, STEPS),
                "synchronous": lambda: run_context(store, batches, 1, DENSE_SECONDS, STEPS),
                "store": lambda: run_store(store, batches, STEPS),
                "dense": lambda: run_dense(batches, STEPS),
            },
            rounds,
        )
    dense, work = times["dense"] / STEPS, times["store"] / STEPS
    longer = max(dense, work)
    return Claim(
        "hybrid/overlap",
        "s/step",
        times["staleness 4"] / STEPS,
        {"limit": longer, "synchronous": times["synchronous"] / STEPS},
        higher_is_better=False,
        extra={"batch_size": batch_size, "dense_seconds": float(f"{dense:.4g}"), "store_seconds": float(f"{work:.4g}"),
               "times_the_longer": float(f"{times['staleness 4'] / STEPS / longer:.4g}")},
    )  # fmt: skip


def ray_stages(store: Any, batches: Batches, steps: int) -> dict[str, float]:
    """Milliseconds of a step on Ray by stage, measured around the client's own functions."""
    import ray

    seconds: dict[str, float] = defaultdict(float)

    def watched(owner: type, name: str, stage: str | None) -> Any:
        real = getattr(owner, name)

        def run(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return real(*given, **named)
            finally:
                seconds[stage or f"{given[1].method}_at_shards"] += time.perf_counter() - began

        return mock.patch.object(owner, name, run)

    with ExitStack() as stack:
        for owner, name, stage in (
            (RoutedBatch, "__init__", "number_and_route"),
            (RoutedBatch, "pool_rows", "pool"),
            (RoutedBatch, "sum_gradients", "sum"),
            (ShardCalls, "wait", None),
        ):
            stack.enter_context(watched(owner, name, stage))
        run_store(store, batches, steps)
    nothing = (np.zeros(len(NAMES), np.int64), np.empty(0, np.uint64), False)
    began = time.perf_counter()
    for _ in range(steps):
        store._calls.call("lookup", lambda *_: nothing)
    seconds["empty_call"] = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(steps):
        ray.get([shard.ping.remote() for shard in store._calls.shards])
    seconds["empty_call_of_ray"] = time.perf_counter() - began
    return {stage: float(f"{1e3 * spent / steps:.3g}") for stage, spent in seconds.items()}


class OneAtATime:
    """A store on Ray that is called as one in this process: every call is answered before the next is sent."""

    on_host = True
    updates_in_backward = capturable = False

    def __init__(self, store: Any) -> None:
        self.names, self.dims, self._counters = store.names, store.dims, store._counters
        self.lookup, self.update, self.stats = store.lookup, store.update, store.stats
        self.save, self.load, self.close = store.save, store.load, store.close


def calls_in_flight(store: Any, batches: Batches, rounds: int, steps: int = 30) -> dict[str, dict[str, float]]:
    """Milliseconds of a training step on Ray, with several calls in flight and with one."""
    found: dict[str, dict[str, float]] = {}
    homes = {"several": store, "one": OneAtATime(store)}
    for name, staleness, dense in (
        ("staleness_1", 1, 0.010),
        ("staleness_4_no_dense", 4, 0.0),
        ("staleness_4", 4, 0.010),
    ):
        times = best_of(
            {
                how: lambda h=home, k=staleness, s=dense: run_context(h, batches, k, s, steps)
                for how, home in homes.items()
            },
            rounds,
        )
        found[name] = {how: float(f"{1e3 * spent / steps:.4g}") for how, spent in times.items()}
    return found


def ray_store(most_rows: int, rounds: int) -> Claim:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, namespace="penstock")
    try:
        with new_store() as local, new_store(RayStore, num_shards=2) as sharded:
            rates, calls = {}, {}
            for batch_size, steps in ((65_536, 3), (8_192, 8)):
                batches = Batches(batch_size, 4, most_rows)
                for store in (local, sharded):
                    run_store(store, batches, 4)
                times = best_of(
                    {
                        "process": lambda b=batches, s=steps: run_store(local, b, s),
                        "ray": lambda b=batches, s=steps: run_store(sharded, b, s),
                    },
                    rounds,
                )
                rates[batch_size] = {home: batch_size * steps / t for home, t in times.items()}
                calls[batch_size] = {home: 1e3 * t / steps for home, t in times.items()}
            stages = ray_stages(sharded, batches, 40)  # of the smaller batches
            training = calls_in_flight(sharded, batches, rounds)
    finally:
        ray.shutdown()
    large, small = rates[65_536], calls[8_192]
    return Claim(
        "hybrid/ray",
        "rows/s",
        large["ray"],
        {"in_process": large["process"]},
        extra={"batch_size": 65_536, "shards": 2,
               "milliseconds_a_step_at_8192": {home: float(f"{value:.4g}") for home, value in small.items()},
               "stages_at_8192": stages,
               "training_at_8192": training,
               "rows_per_second_at_8192": {home: float(f"{value:.4g}") for home, value in rates[8_192].items()}},
    )  # fmt: skip


def fitting_batch(most_rows: int) -> int:
    """The batch size at which the store's work takes about as long as the dense step."""
    with new_store() as store:
        batches = Batches(8_192, 4, most_rows)
        run_store(store, batches, 8)
        seconds = best_of({"store": lambda: run_store(store, batches, 8)}, 3)["store"] / 8
    return max(1024, int(8_192 * DENSE_SECONDS / seconds) // 1024 * 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000, help="most rows of a table")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--batch-size", type=int, help="for the overlap; chosen to match the dense step by default")
    parser.add_argument("--no-ray", action="store_true")
    given = parser.parse_args()
    claims = [overlap(given.batch_size or fitting_batch(given.rows), given.rows, given.rounds)]
    if not given.no_ray:
        claims.append(ray_store(given.rows, given.rounds))
    report("Hybrid training", claims)
    for claim in claims:
        print(f"# {claim.name}: {claim.extra}")


if __name__ == "__main__":
    main()
