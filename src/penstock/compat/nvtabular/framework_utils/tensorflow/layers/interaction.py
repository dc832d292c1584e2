"""Interactions of embeddings."""

from penstock.compat.missing import module_getattr
from penstock.nn.keras.layers import DotProductInteraction

__all__ = ["DotProductInteraction"]

__getattr__ = module_getattr(__name__)
