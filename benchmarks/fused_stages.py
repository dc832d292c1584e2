"""The stages of a fused embedding step on a GPU, each alone: python benchmarks/fused_stages.py [--batch N] [--tune]

Claim `gpu/stages` (milliseconds; look-up, sort, update). Ids are log-uniform over 26 tables with the cardinalities of
the Criteo terabyte data, hot ids included: tables of four rows have each row a hundred thousand times in a batch.
"""

from __future__ import annotations

import argparse
import itertools
import sys

from harness import Claim, report

from penstock.data.synthetic import CARDINALITIES
from penstock.kernels.optimizer_formulas import Rule

SIZES, DIM = CARDINALITIES["terabyte"], 16


def log_uniform_ids(torch, rows: int, generator=None):
    """(26, rows) int32, as a packed batch lies."""
    columns = []
    for size in SIZES:
        draw = torch.rand(rows, device="cuda", generator=generator, dtype=torch.float64)
        columns.append((float(size) ** draw - 1).long().clamp_(0, size - 1).int())
    return torch.stack(columns)


def milliseconds(torch, work, repeats: int = 20) -> float:
    """Mean time on the device after a warm-up."""
    for _ in range(3):
        work()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / repeats


class Stages:
    """Tensors of one batch, and the calls to time."""

    def __init__(self, torch, rows: int, kind: str) -> None:
        from penstock.kernels import gpu_embedding

        self.kernels, self.rule = gpu_embedding, Rule(kind)
        options = {"device": "cuda"}
        self.weight = torch.randn(sum(SIZES), DIM, **options)
        shapes = self.rule.states(DIM)
        self.states = tuple(None if s is None else torch.zeros((len(self.weight), *s), **options) for s in shapes)
        sizes = torch.tensor(SIZES, **options)
        starts = sizes.cumsum(0) - sizes
        numbers = torch.arange(26, **options)
        self.features = torch.stack([starts, sizes, numbers, DIM * numbers], 1).contiguous()
        self.ids = log_uniform_ids(torch, rows).t()
        self.out = torch.empty(rows, 26 * DIM + 16, dtype=torch.bfloat16, **options)
        self.gradient = torch.randn(rows, 26 * DIM + 16, **options).bfloat16()
        none = torch.empty(0, dtype=torch.int32, **options)
        self.unscale, self.skipped = torch.ones(1, **options), torch.zeros(1, dtype=torch.int64, **options)
        self.occurrences = torch.empty(26 * rows, dtype=torch.int32, **options), none, none.float()
        self.errors = torch.zeros(1, dtype=torch.int64, **options)
        self.rates, self.steps = torch.full((3,), 0.01, **options), torch.ones((), dtype=torch.int64, **options)
        self.look_up()
        self.sort()

    def look_up(self) -> None:
        self.kernels.look_up(
            self.weight, self.features, self.ids, None, "sum", self.out, self.errors, self.occurrences,
            unit=DIM,
        )  # fmt: skip

    def sort(self) -> None:
        self.in_order = self.kernels.sort(self.occurrences[0])

    def update(self) -> None:
        self.kernels.update(
            self.rule, self.weight, self.states, self.features, self.in_order, None, self.gradient, 26, self.rates,
            self.steps, self.unscale, self.skipped, unit=DIM,
        )  # fmt: skip


def tune(torch, stages: Stages) -> None:
    """Times for other block shapes than the kernels' own."""
    kernels = stages.kernels
    own = kernels.tiles_for

    def with_tiles(**changes: int) -> None:
        kernels.tiles_for = lambda width, num: own(width, num)._replace(**changes)

    for rows in (32, 64, 128, 256):
        with_tiles(look_up=rows)
        print(f"look-up, {rows} rows a program: {milliseconds(torch, stages.look_up):.3f} ms")
    for chunk, group, warps in itertools.product((16, 32, 64), (8, 16, 32), (1, 2, 4)):
        with_tiles(chunk=chunk, group=group, group_warps=warps)
        whole = milliseconds(torch, stages.update)
        print(f"update, chunks of {chunk}, groups of {group} with {warps} warps: {whole:.3f} ms", flush=True)
    kernels.tiles_for = own
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        stages.look_up()
        stages.sort()
        stages.update()
        torch.cuda.synchronize()
    for event in sorted(profile.key_averages(), key=lambda e: -e.device_time_total)[:12]:
        print(f"  {event.device_time_total:9.1f} us  {event.count} × {event.key[:90]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=400_000)
    parser.add_argument("--optimizer", default="adagrad_row")
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("benchmarks/fused_stages.py needs a CUDA device; there is none here")
        sys.exit(0)
    stages = Stages(torch, options.batch, options.optimizer)
    if options.tune:
        tune(torch, stages)
        return
    times = {name: milliseconds(torch, getattr(stages, name)) for name in ("look_up", "sort", "update")}
    row = torch.nn.functional.embedding(stages.ids.long() + stages.features[:, 0], stages.weight)
    del row
    plain = milliseconds(
        torch, lambda: torch.nn.functional.embedding(stages.ids.long() + stages.features[:, 0], stages.weight), 5
    )
    report(
        f"Stages of a fused step on {torch.cuda.get_device_name()}, batch {options.batch:,}, 26 tables, dim {DIM}",
        [
            Claim("gpu/look_up", "ms", times["look_up"], {"torch_dense": plain}, higher_is_better=False),
            Claim("gpu/stages", "ms", sum(times.values()), {}, higher_is_better=False,
                  extra={name: round(value, 3) for name, value in times.items()}),
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
