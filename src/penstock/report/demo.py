"""What `penstock demo` and `make demo` do: the whole product on made-up click logs, in under a minute."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from rich.console import Console

from penstock.data import synthetic
from penstock.etl import presets
from penstock.etl.job import EtlJob
from penstock.report import terminal


def run_demo(console: Console, num_rows: int, output: str | None = None, cardinality_cap: int = 100_000) -> None:
    """Make click logs, turn them into features, and show what came out.

    With `output`, everything stays in that folder; without, it is written to a temporary one and removed.
    """
    folder = Path(output) if output is not None else Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        console.print(f"1. Click logs with {num_rows:,} rows, shaped like Criteo's")
        summary = synthetic.criteo(folder / "clicks.tsv", num_rows, cardinalities=cardinality_cap, overwrite=True)
        console.print(str(summary), highlight=False, soft_wrap=True)
        console.print("2. Features: categories to codes by frequency, numbers filled, clipped, logged and normalized")
        job = EtlJob(
            [str(summary.path)], str(folder / "features"), recipe=presets.load("criteo"), overwrite=True,
            part_size="16MB",
        )  # fmt: skip
        terminal.show_etl(job.run(), console)
    finally:
        if output is None:
            shutil.rmtree(folder, ignore_errors=True)
    closing = (
        f"Look closer: penstock inspect {job.output}" if output is not None else "Removed again; --output keeps it."
    )
    console.print(closing, highlight=False, soft_wrap=True)
