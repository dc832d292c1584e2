"""What a training has learned, and which setting to change: from its records, and what a constant would reach."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.core.metric_names import metric_title
from penstock.report.words import share, whole

_FEW_STEPS = 100  # below this a model has hardly moved
_FEW_ROWS = 10  # held-out rows of a label below which figures are a matter of luck
_NOTABLE = 0.01  # of an AUC: a standard error from which it is said
_CHANCE = 0.52  # an AUC up to here is luck
_BETTER = 0.001  # of a constant's log loss: by less than this share nothing was learned
_STILL = 0.001  # of AUC, or of log loss: an evaluation that brings more is a step forward


def constant_log_loss(train_share: float, valid_share: float) -> float:
    """The log loss on held-out rows of a model that always says the share of clicks in training.

    Args:
        train_share: of clicks among the rows to train on.
        valid_share: of clicks among those held out.

    Returns:
        The log loss; infinite where a label that never came in training comes.

    >>> round(constant_log_loss(0.5, 0.5), 4), constant_log_loss(0.0, 0.0), constant_log_loss(0.0, 0.1)
    (0.6931, 0.0, inf)
    """
    total = 0.0
    for said, true in ((train_share, valid_share), (1 - train_share, 1 - valid_share)):
        if true > 0:
            total -= true * math.log(said) if said > 0 else -math.inf
    return total


def auc_error(auc: float, ones: float, zeros: float) -> float:
    """The standard error of an AUC (Hanley and McNeil 1982): how far other rows of the same kind would have it.

    Args:
        auc: that was measured.
        ones: how many rows have the label 1.
        zeros: how many have the label 0.

    Returns:
        The error; infinite without rows of both.

    >>> round(auc_error(0.7, 200, 600), 3), round(auc_error(1.0, 3, 17), 2), auc_error(0.7, 0, 5)
    (0.023, 0.14, inf)
    """
    if min(ones, zeros) < 1:
        return math.inf
    few = min(ones, zeros)
    auc = (auc * few + 0.5) / (few + 1)  # a perfect order of few rows is luck, too
    above, below = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    variance = auc * (1 - auc) + (ones - 1) * (above - auc**2) + (zeros - 1) * (below - auc**2)
    return math.sqrt(max(0.0, variance) / (ones * zeros))


def notable_error(auc: float | None, rows: int | None, share_of_ones: float | None) -> float | None:
    """The standard error of an AUC, where rows are so few that it shows in the second digit.

    Args:
        auc: that was measured, if any.
        rows: that it was measured on.
        share_of_ones: among them.

    Returns:
        The error; None where it is small or not known.

    >>> notable_error(0.7, 10_000_000, 0.3), notable_error(None, 10, 0.3)
    (None, None)
    """
    if auc is None or not rows or share_of_ones is None:
        return None
    error = auc_error(auc, share_of_ones * rows, rows - share_of_ones * rows)
    return error if _NOTABLE <= error < math.inf else None


def learning_verdict(
    records: Sequence[Mapping[str, Any]],
    labels: Mapping[str, Any] | None = None,
    selected: Mapping[str, Any] | None = None,
    is_over: bool = True,
) -> dict[str, str]:
    """What was learned, in a word, a sentence, and advice that names settings.

    Args:
        records: of training and evaluations, as reports hold them.
        labels: the `train_share` and `valid_share` of clicks, and the `constant_log_loss`.
        selected: which evaluation was kept (see `penstock.train.selection.selected`).
        is_over: whether training has ended; what it still may do is not held against it.

    Returns:
        `kind`, `text` and `advice`; the kind is "unknown" while there is nothing to tell.

    >>> evaluated = [{"kind": "valid", "step": 600 * i, "loss": loss} for i, loss in ((1, 0.5), (2, 0.45), (3, 0.6))]
    >>> found = learning_verdict(evaluated, {"train_share": 0.3, "constant_log_loss": 0.61})
    >>> print(found["kind"], "|", found["text"])
    overfitting | Overfitting since step 1,200: log loss 0.4500 there, 0.6000 at the end; a constant has 0.6100.
    """
    labels, selected = labels or {}, selected or {}
    evaluated = [record for record in records if record["kind"] == "valid"]
    trained = [record for record in records if record["kind"] == "train"]
    if not evaluated and not trained:
        return _says("unknown", "Nothing was trained yet.", "")
    found = (
        _one_label(labels)
        or _not_a_number(trained, evaluated, selected)
        or (_few_steps(records, evaluated, labels, selected) if is_over else None)
        or _nothing_held_out(trained, evaluated)
        or (_few_of_a_label(evaluated, labels, selected) if is_over else None)
        or _constant(evaluated, labels, selected, is_over)
        or (_regression(evaluated, labels, selected) if is_over else None)
        or _overfitting(evaluated, labels, selected)
        or (_still_improving(evaluated, labels) if is_over else None)
    )
    return found or _learned(evaluated, labels, selected)


def _one_label(labels: Mapping[str, Any]) -> dict[str, str] | None:
    train = labels.get("train_share")
    if train not in (0, 1):
        return None
    text = f"Every row to train on has the label {int(train)}: there is nothing to learn."
    return _says("one label", text, "Check the label's column and how it becomes 0 and 1 in the recipe.")


def _not_a_number(trained: Any, evaluated: Any, selected: Mapping[str, Any]) -> dict[str, str] | None:
    """Records hold None where a figure is not finite."""
    for record in sorted([*trained, *evaluated], key=lambda record: record["step"]):
        if _finite(record.get("loss")) is None:
            kept = selected.get("step")
            is_saved = kept is not None and kept < record["step"]
            saved = f" {_of_step(selected)} kept." if is_saved else ""
            text = f"The loss was no number any more at step {whole(record['step'])}.{saved}"
            advice = "Lower learning_rate and embedding_learning_rate tenfold; look for extreme numbers in the data."
            return _says("no number", text, advice)
    return None


def _few_steps(
    records: Sequence[Mapping[str, Any]], evaluated: Any, labels: Mapping[str, Any], selected: Mapping[str, Any]
) -> dict[str, str] | None:
    steps = max(record["step"] for record in records)
    if steps >= _FEW_STEPS or _began_with_regression(evaluated):
        return None
    loss = _log_loss(_kept(evaluated, selected)) if evaluated else None
    reached = "" if loss is None else f": log loss {loss:.4f}{_beside(labels)}"
    text = f"Training took only {whole(steps)} step{'s' if steps != 1 else ''}{reached}."
    advice = "More rows help most; a smaller batch_size makes more steps of them, and so do more epochs."
    return _says("few steps", text, advice)


def _began_with_regression(evaluated: Any) -> bool:
    """Whether the first evaluation was ahead of the first step: of what was solved, and not learned in steps."""
    return bool(evaluated) and evaluated[0]["step"] == 0


def _nothing_held_out(trained: Any, evaluated: Any) -> dict[str, str] | None:
    if evaluated:
        return None
    text = f"The training loss is {trained[-1]['loss']:.4f}; whether that holds for other rows is not known."
    return _says("not held out", text, "Hold rows out: valid_share 0.1, or valid with rows of their own.")


def _few_of_a_label(evaluated: Any, labels: Mapping[str, Any], selected: Mapping[str, Any]) -> dict[str, str] | None:
    share_of_ones, kept = labels.get("valid_share"), _kept(evaluated, selected)
    rows = kept.get("rows")
    if share_of_ones is None or not rows:
        return None
    ones = round(share_of_ones * rows)
    few, label = (ones, 1) if ones <= rows - ones else (rows - ones, 0)
    if few >= _FEW_ROWS:
        return None
    loss = _log_loss(kept)
    reached = "" if loss is None else f" (log loss {loss:.4f}{_beside(labels)})"
    have = "has" if few == 1 else "have"
    text = f"Only {whole(few)} of {whole(rows)} held-out rows {have} the label {label}, "
    text += f"so how good it is{reached} is luck."
    return _says("few of a label", text, "Hold more rows out (valid_share), or bring more rows with that label.")


def _constant(
    evaluated: Any, labels: Mapping[str, Any], selected: Mapping[str, Any], is_over: bool
) -> dict[str, str] | None:
    bound, kept = _finite(labels.get("constant_log_loss")), _kept(evaluated, selected)
    loss, auc = _log_loss(kept), kept.get("auc")
    if bound is None or loss is None or loss < bound * (1 - _BETTER):
        return None
    said = f"log loss {loss:.4f}, a constant has {bound:.4f}"
    if auc is not None and auc > _CHANCE:
        text = f"The order is learned (AUC {auc:.4f}), the probabilities are not: {said}."
        return _says("too sure", text, "Select by log loss (select_by), or lower both learning rates.")
    advice = "Try other learning rates (tenfold up and down) and a smaller batch_size; see whether the columns tell."
    if _began_with_regression(evaluated):
        advice = "Nor does a logistic regression learn from these columns: see whether they can tell, and whether the "
        advice += "label is right; more rows may show more."
    return _says("no better than a constant", f"Nothing was learned: {said}.", advice if is_over else "")


def _regression(evaluated: Any, labels: Mapping[str, Any], selected: Mapping[str, Any]) -> dict[str, str] | None:
    """The model is what it began with: what the network learned is not known to be more than luck."""
    if not selected.get("is_start"):
        return None
    start, later = _log_loss(_kept(evaluated, selected)), [r for r in evaluated if r["step"] > 0]
    best = min((loss for record in later if (loss := _log_loss(record)) is not None), default=None)
    if start is None or best is None:
        return None
    rows = _kept(evaluated, selected).get("rows")
    noise = f", no more than luck on {whole(rows)} held-out rows" if best < start else ""
    text = f"The columns were learned one by one (a logistic regression: log loss {start:.4f}{_beside(labels)}), what "
    text += f"they say together was not: the network's best epoch has {best:.4f}{noise}. The regression was kept."
    bound = _finite(labels.get("constant_log_loss"))
    if bound is not None and best > bound:  # it was thrown off, and more rows would not mend that
        return _says("regression", text, "Lower learning_rate and embedding_learning_rate tenfold.")
    advice = "More rows help most; two columns that matter together can be crossed in the recipe (HashedCross)."
    return _says("regression", text, advice)


def start_words(selected: Mapping[str, Any]) -> str:
    """What a model is that stayed as it began, and why.

    >>> start_words({"step": 0, "epoch": None, "epochs": 12, "is_start": True})
    'the logistic regression it began with: none of 12 epochs was better by more than luck'
    """
    epochs = selected.get("epochs")
    tried = "no evaluation" if not epochs else "the one epoch was not" if epochs == 1 else f"none of {epochs} epochs"
    was = "" if epochs == 1 else " was"
    return f"the logistic regression it began with: {tried}{was} better by more than luck"


def best_words(selected: Mapping[str, Any]) -> str:
    """Why the weights of an evaluation were kept.

    >>> best_words({"by": "auc"}), best_words({"by": "log_loss", "is_surer": True})
    ('the best AUC', 'the best log loss of those that beat the regression by more than luck')
    """
    if selected.get("by") == "last":
        return "the last"
    surer = " of those that beat the regression by more than luck" if selected.get("is_surer") else ""
    return f"the best {metric_title(str(selected.get('by')))}{surer}"


def _of_step(selected: Mapping[str, Any]) -> str:
    if selected.get("is_start"):
        return "The regression that it began with was"
    return f"The weights of step {whole(selected['step'])} were"


def _overfitting(evaluated: Any, labels: Mapping[str, Any], selected: Mapping[str, Any]) -> dict[str, str] | None:
    finite = [record for record in evaluated if _log_loss(record) is not None]
    best = min(finite, key=lambda record: _log_loss(record) or 0.0, default=None)
    if best is None or best is finite[-1]:
        return None
    low, last = _log_loss(best) or 0.0, _log_loss(finite[-1]) or 0.0
    if last < low + _STILL:
        return None
    kept = selected.get("step") if selected.get("by") != "last" else None
    why = f", {best_words(selected)}" if selected.get("is_surer") else ""
    saved = "" if kept is None else f" The model has the weights of step {whole(kept)}{why}."
    text = f"Overfitting since step {whole(best['step'])}: log loss {low:.4f} there, {last:.4f} at the end"
    advice = "Rare ids are learned by heart first: a higher freq_threshold in the recipe, a smaller embedding_dim or "
    return _says(
        "overfitting", f"{text}{_beside(labels)}.{saved}", advice + "dropout in model would let it learn longer."
    )


def _still_improving(evaluated: Any, labels: Mapping[str, Any]) -> dict[str, str] | None:
    if len(evaluated) < 2:
        return None
    (before, last) = (_log_loss(record) for record in evaluated[-2:])
    if before is None or last is None or before - last <= _STILL:
        return None
    text = f"Still improving when it ended: log loss {before:.4f}, then {last:.4f}{_beside(labels)}."
    return _says("still improving", text, "More epochs would help: go on with --resume and a higher --epochs.")


def _learned(evaluated: Any, labels: Mapping[str, Any], selected: Mapping[str, Any]) -> dict[str, str]:
    kept, bound = _kept(evaluated, selected), _finite(labels.get("constant_log_loss"))
    loss = _log_loss(kept)
    if loss is None:
        return _says("unknown", "Nothing was measured yet.", "")
    less = f", {share(1 - loss / bound)} less" if bound else ""
    return _says("learned", f"Log loss {loss:.4f}{_beside(labels)}{less}.", "")


def _kept(evaluated: Any, selected: Mapping[str, Any]) -> Mapping[str, Any]:
    """The evaluation that was kept; the latest while none is."""
    step = selected.get("step")
    found: Mapping[str, Any] = next((record for record in evaluated if record["step"] == step), evaluated[-1])
    return found


def _beside(labels: Mapping[str, Any]) -> str:
    bound = _finite(labels.get("constant_log_loss"))
    return "" if bound is None else f"; a constant has {bound:.4f}"


def _log_loss(record: Mapping[str, Any]) -> float | None:
    return _finite(record.get("log_loss", record.get("loss")))


def _finite(figure: float | None) -> float | None:
    return figure if figure is not None and math.isfinite(figure) else None


def _says(kind: str, text: str, advice: str) -> dict[str, str]:
    return {"kind": kind, "text": text, "advice": advice}
