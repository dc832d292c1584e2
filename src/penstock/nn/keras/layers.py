"""Keras layers that take a dict of columns: dense inputs, a linear model, and the interactions of embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from penstock.core.errors import ParameterError
from penstock.core.params import BOOL, Int, OneOf, check
from penstock.loader.keras_import import import_keras
from penstock.nn.keras import lookup
from penstock.nn.keras.columns import FeatureColumn
from penstock.nn.keras.columns import feature_columns as as_feature_columns

keras = import_keras()
ops = keras.ops
_register = keras.saving.register_keras_serializable(package="penstock")


class _Columns(keras.layers.Layer):  # type: ignore[name-defined]
    """What layers over columns share: the columns, their tables, and how they are saved.

    Args:
        columns: that the layer reads.
        padding: the id that fills up padded lists and counts for nothing.
        check_ids: name the column and its largest id where ids lie outside their table.
        kwargs: of Keras' own `Layer`.
    """

    # XLA would turn the sparse gradients of the tables into dense ones, and cannot do ragged lists.
    def __init__(self, columns: list[FeatureColumn], padding: int, check_ids: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check("padding", padding, Int())
        check("check_ids", check_ids, BOOL)
        self.columns, self.padding, self.check_ids = columns, padding, check_ids
        self.supports_jit = False
        self.tables: dict[str, Any] = {}

    def _add_table(self, column: FeatureColumn, width: int, initializer: Any) -> None:
        self.tables[column.name] = self.add_weight(
            name=f"{column.name}_table",
            shape=(column.size, width),
            initializer=initializer,
            trainable=column.trainable,
        )

    def _checked(self, inputs: Mapping[str, Any]) -> AbstractContextManager[None]:
        return lookup.ids_checked(inputs, self.columns if self.check_ids else [])

    def get_config(self) -> dict[str, Any]:
        """What Keras saves the layer as.

        Returns:
            Arguments by name, as plain data.
        """
        columns = [column.to_dict() for column in self.columns]
        own = {"feature_columns": columns, "padding": self.padding, "check_ids": self.check_ids}
        return {**super().get_config(), **own}


@_register
class DenseFeatures(_Columns):
    """Columns as one dense tensor: numbers as they are, embeddings looked up, lists combined; sorted by name.

    Args:
        feature_columns: `tf.feature_column` descriptors (numeric, embedding or indicator of identity), a `Schema`, or
            `FeatureColumn`s.
        aggregation: `"concat"` gives `(rows, total width)`; `"stack"` gives `(rows, columns, width)` and needs columns
            of one width.
        dimension: of the embeddings of a `Schema`: a number or `{column: number}`.
        combiner: how lists of a `Schema` are combined: `"mean"`, `"sum"` or `"sqrtn"`.
        padding: the id that fills up padded lists and counts for nothing.
        check_ids: name the column and its largest id where ids lie outside their table.

    Inputs are a dict by column name; further entries are ignored. A column is `(rows,)`, `(rows, 1)`, a padded
    `(rows, n)`, a `tf.RaggedTensor`, or `(values, row lengths)`.

    >>> layer = DenseFeatures([FeatureColumn("user", "embedding", 10, 4), FeatureColumn("price", "numeric")])
    >>> layer({"user": ops.convert_to_tensor([[3], [7]]), "price": ops.convert_to_tensor([[0.5], [1.0]])}).shape
    TensorShape([2, 5])
    """

    def __init__(
        self,
        feature_columns: Any,
        aggregation: str = "concat",
        *,
        dimension: int | Mapping[str, int] = 16,
        combiner: str = "mean",
        padding: int = 0,
        check_ids: bool = True,
        **kwargs: Any,
    ) -> None:
        check("aggregation", aggregation, OneOf(("concat", "stack")))
        columns = as_feature_columns(feature_columns, dimension, combiner)
        if bare := [c.name for c in columns if c.kind == "identity"]:
            raise ParameterError(
                f"column {bare[0]!r} holds plain ids; wrap it in an embedding_column or an indicator_column"
            )
        if aggregation == "stack" and len({c.width for c in columns}) > 1:
            wide = max(columns, key=lambda c: c.width)
            narrow = min(columns, key=lambda c: c.width)
            raise ParameterError(
                f"aggregation='stack' needs columns of one width; {wide.name!r} has {wide.width} and "
                f"{narrow.name!r} has {narrow.width}"
            )
        super().__init__(columns, padding, check_ids, **kwargs)
        self.aggregation = aggregation

    def build(self, input_shape: Any = None) -> None:
        """Make the weights.

        Args:
            input_shape: of what the layer will be called with.
        """
        for column in self.columns:
            if column.kind == "embedding":
                default = keras.initializers.TruncatedNormal(stddev=column.dimension**-0.5)
                given = column.initializer
                self._add_table(column, column.dimension, default if given is None else keras.initializers.get(given))
        self.built = True

    def call(self, inputs: Mapping[str, Any]) -> Any:
        """What the layer makes of a batch.

        Args:
            inputs: a batch.

        Returns:
            The output of the layer.
        """
        with self._checked(inputs):
            parts = [self._part(lookup.column_input(inputs, c.name), c) for c in self.columns]
        return ops.stack(parts, axis=1) if self.aggregation == "stack" else ops.concatenate(parts, axis=-1)

    def _part(self, value: Any, column: FeatureColumn) -> Any:
        if column.kind == "numeric":
            return lookup.numbers(value, column, self.compute_dtype)
        if column.kind == "indicator":  # how often each id occurs: rows of the unit matrix, summed
            return lookup.embedded(value, ops.eye(column.size, dtype=self.compute_dtype), column, self.padding)
        return lookup.embedded(value, self.tables[column.name], column, self.padding)

    def compute_output_shape(self, input_shape: Any = None) -> tuple[int | None, ...]:
        """The shape of the output.

        Args:
            input_shape: of what the layer is called with.

        Returns:
            The shape; None for the batch.
        """
        if self.aggregation == "stack":
            return (None, len(self.columns), self.columns[0].width)
        return (None, sum(c.width for c in self.columns))

    def get_config(self) -> dict[str, Any]:
        """What Keras saves the layer as.

        Returns:
            Arguments by name, as plain data.
        """
        return {**super().get_config(), "aggregation": self.aggregation}


@_register
class LinearFeatures(_Columns):
    """A linear model over columns: a weight for each number and each id, plus a bias; `(rows, units)`.

    Args:
        feature_columns: as for `DenseFeatures`, and plain `categorical_column_with_identity`; embeddings and indicators
            count by their ids.
        units: outputs.
        use_bias: whether to add one.
        padding, check_ids: as for `DenseFeatures`.

    The weights of a list's items are summed.

    >>> layer = LinearFeatures([FeatureColumn("user", "identity", 10)])
    >>> layer({"user": ops.convert_to_tensor([[3], [7]])}).shape
    TensorShape([2, 1])
    """

    def __init__(
        self,
        feature_columns: Any,
        units: int = 1,
        *,
        use_bias: bool = True,
        padding: int = 0,
        check_ids: bool = True,
        **kwargs: Any,
    ) -> None:
        check("units", units, Int(min=1))
        check("use_bias", use_bias, BOOL)
        super().__init__([_linear(c) for c in as_feature_columns(feature_columns)], padding, check_ids, **kwargs)
        self.units, self.use_bias = units, use_bias

    def build(self, input_shape: Any = None) -> None:
        """Make the weights.

        Args:
            input_shape: of what the layer will be called with.
        """
        for column in self.columns:
            self._add_table(column, self.units, "zeros")
        self.bias = self.add_weight(name="bias", shape=(self.units,), initializer="zeros") if self.use_bias else None
        self.built = True

    def call(self, inputs: Mapping[str, Any]) -> Any:
        """What the layer makes of a batch.

        Args:
            inputs: a batch.

        Returns:
            The output of the layer.
        """
        with self._checked(inputs):
            total = sum(self._part(lookup.column_input(inputs, c.name), c) for c in self.columns)
        return total if self.bias is None else total + self.bias

    def _part(self, value: Any, column: FeatureColumn) -> Any:
        table = self.tables[column.name]
        if column.has_ids:
            return lookup.embedded(value, table, column, self.padding)
        return ops.matmul(lookup.numbers(value, column, self.compute_dtype), table)

    def compute_output_shape(self, input_shape: Any = None) -> tuple[int | None, ...]:
        """The shape of the output.

        Args:
            input_shape: of what the layer is called with.

        Returns:
            The shape; None for the batch.
        """
        return (None, self.units)

    def get_config(self) -> dict[str, Any]:
        """What Keras saves the layer as.

        Returns:
            Arguments by name, as plain data.
        """
        return {**super().get_config(), "units": self.units, "use_bias": self.use_bias}


@_register
class DotProductInteraction(keras.layers.Layer):  # type: ignore[name-defined]
    """Dot products of every pair of a row's vectors: `(rows, n, d)` → `(rows, n(n-1)/2)`.

    Args:
        interaction_type: None for plain products; `"field_all"`, `"field_each"` or `"field_interaction"` put a learned
            matrix in between: one for all, one for each first vector, one for each pair.
        self_interaction: whether a vector's product with itself counts as well.

    >>> DotProductInteraction()(ops.convert_to_tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])).numpy()
    array([[11., 17., 39.]], dtype=float32)
    """

    def __init__(self, interaction_type: str | None = None, self_interaction: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check("interaction_type", interaction_type, OneOf((None, "field_all", "field_each", "field_interaction")))
        check("self_interaction", self_interaction, BOOL)
        self.interaction_type, self.self_interaction = interaction_type, self_interaction

    def build(self, input_shape: Any) -> None:
        """Make the weights.

        Args:
            input_shape: of what the layer will be called with.

        Raises:
            ParameterError: the number of vectors or their width is not known.
        """
        _, count, width = input_shape
        if count is None or width is None:
            raise ParameterError(f"DotProductInteraction needs a known number of vectors and width, got {input_shape}")
        kinds = {"field_all": 1, "field_each": count, "field_interaction": self._num_pairs(count)}
        if self.interaction_type is not None:
            shape = (kinds[self.interaction_type], width, width)
            self.kernel = self.add_weight(name="kernel", shape=shape, initializer="glorot_uniform")
        self.built = True

    def _pairs(self, count: int) -> tuple[list[int], list[int]]:
        pairs = [(i, j) for i in range(count) for j in range(i + self.self_interaction)]
        return [j for _, j in pairs], [i for i, _ in pairs]

    def _num_pairs(self, count: int) -> int:
        return count * (count + (1 if self.self_interaction else -1)) // 2

    def call(self, inputs: Any) -> Any:
        """What the layer makes of a batch.

        Args:
            inputs: a batch.

        Returns:
            The output of the layer.
        """
        count = inputs.shape[1]
        first, second = self._pairs(count)
        if self.interaction_type == "field_interaction":
            left = ops.einsum("bpd,pde->bpe", ops.take(inputs, first, axis=1), self.kernel)
            return ops.sum(left * ops.take(inputs, second, axis=1), axis=-1)
        left = inputs
        if self.interaction_type == "field_all":
            left = ops.matmul(inputs, self.kernel[0])
        elif self.interaction_type == "field_each":
            left = ops.einsum("bnd,nde->bne", inputs, self.kernel)
        products = ops.reshape(ops.matmul(left, ops.transpose(inputs, (0, 2, 1))), (-1, count * count))
        return ops.take(products, [i * count + j for i, j in zip(first, second, strict=True)], axis=1)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """The shape of the output.

        Args:
            input_shape: of what the layer is called with.

        Returns:
            The shape; None for the batch.
        """
        return (input_shape[0], self._num_pairs(input_shape[1]))

    def get_config(self) -> dict[str, Any]:
        """What Keras saves the layer as.

        Returns:
            Arguments by name, as plain data.
        """
        own = {"interaction_type": self.interaction_type, "self_interaction": self.self_interaction}
        return {**super().get_config(), **own}


def _linear(column: FeatureColumn) -> FeatureColumn:
    """The column with its ids as they are, the weights of a list summed."""
    if not column.has_ids:
        return column
    return FeatureColumn(column.name, "identity", column.size, combiner="sum", default=column.default,
                         is_list=column.is_list, trainable=column.trainable)  # fmt: skip
