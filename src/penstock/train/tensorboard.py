"""Training curves for TensorBoard, beside (not instead of) the run's own report."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from penstock.core.extras import require
from penstock.train.records import CheckpointRecord, Record, TrainRecord, kind_of


class TensorBoardLogger:
    """A callback of `fit` that writes every record as TensorBoard events: `pip install 'penstock[tensorboard]'`.

    Scalars are named `train/loss`, `valid/auc` and so on; `time/lookup` and its like are the share of training time
    that a stage took since the record before. Everything is on disk when the call returns.

    >>> import tempfile
    >>> with TensorBoardLogger(tempfile.mkdtemp()) as logger:
    ...     logger(TrainRecord(50, rows=3200, loss=0.4, metrics={"auc": 0.78}))
    ...     logger.files[0].name.startswith("events.out.tfevents")
    True
    """

    def __init__(self, directory: str | Path) -> None:
        require("tensorboard", "tensorboard")
        self.directory = Path(directory)
        self._writer = require("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(self.directory))

    @property
    def files(self) -> list[Path]:
        """The event files in the directory."""
        return sorted(self.directory.glob("events.out.tfevents*"))

    def __call__(self, record: Record) -> None:
        kind = kind_of(record)
        if isinstance(record, CheckpointRecord):
            self._writer.add_text("checkpoint", record.path, record.step)
        else:
            for figure, value in {"loss": record.loss, **record.metrics}.items():
                self._writer.add_scalar(f"{kind}/{figure}", value, record.step)
        if isinstance(record, TrainRecord):
            self._write_speed(record)
        self._writer.flush()

    def _write_speed(self, record: TrainRecord) -> None:
        if record.rows_per_second is not None:
            self._writer.add_scalar("train/rows_per_second", record.rows_per_second, record.step)
        total = record.seconds.get("total")
        for stage, spent in record.seconds.items():
            if total and stage != "total":
                self._writer.add_scalar(f"time/{stage}", spent / total, record.step)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
