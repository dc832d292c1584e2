"""What fused embeddings are given, brought into the one form their kernels read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from penstock.core.errors import ColumnNotFoundError, DataError

_MOST = 2**31 - 1


class Ids(NamedTuple):
    """A batch's ids: `(B, singles)`, and `(values, offsets, sample weights)` of its bags, feature by feature.

    `bags` says which features are bags; the single ones come first in the kernels' order, each group in the schema's.
    Offsets are one more than there are samples for each feature (`fused_contract`).
    """

    singles: Tensor
    lists: tuple[Tensor, Tensor, Tensor | None] | None
    bags: tuple[int, ...]

    @property
    def num_occurrences(self) -> int:
        return self.singles.numel() + (0 if self.lists is None else len(self.lists[0]))

    def replaced(self, found: Tensor) -> Ids:
        """Other ids in their place, one for each occurrence: single ones feature by feature, then the lists' values."""
        (rows, singles), count = self.singles.shape, self.singles.numel()
        packed = None if self.lists is None else (found[count:].long(), *self.lists[1:])
        return Ids(found[:count].view(singles, rows).t(), packed, self.bags)


class BoundedLists:
    """Lists in memory of fixed size, as a captured step has them: behind their values there is room for more.

    What is in that room belongs to no list. Tables of `penstock.embedding` leave it alone. Whoever took the values for
    what they are would train on it, so this is no tuple of values and offsets that could be taken apart by mistake.

    Args:
        values: the values of all lists, and room.
        offsets: where lists begin and end; the last one says how many values there are.

    >>> lists = BoundedLists(torch.tensor([7, 8, 0, 0]), torch.tensor([0, 1, 2]))
    >>> read_ids({"tags": lists}, ["tags"], torch.device("cpu")).lists[1].tolist()
    [0, 1, 2]
    """

    __slots__ = ("_offsets", "_values")

    def __init__(self, values: Tensor, offsets: Tensor) -> None:
        self._values, self._offsets = values, offsets

    def parts(self) -> tuple[Tensor, Tensor]:
        """Values with room behind them, and offsets."""
        return self._values, self._offsets


def read_ids(
    given: Any, names: Sequence[str], device: torch.device, sample_weights: Mapping[str, Any] | None = None
) -> Ids:
    """The ids of `(B, columns)`, of `{name: column}`, or of a packed batch with lists, `(matrix, {name: lists})`."""
    if isinstance(given, Tensor):
        found = Ids(_matrix(given, len(names), device), None, ())
    elif isinstance(given, Mapping):
        for name in names:
            if name not in given:
                raise ColumnNotFoundError(name, given, "the features given to the tables")
        lists = {name: given[name] for name in names if _is_list(given[name])}
        singles = [_column(name, given[name], device) for name in names if name not in lists]
        found = _joined(_stacked(singles, device), lists, names, device, sample_weights or {})
    elif isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping):
        matrix, lists = given
        lists = {name: lists[name] for name in names if name in lists}
        found = _joined(
            _matrix(matrix, len(names) - len(lists), device), lists, names, device, sample_weights or {}
        )  # fmt: skip
    else:
        raise DataError(
            f"ids must be a tensor (B, {len(names)}), a mapping from names to columns, or a packed batch with lists, "
            f"got {type(given).__name__}"
        )
    are_lists = [names[number] for number in found.bags]
    if sample_weights and (strange := [name for name in sample_weights if name not in are_lists]):
        raise DataError(f"sample weights are for list columns, and {strange[0]!r} is none in this batch")
    if found.num_occurrences > _MOST:
        raise DataError(f"a batch may hold {_MOST} ids, this one has {found.num_occurrences}; use smaller batches")
    return found


def read_groups(
    given: Any,
    names: Sequence[str],
    groups: Sequence[Sequence[int]],
    device: torch.device,
    sample_weights: Mapping[str, Any] | None = None,
) -> list[Ids]:
    """`read_ids` for each group of columns, whose numbers are given."""
    if len(groups) == 1:
        return [read_ids(given, names, device, sample_weights)]
    own = [[names[number] for number in group] for group in groups]
    parts: list[Any] = [given] * len(groups)
    if isinstance(given, Tensor):
        parts = [*_parts(_matrix(given, len(names), device), names, own)]
    elif isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping):
        singles = [name for name in names if name not in given[1]]
        matrices = _parts(_matrix(given[0], len(singles), device), singles, own)
        parts = [(matrix, given[1]) for matrix in matrices]
    weights = sample_weights or {}
    if strange := [name for name in weights if name not in names]:
        raise DataError(f"there are sample weights of {strange[0]!r}, and the tables are {list(names)}")
    found = [
        read_ids(part, columns, device, {n: weights[n] for n in columns if n in weights})
        for part, columns in zip(parts, own, strict=True)
    ]
    if len(lengths := {len(ids.singles) for ids in found}) > 1:
        raise DataError(f"columns of one batch must be as long, got lengths {sorted(lengths)}")
    return found


