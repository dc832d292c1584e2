"""How often rows were clicked, and what a model that says nothing else would reach."""

from __future__ import annotations

import math
from typing import Any

from penstock.data import Dataset
from penstock.report.learning import constant_log_loss


def label_figures(train: Dataset, valid: Dataset | None, label: str) -> dict[str, Any]:
    """The share of clicks among rows to train on and rows held out, and the log loss of a constant on the latter.

    Args:
        train: rows to train on.
        valid: rows held out.
        label: the label's column.

    Returns:
        `train_share`, `valid_share` and `constant_log_loss`; None where there are no rows, or no such figure.

    >>> import polars as pl
    >>> rows = Dataset(pl.DataFrame({"click": [0, 1, 0, 0]}))
    >>> label_figures(rows, None, "click")
    {'train_share': 0.25, 'valid_share': None, 'constant_log_loss': None}
    """
    share, held_out = _share(train, label), None if valid is None else _share(valid, label)
    known = share is not None and held_out is not None
    constant = constant_log_loss(share, held_out) if known else math.inf  # type: ignore[arg-type]
    return {
        "train_share": share,
        "valid_share": held_out,
        "constant_log_loss": constant if math.isfinite(constant) else None,
    }


def _share(data: Dataset, label: str) -> float | None:
    clicks, rows = 0.0, 0
    for frame in data.iter_frames([label]):
        clicks, rows = clicks + float(frame[label].sum()), rows + len(frame)
    return clicks / rows if rows else None
