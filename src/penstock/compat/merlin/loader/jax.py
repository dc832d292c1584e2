"""`merlin.loader.jax`, the name of `merlin.dataloader.jax` in its first release."""

from penstock.compat.merlin.dataloader.jax import Loader
from penstock.compat.missing import module_getattr

__all__ = ["Loader"]

__getattr__ = module_getattr(__name__)
