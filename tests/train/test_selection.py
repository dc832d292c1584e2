"""The best weights, not the last ones: found, kept, put back, after an interruption too."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from penstock.core.errors import ParameterError
from penstock.embedding import FusedEmbeddings
from penstock.metrics import LogLoss
from penstock.train import Checkpointer, History, TrainContext, ValidRecord, evaluate, fit
from penstock.train.selection import Selection, selected

from .conftest import SCHEMA, assert_same_bits
from .test_fit import quick


def records(*figures: float, name: str = "auc") -> list[ValidRecord]:
    return [ValidRecord(10 * i, i, 5, 0.5 + i / 100, {name: value}) for i, value in enumerate(figures)]


class Unbounded(LogLoss):
    """A metric of one's own."""

    def __init__(self, name: str, best: float) -> None:
        super().__init__()
        self.name, self.best = name, best  # type: ignore[misc]


@pytest.mark.parametrize(
    ("by", "name", "figures", "step"),
    [
        ("auc", "auc", (0.6, 0.8, 0.7), 10),
        ("auc", "auc", (0.7, 0.7, 0.7), 0),
        ("auc", "auc", (math.nan, 0.6, math.nan), 10),
        ("log_loss", "log_loss", (0.6, 0.4, 0.5), 10),
        ("click/log_loss", "click/log_loss", (0.6, 0.4, 0.5), 10),
        ("auc", "log_loss", (0.6, 0.4, 0.5), 0),  # no AUC anywhere: by the loss, which rises
        ("auc", "auc", (math.nan, math.nan), 0),
        ("loss", "auc", (0.6, 0.8), 0),
        ("calibration", "calibration", (0.7, 1.1, 1.4), 10),  # nearest to 1
        ("profit", "profit", (-5.0, 30.0, 7.0), 10),
        ("regret", "regret", (-5.0, 30.0, -7.0), 20),
    ],
)
def test_the_best_of_some(by: str, name: str, figures: tuple[float, ...], step: int) -> None:
    best = Selection(
        by, metrics=[partial(Unbounded, "profit", math.inf), partial(Unbounded, "regret", -math.inf)]
    ).best(records(*figures, name=name))
    assert best is not None and best.step == step


def test_of_equal_ones_the_lowest_loss() -> None:
    equal = [ValidRecord(step, 0, 5, loss, {"auc": 1.0}) for step, loss in ((1, 0.3), (2, 0.1), (3, 0.1))]
    best = Selection("auc", patience=2).best(equal)
    assert best is not None and best.step == 2 and not Selection("auc", patience=2).is_over(equal)


def test_nothing_to_compare() -> None:
    broken = [ValidRecord(1, 0, 5, math.nan, {"auc": math.nan})]
    assert Selection().best([]) is None and Selection().best(broken) is None
    assert Selection("last").best(records(0.6)) is None


@pytest.mark.parametrize(
    ("figures", "patience", "over"),
    [
        ((0.6, 0.7, 0.8), 1, False),
        ((0.6, 0.7, 0.65), 1, True),
        ((0.6, 0.7, 0.65), 2, False),
        ((0.7, 0.6, 0.7), 2, True),  # as good is not better
        ((0.7, math.nan, math.nan), 2, True),
        ((0.7,), None, False),
    ],
)
def test_patience(figures: tuple[float, ...], patience: int | None, over: bool) -> None:
    assert Selection("auc", patience).is_over(records(*figures)) is over


def spoiled(setup, best: int):
    """A callback after which training makes everything worse: steps are large from the evaluation at `best` on."""

    def callback(record) -> None:
        if isinstance(record, ValidRecord) and record.step == best:
            for group in setup.optimizer.param_groups:
                group["lr"] = 30.0

    return callback


def test_the_best_weights_come_back(make, tmp_path: Path) -> None:
    setup, seen = make(), {}

    def keep(record) -> None:
        if isinstance(record, ValidRecord):
            seen[record.step] = setup.weights()

    history = quick(
        setup, epochs=4, valid=setup.valid, select_by="auc", checkpoint_dir=Checkpointer(tmp_path, keep=1),
        checkpoint_every=7, callbacks=[keep, spoiled(setup, 40)],
    )  # fmt: skip
    assert history.best is not None and history.best.step == 40 and history.stats["steps"] == 80
    assert_same_bits(setup.weights(), seen[40])
    assert not np.array_equal(seen[80]["embedding user"], seen[40]["embedding user"])
    with TrainContext(setup.model, setup.store, None) as ctx:
        assert evaluate(ctx, setup.valid)["auc"] == history.best.metrics["auc"]
    assert Checkpointer(tmp_path).steps() == [40, 80]  # the newest, and the best
    assert selected(history, "auc") == {"by": "auc", "step": 40, "epoch": 2, "epochs": 4, "stopped_early": False}