def _parts(matrix: Tensor, names: Sequence[str], groups: Sequence[Sequence[str]]) -> list[Tensor]:
    """Some columns of a matrix for each group; a view of it where they lie side by side."""
    found = []
    for group in groups:
        numbers = [names.index(name) for name in group if name in names]
        first = numbers[0] if numbers else 0
        if numbers == list(range(first, first + len(numbers))):
            found.append(matrix[:, first : first + len(numbers)])
        else:
            found.append(torch.stack([matrix[:, number] for number in numbers]).t())  # column by column, as it came
    return found


def _is_list(value: Any) -> bool:
    return isinstance(value, (tuple, BoundedLists)) or (isinstance(value, Tensor) and value.dim() == 2)


def _integers(what: str, value: Any, device: torch.device) -> Tensor:
    tensor = torch.as_tensor(value, device=device)
    if tensor.dtype not in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8):
        raise DataError(f"{what} must be signed integers (or uint8), got {tensor.dtype}; encode the column first")
    return tensor


def _matrix(given: Any, width: int, device: torch.device) -> Tensor:
    matrix = _integers("ids", given, device)
    matrix = matrix[:, None] if matrix.dim() == 1 and width == 1 else matrix
    if matrix.dim() != 2 or matrix.shape[1] != width:
        raise DataError(f"ids must be (B, {width}), one column a table, got {tuple(matrix.shape)}")
    return matrix


def _column(name: str, value: Any, device: torch.device) -> Tensor:
    column = _integers(f"the ids of {name!r}", value, device)
    if column.dim() != 1:
        raise DataError(f"the ids of {name!r} must be (B,), (B, n) or (values, offsets), got {tuple(column.shape)}")
    return column


def _stacked(columns: list[Tensor], device: torch.device) -> Tensor | None:
    if not columns:
        return None
    if len({len(column) for column in columns}) > 1:
        raise DataError(f"columns of one batch must be as long, got lengths {sorted({len(c) for c in columns})}")
    if len({column.dtype for column in columns}) > 1:
        columns = [column.long() for column in columns]
    return torch.stack(columns).t()  # column by column, as it came


def _joined(
    singles: Tensor | None,
    lists: Mapping[str, Any],
    names: Sequence[str],
    device: torch.device,
    sample_weights: Mapping[str, Any],
) -> Ids:
    """Single columns and lists as one batch; all lists one behind the other."""
    values, offsets, weights, rows = [], [], [], None if singles is None else len(singles)
    for name, given in lists.items():
        own, ends = _ragged(name, given, device)
        if rows is not None and len(ends) - 1 != rows:
            raise DataError(f"the lists of {name!r} are {len(ends) - 1}, but the batch has {rows} rows")
        rows = len(ends) - 1
        values.append(own)
        offsets.append(ends)
        if sample_weights:
            weight = sample_weights.get(name)
            weight = torch.ones(len(own)) if weight is None else torch.as_tensor(weight)
            if weight.shape != own.shape:
                raise DataError(f"the sample weights of {name!r} are {tuple(weight.shape)}, its ids {tuple(own.shape)}")
            weights.append(weight.to(device, torch.float32))
    if singles is None:
        singles = torch.empty((rows or 0, 0), dtype=torch.int64, device=device)
    if not lists:
        return Ids(singles, None, ())
    ends = _behind_each_other(_alike(offsets), [len(own) for own in values])
    packed = torch.cat(_alike(values)), ends, torch.cat(weights) if weights else None
    return Ids(singles, packed, tuple(names.index(name) for name in lists))


def _alike(columns: list[Tensor]) -> list[Tensor]:
    """Integers of one width, so that they can lie in one tensor; a GPU's kernels read any."""
    if columns[0].is_cuda and len({column.dtype for column in columns}) == 1:
        return columns
    return [column.long() for column in columns]


def _behind_each_other(offsets: list[Tensor], lengths: list[int]) -> Tensor:
    """The offsets of several columns of lists whose values lie one behind the other; few kernels for many columns.

    >>> _behind_each_other([torch.tensor([0, 2, 3]), torch.tensor([0, 0, 4])], [3, 4])
    tensor([0, 2, 3, 3, 3, 7])
    """
    if offsets[0].dtype not in (torch.int32, torch.int64):  # which may have no room for the sums
        offsets = [column.long() for column in offsets]
    return torch.cat(torch._foreach_add(offsets, [0, *accumulate(lengths[:-1])]))


def _ragged(name: str, given: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    if isinstance(given, Tensor):  # (B, n)
        values = _integers(f"the ids of {name!r}", given, device)
        return values.reshape(-1), torch.arange(len(values) + 1, device=device) * values.shape[1]
    bounded = isinstance(given, BoundedLists)
    parts = given.parts() if bounded else given
    values, offsets = (_integers(f"the ids of {name!r}", part, device) for part in parts)
    if values.dim() != 1 or offsets.dim() != 1 or not len(offsets):
        raise DataError(f"the lists of {name!r} must be (values, offsets), with one offset more than there are lists")
    if device.type == "cpu":  # on a GPU looking would stall it; the kernels read nothing beyond the values there
        low, high, steps = int(offsets[0]), int(offsets[-1]), offsets[1:] - offsets[:-1]
        whole = high <= len(values) if bounded else high == len(values)
        if low != 0 or not whole or (steps < 0).any():
            raise DataError(
                f"the offsets of {name!r} must rise from 0 to the number of values, {len(values)}; they go from {low} "
                f"to {high}"
            )
    return values, offsets
