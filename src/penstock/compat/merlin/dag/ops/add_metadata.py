"""Tags and properties."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.add_metadata import (
    AddMetadata,
    AddProperties,
    AddTags,
    TagAsItemFeatures,
    TagAsItemID,
    TagAsUserFeatures,
    TagAsUserID,
)

__all__ = [
    "AddMetadata",
    "AddProperties",
    "AddTags",
    "TagAsItemFeatures",
    "TagAsItemID",
    "TagAsUserFeatures",
    "TagAsUserID",
]

__getattr__ = module_getattr(__name__)
