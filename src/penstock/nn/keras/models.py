"""Whole Keras models from a schema in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.core.errors import SchemaError
from penstock.core.params import Int, ListOf, OneOf, check
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.loader.keras_import import import_keras
from penstock.nn.keras.layers import DenseFeatures, DotProductInteraction, LinearFeatures

keras = import_keras()

_WIDTHS = ListOf(Int(min=1))
_LISTS = OneOf(("ragged", "padded", "row_lengths"))


def inputs_of(schema: Schema, lists: str = "ragged") -> dict[str, Any]:
    """A `keras.Input` for each categorical and continuous column, as `penstock.loader.keras.Loader` delivers them.

    `lists` is how list columns come: `"ragged"`, `"padded"` (dense) or `"row_lengths"`.

    Args:
        schema: of the features.
        lists: how list columns come.

    Returns:
        Inputs by column.

    >>> schema = Schema([ColumnSchema("user", "int32", role="categorical", cardinality=10)])
    >>> inputs_of(schema)["user"].shape
    (None, 1)
    """
    check("lists", lists, _LISTS)
    return {c.name: _input(c, lists) for c in schema if c.role in (Role.CATEGORICAL, Role.CONTINUOUS)}


def _input(column: ColumnSchema, lists: str) -> Any:
    if column.role is Role.CONTINUOUS:
        return keras.Input((1,), dtype="float32", name=column.name)
    dtype = "int64" if column.dtype in ("int64", "uint64", "uint32") else "int32"
    if not column.is_list:
        return keras.Input((1,), dtype=dtype, name=column.name)
    if lists == "row_lengths":
        parts = (("values", dtype), ("row_lengths", "int64"))
        return tuple(keras.Input((1,), dtype=kind, name=f"{column.name}__{part}") for part, kind in parts)
    return keras.Input((None,), dtype=dtype, name=column.name, ragged=lists == "ragged")


def wide_and_deep(
    schema: Schema,
    *,
    dimension: int | Mapping[str, int] = 16,
    hidden: Sequence[int] = (128, 128, 128),
    combiner: str = "mean",
    lists: str = "ragged",
    dropout: float = 0.0,
    activation: str | None = "sigmoid",
) -> Any:
    """A linear model over all columns plus an MLP over embeddings and numbers.

    Args:
        schema: with roles, and the cardinality of each categorical column.
        dimension: of the embeddings: a number or `{column: number}`.
        hidden: widths of the MLP.
        combiner, lists: how list columns are combined, and how they come (see `inputs_of`).
        dropout: after each hidden layer.
        activation: of the output; None gives logits.

    Returns:
        A Keras model.

    >>> schema = Schema([ColumnSchema("user", "int32", role="categorical", cardinality=10)])
    >>> wide_and_deep(schema, dimension=2, hidden=[4]).output_shape
    (None, 1)
    """
    check("hidden", hidden, _WIDTHS)
    inputs = inputs_of(schema, lists)
    deep = DenseFeatures(schema, dimension=dimension, combiner=combiner, name="embeddings")(inputs)
    deep = _mlp(deep, hidden, "deep", dropout)
    deep = keras.layers.Dense(1, name="deep_output")(deep)
    wide = LinearFeatures(schema, name="wide")(inputs)
    logits = keras.layers.Add(name="logits")([wide, deep])
    return keras.Model(inputs, _output(logits, activation), name="wide_and_deep")


def dlrm(
    schema: Schema,
    *,
    dimension: int = 16,
    bottom: Sequence[int] = (64,),
    top: Sequence[int] = (128, 64),
    combiner: str = "mean",
    lists: str = "ragged",
    interaction_type: str | None = None,
    activation: str | None = "sigmoid",
) -> Any:
    """DLRM: embeddings and a bottom MLP over the numbers, their pairwise dot products, a top MLP.

    Args:
        schema: with roles, and the cardinality of each categorical column.
        dimension: of the embeddings, and of the bottom MLP's output.
        bottom, top: hidden widths of the two MLPs.
        combiner, lists: how list columns are combined, and how they come (see `inputs_of`).
        interaction_type: of `DotProductInteraction`.
        activation: of the output; None gives logits.

    Returns:
        A Keras model.

    Raises:
        SchemaError: the schema has no categorical column.

    >>> columns = [ColumnSchema(n, "int32", role="categorical", cardinality=10) for n in ("user", "item")]
    >>> dlrm(Schema(columns), dimension=2).output_shape
    (None, 1)
    """
    check("dimension", dimension, Int(min=1))
    check("bottom", bottom, _WIDTHS)
    check("top", top, _WIDTHS)
    categorical, continuous = (schema.select(roles=role) for role in (Role.CATEGORICAL, Role.CONTINUOUS))
    if not len(categorical):
        raise SchemaError("DLRM needs at least one categorical column; give roles with schema.with_roles()")
    inputs = inputs_of(schema, lists)
    stack = DenseFeatures(categorical, "stack", dimension=dimension, combiner=combiner, name="embeddings")
    vectors = stack({name: inputs[name] for name in categorical.names})
    rest = []
    if len(continuous):
        numbers = DenseFeatures(continuous, name="numbers")({name: inputs[name] for name in continuous.names})
        numbers = _mlp(numbers, [*bottom, dimension], "bottom")
        rest = [numbers]
        vectors = keras.layers.Concatenate(axis=1, name="vectors")(
            [keras.layers.Reshape((1, dimension), name="numbers_vector")(numbers), vectors]
        )
    if vectors.shape[1] > 1:
        rest.append(DotProductInteraction(interaction_type, name="interaction")(vectors))
    else:
        rest.append(keras.layers.Flatten(name="only_vector")(vectors))
    both = keras.layers.Concatenate(name="interactions_and_numbers")(rest) if len(rest) > 1 else rest[0]
    logits = keras.layers.Dense(1, name="logits")(_mlp(both, top, "top"))
    return keras.Model(inputs, _output(logits, activation), name="dlrm")


def _mlp(x: Any, widths: Sequence[int], name: str, dropout: float = 0.0) -> Any:
    for number, width in enumerate(widths):
        x = keras.layers.Dense(width, activation="relu", name=f"{name}_{number}")(x)
        if dropout:
            x = keras.layers.Dropout(dropout, name=f"{name}_dropout_{number}")(x)
    return x


def _output(logits: Any, activation: str | None) -> Any:
    # In float32 whatever the policy: losses of half-precision probabilities lose their tails.
    return keras.layers.Activation(activation or "linear", dtype="float32", name="output")(logits)
