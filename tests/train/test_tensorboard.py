"""TensorBoard reads back what training reported."""

from __future__ import annotations

import sys

import pytest

from penstock.core.errors import MissingExtraError
from penstock.train import fit
from penstock.train.tensorboard import TensorBoardLogger


def test_the_event_file_holds_every_record(make, tmp_path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    setup = make()
    with TensorBoardLogger(tmp_path / "logs") as logger:
        history = fit(
            setup.model, setup.loader, setup.store, dense_optimizer=setup.optimizer, valid=setup.valid, epochs=2,
            log_every=5, callbacks=[logger], checkpoint_dir=tmp_path / "checkpoints",
        )  # fmt: skip
    events = EventAccumulator(str(tmp_path / "logs"))
    events.Reload()
    for kind, figures in {"train": ("loss", "auc", "rows_per_second"), "valid": ("loss", "auc", "log_loss")}.items():
        for figure in figures:
            found = events.Scalars(f"{kind}/{figure}")
            assert [event.step for event in found] == [record.step for record in history.of(kind)]
            assert [event.value for event in found] == pytest.approx(history.values(kind, figure), rel=1e-6)
    shares = [event.value for event in events.Scalars("time/forward")]
    assert len(shares) == len(history.of("train")) and all(0 < share < 1 for share in shares)
    assert "checkpoint/text_summary" in events.Tags()["tensors"]


def test_a_missing_tensorboard_is_named_with_its_extra(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'penstock\[tensorboard\]'"):
        TensorBoardLogger(tmp_path)
