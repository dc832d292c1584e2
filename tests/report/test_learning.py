"""The verdict on what was learned: each kind, its figures, and the setting that its advice names."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from penstock.report.learning import auc_error, constant_log_loss, learning_verdict, notable_error, start_words
from penstock.report.sections import selected_words

LABELS = {"train_share": 0.25, "valid_share": 0.25, "constant_log_loss": constant_log_loss(0.25, 0.25)}


def evaluations(*losses: float | None, auc: float | None = 0.75, every: int = 200) -> list[dict[str, Any]]:
    return [
        {"kind": "valid", "step": every * (i + 1), "epoch": i, "rows": 800, "loss": loss, "log_loss": loss, "auc": auc}
        for i, loss in enumerate(losses)
    ]


CONSTANT = LABELS["constant_log_loss"]
CASES = [
    ("still improving", evaluations(0.5, 0.48), {}, "0.5000, then 0.4800; a constant has 0.5623", "--epochs"),
    ("overfitting", evaluations(0.5, 0.48, 0.55), {}, "since step 400: log loss 0.4800 there, 0.5500", "freq_thresh"),
    ("learned", evaluations(0.5, 0.48, 0.4805), {}, "0.4805; a constant has 0.5623, 14.6 % less", ""),
    ("learned", evaluations(0.48), {}, "Log loss 0.4800", ""),
    ("no better than a constant", evaluations(0.5623, 0.5622, auc=0.51), {}, "0.5622, a constant has 0.5623", "rates"),
    ("too sure", evaluations(1.9, 1.5, auc=0.72), {}, "order is learned (AUC 0.7200)", "select_by"),
    ("few steps", evaluations(0.5, every=6), {}, "only 6 steps: log loss 0.5000; a constant has 0.5623.", "batch_size"),
    ("few steps", evaluations(0.5, every=1), {}, "only 1 step:", "epochs"),
    ("one label", evaluations(0.01), {"train_share": 0.0}, "has the label 0", "recipe"),
    ("one label", evaluations(0.01), {"train_share": 1.0}, "has the label 1", "recipe"),
    ("few of a label", evaluations(0.02), {"valid_share": 3 / 800}, "Only 3 of 800 held-out rows have", "valid_share"),
    (
        "few of a label",
        evaluations(0.02),
        {"valid_share": 799 / 800},
        "Only 1 of 800 held-out rows has the label 0",
        "more",
    ),
    ("no number", evaluations(0.5, None), {}, "no number any more at step 400", "learning_rate"),
    ("no number", evaluations(0.5, math.nan), {}, "at step 400", "embedding_learning_rate"),
]


@pytest.mark.parametrize(("kind", "records", "labels", "text", "advice"), CASES)
def test_each_kind(kind: str, records: list, labels: dict, text: str, advice: str) -> None:
    found = learning_verdict(records, {**LABELS, **labels})
    assert found["kind"] == kind and text in found["text"] and advice in found["advice"]


def test_nothing_held_out_and_nothing_at_all() -> None:
    trained = [{"kind": "train", "step": 500, "rows": 10, "loss": 0.4321}]
    found = learning_verdict(trained, {"train_share": 0.3})
    assert found["kind"] == "not held out" and "0.4321" in found["text"] and "valid_share" in found["advice"]
    assert learning_verdict([])["kind"] == "unknown"
    assert learning_verdict([{"kind": "checkpoint", "step": 5, "path": "x"}])["kind"] == "unknown"


def test_what_was_kept_is_judged() -> None:
    ruined = evaluations(0.48, 0.7, 0.9)
    kept = learning_verdict(ruined, LABELS, {"by": "auc", "step": 200})
    assert kept["kind"] == "overfitting" and "The model has the weights of step 200." in kept["text"]
    last = learning_verdict(ruined, LABELS, {"by": "last", "step": 600})
    assert last["kind"] == "too sure" and "0.9000" in last["text"]
    broken = learning_verdict(evaluations(0.48, None), LABELS, {"by": "auc", "step": 200})
    assert broken["kind"] == "no number" and "weights of step 200 were kept" in broken["text"]


def test_a_training_that_goes_on_is_not_blamed_for_what_it_has_not_done() -> None:
    assert learning_verdict(evaluations(0.5, every=5), LABELS, is_over=False)["kind"] == "learned"
    assert learning_verdict(evaluations(0.5, 0.48), LABELS, is_over=False)["kind"] == "learned"
    early = learning_verdict(evaluations(0.5623, auc=0.5, every=5), LABELS, is_over=False)
    assert early["kind"] == "no better than a constant" and early["advice"] == ""


def test_without_a_constant_to_compare_with() -> None:
    assert learning_verdict(evaluations(0.5, 0.5))["text"] == "Log loss 0.5000."
    assert learning_verdict(evaluations(9.0, auc=None), {"constant_log_loss": None})["kind"] == "learned"


@pytest.mark.parametrize(
    ("train", "valid", "loss"), [(0.5, 0.25, math.log(2)), (1.0, 1.0, 0.0), (1.0, 0.9, math.inf), (0.2, 0.2, 0.5004)]
)
def test_the_log_loss_of_a_constant(train: float, valid: float, loss: float) -> None:
    assert constant_log_loss(train, valid) == pytest.approx(loss, abs=1e-4)


def test_an_epoch_that_was_kept_though_another_looked_better_is_said() -> None:
    kept = {"by": "log_loss", "step": 600, "epoch": 1, "epochs": 3, "is_surer": True}
    kept["step"] = 200
    found = learning_verdict(evaluations(0.5, 0.49, 0.55), {**LABELS, "constant_log_loss": 0.6}, kept)
    kept["step"] = 600
    words = "the best log loss of those that beat the regression by more than luck"
    assert found["kind"] == "overfitting" and words in found["text"]
    assert selected_words({"selected": kept}) == f"the model is that of step 600, epoch 1 of 3: {words}"


def test_a_regression_that_was_kept_is_said() -> None:
    start = {"kind": "valid", "step": 0, "rows": 800, "loss": 0.48, "log_loss": 0.48, "auc": 0.75}
    kept = {"by": "log_loss", "step": 0, "epoch": None, "epochs": 2, "is_start": True}
    luck = learning_verdict([start, *evaluations(0.4795, 0.6)], LABELS, kept)
    assert luck["kind"] == "regression" and "has 0.4795, no more than luck on 800 held-out rows" in luck["text"]
    worse = learning_verdict([start, *evaluations(0.5, 0.6)], LABELS, kept)  # and yet better than a constant
    assert worse["kind"] == "regression" and "luck" not in worse["text"] and "More rows" in worse["advice"]
    thrown = learning_verdict([start, *evaluations(4689.0, 1.4)], LABELS, kept)
    assert thrown["kind"] == "regression" and "embedding_learning_rate tenfold" in thrown["advice"]
    short = learning_verdict([start, *evaluations(0.5, every=6)], LABELS, kept)  # solved, so steps do not matter
    assert short["kind"] == "regression"
    nothing = learning_verdict([{**start, "log_loss": CONSTANT, "auc": 0.5}, *evaluations(0.6, every=6)], LABELS, kept)
    assert nothing["kind"] == "no better than a constant" and "Nor does a logistic regression" in nothing["advice"]
    broken = learning_verdict([start, *evaluations(None)], LABELS, kept)
    assert broken["kind"] == "no number" and "The regression that it began with was kept" in broken["text"]
    assert selected_words({"selected": kept}) == f"the model is {start_words(kept)}"


def test_the_error_of_an_auc_is_said_where_rows_are_few() -> None:
    few, many = notable_error(0.8, 800, 0.25), notable_error(0.8, 80_000, 0.25)
    assert few == pytest.approx(auc_error(0.8, 200, 600)) and 0.015 < few < 0.025 and many is None
    rng = np.random.default_rng(0)  # against as many draws of such rows
    drawn = [roc(rng.normal(1.19, 1, 200), rng.normal(0, 1, 600)) for _ in range(300)]
    assert np.mean(drawn) == pytest.approx(0.8, abs=0.01) and np.std(drawn) == pytest.approx(few, rel=0.15)


def roc(ones: np.ndarray, zeros: np.ndarray) -> float:
    return float((ones[:, None] > zeros).mean())
