"""`merlin.core.compat`: which libraries there are. Those that only a GPU has are None; frames are pandas frames."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

HAS_GPU = False
cuda = None
cudf = None
cupy = None
dask_cudf = None


def _there(name: str) -> ModuleType | None:
    """A library, where it is installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


numpy: Any = _there("numpy")
pandas: Any = _there("pandas")
psutil: Any = _there("psutil")

__all__ = ["HAS_GPU", "cuda", "cudf", "cupy", "dask_cudf", "numpy", "pandas", "psutil"]
