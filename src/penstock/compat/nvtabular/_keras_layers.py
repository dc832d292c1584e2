"""Keras layers of NVTabular that Penstock has no use for itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.compat import settings
from penstock.compat.merlin.dag.utils import OFFSETS, VALUES
from penstock.core.errors import ParameterError
from penstock.core.params import Int, check
from penstock.loader.keras_import import import_keras
from penstock.nn.keras import layers as native

keras = import_keras()
ops = keras.ops


def _lists(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs with `x__values` and `x__offsets` as one pair of values and row lengths."""
    found: dict[str, Any] = {}
    for name, value in inputs.items():
        if name.endswith(VALUES) and (offsets := inputs.get(name.removesuffix(VALUES) + OFFSETS)) is not None:
            offsets = ops.reshape(offsets, (-1,))
            found[name.removesuffix(VALUES)] = (ops.reshape(value, (-1,)), offsets[1:] - offsets[:-1])
        elif not name.endswith(OFFSETS):
            found[name] = value
    return found


class _OldInputs:
    """Mixin: lists may come as `x__values` and `x__offsets`; `embedding_tables` holds the tables by column."""

    tables: dict[str, Any]

    @property
    def embedding_tables(self) -> dict[str, Any]:
        return self.tables

    def __call__(self, inputs: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(value, (tuple, list)) for value in inputs.values()):
            settings.saw_list_pairs(type(self).__name__)  # before the first batch, while the model is built
        return super().__call__(inputs, *args, **kwargs)  # type: ignore[misc]

    def call(self, inputs: Mapping[str, Any]) -> Any:
        return super().call(_lists(inputs))  # type: ignore[misc]


@keras.saving.register_keras_serializable(package="penstock.compat")
class DenseFeatures(_OldInputs, native.DenseFeatures):
    """Columns as one dense tensor; `embedding_tables` holds the tables by column.

    >>> from penstock.nn.keras import FeatureColumn
    >>> layer = DenseFeatures([FeatureColumn("user", "embedding", 10, 4)])
    >>> layer({"user": ops.convert_to_tensor([[3], [7]])}).shape, list(layer.embedding_tables)
    (TensorShape([2, 4]), ['user'])
    """


@keras.saving.register_keras_serializable(package="penstock.compat")
class LinearFeatures(_OldInputs, native.LinearFeatures):
    """A linear model over columns; `embedding_tables` holds the weights of ids by column."""

    def __init__(self, feature_columns: Any, *args: Any, **kwargs: Any) -> None:
        for column in feature_columns:
            if type(column).__name__ in ("EmbeddingColumn", "IndicatorColumn"):
                raise ParameterError(
                    f"LinearFeatures takes numeric columns and categorical columns as they are, got {column.name!r}, "
                    f"which is dense already"
                )
        super().__init__(feature_columns, *args, **kwargs)

    @property
    def embedding_tables(self) -> dict[str, Any]:
        """The weights by column, and those of all numbers under each other as `numeric`."""
        numbers = [self.tables[c.name] for c in self.columns if not c.has_ids and c.name in self.tables]
        if not numbers:
            return self.tables
        return {**self.tables, "numeric": ops.concatenate([ops.convert_to_tensor(table) for table in numbers], axis=0)}


