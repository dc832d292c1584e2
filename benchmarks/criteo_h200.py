"""The Criteo job on one GPU: python benchmarks/criteo_h200.py [--part step memory stages train loss] [--batch 65536]

Claims `gpu/step` (batches already on the GPU), `gpu/memory`, `gpu/train` (from parquet files in memory, shuffled),
`gpu/loss` (plain PyTorch's loss after 200 steps over ours) and `gpu/step_stages` (where a step's time goes). The model
is that of the Criteo terabyte notebooks: 26 tables of up to 10 M rows (`CARDINALITIES["terabyte"]`), dim 16, 13
numbers, hidden layers of 512 and 256 with batch norm; bfloat16 autocast.

Peers run in the same process on the same batches, their rounds interleaved with ours: the layers as
`nn.Sequential` over FBGEMM's CUDA tables where `fbgemm_gpu` is installed, compiled and captured, without our folded
norms (`fbgemm_cuda`; `gpu_tables.py` compares tables alone); plain PyTorch with dense
gradients and fused Adam over 26 tables (`torch_dense`), over one joint table (`torch_dense_joint`) and that compiled
(`torch_dense_compiled`); with sparse gradients and Adagrad (`torch_sparse`), and with sparse gradients and SGD
(`torch_sgd`, which adapts nothing). Peers compute in bfloat16 autocast as well, which was faster in every case.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from criteo_model import (
    DIM,
    GIB,
    SIZES,
    Batches,
    batches,
    dataset,
    fbgemm_model,
    fused_model,
    plain_model,
    plain_optimizers,
    plain_step,
    write_files,
)
from harness import Claim, report

PEERS = ("fbgemm_cuda", "torch_dense", "torch_dense_joint", "torch_dense_compiled", "torch_sgd", "torch_sparse")
# What a kernel's name tells about its stage; the first that fits.
STAGES = {
    "look-up": ("_look_up",), "sort": ("sort", "Sort", "onesweep"),
    "update": ("reduce_rows", "reduce_tiles", "reduce_partials", "finish_rows", "locate"),
    "matrix products": ("gemm", "nvjet", "cutlass", "splitK"), "dense optimizer": ("adam", "Adam", "multi_tensor"),
    "norms and activations": ("triton_",),
}  # fmt: skip


def seconds(torch, step, data: list[tuple], steps: int) -> float:
    """Of one step, over `steps` of them."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for i in range(steps):
        step(data[i % len(data)])
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps


def contestants(torch, rows: int, peers: tuple[str, ...]) -> dict:
    """`{name: (step, steps a round)}`, each with a model of its own; those that do not run here are left out."""
    from penstock.train import DeviceStep

    step = DeviceStep(fused_model(torch, SIZES), autocast=torch.bfloat16)
    made = {"penstock": (lambda batch: step(*batch), 40 if rows > 100_000 else 120)}
    for kind in peers:
        if kind == "fbgemm_cuda":
            made |= fbgemm_contestant(torch, made["penstock"][1])
            continue
        model = plain_model(torch, SIZES, kind in ("torch_sparse", "torch_sgd"), joint=kind.count("_") > 1)
        optimizers = plain_optimizers(torch, model, kind)
        run = torch.compile(model, dynamic=False) if kind == "torch_dense_compiled" else model
        made[kind] = (
            lambda b, r=run, o=optimizers: plain_step(torch, r, o, (b[0].long(), *b[1:]), amp=True),
            2 if kind == "torch_sparse" else 8,
        )
    return made


def fbgemm_contestant(torch, steps: int) -> dict:
    """The step over FBGEMM's tables, its dense part compiled and all of it captured as ours is."""
    from penstock.train import DeviceStep

    model = fbgemm_model(torch, SIZES)
    if model is None:
        print("fbgemm_gpu is not installed here, so its figures are missing: pip install fbgemm-gpu")
        return {}
    dense = [*model.numbers.parameters(), *model.layers.parameters()]
    optimizer = torch.optim.Adam(dense, 1e-3, fused=True, capturable=True)
    step = DeviceStep(model, optimizer, autocast=torch.bfloat16)
    return {"fbgemm_cuda": (lambda batch: step(*batch), steps)}


def measure_step(torch, rows: int, peers: tuple[str, ...], rounds: int = 3) -> Claim:
    """`gpu/step` for a batch size."""
    data = batches(torch, rows, 3, SIZES)
    runs, best = contestants(torch, rows, peers), {}
    for name, (step, _) in list(runs.items()):
        try:
            seconds(torch, step, data, 6)
        except Exception as error:  # a peer that torch cannot compile is no contestant
            print(f"{name} does not run: {str(error).splitlines()[0][:200]}", flush=True)
            del runs[name]
    for _ in range(rounds):
        for name, (step, steps) in runs.items():
            best[name] = min(best.get(name, 1e9), seconds(torch, step, data, steps))
    rates = {name: rows / time for name, time in best.items()}
    print(f"batch {rows:,}: " + ", ".join(f"{name} {rate / 1e6:.2f} M" for name, rate in rates.items()), flush=True)
    plain = {kind: rates.get(kind) for kind in peers}
    return Claim("gpu/step", "rows/s", rates["penstock"], plain, extra={"batch": rows, "optimizer": "rowwise_adagrad"})


