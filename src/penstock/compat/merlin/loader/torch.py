"""`merlin.loader.torch`, the name of `merlin.dataloader.torch` in its first release."""

from penstock.compat.merlin.dataloader.torch import DLDataLoader, Loader
from penstock.compat.missing import module_getattr

__all__ = ["DLDataLoader", "Loader"]

__getattr__ = module_getattr(__name__)
