"""The records of a training as a report holds them: flat plain data, whose metrics stand beside the loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# What is no metric: the fields of `penstock.train.records`, and what the recorder adds.
FIELDS = frozenset(
    {"kind", "step", "epoch", "rows", "loss", "rows_per_second", "seconds", "path", "at", "gain", "gain_error"}
)


def metrics_of(record: Mapping[str, Any]) -> dict[str, float | None]:
    """The metrics of one record.

    >>> metrics_of({"kind": "valid", "step": 5, "loss": 0.5, "rows": 10, "click/auc": 0.7})
    {'click/auc': 0.7}
    """
    return {name: value for name, value in record.items() if name not in FIELDS}


def metric_names(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """The metrics of all records, in the order in which they first appear, those of evaluations first."""
    by_kind = sorted(records, key=lambda record: record["kind"] != "valid")
    return list(dict.fromkeys(name for record in by_kind for name in metrics_of(record)))
