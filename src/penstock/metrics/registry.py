"""The metrics there are, by name.

>>> list(METRICS)
['auc', 'log_loss', 'gauc', 'ndcg', 'calibration']
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.core.errors import ParameterError, suggest
from penstock.core.registry import Registry

if TYPE_CHECKING:
    from penstock.metrics.protocol import Metric

# One of one's own has what `Metric` asks for, and is made without arguments.
METRICS: Registry[Metric] = Registry(
    {
        "auc": "penstock.metrics.auc:AUC",
        "log_loss": "penstock.metrics.log_loss:LogLoss",
        "gauc": "penstock.metrics.group_auc:GroupAUC",
        "ndcg": "penstock.metrics.ndcg:NDCG",
        "calibration": "penstock.metrics.calibration:Calibration",
    },
    name_of=lambda metric: metric().name,
)
WITHIN_GROUPS = ("gauc", "ndcg")  # those that must be told each row's group; training has no groups


def create_metric(metric: str | Callable[[], Metric]) -> Metric:
    """A new metric: of a name in `METRICS`, or from whatever makes one.

    Args:
        metric: a name, or something that makes a metric when called.

    Returns:
        The metric, empty.

    >>> from penstock.metrics import NDCG
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
