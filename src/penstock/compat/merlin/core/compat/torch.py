"""`merlin.core.compat.torch`: the library where it is installed, else None.

Until 23.6 `from merlin.core.compat import torch` gave the library itself, so the module has its names too.
"""

from __future__ import annotations

from typing import Any

from penstock.compat.merlin.core.compat import _there

torch: Any = _there("torch")

__all__ = ["torch"]


def __getattr__(name: str) -> Any:
    return getattr(torch, name)
