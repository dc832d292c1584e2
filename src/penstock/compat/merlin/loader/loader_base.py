"""`merlin.loader.loader_base`, the name of `merlin.dataloader.loader_base` in its first release."""

from penstock.compat.merlin.dataloader.loader_base import LoaderBase
from penstock.compat.missing import module_getattr

__all__ = ["LoaderBase"]

__getattr__ = module_getattr(__name__)
