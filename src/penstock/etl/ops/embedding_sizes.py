"""Embedding table sizes from what Categorify and its kin learned."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from penstock.core.errors import ParameterError
from penstock.core.schema import Role, Schema

Sizes = dict[str, tuple[int, int]]


def default_dimension(cardinality: int) -> int:
    """`min(max(16, round(1.6 · n^0.56)), 512)`.

    >>> default_dimension(10), default_dimension(10_000), default_dimension(10_000_000)
    (16, 278, 512)
    """
    return min(max(16, round(1.6 * math.pow(cardinality, 0.56))), 512)


def get_embedding_sizes(
    source: Any, dimension: int | Mapping[str, int] | Callable[[int], int] | None = None
) -> Sizes | tuple[Sizes, Sizes]:
    """`{column: (rows, dimension)}` for every categorical output; with list columns, `(single-hot, multi-hot)`.

    Args:
        source: a fitted Workflow, a Schema, or a Dataset.
        dimension: overrides the rule: one number, `{column: number}`, or a function of the cardinality.

    Returns:
        Sizes by column.

    Raises:
        ParameterError: the source is none that has categories.

    >>> from penstock import ColumnSchema, Schema
    >>> get_embedding_sizes(Schema([ColumnSchema("C1", "int32", role="categorical", cardinality=1000)]))
    {'C1': (1000, 77)}
    """
    schema = source if isinstance(source, Schema) else getattr(source, "output_schema", None) or source.schema
    single: Sizes = {}
    multi: Sizes = {}
    for column in schema.select(roles=Role.CATEGORICAL):
        if column.cardinality is None:
            raise ParameterError(f"the cardinality of {column.name!r} is not known; fit the workflow first")
        sizes = multi if column.is_list else single
        sizes[column.name] = (column.cardinality, _dimension(column.name, column.cardinality, dimension))
    return (single, multi) if multi else single


def _dimension(name: str, cardinality: int, rule: Any) -> int:
    if rule is None:
        return default_dimension(cardinality)
    if isinstance(rule, Mapping):
        return int(rule[name]) if name in rule else default_dimension(cardinality)
    return int(rule(cardinality)) if callable(rule) else int(rule)
