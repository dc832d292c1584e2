"""`nvtabular.framework_utils.tensorflow.layers`: Penstock's Keras layers."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.framework_utils.tensorflow.layers.embedding import (
    DenseFeatures,
    LinearFeatures,
    SparseEmbeddingLookup,
)
from penstock.compat.nvtabular.framework_utils.tensorflow.layers.interaction import DotProductInteraction
from penstock.compat.nvtabular.framework_utils.tensorflow.layers.outer_product import XDeepFmOuterProduct

__all__ = ["DenseFeatures", "DotProductInteraction", "LinearFeatures", "SparseEmbeddingLookup", "XDeepFmOuterProduct"]

__getattr__ = module_getattr(__name__)
