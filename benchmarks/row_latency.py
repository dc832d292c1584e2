"""Claim `row_latency/criteo`: one raw row (a dict) through the Criteo workflow, for online use.

The peer is the same fitted workflow on a polars frame of one row, which is how a batch library would be called.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from harness import Claim, report

from etl import CATS, CONTS, THRESHOLD


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="rows to fit on")
    parser.add_argument("--calls", type=int, default=3_000)
    args = parser.parse_args()

    from penstock import Dataset, Workflow, ops
    from penstock.data.synthetic import CRITEO_DTYPES, CRITEO_NAMES, criteo

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "clicks.tsv"
        criteo(source, args.rows)
        cats = CATS >> ops.Categorify(freq_threshold=THRESHOLD)
        conts = CONTS >> ops.FillMissing() >> ops.Clip(min_value=0) >> ops.LogOp() >> ops.Normalize()
        workflow = Workflow(cats + conts)
        data = Dataset(source, names=CRITEO_NAMES, dtypes=CRITEO_DTYPES)
        workflow.fit(data)
        rows = data.head(args.calls).select(CATS + CONTS)
    # Rows as a service gets them: ids as hexadecimal text.
    raw = [
        {name: None if value is None else (f"{value:08x}" if name in CATS else value) for name, value in row.items()}
        for row in rows.iter_rows(named=True)
    ]
    encoded = workflow.transform(rows)
    for i in range(0, len(raw), 97):
        assert workflow.transform_row(raw[i]) == encoded.row(i, named=True)
    ours = [_timed(lambda row=row: workflow.transform_row(row)) for row in raw]
    frames = [rows.slice(i, 1) for i in range(min(300, len(raw)))]
    theirs = [_timed(lambda frame=frame: workflow.transform(frame)) for frame in frames]
    extra = {"p99": round(statistics.quantiles(ours, n=100)[98] * 1e6, 1)}
    claim = Claim(
        "row_latency/criteo",
        "µs",
        statistics.median(ours) * 1e6,
        {"frame_of_one_row": statistics.median(theirs) * 1e6},
        higher_is_better=False,
        extra=extra,
    )
    report("One row through the Criteo workflow (39 columns), median", [claim])


def _timed(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
