"""Machines, memory, network and hours for Criteo-1TB: `python benchmarks/sizing.py [--nodes 1 8 64] [--chart FILE]`.

Measured here, on one machine: CPU seconds a row (an example) of the client, the shards and the dense model, distinct
ids a row, bytes on the wire a row, memory a row of the tables. Everything else is arithmetic on these figures and on
what a node is said to be (`--cores`, `--memory`, `--network`), in `Plan`, and marked "simulated". CPU time is what the
system charged, so that other work on the machine does not count. Ids are log-uniform over tables of MLPerf's sizes.

What the arithmetic leaves out: sending arrays to other machines costs CPU that shared memory on one machine does not
(`--remote` says how much more a row costs then), cores beyond the first few share memory bandwidth (`--efficiency`),
and a step waits for the slowest node (a simulation with steps that vary by `--variation`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
import torch
from harness import Claim, report
from line_chart import draw

from penstock import ColumnSchema, Schema
from penstock.embedding import Adagrad, RayStore, SlotConfig
from penstock.nn import DLRM

SIZES = [
    40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282, 10, 2_209, 11_938,
    155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108, 36,
]  # fmt: skip
ROWS, NUMBERS, SHARDS = 4_200_000_000, 13, 2  # of Criteo-1TB: 24 days, 13 numbers
NAMES = [f"C{number + 1}" for number in range(len(SIZES))]
SIGN = 8  # bytes of an id on the wire
LIMITS = ("cores", "network")


@dataclass(frozen=True)
class Measured:
    """One machine's figures; CPU in seconds of one core."""

    client_cpu: float  # a row: numbering, pooling, summing gradients, talking to shards
    shard_cpu: float  # a row: at all shards together
    dense_cpu: float  # a row: the dense model, forward, backward and Adam
    distinct: float  # ids a row that are sent: each once a batch
    table_bytes: float  # of memory, a row of the tables
    parameters: int  # of the dense model


@dataclass(frozen=True)
class Node:
    """What a machine is said to be."""

    cores: int = 32
    memory: float = 256 * 2**30
    network: float = 25e9 / 8  # bytes a second, each way
    efficiency: float = 0.7  # of its cores, when all of them work
    remote: float = 1.5  # times what a row costs client and shards where they share no memory
    gpu: bool = True  # the dense model is computed by a GPU, which does not set the pace
    row_bytes: float = 160.0  # of features that are read from elsewhere: 26 ids, 13 numbers and a label


@dataclass(frozen=True)
class Plan:
    """A cluster, by arithmetic.

    >>> found = Measured(2e-6, 1e-6, 4e-6, 10.0, 100.0, 10**6)
    >>> one = Plan(found, Node(cores=10, efficiency=1.0), 1, 16, 8192, 2e9, 1, 1.0)
    >>> round(one.rows_per_second), one.bound_by, round(one.memory_a_node / 1e9)
    (3333333, 'cores', 200)
    """

    measured: Measured
    node: Node
    nodes: int
    dim: int
    batch: int  # rows of a node's share of a step
    table_rows: float
    replicas: int
    slowdown: float  # what waiting for the slowest node costs, from `wait_for_slowest`

    @property
    def away(self) -> float:
        """The share of the ids whose shard is on another node."""
        return (self.nodes - 1) / self.nodes

    @property
    def cpu_a_row(self) -> float:
        found = self.measured
        return (found.client_cpu + found.shard_cpu * self.replicas) * self.dearer + self.dense_cpu

    @property
    def bytes_a_row(self) -> float:
        """What a node sends, and receives, for each of its rows: ids and rows of look-ups, ids and sums of updates."""
        commands = self.measured.distinct * 2 * (SIGN + 4 * self.dim)
        standby = self.measured.distinct * (2 * SIGN + 4 * self.dim) * (self.replicas - 1)
        gradients = 2 * 4 * self.measured.parameters / self.batch  # all-reduce of the dense model
        return (commands + standby + gradients) * self.away + self.node.row_bytes

    @property
    def limits(self) -> dict[str, float]:
        """Rows a second of one node, by what allows no more."""
        cores = self.node.cores * self.node.efficiency / self.cpu_a_row
        return {"cores": cores, "network": self.node.network / self.bytes_a_row}

    @property
    def bound_by(self) -> str:
        return min(LIMITS, key=self.limits.__getitem__)

    @property
    def rows_per_second(self) -> float:
        return self.nodes * min(self.limits.values()) / self.slowdown

    @property
    def dearer(self) -> float:
        """Times what a row costs client and shards on one machine."""
        return 1 + (self.node.remote - 1) * self.away

    def busy(self, cpu_a_row: float) -> int:
        """Processes on all nodes that so much work a row keeps busy, each a core."""
        return max(self.nodes, math.ceil(self.rows_per_second * cpu_a_row / self.node.efficiency))

    @property
    def dense_cpu(self) -> float:
        return 0.0 if self.node.gpu else self.measured.dense_cpu

    @property
    def hours(self) -> float:
        return ROWS / self.rows_per_second / 3600

    @property
    def memory_a_node(self) -> float:
        return self.table_rows * self.measured.table_bytes * self.replicas / self.nodes

    def to_dict(self) -> dict[str, Any]:
        sent = self.rows_per_second / self.nodes * self.bytes_a_row * 8 / 1e9
        return {
            "nodes": self.nodes, "dim": self.dim, "replicas": self.replicas, "hours": round(self.hours, 3),
            "trainers": self.busy(self.measured.client_cpu * self.dearer + self.dense_cpu),
            "shards": self.busy(self.measured.shard_cpu * self.dearer),
            "rows_per_second": round(self.rows_per_second), "bound_by": self.bound_by,
            "memory_a_node_gib": round(self.memory_a_node / 2**30, 1), "fits": self.memory_a_node <= self.node.memory,
            "gbit_a_node": round(sent, 2), "slowdown": round(self.slowdown, 3), "simulated": True,
        }  # fmt: skip


