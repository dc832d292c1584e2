"""How alike two ids of a row are, by their features."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from penstock.core.array_files import load_arrays
from penstock.core.errors import ParameterError, PenstockError, SchemaError
from penstock.core.params import OneOf
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.etl.operator import Columns, Operator

METRICS = ("tfidf", "cosine", "inner")
CHUNK = 1 << 16  # pairs compared at a time: bounds the memory of expanded rows
_MOST_WIDTH = 1 << 46  # a pair and a column must fit into 63 bits


class Sparse(NamedTuple):
    """Feature rows in compressed sparse form: row i holds `data[indptr[i]:indptr[i + 1]]`."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    width: int

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1


class ColumnSimilarity(Operator):
    """The similarity of the two ids of each row: `[["a", "b"]] >> ColumnSimilarity(features)` gives `a_b_sim`.

    An id is the number of a row of `features`. Missing ids give null; ids that have no features give 0.

    Args:
        left_features: features of the first column's ids: a 2-D array, a SciPy sparse matrix, a tuple
            `(data, indices, indptr)`, or the path of a `.npy` (dense) or `.npz` (SciPy's `save_npz`) file. Only a path
            can be saved with a workflow.
        right_features: of the second column's ids; the same features when left out.
        metric: `"inner"` product; `"cosine"`; `"tfidf"`: cosine after weighting each feature by its rarity.

    >>> from penstock import Workflow
    >>> features = np.array([[1.0, 0.0], [1.0, 1.0]])
    >>> frame = pl.DataFrame({"a": [0, 0], "b": [0, 1]})
    >>> node = [["a", "b"]] >> ColumnSimilarity(features, metric="cosine")
    >>> Workflow(node).transform(frame)["a_b_sim"].to_list()
    [1.0, 0.70710...]
    """

    constraints = {"metric": OneOf(METRICS)}

    def __init__(self, left_features: Any, right_features: Any = None, metric: str = "tfidf") -> None:
        self.left_features = left_features
        self.right_features = right_features
        self.metric = metric

    def _prepared(self) -> tuple[Sparse, Sparse]:
        """Both sides' features, weighted and scaled as the metric asks; worked out once."""
        if not hasattr(self, "_features"):
            left = weighted(as_sparse(self.left_features, "left_features"), self.metric)
            right = left
            if self.right_features is not None:
                right = weighted(as_sparse(self.right_features, "right_features"), self.metric)
            self._features = left, right
        return self._features

    def _pairs(self, columns: Columns) -> list[tuple[str, str, str]]:
        groups: Sequence[tuple[str, ...]] = [g for g in columns.groups if len(g) > 1] or [columns.names]
        for group in groups:
            if len(group) != 2:
                raise ParameterError(f"ColumnSimilarity compares two columns, got {list(group)}; pass [['a', 'b']]")
        return [(f"{a}_{b}_sim", a, b) for a, b in groups]

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        left, right = self._prepared()
        out = []
        for output, a, b in self._pairs(columns):
            missing = frame[a].is_null() | frame[b].is_null()
            values = np.empty(frame.height, np.float32)
            ids_a, ids_b = (frame[n].fill_null(-1).to_numpy().astype(np.int64) for n in (a, b))
            for start in range(0, frame.height, CHUNK):
                part = slice(start, start + CHUNK)
                values[part] = products(left, right, ids_a[part], ids_b[part])
            out.append(pl.Series(output, values).set(missing, None))
        return pl.DataFrame(out)

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        out = []
        for output, *names in self._pairs(columns):
            for name in names:
                if inputs[name].is_list or not inputs[name].dtype.startswith(("int", "uint")):
                    raise SchemaError(f"ColumnSimilarity needs integer ids; column {name!r} is {inputs[name].dtype}")
            out.append(ColumnSchema(output, "float32", Role.CONTINUOUS))
        return Schema(out)

    def recipe_params(self) -> dict[str, Any]:
        params: dict[str, Any] = {}
        for name in ("left_features", "right_features"):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, (str, Path)):
                raise ParameterError(
                    f"ColumnSimilarity.{name} cannot be saved: a {type(value).__name__} lives in memory; write it with "
                    f"numpy.save or scipy.sparse.save_npz and pass the path"
                )
            params[name] = str(value)
        return {**params, "metric": self.metric}

    def __repr__(self) -> str:
        return f"ColumnSimilarity(metric={self.metric!r})"  # features can be large


