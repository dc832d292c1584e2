"""A saved model over whole files: how good it is there, and its predictions written beside the rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from penstock.core.errors import ColumnNotFoundError, DataError, OutputExistsError, ParameterError
from penstock.core.progress import bar
from penstock.core.runtime.lanes import Lane
from penstock.core.runtime.threads import thread_count, thread_pool
from penstock.data.formats import FrameWriter
from penstock.data.naming import naming
from penstock.data.partition import Partition
from penstock.data.sources import DataLike
from penstock.engine import resolve
from penstock.etl import Workflow
from penstock.jobs.labels import check_click
from penstock.jobs.scoring_figures import ScoreFigures, metrics_of
from penstock.jobs.scoring_input import RowsToScore, model_columns, open_rows
from penstock.jobs.scoring_output import writer_of
from penstock.metrics.inputs import host_array
from penstock.nn.one_thread import on_one_thread
from penstock.serve.devices import default_device, named_device
from penstock.serve.feature_rows import go_to_device, scored_rows
from penstock.serve.model import model_in
from penstock.serve.predictor import ModelInput, Predictor

_ON_CPU = 8192  # rows: what stays in a cache
_BATCH_SIZES = {"cuda": 262_144}  # a partition of text, so that few calls do
# Threads that count while the model goes on. As many on every machine: partitions go to them in turns, so that figures
# are added up in the same order everywhere.
_LANES = 4
Scored = tuple[pl.DataFrame, Any, Any]  # kept columns, labels (None where none are wanted) and predictions
_Read = tuple[pl.DataFrame, np.ndarray | None, list[ModelInput]]
_Score = Callable[[list[ModelInput]], np.ndarray]


@dataclass(frozen=True)
class ScoreResult:
    """How good a model is on some rows.

    `metrics` are by name (`auc` and `log_loss` unless others were asked for), None where there is no such figure:
    without rows, with one label, or where predictions are NaN, whose number is `nan_scores`. `calibration` is what
    `Calibration.to_dict` gives; `unknown` has the share of values that training has not seen, by category column.

    Args:
        metrics: by name.
        rows: scored.
        calibration: of the predictions.
        unknown: shares by column.
        seconds: that it took.
        nan_scores: predictions that are NaN.

    >>> ScoreResult({"auc": 0.75}, 100, {}, {}, 0.1).auc
    0.75
    """

    metrics: dict[str, float | None]
    rows: int
    calibration: dict[str, Any]
    unknown: dict[str, float]
    seconds: float
    nan_scores: int = 0

    @property
    def auc(self) -> float | None:
        """The area under the ROC curve."""
        return self.metrics.get("auc")

    @property
    def log_loss(self) -> float | None:
        """The mean log loss."""
        return self.metrics.get("log_loss")

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data that JSON can hold.

        Returns:
            Figures by name.
        """
        figures = {"auc": self.auc, "log_loss": self.log_loss, **asdict(self)}
        if not self.nan_scores:
            del figures["nan_scores"]
        return figures


