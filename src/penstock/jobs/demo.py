"""What `penstock demo` and `make demo` do: the whole product on made-up click logs, in well under three minutes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from penstock.core.schema import Role, Schema
from penstock.data import synthetic
from penstock.etl import presets
from penstock.jobs.events import DataPrepared, EventListener, Listeners, StageBegan
from penstock.jobs.first_run import FIRST_RUN, is_first_run
from penstock.jobs.recorder import RunRecorder
from penstock.report.summary import show_training

STAGES = {
    "etl": "2. Features: counting categories, scaling numbers, holding out a tenth of the rows",
    "train": "3. A DLRM, its embeddings trained beside it",
    "save": "4. Workflow, embeddings and weights saved as one model",
    "predict": "5. Predictions on raw rows through the saved model",
}
NEXT = (
    "penstock evaluate {folder} {folder}/clicks.tsv",
    "penstock predict {folder} {folder}/clicks.tsv --output scores.parquet --keep label",
    "penstock serve {folder}/model",
)


def run_demo(
    console: Console | None,
    num_rows: int,
    output: str | Path,
    *,
    progress: bool | None = None,
    cardinality_cap: int = 100_000,
) -> dict[str, Any]:
    """Make click logs, turn them into features, train a DLRM on them, predict on raw rows; the figures.

    Everything stays in `output`, the report too; a demo that was there is replaced. Without a console nothing is said.
    """
    say = console.print if console is not None else lambda *_, **__: None
    folder, began = Path(output), time.perf_counter()
    if is_first_run():
        say(FIRST_RUN, highlight=False)
    found, recorder = _run_stages(say, num_rows, folder, progress, cardinality_cap)
    found["seconds"]["total"] = round(time.perf_counter() - began, 3)
    if console is not None:
        show_training(found, console)
        for line in NEXT:
            console.print(f"[dim]try[/]  {line.format(folder=escape(str(folder)))}", highlight=False, soft_wrap=True)
    return {**found, "report": str(recorder.path)}


def _run_stages(
    say: Callable[..., None], num_rows: int, folder: Path, progress: bool | None, cardinality_cap: int
) -> tuple[dict[str, Any], RunRecorder]:
    from penstock.jobs.training import TrainJob

    began = time.perf_counter()
    say(f"[bold]1. {num_rows:,} rows of click logs, shaped like Criteo's", highlight=False)
    made = synthetic.criteo(
        folder / "clicks.tsv", num_rows, cardinalities=cardinality_cap, overwrite=True, progress=progress
    )
    say(f"   {made}", highlight=False, soft_wrap=True, markup=False)
    seconds = {"synth": round(time.perf_counter() - began, 3)}
    recorder = RunRecorder(folder)

    listener = Listeners(_Narrator(say), recorder)
    # A store, on a GPU too: compiling and capturing a step takes longer than the whole demo. Few epochs, too: it is
    # there to be watched, not to be the best.
    settings = {"epochs": 2, "batch_size": 1024, "eval_every": max(1, num_rows // 2_000), "tables": "store"}
    job = TrainJob(
        made.path, folder, presets.load("criteo"), overwrite=True, best_auc=made.best_auc, listener=listener,
        progress=progress, settings=settings,
    )  # fmt: skip
    found = job.run().to_dict()
    found["seconds"] = {**seconds, **found["seconds"]}
    return found, recorder


class _Narrator(EventListener):
    """Says what each stage is for."""

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say

    def stage_began(self, event: StageBegan) -> None:
        if event.name in STAGES:
            self._say(f"[bold]{STAGES[event.name]}", highlight=False)

    def data_prepared(self, event: DataPrepared) -> None:
        self._say(f"   {_features(event.features.schema)}", highlight=False)


def _features(schema: Schema) -> str:
    categories = schema.select(roles=Role.CATEGORICAL)
    codes = sum(column.cardinality or 0 for column in categories)
    numbers = schema.select(roles=Role.CONTINUOUS).names
    return f"{len(categories)} categories with {codes:,} codes, {len(numbers)} numbers"