def as_sparse(features: Any, where: str) -> Sparse:
    """Features of any accepted form as compressed sparse rows of float64."""
    if isinstance(features, (str, Path)):
        return _read(Path(features), where)
    if hasattr(features, "tocsr"):
        matrix = features.tocsr().copy()
        matrix.sum_duplicates()
        return _checked(matrix.data, matrix.indices, matrix.indptr, int(matrix.shape[1]), where)
    if isinstance(features, tuple) and len(features) == 3:
        data, indices, indptr = (np.asarray(x) for x in features)
        return _checked(data, indices, indptr, int(indices.max(initial=-1)) + 1, where)
    dense = np.asarray(features)
    if dense.ndim != 2 or dense.dtype.kind not in "iufb":
        raise ParameterError(
            f"ColumnSimilarity.{where} must be a 2-D array of numbers, got {dense.ndim}-D {dense.dtype}"
        )
    rows, columns = np.nonzero(dense)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(dense)))])
    return _checked(dense[rows, columns], columns, indptr, dense.shape[1], where)


def _read(path: Path, where: str) -> Sparse:
    try:
        stored = load_arrays(path, ("data", "indices", "indptr", "shape"))
        if isinstance(stored, np.ndarray):
            return as_sparse(stored, where)
        width = int(stored["shape"][1])
        return _checked(stored["data"], stored["indices"], stored["indptr"], width, where)
    except (PenstockError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise ParameterError(f"ColumnSimilarity.{where}: {path} holds no features: {error}") from error


def _checked(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, width: int, where: str) -> Sparse:
    if data.dtype.kind not in "iufb" or any(array.ndim != 1 for array in (data, indices, indptr)):
        raise ParameterError(f"ColumnSimilarity.{where}: data, indices and indptr must be lists of numbers")
    if any(array.dtype.kind not in "iu" for array in (indices, indptr) if len(array)):
        raise ParameterError(f"ColumnSimilarity.{where}: indices and indptr must be integers")
    indices, indptr = indices.astype(np.int64), indptr.astype(np.int64)
    if width > _MOST_WIDTH:
        raise ParameterError(f"ColumnSimilarity.{where} has {width} columns; at most {_MOST_WIDTH} are read")
    whole = len(indptr) and indptr[0] == 0 and indptr[-1] == len(indices) == len(data) and (np.diff(indptr) >= 0).all()
    if not whole or (len(indices) and (indices.min() < 0 or indices.max() >= width)):
        raise ParameterError(f"ColumnSimilarity.{where}: data, indices and indptr do not describe a sparse matrix")
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    order = np.lexsort((indices, rows))  # columns ascending within a row, which matching rows relies on
    return Sparse(data.astype(np.float64)[order], indices[order], indptr, width)


def weighted(features: Sparse, metric: str) -> Sparse:
    """The features such that their inner products are the metric."""
    data = features.data
    if metric == "tfidf":
        _, at, having = np.unique(features.indices, return_inverse=True, return_counts=True)  # however wide it is
        data = data * np.log(features.num_rows / having)[at]
    if metric != "inner":
        rows = np.repeat(np.arange(features.num_rows), np.diff(features.indptr))
        norms = np.sqrt(np.bincount(rows, data * data, minlength=features.num_rows))
        data = data / np.where(norms > 0, norms, 1.0)[rows]
    return features._replace(data=data)


def products(left: Sparse, right: Sparse, ids_a: np.ndarray, ids_b: np.ndarray) -> np.ndarray:
    """The inner product of row `ids_a[i]` of one side and row `ids_b[i]` of the other, for every i."""
    width = max(left.width, right.width, 1)
    keys_a, values_a = _expanded(left, ids_a, width)
    keys_b, values_b = _expanded(right, ids_b, width)
    if not len(keys_a) or not len(keys_b):
        return np.zeros(len(ids_a))
    # Keys rise in both (pair, then feature), so a binary search finds each feature's partner.
    places = np.minimum(np.searchsorted(keys_b, keys_a), len(keys_b) - 1)
    shared = keys_b[places] == keys_a
    return np.bincount(keys_a[shared] // width, (values_a * values_b[places])[shared], minlength=len(ids_a))


def _expanded(side: Sparse, ids: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    known = (ids >= 0) & (ids < side.num_rows)
    safe = np.where(known, ids, 0) if side.num_rows else np.zeros_like(ids)
    first = side.indptr[safe] if side.num_rows else safe
    lengths = np.where(known, side.indptr[safe + 1] - first, 0) if side.num_rows else np.zeros_like(ids)
    ends = np.cumsum(lengths)
    places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - (ends - lengths), lengths)
    pairs = np.repeat(np.arange(len(ids)), lengths)
    return pairs * width + side.indices[places], side.data[places]
