"""What fused embeddings are made of: their tables' sizes, dtypes and the optimizer in the kernels' terms."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from penstock.core.errors import ParameterError, SchemaError
from penstock.core.params import Int, check_all
from penstock.core.schema import Role, Schema
from penstock.embedding.optimizers import Optimizer, fused_optimizers, optimizer_named
from penstock.embedding.slots import shared_groups
from penstock.kernels.optimizer_formulas import Rule

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
WEIGHT_DTYPES = tuple(_DTYPES.values())


def table_sizes(tables: Any) -> dict[str, int]:
    if isinstance(tables, Schema):
        columns = tables.select(roles=Role.CATEGORICAL)
        for column in columns:
            if not column.cardinality:
                raise SchemaError(
                    f"column {column.name!r} has no cardinality, so its table has no size; encode it with Categorify, "
                    f"or keep its embeddings in a store (penstock.embedding), which needs none"
                )
        sizes = {column.name: int(column.cardinality or 0) for column in columns}
    else:
        sizes = dict(tables) if isinstance(tables, Mapping) else {f"table_{i}": n for i, n in enumerate(tables)}
        check_all(sizes, dict.fromkeys(sizes, Int(min=1)), "FusedEmbeddings.tables")
    if not sizes:
        raise SchemaError("FusedEmbeddings needs at least one table: a schema with categorical columns, or sizes")
    return {name: int(size) for name, size in sizes.items()}


def row_owners(tables: Any, dims: Mapping[str, int]) -> dict[str, str]:
    """The column whose rows each column has: its own, or those of the first column with its vocabulary and its dim.

    >>> from penstock import ColumnSchema
    >>> shared = {"role": "categorical", "cardinality": 9, "properties": {"vocabulary": "item_last"}}
    >>> schema = Schema([ColumnSchema(name, "int64", **shared) for name in ("item", "last")])
    >>> row_owners(schema, {"item": 4, "last": 4}), row_owners(schema, {"item": 4, "last": 8})
    ({'item': 'item', 'last': 'item'}, {'item': 'item', 'last': 'last'})
    """
    groups = shared_groups(tables, dims) if isinstance(tables, Schema) else {}
    first: dict[str, str] = {}
    return {name: first.setdefault(groups[name], name) if name in groups else name for name in dims}


def weight_dtype(name: str, given: Any) -> torch.dtype:
    found = _DTYPES.get(str(given).removeprefix("torch."))
    if found is None:
        raise ParameterError(f"FusedEmbeddings.{name} must be one of {', '.join(_DTYPES)}, got {given!r}")
    return found


def table_optimizer(given: str | Optimizer, lr: float | None) -> Optimizer:
    """The optimizer that tables on a device are asked to train with, by a short name or made.

    Raises:
        ParameterError: there is none of that name, or its formula is one for stores only.
    """
    own = {} if lr is None else {"lr": lr}
    if isinstance(given, str):
        return optimizer_named(given, **own)
    if not isinstance(given, Optimizer) or not given.formula.fused:
        raise ParameterError(
            f"tables on a device take {', '.join(fused_optimizers())} in their plain form, got {given!r}; "
            f"a store (penstock.embedding) takes the others"
        )
    return dataclasses.replace(given, **own)


def update_rule(optimizer: Optimizer) -> Rule:
    named = {name: getattr(optimizer, name) for name in ("eps", "beta1", "beta2") if hasattr(optimizer, name)}
    bound = optimizer.weight_bound or 0.0
    return Rule(optimizer.formula.name, **named, decay=optimizer.weight_decay, bound=bound)
