"""The names of NVTabular, Merlin and PERSIA over Penstock's own parts; `activate()` makes old imports resolve to them.

>>> import penstock.compat
>>> penstock.compat.activate()
>>> import nvtabular
>>> nvtabular.__name__
'penstock.compat.nvtabular'
>>> penstock.compat.deactivate()
"""

from penstock.compat import modules
from penstock.compat.activation import activate, active, deactivate
from penstock.compat.missing import CompatError

modules.install()

__all__ = ["CompatError", "activate", "active", "deactivate"]
