"""The metrics there are, by name.

>>> list(METRICS)
['auc', 'log_loss', 'gauc', 'ndcg', 'calibration']
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from penstock.core.errors import ParameterError, suggest

if TYPE_CHECKING:
    from penstock.metrics.protocol import Metric


class MetricClasses(Mapping[str, "type[Metric]"]):
    """Metrics by name. A class is imported when it is asked for, so that the command line knows the names at once."""

    def __init__(self, places: Mapping[str, tuple[str, str]]) -> None:
        self._places = dict(places)
        self._registered: dict[str, type[Metric]] = {}

    def __getitem__(self, name: str) -> type[Metric]:
        if name in self._registered:
            return self._registered[name]
        module, own = self._places[name]
        found: type[Metric] = getattr(importlib.import_module(module), own)
        return found

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self._places, *self._registered])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def register(self, name: str, metric: type[Metric]) -> type[Metric]:
        """Make a metric of one's own known by a name.

        Args:
            name: what settings call it.
            metric: a class that has what `Metric` asks for and is made without arguments.

        Returns:
            The class.
        """
        self._registered[name] = metric
        return metric


METRICS = MetricClasses(
    {
        "auc": ("penstock.metrics.auc", "AUC"),
        "log_loss": ("penstock.metrics.log_loss", "LogLoss"),
        "gauc": ("penstock.metrics.group_auc", "GroupAUC"),
        "ndcg": ("penstock.metrics.ndcg", "NDCG"),
        "calibration": ("penstock.metrics.calibration", "Calibration"),
    }
)


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
