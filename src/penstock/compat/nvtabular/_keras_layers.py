"""Keras layers of NVTabular that Penstock has no use for itself."""

from __future__ import annotations

from typing import Any

from penstock.core.params import Int, check
from penstock.loader.keras_import import import_keras

keras = import_keras()
ops = keras.ops


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
