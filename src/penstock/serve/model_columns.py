"""Rows of any kind as the columns that a model reads: few of them without a frame, many a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from penstock.core.arrow_arrays import numpy_of
from penstock.core.batch import Ragged
from penstock.core.conversion import convert
from penstock.core.dtypes import split_list
from penstock.core.errors import ColumnNotFoundError, DataError
from penstock.core.runtime.forks import require_polars
from penstock.core.schema import ColumnSchema
from penstock.data import Dataset
from penstock.data.frames import to_polars
from penstock.etl import Workflow
from penstock.etl.bulk import frame_of
from penstock.etl.cells import Numbers
from penstock.etl.raw_values import policy_of
from penstock.nn import Model

_SINGLE = 2  # rows up to which one by one is fastest
_ROWS = "the rows to predict"
_FEW = 2048  # rows up to which a frame takes longer than `transform_rows`


class ModelColumns:
    """Makes a model's columns of raw rows, or of features where there is no workflow.

    Args:
        model: which reads them.
        workflow: from raw rows to features.
        batch_size: rows of a batch.
    """

    def __init__(self, model: Model, workflow: Workflow | None, batch_size: int) -> None:
        self.schema, self.workflow, self.batch_size = model.schema, workflow, batch_size
        self.names = [*model.categorical, *model.continuous]

    def of_rows(self, rows: Any) -> Iterator[dict[str, Any]]:
        """The model's columns, a batch at a time."""
        if isinstance(rows, Dataset):
            for frame in rows.iter_frames(self._inputs(rows.schema.names)):
                yield from self._from_frame(frame)
        elif isinstance(rows, Sequence) and not isinstance(rows, (str, bytes)):
            if len(rows) > _FEW:
                yield from self._from_frame(self._frame(rows))
            elif len(rows):
                yield self._from_rows(rows)
        else:
            yield from self._from_frame(to_polars(rows))

    def _inputs(self, there: list[str]) -> list[str]:
        wanted = self.workflow.input_schema.names if self.workflow is not None else self.names
        for name in wanted:
            if name not in there:
                raise ColumnNotFoundError(name, there, _ROWS)
        return list(wanted)

    def _from_rows(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Few rows, without a frame."""
        if self.workflow is not None and len(rows) > _SINGLE:
            cells = self.workflow.transform_rows(rows)
            return {name: self._from_cell(name, cells[name]) for name in self.names}
        if self.workflow is not None:
            rows = [self.workflow.transform_row(row) for row in rows]
        try:
            return {name: self._from_cell(name, [row[name] for row in rows]) for name in self.names}
        except KeyError as error:
            raise ColumnNotFoundError(error.args[0], rows[0], _ROWS) from None

    def _from_cell(self, name: str, cell: Any) -> Any:
        if isinstance(cell, Numbers):
            if cell.valid is not None and not cell.valid.all():
                raise _null(name)
            return cell.values
        if any(value is None for value in cell):
            raise _null(name)
        column = self.schema[name]
        return _ragged(cell, column) if column.is_list else _numbers(cell, column)

    def _frame(self, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
        """Many rows as a frame, read as single ones are."""
        require_polars("predicting many rows at once")
        return frame_of(self.workflow.input_schema if self.workflow is not None else self.schema, rows)

    def _from_frame(self, frame: pl.DataFrame) -> Iterator[dict[str, Any]]:
        require_polars("predicting a frame")
        frame = frame.select(self._inputs(frame.columns))
        for part in frame.iter_slices(self.batch_size):
            yield from self.of_features(self.workflow.transform(part) if self.workflow is not None else part)

    def of_features(self, features: pl.DataFrame) -> Iterator[dict[str, Any]]:
        """The columns of features that are made already, a batch at a time."""
        for part in features.iter_slices(self.batch_size):
            if part.height:
                yield {name: _array(part[name], self.schema[name]) for name in self.names}


def _array(series: pl.Series, column: ColumnSchema) -> Any:
    if series.null_count():
        raise _null(series.name)
    inner = split_list(series.dtype)[0]  # ids are integers, and stay what they are
    if not (inner.is_integer() or (inner.is_float() and column.role == "continuous")):
        dtype = _dtype(column)
        series = convert(series, dtype, column=column.name, where=_ROWS, policy=policy_of(dtype))
        if series.null_count():
            raise _null(series.name)
    if column.is_list:
        arrow: Any = series.rechunk().to_arrow()
        offsets = numpy_of(arrow.offsets).astype(np.int64)
        values = arrow.values[int(offsets[0]) : int(offsets[-1])]
        if values.null_count:
            raise _null(series.name)
        return Ragged(numpy_of(values), offsets - offsets[0])
    return np.ascontiguousarray(series.to_numpy())


def _null(name: str) -> DataError:
    return DataError(f"column {name!r} has missing values behind the workflow; fill them in the workflow")


def _ragged(values: list[Any], column: ColumnSchema) -> Ragged:
    lengths = [len(value) for value in values]
    joined = [item for value in values for item in value]
    if any(item is None for item in joined):
        raise _null(column.name)
    return Ragged(_numbers(joined, column), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def _numbers(values: list[Any], column: ColumnSchema) -> np.ndarray:
    """Python values as the model takes them, exactly; floats in its own width."""
    dtype = _dtype(column)
    policy = policy_of(dtype)
    plain = float if dtype == "float32" else int
    if all(type(value) is plain for value in values):
        array = np.array(values)
        if array.dtype.kind in "iuf":
            return convert(array, dtype, column=column.name, where=_ROWS, policy=policy)
    read = [convert(value, dtype, column=column.name, where=_ROWS, policy=policy) for value in values]
    if any(value is None for value in read):
        raise _null(column.name)
    return np.array(read, dtype)


def _dtype(column: ColumnSchema) -> str:
    return "float32" if column.role == "continuous" else ("uint64" if column.dtype == "uint64" else "int64")