def wait_for_slowest(nodes: int, variation: float, steps: int = 2000) -> float:
    """How many times its mean a step takes when all nodes wait for the slowest: a simulation of log-normal steps."""
    if nodes == 1 or not variation:
        return 1.0
    spread = np.sqrt(np.log1p(variation**2))
    drawn = np.random.default_rng(7).lognormal(-(spread**2) / 2, spread, (steps, nodes))
    return float(drawn.max(axis=1).mean())


# What is measured.


def batches(size: int, count: int) -> list[dict[str, np.ndarray]]:
    rng, tops = np.random.default_rng(5), np.array(SIZES, np.float64)[:, None]
    found = []
    for _ in range(count):
        ids = np.exp(rng.random((len(SIZES), size)) * np.log(tops + 1)).astype(np.int64) - 1
        found.append(dict(zip(NAMES, np.minimum(ids, (tops - 1).astype(np.int64)), strict=True)))
    return found


def cpu_of(process: int) -> float:
    """The seconds of CPU that a process has been charged."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_store(given: list[dict[str, np.ndarray]], dim: int, rounds: int) -> tuple[float, float, float]:
    """CPU seconds a row of the client and of its shards, and bytes a row of the tables."""
    import ray

    size = len(given[0][NAMES[0]])
    store = RayStore([SlotConfig(name, dim) for name in NAMES], Adagrad(lr=0.01), num_shards=SHARDS)
    gradient = np.full((size, dim * len(NAMES)), 1e-3, np.float32)

    def run() -> None:
        for ids in given:
            store.update(store.lookup(ids), gradient)

    run()  # rows appear, kernels are compiled
    shards = [ray.get(actor.ping.remote()) for actor in store.processes().values()]
    own, theirs = time.process_time(), sum(map(cpu_of, shards))
    for _ in range(rounds):
        run()
    rows = rounds * len(given) * size
    client, served = (time.process_time() - own) / rows, (sum(map(cpu_of, shards)) - theirs) / rows
    stats = store.stats()
    store.close()
    return client, served, stats["bytes"] / stats["rows"]


def measure_dense(size: int, dim: int, rounds: int) -> tuple[float, int]:
    """CPU seconds a row of DLRM with Adam, and its parameters."""
    torch.manual_seed(0)
    columns = [ColumnSchema(name, "int64", role="categorical") for name in NAMES]
    numbers = [ColumnSchema(f"I{n + 1}", "float32", role="continuous") for n in range(NUMBERS)]
    model = DLRM(Schema([*columns, *numbers]), dim)
    optimizer = torch.optim.Adam(model.parameters())
    dense, labels = torch.randn(size, NUMBERS), torch.rand(size).round()

    def step() -> None:
        embeddings = torch.zeros(size, len(NAMES), dim, requires_grad=True)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(dense, embeddings).view(-1), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return cpu_a_call(step, rounds) / size, sum(parameter.numel() for parameter in model.parameters())


def cpu_a_call(run: Callable[[], None], rounds: int) -> float:
    run()
    began = time.process_time()
    for _ in range(rounds):
        run()
    return (time.process_time() - began) / rounds


def measure(size: int, dim: int, rounds: int) -> Measured:
    given = batches(size, 4)
    distinct = np.mean([sum(len(np.unique(ids)) for ids in batch.values()) for batch in given]) / size
    client, shard, table_bytes = measure_store(given, dim, rounds)
    dense, parameters = measure_dense(size, dim, rounds)
    return Measured(client, shard, dense, float(distinct), table_bytes, parameters)


# What is shown.


def show(plans: list[Plan]) -> None:
    head = ("nodes", "copies", "trainers", "shards", "memory a node", "M rows/s", "hours", "Gbit/s a node", "bound by")
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for plan in plans:
        about = plan.to_dict()
        cells = (
            plan.nodes, plan.replicas, about["trainers"], about["shards"],
            f"{about['memory_a_node_gib']:.1f} GiB{'' if about['fits'] else ', too much'}",
            f"{plan.rows_per_second / 1e6:.2f}", f"{plan.hours:.2f}", about["gbit_a_node"], plan.bound_by,
        )  # fmt: skip
        print("| " + " | ".join(map(str, cells)) + " |")


def draw_plans(series: dict[str, list[Plan]], path: Path) -> None:
    points = {name: {plan.nodes: plan.hours for plan in plans} for name, plans in series.items()}
    x = "nodes (arithmetic on figures of one machine, not runs)"
    draw(points, path, x, "hours for 4.2 B rows", "h", dashed=True, log=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8192, help="rows of a trainer's share of a step")
    parser.add_argument("--dims", type=int, nargs="+", default=[16, 128])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--table-rows", type=float, default=float(sum(SIZES)))
    parser.add_argument("--cores", type=int, default=Node.cores)
    parser.add_argument("--memory", type=float, default=Node.memory / 2**30, help="GiB of a node")
    parser.add_argument("--network", type=float, default=Node.network * 8 / 1e9, help="Gbit/s of a node, each way")
    parser.add_argument("--efficiency", type=float, default=Node.efficiency)
    parser.add_argument("--remote", type=float, default=Node.remote)
    parser.add_argument("--variation", type=float, default=0.1, help="of a node's step, as a share of its mean")
    parser.add_argument("--chart", type=Path, help="an SVG to draw")
    options = parser.parse_args()
    given = (options.cores, options.memory * 2**30, options.network * 1e9 / 8, options.efficiency, options.remote)
    print(
        f"nodes of {options.cores} cores, {options.memory:.0f} GiB, {options.network:.0f} Gbit/s: arithmetic, no runs"
    )
    claims, lines, series = [], [], {}
    for dim in options.dims:
        found = measure(options.batch, dim, options.rounds)
        extra = {name: float(f"{value:.4g}") for name, value in vars(found).items()}
        claims.append(Claim(f"sizing/dim_{dim}", "CPU s a row", found.client_cpu + found.shard_cpu, {}, False, extra))
        for name, gpu, replicas in (("GPUs", True, 1), ("GPUs and standbys", True, 2), ("CPUs alone", False, 1)):
            plans = [
                Plan(found, Node(*given, gpu), count, dim, options.batch, options.table_rows, replicas,
                     wait_for_slowest(count, options.variation)) for count in options.nodes
            ]  # fmt: skip
            print(f"\ndim {dim}, {name}")
            show(plans)
            series[f"dim {dim}, {name}"] = plans
            lines += [{"plan": "sizing/cluster", "trained_by": name, **plan.to_dict()} for plan in plans]
    report("What one machine does", claims)
    print("\n".join(map(json.dumps, lines)))
    if options.chart is not None:
        draw_plans({name: plans for name, plans in series.items() if "standbys" not in name}, options.chart)


if __name__ == "__main__":
    main()