@dataclass(frozen=True)
class PredictResult:
    """Predictions that were written.

    Args:
        output: where they are.
        rows: written.
        seconds: that it took.

    >>> PredictResult("scores.parquet", 1000, 0.5).rows_per_second
    2000.0
    """

    output: str
    rows: int
    seconds: float

    @property
    def rows_per_second(self) -> float:
        """Rows in a second of the whole job."""
        return self.rows / max(self.seconds, 1e-9)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data.

        Returns:
            Figures by name.
        """
        return {**asdict(self), "rows_per_second": self.rows_per_second}


def evaluate_model(
    directory: str | Path,
    source: DataLike,
    *,
    metrics: Sequence[str] | None = None,
    group: str | None = None,
    input: Mapping[str, Any] | None = None,
    is_raw: bool | None = None,
    on_error: str = "raise",
    device: str | None = None,
    progress: bool | None = None,
) -> ScoreResult:
    """How good the model in `directory` is on labelled rows. Memory is bounded by a few partitions.

    Args:
        directory: a saved model, or the folder of its training run.
        metrics: what is measured: names in `penstock.metrics.METRICS`, or classes of one's own as
            `package.module:Class`; AUC and log loss by default.
        group: the column that says which group (a user, a query) each row belongs to, for metrics within groups.
        source, input, is_raw, on_error: see `open_rows`.
        device: where the model runs; the GPU where there is one by default.
        progress: draw a bar; None draws it on a terminal.

    Returns:
        The figures.

    Raises:
        ParameterError: there is no such metric, or it needs `group`.
        DataError: a label is neither 0 nor 1.
        PenstockError: the rows are not what the model reads.
    """
    began = time.perf_counter()
    measured, keep = metrics_of(metrics, group), [] if group is None else [group]
    with _predictor(directory, device) as (predictor, score):
        rows = open_rows(predictor, source, input=input, is_raw=is_raw, on_error=on_error)
        label = rows.label()
        figures = [ScoreFigures(measured) for _ in range(_LANES)]
        whole = figures[0]
        with _named_by_part(predictor, rows, label):
            scored = _scored(predictor, score, rows, rows.fitted, keep, progress, "evaluate", label)
            with ExitStack() as open_lanes:
                lanes = [open_lanes.enter_context(Lane("metrics")) for _ in figures]
                turns = cycle(zip(lanes, figures, strict=True))
                for kept, labels, scores in scored:
                    lane, counted = next(turns)
                    groups = None if group is None else _groups(kept.get_column(group))
                    lane.hand(counted.add, labels, scores, groups)
            for other in figures[1:]:  # labels that were counted on a device are refused here at the latest
                whole.merge(other)
        unknown, count = predictor.unknown, whole.num_rows
        shares = {n: float(c) / count if count else 0.0 for n, c in zip(unknown.columns, unknown.counts, strict=True)}
    return ScoreResult(
        metrics=whole.metrics(),
        rows=count,
        calibration=whole.calibration.to_dict(),
        unknown=shares,
        seconds=round(time.perf_counter() - began, 3),
        nan_scores=whole.calibration.num_nan,
    )


def predict_files(
    directory: str | Path,
    source: DataLike,
    output: str | Path,
    *,
    keep: Sequence[str] = (),
    column: str = "probability",
    input: Mapping[str, Any] | None = None,
    is_raw: bool | None = None,
    on_error: str = "raise",
    device: str | None = None,
    overwrite: bool = False,
    progress: bool | None = None,
) -> PredictResult:
    """Write predictions for every row of `source`, in its order, to `output`. Memory is bounded by a few partitions.

    Args:
        directory: a saved model, or the folder of its training run.
        output: a parquet, CSV or TSV file by its suffix, which appears when it is whole, or `-` for CSV on standard
            output.
        keep: columns of the rows to write beside the prediction.
        column: what the prediction is called.
        source, input, is_raw, on_error: see `open_rows`.
        device: where the model runs; the GPU where there is one by default.
        overwrite: replace a file that is there.
        progress: draw a bar; None draws it on a terminal.

    Returns:
        Where the predictions are, how many, and how long it took.

    Raises:
        OutputExistsError: the file is there already.
        PenstockError: the rows are not what the model reads.
    """
    began = time.perf_counter()
    if column in keep:
        raise ParameterError(f"a kept column is called {column!r}, as the prediction would be; name that another way")
    writer = writer_of(output)
    if str(output) != "-" and Path(output).exists() and not overwrite:
        raise OutputExistsError(f"{output} exists already; pass overwrite=True to replace it, or choose another path")
    count = 0
    with _predictor(directory, device) as (predictor, score):
        rows = open_rows(predictor, source, input=input, is_raw=is_raw, on_error=on_error)
        serving = predictor.workflow if rows.is_raw else None
        with _named_by_part(predictor, rows), writer(output) as out, Lane("predictions") as lane:
            for kept, _, scores in _scored(predictor, score, rows, serving, list(keep), progress, "predict"):
                lane.hand(_write, out, kept, column, scores)
                count += len(scores)
    return PredictResult(str(output), count, round(time.perf_counter() - began, 3))


@contextmanager
def _predictor(directory: str | Path, device: str | None) -> Iterator[tuple[Predictor, _Score]]:
    """The model for whole files, and what scores batches: on the GPU where there is one, which wants large batches.

    On a CPU each batch is scored by a thread, several side by side: threads that shared a batch would wait for one
    another at each layer, and for those that read.
    """
    chosen = default_device() if device is None else named_device(device)
    with Predictor(model_in(directory), device=chosen, batch_size=_BATCH_SIZES.get(chosen.type, _ON_CPU)) as predictor:
        if chosen.type != "cpu":
            yield predictor, predictor.score
            return
        with on_one_thread(), thread_pool(thread_count(None), "scoring") as pool:
            yield predictor, partial(predictor.score, run=pool.map)


def _write(out: FrameWriter, kept: pl.DataFrame, column: str, scores: Any) -> None:
    out.write(pl.DataFrame([*kept.get_columns(), pl.Series(column, host_array(scores))]))


def _scored(
    predictor: Predictor,
    score: _Score,
    rows: RowsToScore,
    workflow: Workflow | None,
    keep: list[str],
    progress: bool | None,
    words: str,
    label: str | None = None,
) -> Iterator[Scored]:
    """Kept columns, labels and predictions of some rows after the others, in their order."""
    known = rows.data.schema.names
    features_read = [*model_columns(predictor), *([label] if label else [])]
    inputs = workflow.input_schema.names if workflow is not None else features_read
    for name in (*inputs, *keep):
        if name not in known:
            raise ColumnNotFoundError(name, known, rows.data.place)
    parts = rows.data.partitions
    if workflow is None and go_to_device(predictor, rows.data):
        found = _on_device(predictor, rows, keep, label)
    else:
        read = partial(_read, inputs=inputs, keep=keep, workflow=workflow, predictor=predictor, label=label)
        found = _by_partition(score, rows, resolve().map(read, parts))
    with bar(words, sum(p.estimated_rows for p in parts), show=progress) as drawn:
        for kept, labels, scores in found:
            yield kept, labels, scores
            drawn.advance(len(scores))


def _by_partition(score: _Score, rows: RowsToScore, read: Iterable[_Read]) -> Iterator[Scored]:
    """Threads read and transform ahead of the model."""
    for kept, labels, batches in read:
        yield rows.spelled(kept), labels, score(batches)


def _on_device(predictor: Predictor, rows: RowsToScore, keep: list[str], label: str | None) -> Iterator[Scored]:
    """Features go from the files to the device; what is kept is read beside them."""
    kept = _KeptRows(rows, keep)
    for scores, labels in scored_rows(predictor, rows.data, label):
        yield kept.next(len(scores)), labels, scores


@contextmanager
def _named_by_part(predictor: Predictor, rows: RowsToScore, label: str | None = None) -> Iterator[None]:
    """A block in which rows may go to a device: what is wrong with some is said as it is of rows that do not."""
    try:
        yield
    except DataError:
        if rows.fitted is None and go_to_device(predictor, rows.data):
            columns = [*model_columns(predictor), *([label] if label else [])]
            for part in rows.data.partitions:
                _read(part, columns, [], None, predictor, label)
        raise


class _KeptRows:
    """The kept columns of rows in their order, so many at a time as are asked for."""

    def __init__(self, rows: RowsToScore, keep: list[str]) -> None:
        read = partial(_read_kept, keep=keep)
        self._frames = map(rows.spelled, resolve().map(read, rows.data.partitions)) if keep else None
        self._waiting = pl.DataFrame()

    def next(self, count: int) -> pl.DataFrame:
        if self._frames is None:
            return self._waiting
        while self._waiting.height < count:
            more = next(self._frames)
            self._waiting = pl.concat([self._waiting, more]) if self._waiting.height else more
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken


def _read_kept(part: Partition, keep: list[str]) -> pl.DataFrame:
    return part.read(keep)


def _groups(column: pl.Series) -> np.ndarray:
    """Which group each row belongs to."""
    if empty := column.null_count():
        raise DataError(
            f"the column {column.name!r} says of {empty:,} rows of a partition of {len(column):,} no group; "
            f"evaluate rows that have one"
        )
    return column.to_numpy()


def _read(
    part: Partition,
    inputs: list[str],
    keep: list[str],
    workflow: Workflow | None,
    predictor: Predictor,
    label: str | None,
) -> _Read:
    frame = part.read(list(dict.fromkeys([*inputs, *keep])))
    raw = frame.select(inputs)
    with naming(part):
        features = raw if workflow is None else workflow.transform(raw)
    labels = None
    if label is not None:
        check_click(features.get_column(label), label, part if features.height == raw.height else None)
        labels = features.get_column(label).to_numpy()
    return frame.select(keep), labels, predictor.model_inputs(features)
