"""`merlin.loader`, the name of `merlin.dataloader` in its first release."""

from penstock.compat.missing import module_getattr

__all__: list[str] = []

__getattr__ = module_getattr(__name__)
