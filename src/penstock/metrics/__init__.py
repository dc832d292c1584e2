"""Metrics: read batch by batch on any device, merged over workers, exact or with a bound that is told.

>>> auc = create_metric("auc")
>>> auc.update([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
>>> auc.compute()
0.75
"""

from penstock.metrics.auc import AUC
from penstock.metrics.calibration import Calibration
from penstock.metrics.group_auc import GroupAUC
from penstock.metrics.log_loss import LogLoss, logit
from penstock.metrics.meter import Meter
from penstock.metrics.ndcg import NDCG
from penstock.metrics.protocol import Metric
from penstock.metrics.registry import METRICS, create_metric

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
