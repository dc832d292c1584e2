"""Tables behind a cache on one GPU: python benchmarks/gpu_cache.py [--tables-gib 8] [--cache-gib 2] [--dim 16]

Claim `gpu/cache`: rows/s of training with `CachedEmbeddings` against the same tables as `FusedEmbeddings`, all of them
on the GPU, in the same run, in turns. The model is that of `criteo_h200.py` with its tables scaled to `--tables-gib`;
ids follow a Zipf law with exponent `--zipf` (P(k) ~ k^-s in every table). The cache is in its steady state: batches
that fill it come first, and the store holds every row, as after loading a checkpoint. With `--cold` it holds none, so
most of what is brought in is new. A breakdown by stage follows, measured without overlap.

With `--ids hashed` they have no vocabulary: claim `gpu/cache, hashed`, against `HashedEmbeddings` with all rows on the
GPU. `--max-rows` bounds the rows of both; where it is below those of the tables, rows go and come anew all the while.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time

from criteo_model import DIM, NUMBERS, SIZES, every_row, model_over
from harness import Claim, report

GIB = 2**30


def row_bytes(dim: int) -> int:
    return dim * 4 + 4  # row-wise Adagrad


def scaled_sizes(gib: float, dim: int) -> list[int]:
    factor = gib * GIB / row_bytes(dim) / sum(SIZES)
    return [max(4, int(size * factor)) for size in SIZES]


def zipf_ids(torch, rows: int, sizes: list[int], exponent: float):
    """One batch of ids, column by column, as the loader lays them out."""
    columns = []
    for size in sizes:
        draw = torch.rand(rows, device="cuda", dtype=torch.float64)
        if exponent == 1.0:
            rank = float(size) ** draw
        else:
            rank = ((float(size) ** (1 - exponent) - 1) * draw + 1) ** (1 / (1 - exponent))
        columns.append((rank - 1).long().clamp_(0, size - 1).int())
    return torch.stack(columns).t()


class Job:
    """A model on some tables, its step, and a supply of batches that never repeats before it must."""

    def __init__(self, torch, tables, rows: int) -> None:
        from penstock.train.executors.device_step import DeviceStep

        self.torch, self.tables, self.rows, self.at = torch, tables, rows, 0
        self.step = DeviceStep(model_over(torch, tables), autocast=torch.bfloat16)

    def seconds(self, ids: list, rest: tuple, count: int) -> float:
        """The time of `count` steps."""
        from penstock.embedding import prefetched

        chosen = [(ids[(self.at + i) % len(ids)], *rest) for i in range(count)]
        self.at += count
        self.torch.cuda.synchronize()
        start = time.perf_counter()
        for batch in prefetched(chosen, *([self.tables] if hasattr(self.tables, "prefetch") else [])):
            self.step(*batch)
        self.torch.cuda.synchronize()
        return time.perf_counter() - start


def stages(job: Job, ids: list, rest: tuple, count: int) -> dict[str, float]:
    """Milliseconds a batch by stage of bringing rows in, with nothing else going on; `step` is the training step."""
    torch, tables = job.torch, job.tables
    together = tables.batches_to_prefetch(ids[0])
    before, step, groups = dict(tables.stats()["seconds"]), 0.0, -(-count // together)
    for _ in range(groups):
        group = [ids[(job.at + i) % len(ids)] for i in range(together)]
        job.at += together
        torch.cuda.synchronize()
        tables.prefetch(*group)
        tables.stats()  # waits
        tables.prefetch(None)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for batch in group:
            job.step(batch, *rest)
        torch.cuda.synchronize()
        step += time.perf_counter() - start
    after, batches = tables.stats()["seconds"], groups * together
    return {**{k: 1e3 * (after[k] - before[k]) / batches for k in after}, "step": 1e3 * step / batches}


def measure(torch, rows: int, tables: dict, options, sizes: list[int], rounds: int = 3) -> Claim:
    torch.manual_seed(0)
    warm = -(-options.warm_rows // rows)
    timed = max(20, options.timed_rows // rows)
    ids = [zipf_ids(torch, rows, sizes, options.zipf) for _ in range(warm + rounds * timed + 30)]
    rest = torch.randn(NUMBERS, rows, device="cuda").t(), (torch.rand(rows, device="cuda") < 0.25).float()
    jobs = {name: Job(torch, one, rows) for name, one in tables.items()}
    jobs["on_gpu"].seconds(ids, rest, 6)
    began = time.perf_counter()
    cold = jobs["cached"].seconds(ids, rest, 10)
    jobs["cached"].seconds(ids, rest, max(warm - 10, 10))
    print(f"batch {rows:,}: warmed with {warm} batches in {time.perf_counter() - began:.1f} s", flush=True)
    before, best = tables["cached"].stats(), {name: float("inf") for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            spent = job.seconds(ids, rest, timed) / timed
            best[name] = min(best[name], spent)
            print(f"  {name}: {rows / spent / 1e6:.1f} M rows/s, {1e3 * spent:.2f} ms a step", flush=True)
    after = tables["cached"].stats()
    batches = after["batches"] - before["batches"]
    per = {k: (after[k] - before[k]) / batches for k in ("ids", "brought_in", "first_seen", "written_back", "deferred")}
    overlapped = {k: round(1e3 * (after["seconds"][k] - before["seconds"][k]) / batches, 3) for k in after["seconds"]}
    distinct = sum(len(torch.unique(ids[0][:, f])) for f in range(len(sizes)))
    print(f"  per batch: {per}, distinct {distinct}; ms by stage beside the step: {overlapped}", flush=True)
    alone = {k: round(v, 3) for k, v in stages(jobs["cached"], ids, rest, 10).items()}
    print(f"  ms by stage alone: {alone}", flush=True)
    tables["cached"].check_ids()
    extra = {
        "batch": rows, "dim": options.dim, "zipf": options.zipf, "table_rows": sum(sizes),
        "cache_rows": len(tables["cached"].weight),
        "ids": round(per["ids"]), "distinct": distinct, "brought_in": round(per["brought_in"]),
        "first_seen": round(per["first_seen"]), "id_hit_rate": round(1 - per["brought_in"] / per["ids"], 4),
        "cold": options.cold, "together": tables["cached"].batches_to_prefetch(ids[0]), "stages_ms": alone,
        "first_ten_batches": round(10 * rows / cold),
    }  # fmt: skip
    claim = "gpu/cache"
    if tables["cached"].is_hashed:
        claim += ", hashed"
        extra |= {"max_rows": options.max_rows, "evicted": after["evicted"] - before["evicted"]}
    return Claim(claim, "rows/s", rows / best["cached"], {"on_gpu": rows / best["on_gpu"]}, extra=extra)


def both_kinds(options, sizes: list[int], is_hashed: bool) -> dict:
    """The same tables behind a cache and all on the GPU, every row known to both unless `--cold`."""
    from penstock.embedding import CachedEmbeddings, FusedEmbeddings, HashedEmbeddings

    cache_rows = int(options.cache_gib * GIB / row_bytes(options.dim))
    settings = {"dim": options.dim, "lr": 0.01, "output": "concat", "align": 16, "device": "cuda"}
    if not is_hashed:
        on_gpu = FusedEmbeddings(sizes, **settings)
        cached = CachedEmbeddings(sizes, cache_rows=cache_rows, **settings)
    else:
        names, total = [f"c{i}" for i in range(len(sizes))], sum(sizes)
        bound = {"max_rows": options.max_rows, "seed": 0}
        room = max(options.batch) * len(sizes)
        most = total if options.max_rows is None else min(total, options.max_rows)
        on_gpu = HashedEmbeddings(names, capacity=most + room, **settings, **bound)
        cached = CachedEmbeddings(names, cache_rows=cache_rows, hashed=True, **settings, **bound)
        if not options.cold:
            on_gpu.load_state_dict({**on_gpu.state_dict(), **every_row(sizes, options.dim)})
    if not options.cold:
        began = time.perf_counter()
        cached.load_state_dict(on_gpu.state_dict())
        print(f"loaded {cached.num_rows:,} rows in {time.perf_counter() - began:.1f} s", flush=True)
    return {"cached": cached, "on_gpu": on_gpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", nargs="+", type=int, default=[400_000, 65_536])
    parser.add_argument("--tables-gib", type=float, default=8)
    parser.add_argument("--cache-gib", type=float, default=2)
    parser.add_argument("--dim", type=int, default=DIM)
    parser.add_argument("--zipf", type=float, default=1.0)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--ids", nargs="+", choices=["known", "hashed"], default=["known"])
    parser.add_argument("--max-rows", type=int, default=None, help="of hashed ids: rows that stay")
    parser.add_argument(
        "--together",
        nargs="+",
        type=int,
        default=[None],
        help="batches announced together; by default the tables decide",
    )
    parser.add_argument("--warm-rows", type=int, default=48_000_000)
    parser.add_argument("--timed-rows", type=int, default=16_000_000)
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("benchmarks/gpu_cache.py needs a CUDA device; there is none here")
        sys.exit(0)
    sizes = scaled_sizes(options.tables_gib, options.dim)
    claims = []
    for kind in options.ids:
        tables = both_kinds(options, sizes, kind == "hashed")
        for rows in options.batch:
            for tables["cached"].prefetch_batches in options.together:
                claims.append(measure(torch, rows, tables, options, sizes))
        tables.clear()
        gc.collect()
        torch.cuda.empty_cache()
    title = f"{options.tables_gib:g} GiB of tables behind a cache of {options.cache_gib:g} GiB"
    report(f"{title}, {torch.cuda.get_device_name()}", claims)


if __name__ == "__main__":
    main()