def measure_memory(torch, rows: int) -> Claim:
    """The most memory a step takes beyond the weights and the optimizers' state."""
    from penstock.train import DeviceStep

    data = batches(torch, rows, 3, SIZES)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    model = fused_model(torch, SIZES)
    step = DeviceStep(model, autocast=torch.bfloat16)
    for i in range(8):
        step(*data[i % len(data)])
    torch.cuda.synchronize()
    states = [t for state in step.optimizer.state.values() for t in state.values()]
    held = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers(), *states))
    extra = (torch.cuda.max_memory_allocated() - before - held) / GIB
    return Claim("gpu/memory", "GiB beyond weights and state", extra, {"limit": 2.0}, higher_is_better=False,
                 extra={"batch": rows, "weights_and_state": round(held / GIB, 2)})  # fmt: skip


def other_optimizers(torch, rows: int) -> dict[str, float]:
    """Rows per second of a fused step with the other optimizers."""
    from penstock.train import DeviceStep

    data, found = batches(torch, rows, 3, SIZES), {}
    for name in ("adagrad", "adam", "rowwise_adam", "sgd"):
        step = DeviceStep(fused_model(torch, SIZES, name), autocast=torch.bfloat16)
        seconds(torch, lambda batch, step=step: step(*batch), data, 6)
        found[name] = rows / seconds(torch, lambda batch, step=step: step(*batch), data, 40)
        del step
    print(f"batch {rows:,}: " + ", ".join(f"{name} {rate / 1e6:.1f} M" for name, rate in found.items()), flush=True)
    return found


def measure_stages(torch, rows: int) -> Claim:
    """Where the time of a step goes, on the device, by stage; what runs on the side stream counts, too."""
    from penstock.train import DeviceStep

    data = batches(torch, rows, 2, SIZES)
    step = DeviceStep(fused_model(torch, SIZES), autocast=torch.bfloat16, graph=False)
    for i in range(5):
        step(*data[i % 2])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for i in range(4):
            step(*data[i % 2])
        torch.cuda.synchronize()
    found = dict.fromkeys([*STAGES, "figures, casts and copies"], 0.0)
    for event in sorted(profile.key_averages(), key=lambda e: -e.device_time_total):
        stage = next((s for s, words in STAGES.items() if any(w in event.key for w in words)), list(found)[-1])
        found[stage] += event.device_time_total / 4e3
        if event.device_time_total > 4 * 50:
            print(f"  {event.device_time_total / 4e3:7.3f} ms  {event.count // 4:3d} ×  {stage}: {event.key[:90]}")
    extra = {"batch": rows, **{name: round(value, 3) for name, value in found.items()}}
    return Claim("gpu/step_stages", "ms of kernels", sum(found.values()), {}, higher_is_better=False, extra=extra)


def measure_loss(torch, rows: int, steps: int = 200) -> Claim:
    """Both models from the same weights, in float32, with exact Adagrad: the loss of the last steps, and a test AUC."""
    from penstock.metrics import Meter
    from penstock.train import DeviceStep

    source = Batches(torch, SIZES)
    fused, plain = fused_model(torch, SIZES, "adagrad", align=1), plain_model(torch, SIZES, sparse=False)
    with torch.no_grad():
        for table, part in zip(plain.tables, fused.tables.weight.split(SIZES), strict=True):
            table.weight.copy_(part)
    plain.layers.load_state_dict(fused.layers.state_dict())
    step, optimizers = DeviceStep(fused), plain_optimizers(torch, plain, "torch_adagrad")
    last, theirs = min(20, steps), Meter(torch.device("cuda"))
    for i in range(steps):
        batch = source.draw(rows)
        if i == steps - last:
            step.metrics.collect()
            theirs.collect()
        step(*batch)
        loss, logits = plain_step(torch, plain, optimizers, (batch[0].long(), *batch[1:]), amp=False)
        theirs.add(loss, logits, batch[2], rows)
    ours, other = step.metrics.collect(), theirs.collect()
    tests = Meter(torch.device("cuda")), Meter(torch.device("cuda"))
    fused.eval(), plain.eval()
    with torch.no_grad():
        for _ in range(5):
            ids, numbers, labels = source.draw(rows)
            for model, given, metrics in ((fused, ids, tests[0]), (plain, ids.long(), tests[1])):
                scores = model(given, numbers)
                metrics.add(step.loss_fn(scores, labels), scores, labels, rows)
    found = [metrics.collect() for metrics in tests]
    extra = {
        "batch": rows, "steps": steps, "relative_difference": abs(ours["loss"] / other["loss"] - 1),
        "test_auc": [round(f["auc"], 6) for f in found], "test_loss": [round(f["loss"], 6) for f in found],
    }  # fmt: skip
    return Claim(
        "gpu/loss", "nats", ours["loss"], {"torch_adagrad": other["loss"]}, higher_is_better=False, extra=extra
    )


