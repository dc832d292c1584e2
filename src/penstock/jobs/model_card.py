"""What a trained model says of itself once it is saved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.core.described import described_frame
from penstock.jobs.preparation import Prepared
from penstock.jobs.run_folder import absolute_paths
from penstock.nn import Model
from penstock.serve.card import ModelCard, as_request
from penstock.serve.model import serving_workflow

_LONGEST = 20_000  # characters of an example; more would not be read


def model_card(
    source: Any,
    ready: Prepared,
    model: Model,
    num_rows: int,
    metrics: Mapping[str, float | None],
    keep_example: bool = True,
    constant_log_loss: float | None = None,
) -> ModelCard:
    """The names of its data, the date, its metrics, and a held-out row as a request would send it.

    Args:
        source: what was trained on.
        ready: what became of it.
        model: the trained one.
        num_rows: that it was trained on.
        metrics: on held-out rows.
        keep_example: whether that row is on it: whoever gets the model can read it.
        constant_log_loss: what a constant has on held-out rows.

    Returns:
        The card.
    """
    names = [Path(path).name for path in absolute_paths(source) or []]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    example = _example(ready, model) if keep_example else None
    return ModelCard(now, names, num_rows, dict(metrics), example, constant_log_loss)


def _example(ready: Prepared, model: Model) -> dict[str, Any] | None:
    if not ready.is_raw or ready.examples is None or ready.workflow is None:
        return None
    schema = serving_workflow(ready.workflow, model)[0].input_schema
    rows = described_frame(ready.examples.head(1)).to_dicts()
    example = as_request(rows[0], schema) if rows else None
    return example if len(json.dumps(example)) <= _LONGEST else None
