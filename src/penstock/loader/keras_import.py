"""Keras, imported so that torch can still be used in the same process.

TensorFlow and Triton each bring an LLVM of their own, and the process aborts when Triton is loaded second. torch loads
Triton by itself as soon as it compiles anything, so where Triton is installed it goes first.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

from penstock.core.extras import require

_BEFORE_TENSORFLOW = ("triton",)


def import_keras() -> ModuleType:
    """The `keras` module; an error with the pip command where it is not installed.

    >>> import_keras().__name__
    'keras'
    """
    for name in _BEFORE_TENSORFLOW:
        if "tensorflow" not in sys.modules and importlib.util.find_spec(name) is not None:
            importlib.import_module(name)
    return require("keras", "keras")
