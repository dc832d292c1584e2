"""`nvtabular.dispatch`: `merlin.core.dispatch` under its earlier name, with the underscores of that time."""

from typing import Any

from penstock.compat.merlin.core import dispatch as _dispatch
from penstock.compat.merlin.core.dispatch import *  # noqa: F403
from penstock.compat.missing import module_getattr

__all__ = list(_dispatch.__all__)

_missing = module_getattr(__name__)


def __getattr__(name: str) -> Any:
    plain = name.removeprefix("_")
    return getattr(_dispatch, plain) if name != plain and plain in __all__ else _missing(name)
