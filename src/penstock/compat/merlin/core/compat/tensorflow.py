"""`merlin.core.compat.tensorflow`: the library where it is installed, else None."""

from __future__ import annotations

from typing import Any

from penstock.compat.merlin.core.compat import _there

tensorflow: Any = _there("tensorflow")

__all__ = ["tensorflow"]
