"""What a training run reported: its records, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

from penstock.train.records import KINDS, CheckpointRecord, Record, TrainRecord, ValidRecord, record_to_dict


@dataclass
class History:
    """Records in the order in which they were made (see `penstock.train.records`), and the figures of the whole run.

    Args:
        records: in order.
        stats: the figures of the whole training.
        best: with `select_by`, the evaluation whose weights the model was left with.
        stopped_early: whether training ended because patience did.

    >>> history = History([ValidRecord(1, 0, 10, 0.6, {"auc": 0.7}), ValidRecord(2, 0, 10, 0.5, {"auc": 0.8})])
    >>> history.last("valid").metrics["auc"], history.values("valid", "auc")
    (0.8, [0.7, 0.8])
    """

    records: list[Record] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    best: ValidRecord | None = None
    stopped_early: bool = False

    @overload
    def of(self, kind: Literal["train"]) -> list[TrainRecord]: ...
    @overload
    def of(self, kind: Literal["valid"]) -> list[ValidRecord]: ...
    @overload
    def of(self, kind: Literal["checkpoint"]) -> list[CheckpointRecord]: ...
    def of(self, kind: str) -> Any:
        """All records of a kind: "train", "valid" or "checkpoint".

        Args:
            kind: of record.

        Returns:
            A list of them.
        """
        return [record for record in self.records if isinstance(record, KINDS[kind])]

    @overload
    def last(self, kind: Literal["train"]) -> TrainRecord | None: ...
    @overload
    def last(self, kind: Literal["valid"]) -> ValidRecord | None: ...
    @overload
    def last(self, kind: Literal["checkpoint"]) -> CheckpointRecord | None: ...
    def last(self, kind: Literal["train", "valid", "checkpoint"]) -> Record | None:
        """The latest record of a kind; None where there is none.

        Args:
            kind: of record.

        Returns:
            The record, or None.
        """
        found: Sequence[Record] = self.of(kind)
        return found[-1] if found else None

    def values(self, kind: Literal["train", "valid", "checkpoint"], name: str) -> list[Any]:
        """One figure of all records of a kind that have it.

        Args:
            kind: of record.
            name: of a field or metric.

        Returns:
            The figures, in order.
        """
        found = [record_to_dict(record) for record in self.of(kind)]
        return [record[name] for record in found if name in record]