def test_the_best_weights_of_tables_come_back(make, tmp_path: Path) -> None:
    setup = make()
    tables = FusedEmbeddings(SCHEMA, 4, optimizer="adagrad", lr=0.1)
    history = fit(
        setup.model, setup.loader, tables, dense_optimizer=setup.optimizer, epochs=4, valid=setup.valid,
        select_by="log_loss", checkpoint_dir=tmp_path, progress=False, callbacks=[spoiled(setup, 40)],
    )  # fmt: skip
    assert history.best is not None and history.best.step == 40
    again = fit(setup.model, setup.loader, tables, dense_optimizer=setup.optimizer, epochs=0, valid=setup.valid,
                select_by="last", progress=False)  # fmt: skip
    assert again.best is not None and again.best.metrics == history.best.metrics


def test_no_more_steps_when_patience_is_over(make, tmp_path: Path) -> None:
    setup = make()
    history = quick(
        setup, epochs=9, valid=setup.valid, select_by="auc", patience=2, eval_every=10, checkpoint_dir=tmp_path,
        callbacks=[spoiled(setup, 30)],
    )  # fmt: skip
    assert history.stopped_early and history.stats["steps"] == 50 and history.best.step == 30
    again = make()  # who resumes gets the same model, and no step more
    resumed = quick(
        again, epochs=9, valid=again.valid, select_by="auc", patience=2, eval_every=10, checkpoint_dir=tmp_path
    )
    assert resumed.stopped_early and resumed.stats["steps"] == 50 and resumed.best.step == 30
    assert_same_bits(again.weights(), setup.weights())


def test_an_interrupted_selection_ends_with_the_same_weights(make, tmp_path: Path) -> None:
    whole = make()
    settings = {"epochs": 4, "select_by": "auc", "eval_every": 15, "checkpoint_every": 10}
    expected = quick(
        whole, valid=whole.valid, checkpoint_dir=tmp_path / "whole", callbacks=[spoiled(whole, 30)], **settings
    )
    first, second = make(), make()
    callbacks = [spoiled(first, 30), lambda record: record.step >= 50]
    quick(first, valid=first.valid, checkpoint_dir=tmp_path / "parts", callbacks=callbacks, **settings)
    found = quick(second, valid=second.valid, checkpoint_dir=tmp_path / "parts", **settings)
    assert found.best == expected.best or found.best.step == expected.best.step == 30
    assert_same_bits(second.weights(), whole.weights())


def test_an_end_inside_an_epoch_is_evaluated(make, tmp_path: Path) -> None:
    setup = make()
    history = quick(setup, epochs=3, max_steps=27, valid=setup.valid, select_by="auc", checkpoint_dir=tmp_path)
    assert [(r.step, r.epoch) for r in history.of("valid")] == [(20, 0), (27, None)]
    assert history.best.step in (20, 27)


def gains(*pairs: tuple[float, float], rows: int = 800) -> list[ValidRecord]:
    """The evaluation of the start, and others with these gains and errors."""
    start = ValidRecord(0, None, rows, 0.5, {"log_loss": 0.5, "auc": 0.6})
    later = [
        ValidRecord(10 * i, i - 1, rows, 0.5 - gain, {"log_loss": 0.5 - gain, "auc": 0.6 + gain}, 0.0, gain, error)
        for i, (gain, error) in enumerate(pairs, 1)
    ]
    return [start, *later]


@pytest.mark.parametrize(
    ("by", "pairs", "step"),
    [
        ("log_loss", [(0.01, 0.02), (0.02, 0.03)], 0),  # both may be luck
        ("loss", [(0.01, 0.02), (0.02, 0.03)], 0),
        ("log_loss", [(0.01, 0.005), (0.02, 0.03)], 10),  # the second looks better, and may be luck
        ("log_loss", [(0.01, 0.005), (0.02, 0.01)], 20),
        ("log_loss", [(-0.01, 0.005)], 0),
        ("log_loss", [(0.0, 0.0)], 0),  # nothing was learned at all
        ("auc", [(0.01, 0.02), (0.02, 0.03)], 20),  # another figure has no such error
    ],
)
def test_the_start_stays_where_later_ones_may_be_luck(by: str, pairs: list[tuple[float, float]], step: int) -> None:
    best = Selection(by).best(gains(*pairs))
    assert best is not None and best.step == step and best.is_start == (step == 0)


