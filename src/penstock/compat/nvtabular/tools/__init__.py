"""`nvtabular.tools`: what takes its place is in `penstock.data.synthetic` and `penstock inspect`."""

from penstock.compat.missing import module_getattr

__all__: list[str] = []

__getattr__ = module_getattr(__name__)
