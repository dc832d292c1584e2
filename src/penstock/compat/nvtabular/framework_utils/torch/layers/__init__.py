"""`nvtabular.framework_utils.torch.layers`."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.framework_utils.torch.layers.embeddings import ConcatenatedEmbeddings, MultiHotEmbeddings

__all__ = ["ConcatenatedEmbeddings", "MultiHotEmbeddings"]

__getattr__ = module_getattr(__name__)