def measure_train(torch, place: Path, rows: int, batch: int, step_rate: float | None, options) -> Claim:
    """`gpu/train`: shuffled epochs from parquet files, the first one (compiling) not counted."""
    from penstock.loader.torch import Loader
    from penstock.train import fit

    settings = {"shuffle": True, "layout": "packed", "device": "cuda", "last_batch": "drop"}
    settings |= {"chunk_rows": options.chunk_rows, "num_threads": options.threads}
    found: dict[str, float] = {}

    def train(name: str, loader: Loader, cache_rows: int = 0) -> None:
        model = fused_model(torch, SIZES, cache_rows=cache_rows)
        history = fit(model, loader, epochs=options.epochs, autocast=torch.bfloat16, log_every=None, compile=True)
        by_epoch = history.values("train", "rows_per_second")
        found[name] = max(by_epoch[1:])
        seconds = history.last("train").seconds
        print(f"{name}, batch {batch:,}: {[round(r / 1e6, 1) for r in by_epoch]} M rows/s by epoch; last one {seconds}",
              flush=True)  # fmt: skip

    streamed = Loader(dataset(place), batch, **settings)
    train("streamed", streamed)
    found["streamed_loader_alone"] = max(pace(torch, streamed, rows) for _ in range(2))
    if options.cache_share:
        train("streamed_tables_behind_a_cache", streamed, int(options.cache_share * sum(SIZES)))
    if options.cached:
        cached = Loader(dataset(place), batch, cache="memory", **settings)
        train("cached", cached)
        found["cached_loader_alone"] = max(pace(torch, cached, rows) for _ in range(2))
    extra = {"batch": batch, "rows": rows, **{name: round(value) for name, value in found.items()}}
    return Claim("gpu/train", "rows/s", found["streamed"], {"limit": step_rate}, extra=extra)


def pace(torch, loader, rows: int) -> float:
    """Rows per second of an epoch in which nobody trains."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in loader:
        pass
    torch.cuda.synchronize()
    return rows / (time.perf_counter() - start)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", default=["step", "memory", "stages", "train", "loss"])
    parser.add_argument("--batch", nargs="+", type=int, default=[400_000, 65_536])
    parser.add_argument("--rows", type=int, default=32_000_000)
    parser.add_argument("--chunk-rows", type=int, default=2_000_000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--threads", type=int, default=None, help="that read the files; by default all but two cores")
    parser.add_argument("--cached", action="store_true", help="train from the loader's memory cache as well")
    parser.add_argument("--cache-share", type=float, default=0, help="train with this share of the rows cached as well")
    parser.add_argument("--folder", default="/dev/shm" if Path("/dev/shm").is_dir() else None)
    parser.add_argument("--peers", nargs="*", default=PEERS)
    return parser.parse_args()


def main() -> None:
    options = parsed()
    import torch

    if not torch.cuda.is_available():
        print("benchmarks/criteo_h200.py needs a CUDA device; there is none here")
        sys.exit(0)
    claims: list[Claim] = []
    place = Path(tempfile.mkdtemp(prefix="penstock-benchmark-", dir=options.folder))
    try:
        if "train" in options.part:
            start = time.perf_counter()
            write_files(place, options.rows)
            print(f"{options.rows:,} rows written in {time.perf_counter() - start:.0f} s", flush=True)
        for batch in options.batch:
            if "stages" in options.part:
                claims.append(measure_stages(torch, batch))
            if "step" in options.part:
                claims.append(measure_step(torch, batch, tuple(options.peers)))
            if "memory" in options.part:
                claims.append(measure_memory(torch, batch))
            if "optimizers" in options.part:
                other_optimizers(torch, batch)
            if "train" in options.part:
                alone = [c.penstock for c in claims if c.name == "gpu/step" and c.extra["batch"] == batch]
                claims.append(measure_train(torch, place, options.rows, batch, alone[0] if alone else None, options))
            if "loss" in options.part:
                claims.append(measure_loss(torch, batch))
            torch.cuda.empty_cache()
    finally:
        shutil.rmtree(place, ignore_errors=True)
    report(f"The Criteo job on {torch.cuda.get_device_name()}, 26 tables, {sum(SIZES):,} rows × {DIM}", claims)


if __name__ == "__main__":
    main()
