"""What a run trains with where its settings leave it open: from the number of rows.

The figures were chosen over the data sets of `benchmarks/quality.py`; docs/benchmarks.md has the table.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from penstock.jobs.building import model_class
from penstock.jobs.settings import DENSE_OPTIMIZER, EMBEDDING_OPTIMIZER, TrainSettings
from penstock.nn.base import FIRST, constructor_names

_PATIENCE = (5, 3)  # epochs without a better evaluation: of few rows, where one is a matter of luck, and of more
_STEPS_OF_AN_EPOCH = 128  # fewer learn too little, more cost time
_BATCH_SIZES = (64, 1024)
_STEPS_OF_MANY_ROWS = 4096  # of an epoch, at least: with a quarter of them 0.002 of AUC are lost
_LARGEST_BATCH = 16_384
_ROWS_IN_ALL = 2_000_000  # what epochs are counted by: few rows are gone through more often
_EPOCHS = (2, 12)
_LATE_EPOCHS, _LATE_PATIENCE = 20, 12  # where products of embeddings are to be learned beside a regression
_MOST_PATIENCE, _AFTER = 24, 7  # of few rows, and epochs to learn them in once they have begun
_LATE_STEPS = 2_500  # products may stay where they began for so long before they learn
_BLIND_EPOCHS = 3  # where no evaluation tells which was the best
_RATE, _RATE_BATCH = 5e-4, 256  # a rate that goes with the square root of the batch size, and is this at that one
_FASTER = 1.4  # beside a regression: at 1 products of embeddings stay unlearned, at 2 numbers are learned by heart
_FEW_ROWS = 16_000  # whose evaluations are a matter of luck
_TRIED_ROWS = 5_000  # of which a tenth is held out: an epoch must be better by two errors (see Selection)
_LINEAR_START = 200_000  # rows whose logistic regression is a matter of seconds
_APART = (
    0.1  # how far from 0 embeddings start, on either side: nearer, products of them hardly learn beside a regression
)
_APART_INIT = {"kind": "uniform", "a": -_APART, "b": _APART}
_EMBEDDING_RATE = 0.05  # up to the largest of these batches; beyond, it grows with their square root: steps are few
_MOST_EMBEDDING_RATE = 0.141  # more than that, and the first steps of many columns overshoot
_ACCUMULATOR = 10.0  # of gradients before they are divided by the batch size: what hundreds of rows of an id add
_POOLINGS = ("mean", "sum")
_DROPOUT = ((50_000, 0.3), (200_000, 0.1))  # up to so many rows


def filled_in(settings: TrainSettings, num_rows: int, is_selected: bool = True) -> TrainSettings:
    """The settings with nothing left open.

    Args:
        settings: what was asked for.
        num_rows: to train on.
        is_selected: whether the best epoch will be the model; where the last one is, it must not be one too many.

    Returns:
        Settings that say everything.

    >>> found = filled_in(TrainSettings(), 8_000)
    >>> found.batch_size, found.epochs, found.patience, found.dense_optimizer
    (64, 27, 20, {'name': 'Adam', 'lr': 0.00035})
    >>> filled_in(TrainSettings.resolve({"epochs": 5, "learning_rate": 0.1}), 8_000).dense_optimizer
    {'name': 'Adam', 'lr': 0.1}
    """
    batch_size = settings.batch_size or default_batch_size(num_rows)
    chosen: dict[str, Any] = {"batch_size": batch_size}
    if settings.linear_start is None:
        chosen["linear_start"] = num_rows <= _LINEAR_START
    network = model_class(settings.model["name"])
    is_begun = bool(chosen.get("linear_start", settings.linear_start)) and _can_begin(settings)
    is_apart = is_begun and getattr(network, "starts_apart", False)
    # Of so few rows no network takes the regression's place by luck, so each may try what it can.
    is_tried = is_apart or (is_begun and num_rows <= _TRIED_ROWS)
    is_few = num_rows <= _FEW_ROWS
    is_late, is_slow = is_few and is_tried, is_few and not is_tried
    if settings.epochs is None:
        is_waited_for = is_tried and num_rows <= _LINEAR_START
        patience = late_patience(num_rows, batch_size) if is_waited_for else default_patience(num_rows)
        epochs = max(_LATE_EPOCHS, patience + _AFTER) if is_waited_for else default_epochs(num_rows)
        chosen["epochs"] = epochs if is_selected else min(_BLIND_EPOCHS, epochs)
        if settings.patience is None and settings.eval_every is None:
            chosen["patience"] = patience
    for section, name, own in (
        (
            "dense_optimizer",
            DENSE_OPTIMIZER,
            {"lr": default_rate(batch_size, is_late, is_slow)},
        ),
        ("embedding_optimizer", EMBEDDING_OPTIMIZER, default_adagrad(batch_size)),
    ):
        given = getattr(settings, section)
        if given["name"] == name:  # another one has defaults of its own
            chosen[section] = {"name": name, **own, **given}
    takes = constructor_names(network)
    arguments = {"dropout": default_dropout(num_rows), "linear": FIRST if is_slow else True}
    missing = {key: value for key, value in arguments.items() if key in takes and key not in settings.model}
    chosen["model"] = {**settings.model, **missing}
    if is_apart and settings.store.get("init") is None:
        chosen["store"] = {**settings.store, "init": _APART_INIT}
    if settings.select_by is None and is_selected and num_rows <= _LINEAR_START:
        chosen["select_by"] = "log_loss"  # an AUC of few held-out rows is more a matter of luck
    return replace(settings, **chosen)


def without_start(settings: TrainSettings, num_rows: int) -> TrainSettings:
    """The settings of the same run without a regression to begin with; what the defaults have chosen is chosen anew.

    Args:
        settings: with nothing left open, of a run that begins with one.
        num_rows: to train on.

    Returns:
        Settings that say everything.

    >>> begun = filled_in(TrainSettings(), 80_000)
    >>> again = without_start(begun, 80_000)
    >>> (begun.epochs, begun.patience, "init" in begun.store), (again.epochs, again.patience, again.store)
    ((20, 12, True), (12, 3, {}))
    >>> without_start(filled_in(TrainSettings.resolve({"epochs": 4}), 80_000), 80_000).epochs
    4
    """
    left_open: dict[str, Any] = {"linear_start": None, "epochs": None, "patience": None}
    begun = filled_in(replace(settings, **left_open), num_rows)
    asked: dict[str, Any] = {"linear_start": False}
    if (settings.epochs, settings.patience) == (begun.epochs, begun.patience):
        asked |= {"epochs": None, "patience": None}
    if settings.store.get("init") == _APART_INIT:
        asked["store"] = {name: value for name, value in settings.store.items() if name != "init"}
    return filled_in(replace(settings, **asked), num_rows)


def is_worth_a_second_try(settings: TrainSettings, num_rows: int) -> bool:
    """Whether rows are so many that the network may learn more by itself than beside a regression.

    Args:
        settings: with nothing left open.
        num_rows: to train on.

    Returns:
        Whether, and whether what is asked for can be done twice.
    """
    is_plain = settings.feed is None and settings.copy_checkpoints_to is None and settings.max_steps is None
    return is_plain and settings.select_by == "log_loss" and _FEW_ROWS < num_rows <= _LINEAR_START


def _can_begin(settings: TrainSettings) -> bool:
    """Whether a regression can be written into such embeddings, as far as settings tell."""
    is_here = settings.tables in ("auto", "store", "fused") and not settings.cluster.get("address")
    goes_on = settings.embedding_optimizer["name"] != "FTRL"  # which works weights out of its own sums
    is_exact = settings.store.get("storage", "float32") == "float32"
    return is_here and goes_on and is_exact and settings.model.get("linear") is not False and has_plain_slots(settings)


def has_plain_slots(settings: TrainSettings) -> bool:
    """Whether each id has a row, and rows are pooled as a regression weighs them.

    Args:
        settings: of a run.

    Returns:
        Whether.
    """
    plain = not any(set(own) - {"dim"} for own in settings.slots.values()) and settings.pooling in _POOLINGS
    return plain and settings.store.get("admission") is None and settings.store.get("eviction") is None


def default_batch_size(num_rows: int) -> int:
    """A power of two.

    >>> [default_batch_size(rows) for rows in (100, 8_000, 30_000, 100_000, 5_000_000, 20_000_000, 100_000_000)]
    [64, 64, 128, 512, 1024, 4096, 16384]
    """
    low, high = _BATCH_SIZES
    of_few = min(high, max(low, _power_of_two(num_rows / _STEPS_OF_AN_EPOCH)))
    return max(of_few, min(_LARGEST_BATCH, _power_of_two(num_rows / _STEPS_OF_MANY_ROWS)))


def _power_of_two(most: float) -> int:
    """The largest that is not above."""
    return 1 << math.floor(math.log2(max(1.0, most)))


def default_epochs(num_rows: int) -> int:
    """At most so many: training ends before when it has learned what it can.

    >>> [default_epochs(rows) for rows in (8_000, 100_000, 500_000, 10_000_000)]
    [12, 12, 4, 2]
    """
    low, high = _EPOCHS
    return min(high, max(low, math.ceil(_ROWS_IN_ALL / max(1, num_rows))))


def default_patience(num_rows: int) -> int:
    """Epochs without a better one after which training ends, where nobody says how many there are to be.

    >>> [default_patience(rows) for rows in (8_000, 100_000)]
    [5, 3]
    """
    return _PATIENCE[num_rows > _FEW_ROWS]


def late_patience(num_rows: int, batch_size: int) -> int:
    """The same where embeddings start apart beside a regression.

    What columns say together is learned late, and then at once: a plateau of some thousand steps goes before it, whose
    evaluations are no better than the regression.

    >>> [late_patience(rows, default_batch_size(rows)) for rows in (8_000, 18_000, 60_000, 200_000)]
    [20, 12, 11, 12]
    >>> late_patience(200_000, 64)
    3
    """
    epochs = math.ceil(_LATE_STEPS / math.ceil(num_rows / batch_size))
    if num_rows <= _FEW_ROWS:
        return min(_MOST_PATIENCE, max(_LATE_PATIENCE, epochs))
    return min(_LATE_PATIENCE, max(default_patience(num_rows), epochs))


def default_dropout(num_rows: int) -> float:
    """Behind the hidden layers, which learn few rows by heart.

    >>> [default_dropout(rows) for rows in (8_000, 100_000, 10_000_000)]
    [0.3, 0.1, 0.0]
    """
    return next((share for most, share in _DROPOUT if num_rows <= most), 0.0)


def default_rate(batch_size: int, is_apart: bool = False, is_slow: bool = False) -> float:
    """Of the dense model.

    Args:
        batch_size: of a step.
        is_apart: whether rows are few and embeddings start apart, beside a regression that says what columns say by
            themselves.
        is_slow: whether rows are few and they do not: then there is little else to learn.

    Returns:
        The rate.

    >>> default_rate(64, is_apart=True), default_rate(64, is_slow=True), default_rate(1024)
    (0.00035, 0.000125, 0.001)
    """
    rate = _RATE / 2 if is_slow else _FASTER * _RATE if is_apart else _RATE
    return float(f"{rate * math.sqrt(batch_size / _RATE_BATCH):.3g}")


def default_adagrad(batch_size: int) -> dict[str, float]:
    """Of the embeddings. An id moves by what its rows say together: a rare one little, a frequent one freely.

    The loss is a mean over the batch, and so gradients of ids shrink with the batch size. An accumulator that does not
    would keep embeddings where they are in large batches, and one of 0 would let a single row move an id as far as a
    thousand rows move another. What an id moves by in all grows with the square root of its steps, and somebody who
    asks for a larger batch than the defaults know leaves it fewer of them, so there its rate grows.

    >>> default_adagrad(64), default_adagrad(1024)
    ({'lr': 0.05, 'initial_accumulator': 0.00244}, {'lr': 0.05, 'initial_accumulator': 9.54e-06})
    >>> default_adagrad(8192)["lr"]
    0.141
    """
    faster = math.sqrt(max(1.0, batch_size / _BATCH_SIZES[1]))
    rate = min(_MOST_EMBEDDING_RATE, _EMBEDDING_RATE * faster)
    return {"lr": float(f"{rate:.3g}"), "initial_accumulator": float(f"{_ACCUMULATOR / batch_size**2:.3g}")}
