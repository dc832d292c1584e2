"""Feature columns as plain data: what layers need to know of a column, from `tf.feature_column` or from a schema."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.errors import ParameterError, SchemaError
from penstock.core.schema import Role, Schema

COMBINERS = ("mean", "sum", "sqrtn")
KINDS = ("numeric", "identity", "embedding", "indicator")


@dataclass(frozen=True)
class FeatureColumn:
    """One input of a model.

    Args:
        name: of the column.
        kind: `"numeric"`, `"identity"` (ids as they are, for linear models), `"embedding"` or `"indicator"` (one place
            for each id).
        size: ids lie in `[0, size)`; for numbers, how many there are in a row.
        dimension: of the embedding.
        combiner: how the items of a list become one: `"mean"`, `"sum"` or `"sqrtn"`.
        default: the id that stands for any outside `[0, size)`; without it such ids are an error.
        is_list: whether rows hold lists of ids. Known from a schema; otherwise told from the input's shape.
        initializer: of the embedding, as Keras writes it down; None for Keras's truncated normal over √dimension.
        trainable: whether the embedding learns.

    >>> FeatureColumn("C1", "embedding", 1000, 16).to_dict()
    {'name': 'C1', 'kind': 'embedding', 'size': 1000, 'dimension': 16}
    """

    name: str
    kind: str
    size: int = 1
    dimension: int = 1
    combiner: str = "mean"
    default: int | None = None
    is_list: bool | None = None
    initializer: Mapping[str, Any] | None = None
    trainable: bool = True

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ParameterError(f"column {self.name!r}: kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.combiner not in COMBINERS:
            raise ParameterError(
                f"column {self.name!r}: combiner must be one of {', '.join(COMBINERS)}, got {self.combiner!r}"
            )

    @property
    def width(self) -> int:
        """Numbers that the column adds to a dense input."""
        return self.dimension if self.kind == "embedding" else self.size

    @property
    def has_ids(self) -> bool:
        return self.kind != "numeric"

    def to_dict(self) -> dict[str, Any]:
        """Plain data; fields at their default are left out.

        Returns:
            Fields by name.
        """
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        required = {"name", "kind"}
        return {
            f.name: values[f.name]
            for f in dataclasses.fields(self)
            if f.name in required or values[f.name] != f.default
        }


def feature_columns(columns: Any, dimension: Any = None, combiner: str = "mean") -> list[FeatureColumn]:
    """Columns in one form, sorted by name: from a `Schema`, `tf.feature_column` descriptors, or what is in it already.

    `dimension` (a number or `{column: number}`) and `combiner` say how a schema's categorical columns are embedded.
    """
    if isinstance(columns, Schema):
        found = [_of_schema(c, dimension, combiner) for c in columns if c.role in (Role.CATEGORICAL, Role.CONTINUOUS)]
        if not found:
            raise SchemaError("no column of the schema is categorical or continuous; give roles with with_roles()")
    else:
        if isinstance(columns, (str, Mapping)) or not isinstance(columns, Iterable):
            raise ParameterError(f"feature columns must be a Schema or a list of feature columns, got {columns!r}")
        found = [_of_any(column) for column in columns]
    names = [c.name for c in found]
    if twice := [n for n in names if names.count(n) > 1]:
        raise ParameterError(f"column {twice[0]!r} appears twice among the feature columns")
    return sorted(found, key=lambda column: column.name)


def _of_schema(column: Any, dimension: Any, combiner: str) -> FeatureColumn:
    if column.role is Role.CONTINUOUS:
        if column.is_list:
            raise SchemaError(f"column {column.name!r} holds lists of numbers, which no layer here takes; leave it out")
        return FeatureColumn(column.name, "numeric", is_list=False)
    if column.cardinality is None:
        raise SchemaError(
            f"the cardinality of {column.name!r} is not known, and with it the size of its table; "
            f"take the schema of a fitted workflow, or set it: column.with_(cardinality=…)"
        )
    if dimension is None:
        return FeatureColumn(column.name, "identity", column.cardinality, combiner=combiner, is_list=column.is_list)
    size = dimension.get(column.name) if isinstance(dimension, Mapping) else dimension
    if not isinstance(size, int) or size < 1:
        raise ParameterError(f"the embedding dimension of {column.name!r} must be an int ≥ 1, got {size!r}")
    return FeatureColumn(column.name, "embedding", column.cardinality, size, combiner, is_list=column.is_list)


def _of_any(column: Any) -> FeatureColumn:
    """From a descriptor of `tf.feature_column`, told by its class, so that TensorFlow need not be imported for it."""
    if isinstance(column, FeatureColumn):
        return column
    if isinstance(column, Mapping):
        return FeatureColumn(**column)
    kind = type(column).__name__
    if kind == "NumericColumn":
        return _numeric(column)
    if kind == "IdentityCategoricalColumn":
        return FeatureColumn(column.key, "identity", column.number_buckets, combiner="sum",
                             default=column.default_value)  # fmt: skip
    if kind in ("EmbeddingColumn", "IndicatorColumn"):
        ids = column.categorical_column
        if type(ids).__name__ != "IdentityCategoricalColumn":
            raise ParameterError(
                f"column {column.name!r} is built on a {type(ids).__name__}; only categorical_column_with_identity is "
                f"taken: turn values into ids in the workflow (Categorify, HashBucket)"
            )
        base = FeatureColumn(ids.key, "indicator", ids.number_buckets, combiner="sum", default=ids.default_value)
        return base if kind == "IndicatorColumn" else _embedding(column, base)
    raise ParameterError(
        f"{column!r} is not a feature column that is known here; use numeric_column, embedding_column or "
        f"indicator_column over categorical_column_with_identity, or a penstock Schema"
    )


def _numeric(column: Any) -> FeatureColumn:
    if column.normalizer_fn is not None:
        raise ParameterError(
            f"numeric column {column.key!r} has a normalizer_fn, which cannot be saved; normalize in the workflow"
        )
    if len(column.shape) != 1:
        raise ParameterError(f"numeric column {column.key!r} has shape {column.shape}; only one axis is taken")
    return FeatureColumn(column.key, "numeric", int(column.shape[0]), is_list=False)


def _embedding(column: Any, base: FeatureColumn) -> FeatureColumn:
    if column.max_norm is not None:
        raise ParameterError(f"embedding column {base.name!r} has max_norm, which is not supported; leave it out")
    return dataclasses.replace(
        base,
        kind="embedding",
        dimension=int(column.dimension),
        combiner=column.combiner,
        initializer=_initializer(column.initializer, base.name, int(column.dimension)),
        trainable=bool(column.trainable),
    )


def _initializer(initializer: Any, name: str, dimension: int) -> dict[str, Any] | None:
    """What Keras calls the initializer; None for the default of `embedding_column`."""
    config = dict(initializer.get_config()) if hasattr(initializer, "get_config") else None
    if config is None:
        raise ParameterError(f"the initializer of {name!r} cannot be saved; use one of tf.keras.initializers")
    kind = type(initializer).__name__.removesuffix("V2")
    config = {k: v for k, v in config.items() if k not in ("dtype", "layout")}
    plain = kind == "TruncatedNormal" and config.get("mean") == 0.0 and config.get("seed") is None
    if plain and abs(config["stddev"] - dimension**-0.5) < 1e-12:
        return None
    return {"class_name": kind, "config": config}
