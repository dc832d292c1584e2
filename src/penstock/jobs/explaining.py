"""Which columns a model depends on: how much worse it gets when the values of one are shuffled among the rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from penstock.core.errors import ArtefactError, DataError
from penstock.core.params import Int, check_all
from penstock.core.progress import bar
from penstock.data.sources import DataLike
from penstock.jobs.run_folder import RunFolder
from penstock.jobs.sampling import sample_rows
from penstock.jobs.scoring_input import RowsToScore, model_columns, open_rows
from penstock.metrics import AUC, LogLoss, logit
from penstock.serve.devices import default_device, named_device
from penstock.serve.model import model_in
from penstock.serve.predictor import Predictor

_WITHIN_NOISE = 2.0  # standard deviations of the loss that chance alone gives


@dataclass(frozen=True)
class Importance:
    """What a model loses without a column.

    Args:
        column: its name.
        auc: by how much AUC falls, on average over the repetitions.
        auc_spread: the standard deviation of that.
        log_loss: by how much log loss rises.
        log_loss_spread: the standard deviation of that.
    """

    column: str
    auc: float
    auc_spread: float
    log_loss: float
    log_loss_spread: float

    @property
    def is_noise(self) -> bool:
        """Whether chance alone could give as much."""
        return self.auc <= _WITHIN_NOISE * self.auc_spread and self.log_loss <= _WITHIN_NOISE * self.log_loss_spread


@dataclass(frozen=True)
class Explanation:
    """Which columns matter to a model, the most important first.

    Args:
        model: what was explained.
        rows: how many were predicted on.
        is_sample: whether there are others.
        is_raw: whether the columns are raw ones, or features behind the workflow.
        repeats: how often each column was shuffled.
        metrics: AUC and log loss with every column in its place.
        columns: what each is worth.
        seconds: that it took.

    >>> found = Explanation("run", 100, False, False, 3, {"auc": 0.7}, [Importance("user", 0.1, 0.01, 0.2, 0.01)], 1.0)
    >>> found.columns[0].column, found.to_dict()["columns"][0]["is_noise"]
    ('user', False)
    """

    model: str
    rows: int
    is_sample: bool
    is_raw: bool
    repeats: int
    metrics: dict[str, float]
    columns: list[Importance]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data that JSON can hold.

        Returns:
            Figures by name.
        """
        columns = [{**asdict(entry), "is_noise": entry.is_noise} for entry in self.columns]
        return {"version": 1, "kind": "explanation", **asdict(self), "columns": columns}


def explain_model(
    directory: str | Path,
    source: DataLike | None = None,
    *,
    input: Mapping[str, Any] | None = None,
    num_rows: int = 10_000,
    repeats: int = 3,
    seed: int = 0,
    on_error: str = "raise",
    device: str | None = None,
    progress: bool | None = None,
) -> Explanation:
    """Permutation importance of every column that a saved model reads, on a sample of rows.

    Columns that say the same share their importance: each seems dispensable while the other is there.

    Args:
        directory: the folder of a training run, or a saved model.
        source: labelled rows. Raw ones have their raw columns shuffled, ahead of the workflow. By default the features
            of the rows that the run held out.
        input: how to read text, as the section of that name of a recipe; what training used by default.
        num_rows: at most so many rows, drawn from all of them.
        repeats: how often each column is shuffled.
        seed: of the draw and of the shuffling.
        on_error: what a malformed text line does.
        device: where the model runs; the GPU where there is one by default.
        progress: draw a bar; None draws it on a terminal.

    Returns:
        What each column is worth.

    Raises:
        DataError: the rows have one label only, or there are none.
        ArtefactError: there are no held-out rows, and none were given.
    """
    check_all({"num_rows": num_rows, "repeats": repeats}, {"num_rows": Int(2), "repeats": Int(1)}, "explain_model")
    began = time.perf_counter()
    place = default_device() if device is None else named_device(device)
    with Predictor(model_in(directory), device=place) as predictor:
        rows = open_rows(predictor, _held_out(directory) if source is None else source, input=input, on_error=on_error)
        frame, labels, is_sample = _sampled(predictor, rows, num_rows, seed)
        score = _scorer(predictor, rows, labels)
        whole = score(frame)
        names = [name for name in frame.columns if name != rows.label()]
        columns = []
        with bar("explain", len(names) * repeats, show=progress) as drawn:
            for number, name in enumerate(names):
                worse = []
                for repeat in range(repeats):
                    order = np.random.default_rng([seed, number, repeat]).permutation(frame.height)
                    found = score(frame.with_columns(frame[name].gather(order)))
                    worse.append((whole["auc"] - found["auc"], found["log_loss"] - whole["log_loss"]))
                    drawn.advance(1)
                columns.append(_importance(name, worse))
    columns.sort(key=lambda entry: (-entry.auc, -entry.log_loss, entry.column))
    return Explanation(
        model=str(directory),
        rows=frame.height,
        is_sample=is_sample,
        is_raw=rows.is_raw,
        repeats=repeats,
        metrics=whole,
        columns=columns,
        seconds=round(time.perf_counter() - began, 3),
    )


def _held_out(directory: str | Path) -> DataLike:
    """The features that a run was evaluated on."""
    folder = RunFolder(directory)
    if not folder.is_run():
        raise ArtefactError(
            f"{directory} is a model without the run that trained it: give labelled rows to explain it on"
        )
    if folder.valid.is_dir():
        return folder.valid
    about, _ = folder.read()
    if about.get("valid") and not about.get("recipe"):
        given: Sequence[str] = about["valid"]
        return given[0] if len(given) == 1 else list(given)
    raise ArtefactError(f"the run in {directory} held no rows out: give labelled rows to explain its model on")


def _sampled(
    predictor: Predictor, rows: RowsToScore, num_rows: int, seed: int
) -> tuple[pl.DataFrame, np.ndarray, bool]:
    """A sample with the columns that can be shuffled and what the workflow needs for the label; and the labels."""
    label = rows.label()
    if rows.fitted is None:
        wanted = [*model_columns(predictor), label]
        frame, is_sample = sample_rows(rows.data, wanted, num_rows, seed)
        labels = frame[label].to_numpy()
        frame = frame.drop(label)
    else:
        wanted = rows.fitted.input_schema.names
        frame, is_sample = sample_rows(rows.data, wanted, num_rows, seed)
        labels = rows.fitted.transform(frame)[label].to_numpy()
        serving = predictor.workflow
        assert serving is not None
        frame = frame.select(serving.input_schema.names)
    if len(np.unique(labels)) < 2:
        raise DataError(
            f"the label {label!r} has one value only in {len(labels):,} rows; what a column is worth shows on rows "
            "with both labels"
        )
    return frame, labels, is_sample


def _scorer(predictor: Predictor, rows: RowsToScore, labels: np.ndarray) -> Callable[[pl.DataFrame], dict[str, float]]:
    def score(frame: pl.DataFrame) -> dict[str, float]:
        scores = predictor.predict(frame) if rows.is_raw else predictor.predict_features(frame)
        auc, log_loss = AUC(), LogLoss()
        auc.update(scores, labels)
        log_loss.update(logit(scores), labels)
        return {"auc": auc.compute(), "log_loss": log_loss.compute()}

    return score


def _importance(name: str, worse: Sequence[tuple[float, float]]) -> Importance:
    means, spreads = np.mean(worse, axis=0), np.std(worse, axis=0)
    return Importance(name, float(means[0]), float(spreads[0]), float(means[1]), float(spreads[1]))
