"""The layer of xDeepFM."""

from __future__ import annotations

from typing import Any

from penstock.compat.missing import module_getattr
from penstock.core.params import Int, check
from penstock.loader.keras_import import import_keras

keras = import_keras()
ops = keras.ops

__all__ = ["XDeepFmOuterProduct"]


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


__getattr__ = module_getattr(__name__)
