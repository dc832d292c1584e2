"""Embedding look-up and training: `python benchmarks/embedding.py [--rows N] [--large] [--ray]`.

26 slots of dimension 16 with Criteo-like cardinalities (tables capped at 2 M rows), ids log-uniform, every batch
different. Penstock and every importable peer get the same batches and gradients; runs are interleaved and the best of
several counts. Peers hold dense tables and take row numbers; Penstock finds its rows by 64-bit ids.

Every peer runs at its best: the output memory of none is given back to the system between steps (the script restarts
itself with `MALLOC_MMAP_MAX_=0`), and FBGEMM, whose CPU build uses one core, has its tables divided over two threads.
`--large` fills a table of 50 M rows instead; `--ray` measures a store of two shards instead.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

CARDINALITIES = [
    10000000, 29612, 15050, 7190, 19547, 4, 6492, 1317, 63, 10000000, 707291, 218510, 11, 2209, 9798, 72, 4, 954, 15,
    10000000, 4553157, 10000000, 291641, 10904, 91, 35,
]  # fmt: skip
DIM = 16


def log_uniform_batches(rows: list[int], batch_size: int, count: int) -> list[np.ndarray]:
    """`count` arrays (slots, batch_size) of ids."""
    rng = np.random.default_rng(3)
    batches = []
    for _ in range(count):
        draws = rng.random((len(rows), batch_size))
        tops = np.array(rows, np.float64)[:, None]
        batches.append(np.minimum(np.exp(draws * np.log(tops + 1)).astype(np.int64) - 1, (tops - 1).astype(np.int64)))
    return batches


class Penstock:
    """The store, filled with every row of the tables."""

    def __init__(self, rows: list[int], row_wise: bool) -> None:
        from penstock.embedding import Adagrad, SlotConfig, Store

        self.names = [f"C{i + 1}" for i in range(len(rows))]
        self.store = Store([SlotConfig(name, DIM) for name in self.names], Adagrad(lr=0.01, row_wise=row_wise))
        for first in range(0, max(rows), 250_000):
            ids = {n: np.arange(first, first + 250_000) % top for n, top in zip(self.names, rows, strict=True)}
            self.store.lookup(ids)

    def batch(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip(self.names, ids, strict=True))

    def look_up(self, batch: dict[str, np.ndarray]) -> None:
        self.store.lookup(batch, train=False)

    def gradient(self, packed: np.ndarray) -> np.ndarray:
        return packed

    def train(self, batch: dict[str, np.ndarray], gradient: np.ndarray) -> None:
        self.store.update(self.store.lookup(batch), gradient)


class TorchSparse:
    """One `EmbeddingBag(sparse=True)` a slot with `torch.optim.Adagrad`; torch has no row-wise one."""

    def __init__(self, rows: list[int], row_wise: bool) -> None:
        import torch

        if row_wise:
            raise ImportError
        self.torch = torch
        self.tables = torch.nn.ModuleList([torch.nn.EmbeddingBag(top, DIM, mode="sum", sparse=True) for top in rows])
        self.optimizer = torch.optim.Adagrad(self.tables.parameters(), lr=0.01)

    def batch(self, ids: np.ndarray) -> list:
        offsets = self.torch.arange(ids.shape[1])
        return [(self.torch.from_numpy(column.copy()), offsets) for column in ids]

    def look_up(self, batch: list) -> None:
        with self.torch.no_grad():
            self.torch.cat([table(ids, at) for table, (ids, at) in zip(self.tables, batch, strict=True)], 1)

    def gradient(self, packed: np.ndarray) -> object:
        return self.torch.from_numpy(packed)

    def train(self, batch: list, gradient: object) -> None:
        outputs = self.torch.cat([table(ids, at) for table, (ids, at) in zip(self.tables, batch, strict=True)], 1)
        self.optimizer.zero_grad()
        outputs.backward(gradient)
        self.optimizer.step()


class Fbgemm:
    """FBGEMM's table-batched embeddings on the CPU: two halves of the tables, each driven by its own thread."""

    def __init__(self, rows: list[int], row_wise: bool) -> None:
        import torch
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
            ComputeDevice,
            SplitTableBatchedEmbeddingBagsCodegen,
        )

        self.torch, self.threads = torch, ThreadPoolExecutor(2)
        order = np.argsort([-top for top in rows], kind="stable")
        self.halves = [sorted(order[0::2]), sorted(order[1::2])]
        kind = EmbOptimType.EXACT_ROWWISE_ADAGRAD if row_wise else EmbOptimType.EXACT_ADAGRAD
        self.tables = [
            SplitTableBatchedEmbeddingBagsCodegen(
                [(rows[i], DIM, EmbeddingLocation.HOST, ComputeDevice.CPU) for i in half],
                optimizer=kind,
                learning_rate=0.01,
                eps=1e-10,
            )
            for half in self.halves
        ]
        for table in self.tables:
            table.init_embedding_weights_uniform(-0.01, 0.01)

    def batch(self, ids: np.ndarray) -> list:
        out = []
        for half in self.halves:
            values = self.torch.from_numpy(ids[half].reshape(-1).copy())
            out.append((values, self.torch.arange(len(values) + 1)))
        return out

    def look_up(self, batch: list) -> None:
        def forward(i: int) -> None:
            with self.torch.no_grad():
                self.tables[i](*batch[i])

        list(self.threads.map(forward, range(2)))

    def gradient(self, packed: np.ndarray) -> list:
        width = len(self.halves[0]) * DIM
        return [self.torch.from_numpy(np.ascontiguousarray(part)) for part in (packed[:, :width], packed[:, width:])]

    def train(self, batch: list, gradient: list) -> None:
        list(self.threads.map(lambda i: self.tables[i](*batch[i]).backward(gradient[i]), range(2)))


