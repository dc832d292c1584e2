"""Where the optimizers were in 2021; later `persia.embedding`."""

from penstock.compat.missing import module_getattr

__all__: list[str] = []

__getattr__ = module_getattr(__name__)
