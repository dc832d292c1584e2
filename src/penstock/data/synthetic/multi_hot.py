"""Rows with list columns of varying length, for loaders and models that take several ids per feature."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from penstock.core import params
from penstock.core.errors import ParameterError
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.data.synthetic import draws
from penstock.data.synthetic.output import ROWS_PER_CHUNK, Job, Summary

_HALF_RANK = 256.0
_SIGNAL = 1.6
_SAMPLE_ROWS = 32_768
_SAMPLE_SEED = -(2**63)
_LONGEST = 65_535  # an element's counter is row · 2^16 + position

_CONSTRAINTS = {
    "num_lists": params.Int(min=0),
    "num_categorical": params.Int(min=0),
    "num_continuous": params.Int(min=0),
    "cardinality": params.Int(min=1, max=2**31 - 1),
    "mean_length": params.Real(min=0.0),
    "max_length": params.Int(min=1, max=_LONGEST),
    "missing": params.Real(0.0, 1.0),
    "exponent": params.Real(0.0, 10.0),
}


@dataclass(frozen=True)
class _Shape:
    num_lists: int
    num_categorical: int
    num_continuous: int
    cardinality: int
    mean_length: float
    max_length: int
    missing: float
    exponent: float

    def __post_init__(self) -> None:
        params.check_all(vars(self), _CONSTRAINTS)
        if self.mean_length > self.max_length:
            raise ParameterError(f"mean_length must be at most max_length={self.max_length}, got {self.mean_length}")
        if not self.lists + self.categories + self.numbers:
            raise ParameterError("num_lists, num_categorical and num_continuous are all 0; ask for one column at least")
        if self.exponent == 1.0:
            object.__setattr__(self, "exponent", 1.0 + 1e-6)

    @property
    def lists(self) -> list[str]:
        return [f"M{i + 1}" for i in range(self.num_lists)]

    @property
    def categories(self) -> list[str]:
        return [f"S{i + 1}" for i in range(self.num_categorical)]

    @property
    def numbers(self) -> list[str]:
        return [f"N{i + 1}" for i in range(self.num_continuous)]

    def draw(self, seed: int, start: int, stop: int) -> pa.Table:
        """Rows `start` to `stop`, without the label."""
        rows = np.arange(start, stop, dtype=np.int64)
        columns: dict[str, pa.Array] = {}
        for name in self.numbers:
            columns[name] = pa.array(draws.normal(draws.stream_key(seed, name), rows).astype(np.float32))
        for name in self.categories:
            columns[name] = pa.array(self._ids(name, seed, rows), mask=self._null(name, seed, rows))
        for name in self.lists:
            null = self._null(name, seed, rows)
            lengths = np.where(null, 0, self._lengths(name, seed, rows))
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            position = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
            values = self._ids(name, seed, (np.repeat(rows, lengths) << 16) | position)
            arrays = pa.array(offsets.astype(np.int32)), pa.array(values)
            columns[name] = pa.ListArray.from_arrays(*arrays, mask=pa.array(null))
        return pa.table(columns)

    def _ids(self, name: str, seed: int, counters: NDArray[np.int64]) -> NDArray[np.int32]:
        ranks = draws.zipf(draws.stream_key(seed, name), counters, self.cardinality, self.exponent)
        return draws.scatter(draws.stream_key(0, f"ids/{name}"), ranks, self.cardinality).astype(np.int32)

    def _null(self, name: str, seed: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        return draws.uniform(draws.stream_key(seed, f"{name}/null"), rows) < self.missing

    def _lengths(self, name: str, seed: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Geometric: many short lists, some empty, few long; cut at `max_length`."""
        if self.mean_length == 0:
            return np.zeros(rows.size, np.int64)
        log_ratio = np.log(self.mean_length / (1.0 + self.mean_length))
        lengths = np.log1p(-draws.uniform(draws.stream_key(seed, f"{name}/length"), rows)) / log_ratio
        bounded: NDArray[np.int64] = np.minimum(lengths.astype(np.int64), self.max_length)
        return bounded

    def schema(self) -> Schema:
        ids: dict[str, Any] = {"dtype": "int32", "role": Role.CATEGORICAL, "cardinality": self.cardinality}
        columns = [ColumnSchema("label", "int32", Role.LABEL, nullable=False, tags=frozenset(["binary"]))]
        columns += [ColumnSchema(name, "float32", Role.CONTINUOUS, nullable=False) for name in self.numbers]
        columns += [ColumnSchema(name, **ids) for name in self.categories]
        columns += [ColumnSchema(name, **ids, is_list=True, tags=frozenset(["multihot"])) for name in self.lists]
        return Schema(columns)


@dataclass(frozen=True)
class MultiHotTeacher:
    """Click probabilities of `multihot`: an effect per id (averaged over a list) and per number, one interaction.

    Args:
        seed: of the effects.
        bias: added to the sum of effects.
        scale: that sum is multiplied by.
        shape: of the columns.
    """

    seed: int
    bias: float
    scale: float
    shape: _Shape

    def probability(self, frame: pl.DataFrame | pa.Table) -> NDArray[np.float64]:
        """The probability of label 1 for rows as written: a polars frame or an Arrow table.

        Args:
            frame: rows as written.

        Returns:
            Probabilities.
        """
        table = frame.to_arrow() if isinstance(frame, pl.DataFrame) else frame
        return draws.sigmoid(self.bias + self.scale * _raw_logit(self.shape, self.seed, table))


