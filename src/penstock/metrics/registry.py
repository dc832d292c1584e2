"""The metrics there are, by name."""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.errors import ParameterError, suggest
from penstock.metrics.auc import AUC
from penstock.metrics.calibration import Calibration
from penstock.metrics.group_auc import GroupAUC
from penstock.metrics.log_loss import LogLoss
from penstock.metrics.ndcg import NDCG
from penstock.metrics.protocol import Metric

METRICS: dict[str, type[Metric]] = {
    "auc": AUC,
    "log_loss": LogLoss,
    "gauc": GroupAUC,
    "ndcg": NDCG,
    "calibration": Calibration,
}


def create_metric(metric: str | Callable[[], Metric]) -> Metric:
    """A new metric: of a name in `METRICS`, or from whatever makes one.

    Args:
        metric: a name, or something that makes a metric when called.

    Returns:
        The metric, empty.

    >>> create_metric("auc").name, create_metric(lambda: NDCG(k=10)).name
    ('auc', 'ndcg@10')

    Raises:
        ParameterError: no metric has the name.
    """
    if not isinstance(metric, str):
        return metric()
    if metric not in METRICS:
        raise ParameterError(f"there is no metric {metric!r}{suggest(metric, METRICS, 'metrics')}")
    return METRICS[metric]()
