"""Layers over columns."""

from __future__ import annotations

from typing import Any

from penstock.compat.missing import module_getattr
from penstock.core.params import Int, check
from penstock.loader.keras_import import import_keras
from penstock.nn.keras.layers import DenseFeatures, LinearFeatures

keras = import_keras()

__all__ = ["DenseFeatures", "LinearFeatures", "SparseEmbeddingLookup"]


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


__getattr__ = module_getattr(__name__)
