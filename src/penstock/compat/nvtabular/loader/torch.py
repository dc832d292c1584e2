"""NVTabular's loader for torch, in the three forms that its batches had."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.compat import settings
from penstock.compat.merlin.dag import ungroup_values_offsets
from penstock.compat.merlin.dataloader._columns import as_native_dataset, at_most, flattened, missing_numbers
from penstock.compat.merlin.dataloader.loader_base import LoaderMixin, given
from penstock.compat.merlin.dataloader.torch import DLDataLoader, ranks, torch_device
from penstock.core.batch import Batch, Ragged
from penstock.core.errors import ParameterError
from penstock.core.extras import require
from penstock.core.schema import Role, Schema
from penstock.loader import torch as native
from penstock.loader.settings import Pad

torch = require("torch", "torch")

__all__ = ["DLDataLoader", "TorchAsyncItr"]

_DTYPES = {"categorical": "int64", "continuous": "float32", "label": "float32"}


class TorchAsyncItr(LoaderMixin, native.Loader):
    """Batches for torch.

    The setting of `penstock.compat` says which form they have. `"0.5"`: `(cats, conts, labels)`, int64 `(B, n)`,
    float32 `(B, n)` and float32 `(B,)`, columns sorted by name; with lists, `cats` is `(tensor, {name: (values,
    offsets)})`; what there is none of is None. `"1.0"`: `({name: (B, 1)}, labels)`, where a feature that is the only
    one of its role is `(B,)`. `"latest"`: `({name: (B,)}, label)`, lists as `x__values` and `x__offsets`. Where there
    is a GPU, batches are on it unless `device="cpu"`.

    `shuffle` permutes partitions as well as rows, by `seed_fn()` for each epoch where that is given. With
    `global_size` processes, all get the same number of batches.

    >>> from penstock.compat.nvtabular import Dataset
    >>> data = Dataset({"b": [1, 2, 3], "a": [4, 5, 6], "x": [0.5, 1.0, 1.5], "y": [0, 1, 0]})
    >>> features, label = next(iter(TorchAsyncItr(data, ["b", "a"], ["x"], ["y"], batch_size=2)))
    >>> features["b"].tolist(), label.tolist()
    ([1, 2], [0, 1])
    """

    def __init__(
        self,
        dataset: Any,
        cats: Sequence[str] | None = None,
        conts: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        batch_size: int = 1,
        shuffle: bool = False,
        seed_fn: Callable[[], int] | None = None,
        parts_per_chunk: int = 1,
        device: Any = None,
        global_size: int | None = None,
        global_rank: int | None = None,
        drop_last: bool = False,
        sparse_names: Sequence[str] | None = None,
        sparse_max: Mapping[str, int] | None = None,
        sparse_as_dense: bool = False,
    ) -> None:
        self._given = given(locals())
        self.age = settings.nvtabular()
        data = flattened(as_native_dataset(dataset))
        names = _columns(data.schema, cats, conts, labels, self.age)
        self._sparse = _sparse(names, data.schema, sparse_names, sparse_max)
        self._dense_lists, self._seed_fn, self._batch_ops = sparse_as_dense, seed_fn, []
        chosen = [name for group in names.values() for name in group]
        scalars = [[name for name in group if not data.schema[name].is_list] for group in names.values()]
        self._alone = {group[0] for group in scalars if len(group) == 1}
        super().__init__(
            data, batch_size, **names, shuffle=shuffle, last_batch="drop" if drop_last else "keep",
            layout="packed" if self.age == "0.5" else "dict", dtypes=_DTYPES if self.age == "1.0" else None,
            lists={n: Pad(self._sparse[n]) for n in self._sparse if sparse_as_dense} or "ragged",
            fill=missing_numbers(data.schema, chosen), parts_per_chunk=parts_per_chunk, device=torch_device(device),
            **ranks(global_rank, global_size),
        )  # fmt: skip

    def _convert(self, batch: Batch) -> Any:
        for name, limit in self._sparse.items():
            at_most(limit, name, batch.ragged[name], "sparse_max allows {limit} items")
        converted = super()._convert(batch)
        if self.age == "0.5":
            return self._packed(*converted)
        features, labels = converted
        if self.age == "latest":
            lists = {n: self._list(n, v) if n in self._sparse else v for n, v in features.items()}
            return ungroup_values_offsets({n: lists[n] for n in self._schema.names if n in lists}), labels
        columns = {
            n: self._list(n, v) if n in self._lists else v if n in self._alone else v.unsqueeze(1)
            for n, v in features.items()
        }
        several = tuple(label.unsqueeze(1) for label in labels.values()) if isinstance(labels, dict) else labels
        return {n: columns[n] for n in self._schema.names if n in columns}, several

    def _packed(self, cats: Any, conts: Any, labels: Any) -> tuple[Any, Any, Any]:
        lists: dict[str, Any] = {}
        if isinstance(cats, tuple):
            cats, lists = cats
        cats = cats if cats.shape[1] else None
        if lists:
            cats = (cats, {name: self._list(name, value) for name, value in lists.items()})
        return cats, conts if conts.shape[1] else None, labels

    def _list(self, name: str, value: Any) -> Any:
        """A list column as it came then: `(values, where each row begins)`, or a sparse or dense matrix."""
        if not isinstance(value, Ragged):
            return value
        values, offsets = value
        if name not in self._sparse:
            return values, offsets[:-1].unsqueeze(1)
        lengths = offsets[1:] - offsets[:-1]
        rows = torch.repeat_interleave(torch.arange(len(lengths), device=values.device), lengths)
        places = torch.arange(len(values), device=values.device) - offsets[:-1][rows]
        return torch.sparse_coo_tensor(
            torch.stack([rows, places]), values, (len(lengths), self._sparse[name]), check_invariants=False
        )


def _columns(schema: Schema, cats: Any, conts: Any, labels: Any, age: str) -> dict[str, Any]:
    """The columns by role; those that are not named come from the schema, which 0.5 did not have."""
    given = {Role.CATEGORICAL: cats, Role.CONTINUOUS: conts, Role.LABEL: labels}
    from_schema = age != "0.5" or not any(given.values())
    names = {
        role: list([n] if isinstance(n, str) else n or (schema.select(roles=role).names if from_schema else ()))
        for role, n in given.items()
    }
    if not names[Role.CATEGORICAL] and not names[Role.CONTINUOUS]:
        raise ParameterError(
            "Neither Categorical or Continuous columns were found by the dataloader. Where there are no features, name "
            "columns in cats= and conts=, or give the data set a schema that does"
        )
    if age == "0.5":  # tensors have no names, so their columns have an order of their own
        names[Role.CATEGORICAL].sort()
        names[Role.CONTINUOUS].sort()
    return {
        "categorical": names[Role.CATEGORICAL], "continuous": names[Role.CONTINUOUS], "labels": names[Role.LABEL]
    }  # fmt: skip


def _sparse(
    names: Mapping[str, list[str]], schema: Schema, sparse_names: Any, sparse_max: Mapping[str, int] | None
) -> dict[str, int]:
    chosen = {name for group in names.values() for name in group}
    out = {}
    for name in sparse_names or ():
        if name not in chosen or not schema[name].is_list:
            raise ParameterError(f"sparse_names names {name!r}, which is not a list column that is loaded")
        if name not in (sparse_max or {}):
            raise ParameterError(f"sparse_max has no entry for {name!r}: say how many items its lists may have")
        out[name] = int((sparse_max or {})[name])
    return out
