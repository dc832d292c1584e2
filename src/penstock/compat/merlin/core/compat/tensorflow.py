"""`merlin.core.compat.tensorflow`: the library where it is installed, else None.

Until 23.6 `from merlin.core.compat import tensorflow` gave the library itself, so the module has its names too.
"""

from __future__ import annotations

from typing import Any

from penstock.compat.merlin.core.compat import _there

tensorflow: Any = _there("tensorflow")

__all__ = ["tensorflow"]


def __getattr__(name: str) -> Any:
    return getattr(tensorflow, name)
