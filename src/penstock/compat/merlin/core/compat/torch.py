"""`merlin.core.compat.torch`: the library where it is installed, else None."""

from __future__ import annotations

from typing import Any

from penstock.compat.merlin.core.compat import _there

torch: Any = _there("torch")

__all__ = ["torch"]
