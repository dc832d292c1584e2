"""`nvtabular.loader.backend`: what loaders share."""

from penstock.compat.merlin.dataloader.loader_base import LoaderBase
from penstock.compat.missing import module_getattr

DataLoader = LoaderBase

__all__ = ["DataLoader"]

__getattr__ = module_getattr(__name__)
