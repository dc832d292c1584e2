"""What `penstock demo` and `make demo` do: the whole product on made-up click logs, in about a minute."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from penstock.data import Dataset, synthetic
from penstock.report.profile import profile_schema
from penstock.report.terminal import schema_table


def run_demo(
    console: Console, num_rows: int, output: str | None = None, cardinality_cap: int = 100_000
) -> dict[str, Any]:
    """Make click logs, turn them into features, train a DLRM on them, and predict on raw rows.

    With `output`, everything stays in that folder; without, it is written to a temporary one and removed. Returns the
    figures as plain data.
    """
    from penstock.serve.pipeline import train_click_model  # brings torch

    folder = Path(output) if output is not None else Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        console.print(f"1. Click logs with {num_rows:,} rows, shaped like Criteo's")
        summary = synthetic.criteo(folder / "clicks.tsv", num_rows, cardinalities=cardinality_cap, overwrite=True)
        console.print(str(summary), highlight=False, soft_wrap=True)
        console.print("2. Features, a DLRM with embeddings trained asynchronously, and a saved model")
        found = train_click_model(summary.path, folder, overwrite=True, say=lambda line: console.print(f"   {line}"))
        console.print(schema_table(profile_schema(Dataset(folder / "features").schema)))
        _show(found, summary.best_auc, console)
    finally:
        if output is None:
            shutil.rmtree(folder, ignore_errors=True)
    closing = (
        f"Look closer: penstock inspect {folder / 'features'}"
        if output is not None
        else "Removed again; --output keeps it."
    )
    console.print(closing, highlight=False, soft_wrap=True)
    return {**found, "best_auc": summary.best_auc}


def _show(found: dict[str, Any], best_auc: float, console: Console) -> None:
    seconds = found["seconds"]
    console.print("3. On held-out rows")
    console.print(f"   AUC {found['auc']:.4f}; the best reachable, of the planted probabilities: {best_auc:.4f}")
    console.print(
        f"   {found['rows']['train']:,} rows a pass, {found['rows_per_second']:,.0f} rows/s in training; "
        f"{found['embedding_rows']:,} embedding rows; "
        + ", ".join(f"{name} {time:.1f} s" for name, time in seconds.items())
    )
    for example in found["examples"]:
        outcome = "clicked" if example["label"] else "not clicked"
        console.print(f"   a raw row that was {outcome}: {example['probability']:.3f}")