def test_a_gain_on_a_handful_of_rows_is_luck() -> None:
    best = Selection("log_loss").best(gains((0.01, 0.001), rows=3))
    assert best is not None and best.is_start


def test_patience_counts_from_the_best_epoch_and_not_from_the_start() -> None:
    assert not Selection("log_loss", patience=2).is_over(gains((-0.03, 0.1), (-0.02, 0.1), (-0.01, 0.1)))
    assert Selection("log_loss", patience=2).is_over(gains((-0.01, 0.1), (-0.02, 0.1), (-0.03, 0.1)))


def test_a_better_figure_that_may_be_luck_is_told_apart() -> None:
    records = gains((0.002, 0.001), (0.010, 0.020), (0.001, 0.0005))
    best = Selection("log_loss").best(records)
    assert best is records[1]  # the first epoch; what the second has beyond it may be luck
    assert selected(History(records, best=best), "log_loss")["is_surer"] is True
    sure = gains((0.002, 0.001), (0.010, 0.005))
    assert "is_surer" not in selected(History(sure, best=Selection("log_loss").best(sure)), "log_loss")


def test_a_start_that_nothing_betters_comes_back_after_an_interruption_too(make, tmp_path: Path) -> None:
    settings = {"epochs": 3, "select_by": "log_loss", "keep_start": True, "checkpoint_every": 10}
    whole, began = make(), make().weights()
    history = quick(
        whole, valid=whole.valid, checkpoint_dir=tmp_path / "whole", callbacks=[spoiled(whole, 0)], **settings
    )
    assert history.best is not None and history.best.is_start and history.stats["steps"] == 60
    assert_same_bits(whole.weights(), began)
    assert selected(history, "log_loss")["is_start"] is True
    assert [(r.step, r.gain is None) for r in history.of("valid")] == [(0, True), (20, False), (40, False), (60, False)]
    for number, stop in enumerate((0, 30)):  # before the first step, and later
        place, first, second = tmp_path / f"parts{number}", make(), make()
        stopping = [spoiled(first, 0), lambda record, stop=stop: record.step >= stop]
        quick(first, valid=first.valid, checkpoint_dir=place, callbacks=stopping, **settings)
        found = quick(second, valid=second.valid, checkpoint_dir=place, callbacks=[spoiled(second, 0)], **settings)
        assert found.best == history.best or found.best.is_start
        assert len(found.of("valid")) == 4
        assert_same_bits(second.weights(), began)


def test_a_start_that_is_bettered_goes(make, tmp_path: Path) -> None:
    setup, plain = make(), make()
    history = quick(
        setup, epochs=4, valid=setup.valid, select_by="log_loss", keep_start=True, checkpoint_dir=tmp_path / "a"
    )
    expected = quick(plain, epochs=4, valid=plain.valid, select_by="log_loss", checkpoint_dir=tmp_path / "b")
    assert history.best.step == expected.best.step > 0 and history.best.gain > history.best.gain_error > 0
    assert_same_bits(setup.weights(), plain.weights())  # to evaluate the start changes nothing
    assert 0 not in Checkpointer(tmp_path / "a").steps()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"keep_start": True}, "say by what: select_by='log_loss'"),
        ({"patience": 2}, "say what that is: select_by='auc'"),
        ({"patience": 2, "select_by": "last"}, "say what that is"),
        ({"select_by": "auc"}, "give checkpoint_dir="),
        ({"select_by": "auc", "valid": None}, "give the rows for them: valid="),
        ({"select_by": "auc", "patience": 0}, "fit.patience must be"),
        ({"select_by": "acu", "checkpoint_dir": "nowhere"}, "'acu', which is not measured; did you mean 'auc'"),
        ({"select_by": "auc", "metrics": ["log_loss"], "checkpoint_dir": "nowhere"}, "add it to metrics="),
    ],
)
def test_what_selecting_needs(make, settings: dict, said: str) -> None:
    setup = make()
    with pytest.raises(ParameterError, match=said):
        quick(setup, **{"valid": setup.valid, **settings})


def test_few_held_out_rows_must_be_surer_of_a_gain() -> None:
    few, many = (Selection("log_loss").best(gains((0.015, 0.01), rows=rows)) for rows in (200, 800))
    assert few is not None and few.is_start and many is not None and not many.is_start
