"""Tables on one GPU at every shape: python benchmarks/gpu_tables.py [--shapes one/128/65536 …] [--rounds 4]

Claims `gpu/tables, SHAPE`: milliseconds of a look-up and its backward pass (row-wise Adagrad on 26 tables, float32
gradients), captured in a CUDA graph, beside FBGEMM's CUDA tables where `fbgemm_gpu` is installed, in turns, the best of
several rounds. `limit` is the least that the memory allows: what must be read and written over 4.8 TB/s. A shape is
`KIND/DIM/BATCH`: `one` id a row, `lists` as in MLPerf's DLRM-dcnv2 (214 ids a row), `eager` is `one` without a graph,
`narrow` is `one` with bfloat16 weights, `ragged` has lists of any length between none and twice MLPerf's. `hashed` is
`one` with ids that have no vocabulary, all of them known, and `growing` the same with one id in 64 new in each step,
both beside tables of fixed sizes (`fixed_sizes`). Ids are log-uniform, or uniform where `/uniform` follows; tables are
those of the Criteo data (cut at 4 M rows of dim 256, and in proportion beyond 128), or others by name: `/few`, `/many`,
`/large`, `/tiny`.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
from collections.abc import Callable

from criteo_model import SIZES, every_row, fbgemm_tables
from harness import Claim, report

HOTS = [3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1]  # MLPerf's, ids a row
TABLES = {
    "few": [10, 5_000, 8_000_000],
    "many": [round(10 ** (1 + 5 * i / 199)) for i in range(200)],  # 10 rows to a million
    "large": [200_000_000],
    "tiny": [10] * 26,
}
BYTES_PER_SECOND = 4.8e12  # an H200's memory, by its data sheet
SHAPES = [
    "one/16/400000", "one/16/65536", "one/16/8192", "eager/16/65536", "one/32/65536", "one/64/65536", "one/96/65536",
    "one/128/65536", "one/128/8192", "narrow/128/65536", "one/256/65536", "lists/128/65536", "lists/128/8192",
    "hashed/16/400000", "hashed/16/65536", "hashed/16/8192", "hashed/128/65536", "growing/16/65536",
]  # fmt: skip
FURTHER = [  # what --further adds
    "one/4/65536", "one/8/65536", "one/24/65536", "one/48/65536", "one/100/65536", "one/160/65536", "one/384/65536",
    "one/512/65536", "one/512/8192", "one/16/1024", "one/64/400000", "one/16/65536/uniform", "one/128/65536/uniform",
    "one/16/65536/few", "one/128/65536/few", "one/16/65536/many", "one/64/8192/many", "one/16/65536/large",
    "one/32/65536/large/uniform", "one/16/65536/tiny", "one/128/65536/tiny", "lists/16/65536", "lists/64/8192",
    "ragged/64/8192", "ragged/128/16384", "ragged/16/65536", "lists/64/8192/few", "eager/64/8192", "eager/16/1024",
]  # fmt: skip


class Shape:
    """One shape's ids, drawn once, and the gradient of its output."""

    def __init__(self, torch, name: str) -> None:
        kind, dim, rows, *more = name.split("/")
        self.name, self.kind, self.dim, self.rows = name, kind, int(dim), int(rows)
        sizes = next((TABLES[word] for word in more if word in TABLES), SIZES)
        self.sizes = sizes if self.dim <= 128 else [min(size, 4_000_000 * 256 // self.dim) for size in sizes]
        hots = HOTS if kind in ("lists", "ragged") else [1]
        torch.manual_seed(0)
        self.columns, self.lengths = [], []
        for size, hot in zip(self.sizes, itertools.cycle(hots), strict=False):
            lengths = torch.full((self.rows,), hot, device="cuda", dtype=torch.int32)
            if kind == "ragged":
                lengths = torch.randint(0, 2 * hot + 1, (self.rows,), device="cuda", dtype=torch.int32)
            drawn = torch.rand(int(lengths.sum()), device="cuda", dtype=torch.float64)
            ids = drawn * size if "uniform" in more else float(size) ** drawn - 1
            self.lengths.append(lengths)
            self.columns.append(ids.long().clamp_(0, size - 1).int())
        self.gradient = torch.randn(self.rows, len(self.sizes) * self.dim, device="cuda") * 1e-4

    def has_lists(self) -> bool:
        return self.kind in ("lists", "ragged")

    def limit(self, torch) -> float:
        """Milliseconds: each row looked up is read, the output written, the gradient read, touched rows read again and
        written. Rows that stay in the cache are counted once."""
        distinct = sum(len(column.unique()) for column in self.columns)
        width = 2 if self.kind == "narrow" else 4
        moved = 3 * distinct * self.dim * width + 2 * self.gradient.numel() * 4 + 4 * sum(map(len, self.columns))
        return moved / BYTES_PER_SECOND * 1e3


def penstock_run(torch, shape: Shape) -> Callable[[], object]:
    from penstock.embedding import FusedEmbeddings

    tables = FusedEmbeddings(
        {f"c{i}": size for i, size in enumerate(shape.sizes)}, shape.dim, lr=0.01, output="concat", device="cuda",
        dtype="bfloat16" if shape.kind == "narrow" else "float32",
    )  # fmt: skip
    ids: object
    if shape.has_lists():
        ids = {}
        for i, (column, lengths) in enumerate(zip(shape.columns, shape.lengths, strict=True)):
            ends = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
            ids[f"c{i}"] = column if bool((lengths == 1).all()) else (column, ends)
    else:
        ids = torch.stack(shape.columns).t()
    return lambda: tables(ids).backward(shape.gradient)


def hashed_run(torch, shape: Shape) -> Callable[[], object]:
    """Hashed tables that know every id of the fixed ones, and have room for those that come."""
    from penstock.embedding import HashedEmbeddings

    names, total = [f"c{i}" for i in range(len(shape.sizes))], sum(shape.sizes)
    tables = HashedEmbeddings(
        names, shape.dim, capacity=total + 16 * shape.rows * len(names), lr=0.01, output="concat", device="cuda"
    )
    tables.load_state_dict({**tables.state_dict(), **every_row(shape.sizes, shape.dim)})
    ids, fresh = torch.stack(shape.columns).t().long(), shape.rows // 64
    if shape.kind == "growing":
        ids[:fresh] = torch.arange(fresh, device="cuda")[:, None] + 2**40

    def run() -> None:
        if shape.kind == "growing":
            ids[:fresh] += fresh
        tables(ids).backward(shape.gradient)

    return run


def fbgemm_run(torch, shape: Shape) -> Callable[[], object] | None:
    if shape.kind == "narrow":  # it has no bfloat16 weights
        return None
    tables = fbgemm_tables(torch, shape.sizes, shape.dim)
    if tables is None:
        return None
    offsets = torch.nn.functional.pad(torch.cat(shape.lengths).cumsum(0, dtype=torch.int32), (1, 0))
    values = torch.cat(shape.columns)
    return lambda: tables(values, offsets).backward(shape.gradient)


def captured(torch, run: Callable[[], object]) -> Callable[[], object]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def milliseconds(torch, run: Callable[[], object], count: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(count):
        run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / count


def measure(torch, name: str, rounds: int, count: int) -> Claim:
    shape = Shape(torch, name)
    found: dict[str, Callable[[], object] | None]
    if shape.kind in ("hashed", "growing"):
        found = {"penstock": hashed_run(torch, shape), "fixed_sizes": penstock_run(torch, shape)}
    else:
        found = {"penstock": penstock_run(torch, shape), "fbgemm_cuda": fbgemm_run(torch, shape)}
    runs = {peer: run for peer, run in found.items() if run is not None}
    if shape.kind != "eager":
        runs = {peer: captured(torch, run) for peer, run in runs.items()}
    best: dict[str, float] = {}
    for number in range(rounds + 1):
        for peer, run in runs.items():
            took = milliseconds(torch, run, count)
            if number:  # the first round warms up
                best[peer] = min(best.get(peer, took), took)
    peers = {peer: best.get(peer) for peer in found if peer != "penstock"} | {"limit": shape.limit(torch)}
    return Claim(f"gpu/tables, {name}", "ms", best["penstock"], peers, higher_is_better=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    parser.add_argument("--further", action="store_true", help="other dims, tables, ids and lists instead")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--count", type=int, default=20)
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("benchmarks/gpu_tables.py needs a CUDA device; there is none here")
        sys.exit(0)
    claims = []
    for name in FURTHER if options.further else options.shapes:
        claims.append(measure(torch, name, options.rounds, options.count))
        print(claims[-1].line(), flush=True)  # in case that a later shape ends the process
        gc.collect()  # tables and their groups know each other
        torch.cuda.empty_cache()
    if all(claim.peers.get("fbgemm_cuda") is None for claim in claims):
        print("fbgemm_gpu is not installed here, so its figures are missing: pip install fbgemm-gpu")
    report("Tables on the GPU, look-up and backward pass", claims)


if __name__ == "__main__":
    main()
