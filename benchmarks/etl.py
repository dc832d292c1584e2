"""Claims `etl/total` and `etl/memory`: raw Criteo-shaped TSV to encoded parquet.

The job: Categorify(freq_threshold=6) of 26 hexadecimal columns; fill, clip, log, normalise of 13 integer columns; to
parquet with int32 and float32. The peer is the same job by a good hand in polars, wholly in memory (`by_hand.py`).
Penstock streams in bounded memory; `etl/memory` compares peak memory at 1 and 10 times the rows with the same
vocabulary.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import tempfile
from pathlib import Path

from by_hand import CATEGORIES as CATS
from by_hand import NUMBERS as CONTS
from by_hand import THRESHOLD, polars_job
from harness import Claim, best_of, report


def penstock_job(source: Path, target: Path) -> None:
    from penstock import Dataset, Workflow, ops
    from penstock.data.synthetic import CRITEO_DTYPES, CRITEO_NAMES

    cats = CATS >> ops.Categorify(freq_threshold=THRESHOLD)
    conts = CONTS >> ops.FillMissing() >> ops.Clip(min_value=0) >> ops.LogOp() >> ops.Normalize()
    workflow = Workflow(cats + conts + ["label"])
    data = Dataset(source, names=CRITEO_NAMES, dtypes=CRITEO_DTYPES)
    workflow.fit(data).transform(data).to_parquet(target, overwrite=True)


def penstock_general_job(source: Path, target: Path) -> None:
    """The same with the categories read as text, which takes the general reader."""
    from penstock import Dataset, Workflow, ops
    from penstock.data.synthetic import CRITEO_DTYPES, CRITEO_NAMES

    dtypes = {name: "string" if name in CATS else dtype for name, dtype in CRITEO_DTYPES.items()}
    cats = CATS >> ops.Categorify(freq_threshold=THRESHOLD)
    conts = CONTS >> ops.FillMissing() >> ops.Clip(min_value=0) >> ops.LogOp() >> ops.Normalize()
    workflow = Workflow(cats + conts + ["label"])
    data = Dataset(source, names=CRITEO_NAMES, dtypes=dtypes)
    workflow.fit(data).transform(data).to_parquet(target, overwrite=True)


def _child_peak(job, source: Path, target: Path, queue) -> None:
    job(source, target)
    # Not ru_maxrss: a child inherits its parent's peak there, through fork and exec alike.
    status = Path("/proc/self/status").read_text()
    queue.put(int(status.split("VmHWM:")[1].split()[0]) * 1024)


def peak_memory(job, source: Path, target: Path) -> float:
    """The peak resident bytes of a fresh process that does the job."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=_child_peak, args=(job, source, target, queue))
    child.start()
    peak = queue.get()
    child.join()
    return float(peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--memory-rows", type=int, default=None, help="rows of the large memory run; default 4 x rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cardinality-cap", type=int, default=100_000, help="of the memory runs: fixes the vocabulary")
    args = parser.parse_args()

    from penstock.data.synthetic import criteo

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        source = place / "clicks.tsv"
        criteo(source, args.rows)
        penstock_job(source, place / "warm")  # compile and cache the kernels before the clock runs
        contestants = {
            "penstock": lambda: penstock_job(source, place / "penstock"),
            "penstock_general": lambda: penstock_general_job(source, place / "general"),
            "polars_by_hand": lambda: polars_job(source, place / "polars.parquet"),
            "polars_text": lambda: polars_job(source, place / "polars-text.parquet", hexadecimal=False),
        }
        seconds = best_of(contestants, args.rounds)
        check_same(place / "penstock", place / "polars.parquet")
        rates = {name: args.rows / s for name, s in seconds.items()}
        peers = {"polars_by_hand": rates["polars_by_hand"], "nvtabular": None}
        claims = [
            Claim("etl/total", "rows/s", rates["penstock"], peers, extra={"seconds": rounded(seconds)}),
            Claim("etl/general", "rows/s", rates["penstock_general"], {"polars_by_hand": rates["polars_text"]}),
        ]
        for leftover in ("penstock", "general", "warm"):
            shutil.rmtree(place / leftover, ignore_errors=True)
        source.unlink()
        claims.append(memory_claim(place, args))
        report("ETL: Criteo-shaped TSV to encoded parquet", claims)


def memory_claim(place: Path, args: argparse.Namespace) -> Claim:
    from penstock.data.synthetic import criteo

    small, large = args.rows, args.memory_rows or 4 * args.rows
    peaks = {}
    for rows in (small, large):
        source = place / f"memory-{rows}.tsv"
        criteo(source, rows, cardinalities=args.cardinality_cap)
        peaks[rows] = peak_memory(penstock_job, source, place / f"out-{rows}")
        if rows == small:
            polars = peak_memory(polars_job, source, place / "polars-memory.parquet")
        source.unlink()
        shutil.rmtree(place / f"out-{rows}")
    growth = peaks[large] / peaks[small]
    extra = {"rows": [small, large], "peak_bytes": [int(peaks[small]), int(peaks[large])], "growth": round(growth, 3)}
    return Claim("etl/memory", "bytes", peaks[small], {"polars_by_hand": polars}, higher_is_better=False, extra=extra)


def check_same(ours: Path, theirs: Path) -> None:
    """A benchmark of two different jobs says nothing: the outputs must agree."""
    import polars as pl

    from penstock import Dataset

    left, right = Dataset(ours).to_polars(), pl.read_parquet(theirs)
    for name in [*CATS, "label"]:
        assert left[name].equals(right[name].cast(left[name].dtype)), f"column {name} differs"
    for name in CONTS:
        worst = (left[name].cast(pl.Float64) - right[name].cast(pl.Float64)).abs().max()
        assert worst is not None and worst < 1e-3, f"column {name} differs by {worst}"


def rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(s, 3) for name, s in seconds.items()}


if __name__ == "__main__":
    main()
