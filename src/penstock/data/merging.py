"""Joining two data sets by key columns: through memory where the right side is one partition, else by an exchange."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.core.errors import ColumnNotFoundError, ParameterError, SchemaError
from penstock.core.schema import Schema
from penstock.data import tasks
from penstock.data.described import merged
from penstock.data.partition import MappedPartition, Partition
from penstock.engine.base import EngineLike

if TYPE_CHECKING:
    from penstock.data.dataset import Dataset

JOINS = ("inner", "left", "full", "semi", "anti")


def merged_partitions(
    left: Dataset, right: Dataset, keys: Sequence[str], how: str, suffix: str, engine: EngineLike
) -> tuple[list[Partition], Schema]:
    """The partitions of `Dataset.merge`, and the schema of what they read."""
    _check_same_keys(left.schema, right.schema, keys)
    _check_names(left.schema.names, right.schema.names, keys, how, suffix)
    join = partial(tasks.join, on=list(keys), how=how, suffix=suffix)
    empty = join(tasks.empty(left.schema), tasks.empty(right.schema))
    schema = merged(merged(Schema.from_polars(empty.schema), right.schema), left.schema)
    if right.num_partitions == 1 and how != "full":
        function = partial(tasks.join_with, right=right.to_polars(), join_frames=join)
        names = tuple(left.schema.names)
        return [MappedPartition(part, function, names, False) for part in left.partitions], schema
    num = max(left.num_partitions, right.num_partitions)
    lefts = left.shuffle_by_keys(keys, num, engine).partitions
    rights = right.shuffle_by_keys(keys, num, engine).partitions
    parts: list[Partition] = [
        MappedPartition(part, partial(tasks.join_part, right=other, join_frames=join), None, False)
        for part, other in zip(lefts, rights, strict=True)
    ]
    return parts, schema


def _check_names(left: Sequence[str], right: Sequence[str], keys: Sequence[str], how: str, suffix: str) -> None:
    """Every column of the result must have a name of its own."""
    others = [] if how in ("semi", "anti") else [name for name in right if name not in keys]
    made = [name + suffix if name in left else name for name in others]
    for name, other in zip(made, others, strict=True):
        if name in left or made.count(name) > 1:
            raise SchemaError(
                f"merge would give the right side's column {other!r} the name {name!r}, which another column has; "
                f"pass another suffix= than {suffix!r}"
            )


def _check_same_keys(left: Schema, right: Schema, keys: Sequence[str]) -> None:
    if not keys or len(set(keys)) < len(keys):
        raise ParameterError(f"merge needs key columns (on=), each of them once, got {list(keys)}")
    for name in keys:
        if name not in right:
            raise ColumnNotFoundError(name, right.names, "the right-hand data")
        if left[name].dtype != right[name].dtype:
            raise SchemaError(
                f"column {name!r} is {left[name].dtype} on the left and {right[name].dtype} on the right of merge; "
                f"cast one of them"
            )
