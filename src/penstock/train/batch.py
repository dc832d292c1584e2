"""A batch on its way through training: what the loader gave, what the store found, what the model reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.core.batch import Batch, Ragged
from penstock.core.errors import ColumnNotFoundError, DataError
from penstock.core.schema import Role, Schema


@dataclass
class TrainBatch:
    """One batch with its embeddings.

    `continuous` is `(B, n)`; `embeddings` is `(B, slots, dim)` or `{name: tensor}`; `masks` are those of raw slots. All
    lie on the context's device. `ids` are the categorical columns as the loader gave them.

    Args:
        ids: by column.
        continuous: the continuous columns.
        labels: one a row, or by output.
        num_rows: of the batch.
        embeddings: by column, or stacked.
        masks: of columns that are sequences.
        position: of the loader behind this batch.
        lookup: what the update needs.
        dims: widths of what is packed.
        leaves: tensors that collect gradients.
    """

    ids: dict[str, Any]
    continuous: Tensor
    labels: Any
    num_rows: int
    embeddings: Any = None
    masks: dict[str, Tensor] = field(default_factory=dict)
    position: Any = None  # the loader's state after this batch
    lookup: Any = None
    dims: dict[str, int] = field(default_factory=dict)  # of the columns in the packed leaf, in order
    leaves: dict[str, Tensor] = field(default_factory=dict)  # what collects gradients: "" is the packed leaf


def named_columns(raw: Any, schema: Schema | None) -> tuple[dict[str, Any], Any]:
    """`({column: array}, labels)` of whatever a loader delivers.

    That is `(features, labels)`, `(cats, conts, labels)` of the packed layout (named by the loader's schema), or a
    `Batch`.
    """
    if isinstance(raw, Batch):
        columns = raw.columns()
        names = [n for spec in raw.specs if spec.role is Role.LABEL for n in spec.names]
        labels = {name: columns.pop(name) for name in names}
        return columns, labels.popitem()[1] if len(labels) == 1 else labels or None
    if isinstance(raw, Sequence) and len(raw) == 2 and isinstance(raw[0], Mapping):
        return dict(raw[0]), raw[1]
    if isinstance(raw, Sequence) and len(raw) == 3 and schema is not None:
        cats, conts, labels = raw
        cats, lists = cats if isinstance(cats, tuple) else (cats, {})
        found = dict(lists)
        for role, block in ((Role.CATEGORICAL, cats), (Role.CONTINUOUS, conts)):
            names = [column.name for column in schema.select(roles=role) if column.name not in lists]
            found.update(zip(names, block.T, strict=True))
        return found, labels
    raise DataError(
        f"a loader must deliver ({{column: values}}, labels), or (cats, conts, labels) with a schema; "
        f"got {type(raw).__name__}"
    )


def training_batch(raw: Any, schema: Schema | None, continuous: Sequence[str], slots: Sequence[str]) -> TrainBatch:
    """The loader's batch with its columns sorted into continuous ones and ids."""
    columns, labels = named_columns(raw, schema)
    for name in (*continuous, *slots):
        if name not in columns:
            raise ColumnNotFoundError(name, columns, "the loader's batch")
    ids = {name: host_ids(columns[name]) for name in slots}
    if continuous:
        matrix = torch.stack([as_tensor(columns[name]).to(torch.float32) for name in continuous], 1)
        rows = len(matrix)
    else:
        rows = _count(ids[slots[0]]) if slots else 0
        matrix = torch.empty((rows, 0))
    return TrainBatch(ids, matrix, float_labels(labels), rows)


def host_ids(value: Any) -> Any:
    """Ids where a store can read them; ragged ones as `(values, offsets)`."""
    if isinstance(value, tuple):  # Ragged is one too
        return Ragged(*(host_ids(part) for part in value))
    if isinstance(value, Tensor):
        if value.is_nested:
            jagged: Any = value
            return Ragged(jagged.values().cpu(), jagged.offsets().cpu())
        return value if value.device.type == "cpu" else value.cpu()
    return value


def as_tensor(value: Any) -> Tensor:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value if value.flags.writeable else value.copy())
    return torch.as_tensor(value)


def float_labels(labels: Any) -> Any:
    """Labels as float32 tensors; several keep their names."""
    if labels is None:
        return None
    if isinstance(labels, Mapping):
        return {name: as_tensor(value).to(torch.float32) for name, value in labels.items()}
    return as_tensor(labels).to(torch.float32)


def to_device(value: Any, device: torch.device) -> Any:
    """Tensors, and mappings of them, on a device."""
    if isinstance(value, Mapping):
        return {name: to_device(item, device) for name, item in value.items()}
    if isinstance(value, tuple):
        moved = [to_device(item, device) for item in value]
        return Ragged(*moved) if isinstance(value, Ragged) else tuple(moved)
    return value.to(device, non_blocking=True) if isinstance(value, Tensor) else value


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors of nested tuples and mappings.

    >>> [len(t) for t in tensors_of((torch.zeros(2), {"click": torch.zeros(3)}, None))]
    [2, 3]
    """
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_of(item)
    elif isinstance(value, dict):
        yield from tensors_of(list(value.values()))


def copied(value: Any) -> Any:
    """The same in memory of its own: matrices column by column, as the loader's batches lie."""
    if isinstance(value, Tensor):
        return value.t().contiguous().clone().t() if value.dim() == 2 else value.clone()
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    return tuple(copied(item) for item in value) if isinstance(value, tuple) else value


def floats(value: Any) -> Any:
    """A tensor, or a mapping of them, in float32."""
    if isinstance(value, dict):
        return {name: floats(item) for name, item in value.items()}
    return value.float() if isinstance(value, Tensor) else value


def _count(ids: Any) -> int:
    return len(ids.offsets) - 1 if isinstance(ids, Ragged) else len(ids)
