"""`merlin.dataloader.ops`: operators that run on batches."""

from penstock.compat.missing import module_getattr

__all__: list[str] = []

__getattr__ = module_getattr(__name__)
