"""The whole way in one call: raw rows → features → a trained model → evaluation → a saved model that predicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from penstock.core.errors import SchemaError
from penstock.core.params import Int, OneOf, Real, check_all
from penstock.data import Dataset
from penstock.embedding import Adagrad, Init, Store
from penstock.etl import Workflow, presets
from penstock.etl.input_section import open_input
from penstock.loader.torch import Loader
from penstock.nn import DLRM, MLP, DCNv2, DeepFM
from penstock.serve.model import save_model
from penstock.serve.predictor import Predictor
from penstock.train import fit, slots_of

MODELS = {"DLRM": DLRM, "DCNv2": DCNv2, "DeepFM": DeepFM, "MLP": MLP}


def train_click_model(
    source: Any,
    output: str | Path,
    *,
    recipe: Mapping[str, Any] | None = None,
    model: str = "DLRM",
    embedding_dim: int = 16,
    epochs: int = 3,
    batch_size: int = 1024,
    staleness: int = 4,
    valid_share: float = 0.1,
    seed: int = 0,
    num_examples: int = 3,
    overwrite: bool = False,
    progress: bool | None = None,
    say: Callable[[str], Any] | None = None,
) -> dict[str, Any]:
    """Train a click model on raw rows and save it; figures as plain data.

    `source` is a path (or several), read as `recipe` says (that of the preset `criteo` by default), or a Dataset. A
    share of the rows is held out; the workflow is fitted on the others, the model trained on them with an in-process
    store, and both are evaluated on what was held out. `output` receives `features`, `valid` and `model`. `say` is
    called with a line for each stage.

    Returns `auc`, `log_loss`, `rows`, `rows_per_second` (training), `embedding_rows`, `model` (the directory, for
    `Predictor`), `examples` (held-out rows' label and prediction through the saved model) and `seconds` by stage.
    """
    given = {"model": model, "embedding_dim": embedding_dim, "epochs": epochs, "batch_size": batch_size,
             "staleness": staleness, "valid_share": valid_share}  # fmt: skip
    numbers = dict.fromkeys(("embedding_dim", "epochs", "batch_size", "staleness"), Int(min=1))
    check_all(given, {**numbers, "model": OneOf(tuple(MODELS)), "valid_share": Real(0.001, 0.9)}, "train_click_model")
    recipe = presets.load("criteo") if recipe is None else recipe
    data = source if isinstance(source, Dataset) else open_input(_paths(source), recipe.get("input"), part_size="16MB")
    place, clock, say = Path(output), _Clock(), say or (lambda line: None)
    train_rows, valid_rows = data.split([1 - valid_share, valid_share], seed=seed)

    say("features: fitting the workflow, writing training and validation rows")
    workflow = Workflow.from_recipe(recipe)
    workflow.fit_transform(train_rows, show_progress=progress).to_parquet(
        place / "features", overwrite=overwrite, show_progress=progress
    )
    workflow.transform(valid_rows).to_parquet(place / "valid", overwrite=overwrite, show_progress=progress)
    clock.lap("etl")

    loader = Loader(place / "features", batch_size, shuffle=True, seed=seed)
    valid = Loader(place / "valid", 8192)
    if not loader.schema.select(roles="label").names:
        raise SchemaError(f"the workflow makes no label column; give one the role label: {loader.schema.names}")
    say(f"training: {model} over {len(loader)} batches of {batch_size} rows, {epochs} epochs, staleness {staleness}")
    torch.manual_seed(seed)
    network = MODELS[model](loader.schema, embedding_dim)
    slots = slots_of(loader.schema, embedding_dim, init=Init("uniform", -0.01, 0.01))
    with Store(slots, Adagrad(lr=0.05, initial_accumulator=1e-3)) as store:
        history = fit(
            network, loader, store, dense_optimizer=torch.optim.Adam(network.parameters(), lr=2e-3), epochs=epochs,
            staleness=staleness, valid=valid, progress=progress,
        )  # fmt: skip
        clock.lap("train")
        say("saving the workflow, the embeddings and the model")
        save_model(place / "model", workflow, network, store, overwrite=overwrite)
        embedding_rows = store.stats()["rows"]
    clock.lap("save")
    examples = _examples(place / "model", valid_rows, workflow, num_examples)
    clock.lap("predict")
    last = history.last("valid") or {}
    seconds = clock.seconds
    return {
        "auc": last.get("auc"),
        "log_loss": last.get("log_loss"),
        "rows": {"train": loader.num_rows, "valid": last.get("rows")},
        "rows_per_second": history.stats["rows"] / seconds["train"],
        "embedding_rows": embedding_rows,
        "model": str(place / "model"),
        "examples": examples,
        "seconds": {**seconds, "total": sum(seconds.values())},
    }


def _examples(directory: Path, rows: Dataset, workflow: Workflow, count: int) -> list[dict[str, Any]]:
    """Raw held-out rows through the saved model, as a service would send them."""
    if not count:
        return []
    frame = rows.head(count)
    labels = workflow.output_schema.select(roles="label").names
    with Predictor(directory) as predictor:
        scores = predictor.predict(frame.to_dicts())
    clicks = frame[labels[0]].to_list() if labels and labels[0] in frame.columns else [None] * len(scores)
    return [{"label": click, "probability": float(score)} for click, score in zip(clicks, scores, strict=True)]


def _paths(source: Any) -> list[str]:
    return [str(source)] if isinstance(source, (str, Path)) else [str(path) for path in source]


class _Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name], self._since = float(np.round(now - self._since, 3)), now
