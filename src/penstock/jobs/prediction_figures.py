"""Predictions of a saved model on held-out rows, as a report shows them: how they lie by label, whether they hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.data import Dataset
from penstock.jobs.preparation import Prepared
from penstock.jobs.sampling import sample_rows
from penstock.jobs.scoring_input import model_columns
from penstock.metrics import Calibration, logit
from penstock.serve.predictor import Predictor

MOST_ROWS = 100_000
_NUM_BINS = 30
_CALIBRATION_BINS = 12
_OUTSIDE = 0.001  # the share of predictions on either side that may share the outermost bin


def describe_predictions(
    predictor: Predictor, features: Dataset, label: str, most_rows: int = MOST_ROWS
) -> dict[str, Any] | None:
    """How predictions lie for each label, and how they compare with what happened.

    Args:
        predictor: of the saved model.
        features: held-out rows behind the workflow.
        label: the column that holds what happened.
        most_rows: so many rows at most, spread over the data.

    Returns:
        Plain data: `edges` of bins, `counts` by label, `calibration`, `rows` and whether they are a sample; None
        without rows or where a prediction is NaN.
    """
    rows, is_sample = sample_rows(features, [*model_columns(predictor), label], most_rows)
    scores, labels = predictor.predict_features(rows), rows[label].to_numpy()
    if not len(scores) or not np.isfinite(scores).all():
        return None
    calibration = Calibration()
    calibration.update(logit(scores), labels)
    edges = bin_edges(scores)
    inside = np.clip(scores, edges[0], edges[-1])
    return {
        "rows": len(scores),
        "is_sample": is_sample,
        "edges": edges.tolist(),
        "counts": {str(value): np.histogram(inside[labels == value], edges)[0].tolist() for value in (0, 1)},
        "calibration": calibration.to_dict(_CALIBRATION_BINS),
    }


def example_predictions(predictor: Predictor, ready: Prepared, count: int) -> list[dict[str, Any]]:
    """The labels and predictions of a few held-out rows, which go in as a service would get them.

    Args:
        predictor: of the saved model.
        ready: has the rows.
        count: how many.

    Returns:
        `label` and `probability` of each; none without held-out rows.
    """
    if not count or ready.examples is None:
        return []
    frame = ready.examples.head(count)
    scores = predictor.predict(frame.to_dicts()) if ready.is_raw else predictor.predict_features(frame)
    labels = frame[ready.label].to_list() if ready.label in frame.columns else [None] * len(scores)
    return [{"label": label, "probability": float(score)} for label, score in zip(labels, scores, strict=True)]


def bin_edges(scores: np.ndarray, num_bins: int = _NUM_BINS) -> np.ndarray:
    """Bins of one width between round numbers, which hold all but a few outermost predictions.

    >>> bin_edges(np.array([0.021, 0.03, 0.18]), num_bins=2).round(3).tolist()
    [0.0, 0.1, 0.2]
    """
    low, high = (float(value) for value in np.quantile(scores, [_OUTSIDE, 1 - _OUTSIDE]))
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-3))) / 2
    first, last = math.floor(low / step) * step, math.ceil(high / step + 1e-9) * step
    return np.linspace(max(0.0, first), min(1.0, max(last, first + step)), num_bins + 1)
