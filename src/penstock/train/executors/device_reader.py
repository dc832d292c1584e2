"""From whatever a loader delivers to what a step on the device reads: ids, numbers and labels, where the model is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from penstock.core.batch import Ragged
from penstock.core.errors import ColumnNotFoundError, DataError
from penstock.core.schema import Role, Schema
from penstock.train.batch import as_tensor, named_columns, to_device


class DeviceReader:
    """Turns batches into `(ids, numbers, labels)`.

    `ids` are `(B, columns)`, or that and `{name: (values, offsets)}` where there are list columns. A packed batch whose
    columns lie in the wanted order already is taken as it is; any other is sorted by names.

    Args:
        schema: of the loader, which names the columns of packed batches.
        device: where everything goes.
        categorical, continuous: the columns that are wanted, in order; None takes the loader's.

    >>> from penstock import ColumnSchema
    >>> user = ColumnSchema("user", "int64", role="categorical")
    >>> schema = Schema([user, ColumnSchema("age", "float32", role="continuous")])
    >>> reader = DeviceReader(schema, torch.device("cpu"))
    >>> ids, numbers, labels = reader(({"age": [0.5, 1.5], "user": [3, 4]}, [0, 1]))
    >>> ids.tolist(), numbers.tolist(), labels.tolist()
    ([[3], [4]], [[0.5], [1.5]], [0, 1])
    """

    def __init__(
        self,
        schema: Schema | None,
        device: torch.device,
        categorical: Sequence[str] | None = None,
        continuous: Sequence[str] | None = None,
    ) -> None:
        self.schema, self.device = schema, device
        self._names_known = schema is not None or (categorical is not None and continuous is not None)
        delivered = [
            [] if schema is None else schema.select(roles=r).names for r in (Role.CATEGORICAL, Role.CONTINUOUS)
        ]
        self._categorical = delivered[0] if categorical is None else list(categorical)
        self._continuous = delivered[1] if continuous is None else list(continuous)
        self._as_it_lies = schema is None or delivered == [self._categorical, self._continuous]

    def __call__(self, raw: Any) -> tuple[Any, Tensor, Any]:
        packed = isinstance(raw, tuple) and len(raw) == 3
        if packed and self._as_it_lies:
            ids, numbers, labels = raw
            ids = (ids[0], _lists(ids[1])) if isinstance(ids, tuple) else ids
        else:
            ids, numbers, labels = self._by_name(raw)
        if labels is None:
            raise DataError("the loader's batches have no labels: give it labels=[…]")
        ids, labels = to_device(ids, self.device), to_device(_tensors(labels), self.device)
        return ids, as_tensor(numbers).to(self.device, torch.float32, non_blocking=True), labels

    def _by_name(self, raw: Any) -> tuple[Any, Any, Any]:
        if not self._names_known:
            raise DataError(
                "the loader has no schema that says which columns are categories and which are numbers; use one of "
                'penstock.loader, or deliver packed batches (ids, numbers, labels) as its layout="packed" does'
            )
        columns, labels = named_columns(raw, self.schema)
        for name in (*self._categorical, *self._continuous):
            if name not in columns:
                raise ColumnNotFoundError(name, columns, "the loader's batch")
        lists = _lists({name: columns[name] for name in self._categorical if _is_list(columns[name])})
        singles = [as_tensor(columns[name]) for name in self._categorical if name not in lists]
        numbers = [as_tensor(columns[name]).float() for name in self._continuous]
        rows = len(next(iter(_tensors(labels).values())) if isinstance(labels, dict) else labels)
        matrix = _side_by_side(singles, rows, torch.int64)
        return (matrix, lists) if lists else matrix, _side_by_side(numbers, rows, torch.float32), labels


def _side_by_side(columns: list[Tensor], rows: int, kind: torch.dtype) -> Tensor:
    """Column by column, as a packed batch lies; ids of several widths in the widest."""
    if not columns:
        return torch.empty((rows, 0), dtype=kind)
    if len({column.dtype for column in columns}) > 1:
        columns = [column.to(kind) for column in columns]
    return torch.stack(columns).t()


def _is_list(value: Any) -> bool:
    return isinstance(value, tuple) or (isinstance(value, Tensor) and (value.is_nested or value.dim() == 2))


def _lists(given: Any) -> dict[str, Any]:
    """Ragged columns as values and offsets; padded ones stay matrices."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, Tensor) and value.is_nested:
            nested: Any = value
            found[name] = Ragged(nested.values(), nested.offsets())
        else:
            found[name] = value if isinstance(value, Tensor) else Ragged(*(as_tensor(part) for part in value))
    return found


def _tensors(labels: Any) -> Any:
    return {name: as_tensor(v) for name, v in labels.items()} if isinstance(labels, dict) else as_tensor(labels)
