"""`nvtabular.io.shuffle`."""

from penstock.compat.merlin.io.shuffle import Shuffle, shuffle_df
from penstock.compat.missing import module_getattr

__all__ = ["Shuffle", "shuffle_df"]

__getattr__ = module_getattr(__name__)
