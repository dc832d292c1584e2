"""Training curves for TensorBoard, beside (not instead of) the run's own report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from penstock.core.extras import require

_FIGURES = ("loss", "auc", "log_loss", "rows_per_second")


class TensorBoardLogger:
    """A callback of `fit` that writes every record as TensorBoard events: `pip install 'penstock[tensorboard]'`.

    Scalars are named `train/loss`, `valid/auc` and so on; `time/lookup` and its like are the share of training time
    that a stage took since the record before. Everything is on disk when the call returns.

    >>> import tempfile
    >>> with TensorBoardLogger(tempfile.mkdtemp()) as logger:
    ...     logger({"kind": "train", "step": 50, "loss": 0.4, "auc": 0.78})
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

    def __call__(self, record: Mapping[str, Any]) -> None:
        kind, step = record["kind"], record["step"]
        for figure in _FIGURES:
            if record.get(figure) is not None:
                self._writer.add_scalar(f"{kind}/{figure}", record[figure], step)
        seconds = record.get("seconds")
        if kind == "train" and isinstance(seconds, Mapping) and seconds.get("total"):
            for stage, spent in seconds.items():
                if stage != "total":
                    self._writer.add_scalar(f"time/{stage}", spent / seconds["total"], step)
        if kind == "checkpoint":
            self._writer.add_text("checkpoint", str(record["path"]), step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