def multihot(
    path: str | Path,
    num_rows: int,
    *,
    num_lists: int = 4,
    num_categorical: int = 4,
    num_continuous: int = 4,
    cardinality: int = 100_000,
    mean_length: float = 8.0,
    max_length: int = 64,
    missing: float = 0.01,
    exponent: float = 1.1,
    base_rate: float = 0.25,
    teacher_seed: int = 0,
    seed: int = 0,
    num_files: int = 1,
    rows_per_chunk: int = ROWS_PER_CHUNK,
    overwrite: bool = False,
    progress: bool | None = None,
    num_threads: int | None = None,
) -> Summary:
    """Write parquet with a label, numbers N1…, single ids S1… and lists of ids M1… (0 to `max_length` long).

    Ids are int32 in [0, cardinality) with Zipf-like frequencies, and the frequent ones are not the small ones.

    Args:
        path: a file, or a folder for several.
        num_rows: how many.
        num_lists: list columns.
        num_categorical: columns of single ids.
        num_continuous: columns of numbers.
        cardinality: of all ids.
        mean_length: of lists.
        max_length: of lists.
        missing: the rate of missing values.
        exponent: of the Zipf-like frequencies.
        base_rate: the share of label 1.
        teacher_seed: of the teacher.
        seed: of the rows.
        num_files: how many files.
        rows_per_chunk: rows that are made at a time.
        overwrite: replace what is there.
        progress: draw a bar; None draws it on a terminal.
        num_threads: threads that make rows.

    Returns:
        What was written, with the teacher.

    >>> import tempfile
    >>> summary = multihot(Path(tempfile.mkdtemp()) / "lists.parquet", 100, num_lists=2, cardinality=50)
    >>> [column.name for column in summary.schema if column.is_list]
    ['M1', 'M2']
    """
    shape = _Shape(num_lists, num_categorical, num_continuous, cardinality, mean_length, max_length, missing, exponent)
    params.check("base_rate", base_rate, params.Real(0.001, 0.999))
    params.check("teacher_seed", teacher_seed, params.Int())
    job = Job(Path(path), num_rows, seed, "parquet", num_files, rows_per_chunk, overwrite, progress, num_threads)
    raw = _raw_logit(shape, teacher_seed, shape.draw(_SAMPLE_SEED, 0, _SAMPLE_ROWS))
    bias, scale = draws.calibrate(raw, base_rate, _SIGNAL)
    teacher = MultiHotTeacher(teacher_seed, bias, scale, shape)
    label_key = draws.stream_key(seed, "label")

    def produce(start: int, stop: int) -> tuple[pa.Table, int]:
        table = shape.draw(seed, start, stop)
        labels = draws.uniform(label_key, np.arange(start, stop)) < teacher.probability(table)
        return table.add_column(0, "label", pa.array(labels.astype(np.int32))), int(labels.sum())

    schema = shape.schema()
    written = job.run(produce, schema, produce(0, 0)[0].schema)
    sizes = dict.fromkeys([*shape.categories, *shape.lists], cardinality)
    best_auc = draws.expected_auc(draws.sigmoid(bias + scale * raw))
    return Summary(**written, best_auc=best_auc, cardinalities=sizes, schema=schema, teacher=teacher)


def _raw_logit(shape: _Shape, seed: int, table: pa.Table) -> NDArray[np.float64]:
    logit = np.zeros(table.num_rows)
    effects: dict[str, NDArray[np.float64]] = {}
    for place, name in enumerate(shape.numbers):
        effects[name] = table[name].to_numpy().astype(np.float64)
        logit += 0.5 * 0.9**place * effects[name]
    for place, name in enumerate([*shape.lists, *shape.categories]):
        column = table[name].combine_chunks()
        effects[name] = _id_effects(shape, seed, name, column)
        logit += 0.9**place * effects[name]
    if shape.num_lists and shape.num_categorical:  # neither alone tells this part
        logit += effects[shape.lists[0]] * effects[shape.categories[0]]
    return logit


def _id_effects(shape: _Shape, seed: int, name: str, column: pa.Array) -> NDArray[np.float64]:
    """One effect per row: of its id, or of its list (the sum over the root of the length); 0 for null and empty."""
    if isinstance(column, pa.ChunkedArray):  # what an empty table combines to
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    lists = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    counts = column.value_lengths().fill_null(0) if lists else column.is_valid()
    lengths = counts.to_numpy(zero_copy_only=False).astype(np.int64)
    ids = (column.flatten() if lists else column.drop_null()).to_numpy()
    ranks = draws.gather(draws.stream_key(0, f"ids/{name}"), ids, shape.cardinality)
    each = draws.normal(draws.stream_key(seed, f"teacher/{name}"), ranks) * (_HALF_RANK / (_HALF_RANK + ranks))
    total = np.bincount(np.repeat(np.arange(len(column)), lengths), each, len(column))
    scaled: NDArray[np.float64] = total / np.sqrt(np.maximum(lengths, 1))
    return scaled
