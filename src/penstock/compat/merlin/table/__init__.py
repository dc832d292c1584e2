"""`merlin.table`: columns of tensors by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.compat.merlin.dag import group_values_offsets, ungroup_values_offsets
from penstock.compat.merlin.table.tensor_column import (
    Device,
    NumpyColumn,
    TensorColumn,
    column_type_of,
    convert_col,
    end_to_end,
)
from penstock.compat.missing import CompatTypeError
from penstock.core.errors import ColumnNotFoundError, DataError
from penstock.core.extras import require

# `merlin.testing.assert_equals`: whether two frames, or two tables of tensors, hold the same.


def assert_table_equal(left: TensorTable, right: TensorTable) -> None:
    """Raise AssertionError, which says where, unless two tables hold the same.

    >>> import numpy as np
    >>> assert_table_equal(TensorTable({"a": np.array([1])}), TensorTable({"a": np.array([1])}))
    """
    assert_transformable_equal(left.cpu().to_df(), right.cpu().to_df())


def assert_transformable_equal(left: Any, right: Any) -> None:
    """Raise AssertionError unless two pandas frames, or two tables, hold the same.

    >>> import pandas as pd
    >>> assert_transformable_equal(pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1]}))
    """
    pandas = require("pandas", "pandas")
    if isinstance(left, TensorTable):
        assert_table_equal(left, right)
    elif isinstance(left, pandas.DataFrame):
        pandas.testing.assert_frame_equal(left, right)
    else:
        raise NotImplementedError(f"neither a pandas frame nor a table: {type(left).__name__}")


# Columns of tensors by name.


class TensorTable:
    """Columns by name, all of one framework; lists as pairs `(values, offsets)` or `x__values` and `x__offsets`.

    >>> table = TensorTable({"a": np.array([1, 2]), "b": (np.array([3, 4, 5]), np.array([0, 1, 3]))})
    >>> table.columns, len(table["b"]), sorted(table.to_dict())
    (['a', 'b'], 2, ['a', 'b__offsets', 'b__values'])
    """

    def __init__(self, columns: Any = None, _unsafe: bool = False) -> None:
        if columns is not None and not isinstance(columns, Mapping):
            columns = dict(TensorTable.from_df(columns).items())
        grouped = group_values_offsets(columns or {})
        self._columns = {name: _column(value) for name, value in grouped.items()}
        if not _unsafe:
            self._check()

    def _check(self) -> None:
        if len(kinds := {type(column).__name__ for column in self._columns.values()}) > 1:
            raise CompatTypeError(f"the columns of a table must be from the same framework, got {sorted(kinds)}")
        if len({column.device for column in self._columns.values()}) > 1:
            raise DataError("the columns of a table must be on the same device")

    @classmethod
    def from_df(cls, df: Any, schema: Any = None) -> TensorTable:
        """A table of NumPy arrays from a pandas frame; lists that the schema says are of one length as an array."""
        columns: dict[str, Any] = {}
        for name in df.columns:
            values = df[name]
            if len(values) and isinstance(values.iloc[0], (list, tuple, np.ndarray)):
                lengths = values.map(len).to_numpy()
                offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
                elements = end_to_end(values)
                fixed = schema is not None and not schema[name].is_ragged
                columns[name] = _of_one_length(name, elements, lengths) if fixed else (elements, offsets)
            else:
                columns[name] = values.to_numpy()
        return cls(columns)

    def to_df(self) -> Any:
        """The table as a pandas frame; cells are arrays where lists may differ in length, else Python lists."""
        pandas = require("pandas", "pandas")
        columns = {}
        for name, column in self._columns.items():
            here = convert_col(column.cpu(), NumpyColumn)
            if here.offsets is not None:
                columns[name] = pandas.Series([np.asarray(here[i]) for i in range(len(here))])
            else:
                columns[name] = pandas.Series(here.values.tolist() if here.is_list else here.values)
        return pandas.DataFrame(columns)

    def to_dict(self) -> dict[str, Any]:
        """Arrays by name; lists as `x__values` and `x__offsets`."""
        pairs = {n: c.values if c.offsets is None else (c.values, c.offsets) for n, c in self._columns.items()}
        return ungroup_values_offsets(pairs)

    def as_tensor_type(self, tensor_type: Any) -> TensorTable:
        """The table with arrays of another framework, which is named by a class of columns or of arrays."""
        wanted = column_type_of(tensor_type)
        return TensorTable({name: convert_col(column, wanted) for name, column in self._columns.items()})

    def cpu(self) -> TensorTable:
        return TensorTable({name: column.cpu() for name, column in self._columns.items()})

    def gpu(self) -> TensorTable:
        return TensorTable({name: column.gpu() for name, column in self._columns.items()})

    @property
    def columns(self) -> list[str]:
        return list(self._columns)

    @columns.setter
    def columns(self, names: Sequence[str]) -> None:
        if len(names) != len(self._columns):
            raise DataError(f"the table has {len(self._columns)} columns, got {len(names)} names")
        self._columns = dict(zip(names, self._columns.values(), strict=True))

    @property
    def column_type(self) -> type[TensorColumn] | None:
        return next((type(column) for column in self._columns.values()), None)

    @property
    def device(self) -> Device | None:
        return next((column.device for column in self._columns.values()), None)

    @property
    def shape(self) -> tuple[int, int]:
        rows = next((len(column) for column in self._columns.values()), 0)
        return rows, len(self._columns)

    def dtypes(self) -> list[Any]:
        return [column.dtype for column in self._columns.values()]

    def keys(self) -> Any:
        return self._columns.keys()

    def values(self) -> Any:
        return self._columns.values()

    def items(self) -> Any:
        return self._columns.items()

    def pop(self, name: str) -> TensorColumn:
        return self._columns.pop(name)

    def update(self, other: Any) -> None:
        """Take the columns of another table too."""
        for name, column in other.items():
            self[name] = column

    def copy(self) -> TensorTable:
        return TensorTable(dict(self._columns))

    def __getitem__(self, name: Any) -> Any:
        if isinstance(name, (list, tuple)):
            return TensorTable({n: self[n] for n in name})
        if name not in self._columns:
            raise ColumnNotFoundError(name, self._columns, "the table")
        return self._columns[name]

    def __setitem__(self, name: str, value: Any) -> None:
        before = dict(self._columns)
        self._columns[name] = _column(value)
        try:
            self._check()
        except (DataError, CompatTypeError):
            self._columns = before
            raise

    def __delitem__(self, name: str) -> None:
        self.pop(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorTable) and self._columns == other._columns

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TensorTable({self._columns!r})"


def df_from_tensor_table(table: TensorTable) -> Any:
    """A table as a pandas frame.

    >>> df_from_tensor_table(TensorTable({"a": np.array([1, 2])}))["a"].tolist()
    [1, 2]
    """
    return table.to_df()


def tensor_table_from_df(df: Any, schema: Any = None) -> TensorTable:
    """A table of NumPy arrays from a pandas frame."""
    return TensorTable.from_df(df, schema)


def _of_one_length(name: str, elements: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    if (lengths != lengths[0]).any():
        raise DataError(
            f"column {name!r} holds lists of {lengths.min()} to {lengths.max()} elements, and its schema says that all "
            f"are of one length; give it a shape that says otherwise: with_shape((None, None))"
        )
    return elements.reshape(len(lengths), int(lengths[0]), *elements.shape[1:])


def _column(value: Any) -> TensorColumn:
    if isinstance(value, TensorColumn):
        return value
    return TensorColumn(*value) if isinstance(value, tuple) else TensorColumn(value)
