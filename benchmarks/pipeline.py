"""Claims `pipeline/*`: raw Criteo-shaped text to features, to a trained DLRM, to scores, stage by stage.

The peer does the same by hand in polars and plain PyTorch, in memory (`by_hand.py`). `evaluate` and `predict` begin at
raw text again. Stages of Penstock are those that `penstock train` reports; its first run compiles, the best of the
later ones counts. With `--threads 1,2,4`, features alone are measured on so many cores, both sides in processes of
their own that may use no others (claims `pipeline/features_1`, …), and so are features with rows held out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness import Claim, best_of, report

STAGES = ("features", "train", "evaluate", "predict")
OWN_STAGES = {"features": "etl", "train": "train"}  # as TrainResult calls them


def penstock_stages(source: Path, place: Path, epochs: int, batch_size: int) -> dict[str, float]:
    """Seconds of each stage, and of everything a user waits for."""
    from penstock.etl import presets
    from penstock.jobs import TrainJob
    from penstock.jobs.scoring import evaluate_model, predict_files

    settings = {"epochs": epochs, "batch_size": batch_size}
    began = time.perf_counter()
    job = TrainJob(source, place / "run", presets.load("criteo"), settings=settings, overwrite=True, progress=False)
    result = job.run()
    trained = time.perf_counter()
    evaluated = evaluate_model(place / "run", source, progress=False)
    scored = time.perf_counter()
    predict_files(place / "run", source, place / "scores.parquet", overwrite=True, progress=False)
    ended = time.perf_counter()
    found = {stage: result.seconds[own] for stage, own in OWN_STAGES.items()}
    others = trained - began - sum(found.values())
    return {
        **found,
        "evaluate": scored - trained,
        "predict": ended - scored,
        "others": others,
        "total": ended - began,
        "auc": evaluated.auc or 0.0,
    }


def stages_by_hand(source: Path, place: Path, epochs: int, batch_size: int, device: str) -> dict[str, float]:
    """The same by hand: nine rows of ten to train on, features on disk, then all rows from text again, twice."""
    import by_hand
    import polars as pl

    from penstock.metrics import AUC

    began = time.perf_counter()
    frame = by_hand.read_text(source)
    frame = frame.head(len(frame) * 9 // 10)
    fitted = by_hand.fit(frame)
    features = by_hand.transform(frame, fitted)
    by_hand.write(features, place / "by-hand.parquet")
    ready = time.perf_counter()
    model = by_hand.ByHand(fitted.sizes, device)
    model.train(features, epochs, batch_size)
    trained = time.perf_counter()
    scores, labels = model.scores(by_hand.transform(by_hand.read_text(source), fitted), batch_size)
    auc = AUC()
    auc.update(scores, labels)
    figure = auc.compute()
    evaluated = time.perf_counter()
    scores, _ = model.scores(by_hand.transform(by_hand.read_text(source), fitted), batch_size)
    pl.DataFrame({"probability": scores}).write_parquet(place / "by-hand-scores.parquet")
    ended = time.perf_counter()
    return {
        "features": ready - began,
        "train": trained - ready,
        "evaluate": evaluated - trained,
        "predict": ended - evaluated,
        "total": ended - began,
        "auc": figure,
    }


def best_stages(run: Callable[[], dict[str, float]], rounds: int, name: str) -> dict[str, float]:
    """The quickest of several rounds behind one that compiles, by its total; the first is told too."""
    first = run()
    print(f"{name}, first: {_shown(first)}", flush=True)
    found = [run() for _ in range(rounds)]
    best = min(found, key=lambda stages: stages["total"])
    print(f"{name}, best of {rounds}: {_shown(best)}", flush=True)
    return {**best, "first": first["total"]}


def _shown(stages: dict[str, float]) -> str:
    return ", ".join(f"{stage} {value:.3f}" for stage, value in stages.items())


def stage_claims(rows: int, own: dict[str, float], peer: dict[str, float]) -> list[Claim]:
    claims = []
    for stage in (*STAGES, "total"):
        extra: dict[str, object] = {"seconds": round(own[stage], 3), "peer_seconds": round(peer[stage], 3)}
        if stage == "total":
            extra |= {"first_seconds": round(own["first"], 3), "auc": round(own["auc"], 4)}
            extra |= {"others_seconds": round(own["others"], 3), "peer_auc": round(peer["auc"], 4)}
        rates = {"polars_and_torch": rows / peer[stage]}
        claims.append(Claim(f"pipeline/{stage}", "rows/s", rows / own[stage], rates, extra=extra))
    return claims


def thread_claims(source: Path, place: Path, rows: int, threads: list[int], rounds: int) -> list[Claim]:
    """Features alone, by the number of cores; a process knows its cores from its start on."""
    claims = []
    for cores in threads:
        command = [sys.executable, __file__, "--child", str(cores), str(source), str(place), "--rounds", str(rounds)]
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode:
            sys.exit(f"features on {cores} cores failed:\n{ended.stderr}")
        seconds = json.loads(ended.stdout.splitlines()[-1])
        rates = {name: rows / taken for name, taken in seconds.items()}
        print(f"{cores} cores: " + ", ".join(f"{n} {r / 1e6:.2f} M rows/s" for n, r in rates.items()), flush=True)
        peers = {"polars_by_hand": rates["polars_by_hand"]}
        extra: dict[str, object] = {"with_rows_held_out": float(f"{rates['penstock_held_out']:.4g}")}
        claims.append(Claim(f"pipeline/features_{cores}", "rows/s", rates["penstock"], peers, extra=extra))
    return claims


def held_out_job(source: Path, target: Path) -> None:
    """Features as `penstock train` makes them: a tenth of the rows teaches nothing and goes to another folder."""
    from penstock.etl import presets
    from penstock.jobs import RunFolder, TrainSettings
    from penstock.jobs.preparation import RawRows

    rows = RawRows(source, None, presets.load("criteo"), TrainSettings.resolve({}))
    rows.run(RunFolder(target), lambda event: None, False)


def child(cores: int, source: Path, place: Path, rounds: int) -> None:
    """Measure features on a number of cores: the affinity must be set before polars starts its threads."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    from etl import penstock_job, polars_job

    penstock_job(source, place / "warm")
    held_out_job(source, place / "warm-run")
    contestants = {
        "penstock": lambda: penstock_job(source, place / "penstock"),
        "penstock_held_out": lambda: held_out_job(source, place / "run"),
        "polars_by_hand": lambda: polars_job(source, place / "polars.parquet"),
    }
    print(json.dumps(best_of(contestants, rounds)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=None, help="default: 65,536 on a GPU, 8,192 on CPUs")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", default="", help="measure features on so many cores as well: 1,2,4")
    parser.add_argument("--no-stages", action="store_true", help="only what --threads asks for")
    parser.add_argument("--child", nargs=3, default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        cores, source, place = args.child
        child(int(cores), Path(source), Path(place), args.rounds)
        return

    import torch

    from penstock.data.synthetic import criteo

    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch_size = args.batch_size or (65_536 if device == "cuda" else 8_192)
    available = len(os.sched_getaffinity(0))
    threads = [n for n in map(int, filter(None, args.threads.split(","))) if n <= available]
    claims: list[Claim] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        place = Path(folder)
        source = place / "clicks.tsv"
        criteo(source, args.rows)
        if not args.no_stages:
            own = best_stages(lambda: penstock_stages(source, place, args.epochs, batch_size), args.rounds, "penstock")
            peer = best_stages(
                lambda: stages_by_hand(source, place, args.epochs, batch_size, device), args.rounds, "by hand"
            )
            claims += stage_claims(args.rows, own, peer)
        claims += thread_claims(source, place, args.rows, threads, args.rounds)
    report(f"Raw text to a model to scores, {args.rows:,} rows, {args.epochs} epochs, {device}", claims)


if __name__ == "__main__":
    main()
