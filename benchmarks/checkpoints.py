"""How long a checkpoint holds up training: `python benchmarks/checkpoints.py [--rows N] [--no-ray]`.

Steps at batch 8,192 over 26 slots of dimension 16, with a dense part of 10 ms that leaves the CPU free, `staleness=4`
and a checkpoint every 20 steps, in turns: without checkpoints, with each written before training goes on (`at_once`),
and beside training (`Checkpointer(asynchronous=True)`): whole ones (`beside`), and ones of what changed (`changes`).

`checkpoint/in_process` and `checkpoint/ray`: seconds by which a whole checkpoint beside training holds training up (its
step and the next, in which look-ups are made again, less two median ones), the median over all checkpoints of the run.
Peers: `limit`, one thread that copies as many bytes as the rows and their optimizer state take into fresh memory, and
`at_once`. `steps` has, for each way, the median and the longest step in milliseconds, the same figure for being held
up, and how long a checkpoint took to be whole.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hybrid
import numpy as np
from harness import Claim, best_of, report

from penstock.embedding import RayStore
from penstock.train import Checkpointer, TrainContext

DENSE_SECONDS, STALENESS = 0.010, 4
WAYS: dict[str, dict[str, Any]] = {
    "at_once": {},
    "beside": {"asynchronous": True},
    "changes": {"asynchronous": True, "full_every": 10**6},
}


@dataclass
class Way:
    """What steps with checkpoints of one kind took."""

    seconds: list[float] = field(default_factory=list)
    held_up: list[float] = field(default_factory=list)
    whole_after: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        found = {"median_ms": 1e3 * statistics.median(self.seconds), "longest_ms": 1e3 * max(self.seconds)}
        if self.held_up:
            found["held_up_ms"] = 1e3 * statistics.median(self.held_up)
            found["whole_after_ms"] = 1e3 * statistics.median(self.whole_after)
        return {name: float(f"{value:.4g}") for name, value in found.items()}


def run(ctx: TrainContext, batches: Any, steps: int, every: int, saver: Checkpointer | None, way: Way) -> None:
    """Steps as `fit` takes them, and what each of them took."""
    seconds, saved_in = [], []
    last = time.perf_counter()
    for number, batch in enumerate(ctx.batches(batches.take(steps)), 1):
        output, _ = ctx.forward(batch)
        ctx.backward(output)
        if saver is not None and number % every == every // 2 and not saver.is_writing():
            saved_in.append(number - 1)
            _save(saver, ctx, way)
        now = time.perf_counter()
        seconds.append(now - last)
        last = now
    usual = statistics.median(seconds)
    way.seconds += seconds
    way.held_up += [sum(seconds[step : step + 2]) - 2 * usual for step in saved_in]
    if saver is not None:
        saver.wait()


def _save(saver: Checkpointer, ctx: TrainContext, way: Way) -> None:
    began = time.perf_counter()
    saver.save(ctx)

    def whole(_: Future[None] | None = None) -> None:
        way.whole_after.append(time.perf_counter() - began)

    whole() if saver._under_way is None else saver._under_way[1].add_done_callback(whole)


def all_ways(store: Any, batches: Any, folder: Path, rounds: int, steps: int, every: int) -> dict[str, Way]:
    """Every way in turns, over the same store."""
    found = {name: Way() for name in ("none", *WAYS)}
    model = hybrid.Waiting(batches.schema, DENSE_SECONDS)
    with TrainContext(model, store, None, staleness=STALENESS) as ctx:
        run(ctx, batches, 2 * every, every, None, Way())
        for turn in range(rounds):
            run(ctx, batches, steps, every, None, found["none"])
            for name, settings in WAYS.items():
                place = folder / f"{name}-{turn}"
                saver = Checkpointer(place, **settings)
                if "full_every" in settings:  # the whole one that the others build on
                    saver.save(ctx)
                    saver.wait()
                run(ctx, batches, steps, every, saver, found[name])
                shutil.rmtree(place)
    return found


def claim(name: str, store: Any, batches: Any, given: argparse.Namespace) -> Claim:
    hybrid.run_store(store, batches, len(batches.items))  # all rows are there
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        found = all_ways(store, batches, Path(folder), given.rounds, given.steps, given.every)
    payload = store.stats()["payload_bytes"]
    there = np.ones(payload // 4, np.float32)
    copy = best_of({"copy": there.copy}, 5)["copy"]
    return Claim(
        f"checkpoint/{name}",
        "s",
        statistics.median(found["beside"].held_up),
        {"limit": copy, "at_once": statistics.median(found["at_once"].held_up)},
        higher_is_better=False,
        extra={"payload_mb": payload // 10**6, "steps": {way: taken.figures() for way, taken in found.items()}},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="most rows of a table")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--folder", help="where checkpoints go; that of temporary files by default")
    parser.add_argument("--no-ray", action="store_true")
    given = parser.parse_args()
    batches = hybrid.Batches(8_192, 64, given.rows)
    with hybrid.new_store() as store:
        claims = [claim("in_process", store, batches, given)]
    if not given.no_ray:
        import ray

        with ExitStack() as stack:
            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, namespace="penstock")
            stack.callback(ray.shutdown)
            store = stack.enter_context(hybrid.new_store(RayStore, num_shards=2))
            claims.append(claim("ray", store, batches, given))
    report("Checkpoints beside training", claims)


if __name__ == "__main__":
    main()
