"""The Criteo job on one GPU: python benchmarks/criteo_h200.py [--part step train loss] [--batch 400000 65536]

Claims `gpu/step` (batches already on the GPU), `gpu/train` (from parquet files in memory, shuffled), `gpu/loss` (plain
PyTorch's loss after 200 steps over ours) and `gpu/memory`; `--part stages` lists the kernels of a step, and
`--part cache` measures `gpu/cache`: tables of four times the cache. The model is that of the Criteo terabyte notebooks:
26 tables of up to 10 M rows (`CARDINALITIES["terabyte"]`), dim 16, 13 numbers, hidden layers of 512 and 256 with batch
norm. Peers run in the same process on the same batches: plain PyTorch with
dense gradients and fused Adam (`torch_dense`), with sparse gradients and Adagrad (`torch_sparse`), and with sparse
gradients and SGD (`torch_sgd`, which adapts nothing).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import Claim, report

from penstock import Dataset
from penstock.data.synthetic import CARDINALITIES

SIZES, DIM, NUMBERS = list(CARDINALITIES["terabyte"]), 16, 13
CATEGORICAL, CONTINUOUS = [f"C{i}" for i in range(1, 27)], [f"I{i}" for i in range(1, 14)]
GIB = 2**30


def layers(nn, width: int):
    """The dense part."""
    return nn.Sequential(
        nn.Linear(width, 512), nn.ReLU(), nn.BatchNorm1d(512), nn.Linear(512, 256), nn.ReLU(), nn.BatchNorm1d(256),
        nn.Linear(256, 1),
    )  # fmt: skip


def fused_model(torch, sizes: list[int], optimizer: str = "rowwise_adagrad", align: int = 16):
    from penstock.nn import FusedEmbeddings

    class Clicks(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = FusedEmbeddings(
                sizes, DIM, optimizer=optimizer, lr=0.01, output="concat", align=align, device="cuda"
            )
            self.numbers = torch.nn.BatchNorm1d(NUMBERS, device="cuda")
            self.layers = layers(torch.nn, self.tables.width(NUMBERS)).to("cuda")

        def forward(self, ids, numbers):
            return self.layers(self.tables(ids, self.numbers(numbers))).squeeze(1)

    return Clicks()


def plain_model(torch, sizes: list[int], sparse: bool):
    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = torch.nn.ModuleList(
                torch.nn.Embedding(size, DIM, sparse=sparse, device="cuda") for size in sizes
            )
            self.numbers = torch.nn.BatchNorm1d(NUMBERS, device="cuda")
            self.layers = layers(torch.nn, 26 * DIM + NUMBERS).to("cuda")

        def forward(self, ids, numbers):
            found = [table(ids[:, i]) for i, table in enumerate(self.tables)]
            return self.layers(torch.cat([*found, self.numbers(numbers)], 1)).squeeze(1)

    return Plain()


def plain_optimizers(torch, model, kind: str) -> list:
    dense = [*model.numbers.parameters(), *model.layers.parameters()]
    if kind == "torch_dense":
        return [torch.optim.Adam(model.parameters(), 1e-3, fused=True)]
    tables = {"torch_sparse": torch.optim.Adagrad, "torch_sgd": torch.optim.SGD}[kind]
    return [tables(model.tables.parameters(), 0.01), torch.optim.Adam(dense, 1e-3, fused=True)]


def plain_step(torch, model, optimizers: list, batch: tuple, amp: bool):
    ids, numbers, labels = batch
    with torch.autocast("cuda", torch.bfloat16, enabled=amp):
        logits = model(ids, numbers)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits.float(), labels)
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.detach(), logits.detach().float()


def batches(torch, rows: int, count: int, sizes: list[int], ids_dtype=None) -> list[tuple]:
    """Batches on the GPU as the loader lays them out; labels that numbers and the smaller tables explain."""
    torch.manual_seed(0)
    made = []
    effects = [torch.randn(min(size, 1000), device="cuda") for size in sizes]
    for _ in range(count):
        columns = []
        for size in sizes:
            draw = torch.rand(rows, device="cuda", dtype=torch.float64)
            columns.append((float(size) ** draw - 1).long().clamp_(0, size - 1))
        numbers = torch.randn(NUMBERS, rows, device="cuda")
        logit = numbers[:3].sum(0) * 0.5 - 1
        for column, effect in zip(columns, effects, strict=True):
            logit += 0.3 * effect[column % len(effect)]
        labels = (torch.rand(rows, device="cuda") < torch.sigmoid(logit)).float()
        ids = torch.stack(columns).to(ids_dtype or torch.int32).t()
        made.append((ids, numbers.t(), labels))
    return made


def rate(torch, step, data: list[tuple], steps: int) -> float:
    """Rows per second of `steps` steps after as many as it takes to compile and capture."""
    for i in range(5):
        step(data[i % len(data)])
    torch.cuda.synchronize()
    start = time.perf_counter()
    for i in range(steps):
        step(data[i % len(data)])
    torch.cuda.synchronize()
    return len(data[0][2]) * steps / (time.perf_counter() - start)


def measure_step(torch, rows: int, peers: bool) -> list[Claim]:
    """`gpu/step` and `gpu/memory` for a batch size."""
    from penstock.train.gpu import DeviceStep

    data = batches(torch, rows, 3, SIZES)
    figures: dict[str, float] = {}
    others = {}
    for name in ("rowwise_adagrad", "adagrad", "adam", "sgd") if peers and rows > 100_000 else ("rowwise_adagrad",):
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        model = fused_model(torch, SIZES, name)
        step = DeviceStep(model, autocast=torch.bfloat16)
        others[name] = rate(torch, lambda batch, step=step: step(*batch), data, 60)
        if name == "rowwise_adagrad":
            held = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))
            states = [t for state in step.optimizer.state.values() for t in state.values()]
            held += sum(t.numel() * t.element_size() for t in states)
            figures["memory"] = (torch.cuda.max_memory_allocated() - before - held) / GIB
            print(f"metrics after {step.steps} steps: {step.metrics.take()}", flush=True)
        print(f"fused {name}, batch {rows:,}: {others[name] / 1e6:.1f} M rows/s", flush=True)
        del model, step
    plain: dict[str, float | None] = {}
    for kind, steps in (("torch_dense", 8), ("torch_sgd", 8), ("torch_sparse", 3)) if peers else ():
        torch.cuda.empty_cache()
        model = plain_model(torch, SIZES, sparse=kind != "torch_dense")
        optimizers = plain_optimizers(torch, model, kind)
        wide = [(ids.long(), numbers, labels) for ids, numbers, labels in data]
        plain[kind] = max(
            rate(torch, lambda b, m=model, o=optimizers, a=amp: plain_step(torch, m, o, b, a), wide, steps)
            for amp in (True, False)
        )
        print(f"{kind}, batch {rows:,}: {plain[kind] / 1e6:.2f} M rows/s", flush=True)
        del model, optimizers
    extra = {"batch": rows, "optimizer": "rowwise_adagrad", "others": {k: round(v) for k, v in others.items()}}
    return [
        Claim("gpu/step", "rows/s", others["rowwise_adagrad"], plain, extra=extra),
        Claim("gpu/memory", "GiB beyond weights and state", figures["memory"], {"limit": 2.0}, higher_is_better=False,
              extra={"batch": rows}),
    ]  # fmt: skip


def stages(torch, rows: int) -> None:
    """Where the time of a captured step goes, kernel by kernel."""
    from penstock.train.gpu import DeviceStep

    data = batches(torch, rows, 2, SIZES)
    step = DeviceStep(fused_model(torch, SIZES), autocast=torch.bfloat16, graph=False)
    for i in range(5):
        step(*data[i % 2])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for i in range(4):
            step(*data[i % 2])
        torch.cuda.synchronize()
    events = sorted(profile.key_averages(), key=lambda e: -e.device_time_total)
    print(f"kernels of a step, {sum(e.device_time_total for e in events) / 4e3:.2f} ms in all")
    for event in events[:24]:
        print(f"  {event.device_time_total / 4e3:7.3f} ms  {event.count // 4:3d} ×  {event.key[:100]}")


def measure_loss(torch, steps: int = 200, rows: int = 16_384) -> Claim:
    """Both models from the same weights, in float32, with exact Adagrad: their losses and AUC over the last steps."""
    from penstock.train.gpu import DeviceStep
    from penstock.train.metrics import StreamingAUC

    sizes = [min(size, 500_000) for size in SIZES]
    data = batches(torch, rows, steps, sizes)
    fused, plain = fused_model(torch, sizes, "adagrad", align=1), plain_model(torch, sizes, sparse=True)
    with torch.no_grad():
        for table, part in zip(plain.tables, fused.tables.weight.split(sizes), strict=True):
            table.weight.copy_(part)
    plain.layers.load_state_dict(fused.layers.state_dict())
    step, optimizers = DeviceStep(fused), plain_optimizers(torch, plain, "torch_sparse")
    auc, losses = StreamingAUC(), []
    for i, batch in enumerate(data):
        step(*batch)
        loss, logits = plain_step(torch, plain, optimizers, (batch[0].long(), *batch[1:]), amp=False)
        if i == steps - 21:
            step.metrics.take()
        if i >= steps - 20:
            losses.append(loss)
            auc.update(logits, batch[2])
    ours, theirs = step.metrics.take(), float(torch.stack(losses).mean())
    extra = {"relative_difference": abs(ours["loss"] / theirs - 1), "auc": ours["auc"], "torch_auc": auc.compute()}
    return Claim("gpu/loss", "nats", ours["loss"], {"torch_sparse": theirs}, higher_is_better=False, extra=extra)


def measure_cache(torch, rows: int) -> Claim:
    """`gpu/cache`: 8 GiB of tables behind a cache of 2 GiB, against the same tables on the GPU."""
    from penstock.nn import CachedEmbeddings
    from penstock.train.gpu import DeviceStep

    row_bytes = DIM * 4 + 4
    factor = 8 * GIB / row_bytes / sum(SIZES)
    sizes = [max(4, int(size * factor)) for size in SIZES]
    data = batches(torch, rows, 40, sizes)
    found = {}
    for name in ("cached", "on_gpu"):
        model = fused_model(torch, sizes if name == "on_gpu" else [4] * 26)
        if name == "cached":
            settings = {"lr": 0.01, "output": "concat", "align": 16, "device": "cuda", "scale": 0.0}
            model.tables = CachedEmbeddings(sizes, DIM, cache_rows=2 * GIB // row_bytes, **settings)
        step = DeviceStep(model, autocast=torch.bfloat16)
        for batch in data[:10]:
            step(*batch)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for batch in data[10:]:
            step(*batch)
        torch.cuda.synchronize()
        found[name] = rows * 30 / (time.perf_counter() - start)
        print(f"{name}: {found[name] / 1e6:.1f} M rows/s, {step.metrics.take()}", flush=True)
        del model, step
    extra = {"batch": rows, "table_rows": sum(sizes), "cache_rows": 2 * GIB // row_bytes}
    return Claim("gpu/cache", "rows/s", found["cached"], {"limit": found["on_gpu"]}, extra=extra)


def write_files(folder: Path, rows: int, files: int = 16) -> None:
    """Rows as they leave the ETL, several files at once."""

    def one(number: int) -> None:
        rng, count = np.random.default_rng(number), rows // files
        columns: dict[str, np.ndarray] = {"label": (rng.random(count) < 0.25).astype(np.float32)}
        columns |= {name: rng.standard_normal(count, np.float32) for name in CONTINUOUS}
        for name, size in zip(CATEGORICAL, SIZES, strict=True):
            columns[name] = np.minimum(size ** rng.random(count) - 1, size - 1).astype(np.int32)
        pq.write_table(pa.table(columns), folder / f"{number:02d}.parquet", row_group_size=250_000)

    with ThreadPoolExecutor(files) as pool:
        list(pool.map(one, range(files)))


def dataset(folder: Path) -> Dataset:
    data = Dataset(str(folder))
    schema = data.schema.with_roles(categorical=CATEGORICAL, continuous=CONTINUOUS, label=["label"])
    for name, size in zip(CATEGORICAL, SIZES, strict=True):
        schema = schema.with_column(schema[name].with_(cardinality=size))
    return data.with_schema(schema)


def measure_train(torch, rows: int, batch: int, folder: str | None, step_rate: float | None) -> Claim:
    """`gpu/train`: shuffled epochs from parquet files, the first one (compiling) not counted."""
    from penstock.loader.torch import Loader
    from penstock.train.gpu import fit_on_device

    place = Path(tempfile.mkdtemp(prefix="penstock-benchmark-", dir=folder))
    try:
        write_files(place, rows)
        settings = {"shuffle": True, "layout": "packed", "device": "cuda", "last_batch": "drop"}
        settings["chunk_rows"] = 2_000_000
        loaders = {"streamed": Loader(dataset(place), batch, **settings)}
        loaders["cached"] = Loader(dataset(place), batch, cache="memory", **settings)
        found: dict[str, float] = {}
        for name, loader in loaders.items():
            history = fit_on_device(fused_model(torch, SIZES), loader, epochs=5, autocast=torch.bfloat16)
            found[name] = max(history.values("train", "rows_per_second")[1:])
            print(f"{name}, batch {batch:,}: {[round(r / 1e6, 1) for r in history.values('train', 'rows_per_second')]}"
                  f" M rows/s by epoch; {loader.stats()}", flush=True)  # fmt: skip
            alone = []
            for _ in range(3):
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _batch in loader:
                    pass
                torch.cuda.synchronize()
                alone.append(rows / (time.perf_counter() - start))
            found[f"{name}_loader_alone"] = max(alone)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    extra = {"batch": batch, "rows": rows, **{name: round(value) for name, value in found.items()}}
    return Claim("gpu/train", "rows/s", found["streamed"], {"limit": step_rate}, extra=extra)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", default=["step", "loss", "train"])
    parser.add_argument("--batch", nargs="+", type=int, default=[400_000, 65_536])
    parser.add_argument("--rows", type=int, default=16_000_000)
    parser.add_argument("--folder", default="/dev/shm" if Path("/dev/shm").is_dir() else None)
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("benchmarks/criteo_h200.py needs a CUDA device; there is none here")
        sys.exit(0)
    claims: list[Claim] = []
    for batch in options.batch:
        if "stages" in options.part:
            stages(torch, batch)
        if "step" in options.part:
            claims += measure_step(torch, batch, not options.no_peers)
        if "train" in options.part:
            alone = [c.penstock for c in claims if c.name == "gpu/step" and c.extra["batch"] == batch]
            claims.append(measure_train(torch, options.rows, batch, options.folder, alone[0] if alone else None))
    if "cache" in options.part:
        claims.append(measure_cache(torch, options.batch[0]))
    if "loss" in options.part:
        claims.append(measure_loss(torch))
    report(f"The Criteo job on {torch.cuda.get_device_name()}, 26 tables, {sum(SIZES):,} rows × {DIM}", claims)


if __name__ == "__main__":
    main()
