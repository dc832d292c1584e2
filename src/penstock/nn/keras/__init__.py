"""Keras layers and models over penstock's columns."""

from penstock.nn.keras.columns import FeatureColumn
from penstock.nn.keras.layers import DenseFeatures, DotProductInteraction, LinearFeatures
from penstock.nn.keras.models import dlrm, inputs_of, wide_and_deep

__all__ = [
    "DenseFeatures",
    "DotProductInteraction",
    "FeatureColumn",
    "LinearFeatures",
    "dlrm",
    "inputs_of",
    "wide_and_deep",
]