PEERS = {"penstock": Penstock, "torch_sparse": TorchSparse, "fbgemm_cpu": Fbgemm}


def build(rows: list[int], row_wise: bool) -> dict[str, object]:
    """Every contender that can be imported."""
    found = {}
    for name, make in PEERS.items():
        try:
            found[name] = make(rows, row_wise)
        except (ImportError, OSError) as error:
            if name == "penstock":
                raise
            if not row_wise:
                print(f"{name}: not measured ({error})", file=sys.stderr)
    return found


def best_rates(
    contenders: dict[str, object], batches: list[np.ndarray], gradient: np.ndarray, run: Callable, repeats: int
) -> dict[str, float]:
    """Rows a second of each contender: interleaved, every batch different, the best pass of several."""
    prepared = {name: [one.batch(ids) for ids in batches] for name, one in contenders.items()}
    gradients = {name: one.gradient(gradient) for name, one in contenders.items()}
    best = dict.fromkeys(contenders, float("inf"))
    for attempt in range(repeats + 1):
        for name, one in contenders.items():
            begin = time.perf_counter()
            for batch in prepared[name][: 2 if attempt == 0 else None]:
                run(one, batch, gradients[name])
            if attempt:
                best[name] = min(best[name], (time.perf_counter() - begin) / len(batches))
    size = batches[0].shape[1]
    return {name: size / seconds for name, seconds in best.items()}


def claim(name: str, rates: dict[str, float], unit: str = "rows/s", **more: object) -> dict[str, object]:
    """One line of the report, and its JSON form."""
    peers = {p: rates.get(p) for p in ("torch_sparse", "fbgemm_cpu")}
    ratios = {p: round(rates["penstock"] / rate, 3) for p, rate in peers.items() if rate}
    entry = {"claim": name, "unit": unit, "penstock": rates["penstock"], "peers": peers, "ratios": ratios, **more}
    cells = [f"{p} {rate / 1e6:6.3f} M ({ratios[p]:.2f}x)" if rate else f"{p} -" for p, rate in peers.items()]
    note = " ".join(f"{k}={v}" for k, v in more.items())
    print(f"{name:18s} {note:34s} penstock {rates['penstock'] / 1e6:6.3f} M   " + "   ".join(cells), flush=True)
    return entry


def measure(rows: list[int], sizes: list[int], repeats: int) -> list[dict[str, object]]:
    """Look-up and training, exact and row-wise, at each batch size."""
    claims = []
    for row_wise in (False, True):
        contenders = build(rows, row_wise)
        for size in sizes:
            batches = log_uniform_batches(rows, size, 16 if size <= 10_000 else 5)
            gradient = (np.random.default_rng(1).normal(size=(size, len(rows) * DIM)) * 1e-3).astype(np.float32)
            if not row_wise:
                rates = best_rates(contenders, batches, gradient, lambda one, batch, _: one.look_up(batch), repeats)
                claims.append(claim("embedding/lookup", rates, batch_size=size))
            rates = best_rates(contenders, batches, gradient, lambda one, batch, g: one.train(batch, g), repeats)
            optimizer = "row_wise_adagrad" if row_wise else "adagrad"
            claims.append(claim("embedding/train", rates, batch_size=size, optimizer=optimizer))
        contenders["penstock"].store.close()
    return claims


