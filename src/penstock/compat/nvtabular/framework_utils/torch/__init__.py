"""`nvtabular.framework_utils.torch`: torch layers, a model, a loop."""

from penstock.compat.missing import module_getattr

__all__: list[str] = []

__getattr__ = module_getattr(__name__)
