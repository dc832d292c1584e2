"""Metrics: read batch by batch on any device, merged over workers, exact or with a bound that is told.

Nothing is imported before it is asked for: the command line lists the names of metrics when it starts.

>>> auc = create_metric("auc")
>>> auc.update([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
>>> auc.compute()
0.75
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.lazy_names import lazy_names
from penstock.metrics.registry import METRICS, create_metric

if TYPE_CHECKING:
    from penstock.metrics.auc import AUC
    from penstock.metrics.calibration import Calibration
    from penstock.metrics.group_auc import GroupAUC
    from penstock.metrics.log_loss import LogLoss, logit
    from penstock.metrics.meter import Meter
    from penstock.metrics.ndcg import NDCG
    from penstock.metrics.protocol import Metric

__all__ = [
    "AUC",
    "METRICS",
    "NDCG",
    "Calibration",
    "GroupAUC",
    "LogLoss",
    "Meter",
    "Metric",
    "create_metric",
    "logit",
]
_HOMES = {
    "AUC": "auc",
    "NDCG": "ndcg",
    "Calibration": "calibration",
    "GroupAUC": "group_auc",
    "LogLoss": "log_loss",
    "Meter": "meter",
    "Metric": "protocol",
    "logit": "log_loss",
}
__getattr__, __dir__ = lazy_names(__name__, __all__, _HOMES)