def measure_large(rows: int) -> dict[str, object]:
    """Bytes per row and look-up rate of one large table beside one of 1 M rows; one slot, so one thread."""
    from penstock.embedding import Adagrad, SlotConfig, Store

    stores = {top: Store([SlotConfig("c", DIM)], Adagrad(lr=0.01)) for top in (1_000_000, rows)}
    longest, rng = 0.0, np.random.default_rng(0)
    for top, store in stores.items():
        for first in range(0, top, 500_000):
            begin = time.perf_counter()
            store.lookup({"c": np.arange(first, first + 500_000)})
            # The first look-up of all compiles.
            longest = max(longest, time.perf_counter() - begin) if top == rows else 0.0
    batches = {top: [rng.integers(0, top, 100_000) for _ in range(10)] for top in stores}
    best = dict.fromkeys(stores, float("inf"))
    for _ in range(8):
        for top, store in stores.items():
            begin = time.perf_counter()
            for ids in batches[top]:
                store.lookup({"c": ids}, train=False)
            best[top] = min(best[top], time.perf_counter() - begin)
    rates = {str(top): round(1_000_000 / seconds) for top, seconds in best.items()}
    stats = stores[rows].stats()
    per_row = stats["bytes"] / stats["rows"]
    result = {
        "claim": "embedding/large", "unit": "bytes/row", "rows": stats["rows"], "penstock": round(per_row, 1),
        "peers": {"limit": stats["payload_bytes"] / stats["rows"]},
        "ratios": {"limit": round(stats["payload_bytes"] / stats["bytes"], 3)},
        "lookups_per_second": rates, "slowest_insert_of_500k_s": round(longest, 2),
    }  # fmt: skip
    print(f"{stats['rows']:,} rows: {per_row:.1f} bytes a row, look-ups/s {rates}, slowest insert {longest:.2f} s")
    return result


def measure_ray(rows: list[int], sizes: list[int]) -> list[dict[str, object]]:
    """A store of two shards on this machine, against the one in this process."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    import ray

    from penstock.embedding import Adagrad, RayStore, SlotConfig

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    local = Penstock(rows, False)
    remote = Penstock.__new__(Penstock)
    remote.names = local.names
    remote.store = RayStore([SlotConfig(name, DIM) for name in local.names], Adagrad(lr=0.01), num_shards=2)
    claims = []
    for size in sizes:
        batches = log_uniform_batches(rows, size, 4)
        gradient = np.full((size, len(rows) * DIM), 1e-3, np.float32)
        pair = {"penstock": remote, "in_process": local}
        rates = best_rates(pair, batches, gradient, lambda one, batch, g: one.train(batch, g), 3)
        ratio = rates["penstock"] / rates["in_process"]
        entry = {"claim": "hybrid/ray", "unit": "rows/s", "penstock": rates["penstock"], "batch_size": size,
                 "peers": {"in_process": rates["in_process"]}, "ratios": {"in_process": round(ratio, 3)},
                 "ms_per_step": round(1e3 * size / rates["penstock"], 1)}  # fmt: skip
        print(f"hybrid/ray batch_size={size} {rates['penstock'] / 1e6:.3f} M rows/s ({ratio:.2f} of in-process)")
        claims.append(entry)
    remote.store.close()
    ray.shutdown()
    return claims


def keep_freed_memory() -> None:
    """Start this script again with an allocator that keeps what is freed, so that no peer pays for fresh pages."""
    if os.environ.get("MALLOC_MMAP_MAX_") != "0" and sys.platform == "linux":
        keep = str(1 << 40)
        os.environ.update(MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_=keep, OMP_WAIT_POLICY="PASSIVE")
        os.execv(sys.executable, [sys.executable, *sys.argv])


def main() -> None:
    """Measure, print a table, end with one JSON line a claim."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000, help="largest table")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[8192, 65536])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--large", nargs="?", type=int, const=50_000_000, help="measure one table of so many rows instead"
    )
    parser.add_argument("--ray", action="store_true", help="measure a store of two Ray shards instead")
    args = parser.parse_args()
    rows = [min(cardinality, args.rows) for cardinality in CARDINALITIES]
    if args.large:
        claims = [measure_large(args.large)]
    elif args.ray:
        claims = measure_ray(rows, args.batch_sizes)
    else:
        keep_freed_memory()
        claims = measure(rows, args.batch_sizes, args.repeats)
    for entry in claims:
        print(json.dumps(entry))


if __name__ == "__main__":
    main()
