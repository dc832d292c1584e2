"""What standbys cost a step: `python benchmarks/standbys.py [--rows N] [--turns N]`.

`hybrid/standbys`: processor time of a training step at batch 8,192 and `staleness=4` on two shards, of the client and
the shards that answer it, with standbys (`replicas=2`), beside a store without (`without`). Standbys are to have cores
of their own. This machine may have none for them, so their work is kept apart by time: they are stopped while some
steps are made and counted, and catch up before the next ones, which begin with reading their acknowledgements. What
is counted is what client and shards do for standbys, and that shared memory is read by one process more; what is not is
that standbys take caches and memory from others at the same moment. `times` is the median of the ratios inside a turn
and `quartiles` those of the ratios. `beside` has the same figures where standbys run when they like, on the same cores,
and `of_standbys` what those spend themselves.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import hybrid
from harness import Claim, report

from penstock.embedding import RayStore
from penstock.train import TrainContext

BATCH, STALENESS = 8_192, 4
STEPS = 3  # between two moments in which standbys catch up: they may be four messages behind
SETTLING = 0.02  # seconds for look-ups ahead, after the last update


class Training:
    """A training that goes on for so many steps at a time, and what its processes have used."""

    def __init__(self, stack: ExitStack, batches: hybrid.Batches, replicas: int) -> None:
        import ray

        self._ray = ray
        self.store = stack.enter_context(hybrid.new_store(RayStore, num_shards=2, replicas=replicas))
        while self.store.stats()["standbys"] < 2 * (replicas - 1):
            time.sleep(0.05)
        model = hybrid.Waiting(batches.schema, 0.0)
        self._context = stack.enter_context(TrainContext(model, self.store, None, staleness=STALENESS))
        self._batches = iter(self._context.batches(endless(batches)))
        self.step(4 * len(batches.items))  # every row and every line is there
        self.shards, every = self.store._calls.shards, self.store.processes().values()
        self.primaries = ray.get([shard.ping.remote() for shard in self.shards])
        self.others = [actor for actor in every if actor not in self.shards]
        self.standbys = ray.get([actor.ping.remote() for actor in self.others])

    def step(self, count: int = STEPS) -> None:
        for _ in range(count):
            output, _ = self._context.forward(next(self._batches))
            self._context.backward(output)
        self._context.drain()
        time.sleep(SETTLING)

    def catch_up(self) -> None:
        """Wait until standbys have done what their shards did."""
        while self.others and self._updates(self.others) != self._updates(self.shards):
            time.sleep(0.01)

    def _updates(self, actors: Iterable[Any]) -> list[int]:
        return [found["updates"] for found in self._ray.get([actor.figures.remote() for actor in actors])]


def endless(batches: hybrid.Batches) -> Iterator[Any]:
    while True:
        yield from batches.items


def seconds_of(processes: Iterable[int]) -> float:
    """What processes have used so far, with threads that ended."""
    return sum(time.clock_gettime((~process << 3) | 2) for process in processes)


@contextmanager
def halted(processes: Iterable[int]) -> Iterator[None]:
    try:
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


def milliseconds(training: Training, apart: bool) -> tuple[float, float]:
    """Of a step: client and shards, and standbys."""
    own, theirs = [os.getpid(), *training.primaries], training.standbys
    training.catch_up()
    before = seconds_of(own), seconds_of(theirs)
    with halted(theirs if apart else ()):
        training.step()
        used = seconds_of(own) - before[0]
    training.catch_up()
    return 1e3 * used / STEPS, 1e3 * (seconds_of(theirs) - before[1]) / STEPS


def measured(rows: int, turns: int) -> Claim:
    batches = hybrid.Batches(BATCH, 16, rows)
    spent = defaultdict(list)
    with ExitStack() as stack:
        one, two = Training(stack, batches, 1), Training(stack, batches, 2)
        for _ in range(turns):
            for name, training, apart in (("without", one, True), ("with", two, True), ("beside", two, False)):
                used, theirs = milliseconds(training, apart)
                spent[name].append(used)
                spent[f"{name} of standbys"].append(theirs)
        if two.store.stats()["standbys"] < 2:
            raise SystemExit("a standby was given up meanwhile: the machine has too much other work")

    def more(name: str) -> dict[str, Any]:
        ratios = [two / one for one, two in zip(spent["without"], spent[name], strict=True)]
        quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        own, theirs = statistics.median(spent[name]), statistics.median(spent[f"{name} of standbys"])
        return {"times": float(f"{quartiles[1]:.4g}"), "quartiles": [float(f"{q:.4g}") for q in quartiles[::2]],
                "own_ms": float(f"{own:.4g}"), "of_standbys_ms": float(f"{theirs:.4g}")}  # fmt: skip

    return Claim(
        "hybrid/standbys",
        "ms/step",
        statistics.median(spent["with"]),
        {"without": statistics.median(spent["without"])},
        higher_is_better=False,
        extra={"batch_size": BATCH, "shards": 2, "turns": turns, **more("with"), "beside": more("beside")},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000, help="most rows of a table")
    parser.add_argument("--turns", type=int, default=60)
    given = parser.parse_args()
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, namespace="penstock")
    try:
        claims = [measured(given.rows, given.turns)]
    finally:
        ray.shutdown()
    report("Standbys", claims)


if __name__ == "__main__":
    main()
