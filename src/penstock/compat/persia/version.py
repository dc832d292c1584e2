"""The release whose names these are.

>>> __version__
'0.1.0+penstock'
"""

from penstock.compat.missing import module_getattr

__version__ = "0.1.0+penstock"
__all__ = ["__version__"]

__getattr__ = module_getattr(__name__)
