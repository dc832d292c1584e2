"""What a training run reports: plain records, one after another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class History:
    """Records in the order in which they were made, each a plain dict with its `kind` and `step`.

    `train` records carry loss, AUC, rows/s and `seconds` by stage (see `Timings`) since the record before; `valid` ones
    the loss and AUC of an evaluation; `checkpoint` ones the path; both the seconds they took.

    >>> history = History([{"kind": "valid", "step": 1, "auc": 0.7}, {"kind": "valid", "step": 2, "auc": 0.8}])
    >>> history.last("valid")["auc"], history.values("valid", "auc")
    (0.8, [0.7, 0.8])
    """

    records: list[dict[str, Any]] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """All records of a kind."""
        return [record for record in self.records if record["kind"] == kind]

    def last(self, kind: str) -> dict[str, Any] | None:
        """The latest record of a kind."""
        found = self.of(kind)
        return found[-1] if found else None

    def values(self, kind: str, name: str) -> list[Any]:
        """One figure of all records of a kind that have it."""
        return [record[name] for record in self.of(kind) if name in record]
