"""`merlin.dag.ops`: operators that Merlin shared with NVTabular."""

from penstock.compat.missing import module_getattr

__all__: list[str] = []

__getattr__ = module_getattr(__name__)