@keras.saving.register_keras_serializable(package="penstock.compat")
class DotProductInteraction(native.DotProductInteraction):
    """Dot products of every pair of a row's vectors, row by row of the upper triangle, as NVTabular gave them.

    The learned matrices are `(d, d)` for `"field_all"`, `(n, d, d)` for `"field_each"` and `(n, n, d, d)` for
    `"field_interaction"`.

    >>> DotProductInteraction()(ops.convert_to_tensor([[[1.0], [2.0], [3.0], [5.0]]])).numpy().tolist()
    [[2.0, 3.0, 5.0, 6.0, 10.0, 15.0]]
    """

    def build(self, input_shape: Any) -> None:
        _, count, width = input_shape
        leading = {"field_all": (), "field_each": (count,), "field_interaction": (count, count)}
        if self.interaction_type is not None:
            self.kernel = self.add_weight(
                name="bilinear_interaction_kernel",
                shape=(*leading[self.interaction_type], width, width),
                initializer="glorot_normal",
            )
        self.built = True

    def _pairs(self, count: int) -> tuple[list[int], list[int]]:
        pairs = [(i, j) for i in range(count) for j in range(i + (not self.self_interaction), count)]
        return [i for i, _ in pairs], [j for _, j in pairs]

    def call(self, inputs: Any) -> Any:
        count = inputs.shape[1]
        first, second = self._pairs(count)
        if self.interaction_type == "field_interaction":
            products = ops.einsum("bnk,fnjk,bfj->bfn", inputs, self.kernel, inputs)
        else:
            kinds = {"field_all": "bnk,kj->bnj", "field_each": "bnk,njk->bnj"}
            kind = kinds.get(self.interaction_type or "")
            left = inputs if kind is None else ops.einsum(kind, inputs, self.kernel)
            products = ops.matmul(left, ops.transpose(inputs, (0, 2, 1)))
        flat = ops.reshape(products, (-1, count * count))
        return ops.take(flat, [i * count + j for i, j in zip(first, second, strict=True)], axis=1)


@keras.saving.register_keras_serializable(package="penstock.compat")
class SparseEmbeddingLookup(keras.layers.Layer):  # type: ignore[name-defined]
    """The sum of the vectors of each row's ids, which come as a sparse or ragged tensor.

    >>> import tensorflow as tf
    >>> SparseEmbeddingLookup(10, 4)(tf.ragged.constant([[1, 2], [3]])).shape
    TensorShape([2, 4])
    """

    def __init__(self, vocab_size: int, dimension: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check("vocab_size", vocab_size, Int(min=1))
        check("dimension", dimension, Int(min=1))
        self.vocab_size, self.dimension = vocab_size, dimension

    def build(self, input_shape: Any = None) -> None:
        self.embedding_table = self.add_weight(
            name="embedding_weights", shape=(self.vocab_size, self.dimension), initializer="glorot_normal"
        )
        self.built = True

    def call(self, x: Any) -> Any:
        import tensorflow as tf

        ids = x.to_sparse() if isinstance(x, tf.RaggedTensor) else x
        return tf.nn.embedding_lookup_sparse(tf.convert_to_tensor(self.embedding_table), ids, None, combiner="sum")

    def compute_output_shape(self, input_shape: Any) -> tuple:
        return (input_shape[0], self.dimension)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "vocab_size": self.vocab_size, "dimension": self.dimension}


@keras.saving.register_keras_serializable(package="penstock.compat")
class XDeepFmOuterProduct(keras.layers.Layer):  # type: ignore[name-defined]
    """Products of every vector of one input with every one of another, dimension by dimension, mixed to `dim` vectors.

    Inputs are `[(rows, h, d), (rows, m, d)]`, the output is `(rows, dim, d)`.

    >>> XDeepFmOuterProduct(3)([ops.ones((2, 4, 5)), ops.ones((2, 6, 5))]).shape
    TensorShape([2, 3, 5])
    """

    def __init__(self, dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check("dim", dim, Int(min=1))
        self.dim = dim

    def build(self, input_shape: Any) -> None:
        (_, left, _), (_, right, _) = input_shape
        self.kernel = self.add_weight(name="kernel", shape=(self.dim, left, right), initializer="glorot_uniform")
        self.built = True

    def call(self, inputs: Any) -> Any:
        left, right = inputs
        return ops.einsum("bhd,bmd,khm->bkd", left, right, self.kernel)

    def compute_output_shape(self, input_shape: Any) -> tuple:
        return (input_shape[0][0], self.dim, input_shape[0][2])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "dim": self.dim}
