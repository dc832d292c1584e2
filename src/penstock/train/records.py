"""What a training reports as it goes on: a record of training, of an evaluation, of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from penstock.core.errors import ArtefactError


@dataclass(frozen=True)
class TrainRecord:
    """Training since the record before.

    `rows` are all that were trained on so far; `loss` is the mean over the rows since the record before, and so are
    `metrics`; `seconds` has the `total` and that of each stage (see `Timings`).

    Args:
        step: behind which it was made.
        rows: trained on since the start.
        loss: the mean since the record before.
        metrics: by name, since the record before.
        rows_per_second: how fast.
        seconds: in all, and by stage.
    """

    step: int
    rows: int
    loss: float
    metrics: dict[str, float] = field(default_factory=dict)
    rows_per_second: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def from_figures(cls, step: int, figures: Mapping[str, Any]) -> Self:
        """The record of what was measured since the one before; figures that are no field are metrics.

        Args:
            step: behind which it was made.
            figures: by name.
        """
        return cls(step=step, **_with_metrics(figures, cls))


@dataclass(frozen=True)
class ValidRecord:
    """An evaluation behind a step: the mean loss over its rows, its metrics, and how long it took.

    Args:
        step: behind which it was made.
        epoch: its number.
        rows: evaluated.
        loss: the mean.
        metrics: by name.
        seconds: that it took.
        gain: where the model as it began was evaluated, by how much its log loss is lower, a row.
        gain_error: the standard error of that.
    """

    step: int
    epoch: int | None
    rows: int
    loss: float
    metrics: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    gain: float | None = None
    gain_error: float | None = None

    @property
    def is_start(self) -> bool:
        """Whether it is of the model as it began (see `fit`, `keep_start`)."""
        return self.step == 0 and self.epoch is None

    @classmethod
    def from_figures(cls, step: int, epoch: int | None, figures: Mapping[str, Any]) -> Self:
        """The record of an evaluation; figures that are no field are metrics.

        Args:
            step: behind which it was made.
            epoch: its number.
            figures: by name.
        """
        return cls(step=step, epoch=epoch, **_with_metrics(figures, cls))


@dataclass(frozen=True)
class CheckpointRecord:
    """A checkpoint was written.

    Args:
        step: behind which it was made.
        path: of the checkpoint.
        seconds: that it took.
    """

    step: int
    path: str
    seconds: float = 0.0


Record = TrainRecord | ValidRecord | CheckpointRecord
KINDS: dict[str, type[Record]] = {"train": TrainRecord, "valid": ValidRecord, "checkpoint": CheckpointRecord}


def _with_metrics(figures: Mapping[str, Any], kind: type[TrainRecord] | type[ValidRecord]) -> dict[str, Any]:
    names = {own.name for own in fields(kind)}
    known = {name: value for name, value in figures.items() if name in names}
    return {**known, "metrics": {name: value for name, value in figures.items() if name not in names}}


def kind_of(record: Record) -> str:
    """The word for a record: "train", "valid" or "checkpoint"."""
    return next(kind for kind, own in KINDS.items() if isinstance(record, own))


def record_to_dict(record: Record) -> dict[str, Any]:
    """A record as flat plain data, as checkpoints and reports hold it; metrics stand beside the loss.

    Args:
        record: of `fit`.

    Returns:
        Plain data.

    >>> record_to_dict(ValidRecord(step=5, epoch=0, rows=10, loss=0.5, metrics={"auc": 0.7}, seconds=0.1))
    {'kind': 'valid', 'step': 5, 'epoch': 0, 'rows': 10, 'loss': 0.5, 'auc': 0.7, 'seconds': 0.1}
    """
    found: dict[str, Any] = {"kind": kind_of(record)}
    for own in fields(record):
        value = getattr(record, own.name)
        found |= value if own.name == "metrics" else {} if value is None else {own.name: value}
    return found


def record_from_dict(data: Mapping[str, Any]) -> Record:
    """What `record_to_dict` was given; figures that no field has are metrics.

    Args:
        data: what `record_to_dict` gave.

    Returns:
        The record.

    >>> record_from_dict({"kind": "valid", "step": 5, "rows": 10, "loss": 0.5, "auc": 0.7}).metrics
    {'auc': 0.7}

    Raises:
        ArtefactError: the data does not describe a record.
    """
    rest = dict(data)
    own = KINDS.get(str(rest.pop("kind", None)))
    if own is None or "step" not in rest:
        raise ArtefactError(f"not a record of a training: {dict(data)!r}")
    names = [one.name for one in fields(own)]
    known = {name: rest.pop(name) for name in names if name in rest}
    if own is ValidRecord:
        known.setdefault("epoch", None)
    if "metrics" in names:
        known["metrics"] = rest
    try:
        return own(**known)
    except TypeError as error:
        raise ArtefactError(f"not a record of a training: {dict(data)!r}: {error}") from error
